/* AdamW against results of torch.optim.AdamW; schedules; clipping. */
#include "ck.h"
#include "optim_int.h"
#include "param_grad.h"

#include <math.h>
#include <string.h>

static kvf_ctx *ctx;

static void setup(void)
{
    kvf_ctx_options options = {.threads = 2};
    ck_assert_int_eq(kvf_ctx_create(&options, &ctx), KVF_OK);
}

static void teardown(void)
{
    kvf_ctx_free(ctx);
}

static kvf__params one_param(float *value, float *grad, int64_t n)
{
    const kvf__param param = {
        .name = "w", .value = value, .grad = grad, .rank = 1, .dim = {n}, .n = n, .lr_scale = 1};
    kvf__params params = {0};
    ck_assert_int_eq(kvf__params_add(ctx, &params, &param), KVF_OK);
    return params;
}

/* torch 2.13: p = [0.5, -1.25, 3, 1e-3]; five steps with grad = [0.1, -0.2, 0.3, 1e-4] * step
 * number; AdamW(lr=1e-2, weight_decay=wd). */
static const struct {
    double weight_decay;
    float want[4];
} TORCH[] = {
    {0, {0.451491714f, -1.20149171f, 2.95149159f, -0.0475056134f}},
    {0.1, {0.449094355f, -1.19535196f, 2.93661928f, -0.0474129915f}},
};

START_TEST(adamw_is_torchs)
{
    float value[4] = {0.5f, -1.25f, 3, 1e-3f}, grad[4];
    kvf__params params = one_param(value, grad, 4);
    kvf__adamw adamw = {
        .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = TORCH[_i].weight_decay};
    ck_assert_int_eq(kvf__adamw_init(ctx, &adamw, &params), KVF_OK);
    for (int step = 1; step <= 5; step++) {
        const float base[4] = {0.1f, -0.2f, 0.3f, 1e-4f};
        for (int i = 0; i < 4; i++)
            grad[i] = base[i] * (float)step;
        kvf__adamw_step(&adamw, &params, 1e-2, 1);
    }
    ck_close(value, TORCH[_i].want, 4, /* rtol: a few ulp over 5 steps */ 5e-7, 1e-9);
    kvf__adamw_done(&adamw);
    kvf__params_done(&params);
}
END_TEST

START_TEST(lr_scale_and_grad_scale_apply)
{
    float a = 1, b = 1, ga = 0.25f, gb = 0.5f;
    kvf__params x = one_param(&a, &ga, 1), y = one_param(&b, &gb, 1);
    kvf__adamw first = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}, second = first;
    x.item[0].lr_scale = 0.5;
    ck_assert_int_eq(kvf__adamw_init(ctx, &first, &x), KVF_OK);
    ck_assert_int_eq(kvf__adamw_init(ctx, &second, &y), KVF_OK);
    kvf__adamw_step(&first, &x, 0.2, 1);
    kvf__adamw_step(&second, &y, 0.1, 0.5);
    ck_assert_float_eq_tol(a, b, 1e-7f);
    ck_assert(a < 1);
    ck_assert_float_eq(first.m.item[0].value[0], second.m.item[0].value[0]);
    kvf__adamw_done(&first);
    kvf__adamw_done(&second);
    kvf__params_done(&x);
    kvf__params_done(&y);
}
END_TEST

START_TEST(norm_is_exact_and_independent_of_threads)
{
    enum { N = 300000 };
    static float grad[N], value[N];
    kvf__params params = one_param(value, grad, N);
    for (int i = 0; i < N; i++)
        grad[i] = (float)sin(i) * 1e-3f;
    double sum = 0;
    for (int i = 0; i < N; i++)
        sum += (double)grad[i] * (double)grad[i];
    double two = kvf__grad_norm(&params);
    ck_assert_double_eq_tol(two, sqrt(sum), 1e-12);
    kvf_ctx *single = NULL;
    kvf_ctx_options options = {.threads = 1};
    ck_assert_int_eq(kvf_ctx_create(&options, &single), KVF_OK);
    ck_assert(kvf__grad_norm(&params) == two);
    kvf_ctx_free(single);
    kvf__params_done(&params);
}
END_TEST

