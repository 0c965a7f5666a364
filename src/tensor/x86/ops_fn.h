/* Activation functions with their derivatives, plain and gated. Part of ops_vec.c. */
#ifndef KVF_OPS_FN_H
#define KVF_OPS_FN_H

#include "ops_row.h"
#include "vec_exp.h"

typedef struct {
    vf value, slope; /* fn(x), fn'(x) */
} fn_pair;

/* Returns x sigmoid(z) and its derivative, for a z(x) with derivative dz. e is clamped below
 * overflow, where the result is 0 to any precision. */
VEC_INLINE fn_pair gated_by_sigmoid(vf x, vf z, vf dz)
{
    vf e = vf_exp(vf_min(vf_set(80.0f), -z));
    vf s = vf_rcp(e + vf_set(1.0f)); /* sigmoid(z); 1 - s = e s, without cancellation */
    return (fn_pair){x * s, vf_fma(x * dz, (e * s) * s, s)};
}

/* Computes x Phi(x), with Phi(-a sqrt 2) = erfc(a) / 2 and erfc(a) = exp(-a^2) q(1 / (1 + 0.4 a)).
 * The polynomial q goes through the Chebyshev points of 0 <= a <= 9; its relative error is 5e-9
 * before rounding. */
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

/* Computes 1 - 2 / (e^2x + 1), with e^2x clamped below overflow, where the result is 1. */
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
    FOR_LANES(i, n, from, to, {
        fn_pair f = apply(fn, act_load(half, h, i, n));
        act_store(half, g, i, f.value, n);
        act_store(half, h, i, f.slope, n);
    });
}

VEC_INLINE void glu_fwd_block(bool half, kvf__act_fn fn, void *g, void *u, void *a, int64_t from,
                              int64_t to)
{
    FOR_LANES(i, n, from, to, {
        vf un = act_load(half, u, i, n);
        fn_pair f = apply(fn, act_load(half, g, i, n));
        act_store(half, a, i, f.value * un, n);
        act_store(half, g, i, f.slope * un, n);
        act_store(half, u, i, f.value, n);
    });
}

/* One specialised copy of `block` per function and type. */
#define FN_CASE(fn, act, block, ...)                                                               \
    case fn:                                                                                       \
        BY_TYPE(act, block, fn, __VA_ARGS__);                                                      \
        break;
#define BY_FN(fn, act, ...)                                                                        \
    switch (fn) {                                                                                  \
        FN_CASE(KVF__GELU_TANH, act, __VA_ARGS__)                                                  \
        FN_CASE(KVF__GELU_ERF, act, __VA_ARGS__)                                                   \
        FN_CASE(KVF__SILU, act, __VA_ARGS__)                                                       \
        FN_CASE(KVF__RELU, act, __VA_ARGS__)                                                       \
        FN_CASE(KVF__QUICK_GELU, act, __VA_ARGS__)                                                 \
        FN_CASE(KVF__TANH, act, __VA_ARGS__)                                                       \
    }

static void act_fwd(kvf__dtype act, kvf__act_fn fn, void *h, void *g, int64_t n)
{
#pragma omp parallel for schedule(static) if (n > SERIAL)
    for (int64_t at = 0; at < n; at += OPS_BLOCK)
        BY_FN(fn, act, act_fwd_block, h, g, at, block_end(at, n))
}

static void glu_fwd(kvf__dtype act, kvf__act_fn fn, void *g, void *u, void *a, int64_t n)
{
#pragma omp parallel for schedule(static) if (n > SERIAL)
    for (int64_t at = 0; at < n; at += OPS_BLOCK)
        BY_FN(fn, act, glu_fwd_block, g, u, a, at, block_end(at, n))
}

#endif
