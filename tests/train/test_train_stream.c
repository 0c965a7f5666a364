/* Runs on a base that is streamed or kept in another type. If the values are the same, the bits
 * equal those of a run on the packed base, for any kind of base file. Also tests which options such
 * a run accepts. */
#include "artifact.h"
#include "toy_run.h"

static void equal_params(const char *what, const kvf__params *a, const kvf__params *b)
{
    ck_assert_uint_eq(a->n, b->n);
    ck_assert_uint_gt(a->n, 0);
    for (size_t i = 0; i < a->n; i++)
        ck_assert_msg(
            !memcmp(a->item[i].value, b->item[i].value, (size_t)a->item[i].n * sizeof(float)),
            "%s: %s differs", what, a->item[i].name);
}

/* The run file without its options. */
static void equal_runs(const char *a, const char *b)
{
    kvf__artifact x = {0}, y = {0};
    ck_assert_msg(!kvf__artifact_read_all(ctx, a, KVF__KIND_RUN, &x), "%s", kvf_ctx_error(ctx));
    ck_assert_msg(!kvf__artifact_read_all(ctx, b, KVF__KIND_RUN, &y), "%s", kvf_ctx_error(ctx));
    equal_params("encoder", &x.values.params, &y.values.params);
    equal_params("m", &x.m.params, &y.m.params);
    equal_params("v", &x.v.params, &y.v.params);
    ck_assert_int_eq(x.history.n, y.history.n);
    const size_t n = (size_t)x.history.n * sizeof(double);
    ck_assert_mem_eq(x.history.train_loss, y.history.train_loss, n);
    ck_assert_mem_eq(x.history.valid_loss, y.history.valid_loss, n);
    kvf__artifact_done(&x);
    kvf__artifact_done(&y);
}

static const char *const METHODS[] = {"mlp", "direct", "prompt", "projected"};
enum { N_METHODS = sizeof METHODS / sizeof METHODS[0] };

static kvf_train_options options_for(const char *path, const char *method)
{
    kvf_train_options o = toy_run_options(path);
    o.method = method;
    o.prefix_length = 4;
    return o;
}

START_TEST(runs_are_equal)
{
    kvf_train_options o = options_for(out, METHODS[_i]);
    train(&o);
    o.out = other;
    o.stream_layers = true;
    train(&o);
    equal_runs(out, other);
    o.stream_layers = false;
    o.weight_dtype = KVF_WEIGHTS_F32;
    o.force = true;
    train(&o);
    equal_runs(out, other);
}
END_TEST

/* bf16 changes the loss only slightly: by 0.005 of 4 after these steps. */
START_TEST(rounded_weights_are_another_base)
{
    kvf_train_options o = options_for(out, "mlp");
    kvf_train_result exact = train(&o);
    o.out = other;
    o.weight_dtype = KVF_WEIGHTS_BF16;
    kvf_train_result rounded = train(&o);
    ck_assert(rounded.train_loss != exact.train_loss);
    ck_assert_double_eq_tol(rounded.train_loss, exact.train_loss, 0.012);
}
END_TEST

START_TEST(streaming_may_change_on_resume)
{
    kvf_train_options o = options_for(out, "mlp");
    train(&o);
    o.out = other;
    o.schedule_steps = 6;
    o.steps = 3;
    o.stream_layers = !_i;
    train(&o);
    o.steps = 6;
    o.resume = true;
    ck_assert_int_eq(kvf_train_set(ctx, &o, "stream-layers", _i ? "on" : "off"), KVF_OK);
    train(&o);
    equal_runs(out, other);
}
END_TEST

START_TEST(the_type_of_weights_may_not)
{
    kvf_train_options o = options_for(out, "mlp");
    o.steps = 3;
    o.schedule_steps = 6;
    o.weight_dtype = KVF_WEIGHTS_BF16;
    train(&o);
    o.steps = 6;
    o.resume = true;
    o.weight_dtype = KVF_WEIGHTS_INT8;
    expect_failure(&o, KVF_EUSAGE, "--weight-dtype differs");
}
END_TEST

/* The same weights as a base file. */
START_TEST(base_files_are_streamed)
{
    char file[512];
    toy_path(file, dir, "base.h5");
    const kvf_import_options import = {.path = base, .out = file};
    char kind[16];
    ck_assert_msg(!kvf_import(ctx, &import, kind), "%s", kvf_ctx_error(ctx));
    const kvf_eval_options options = {.data = valid};
    double loss[3];
    for (int i = 0; i < 3; i++) {
        const kvf_base_options how = {.precision = KVF_PRECISION_F32,
                                      .weight_dtype = i == 1 ? KVF_WEIGHTS_F32 : KVF_WEIGHTS_AUTO,
                                      .stream_layers = i == 2};
        kvf_base *opened = NULL;
        kvf_eval_result result;
        ck_assert_msg(!kvf_base_open(ctx, file, &how, &opened), "%s", kvf_ctx_error(ctx));
        ck_assert_int_eq(kvf_eval(ctx, opened, NULL, 0, &options, &result), KVF_OK);
        kvf_base_free(opened);
        loss[i] = result.loss;
    }
    ck_assert(loss[0] == loss[1] && loss[0] == loss[2]);
}
END_TEST

START_TEST(both_are_refused)
{
    const kvf_base_options how = {.weight_dtype = KVF_WEIGHTS_INT8, .stream_layers = true};
    kvf_base *opened = NULL;
    ck_assert_int_eq(kvf_base_open(ctx, base, &how, &opened), KVF_EUSAGE);
    ck_assert_ptr_null(opened);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("train_stream");
    TCase *core = tcase_create("core"), *errors = tcase_create("errors");
    tcase_add_checked_fixture(core, toy_run_setup, toy_run_teardown);
    tcase_add_checked_fixture(errors, toy_run_setup, toy_run_teardown);
    tcase_set_timeout(core, 60);
    tcase_add_loop_test(core, runs_are_equal, 0, N_METHODS);
    tcase_add_test(core, rounded_weights_are_another_base);
    tcase_add_loop_test(core, streaming_may_change_on_resume, 0, 2);
    tcase_add_test(core, base_files_are_streamed);
    suite_add_tcase(suite, core);
    tcase_add_test(errors, the_type_of_weights_may_not);
    tcase_add_test(errors, both_are_refused);
    suite_add_tcase(suite, errors);
    return ck_main(suite);
}
