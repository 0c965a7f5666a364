/* The kernels of kernels.h on the vectors of vec.h; compiled once per instruction set by
 * ops_<level>.c.
 *
 * Each kernel is a `_at` step on up to VF_LANES elements, a loop over a row or block, and a
 * parallel loop over those. `half` (activations are bf16) and the activation function are constants
 * in every inlined copy: the choice is made once per row or block, inside the parallel region,
 * where the compiler still sees it. Arithmetic is f32 for both types; sums go to several partial
 * vectors in an order that depends on the row length alone. */
#ifndef OPS_LEVEL
#error "ops_body.h is included by ops_<level>.c"
#endif

#include "kernels_int.h"
#include "vec.h"

#include <math.h>

enum {
    BLOCK = 4096,  /* elements of an elementwise block: both types fit the first cache */
    SERIAL = 32768 /* less work than this is done before other threads have woken up */
};

/* ---- activations ----------------------------------------------------------------------------- */

VEC_INLINE vf f32_load(const float *p, int64_t n)
{
    return n == VF_LANES ? vf_load(p) : vf_load_n(p, n);
}

VEC_INLINE void f32_store(float *p, vf v, int64_t n)
{
    if (n == VF_LANES)
        vf_store(p, v);
    else
        vf_store_n(p, v, n);
}

VEC_INLINE vf act_load(bool half, const void *p, int64_t i, int64_t n)
{
    if (!half) return f32_load((const float *)p + i, n);
    const uint16_t *from = (const uint16_t *)p + i;
    return n == VF_LANES ? vf_load_bf16(from) : vf_load_bf16_n(from, n);
}

VEC_INLINE void act_store(bool half, void *p, int64_t i, vf v, int64_t n)
{
    if (!half)
        f32_store((float *)p + i, v, n);
    else if (n == VF_LANES)
        vf_store_bf16((uint16_t *)p + i, v);
    else
        vf_store_bf16_n((uint16_t *)p + i, v, n);
}

/* Row `row` of act [, width]. */
VEC_INLINE const void *act_row(bool half, const void *p, int64_t row, int64_t width)
{
    return (const char *)p + row * width * (half ? 2 : 4);
}

VEC_INLINE void *act_row_mut(bool half, void *p, int64_t row, int64_t width)
{
    return (char *)p + row * width * (half ? 2 : 4);
}

/* step(i, n) over [from, to): whole vectors, then the tail with n < VF_LANES. */
#define FOR_LANES(i, from, to, step)                                                               \
    do {                                                                                           \
        int64_t i = (from);                                                                        \
        for (; i + VF_LANES <= (to); i += VF_LANES)                                                \
            step(i, VF_LANES);                                                                     \
        if (i < (to)) step(i, (to)-i);                                                             \
    } while (0)

/* ---- norms ----------------------------------------------------------------------------------- */

/* x, or (x - mean)^2, of lanes i .. i + n - 1; 0 in the others. */
VEC_INLINE vf moment_at(const float *x, int64_t i, int64_t n, vf mean, bool square)
{
    vf v = f32_load(x + i, n);
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

VEC_INLINE float norm_fwd_row(bool half, void *xhat, const float *x, int64_t C, bool rms, float eps)
{
    float mean = rms ? 0.0f : row_moment(x, C, 0.0f, false) / (float)C;
    float rstd = 1.0f / sqrtf(row_moment(x, C, mean, true) / (float)C + eps);
    vf about = vf_set(mean), by = vf_set(rstd);
#define STEP(i, n) act_store(half, xhat, i, (f32_load(x + i, n) - about) * by, n)
    FOR_LANES(i, 0, C, STEP);
#undef STEP
    return rstd;
}

static void norm_fwd(kvf__dtype act, void *xhat, float *rstd, const float *x, int64_t M, int64_t C,
                     bool rms, float eps)
{
    bool half = act == KVF__BF16;
#pragma omp parallel for schedule(static) if (M * C > SERIAL)
    for (int64_t m = 0; m < M; m++) {
        void *to = act_row_mut(half, xhat, m, C);
        const float *from = x + m * C;
        rstd[m] = half ? norm_fwd_row(true, to, from, C, rms, eps)
                       : norm_fwd_row(false, to, from, C, rms, eps);
    }
}

/* dx += (d - mean(d) - xhat mean(d xhat)) rstd; mean(d) is absent from rms. */
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
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        vf dn = act_load(half, d, i, n);                                                           \
        sum += dn;                                                                                 \
        dot = vf_fma(dn, act_load(half, xhat, i, n), dot);                                         \
    } while (0)
    FOR_LANES(j, i, C, STEP);
