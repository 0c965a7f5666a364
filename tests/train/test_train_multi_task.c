/* Runs on several tasks: a shared prefix and a head for each task. They learn, resume like unbroken
 * runs, and are evaluated and folded head by head. Runs of one task can continue from them. */
#include "artifact.h"
#include "low_rank.h"
#include "toy_run.h"

#include <string.h>

static char item[32][600];

static void write_classes(const char *name, int rows, int from, int classes)
{
    static const char *const WORDS[] = {"yes", "no", "maybe"};
    char text[8192];
    size_t n = 0;
    for (int i = from; i < from + rows; i++)
        n += (size_t)snprintf(text + n, sizeof text - n,
                              "{\"text\": \"%c%c w%d\", \"label\": \"%s\"}\n", 'a' + i % classes,
                              'a' + i % classes, i, WORDS[i % classes]);
    toy_write(dir, name, text);
}

static void setup(void)
{
    toy_run_setup();
    toy_rows(dir, "lm.jsonl", 10, 0);
    toy_rows(dir, "lm_valid.jsonl", 4, 30);
    write_classes("two.jsonl", 24, 0, 2);
    write_classes("two_valid.jsonl", 8, 40, 2);
    write_classes("three.jsonl", 12, 0, 3);
    write_classes("three_valid.jsonl", 6, 40, 3);
}

/* NAME=path of the file in the folder; 32 of them live at a time. */
static const char *named(const char *name, const char *file)
{
    static int next;
    char *text = item[next++ % 32];
    snprintf(text, sizeof item[0], "%s=%s/%s", name, dir, file);
    return text;
}

static void set(kvf_train_options *o, const char *name, const char *value)
{
    ck_assert_msg(!kvf_train_set(ctx, o, name, value), "%s", kvf_ctx_error(ctx));
}

static bool low_rank; /* set by loop row */

static kvf_train_options options_for(const char *path)
{
    kvf_train_options o = kvf_train_defaults();
    o.base = base;
    o.out = path;
    o.prefix_length = 4;
    o.encoder_hidden = 16;
    o.steps = 8;
    o.batch_size = 5;
    o.precision = KVF_PRECISION_F32;
    o.schedule = KVF_SCHEDULE_CONSTANT;
    o.eval_every = 4;
    o.save_every = 4;
    o.lr = 0.05;
    set(&o, "data", named("two", "two.jsonl"));
    set(&o, "data", named("three", "three.jsonl"));
    set(&o, "data", named("words", "lm.jsonl"));
    set(&o, "valid", named("two", "two_valid.jsonl"));
    set(&o, "valid", named("three", "three_valid.jsonl"));
    set(&o, "valid", named("words", "lm_valid.jsonl"));
    set(&o, "task", "seq-cls");
    set(&o, "task", "words=lm");
    if (low_rank) set(&o, "task-prefix", "low-rank");
    return o;
}

/* head NULL: the file has one. */
static double loss_of(const char *path, const char *head, const char *file)
{
    const kvf_base_options exact = {.precision = KVF_PRECISION_F32};
    char held[512];
    toy_path(held, dir, file);
    const kvf_eval_options eval = {.data = held};
    kvf_base *model = NULL;
    kvf_prefix *prefix = NULL;
    kvf_eval_result result = {0};
    ck_assert_int_eq(kvf_base_open(ctx, base, &exact, &model), KVF_OK);
    ck_assert_msg(!kvf_prefix_open(ctx, path, KVF_CHECKPOINT_LAST, &prefix), "%s",
                  kvf_ctx_error(ctx));
    if (head) ck_assert_msg(!kvf_prefix_use_head(ctx, prefix, head), "%s", kvf_ctx_error(ctx));
    ck_assert_msg(!kvf_eval(ctx, model, &prefix, 1, &eval, &result), "%s", kvf_ctx_error(ctx));
    kvf_prefix_free(prefix);
    kvf_base_free(model);
    return result.loss;
}

/* ---- core ------------------------------------------------------------------------------------ */

static const char *const NAMES[] = {"two", "three", "words"}, *const VALID[] = {"two_valid.jsonl",
                                                                                "three_valid.jsonl",
                                                                                "lm_valid.jsonl"};

