/* Encoders: emitted values, gradients against central differences, initial values, learning-rate
 * units, natural steps. */
#include "ck.h"
#include "encoder_int.h"
#include "optim_int.h"
#include "param_grad.h"
#include "rng.h"

#include <math.h>
#include <stdlib.h>
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

static const char *const METHODS[] = {"mlp", "direct"};
enum { N_METHODS = sizeof METHODS / sizeof METHODS[0] };
static const kvf__encoder_shape SHAPE = {.L = 2, .G = 2, .P = 3, .D = 4, .M = 5};

static kvf__encoder *make(const char *method, const kvf__encoder_shape *shape, bool v2)
{
    kvf__encoder *encoder = NULL;
    ck_assert_int_eq(kvf__encoder_create(ctx, method, shape, &encoder), KVF_OK);
    kvf__encoder_init_random(encoder, v2, 7);
    return encoder;
}

static kvf__prefix prefix_like(const kvf__encoder_shape *s)
{
    kvf__prefix prefix = {0};
    ck_assert_int_eq(kvf__prefix_init(ctx, &prefix, s->L, s->G, s->P, s->D), KVF_OK);
    return prefix;
}

static void fill(float *out, size_t n, uint64_t seed)
{
    kvf__rng rng = kvf__rng_make(seed, 0);
    for (size_t i = 0; i < n; i++)
        out[i] = (float)kvf__rng_normal(&rng);
}

/* sum(weights * emitted), in f64 */
static double probe(kvf__encoder *encoder, kvf__prefix *prefix, const float *weights)
{
    double sum = 0;
    ck_assert_int_eq(kvf__encoder_fwd(ctx, encoder, (kvf__emitted){.prefix = prefix}), KVF_OK);
    for (size_t i = 0; i < kvf__prefix_count(prefix); i++)
        sum += (double)prefix->kv[i] * weights[i];
    return sum;
}

/* One loop row per method; every parameter's gradient against central differences of the probe. */
START_TEST(gradients_match_differences)
{
    kvf__encoder *encoder = make(METHODS[_i], &SHAPE, false);
    kvf__prefix prefix = prefix_like(&SHAPE), weights = prefix_like(&SHAPE);
    fill(weights.kv, kvf__prefix_count(&weights), 3);
    probe(encoder, &prefix, weights.kv);
    ck_assert_int_eq(kvf__encoder_bwd(ctx, encoder, (kvf__emitted){.prefix = &weights}), KVF_OK);
    kvf__params *params = kvf__encoder_params(encoder);
    float *grads[8] = {NULL}; /* valid until the next forward pass */
    for (size_t i = 0; i < params->n; i++) {
        grads[i] = malloc((size_t)params->item[i].n * sizeof(float));
        param_grad(&params->item[i], grads[i]);
    }
    for (size_t i = 0; i < params->n; i++) {
        kvf__param *param = &params->item[i];
        float *want = malloc((size_t)param->n * sizeof *want);
        for (int64_t j = 0; j < param->n; j++) {
            float saved = param->value[j], step = 1e-2f;
            param->value[j] = saved + step;
            double up = probe(encoder, &prefix, weights.kv);
            param->value[j] = saved - step;
            double down = probe(encoder, &prefix, weights.kv);
            param->value[j] = saved;
            want[j] = (float)((up - down) / (2 * (double)step));
        }
        /* 2e-3: the cubic term of tanh at this step, and f32 rounding of the sums */
        ck_assert_msg(ck_rel_l2(grads[i], want, (size_t)param->n) < 2e-3, "%s: relative error %g",
                      param->name, ck_rel_l2(grads[i], want, (size_t)param->n));
        free(want);
        free(grads[i]);
    }
    kvf__prefix_done(&prefix);
    kvf__prefix_done(&weights);
    kvf__encoder_free(encoder);
}
END_TEST