#undef STEP

    vf mean = vf_set(rms ? 0.0f : vf_sum(sum + sum2) / (float)C);
    vf slope = vf_set(vf_sum(dot + dot2) / (float)C), by = vf_set(rstd);
#define STEP(j, n)                                                                                 \
    do {                                                                                           \
        vf rest = vf_fnma(act_load(half, xhat, j, n), slope, act_load(half, d, j, n) - mean);      \
        vf total = vf_fma(rest, by, f32_load(dx + j, n));                                          \
        f32_store(dx + j, total, n);                                                               \
        if (dx_act) act_store(half, dx_act, j, total, n);                                          \
    } while (0)
    FOR_LANES(j, 0, C, STEP);
#undef STEP
}

static void norm_bwd(kvf__dtype act, float *dx, void *dx_act, const void *dxhat, const void *xhat,
                     const float *rstd, int64_t M, int64_t C, bool rms)
{
    bool half = act == KVF__BF16;
#pragma omp parallel for schedule(static) if (M * C > SERIAL)
    for (int64_t m = 0; m < M; m++) {
        void *also = dx_act ? act_row_mut(half, dx_act, m, C) : NULL;
        const void *d = act_row(half, dxhat, m, C), *h = act_row(half, xhat, m, C);
        if (half)
            norm_bwd_row(true, dx + m * C, also, d, h, rstd[m], C, rms);
        else
            norm_bwd_row(false, dx + m * C, also, d, h, rstd[m], C, rms);
    }
}

#include "norm_body.h"

/* ---- activation functions -------------------------------------------------------------------- */

typedef struct {
    vf value, slope; /* fn(x), fn'(x) */
} fn_pair;

/* x sigmoid(z) for a z(x) with derivative dz. e is held below overflow: there the result is 0 to
 * any precision. */
VEC_INLINE fn_pair gated_by_sigmoid(vf x, vf z, vf dz)
{
    vf e = vf_exp(vf_min(vf_set(80.0f), -z));
    vf s = vf_rcp(e + vf_set(1.0f)); /* sigmoid(z); 1 - s = e s, without cancellation */
    return (fn_pair){x * s, vf_fma(x * dz, (e * s) * s, s)};
}

/* x Phi(x), with Phi(-a sqrt 2) = erfc(a) / 2 and erfc(a) = exp(-a^2) q(1 / (1 + 0.4 a)): q through
 * the Chebyshev points of 0 <= a <= 9, relative error 5e-9 before rounding. */
VEC_INLINE fn_pair gelu_erf(vf x)
{
    static const float q_coefficients[] = {
        0.2728741589f,  -0.6893631717f, 0.8270538494f, -0.5458903281f, 0.4347115068f,
        0.06165889057f, 0.2337866927f,  0.2216327172f, 0.2260412295f,  -1.464108348e-5f};
    vf a = vf_min(vf_set(10.0f), vf_abs(x) * vf_set(0.7071067812f));
    vf e = vf_exp(x * x * vf_set(-0.5f));
    vf t = vf_rcp(vf_fma(a, vf_set(0.4f), vf_set(1.0f)));
    vf q = vf_set(-0.04249090447f);
    for (int k = 0; k < 10; k++)
        q = vf_fma(q, t, vf_set(q_coefficients[k]));
    vf tail = vf_set(0.5f) * e * q;
    vf phi = vf_if_negative(x, tail, vf_set(1.0f) - tail);
    return (fn_pair){x * phi, vf_fma(x * e, vf_set(0.3989422804f), phi)};
}

/* 1 - 2 / (e^2x + 1), held below overflow: there it is 1. */
VEC_INLINE fn_pair hyperbolic_tangent(vf x)
{
    vf rest = vf_rcp(vf_exp(vf_min(vf_set(80.0f), x + x)) + vf_set(1.0f));
    vf twice = rest + rest;
    return (fn_pair){vf_set(1.0f) - twice, twice * (vf_set(2.0f) - twice)};
}