/* A gradient stored as left^T right gives the norm and the step of the same gradient formed. */
START_TEST(unformed_gradients_are_the_same)
{
    enum { P = 5, ROWS = 33, COLUMNS = 21, N = ROWS * COLUMNS };
    float left[P * ROWS], right[P * COLUMNS], grad[N], a[N], b[N];
    for (int i = 0; i < P * ROWS; i++)
        left[i] = (float)sin(i);
    for (int i = 0; i < P * COLUMNS; i++)
        right[i] = (float)cos(3 * i);
    for (int i = 0; i < N; i++)
        a[i] = b[i] = (float)sin(7 * i);
    kvf__params formed = one_param(a, grad, N), outer = one_param(b, NULL, N);
    outer.item[0].rank = 2;
    outer.item[0].dim[0] = ROWS;
    outer.item[0].dim[1] = COLUMNS;
    outer.item[0].outer = P;
    outer.item[0].left = left;
    outer.item[0].right = right;
    param_grad(&outer.item[0], grad);
    double norm = kvf__grad_norm(&formed);
    ck_assert_double_eq_tol(kvf__grad_norm(&outer), norm, 1e-6 * norm);
    kvf__adamw x = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}, y = x;
    ck_assert_int_eq(kvf__adamw_init(ctx, &x, &formed), KVF_OK);
    ck_assert_int_eq(kvf__adamw_init(ctx, &y, &outer), KVF_OK);
    for (int step = 0; step < 3; step++) {
        kvf__adamw_step(&x, &formed, 1e-2, 0.5);
        kvf__adamw_step(&y, &outer, 1e-2, 0.5);
    }
    /* an element whose gradient nearly cancels has a step decided by rounding: none does here */
    ck_close(b, a, N, 1e-4, 1e-5);
    ck_close(y.m.item[0].value, x.m.item[0].value, N, 1e-5, 1e-6);
    memset(right, 0, sizeof right);
    ck_assert_double_eq(kvf__grad_norm(&outer), 0);
    left[3] = NAN;
    ck_assert(isnan(kvf__grad_norm(&outer)));
    kvf__adamw_done(&x);
    kvf__adamw_done(&y);
    kvf__params_done(&formed);
    kvf__params_done(&outer);
}
END_TEST

static kvf__params prefix_param(float *value, float *grad, int64_t P, int64_t L, int64_t G,
                                int64_t D)
{
    kvf__params params = one_param(value, grad, P * L * 2 * G * D);
    params.item[0].rank = 2;
    params.item[0].dim[0] = P;
    params.item[0].dim[1] = L * 2 * G * D;
    params.item[0].muon_heads = G;
    params.item[0].muon_width = D;
    params.item[0].muon_unit = 2 * G * D;
    return params;
}

/* The scalar iteration applied to a singular value. */
static double rounds(double s)
{
    for (int i = 0; i < 2; i++)
        s = 3.4445 * s - 4.775 * pow(s, 3) + 2.0315 * pow(s, 5);
    return s;
}

/* If gradient rows of values are orthogonal, their step applies the scalar iteration to the rows'
 * norms. It does so per head and at any scale of the gradient. Keys step as with AdamW; heads
 * without a gradient do not change. Covers more tokens than channels of a head, and fewer. */
static const int64_t SIDES[][2] = {{2, 5}, {5, 2}, {3, 3}};

START_TEST(muon_steps_values_alone)
{
    enum { L = 2, G = 3, MOST = 5 * L * 2 * G * 5 };
    const int64_t P = SIDES[_i][0], D = SIDES[_i][1], row = L * 2 * G * D, values = G * D;
    float a[MOST], b[MOST], grad[MOST] = {0};
    double want[MOST];
    for (int64_t i = 0; i < P * row; i++) {
        a[i] = b[i] = (float)sin((double)i);
        want[i] = (double)a[i];
        if (i % (2 * G * D) < G * D) grad[i] = (float)cos((double)i);
    }
    const double norm = sqrt(9.09), large = rounds(3 / norm), small = rounds(0.3 / norm);
    const double step = 0.1 * 0.25 * sqrt((double)(P * D)) / sqrt(large * large + small * small);
    for (int64_t g = 0; g < 2; g++) { /* of the first layer */
        const int64_t first = values + g * D, second = row + first + 1;
        grad[first] = g ? 300 : -3;
        grad[second] = g ? 30 : 0.3f;
        want[first] -= step * (g ? large : -large);
        want[second] -= step * small;
    }
    ck_assert(large / small < 4);
    kvf__params params = prefix_param(a, grad, P, L, G, D), plain = one_param(b, grad, P * row);
    kvf__adamw muon = {.beta1 = 0.5, .beta2 = 0.999, .eps = 1e-8}, adamw = muon;
    ck_assert_int_eq(kvf__adamw_init(ctx, &muon, &params), KVF_OK);
    ck_assert_int_eq(kvf__adamw_init(ctx, &adamw, &plain), KVF_OK);
    kvf__adamw_step(&muon, &params, 0.1, 7);
    kvf__adamw_step(&adamw, &plain, 0.1, 7);
    for (int64_t i = 0; i < P * row; i++)
        if (i % (2 * G * D) < G * D)
            ck_assert(a[i] == b[i]);
        else
            ck_assert_double_eq_tol((double)a[i], want[i], 1e-6);
    kvf__adamw_done(&muon);
    kvf__adamw_done(&adamw);
    kvf__params_done(&params);
    kvf__params_done(&plain);
}
END_TEST