/* Squared norm of all gradients, in f64. */
static double sum_of_squares(const kvf__params *params)
{
    double sum = 0;
    for (size_t i = 0; i < params->n; i++) {
        float *grad = malloc((size_t)params->item[i].n * sizeof *grad);
        param_grad(&params->item[i], grad);
        for (int64_t j = 0; j < params->item[i].n; j++)
            sum += (double)grad[j] * (double)grad[j];
        free(grad);
    }
    return sum;
}

/* bwd sets gradients: a second call is independent of the first. */
START_TEST(backward_sets)
{
    kvf__encoder *encoder = make(METHODS[_i], &SHAPE, false);
    kvf__prefix prefix = prefix_like(&SHAPE);
    fill(prefix.kv, kvf__prefix_count(&prefix), 3);
    kvf__prefix out = prefix_like(&SHAPE);
    ck_assert_int_eq(kvf__encoder_fwd(ctx, encoder, (kvf__emitted){.prefix = &out}), KVF_OK);
    const kvf__params *params = kvf__encoder_params(encoder);
    ck_assert_int_eq(kvf__encoder_bwd(ctx, encoder, (kvf__emitted){.prefix = &prefix}), KVF_OK);
    double once = sum_of_squares(params);
    ck_assert_int_eq(kvf__encoder_bwd(ctx, encoder, (kvf__emitted){.prefix = &prefix}), KVF_OK);
    ck_assert(once > 0 && sum_of_squares(params) == once);
    kvf__prefix_done(&prefix);
    kvf__prefix_done(&out);
    kvf__encoder_free(encoder);
}
END_TEST

/* Steps reach the emitted values requested by the optimizer. With P <= M they do so up to the
 * ridge, independent of the other tokens. With P > M the result is the layer's best
 * approximation. */
static const struct {
    kvf__encoder_shape shape;
    double missed; /* |emitted - wanted| / |change| */
} STEPS[] = {
    {{.L = 2, .G = 2, .P = 1, .D = 4, .M = 5}, 2e-3},
    {{.L = 2, .G = 2, .P = 20, .D = 32, .M = 64}, 2e-2},
    {{.L = 2, .G = 2, .P = 20, .D = 32, .M = 512}, 5e-3},
    {{.L = 2, .G = 2, .P = 40, .D = 32, .M = 19}, 0.75}, /* 20 of 40 dimensions: sqrt(1 / 2) */
};

START_TEST(natural_step_moves_what_is_emitted)
{
    const kvf__encoder_shape *shape = &STEPS[_i].shape;
    kvf__encoder *encoder = make("mlp", shape, false);
    kvf__prefix before = prefix_like(shape), after = prefix_like(shape),
                change = prefix_like(shape);
    ck_assert(kvf__encoder_is_reparameterized(encoder));
    ck_assert_int_eq(kvf__encoder_make_natural(ctx, encoder), KVF_OK);
    const kvf__params *steps = kvf__encoder_steps(encoder);
    const kvf__param *prefix = &steps->item[steps->n - 1];
    ck_assert_uint_eq(steps->n, 4);
    ck_assert_str_eq(prefix->name, "prefix");
    ck_assert_int_eq(prefix->dim[0], shape->P);

    ck_assert_int_eq(kvf__encoder_fwd(ctx, encoder, (kvf__emitted){.prefix = &before}), KVF_OK);
    fill(prefix->value, (size_t)prefix->n, 5);
    kvf__prefix_from_flat(&change, prefix->value);
    ck_assert_int_eq(kvf__encoder_take_step(ctx, encoder, 1), KVF_OK);
    ck_assert_int_eq(kvf__encoder_fwd(ctx, encoder, (kvf__emitted){.prefix = &after}), KVF_OK);
    double missed = 0, all = 0;
    for (size_t i = 0; i < kvf__prefix_count(&change); i++) {
        double want = (double)change.kv[i], got = (double)after.kv[i] - (double)before.kv[i];
        missed += (got - want) * (got - want);
        all += want * want;
    }
    missed = sqrt(missed / all);
    ck_assert_msg(missed < STEPS[_i].missed, "misses %g of the change", missed);
    for (int64_t i = 0; i < prefix->n; i++) /* the next step begins with no change */
        ck_assert(prefix->value[i] == 0);
    kvf__prefix_done(&before);
    kvf__prefix_done(&after);
    kvf__prefix_done(&change);
    kvf__encoder_free(encoder);
}
END_TEST

