/* Tests of unmerge: a prefix becomes a run whose MLP emits it, folds to the same prefix again, and
 * can be trained further. */
#include "outfile.h"
#include "toy_run.h"

#include "artifact.h"

#include <math.h>

static char prefix[512], again[512];

static void setup(void)
{
    toy_run_setup();
    toy_path(prefix, dir, "prefix.h5");
    toy_path(again, dir, "again.h5");
}

/* A trained prefix of P virtual tokens as a file, from a run of the direct method. */
static void make_prefix(int64_t P)
{
    kvf_train_options o = toy_run_options(out);
    const kvf_merge_options merge = {.run = out, .out = prefix};
    kvf_merge_result merged;
    o.method = "direct";
    o.prefix_length = P;
    train(&o);
    ck_assert_msg(!kvf_merge(ctx, &merge, &merged), "%s", kvf_ctx_error(ctx));
}

static kvf_unmerge_result unmerge(int64_t M, uint64_t seed, const char *to)
{
    const kvf_unmerge_options options = {
        .prefix = prefix, .out = to, .base = base, .encoder_hidden = M, .seed = seed};
    kvf_unmerge_result r = {0};
    ck_assert_msg(!kvf_unmerge(ctx, &options, &r), "%s", kvf_ctx_error(ctx));
    return r;
}

static void refused(const kvf_unmerge_options *options, kvf_status want, const char *part)
{
    kvf_unmerge_result r;
    kvf_status st = kvf_unmerge(ctx, options, &r);
    ck_assert_msg(st == want && strstr(kvf_ctx_error(ctx), part), "%s: \"%s\"", kvf_status_name(st),
                  kvf_ctx_error(ctx));
}

static double loss_of(const char *path)
{
    const kvf_eval_options eval = {.data = valid};
    kvf_eval_result result;
    kvf_base *model = open_base();
    kvf_prefix *p = NULL;
    ck_assert_int_eq(kvf_prefix_open(ctx, path, KVF_CHECKPOINT_DEFAULT, &p), KVF_OK);
    ck_assert_msg(!kvf_eval(ctx, model, &p, 1, &eval, &result), "%s", kvf_ctx_error(ctx));
    kvf_prefix_free(p);
    kvf_base_free(model);
    return result.loss;
}

/* Relative difference between the values of two prefix files; the second is the reference. */
static double distance(const char *a, const char *b)
{
    kvf__artifact x = {0}, y = {0};
    ck_assert_int_eq(kvf__artifact_read(ctx, a, KVF__KIND_PREFIX, &x), KVF_OK);
    ck_assert_int_eq(kvf__artifact_read(ctx, b, KVF__KIND_PREFIX, &y), KVF_OK);
    ck_assert_uint_eq(kvf__prefix_count(&x.prefix), kvf__prefix_count(&y.prefix));
    double d = ck_rel_l2(x.prefix.kv, y.prefix.kv, kvf__prefix_count(&x.prefix));
    kvf__artifact_done(&x);
    kvf__artifact_done(&y);
    return d;
}

/* ---- core ------------------------------------------------------------------------------------ */

START_TEST(folds_back)
{
    const kvf_merge_options merge = {.run = other, .out = again};
    kvf_merge_result merged;
    make_prefix(8);
    kvf_unmerge_result r = unmerge(24, 3, other);

    ck_assert_int_eq(r.P, 8);
    ck_assert_int_eq(r.M, 24);
    ck_assert_double_lt(r.residual, 1e-4);
    ck_assert_msg(!kvf_merge(ctx, &merge, &merged), "%s", kvf_ctx_error(ctx));
    ck_assert_double_le(fabs(distance(again, prefix) - r.residual), 1e-6);
    ck_assert_double_eq_tol(loss_of(other), loss_of(prefix), 1e-4);
}
END_TEST

/* The first step's loss is measured before the step, on the same rows in the same order. */
START_TEST(training_goes_on_from_the_prefix)
{
    make_prefix(8);
    unmerge(24, 3, other);
    kvf_train_options o = toy_run_options(again);
    o.prefix_length = 8;
    o.steps = o.save_every = o.eval_every = 1;
    o.batch_size = 24;
    o.init_from = prefix;
    o.method = "direct";
    double direct = train(&o).train_loss;
    o.method = "mlp";
    o.encoder_hidden = 24;
    o.init_from = other;
    o.force = true;
    double mlp = train(&o).train_loss;

    ck_assert_double_eq_tol(mlp, direct, 1e-4);
    o.steps = 12;
    o.force = true;
    ck_assert_double_lt(train(&o).train_loss, mlp);
}
END_TEST

START_TEST(seeds_differ_and_repeat)
{
    make_prefix(4);
    unmerge(16, 1, other);
    unmerge(16, 1, again);
    ck_assert(equal_files(other, again));
    remove(again);
    unmerge(16, 2, again);
    ck_assert(!equal_files(other, again));
}
END_TEST

