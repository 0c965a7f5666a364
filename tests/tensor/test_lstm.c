/* oneDNN's LSTM against the reference, forward and backward, at sizes around its vector widths. The
 * reference's gradient is checked by central differences. PyTorch's is in test_enc_ptuning.c. */
#include "ck.h"
#include "lstm.h"
#include "rng.h"

#include <stdlib.h>
#include <string.h>

static const kvf__lstm_sizes SIZES[] = {{1, 3, 2},   {2, 1, 1},    {5, 7, 3},
                                        {20, 16, 8}, {12, 33, 17}, {20, 96, 48}};
enum { N_SIZES = sizeof SIZES / sizeof SIZES[0] };

/* Inputs, weights of both directions, and room for all outputs. */
typedef struct fixture {
    kvf_ctx *ctx;
    kvf__lstm_sizes s;
    int64_t nx, nh, nb; /* values of a direction's wx, wh, bx */
    float *x, *y, *dx, *dy, *keep, *w, *g;
    double *scratch;
    kvf__lstm_weights weights[2];
    kvf__lstm_grads grads[2];
} fixture;

static float *values(int64_t n, double scale, uint64_t stream)
{
    kvf__rng rng = kvf__rng_make(5, stream);
    float *out = calloc((size_t)n, sizeof *out);
    for (int64_t i = 0; i < n && scale > 0; i++)
        out[i] = (float)(scale * kvf__rng_normal(&rng));
    return out;
}

static void setup(fixture *f, const kvf__lstm_sizes *s)
{
    const kvf_ctx_options options = {.threads = 2};
    *f = (fixture){.s = *s, .nx = 4 * s->H * s->I, .nh = 4 * s->H * s->H, .nb = 4 * s->H};
    ck_assert_int_eq(kvf_ctx_create(&options, &f->ctx), KVF_OK);
    int64_t one = f->nx + f->nh + 2 * f->nb;
    f->x = values(s->T * s->I, 1, 1);
    f->dy = values(s->T * 2 * s->H, 1, 2);
    f->w = values(2 * one, 0.3, 3);
    f->y = values(s->T * 2 * s->H, 0, 0);
    f->dx = values(s->T * s->I, 0, 0);
    f->g = values(2 * one, 1, 4); /* existing values are overwritten */
    f->keep = values(2 * s->T * 6 * s->H, 0, 0);
    f->scratch = calloc((size_t)(6 * s->H), sizeof *f->scratch);
    for (int d = 0; d < 2; d++) {
        float *w = f->w + d * one, *g = f->g + d * one;
        f->weights[d] = (kvf__lstm_weights){w, w + f->nx, w + f->nx + f->nh,
                                            w + f->nx + f->nh + f->nb};
        f->grads[d] = (kvf__lstm_grads){g, g + f->nx, g + f->nx + f->nh, g + f->nx + f->nh + f->nb};
    }
}

static void teardown(fixture *f)
{
    float *all[] = {f->x, f->y, f->dx, f->dy, f->keep, f->w, f->g};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
    free(f->scratch);
    kvf_ctx_free(f->ctx);
}

static void run_reference(fixture *f)
{
    kvf__lstm_ref_fwd(&f->s, f->y, f->keep, f->x, f->weights);
    kvf__lstm_ref_bwd(&f->s, f->dx, f->grads, f->dy, f->y, f->keep, f->x, f->weights, f->scratch);
}

static void run_onednn(fixture *f, kvf__lstm *lstm)
{
    ck_assert_msg(!kvf__lstm_fwd(f->ctx, lstm, f->y, f->x, f->weights), "%s",
                  kvf_ctx_error(f->ctx));
    ck_assert_msg(!kvf__lstm_bwd(f->ctx, lstm, f->dx, f->grads, f->dy), "%s",
                  kvf_ctx_error(f->ctx));
}