/* One AdamW step through the encoder equals the step of a direct prefix. */
START_TEST(natural_step_is_that_of_a_direct_prefix)
{
    const kvf__encoder_shape shape = {.L = 2, .G = 2, .P = 6, .D = 8, .M = 96};
    kvf__encoder *mlp = make("mlp", &shape, false), *direct = make("direct", &shape, false);
    kvf__encoder *both[] = {mlp, direct};
    kvf__prefix gradient = prefix_like(&shape), start = prefix_like(&shape);
    kvf__prefix emitted[] = {prefix_like(&shape), prefix_like(&shape)};
    double residual, far = 0, all = 0;

    fill(gradient.kv, kvf__prefix_count(&gradient), 3);
    ck_assert_int_eq(kvf__encoder_make_natural(ctx, mlp), KVF_OK);
    ck_assert_int_eq(kvf__encoder_fwd(ctx, mlp, (kvf__emitted){.prefix = &start}), KVF_OK);
    ck_assert_int_eq(
        kvf__encoder_init_target(ctx, direct, (kvf__emitted){.prefix = &start}, &residual), KVF_OK);
    for (int i = 0; i < 2; i++) {
        kvf__adamw adamw = {.beta1 = 0.5, .beta2 = 0.999, .eps = 1e-8};
        kvf__emitted out = {.prefix = &emitted[i]};
        double k = 0;
        ck_assert_int_eq(kvf__encoder_lr_units(ctx, both[i], false, &k), KVF_OK);
        ck_assert_int_eq(kvf__encoder_fwd(ctx, both[i], out), KVF_OK);
        ck_assert_int_eq(kvf__encoder_bwd(ctx, both[i], (kvf__emitted){.prefix = &gradient}),
                         KVF_OK);
        kvf__params steps = *kvf__encoder_steps(both[i]);
        if (i == 0) steps.item[0].lr_scale = steps.item[1].lr_scale = steps.item[2].lr_scale = 0;
        ck_assert_int_eq(kvf__adamw_init(ctx, &adamw, &steps), KVF_OK);
        kvf__adamw_step(&adamw, &steps, 0.05, 1);
        ck_assert_int_eq(kvf__encoder_take_step(ctx, both[i], 1), KVF_OK);
        ck_assert_int_eq(kvf__encoder_fwd(ctx, both[i], out), KVF_OK);
        kvf__adamw_done(&adamw);
    }
    for (size_t i = 0; i < kvf__prefix_count(&start); i++) {
        double a = (double)emitted[0].kv[i], b = (double)emitted[1].kv[i];
        far += (a - b) * (a - b);
        all += (b - (double)start.kv[i]) * (b - (double)start.kv[i]);
    }
    ck_assert_msg(sqrt(far / all) < 1e-2, "%g apart", sqrt(far / all)); /* the ridge */
    for (int i = 0; i < 2; i++) {
        kvf__prefix_done(&emitted[i]);
        kvf__encoder_free(both[i]);
    }
    kvf__prefix_done(&gradient);
    kvf__prefix_done(&start);
}
END_TEST