/* A layer without prefix has none in the run either, and the base hash and start position stay. */
START_TEST(keeps_what_the_file_says)
{
    kvf__artifact file = {0};
    kvf__artifact run = {0};
    make_prefix(4);
    ck_assert_int_eq(kvf__artifact_read(ctx, prefix, KVF__KIND_PREFIX, &file), KVF_OK);
    file.prefix.layer_mask[0] = 0;
    kvf__prefix_clear_masked(&file.prefix);
    file.id.position_start = 0;
    ck_assert_int_eq(kvf__artifact_write(ctx, prefix, true, &file), KVF_OK);
    ck_assert_double_lt(unmerge(16, 0, other).residual, 1e-4);
    ck_assert_msg(!kvf__artifact_read_all(ctx, other, KVF__KIND_RUN, &run), "%s",
                  kvf_ctx_error(ctx));

    ck_assert_int_eq(run.layer_mask[0], 0);
    ck_assert_int_eq(run.layer_mask[1], 1);
    ck_assert_int_eq(run.id.position_start, 0);
    ck_assert_str_eq(run.id.method, "mlp");
    ck_assert_str_eq(run.id.base_hash, file.id.base_hash);
    ck_assert_uint_eq(run.m.params.n, 0);
    ck_assert_int_eq(kvf_json_int(kvf_json_get(run.state, "step"), -1), 0);
    ck_assert_ptr_nonnull(kvf_json_get(run.lineage, "unmerged_from"));
    kvf__artifact_done(&run);
    kvf__artifact_done(&file);
}
END_TEST

/* ---- limits ---------------------------------------------------------------------------------- */

/* A run without one of its parameters is damaged, also without the one that shows the width. */
START_TEST(incomplete_runs_are_refused)
{
    kvf__artifact run = {0};
    kvf_prefix *opened = NULL;
    make_prefix(4);
    unmerge(16, 1, other);
    ck_assert_int_eq(kvf__artifact_read_all(ctx, other, KVF__KIND_RUN, &run), KVF_OK);
    kvf__params *params = &run.values.params;
    const kvf__param gone = params->item[_i];
    params->n--;
    for (size_t i = (size_t)_i; i < params->n; i++)
        params->item[i] = params->item[i + 1];
    params->item[params->n] = gone;
    ck_assert_int_eq(kvf__artifact_write(ctx, other, true, &run), KVF_OK);
    ck_assert_int_eq(kvf_prefix_open(ctx, other, KVF_CHECKPOINT_DEFAULT, &opened), KVF_EFORMAT);
    ck_assert_msg(strstr(kvf_ctx_error(ctx),
                         _i == 1 ? "the encoder's values are not complete" : "is missing"),
                  "%s", kvf_ctx_error(ctx));
    params->n++;
    kvf__artifact_done(&run);
}
END_TEST

/* A trained state of a run (docs/format.md). */
START_TEST(states_of_runs_are_finite)
{
    const int64_t n = 3;
    kvf__artifact run = {0};
    kvf__param *state = NULL;
    kvf_prefix *opened = NULL;
    make_prefix(4);
    unmerge(16, 1, other);
    ck_assert_int_eq(kvf__artifact_read_all(ctx, other, KVF__KIND_RUN, &run), KVF_OK);
    ck_assert(!kvf__params_owned_add(ctx, &run.values, KVF__MIXER_STATE, 1, &n, &state));
    float *value = state->value;
    value[0] = 1, value[1] = -2, value[2] = _i ? INFINITY : 3;
    ck_assert_int_eq(kvf__artifact_write(ctx, other, true, &run), KVF_OK);
    ck_assert_int_eq(kvf_prefix_open(ctx, other, KVF_CHECKPOINT_DEFAULT, &opened),
                     _i ? KVF_ENUMERIC : KVF_OK);
    if (_i)
        ck_assert_ptr_nonnull(
            strstr(kvf_ctx_error(ctx), "mixer_state: value 2 is inf, want finite values"));
    kvf_prefix_free(opened);
    kvf__artifact_done(&run);
}
END_TEST

/* More virtual tokens than independent hidden rows: refused, or approximated as closely as
 * possible. */
START_TEST(too_narrow_is_refused)
{
    const kvf_merge_options merge = {.run = other, .out = again};
    kvf_unmerge_options options = {.prefix = prefix, .out = other, .encoder_hidden = 4};
    kvf_merge_result merged;
    kvf_unmerge_result r;
    make_prefix(12);
    refused(&options, KVF_EUSAGE, "want at most 1e-02: use a wider --encoder-hidden (P is 12), or");
    ck_assert(!kvf__exists(other));
    options.approximate = true;
    ck_assert_msg(!kvf_unmerge(ctx, &options, &r), "%s", kvf_ctx_error(ctx));
    ck_assert_double_gt(r.residual, 1e-2);
    ck_assert_double_lt(r.residual, 1);
    ck_assert_int_eq(kvf_merge(ctx, &merge, &merged), KVF_OK);
    ck_assert_double_le(fabs(distance(again, prefix) - r.residual), 1e-6);
}
END_TEST

