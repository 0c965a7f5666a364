/* Norms: folded ones (xhat only), whole rows of the f32 stream with their weights (post-norm
 * blocks, final hidden states), and single heads of queries and keys. Part of ops_vec.c; formulas
 * as in ref_ops.c. Sums use several partial vectors in an order that depends only on the row
 * length. */
#ifndef KVF_OPS_NORM_H
#define KVF_OPS_NORM_H

#include "ops_row.h"

#include <math.h>

/* ---- forward --------------------------------------------------------------------------------- */

/* Returns x, or (x - mean)^2, of lanes i .. i + n - 1; 0 in the others. */
VEC_INLINE vf moment_at(const float *x, int64_t i, int64_t n, vf mean, bool square)
{
    vf v = vf_load_upto(x + i, n);
    if (!square) return v;
    v -= mean;
    if (n < VF_LANES) v = vf_keep_n(v, n, vf_zero());
    return v * v;
}

VEC_INLINE float row_moment(const float *x, int64_t C, float about, bool square)
{
    vf mean = vf_set(about), a = vf_zero(), b = a, c = a, d = a;
    int64_t i = 0;
    for (; i + 4 * VF_LANES <= C; i += 4 * VF_LANES) {
        a += moment_at(x, i, VF_LANES, mean, square);
        b += moment_at(x, i + VF_LANES, VF_LANES, mean, square);
        c += moment_at(x, i + 2 * VF_LANES, VF_LANES, mean, square);
        d += moment_at(x, i + 3 * VF_LANES, VF_LANES, mean, square);
    }
    for (; i + VF_LANES <= C; i += VF_LANES)
        a += moment_at(x, i, VF_LANES, mean, square);
    if (i < C) b += moment_at(x, i, C - i, mean, square);
    return vf_sum((a + b) + (c + d));
}

/* Not weighted: xhat only. */
VEC_INLINE void norm_fwd_row(bool half, bool weighted, const kvf__whole_norm *norm, int64_t m)
{
    int64_t C = norm->C;
    const float *x = norm->x + m * C, *gamma = norm->gamma, *beta = norm->beta;
    float *y = weighted ? norm->y + m * C : NULL;
    void *y_act = act_row(half, norm->y_act, m, C), *xhat = act_row(half, norm->xhat, m, C);
    float mean = norm->rms ? 0.0f : row_moment(x, C, 0.0f, false) / (float)C;
    float rstd = 1.0f / sqrtf(row_moment(x, C, mean, true) / (float)C + norm->eps);
    vf about = vf_set(mean), by = vf_set(rstd);
    FOR_LANES(i, n, 0, C, {
        vf h = (vf_load_upto(x + i, n) - about) * by;
        if (xhat || !weighted) act_store(half, xhat, i, h, n);
        if (weighted) {
            vf shift = beta ? vf_load_upto(beta + i, n) : vf_zero();
            vf out = vf_fma(h, vf_load_upto(gamma + i, n), shift);
            vf_store_upto(y + i, out, n);
            if (y_act) act_store(half, y_act, i, out, n);
        }
    });
    norm->rstd[m] = rstd;
}

static void norm_fwd(kvf__dtype act, void *xhat, float *rstd, const float *x, int64_t M, int64_t C,
                     bool rms, float eps)
{
    const kvf__whole_norm norm = {
        .C = C, .rms = rms, .eps = eps, .x = x, .xhat = xhat, .rstd = rstd};
#pragma omp parallel for schedule(static) if (M * C > SERIAL)
    for (int64_t m = 0; m < M; m++)
        BY_TYPE(act, norm_fwd_row, false, &norm, m);
}