START_TEST(names_and_dims_are_those_of_peft)
{
    static const struct {
        const char *name;
        int rank;
        int64_t dim[2];
    } WANT[] = {
        {"embedding.weight", 2, {3, 8}},  {"transform.0.weight", 2, {5, 8}},
        {"transform.0.bias", 1, {5, 0}},  {"transform.2.weight", 2, {32, 5}},
        {"transform.2.bias", 1, {32, 0}},
    };
    kvf__encoder *encoder = make("mlp", &SHAPE, false);
    kvf__params *params = kvf__encoder_params(encoder);
    ck_assert_uint_eq(params->n, 5);
    for (size_t i = 0; i < 5; i++) {
        ck_assert_str_eq(params->item[i].name, WANT[i].name);
        ck_assert_int_eq(params->item[i].rank, WANT[i].rank);
        ck_assert_int_eq(params->item[i].dim[0], WANT[i].dim[0]);
        if (WANT[i].rank == 2) ck_assert_int_eq(params->item[i].dim[1], WANT[i].dim[1]);
    }
    kvf__encoder_free(encoder);
}
END_TEST

/* shape, as in P-tuning v2; whether P <= min(M, G*D), where the target is reached to 1e-4
 * (docs/maths.md). */
static const struct {
    const char *method;
    kvf__encoder_shape shape;
    bool v2;
    double residual;
} TARGETS[] = {
    {"mlp", {.L = 2, .G = 2, .P = 3, .D = 4, .M = 5}, false, 1e-4},
    {"mlp", {.L = 3, .G = 1, .P = 20, .D = 32, .M = 24}, false, 1e-4},
    {"mlp", {.L = 30, .G = 3, .P = 20, .D = 64, .M = 512}, false, 1e-4},
    {"mlp", {.L = 2, .G = 2, .P = 1, .D = 4, .M = 1}, false, 1e-4},
    {"mlp", {.L = 2, .G = 2, .P = 3, .D = 4, .M = 64}, true, 1e-2},
    {"direct", {.L = 2, .G = 2, .P = 3, .D = 4, .M = 0}, false, 1e-6},
    /* 5 of 12 dimensions of a random target are reached: sqrt(7 / 12) remains */
    {"mlp", {.L = 2, .G = 2, .P = 12, .D = 4, .M = 4}, false, 0.85},
};

/* The least-squares residual is orthogonal to every column. For the column of the bias, its sum
 * over p is 0. */
static void ck_centred(const kvf__prefix *out, const kvf__prefix *target)
{
    int64_t PD = out->P * out->D;
    for (int64_t i = 0; i < 2 * out->L * out->G; i++)
        for (int64_t d = 0; d < out->D; d++) {
            double sum = 0;
            for (int64_t p = 0; p < out->P; p++)
                sum += (double)out->kv[i * PD + p * out->D + d] -
                       (double)target->kv[i * PD + p * out->D + d];
            ck_assert_double_eq_tol(sum, 0, 1e-4);
        }
}

START_TEST(target_is_reached)
{
    kvf__encoder *encoder = make(TARGETS[_i].method, &TARGETS[_i].shape, TARGETS[_i].v2);
    kvf__prefix target = prefix_like(&TARGETS[_i].shape), out = prefix_like(&TARGETS[_i].shape);
    double residual = -1;
    fill(target.kv, kvf__prefix_count(&target), 11);
    ck_assert_int_eq(
        kvf__encoder_init_target(ctx, encoder, (kvf__emitted){.prefix = &target}, &residual),
        KVF_OK);
    ck_assert_int_eq(kvf__encoder_fwd(ctx, encoder, (kvf__emitted){.prefix = &out}), KVF_OK);
    double measured = ck_rel_l2(out.kv, target.kv, kvf__prefix_count(&target));
    ck_assert_msg(measured <= TARGETS[_i].residual, "relative residual %g", measured);
    ck_assert_double_eq_tol(measured, residual, 1e-9 + 1e-3 * residual);
    if (TARGETS[_i].shape.M && TARGETS[_i].shape.P > TARGETS[_i].shape.M + 1)
        ck_centred(&out, &target);
    kvf__prefix_done(&target);
    kvf__prefix_done(&out);
    kvf__encoder_free(encoder);
}
END_TEST