static const char *const TARGETS[] = {"vocab", "text", "kv", "from"};

/* An encoder that cannot emit its initial prefix. */
START_TEST(poor_start_is_refused)
{
    kvf_train_options o = toy_run_options(out), wide = toy_run_options(other);
    wide.prefix_length = o.prefix_length = 12;
    wide.method = "direct";
    wide.steps = 1;
    train(&wide);
    o.encoder_hidden = 4;
    o.steps = 1;
    o.init = _i < 3 ? TARGETS[_i] : "vocab";
    o.init_text = "abcdefghijkl";
    if (_i == 2) o.init_kv = other;
    if (_i == 3) o.init_from = other;
    expect_failure(&o, KVF_EUSAGE,
                   "want at most 1e-02: use a wider --encoder-hidden (P is 12), or");
    o.approximate = true;
    train(&o);
    o.encoder_hidden = 12;
    o.approximate = false;
    o.force = true;
    train(&o);
}
END_TEST

static const struct {
    const char *method, *init, *part;
} FIT_ALREADY[] = {
    {"direct", "vocab", "--approximate: not for method direct"},
    {"mlp", "random", "--approximate: --init random has no initial prefix"},
    {"mlp", "zero", "--approximate: --init zero has no initial prefix"},
};

START_TEST(approximate_wants_a_target)
{
    kvf_train_options o = toy_run_options(out);
    o.method = FIT_ALREADY[_i].method;
    o.init = FIT_ALREADY[_i].init;
    o.approximate = true;
    expect_failure(&o, KVF_EUSAGE, FIT_ALREADY[_i].part);
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------- */

START_TEST(refuses_what_is_no_prefix)
{
    char bad[512], cut[512];
    kvf__mapfile file = {0};
    toy_path(bad, dir, "bad.h5");
    toy_path(cut, dir, "cut.h5");
    make_prefix(4);
    kvf_unmerge_options options = {.prefix = out, .out = bad};
    refused(&options, KVF_EUSAGE, "is a file of kind run, want a prefix file");
    options.prefix = "/nowhere.h5";
    refused(&options, KVF_EIO, "/nowhere.h5");
    options.prefix = options.out = prefix;
    refused(&options, KVF_EUSAGE, prefix);
    options.out = out;
    refused(&options, KVF_EEXIST, out);
    ck_assert_int_eq(kvf__mapfile_open(ctx, prefix, &file), KVF_OK);
    ck_assert_int_eq(kvf__write_file(ctx, cut, false, file.data, file.n - 1), KVF_OK);
    options = (kvf_unmerge_options){.prefix = cut, .out = bad};
    refused(&options, KVF_EFORMAT, cut);
    ck_assert(!kvf__exists(bad));
    kvf__mapfile_close(&file);
}
END_TEST

START_TEST(refuses_another_base)
{
    char folder[512];
    toy_path(folder, dir, "second");
    ck_assert_int_eq(mkdir(folder, 0777), 0);
    toy_folder(folder, 6, 0);
    make_prefix(4);
    kvf_unmerge_options options = {.prefix = prefix, .out = other, .base = folder};
    refused(&options, KVF_EMISMATCH, "--allow-other-base overrides");
    options.allow_other_base = true;
    kvf_unmerge_result r;
    ck_assert_int_eq(kvf_unmerge(ctx, &options, &r), KVF_OK);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("unmerge");
    TCase *core = ck_case(suite, "core", setup, toy_run_teardown, 60);
    TCase *limits = ck_case(suite, "limits", setup, toy_run_teardown, 60);
    TCase *errors = ck_case(suite, "errors", setup, toy_run_teardown, 60);

    tcase_add_test(core, folds_back);
    tcase_add_test(core, training_goes_on_from_the_prefix);
    tcase_add_test(core, seeds_differ_and_repeat);
    tcase_add_test(core, keeps_what_the_file_says);
    tcase_add_loop_test(limits, incomplete_runs_are_refused, 0, 3);
    tcase_add_loop_test(limits, states_of_runs_are_finite, 0, 2);
    tcase_add_test(limits, too_narrow_is_refused);
    tcase_add_loop_test(limits, poor_start_is_refused, 0, 4);
    tcase_add_loop_test(errors, approximate_wants_a_target, 0, 3);
    tcase_add_test(errors, refuses_what_is_no_prefix);
    tcase_add_test(errors, refuses_another_base);
    return ck_main(suite);
}
