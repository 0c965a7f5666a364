/* Norms with their weights applied: whole rows of the f32 stream (post-norm blocks, final hidden
 * states) and single heads of queries and keys. Part of ops_body.h, whose loads, stores and moments
 * they use; formulas as in ref_ops.c. */
#ifndef OPS_LEVEL
#error "norm_body.h is included by ops_body.h"
#endif

/* ---- whole rows ------------------------------------------------------------------------------ */

VEC_INLINE void whole_norm_fwd_row(bool half, const kvf__whole_norm *norm, int64_t m)
{
    int64_t C = norm->C;
    const float *x = norm->x + m * C, *gamma = norm->gamma, *beta = norm->beta;
    float *y = norm->y + m * C;
    void *y_act = norm->y_act ? act_row_mut(half, norm->y_act, m, C) : NULL;
    void *xhat = norm->xhat ? act_row_mut(half, norm->xhat, m, C) : NULL;
    float mean = norm->rms ? 0.0f : row_moment(x, C, 0.0f, false) / (float)C;
    float rstd = 1.0f / sqrtf(row_moment(x, C, mean, true) / (float)C + norm->eps);
    vf about = vf_set(mean), by = vf_set(rstd);
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        vf h = (f32_load(x + i, n) - about) * by;                                                  \
        vf out = vf_fma(h, f32_load(gamma + i, n), beta ? f32_load(beta + i, n) : vf_zero());      \
        if (xhat) act_store(half, xhat, i, h, n);                                                  \
        f32_store(y + i, out, n);                                                                  \
        if (y_act) act_store(half, y_act, i, out, n);                                              \
    } while (0)
    FOR_LANES(i, 0, C, STEP);
#undef STEP
    norm->rstd[m] = rstd;
}

static void whole_norm_fwd(kvf__dtype act, const kvf__whole_norm *norm)
{
#pragma omp parallel for schedule(static) if (norm->M * norm->C > SERIAL)
    for (int64_t m = 0; m < norm->M; m++)
        act == KVF__BF16 ? whole_norm_fwd_row(true, norm, m) : whole_norm_fwd_row(false, norm, m);
}

/* d = gamma dy of lanes i .. i + n - 1, dy = dx + plus; 0 in the others. */
VEC_INLINE vf whole_norm_d(bool half, const float *dx, const void *plus, const float *gamma,
                           int64_t i, int64_t n)
{
    vf dy = f32_load(dx + i, n);
    if (plus) dy += act_load(half, plus, i, n);
    return dy * f32_load(gamma + i, n);
}

/* dx = (d - mean(d) - xhat mean(d xhat)) rstd. */
VEC_INLINE void whole_norm_bwd_row(bool half, const kvf__whole_norm *norm, int64_t m)
{
    int64_t C = norm->C;
    float *dx = norm->dx + m * C;
    const float *gamma = norm->gamma;
    const void *xhat = act_row(half, norm->xhat, m, C);
    const void *plus = norm->plus ? act_row(half, norm->plus, m, C) : NULL;
    void *also = norm->dx_act ? act_row_mut(half, norm->dx_act, m, C) : NULL;
    vf sum = vf_zero(), dot = sum, by = vf_set(norm->rstd[m]);
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        vf d = whole_norm_d(half, dx, plus, gamma, i, n);                                          \
        sum += d;                                                                                  \
        dot = vf_fma(d, act_load(half, xhat, i, n), dot);                                          \
    } while (0)
    FOR_LANES(i, 0, C, STEP);
#undef STEP
    vf mean = vf_set(norm->rms ? 0.0f : vf_sum(sum) / (float)C);
    vf slope = vf_set(vf_sum(dot) / (float)C);
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        vf d = whole_norm_d(half, dx, plus, gamma, i, n) - mean;                                   \
        vf out = vf_fnma(act_load(half, xhat, i, n), slope, d) * by;                               \
        f32_store(dx + i, out, n);                                                                 \
        if (also) act_store(half, also, i, out, n);                                                \
    } while (0)
    FOR_LANES(i, 0, C, STEP);
