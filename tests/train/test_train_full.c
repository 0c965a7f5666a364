/* Method full: trains every weight of a base, from a folder or from scratch. A run resumes bit for
 * bit and folds to a base file, which works like any other base. */
#include "toy_run.h"

#include <math.h>

static char folded[512];

static void setup(void)
{
    toy_run_setup();
    toy_path(folded, dir, "folded.h5");
}

static kvf_train_options options_for(const char *path)
{
    kvf_train_options o = toy_run_options(path);
    o.method = "full";
    o.steps = 8;
    o.schedule_steps = 8;
    o.eval_every = 4;
    o.save_every = 4;
    o.lr = 3e-3;
    return o;
}

/* Loss of the held-out rows under a run or prefix file, NULL: under the bare base. */
static double loss_of(const char *base_path, const char *file)
{
    const kvf_base_options f32 = {.precision = KVF_PRECISION_F32};
    const kvf_eval_options options = {.data = valid};
    kvf_eval_result result = {0};
    kvf_prefix *prefix = NULL;
    kvf_base *opened = NULL;

    if (file)
        ck_assert_msg(!kvf_prefix_open(ctx, file, KVF_CHECKPOINT_LAST, &prefix), "%s",
                      kvf_ctx_error(ctx));
    ck_assert_msg(!kvf_base_open_for(ctx, base_path, &f32, prefix, &opened), "%s",
                  kvf_ctx_error(ctx));
    if (prefix)
        ck_assert_msg(!kvf_prefix_check(ctx, prefix, opened, false), "%s", kvf_ctx_error(ctx));
    ck_assert_msg(!kvf_eval(ctx, opened, &prefix, prefix != NULL, &options, &result), "%s",
                  kvf_ctx_error(ctx));
    kvf_base_free(opened);
    kvf_prefix_free(prefix);
    return result.loss;
}

static kvf_status merge(const char *run, const char *path, const char *base_path)
{
    const kvf_merge_options options = {
        .run = run, .out = path, .base = base_path, .checkpoint = KVF_CHECKPOINT_LAST};
    kvf_merge_result result;
    kvf_status st = kvf_merge(ctx, &options, &result);
    if (!st) {
        ck_assert_double_eq(result.max_abs_diff, 0);
        ck_assert_int_eq(result.rank, 1);
        ck_assert_int_gt(result.shape[0], 10000);
    }
    return st;
}

START_TEST(learns_and_folds_to_a_base)
{
    kvf_train_options o = options_for(out);
    kvf_train_result result = train(&o);
    double bare = loss_of(base, NULL), live = loss_of(base, out);

    ck_assert_double_lt(live, bare - 0.1);
    ck_assert_double_eq_tol(live, result.valid_loss, 1e-6);
    ck_assert_int_gt(result.trainable_parameters, 10000);
    ck_assert_int_eq(result.parameters, result.trainable_parameters); /* every weight, once */
    ck_assert_msg(!merge(out, folded, base), "%s", kvf_ctx_error(ctx));
    ck_assert_double_eq_tol(loss_of(folded, NULL), live, 1e-5 * live);

    /* a prefix on it trains as on any other base */
    kvf_train_options p = options_for(other);
    p.base = folded;
    p.method = "direct";
    p.prefix_length = 3;
    p.steps = p.schedule_steps = p.eval_every = 60;
    p.lr = 0.03;
    train(&p);
    ck_assert_double_lt(loss_of(folded, other), live);
}
END_TEST

/* The first loss equals that of the bare base in the same form, bit for bit; equal runs give equal
 * files. */
START_TEST(equal_runs)
{
    kvf_train_options o = options_for(out);
    train(&o);
    o.out = other;
    train(&o);
    ck_assert(equal_files(out, other));
}
END_TEST

START_TEST(resume_is_no_stop)
{
    kvf_train_options o = options_for(out);
    o.base_dropout = _i ? 0.2 : 0;
    train(&o);
    o.out = other;
    o.steps = 4;
    train(&o);
    o.steps = 8;
    o.resume = true;
    train(&o);
    ck_assert(equal_files(out, other));
}
END_TEST

