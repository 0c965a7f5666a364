/* The kernels of kernels.h on the vectors of vec.h; compiled once per instruction set, KVF_LEVEL.
 *
 * Each kernel is a step on up to VF_LANES elements, a loop over a row or block, and a parallel loop
 * over those. `half` (activations are bf16) and the activation function are constants in every
 * inlined copy. Arithmetic is f32 for both types. */
#include "kernels_int.h"
#include "level.h"
#include "ops_ce.h"
#include "ops_fn.h"
#include "ops_head_norm.h"
#include "ops_int8.h"
#include "ops_norm.h"

/* ---- products and conversions ---------------------------------------------------------------- */

VEC_INLINE void mul_block(bool half, void *d, const void *by, int64_t from, int64_t to)
{
    FOR_LANES(i, n, from, to,
              act_store(half, d, i, act_load(half, d, i, n) * act_load(half, by, i, n), n););
}

static void mul(kvf__dtype act, void *d, const void *by, int64_t n)
{
#pragma omp parallel for schedule(static) if (n > SERIAL)
    for (int64_t at = 0; at < n; at += OPS_BLOCK)
        BY_TYPE(act, mul_block, d, by, at, block_end(at, n));
}

/* Reads all of a step before writing: dg may alias g, du may alias u. */
VEC_INLINE void glu_bwd_block(bool half, void *dg, void *du, const void *da, const void *g,
                              const void *u, int64_t from, int64_t to)
{
    FOR_LANES(i, n, from, to, {
        vf d = act_load(half, da, i, n);
        vf gn = act_load(half, g, i, n), un = act_load(half, u, i, n);
        act_store(half, dg, i, d * gn, n);
        act_store(half, du, i, d * un, n);
    });
}

static void glu_bwd(kvf__dtype act, void *dg, void *du, const void *da, const void *g,
                    const void *u, int64_t n)
{
#pragma omp parallel for schedule(static) if (n > SERIAL)
    for (int64_t at = 0; at < n; at += OPS_BLOCK)
        BY_TYPE(act, glu_bwd_block, dg, du, da, g, u, at, block_end(at, n));
}

VEC_INLINE void convert_block(bool from_half, bool to_half, void *dst, const void *src,
                              int64_t from, int64_t to)
{
    FOR_LANES(i, n, from, to, act_store(to_half, dst, i, act_load(from_half, src, i, n), n););
}

static void from_f32(kvf__dtype act, void *dst, const float *src, int64_t n)
{
#pragma omp parallel for schedule(static) if (n > SERIAL)
    for (int64_t at = 0; at < n; at += OPS_BLOCK)
        convert_block(false, act == KVF__BF16, dst, src, at, block_end(at, n));
}

static void to_f32(kvf__dtype act, float *dst, const void *src, int64_t n)
{
#pragma omp parallel for schedule(static) if (n > SERIAL)
    for (int64_t at = 0; at < n; at += OPS_BLOCK)
        convert_block(act == KVF__BF16, false, dst, src, at, block_end(at, n));
}

/* ---- rotary positions ------------------------------------------------------------------------ */

/* Rotates (a, b) -> (a cos - b sin, b cos + a sin) on the pairs (i, i + R/2) of every head. */
VEC_INLINE void rope_row(bool half, void *row, int64_t heads, int64_t D, int64_t pairs,
                         const float *cos, const float *sin, vf sign)
{
    for (int64_t h = 0; h < heads; h++) {
        void *low = act_row(half, row, h, D), *high = act_row(half, low, 1, pairs);
        FOR_LANES(i, n, 0, pairs, {
            vf a = act_load(half, low, i, n), b = act_load(half, high, i, n);
            vf c = vf_load_upto(cos + i, n), s = vf_load_upto(sin + i, n) * sign;
            act_store(half, low, i, vf_fnma(b, s, a * c), n);
            act_store(half, high, i, vf_fma(a, s, b * c), n);
        });
    }
}

static void rope(kvf__dtype act, void *x, int64_t M, int64_t ld, int64_t heads, int64_t D,
                 int64_t R, const int32_t *position, const float *cos, const float *sin,
                 bool inverse)
{
    int64_t pairs = R / 2;
    vf sign = vf_set(inverse ? -1.0f : 1.0f);
#pragma omp parallel for schedule(static) if (M * heads * D > SERIAL)
    for (int64_t m = 0; m < M; m++)
        BY_TYPE(act, rope_row, act_row(act == KVF__BF16, x, m, ld), heads, D, pairs,
                cos + position[m] * pairs, sin + position[m] * pairs, sign);
}

const kvf__kernels KVF__LEVEL(kvf__kernels_) = KVF__KERNELS_TABLE(KVF__LEVEL_NAME, KVF__LEVEL);