VEC_INLINE fn_pair apply(kvf__act_fn fn, vf x)
{
    const vf one = vf_set(1.0f);
    switch (fn) {
    case KVF__GELU_TANH: {
        /* (1 + tanh(z / 2)) / 2 = sigmoid(z), z = 2 sqrt(2 / pi) (x + 0.044715 x^3) */
        vf c1 = vf_set(1.5957691216f), c3 = vf_set(0.0713548163f), x2 = x * x;
        return gated_by_sigmoid(x, x * vf_fma(x2, c3, c1), vf_fma(x2, vf_set(0.2140644488f), c1));
    }
    case KVF__GELU_ERF:
        return gelu_erf(x);
    case KVF__SILU:
        return gated_by_sigmoid(x, x, one);
    case KVF__QUICK_GELU:
        return gated_by_sigmoid(x, x * vf_set(1.702f), vf_set(1.702f));
    case KVF__RELU:
        return (fn_pair){vf_max(vf_zero(), x), vf_if_negative(-x, one, vf_zero())};
    case KVF__TANH:
        return hyperbolic_tangent(x);
    }
    return (fn_pair){x, one};
}

VEC_INLINE void act_fwd_block(bool half, kvf__act_fn fn, void *h, void *g, int64_t from, int64_t to)
{
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        fn_pair f = apply(fn, act_load(half, h, i, n));                                            \
        act_store(half, g, i, f.value, n);                                                         \
        act_store(half, h, i, f.slope, n);                                                         \
    } while (0)
    FOR_LANES(i, from, to, STEP);
#undef STEP
}

VEC_INLINE void glu_fwd_block(bool half, kvf__act_fn fn, void *g, void *u, void *a, int64_t from,
                              int64_t to)
{
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        vf un = act_load(half, u, i, n);                                                           \
        fn_pair f = apply(fn, act_load(half, g, i, n));                                            \
        act_store(half, a, i, f.value *un, n);                                                     \
        act_store(half, g, i, f.slope *un, n);                                                     \
        act_store(half, u, i, f.value, n);                                                         \
    } while (0)
    FOR_LANES(i, from, to, STEP);
#undef STEP
}

/* One specialised copy of `block` per function and type. */
#define FOR_EACH_FN(fn, half, block, ...)                                                          \
    switch (fn) {                                                                                  \
    case KVF__GELU_TANH:                                                                           \
        half ? block(true, KVF__GELU_TANH, __VA_ARGS__)                                            \
             : block(false, KVF__GELU_TANH, __VA_ARGS__);                                          \
        break;                                                                                     \
    case KVF__GELU_ERF:                                                                            \
        half ? block(true, KVF__GELU_ERF, __VA_ARGS__) : block(false, KVF__GELU_ERF, __VA_ARGS__); \
        break;                                                                                     \
    case KVF__SILU:                                                                                \
        half ? block(true, KVF__SILU, __VA_ARGS__) : block(false, KVF__SILU, __VA_ARGS__);         \
        break;                                                                                     \
    case KVF__RELU:                                                                                \
        half ? block(true, KVF__RELU, __VA_ARGS__) : block(false, KVF__RELU, __VA_ARGS__);         \
        break;                                                                                     \
    case KVF__QUICK_GELU:                                                                          \
        half ? block(true, KVF__QUICK_GELU, __VA_ARGS__)                                           \
             : block(false, KVF__QUICK_GELU, __VA_ARGS__);                                         \
        break;                                                                                     \
    case KVF__TANH:                                                                                \
        half ? block(true, KVF__TANH, __VA_ARGS__) : block(false, KVF__TANH, __VA_ARGS__);         \
        break;                                                                                     \
    }

VEC_INLINE int64_t block_end(int64_t at, int64_t n)
{
    return n - at < BLOCK ? n : at + BLOCK;
}

static void act_fwd(kvf__dtype act, kvf__act_fn fn, void *h, void *g, int64_t n)
{
#pragma omp parallel for schedule(static) if (n > SERIAL)
    for (int64_t at = 0; at < n; at += BLOCK)
        FOR_EACH_FN(fn, act == KVF__BF16, act_fwd_block, h, g, at, block_end(at, n))
}

static void glu_fwd(kvf__dtype act, kvf__act_fn fn, void *g, void *u, void *a, int64_t n)
{
#pragma omp parallel for schedule(static) if (n > SERIAL)
    for (int64_t at = 0; at < n; at += BLOCK)
        FOR_EACH_FN(fn, act == KVF__BF16, glu_fwd_block, g, u, a, at, block_end(at, n))
}

/* ---- products and conversions ---------------------------------------------------------------- */

VEC_INLINE void mul_block(bool half, void *d, const void *by, int64_t from, int64_t to)
{
#define STEP(i, n) act_store(half, d, i, act_load(half, d, i, n) * act_load(half, by, i, n), n)
    FOR_LANES(i, from, to, STEP);
#undef STEP
}

