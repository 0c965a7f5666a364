/* Several rows of x, each summed in the very order that one row is (`dots`): VECTORS accumulators a
 * sum, added up first to last, then across lanes, then the rest after the last whole part. Tiles
 * are smaller than those of multiply_panel, because a sum takes more registers.
 *
 * Part of matvec_vec.c. */
#ifndef KVF_MATVEC_AS_ONE_H
#define KVF_MATVEC_AS_ONE_H

#include "matvec_blocks.h"
#include "vec_sums.h"

#if defined(__AVX512F__)
enum { ONE_W = 4, ONE_X = 2 }; /* rows of W and of x in a tile: 16 of 32 registers hold sums */
#else
enum { ONE_W = 2, ONE_X = 1 }; /* 8 of 16 */
#endif

/* out [ONE_X][ONE_W] of rows w + i * stride and x[t], over whole parts. */
VEC_INLINE void as_one_tile(const float *w, int64_t stride, const float *const x[ONE_X],
                            int64_t parts, float *out)
{
    vf sum[ONE_X * ONE_W][VECTORS];
    VEC_UNROLL for (int i = 0; i < ONE_X * ONE_W; i++) VEC_UNROLL for (int v = 0; v < VECTORS; v++)
        sum[i][v] = vf_zero();
    for (int64_t at = 0; at < parts * PART; at += PART)
        VEC_UNROLL for (int v = 0; v < VECTORS; v++)
        {
            vf wv[ONE_W];
            VEC_UNROLL for (int i = 0; i < ONE_W; i++)
                wv[i] = vf_load(w + i * stride + at + v * VF_LANES);
            VEC_UNROLL for (int t = 0; t < ONE_X; t++)
            {
                const vf xt = vf_load(x[t] + at + v * VF_LANES);
                VEC_UNROLL for (int i = 0; i < ONE_W; i++)
                    sum[t * ONE_W + i][v] = vf_fma(wv[i], xt, sum[t * ONE_W + i][v]);
            }
        }
    vf whole[ONE_X * ONE_W];
    VEC_UNROLL for (int i = 0; i < ONE_X * ONE_W; i++)
    {
        whole[i] = sum[i][0];
        VEC_UNROLL for (int v = 1; v < VECTORS; v++) whole[i] = whole[i] + sum[i][v];
    }
    sum_each(whole, out);
}

/* y at row m and columns first .. of W, whose whole parts add up to totals; w: their rows. */
VEC_INLINE void as_one_put(const kvf__matvec_call *call, const float *w, int64_t m, int64_t first,
                           int64_t rows, const float *totals)
{
    const int64_t stride = kvf__matvec_padded(call->K), whole = call->K / PART * PART;
    const float *x = call->x + m * call->ldx;
    float *y = call->y + m * call->ldy + first;
    for (int64_t i = 0; i < rows; i++) {
        float total = totals[i];
        for (int64_t k = whole; k < call->K; k++)
            total += w[i * stride + k] * x[k];
        y[i] = call->add ? y[i] + total : total;
    }
}

/* All rows of x with a panel of f32 rows of W, of which `rows` exist: columns first .. of y. */
static void as_one_panel(const kvf__matvec_call *call, const float *w, int64_t first, int64_t rows)
{
    const int64_t stride = kvf__matvec_padded(call->K), parts = call->K / PART;
    float out[ONE_X * ONE_W];
    for (int64_t m = 0; m < call->M; m += ONE_X) {
        const float *x[ONE_X];
        for (int t = 0; t < ONE_X; t++)
            x[t] = call->x + (m + t < call->M ? m + t : m) * call->ldx;
        for (int64_t at = 0; at < rows; at += ONE_W) {
            as_one_tile(w + at * stride, stride, x, parts, out);
            const int64_t left = rows - at < ONE_W ? rows - at : ONE_W;
            for (int t = 0; t < ONE_X && m + t < call->M; t++)
                as_one_put(call, w + at * stride, m + t, first + at, left, out + t * ONE_W);
        }
    }
}

#endif