/* Result of eval with a file, or with the head of the base alone. */
static kvf_eval_result measured(const char *base_path, const char *file, const char *rows)
{
    const kvf_base_options f32 = {.precision = KVF_PRECISION_F32};
    const kvf_eval_options options = {.data = rows};
    kvf_eval_result result = {0};
    kvf_prefix *prefix = NULL;
    kvf_base *opened = NULL;

    ck_assert_msg(!kvf_prefix_open(ctx, file, KVF_CHECKPOINT_LAST, &prefix), "%s",
                  kvf_ctx_error(ctx));
    ck_assert_msg(!kvf_base_open_for(ctx, base_path, &f32, prefix, &opened), "%s",
                  kvf_ctx_error(ctx));
    ck_assert_msg(!kvf_prefix_check(ctx, prefix, opened, false), "%s", kvf_ctx_error(ctx));
    ck_assert_msg(!kvf_eval(ctx, opened, &prefix, 1, &options, &result), "%s", kvf_ctx_error(ctx));
    kvf_base_free(opened);
    kvf_prefix_free(prefix);
    return result;
}

/* The base file contains the head and its labels, and is evaluated with them; they do not apply to
 * another base. */
START_TEST(head_of_a_task)
{
    char rows[512];
    bool has = false;
    toy_write(dir, "cls.jsonl",
              "{\"text\": \"a b c\", \"label\": \"x\"}\n{\"text\": \"d e f\", \"label\": \"y\"}\n"
              "{\"text\": \"b c a\", \"label\": \"x\"}\n{\"text\": \"e f d\", \"label\": \"y\"}\n");
    toy_path(rows, dir, "cls.jsonl");
    kvf_train_options o = options_for(out);
    o.data = o.valid = rows;
    o.task = "seq-cls";
    o.steps = 30;
    o.eval_every = 30;
    kvf_train_result result = train(&o);
    ck_assert_double_lt(result.valid_loss, 0.3);
    ck_assert_msg(!merge(out, folded, base), "%s", kvf_ctx_error(ctx));
    ck_assert(!kvf__base_has_head(ctx, folded, &has) && has);
    ck_assert(!kvf__base_has_head(ctx, base, &has) && !has);
    const kvf_eval_result live = measured(base, out, rows), file = measured(folded, folded, rows);
    ck_assert_str_eq(file.task, "seq-cls");
    ck_assert_double_eq_tol(file.loss, live.loss, 1e-5 * live.loss + 1e-7);
    ck_assert_double_eq(file.scores[0].value, 1);

    kvf_json *tree = NULL;
    ck_assert_msg(!kvf_inspect(ctx, folded, &tree), "%s", kvf_ctx_error(ctx));
    const kvf_json *about = kvf_json_get(tree, "attributes");
    ck_assert_str_eq(kvf_json_str(kvf_json_get(about, "task"), NULL), "seq-cls");
    ck_assert_uint_eq(kvf_json_size(kvf_json_get(about, "labels")), 2);
    kvf_json_free(tree);
    kvf_prefix *head = NULL;
    kvf_base *opened = open_base();
    ck_assert_int_eq(kvf_prefix_open(ctx, folded, KVF_CHECKPOINT_DEFAULT, &head), KVF_OK);
    ck_assert_int_eq(kvf_prefix_check(ctx, head, opened, false), KVF_EMISMATCH);
    kvf_prefix_free(head);
    kvf_base_free(opened);
}
END_TEST