START_TEST(equals_the_reference)
{
    fixture want, got;
    kvf__lstm *lstm = NULL;
    setup(&want, &SIZES[_i]);
    setup(&got, &SIZES[_i]);
    run_reference(&want);
    ck_assert_msg(!kvf__lstm_create(got.ctx, &got.s, &lstm), "%s", kvf_ctx_error(got.ctx));
    size_t ny = (size_t)(got.s.T * 2 * got.s.H), ng = (size_t)(2 * (got.nx + got.nh + 2 * got.nb));
    for (int again = 0; again < 2; again++) { /* the second run does not depend on the first */
        run_onednn(&got, lstm);
        ck_close(got.y, want.y, ny, 1e-5, 1e-6);
        ck_assert_double_le(ck_rel_l2(got.dx, want.dx, (size_t)(got.s.T * got.s.I)), 1e-5);
        ck_assert_double_le(ck_rel_l2(got.g, want.g, ng), 1e-5);
    }
    kvf__lstm_free(lstm);
    teardown(&want);
    teardown(&got);
}
END_TEST

START_TEST(same_bits_without_allocation)
{
    fixture a, b;
    kvf__lstm *lstm = NULL;
    setup(&a, &SIZES[3]);
    setup(&b, &SIZES[3]);
    ck_assert_int_eq(kvf__lstm_create(a.ctx, &a.s, &lstm), KVF_OK);
    run_onednn(&a, lstm);
    uint64_t before = kvf__ctx_allocations(a.ctx);
    run_onednn(&b, lstm);
    ck_assert_uint_eq(kvf__ctx_allocations(a.ctx), before);
    ck_assert_mem_eq(a.g, b.g, (size_t)(2 * (a.nx + a.nh + 2 * a.nb)) * sizeof(float));
    ck_assert_mem_eq(a.dx, b.dx, (size_t)(a.s.T * a.s.I) * sizeof(float));
    kvf__lstm_free(lstm);
    teardown(&a);
    teardown(&b);
}
END_TEST

static double weighted_sum(fixture *f)
{
    double sum = 0;
    kvf__lstm_ref_fwd(&f->s, f->y, f->keep, f->x, f->weights);
    for (int64_t i = 0; i < f->s.T * 2 * f->s.H; i++)
        sum += (double)f->y[i] * (double)f->dy[i];
    return sum;
}

/* Some values of every kind of parameter and of the input; steps of 1e-2 in f32 leave an error of
 * 1e-3. */
START_TEST(reference_gradient)
{
    fixture f;
    setup(&f, &SIZES[2]);
    int64_t one = f.nx + f.nh + 2 * f.nb;
    run_reference(&f);
    for (int64_t i = 0; i < 2 * one + f.s.T * f.s.I; i += 7) {
        float *at = i < 2 * one ? &f.w[i] : &f.x[i - 2 * one], old = *at;
        double want = (double)(i < 2 * one ? f.g[i] : f.dx[i - 2 * one]), up, down;
        *at = old + 1e-2f;
        up = weighted_sum(&f);
        *at = old - 1e-2f;
        down = weighted_sum(&f);
        *at = old;
        ck_assert_double_eq_tol((up - down) / 2e-2, want, 1e-3 + 1e-3 * (want < 0 ? -want : want));
    }
    teardown(&f);
}
END_TEST

START_TEST(refuses_empty_sizes)
{
    kvf__lstm *lstm = NULL;
    kvf_ctx *ctx = NULL;
    ck_assert_int_eq(kvf_ctx_create(NULL, &ctx), KVF_OK);
    ck_assert_int_eq(kvf__lstm_create(ctx, &(kvf__lstm_sizes){4, 0, 3}, &lstm), KVF_ESHAPE);
    ck_assert_int_eq(kvf__lstm_create(ctx, &(kvf__lstm_sizes){4, 3, INT64_MAX / 2}, &lstm),
                     KVF_ENOMEM);
    ck_assert_ptr_null(lstm);
    kvf_ctx_free(ctx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lstm");
    TCase *parity = tcase_create("parity"), *grad = tcase_create("grad");
    TCase *errors = tcase_create("errors");

    tcase_add_loop_test(parity, equals_the_reference, 0, N_SIZES);
    tcase_add_test(parity, same_bits_without_allocation);
    suite_add_tcase(suite, parity);
    tcase_add_test(grad, reference_gradient);
    suite_add_tcase(suite, grad);
    tcase_add_test(errors, refuses_empty_sizes);
    suite_add_tcase(suite, errors);
    return ck_main(suite);
}
