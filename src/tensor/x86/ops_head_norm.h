/* RMSNorm of single heads of queries and keys, in place. Part of ops_vec.c. */
#ifndef KVF_OPS_HEAD_NORM_H
#define KVF_OPS_HEAD_NORM_H

#include "ops_row.h"

#include <math.h>

/* Normalises head h of row m: x at the row's stride, xhat dense. */
VEC_INLINE void head_norm_fwd_one(bool half, const kvf__head_norm *norm, int64_t m, int64_t h)
{
    int64_t D = norm->D;
    const float *gamma = norm->gamma + h * D;
    void *x = act_row(half, act_row(half, norm->x, m, norm->ld), h, D);
    void *xhat = act_row(half, norm->xhat, m * norm->heads + h, D);
    vf square = vf_zero();
    FOR_LANES(i, n, 0, D, {
        vf v = act_load(half, x, i, n);
        square = vf_fma(v, v, square);
    });
    float rstd = 1.0f / sqrtf(vf_sum(square) / (float)D + norm->eps);
    vf by = vf_set(rstd);
    FOR_LANES(i, n, 0, D, {
        vf v = act_load(half, x, i, n) * by;
        if (xhat) act_store(half, xhat, i, v, n);
        act_store(half, x, i, v * vf_load_upto(gamma + i, n), n);
    });
    norm->rstd[m * norm->heads + h] = rstd;
}

static void head_norm_fwd(kvf__dtype act, const kvf__head_norm *norm)
{
#pragma omp parallel for schedule(static) if (norm->M * norm->heads * norm->D > SERIAL)
    for (int64_t m = 0; m < norm->M; m++)
        for (int64_t h = 0; h < norm->heads; h++)
            BY_TYPE(act, head_norm_fwd_one, norm, m, h);
}

VEC_INLINE void head_norm_bwd_one(bool half, const kvf__head_norm *norm, int64_t m, int64_t h)
{
    int64_t D = norm->D;
    const float *gamma = norm->gamma + h * D;
    void *dx = act_row(half, act_row(half, norm->x, m, norm->ld), h, D);
    const void *xhat = act_row(half, norm->xhat, m * norm->heads + h, D);
    vf dot = vf_zero(), by = vf_set(norm->rstd[m * norm->heads + h]);
    FOR_LANES(i, n, 0, D, {
        vf d = act_load(half, dx, i, n) * vf_load_upto(gamma + i, n);
        dot = vf_fma(d, act_load(half, xhat, i, n), dot);
    });
    vf slope = vf_set(vf_sum(dot) / (float)D);
    FOR_LANES(i, n, 0, D, {
        vf d = act_load(half, dx, i, n) * vf_load_upto(gamma + i, n);
        act_store(half, dx, i, vf_fnma(act_load(half, xhat, i, n), slope, d) * by, n);
    });
}

static void head_norm_bwd(kvf__dtype act, const kvf__head_norm *norm)
{
#pragma omp parallel for schedule(static) if (norm->M * norm->heads * norm->D > SERIAL)
    for (int64_t m = 0; m < norm->M; m++)
        for (int64_t h = 0; h < norm->heads; h++)
            BY_TYPE(act, head_norm_bwd_one, norm, m, h);
}

#endif
