/* Norms that apply their weights, over rows and over heads. Every kernel level of this machine is
 * compared with the reference, and the reference's gradients with central differences. */
#include "kernels_fx.h"

static const struct shape {
    int64_t M, C;
} SHAPES[] = {{0, 16}, {1, 1}, {3, 7}, {5, 64}, {4, 31}, {7, 576}, {60, 601}};
enum { N_SHAPES = sizeof SHAPES / sizeof SHAPES[0] };

static void *copy(kvf__dtype dtype, const void *from, int64_t n)
{
    return memcpy(array(dtype, n), from, (size_t)n * size_of(dtype));
}

/* ---- parity ---------------------------------------------------------------------------------- */

/* variant: bit 0 rms, bit 1 no beta, bit 2 only y requested, in place. */
static void whole_fwd_of(int64_t M, int64_t C, int variant)
{
    int64_t n = M * C;
    float *x = filled(KVF__F32, n, 3, 1), *gamma = filled(KVF__F32, C, 2, 2),
          *beta = filled(KVF__F32, C, 1, 3);
    float *y[2], *rstd[2];
    void *y_act[2], *xhat[2];
    const kvf__kernels *by[2] = {fast, ref};
    bool bare = variant & 4;
    char what[96];

    for (int64_t i = 0; i < n; i++)
        x[i] += 1.5f; /* a mean to be subtracted */
    for (int k = 0; k < 2; k++) {
        y[k] = copy(KVF__F32, x, n);
        rstd[k] = array(KVF__F32, M);
        y_act[k] = array(act, n);
        xhat[k] = array(act, n);
        const kvf__whole_norm norm = {.M = M,
                                      .C = C,
                                      .rms = variant & 1,
                                      .eps = 1e-5f,
                                      .gamma = gamma,
                                      .beta = variant & 2 ? NULL : beta,
                                      .x = bare ? y[k] : x,
                                      .y = y[k],
                                      .y_act = bare ? NULL : y_act[k],
                                      .xhat = bare ? NULL : xhat[k],
                                      .rstd = rstd[k]};
        by[k]->whole_norm_fwd(act, &norm);
    }
    snprintf(what, sizeof what, "whole_norm_fwd [%d, %d] variant %d", (int)M, (int)C, variant);
    double atol = C == 1 ? 2e-4 : 4e-6;
    same(what, KVF__F32, y[0], y[1], n, 2e-6, atol);
    same(what, act, y_act[0], y_act[1], n, 2e-6, atol);
    same(what, act, xhat[0], xhat[1], n, 2e-6, atol);
    same(what, KVF__F32, rstd[0], rstd[1], M, 2e-6, 0);
    free(x);
    free(gamma);
    free(beta);
}

/* variant: bit 0 rms, bit 1 plus, bit 2 a copy. */
static void whole_bwd_of(int64_t M, int64_t C, int variant)
{
    int64_t n = M * C;
    float *start = filled(KVF__F32, n, 1, 4), *gamma = filled(KVF__F32, C, 2, 5),
          *rstd = filled(KVF__F32, M, 1, 6);
    void *xhat = filled(act, n, 1.7, 7), *plus = filled(act, n, 1, 8);
    float *dx[2];
    void *also[2];
    const kvf__kernels *by[2] = {fast, ref};
    char what[96];

    for (int k = 0; k < 2; k++) {
        dx[k] = copy(KVF__F32, start, n);
        also[k] = array(act, n);
        const kvf__whole_norm norm = {.M = M,
                                      .C = C,
                                      .rms = variant & 1,
                                      .gamma = gamma,
                                      .xhat = xhat,
                                      .rstd = rstd,
                                      .dx = dx[k],
                                      .dx_act = variant & 4 ? also[k] : NULL,
                                      .plus = variant & 2 ? plus : NULL};
        by[k]->whole_norm_bwd(act, &norm);
    }
    snprintf(what, sizeof what, "whole_norm_bwd [%d, %d] variant %d", (int)M, (int)C, variant);
    same(what, KVF__F32, dx[0], dx[1], n, 2e-6, 8e-6);
    same(what, act, also[0], also[1], n, 2e-6, 8e-6);
    free(start);
    free(gamma);
    free(rstd);
    free(xhat);
    free(plus);
}

START_TEST(whole)
{
    ck_need(choose(_i), "this CPU has no such kernels");
    for (int s = 0; s < N_SHAPES; s++)
        for (int variant = 0; variant < 8; variant++) {
            whole_fwd_of(SHAPES[s].M, SHAPES[s].C, variant);
            whole_bwd_of(SHAPES[s].M, SHAPES[s].C, variant);
        }
}
END_TEST

static const struct heads {
    int64_t M, heads, D, extra; /* extra columns after the heads */
} HEADS[] = {{0, 1, 4, 0},   {1, 1, 1, 0},  {3, 2, 10, 5},
             {9, 5, 64, 64}, {4, 3, 80, 1}, {70, 9, 64, 192}};
enum { N_HEADS = sizeof HEADS / sizeof HEADS[0] };

/* Columns after the heads are unchanged. */
static void check_rest(const struct heads *h, const void *x, const void *start)
{
    int64_t ld = h->heads * h->D + h->extra;
    size_t size = size_of(act), rest = (size_t)h->extra * size;

    for (int64_t m = 0; m < h->M; m++) {
        size_t at = (size_t)((m + 1) * ld) * size - rest;
        ck_assert_mem_eq((const char *)x + at, (const char *)start + at, rest);
    }
}