static void mul(kvf__dtype act, void *d, const void *by, int64_t n)
{
#pragma omp parallel for schedule(static) if (n > SERIAL)
    for (int64_t at = 0; at < n; at += BLOCK)
        act == KVF__BF16 ? mul_block(true, d, by, at, block_end(at, n))
                         : mul_block(false, d, by, at, block_end(at, n));
}

/* All of a step is read before any of it is written: dg may be g, du may be u. */
VEC_INLINE void glu_bwd_block(bool half, void *dg, void *du, const void *da, const void *g,
                              const void *u, int64_t from, int64_t to)
{
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        vf d = act_load(half, da, i, n), gn = act_load(half, g, i, n),                             \
           un = act_load(half, u, i, n);                                                           \
        act_store(half, dg, i, d *gn, n);                                                          \
        act_store(half, du, i, d *un, n);                                                          \
    } while (0)
    FOR_LANES(i, from, to, STEP);
#undef STEP
}

static void glu_bwd(kvf__dtype act, void *dg, void *du, const void *da, const void *g,
                    const void *u, int64_t n)
{
#pragma omp parallel for schedule(static) if (n > SERIAL)
    for (int64_t at = 0; at < n; at += BLOCK)
        if (act == KVF__BF16)
            glu_bwd_block(true, dg, du, da, g, u, at, block_end(at, n));
        else
            glu_bwd_block(false, dg, du, da, g, u, at, block_end(at, n));
}

VEC_INLINE void convert_block(bool from_half, bool to_half, void *dst, const void *src,
                              int64_t from, int64_t to)
{
#define STEP(i, n) act_store(to_half, dst, i, act_load(from_half, src, i, n), n)
    FOR_LANES(i, from, to, STEP);
#undef STEP
}

static void from_f32(kvf__dtype act, void *dst, const float *src, int64_t n)
{
#pragma omp parallel for schedule(static) if (n > SERIAL)
    for (int64_t at = 0; at < n; at += BLOCK)
        convert_block(false, act == KVF__BF16, dst, src, at, block_end(at, n));
}

static void to_f32(kvf__dtype act, float *dst, const void *src, int64_t n)
{
#pragma omp parallel for schedule(static) if (n > SERIAL)
    for (int64_t at = 0; at < n; at += BLOCK)
        convert_block(act == KVF__BF16, false, dst, src, at, block_end(at, n));
}

/* ---- rotary positions ------------------------------------------------------------------------ */

/* (a, b) -> (a cos - b sin, b cos + a sin) on the pairs (i, i + R/2) of every head. */
VEC_INLINE void rope_row(bool half, void *row, int64_t heads, int64_t D, int64_t pairs,
                         const float *cos, const float *sin, vf sign)
{
    for (int64_t h = 0; h < heads; h++) {
        void *low = act_row_mut(half, row, h, D), *high = act_row_mut(half, low, 1, pairs);
#define STEP(i, n)                                                                                 \
    do {                                                                                           \
        vf a = act_load(half, low, i, n), b = act_load(half, high, i, n);                          \
        vf c = f32_load(cos + i, n), s = f32_load(sin + i, n) * sign;                              \
        act_store(half, low, i, vf_fnma(b, s, a *c), n);                                           \
        act_store(half, high, i, vf_fma(a, s, b *c), n);                                           \
    } while (0)
        FOR_LANES(i, 0, pairs, STEP);
#undef STEP
    }
}

static void rope(kvf__dtype act, void *x, int64_t M, int64_t ld, int64_t heads, int64_t D,
                 int64_t R, const int32_t *position, const float *cos, const float *sin,
                 bool inverse)
{
    bool half = act == KVF__BF16;
    int64_t pairs = R / 2;
    vf sign = vf_set(inverse ? -1.0f : 1.0f);
#pragma omp parallel for schedule(static) if (M * heads * D > SERIAL)
    for (int64_t m = 0; m < M; m++) {
        const float *c = cos + position[m] * pairs, *s = sin + position[m] * pairs;
        void *row = act_row_mut(half, x, m, ld);
        if (half)
            rope_row(true, row, heads, D, pairs, c, s, sign);
        else
            rope_row(false, row, heads, D, pairs, c, s, sign);
    }
}

/* ---- cross-entropy --------------------------------------------------------------------------- */

VEC_INLINE float row_max(const float *logits, int64_t n)
{
    vf a = vf_set(-INFINITY), b = a;
    int64_t i = 0;
    for (; i + 2 * VF_LANES <= n; i += 2 * VF_LANES) {
        a = vf_max(a, vf_load(logits + i));
        b = vf_max(b, vf_load(logits + i + VF_LANES));
    }
#define STEP(j, lanes) a = vf_max(a, vf_keep_n(f32_load(logits + j, lanes), lanes, a))
    FOR_LANES(j, i, n, STEP);
#undef STEP
    return vf_hmax(vf_max(a, b));
}