START_TEST(zero_emits_zeros)
{
    kvf__encoder *encoder = make(METHODS[_i], &SHAPE, false);
    kvf__prefix out = prefix_like(&SHAPE);
    ck_assert_int_eq(kvf__encoder_init_zero(ctx, encoder), KVF_OK);
    fill(out.kv, kvf__prefix_count(&out), 1);
    ck_assert_int_eq(kvf__encoder_fwd(ctx, encoder, (kvf__emitted){.prefix = &out}), KVF_OK);
    for (size_t i = 0; i < kvf__prefix_count(&out); i++)
        ck_assert(out.kv[i] == 0);
    kvf__prefix_done(&out);
    kvf__encoder_free(encoder);
}
END_TEST

START_TEST(equal_seeds_give_equal_values)
{
    kvf__encoder *a = make("mlp", &SHAPE, false), *b = make("mlp", &SHAPE, false);
    kvf__param *x = &kvf__encoder_params(a)->item[3], *y = &kvf__encoder_params(b)->item[3];
    ck_assert_mem_eq(x->value, y->value, (size_t)x->n * sizeof(float));
    kvf__encoder_init_random(b, false, 8);
    ck_assert_mem_ne(x->value, y->value, (size_t)x->n * sizeof(float));
    kvf__encoder_free(a);
    kvf__encoder_free(b);
}
END_TEST

/* direct: torch.nn.Embedding's N(0, 1), as PEFT; P-tuning v2's N(0, 0.02). 6000 draws: the standard
 * deviation is good to 3 %. */
START_TEST(direct_starts_with_the_spread_of_its_scheme)
{
    static const struct {
        bool v2;
        double deviation;
    } SPREADS[] = {{false, 1}, {true, 0.02}};
    const kvf__encoder_shape shape = {.L = 5, .G = 3, .P = 20, .D = 10};
    kvf__encoder *encoder = make("direct", &shape, SPREADS[_i].v2);
    kvf__prefix out = prefix_like(&shape);
    ck_assert_int_eq(kvf__encoder_fwd(ctx, encoder, (kvf__emitted){.prefix = &out}), KVF_OK);
    double squares = 0, count = (double)kvf__prefix_count(&out);
    for (size_t i = 0; i < kvf__prefix_count(&out); i++)
        squares += (double)out.kv[i] * out.kv[i];
    ck_assert_double_eq_tol(sqrt(squares / count), SPREADS[_i].deviation,
                            0.03 * SPREADS[_i].deviation);
    kvf__prefix_done(&out);
    kvf__encoder_free(encoder);
}
END_TEST

START_TEST(lr_units_follow_the_hidden_row)
{
    kvf__encoder *encoder = make("mlp", &SHAPE, false);
    kvf__params *params = kvf__encoder_params(encoder);
    double k = 0, again = 2;
    ck_assert_int_eq(kvf__encoder_lr_units(ctx, encoder, false, &k), KVF_OK);
    ck_assert(k > 0 && k < (double)SHAPE.M);
    ck_assert_double_eq(params->item[3].lr_scale, 1 / k);
    ck_assert_double_eq(params->item[4].lr_scale, 0.5);
    ck_assert_double_eq(params->item[0].lr_scale, 0.01);
    kvf__encoder_slow_below_last(encoder, 0.5);
    for (size_t i = 0; i < 3; i++)
        ck_assert_double_eq(params->item[i].lr_scale, 0.005);
    ck_assert_double_eq(params->item[3].lr_scale, 1 / k);
    ck_assert_double_eq(params->item[4].lr_scale, 0.5);
    ck_assert_int_eq(kvf__encoder_lr_units(ctx, encoder, false, &again), KVF_OK);
    ck_assert_double_eq(again, 2); /* a given k is kept: --resume */
    ck_assert_double_eq(params->item[3].lr_scale, 0.5);
    ck_assert_int_eq(kvf__encoder_lr_units(ctx, encoder, true, &k), KVF_OK);
    for (size_t i = 0; i < params->n; i++)
        ck_assert_double_eq(params->item[i].lr_scale, 1);
    kvf__encoder_free(encoder);
}
END_TEST