#undef STEP
}

static void whole_norm_bwd(kvf__dtype act, const kvf__whole_norm *norm)
{
#pragma omp parallel for schedule(static) if (norm->M * norm->C > SERIAL)
    for (int64_t m = 0; m < norm->M; m++)
        act == KVF__BF16 ? whole_norm_bwd_row(true, norm, m) : whole_norm_bwd_row(false, norm, m);
}

/* ---- heads ----------------------------------------------------------------------------------- */

/* Head h of row m: x at the row's stride, xhat dense. */
VEC_INLINE void head_norm_fwd_one(bool half, const kvf__head_norm *norm, int64_t m, int64_t h)
{
    int64_t D = norm->D;
    const float *gamma = norm->gamma + h * D;
    void *x = act_row_mut(half, act_row_mut(half, norm->x, m, norm->ld), h, D);
    void *xhat = norm->xhat ? act_row_mut(half, norm->xhat, m * norm->heads + h, D) : NULL;
    vf square = vf_zero();
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        vf v = act_load(half, x, i, n);                                                            \
        square = vf_fma(v, v, square);                                                             \
    } while (0)
    FOR_LANES(i, 0, D, STEP);
#undef STEP
    float rstd = 1.0f / sqrtf(vf_sum(square) / (float)D + norm->eps);
    vf by = vf_set(rstd);
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        vf v = act_load(half, x, i, n) * by;                                                       \
        if (xhat) act_store(half, xhat, i, v, n);                                                  \
        act_store(half, x, i, v *f32_load(gamma + i, n), n);                                       \
    } while (0)
    FOR_LANES(i, 0, D, STEP);
#undef STEP
    norm->rstd[m * norm->heads + h] = rstd;
}

static void head_norm_fwd(kvf__dtype act, const kvf__head_norm *norm)
{
#pragma omp parallel for schedule(static) if (norm->M * norm->heads * norm->D > SERIAL)
    for (int64_t m = 0; m < norm->M; m++)
        for (int64_t h = 0; h < norm->heads; h++)
            act == KVF__BF16 ? head_norm_fwd_one(true, norm, m, h)
                             : head_norm_fwd_one(false, norm, m, h);
}

VEC_INLINE void head_norm_bwd_one(bool half, const kvf__head_norm *norm, int64_t m, int64_t h)
{
    int64_t D = norm->D;
    const float *gamma = norm->gamma + h * D;
    void *dx = act_row_mut(half, act_row_mut(half, norm->x, m, norm->ld), h, D);
    const void *xhat = act_row(half, norm->xhat, m * norm->heads + h, D);
    vf dot = vf_zero(), by = vf_set(norm->rstd[m * norm->heads + h]);
#define STEP(i, n)                                                                                 \
    dot = vf_fma(act_load(half, dx, i, n) * f32_load(gamma + i, n), act_load(half, xhat, i, n), dot)
    FOR_LANES(i, 0, D, STEP);
#undef STEP
    vf slope = vf_set(vf_sum(dot) / (float)D);
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        vf d = act_load(half, dx, i, n) * f32_load(gamma + i, n);                                  \
        act_store(half, dx, i, vf_fnma(act_load(half, xhat, i, n), slope, d) * by, n);             \
    } while (0)
    FOR_LANES(i, 0, D, STEP);
#undef STEP
}

static void head_norm_bwd(kvf__dtype act, const kvf__head_norm *norm)
{
#pragma omp parallel for schedule(static) if (norm->M * norm->heads * norm->D > SERIAL)
    for (int64_t m = 0; m < norm->M; m++)
        for (int64_t h = 0; h < norm->heads; h++)
            act == KVF__BF16 ? head_norm_bwd_one(true, norm, m, h)
                             : head_norm_bwd_one(false, norm, m, h);
}