START_TEST(muon_is_independent_of_threads)
{
    enum { P = 5, L = 7, G = 2, D = 3, N = P * L * 2 * G * D };
    float value[2][N], grad[N];
    for (int threads = 1; threads <= 2; threads++) {
        float *at = value[threads - 1];
        kvf_ctx *own = NULL;
        kvf_ctx_options options = {.threads = threads};
        ck_assert_int_eq(kvf_ctx_create(&options, &own), KVF_OK);
        memset(at, 0, sizeof value[0]);
        kvf__params params = prefix_param(at, grad, P, L, G, D);
        kvf__adamw adamw = {.beta1 = 0.5, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1};
        ck_assert_int_eq(kvf__adamw_init(own, &adamw, &params), KVF_OK);
        for (int step = 1; step <= 3; step++) {
            for (int i = 0; i < N; i++)
                grad[i] = (float)sin(i * step);
            kvf__adamw_step(&adamw, &params, 0.1, 1);
        }
        kvf__adamw_done(&adamw);
        kvf__params_done(&params);
        kvf_ctx_free(own);
    }
    ck_assert(!memcmp(value[0], value[1], sizeof value[0]));
}
END_TEST

START_TEST(clipping_is_torchs)
{
    ck_assert_double_eq(kvf__clip_factor(0.5, 1), 1);
    ck_assert_double_eq_tol(kvf__clip_factor(4, 1), 1 / (4 + 1e-6), 1e-15);
    ck_assert_double_eq(kvf__clip_factor(4, 0), 1);
}
END_TEST

/* kind, warmup, length, step -> factor */
static const struct {
    kvf_schedule kind;
    const char *warmup;
    int64_t length, step;
    double want;
} FACTORS[] = {
    {KVF_SCHEDULE_LINEAR, "0", 10, 1, 1},      {KVF_SCHEDULE_LINEAR, "0", 10, 10, 0.1},
    {KVF_SCHEDULE_LINEAR, "0", 10, 11, 0},     {KVF_SCHEDULE_LINEAR, "2", 10, 1, 0.5},
    {KVF_SCHEDULE_LINEAR, "2", 10, 2, 1},      {KVF_SCHEDULE_LINEAR, "2", 10, 3, 1},
    {KVF_SCHEDULE_LINEAR, "20%", 10, 1, 0.5},  {KVF_SCHEDULE_LINEAR, "5%", 10, 1, 1},
    {KVF_SCHEDULE_LINEAR, "2", 10, 7, 0.5},    {KVF_SCHEDULE_COSINE, "0", 10, 6, 0.5},
    {KVF_SCHEDULE_COSINE, "0", 10, 1, 1},      {KVF_SCHEDULE_CONSTANT, "2", 10, 500, 1},
    {KVF_SCHEDULE_CONSTANT, "4", 10, 1, 0.25}, {KVF_SCHEDULE_LINEAR, "10", 10, 10, 1},
    {KVF_SCHEDULE_LINEAR, "100%", 10, 11, 0},
};

START_TEST(schedule_factors)
{
    kvf__schedule schedule;
    ck_assert_int_eq(kvf__schedule_init(ctx, FACTORS[_i].kind, FACTORS[_i].warmup,
                                        FACTORS[_i].length, &schedule),
                     KVF_OK);
    ck_assert_double_eq_tol(kvf__schedule_factor(&schedule, FACTORS[_i].step), FACTORS[_i].want,
                            1e-12);
}
END_TEST

START_TEST(bad_schedules_are_refused)
{
    static const char *const WARMUPS[] = {"",    "-1",  "x",   "5%%",  "101%",
                                          "1.5", "5 %", "nan", "1e300"};
    kvf__schedule schedule;
    for (size_t i = 0; i < sizeof WARMUPS / sizeof WARMUPS[0]; i++)
        ck_assert_msg(kvf__schedule_init(ctx, KVF_SCHEDULE_LINEAR, WARMUPS[i], 10, &schedule) ==
                          KVF_EUSAGE,
                      "\"%s\" passed", WARMUPS[i]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("optim");
    TCase *core = tcase_create("core"), *errors = tcase_create("errors");
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_checked_fixture(errors, setup, teardown);
    tcase_add_loop_test(core, adamw_is_torchs, 0, (int)(sizeof TORCH / sizeof TORCH[0]));
    tcase_add_test(core, lr_scale_and_grad_scale_apply);
    tcase_add_test(core, norm_is_exact_and_independent_of_threads);
    tcase_add_test(core, unformed_gradients_are_the_same);
    tcase_add_loop_test(core, muon_steps_values_alone, 0, (int)(sizeof SIDES / sizeof SIDES[0]));
    tcase_add_test(core, muon_is_independent_of_threads);
    tcase_add_test(core, clipping_is_torchs);
    tcase_add_loop_test(core, schedule_factors, 0, (int)(sizeof FACTORS / sizeof FACTORS[0]));
    tcase_add_test(errors, bad_schedules_are_refused);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, errors);
    return ck_main(suite);
}