START_TEST(each_task_learns)
{
    low_rank = _i == 2;
    double before = 0, after = 0;
    kvf_train_options o = options_for(out);
    o.steps = 1;
    train(&o);
    for (int i = 0; i < 3; i++)
        before += loss_of(out, NAMES[i], VALID[i]) / 3;
    o = options_for(out);
    o.force = true;
    o.steps = 90;
    o.eval_every = 90;
    set(&o, "mix", _i == 1 ? "equal" : "proportional");
    kvf_train_result result = train(&o);
    for (int i = 0; i < 3; i++)
        after += loss_of(out, NAMES[i], VALID[i]) / 3;
    ck_assert_double_eq_tol(after, result.valid_loss, 1e-6);
    ck_assert_msg(after < before - 0.4, "%g after %g", after, before);
    ck_assert_int_eq(result.examples, 24 + 12 + 10);
}
END_TEST

START_TEST(resume_equals_no_stop)
{
    low_rank = _i;
    kvf_train_options whole = options_for(out), part = options_for(other);
    part.schedule_steps = 8;
    train(&whole);
    part.steps = 4;
    train(&part);
    ck_assert(!equal_files(out, other));
    part.resume = true;
    part.steps = 8;
    train(&part);
    ck_assert(equal_files(out, other));
}
END_TEST

/* With all heads, or for one task; both give the results of the run. */
START_TEST(folds_with_one_head_or_all)
{
    low_rank = _i;
    kvf_train_options o = options_for(out);
    kvf_merge_options merge = {.run = out, .out = other, .checkpoint = KVF_CHECKPOINT_LAST};
    kvf_merge_result merged;
    train(&o);
    ck_assert_msg(!kvf_merge(ctx, &merge, &merged), "%s", kvf_ctx_error(ctx));
    for (int i = 0; i < 3; i++)
        ck_assert_double_eq(loss_of(other, NAMES[i], VALID[i]), loss_of(out, NAMES[i], VALID[i]));
    merge.head = "three";
    merge.force = true;
    ck_assert_msg(!kvf_merge(ctx, &merge, &merged), "%s", kvf_ctx_error(ctx));
    ck_assert_double_eq(loss_of(other, NULL, VALID[1]), loss_of(out, "three", VALID[1]));
    kvf_json *tree = NULL;
    ck_assert_msg(!kvf_inspect(ctx, out, &tree), "%s", kvf_ctx_error(ctx));
    char *text = kvf_json_text(tree, KVF_JSON_COMPACT);
    ck_assert(strstr(text, "heads/three/score.weight") != NULL);
    ck_assert(strstr(text, "optimizer/m/two/score.weight") != NULL);
    kvf_json_text_free(text);
    kvf_json_free(tree);
}
END_TEST

/* The run of one task starts from the result of the run on several tasks, including the head. */
START_TEST(one_task_goes_on)
{
    char three[512];
    double first = 0;
    kvf_train_options o = options_for(out), next = options_for(other);
    o.valid = NULL;
    o.named_valid.n = 0;
    train(&o);
    next.named_data.n = next.named_valid.n = next.named_task.n = 0;
    toy_path(three, dir, "three.jsonl");
    next.data = three;
    next.init_from = out;
    next.steps = 1;
    next.batch_size = 100;
    next.shuffle = false;
    next.event = remember_first;
    next.event_user = &first;
    train(&next);
    ck_assert_double_eq_tol(first, loss_of(out, "three", "three.jsonl"), 1e-5);
}
END_TEST

/* Tests the gradient of a weighted sum of the task's prefix. The sum is linear in each factor, so
 * differences are exact except for rounding. */
