/* Several rows of x, each summed in the very order that one row is (`dots`): VECTORS accumulators a
 * sum, added up first to last, then across lanes, then what lies behind the last whole part. Tiles
 * are smaller than those of multiply_panel, because a sum takes more registers.
 *
 * Part of matvec_body.h. */
#ifndef KVF_MATVEC_AS_ONE_H
#define KVF_MATVEC_AS_ONE_H

#include "matvec_blocks.h"

#if defined(__AVX512F__)
enum { ONE_W = 4, ONE_X = 2 }; /* rows of W and of x in a tile: 16 of 32 registers hold sums */
#else
enum { ONE_W = 2, ONE_X = 1 }; /* 8 of 16 */
#endif

/* out[i] = vf_sum(r[i]), in its order: halves, quarters, pairs, two. */
#if defined(__AVX512F__)
VEC_INLINE void as_one_sums(vf r[ONE_X * ONE_W], float *out)
{
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 2, 6, 10, 14, 0, 0, 0, 0, 0, 0, 0, 0);
    MATVEC_UNROLL for (int i = 0; i < 4; i++) /* [2i, 2i + 1]: two halves each */
        r[i] = _mm512_shuffle_f32x4(r[2 * i], r[2 * i + 1], 0x44) +
               _mm512_shuffle_f32x4(r[2 * i], r[2 * i + 1], 0xee);
    MATVEC_UNROLL for (int i = 0; i < 2; i++) /* [4i .. 4i + 3]: a quarter each */
        r[i] = _mm512_shuffle_f32x4(r[2 * i], r[2 * i + 1], 0x88) +
               _mm512_shuffle_f32x4(r[2 * i], r[2 * i + 1], 0xdd);
    const __m512d a = _mm512_castps_pd(r[0]), b = _mm512_castps_pd(r[1]);
    r[0] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b)) +
           _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)); /* in quarter i: i, i, 4 + i, 4 + i */
    r[0] = r[0] + _mm512_permute_ps(r[0], 0xb1);
    _mm256_storeu_ps(out, _mm512_castps512_ps256(_mm512_permutexvar_ps(order, r[0])));
}
#else
VEC_INLINE void as_one_sums(vf r[ONE_X * ONE_W], float *out)
{
    for (int i = 0; i < ONE_X * ONE_W; i++)
        out[i] = vf_sum(r[i]);
}
#endif

/* out [ONE_X][ONE_W] of rows w + i * stride and x[t], over whole parts. */
VEC_INLINE void as_one_tile(const float *w, int64_t stride, const float *const x[ONE_X],
                            int64_t parts, float *out)
{
    vf sum[ONE_X * ONE_W][VECTORS];
    MATVEC_UNROLL for (int i = 0; i < ONE_X * ONE_W; i++)
        MATVEC_UNROLL for (int v = 0; v < VECTORS; v++) sum[i][v] = vf_zero();
    for (int64_t at = 0; at < parts * PART; at += PART)
        MATVEC_UNROLL for (int v = 0; v < VECTORS; v++)
        {
            vf wv[ONE_W];
            MATVEC_UNROLL for (int i = 0; i < ONE_W; i++)
                wv[i] = vf_load(w + i * stride + at + v * VF_LANES);
            MATVEC_UNROLL for (int t = 0; t < ONE_X; t++)
            {
                const vf xt = vf_load(x[t] + at + v * VF_LANES);
                MATVEC_UNROLL for (int i = 0; i < ONE_W; i++)
                    sum[t * ONE_W + i][v] = vf_fma(wv[i], xt, sum[t * ONE_W + i][v]);
            }
        }
    vf whole[ONE_X * ONE_W];
    MATVEC_UNROLL for (int i = 0; i < ONE_X * ONE_W; i++)
    {
        whole[i] = sum[i][0];
        MATVEC_UNROLL for (int v = 1; v < VECTORS; v++) whole[i] = whole[i] + sum[i][v];
    }
    as_one_sums(whole, out);
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