static void whole_norm_fwd(kvf__dtype act, const kvf__whole_norm *norm)
{
#pragma omp parallel for schedule(static) if (norm->M * norm->C > SERIAL)
    for (int64_t m = 0; m < norm->M; m++)
        BY_TYPE(act, norm_fwd_row, true, norm, m);
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Adds (d - mean(d) - xhat mean(d xhat)) rstd to dx; rms omits mean(d). */
VEC_INLINE void norm_bwd_row(bool half, float *dx, void *dx_act, const void *d, const void *xhat,
                             float rstd, int64_t C, bool rms)
{
    vf sum = vf_zero(), dot = sum, sum2 = sum, dot2 = sum;
    int64_t i = 0;
    for (; i + 2 * VF_LANES <= C; i += 2 * VF_LANES) {
        vf d1 = act_load(half, d, i, VF_LANES), d2 = act_load(half, d, i + VF_LANES, VF_LANES);
        sum += d1;
        sum2 += d2;
        dot = vf_fma(d1, act_load(half, xhat, i, VF_LANES), dot);
        dot2 = vf_fma(d2, act_load(half, xhat, i + VF_LANES, VF_LANES), dot2);
    }
    FOR_LANES(j, n, i, C, {
        vf dn = act_load(half, d, j, n);
        sum += dn;
        dot = vf_fma(dn, act_load(half, xhat, j, n), dot);
    });

    vf mean = vf_set(rms ? 0.0f : vf_sum(sum + sum2) / (float)C);
    vf slope = vf_set(vf_sum(dot + dot2) / (float)C), by = vf_set(rstd);
    FOR_LANES(j, n, 0, C, {
        vf rest = vf_fnma(act_load(half, xhat, j, n), slope, act_load(half, d, j, n) - mean);
        vf total = vf_fma(rest, by, vf_load_upto(dx + j, n));
        vf_store_upto(dx + j, total, n);
        if (dx_act) act_store(half, dx_act, j, total, n);
    });
}

static void norm_bwd(kvf__dtype act, float *dx, void *dx_act, const void *dxhat, const void *xhat,
                     const float *rstd, int64_t M, int64_t C, bool rms)
{
    bool half = act == KVF__BF16;
#pragma omp parallel for schedule(static) if (M * C > SERIAL)
    for (int64_t m = 0; m < M; m++)
        BY_TYPE(act, norm_bwd_row, dx + m * C, act_row(half, dx_act, m, C),
                act_row(half, dxhat, m, C), act_row(half, xhat, m, C), rstd[m], C, rms);
}

/* Returns d = gamma dy of lanes i .. i + n - 1, dy = dx + plus; 0 in the others. */
VEC_INLINE vf whole_norm_d(bool half, const float *dx, const void *plus, const float *gamma,
                           int64_t i, int64_t n)
{
    vf dy = vf_load_upto(dx + i, n);
    if (plus) dy += act_load(half, plus, i, n);
    return dy * vf_load_upto(gamma + i, n);
}

/* Sets dx = (d - mean(d) - xhat mean(d xhat)) rstd. */
VEC_INLINE void whole_norm_bwd_row(bool half, const kvf__whole_norm *norm, int64_t m)
{
    int64_t C = norm->C;
    float *dx = norm->dx + m * C;
    const float *gamma = norm->gamma;
    const void *xhat = act_row(half, norm->xhat, m, C), *plus = act_row(half, norm->plus, m, C);
    void *also = act_row(half, norm->dx_act, m, C);
    vf sum = vf_zero(), dot = sum, by = vf_set(norm->rstd[m]);
    FOR_LANES(i, n, 0, C, {
        vf d = whole_norm_d(half, dx, plus, gamma, i, n);
        sum += d;
        dot = vf_fma(d, act_load(half, xhat, i, n), dot);
    });
    vf mean = vf_set(norm->rms ? 0.0f : vf_sum(sum) / (float)C);
    vf slope = vf_set(vf_sum(dot) / (float)C);
    FOR_LANES(i, n, 0, C, {
        vf d = whole_norm_d(half, dx, plus, gamma, i, n) - mean;
        vf out = vf_fnma(act_load(half, xhat, i, n), slope, d) * by;
        vf_store_upto(dx + i, out, n);
        if (also) act_store(half, also, i, out, n);
    });
}

static void whole_norm_bwd(kvf__dtype act, const kvf__whole_norm *norm)
{
#pragma omp parallel for schedule(static) if (norm->M * norm->C > SERIAL)
    for (int64_t m = 0; m < norm->M; m++)
        BY_TYPE(act, whole_norm_bwd_row, norm, m);
}

#endif