START_TEST(bad_requests_are_refused)
{
    kvf__encoder *encoder = NULL;
    kvf__encoder_shape none = SHAPE, narrow = SHAPE;
    none.P = 0;
    narrow.M = 0;
    ck_assert_int_eq(kvf__encoder_create(ctx, "lstm", &SHAPE, &encoder), KVF_EUSAGE);
    ck_assert_ptr_nonnull(
        strstr(kvf_ctx_error(ctx), "method \"lstm\" is not known; known: mlp, direct"));
    ck_assert_int_eq(kvf__encoder_create(ctx, "mlp", &none, &encoder), KVF_EUSAGE);
    ck_assert_int_eq(kvf__encoder_create(ctx, "mlp", &narrow, &encoder), KVF_EUSAGE);
    ck_assert_ptr_null(encoder);
}
END_TEST

START_TEST(loading_checks_names_and_dims)
{
    kvf__encoder *from = make("mlp", &SHAPE, false), *to = make("mlp", &SHAPE, true);
    kvf__params params = *kvf__encoder_params(from);
    ck_assert_int_eq(kvf__encoder_load(ctx, to, "x.h5", &params), KVF_OK);
    ck_assert_mem_eq(kvf__encoder_params(to)->item[3].value, params.item[3].value,
                     (size_t)params.item[3].n * sizeof(float));
    params.item[1].dim[0]++; /* the list belongs to `from` */
    ck_assert_int_eq(kvf__encoder_load(ctx, to, "x.h5", &params), KVF_ESHAPE);
    ck_assert_str_eq(kvf_ctx_error(ctx), "x.h5: transform.0.weight is [6, 8], want [5, 8]");
    params.n = 1;
    ck_assert_int_eq(kvf__encoder_load(ctx, to, "x.h5", &params), KVF_EFORMAT);
    ck_assert_str_eq(kvf_ctx_error(ctx), "x.h5: transform.0.weight is missing");
    kvf__encoder_free(from);
    kvf__encoder_free(to);
}
END_TEST

START_TEST(every_allocation_may_fail)
{
    kvf__encoder *encoder = NULL;
    int64_t n = 0;
    kvf_status st;
    do {
        kvf__ctx_fail_allocation(ctx, n++);
        st = kvf__encoder_create(ctx, "mlp", &SHAPE, &encoder);
        ck_assert(st == KVF_OK || st == KVF_ENOMEM);
    } while (st);
    ck_assert_int_gt(n, 3);
    kvf__ctx_fail_allocation(ctx, -1);
    kvf__encoder_free(encoder);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("encoder");
    TCase *core = tcase_create("core"), *grad = tcase_create("grad"),
          *errors = tcase_create("errors");
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_checked_fixture(grad, setup, teardown);
    tcase_add_checked_fixture(errors, setup, teardown);
    tcase_set_timeout(core, 60);
    tcase_add_test(core, names_and_dims_are_those_of_peft);
    tcase_add_loop_test(core, target_is_reached, 0, (int)(sizeof TARGETS / sizeof TARGETS[0]));
    tcase_add_loop_test(core, zero_emits_zeros, 0, N_METHODS);
    tcase_add_test(core, equal_seeds_give_equal_values);
    tcase_add_loop_test(core, direct_starts_with_the_spread_of_its_scheme, 0, 2);
    tcase_add_test(core, lr_units_follow_the_hidden_row);
    tcase_add_loop_test(core, natural_step_moves_what_is_emitted, 0,
                        sizeof STEPS / sizeof STEPS[0]);
    tcase_add_test(core, natural_step_is_that_of_a_direct_prefix);
    tcase_add_loop_test(grad, gradients_match_differences, 0, N_METHODS);
    tcase_add_loop_test(grad, backward_sets, 0, N_METHODS);
    tcase_add_test(errors, bad_requests_are_refused);
    tcase_add_test(errors, loading_checks_names_and_dims);
    tcase_add_test(errors, every_allocation_may_fail);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, grad);
    suite_add_tcase(suite, errors);
    return ck_main(suite);
}