static void heads_of(const struct heads *h, bool keep)
{
    int64_t ld = h->heads * h->D + h->extra, n = h->M * ld, inner = h->M * h->heads * h->D;
    void *start = filled(act, n, 2, 9), *d = filled(act, n, 1, 10), *xhat[2], *x[2], *dx[2];
    float *gamma = filled(KVF__F32, h->heads * h->D, 2, 11), *rstd[2];
    const kvf__kernels *by[2] = {fast, ref};
    char what[96];

    for (int k = 0; k < 2; k++) {
        x[k] = copy(act, start, n);
        dx[k] = copy(act, d, n);
        xhat[k] = array(act, inner);
        rstd[k] = array(KVF__F32, h->M * h->heads);
        kvf__head_norm norm = {.M = h->M,
                               .ld = ld,
                               .heads = h->heads,
                               .D = h->D,
                               .eps = 1e-6f,
                               .gamma = gamma,
                               .x = x[k],
                               .xhat = keep ? xhat[k] : NULL,
                               .rstd = rstd[k]};
        by[k]->head_norm_fwd(act, &norm);
        check_rest(h, x[k], start);
        if (!keep) continue;
        norm.x = dx[k];
        norm.xhat = xhat[0]; /* the fast level's for both */
        norm.rstd = rstd[0];
        by[k]->head_norm_bwd(act, &norm);
        check_rest(h, dx[k], d);
    }
    snprintf(what, sizeof what, "head_norm [%d, %d, %d]", (int)h->M, (int)h->heads, (int)h->D);
    same(what, act, x[0], x[1], n, 2e-6, 4e-6);
    same(what, act, dx[0], dx[1], n, 4e-6, act == KVF__BF16 ? 1e-2 : 4e-5);
    same(what, act, xhat[0], xhat[1], inner, 2e-6, 4e-6);
    same(what, KVF__F32, rstd[0], rstd[1], h->M * h->heads, 2e-6, 0);
    free(start);
    free(d);
    free(gamma);
}

START_TEST(heads)
{
    ck_need(choose(_i), "this CPU has no such kernels");
    for (int s = 0; s < N_HEADS; s++) {
        heads_of(&HEADS[s], true);
        heads_of(&HEADS[s], false);
    }
}
END_TEST

/* ---- grad ------------------------------------------------------------------------------------ */

enum { C = 9 };
static const float X[C] = {-0.7f, 1.2f, 0.4f, 2.1f, -1.6f, 0.3f, 0.9f, -0.2f, 1.5f};
static const float D[C] = {0.5f, -0.8f, 1.1f, 0.2f, -0.4f, 0.7f, -1.3f, 0.6f, 0.1f};
static const float GAMMA[C] = {1.1f, 0.7f, -0.5f, 1.4f, 0.9f, 0, 1.2f, 0.8f, 1.3f};

/* <D, y(x)>; which: 0 layer norm, 1 rms norm, 2 norm of one head. */
static double weighted(int which, const float *x, float *xhat, float *rstd)
{
    const kvf__kernels *k = kvf__kernels_level("ref");
    const float beta[C] = {0.3f};
    float y[C];
    double sum = 0;

    memcpy(y, x, sizeof y);
    if (which < 2) {
        const kvf__whole_norm norm = {.M = 1,
                                      .C = C,
                                      .rms = which,
                                      .eps = 1e-5f,
                                      .gamma = GAMMA,
                                      .beta = beta,
                                      .x = y,
                                      .y = y,
                                      .xhat = xhat,
                                      .rstd = rstd};
        k->whole_norm_fwd(KVF__F32, &norm);
    } else {
        const kvf__head_norm norm = {1, C, 1, C, 1e-5f, GAMMA, y, xhat, rstd};
        k->head_norm_fwd(KVF__F32, &norm);
    }
    for (int i = 0; i < C; i++)
        sum += (double)y[i] * (double)D[i];
    return sum;
}

START_TEST(slope)
{
    const kvf__kernels *k = kvf__kernels_level("ref");
    float xhat[C], rstd, dx[C], numeric[C], unused[C], unused_rstd;

    weighted(_i, X, xhat, &rstd);
    memcpy(dx, D, sizeof dx);
    if (_i < 2) {
        const float half[C] = {0.25f, 0.25f, 0.25f, 0.25f, 0.25f, 0.25f, 0.25f, 0.25f, 0.25f};
        for (int i = 0; i < C; i++)
            dx[i] -= 0.25f; /* the remainder is passed as plus */
        const kvf__whole_norm norm = {.M = 1,
                                      .C = C,
                                      .rms = _i,
                                      .gamma = GAMMA,
                                      .xhat = xhat,
                                      .rstd = &rstd,
                                      .dx = dx,
                                      .plus = half};
        k->whole_norm_bwd(KVF__F32, &norm);
    } else {
        const kvf__head_norm norm = {1, C, 1, C, 1e-5f, GAMMA, dx, xhat, &rstd};
        k->head_norm_bwd(KVF__F32, &norm);
    }
    for (int i = 0; i < C; i++) {
        float moved[C];
        double side[2];
        for (int s = 0; s < 2; s++) {
            memcpy(moved, X, sizeof moved);
            moved[i] += s ? 0.01f : -0.01f;
            side[s] = weighted(_i, moved, unused, &unused_rstd);
        }
        numeric[i] = (float)((side[1] - side[0]) / 0.02);
    }
    ck_close(dx, numeric, C, 1e-3, 2e-4);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernels_norms");
    TCase *parity = tcase_create("parity"), *grad = tcase_create("grad");
    tcase_set_timeout(parity, 60);
    tcase_add_loop_test(parity, whole, 0, LEVEL_ROWS);
    tcase_add_loop_test(parity, heads, 0, LEVEL_ROWS);
    tcase_add_loop_test(grad, slope, 0, 3);
    suite_add_tcase(suite, parity);
    suite_add_tcase(suite, grad);
    return ck_main(suite);
}
