/* One bottleneck: six plain products in f32. A bottleneck is a few percent of a layer, and its
 * weights change every step, so they are not packed.
 *
 * Sums over rows (gradients of biases) run in f64 in row order, each strip of columns on one
 * thread, so no bit depends on the number of threads. */
#include "bottleneck.h"
#include "matmul.h"

#include <string.h>

enum { STRIP = 64, PARALLEL = 1 << 14 };

/* Sets every row of y [M, n] to bias, or adds it. */
static void put_bias(float *y, const float *bias, int64_t M, int64_t n, bool add)
{
#pragma omp parallel for schedule(static) if (M * n > PARALLEL)
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < n; j++)
            y[i * n + j] = (add ? y[i * n + j] : 0) + bias[j];
}

kvf_status kvf__bottleneck_fwd(kvf_ctx *ctx, const kvf__kernels *kernels, const kvf__bottleneck *b,
                               const kvf__bottleneck_kept *kept, float *x, int64_t M)
{
    int64_t C = b->C, m = b->m;

    put_bias(kept->slope, b->down_bias, M, m, false);
    KVF_TRY(kvf__sgemm(ctx, false, true, M, m, C, kept->in, C, b->down, C, 1, kept->slope, m));
    kernels->act_fwd(KVF__F32, b->act, kept->slope, kept->h, M * m);
    put_bias(x, b->up_bias, M, C, true);
    return kvf__sgemm(ctx, false, true, M, C, m, kept->h, m, b->up, m, 1, x, C);
}

/* Adds the rows of d [M, n] to sum [n]. */
static void add_rows(float *sum, const float *d, int64_t M, int64_t n)
{
#pragma omp parallel for schedule(static) if (M * n > PARALLEL)
    for (int64_t at = 0; at < n; at += STRIP) {
        int64_t width = n - at < STRIP ? n - at : STRIP;
        double part[STRIP] = {0};
        for (int64_t i = 0; i < M; i++)
            for (int64_t j = 0; j < width; j++)
                part[j] += (double)d[i * n + at + j];
        for (int64_t j = 0; j < width; j++)
            sum[at + j] = (float)((double)sum[at + j] + part[j]);
    }
}

kvf_status kvf__bottleneck_bwd(kvf_ctx *ctx, const kvf__kernels *kernels, const kvf__bottleneck *b,
                               const kvf__bottleneck_kept *kept, float *din, const float *dx,
                               float *dh, int64_t M)
{
    int64_t C = b->C, m = b->m;

    /* x += h up^T + up_bias */
    KVF_TRY(kvf__sgemm(ctx, false, false, M, m, C, dx, C, b->up, m, 0, dh, m));
    if (b->dup) {
        add_rows(b->dup_bias, dx, M, C);
        KVF_TRY(kvf__sgemm(ctx, true, false, C, m, M, dx, C, kept->h, m, 1, b->dup, m));
    }
    /* h = act(in down^T + down_bias) */
    kernels->mul(KVF__F32, dh, kept->slope, M * m);
    if (b->ddown) {
        add_rows(b->ddown_bias, dh, M, m);
        KVF_TRY(kvf__sgemm(ctx, true, false, m, C, M, dh, m, kept->in, C, 1, b->ddown, C));
    }
    return kvf__sgemm(ctx, false, false, M, C, m, dh, m, b->down, C, 1, din, C);
}