START_TEST(low_rank_gradients_match_differences)
{
    enum { L = 2, G = 2, P = 3, D = 4, N = L * 2 * G * P * D, NU = 2 * L * P, NV = 2 * L * G * D };
    kvf__prefix shared = {0}, of = {0}, d = {0};
    float u[NU], v[NV], weight[N], du[NU] = {0}, dv[NV] = {0}, *parts[] = {u, v};
    kvf__rng rng = kvf__rng_make(3, 1);
    ck_assert(!kvf__prefix_init(ctx, &shared, L, G, P, D));
    ck_assert(!kvf__prefix_init(ctx, &of, L, G, P, D));
    ck_assert(!kvf__prefix_init(ctx, &d, L, G, P, D));
    for (int i = 0; i < N; i++) {
        shared.kv[i] = (float)kvf__rng_normal(&rng);
        d.kv[i] = weight[i] = (float)kvf__rng_normal(&rng);
    }
    for (int i = 0; i < NU + NV; i++)
        *(i < NU ? &u[i] : &v[i - NU]) = (float)(1 + 0.3 * kvf__rng_normal(&rng));
    kvf__low_rank_bwd(&d, du, dv, &shared, u, v);
    for (int i = 0; i < NU + NV + N; i++) {
        float *at = i < NU        ? &parts[0][i]
                    : i < NU + NV ? &parts[1][i - NU]
                                  : &shared.kv[i - NU - NV];
        float got = i < NU ? du[i] : i < NU + NV ? dv[i - NU] : d.kv[i - NU - NV], saved = *at;
        double sum[2] = {0};
        for (int side = 0; side < 2; side++) {
            *at = saved + (side ? 0.5f : -0.5f);
            kvf__low_rank_fwd(&of, &shared, u, v);
            for (int k = 0; k < N; k++)
                sum[side] += (double)weight[k] * (double)of.kv[k];
        }
        *at = saved;
        ck_assert_double_eq_tol((double)got, sum[1] - sum[0], 2e-5);
    }
    kvf__prefix_done(&shared);
    kvf__prefix_done(&of);
    kvf__prefix_done(&d);
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------- */

START_TEST(what_it_refuses)
{
    kvf_prefix *prefix = NULL;
    kvf_train_options o = options_for(out);
    set(&o, "valid", named("four", "two.jsonl"));
    expect_failure(&o, KVF_EUSAGE, "there is no --data four=FILE");
    o = options_for(out);
    set(&o, "data", named("two", "lm.jsonl"));
    expect_failure(&o, KVF_EUSAGE, "task two is given twice");
    o = options_for(out);
    o.data = "x.jsonl";
    expect_failure(&o, KVF_EUSAGE, "every file needs the name of its task");
    o = options_for(out);
    set(&o, "task", "two=poetry");
    expect_failure(&o, KVF_EUSAGE, "--task \"poetry\": want lm|seq-cls");
    o = options_for(out);
    o.infix = true;
    expect_failure(&o, KVF_EUSAGE, "--infix is for one task");
    o = options_for(out);
    train(&o);
    const kvf_base_options exact = {.precision = KVF_PRECISION_F32};
    kvf_base *model = NULL;
    ck_assert_int_eq(kvf_base_open(ctx, base, &exact, &model), KVF_OK);
    ck_assert_int_eq(kvf_prefix_open(ctx, out, KVF_CHECKPOINT_DEFAULT, &prefix), KVF_OK);
    ck_assert_int_eq(kvf_prefix_check(ctx, prefix, model, false), KVF_EUSAGE);
    ck_assert(strstr(kvf_ctx_error(ctx), "--head names one of two, three, words") != NULL);
    ck_assert_str_eq(kvf_prefix_task(prefix), "multi-task");
    ck_assert_str_eq(kvf_prefix_head(prefix, 1), "three");
    ck_assert_ptr_null(kvf_prefix_head(prefix, 3));
    ck_assert_ptr_null(kvf_prefix_label(prefix, 0));
    ck_assert_int_eq(kvf_prefix_use_head(ctx, prefix, "four"), KVF_EUSAGE);
    ck_assert(strstr(kvf_ctx_error(ctx), "no head \"four\"; there are two, three, words") != NULL);
    ck_assert_int_eq(kvf_prefix_use_head(ctx, prefix, "two"), KVF_OK);
    ck_assert_str_eq(kvf_prefix_task(prefix), "seq-cls");
    ck_assert_ptr_null(kvf_prefix_head(prefix, 0));
    ck_assert_str_eq(kvf_prefix_label(prefix, 1), "yes");
    ck_assert_ptr_null(kvf_prefix_label(prefix, 2));
    ck_assert_int_eq(kvf_prefix_use_head(ctx, prefix, "two"), KVF_EUSAGE);
    ck_assert(strstr(kvf_ctx_error(ctx), "has only one head") != NULL);
    kvf_prefix_free(prefix);
    kvf_base_free(model);
    o.resume = true;
    o.named_data.n = 2;
    o.named_valid.n = 2;
    o.named_task.n = 0;
    expect_failure(&o, KVF_EUSAGE, "the tasks differ");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("train_multi_task");
    TCase *core = tcase_create("core"), *errors = tcase_create("errors");

    suite_add_tcase(suite, core);
    tcase_add_checked_fixture(core, setup, toy_run_teardown);
    tcase_set_timeout(core, 60);
    tcase_add_loop_test(core, each_task_learns, 0, 3);
    tcase_add_loop_test(core, resume_equals_no_stop, 0, 2);
    tcase_add_loop_test(core, folds_with_one_head_or_all, 0, 2);
    tcase_add_test(core, low_rank_gradients_match_differences);
    tcase_add_test(core, one_task_goes_on);

    suite_add_tcase(suite, errors);
    tcase_add_checked_fixture(errors, setup, toy_run_teardown);
    tcase_set_timeout(errors, 60);
    tcase_add_test(errors, what_it_refuses);
    return ck_main(suite);
}