/* Virtual tokens trained with the base's weights fold to a base file and a prefix for it. */
START_TEST(p_tuning_unfreezes_the_base)
{
    char second[512];
    kvf_train_options o = options_for(out);
    o.method = "p-tuning";
    o.unfreeze_base = true;
    o.base_lr = 3e-3;
    o.lr = 1e-3;
    o.prefix_length = 3;
    o.p_encoder = "mlp";
    kvf_train_result both = train(&o);
    double live = loss_of(base, out);
    ck_assert_double_lt(both.valid_loss, loss_of(base, NULL) - 0.1);
    ck_assert_double_eq_tol(live, both.valid_loss, 1e-6);
    o.out = other;
    o.steps = 4;
    train(&o);
    o.steps = 8;
    o.resume = true;
    train(&o);
    ck_assert(equal_files(out, other));

    toy_path(second, dir, "second.h5");
    kvf_merge_options m = {
        .run = out, .out = second, .base = base, .checkpoint = KVF_CHECKPOINT_LAST};
    kvf_merge_result result;
    ck_assert_int_eq(kvf_merge(ctx, &m, &result), KVF_EUSAGE);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(ctx), "name the base file with --out-base"));
    m.out_base = second;
    ck_assert_int_eq(kvf_merge(ctx, &m, &result), KVF_EUSAGE);
    m.out_base = folded;
    ck_assert_msg(!kvf_merge(ctx, &m, &result), "%s", kvf_ctx_error(ctx));
    ck_assert_int_eq(result.rank, 6);
    ck_assert_double_eq_tol(loss_of(folded, second), live, 1e-4 * live);
    kvf_prefix *prefix = NULL;
    kvf_base *opened = open_base();
    ck_assert_int_eq(kvf_prefix_open(ctx, second, KVF_CHECKPOINT_DEFAULT, &prefix), KVF_OK);
    ck_assert_int_eq(kvf_prefix_check(ctx, prefix, opened, false), KVF_EMISMATCH);
    kvf_prefix_free(prefix);
    kvf_base_free(opened);
    ck_assert_int_eq(kvf_merge(ctx, &m, &result), KVF_EEXIST);

    toy_path(second, dir, "none.h5");
    o = options_for(second);
    ck_assert_int_eq(kvf_train_set(ctx, &o, "unfreeze", "base"), KVF_OK);
    expect_failure(&o, KVF_EUSAGE, "--unfreeze: not for method full");
}
END_TEST

START_TEST(refused)
{
    kvf_train_options o = options_for(out);
    ck_assert_int_eq(kvf_train_set(ctx, &o, "prefix-length", "5"), KVF_OK);
    expect_failure(&o, KVF_EUSAGE, "--prefix-length: not for method full");
    o = options_for(out);
    o.base_dropout = 1;
    expect_failure(&o, KVF_EUSAGE, "--base-dropout: value out of range: want a number from 0 to below 1");
    o = options_for(out);
    train(&o);
    ck_assert_int_eq(merge(out, folded, NULL), KVF_EUSAGE);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(ctx), "name that with --base"));
    const kvf_merge_options two = {.run = out, .out = folded, .out_base = other, .base = base};
    kvf_merge_result result;
    ck_assert_int_eq(kvf_merge(ctx, &two, &result), KVF_EUSAGE);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(ctx), "--out-base: not for"));
    char wrong[512];
    toy_path(wrong, dir, "wrong");
    ck_assert_int_eq(mkdir(wrong, 0777), 0);
    toy_folder(wrong, 6, 0);
    ck_assert_int_eq(merge(out, folded, wrong), KVF_EMISMATCH);
    ck_assert(!kvf__exists(folded));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("train_full");
    TCase *core = tcase_create("core"), *errors = tcase_create("errors");
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, errors);
    tcase_add_checked_fixture(core, setup, toy_run_teardown);
    tcase_add_checked_fixture(errors, setup, toy_run_teardown);
    tcase_set_timeout(core, 90);
    tcase_set_timeout(errors, 90);
    tcase_add_test(core, learns_and_folds_to_a_base);
    tcase_add_test(core, equal_runs);
    tcase_add_loop_test(core, resume_is_no_stop, 0, 2);
    tcase_add_test(core, head_of_a_task);
    tcase_add_test(core, p_tuning_unfreezes_the_base);
    tcase_add_test(errors, refused);
    return ck_main(suite);
}