/* e = exp(logits - max) for the first `valid` columns, 0 up to width; returns their sum. */
VEC_INLINE float exp_row(bool half, void *e, const float *logits, float max, int64_t valid,
                         int64_t width)
{
    vf top = vf_set(max), sum = vf_zero(), sum2 = sum;
    int64_t i = 0;
    for (; i + 2 * VF_LANES <= valid; i += 2 * VF_LANES) {
        vf e1 = vf_exp(vf_load(logits + i) - top),
           e2 = vf_exp(vf_load(logits + i + VF_LANES) - top);
        sum += e1;
        sum2 += e2;
        if (!e) continue;
        act_store(half, e, i, e1, VF_LANES);
        act_store(half, e, i + VF_LANES, e2, VF_LANES);
    }
#define STEP(j, n)                                                                                 \
    do {                                                                                           \
        vf en = vf_keep_n(vf_exp(f32_load(logits + j, n) - top), n, vf_zero());                    \
        sum += en;                                                                                 \
        if (e) act_store(half, e, j, en, n);                                                       \
    } while (0)
    FOR_LANES(j, i, valid, STEP);
#undef STEP
#define STEP(j, n) act_store(half, e, j, vf_zero(), n)
    if (e) FOR_LANES(j, valid, width, STEP);
#undef STEP
    return vf_sum(sum + sum2);
}

/* acc *= by; by = 0 erases whatever is there. */
VEC_INLINE void rescale_row(float *acc, int64_t C, float by)
{
    vf factor = vf_set(by);
    if (by == 0.0f) {
        memset(acc, 0, (size_t)C * sizeof *acc);
        return;
    }
#define STEP(i, n) f32_store(acc + i, f32_load(acc + i, n) * factor, n)
    FOR_LANES(i, 0, C, STEP);
#undef STEP
}

VEC_INLINE void ce_row(bool half, const kvf__ce_chunk *chunk, int64_t r, int64_t valid)
{
    const float *logits = chunk->logits + r * chunk->width;
    void *e = chunk->e ? act_row_mut(half, chunk->e, r, chunk->width) : NULL;
    float old = chunk->max[r], max = fmaxf(old, row_max(logits, valid));

    if (max > old) {
        float by = expf(old - max); /* 0 in the first chunk */
        chunk->sum[r] *= by;
        chunk->max[r] = max;
        if (chunk->acc) rescale_row(chunk->acc + r * chunk->C, chunk->C, by);
    }
    int32_t target = chunk->target[r];
    if (target >= 0 && target < chunk->width) chunk->target_logit[r] = logits[target];
    chunk->sum[r] += exp_row(half, e, logits, max, valid, chunk->width);
}

static void ce(kvf__dtype act, const kvf__ce_chunk *chunk)
{
    int64_t valid = chunk->valid < chunk->width ? chunk->valid : chunk->width;
    if (valid < 0) valid = 0;
#pragma omp parallel for schedule(static) if (chunk->rows * chunk->width > SERIAL)
    for (int64_t r = 0; r < chunk->rows; r++)
        act == KVF__BF16 ? ce_row(true, chunk, r, valid) : ce_row(false, chunk, r, valid);
}

/* ---- the table ------------------------------------------------------------------------------- */

#define OPS_TABLE_(level)                                                                          \
    const kvf__kernels kvf__kernels_##level = {                                                    \
        .name = #level,                                                                            \
        .norm_fwd = norm_fwd,                                                                      \
        .norm_bwd = norm_bwd,                                                                      \
        .whole_norm_fwd = whole_norm_fwd,                                                          \
        .whole_norm_bwd = whole_norm_bwd,                                                          \
        .head_norm_fwd = head_norm_fwd,                                                            \
        .head_norm_bwd = head_norm_bwd,                                                            \
        .act_fwd = act_fwd,                                                                        \
        .mul = mul,                                                                                \
        .glu_fwd = glu_fwd,                                                                        \
        .glu_bwd = glu_bwd,                                                                        \
        .rope = rope,                                                                              \
        .ce = ce,                                                                                  \
        .from_f32 = from_f32,                                                                      \
        .to_f32 = to_f32,                                                                          \
        KVF__ATTN_ENTRIES(level),                                                                  \
    }
#define OPS_TABLE(level) OPS_TABLE_(level)

OPS_TABLE(OPS_LEVEL);
