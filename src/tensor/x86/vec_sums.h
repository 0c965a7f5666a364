/* Operations across the lanes of several vectors: transposing a square of them, and summing
 * each. */
#ifndef KVF_VEC_SUMS_H
#define KVF_VEC_SUMS_H

#include "vec.h"

/* Transposes a square of 32-bit lanes. */
VEC_INLINE void transpose(vf r[VF_LANES])
{
#if defined(__AVX512F__)
    vf t[16], u[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16;
         i += 4) /* u[4g + c]: rows 4g .. 4g + 3, columns 4k + c in 128-bit block k */
        for (int h = 0; h < 2; h++) {
            const __m512d a = _mm512_castps_pd(t[i + h]), b = _mm512_castps_pd(t[i + h + 2]);
            u[i + 2 * h] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
            u[i + 2 * h + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        }
    for (int c = 0; c < 4; c++) {
        const vf even_a = _mm512_shuffle_f32x4(u[c], u[4 + c], 0x88),
                 even_b = _mm512_shuffle_f32x4(u[8 + c], u[12 + c], 0x88);
        const vf odd_a = _mm512_shuffle_f32x4(u[c], u[4 + c], 0xdd),
                 odd_b = _mm512_shuffle_f32x4(u[8 + c], u[12 + c], 0xdd);
        r[c] = _mm512_shuffle_f32x4(even_a, even_b, 0x88);
        r[8 + c] = _mm512_shuffle_f32x4(even_a, even_b, 0xdd);
        r[4 + c] = _mm512_shuffle_f32x4(odd_a, odd_b, 0x88);
        r[12 + c] = _mm512_shuffle_f32x4(odd_a, odd_b, 0xdd);
    }
#else
    vf t[8], u[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4)
        for (int h = 0; h < 2; h++) {
            u[i + 2 * h] = _mm256_shuffle_ps(t[i + h], t[i + h + 2], 0x44);
            u[i + 2 * h + 1] = _mm256_shuffle_ps(t[i + h], t[i + h + 2], 0xee);
        }
    for (int c = 0; c < 4; c++) {
        r[c] = _mm256_permute2f128_ps(u[c], u[4 + c], 0x20);
        r[4 + c] = _mm256_permute2f128_ps(u[c], u[4 + c], 0x31);
    }
#endif
}

/* Lane i of the result is the sum of all lanes of r[i]. */
VEC_INLINE vf lane_sums(vf r[VF_LANES])
{
#if defined(__AVX512F__)
    VEC_UNROLL for (int i = 0; i < 8; i++) /* lanes of two by turns */
        r[i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]) +
               _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    VEC_UNROLL for (int i = 0; i < 4; i++)
    { /* four sums in each quarter */
        const __m512d a = _mm512_castps_pd(r[2 * i]), b = _mm512_castps_pd(r[2 * i + 1]);
        r[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b)) +
               _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
    }
    VEC_UNROLL for (int i = 0; i < 2; i++)
        r[i] = _mm512_shuffle_f32x4(r[2 * i], r[2 * i + 1], 0x88) +
               _mm512_shuffle_f32x4(r[2 * i], r[2 * i + 1], 0xdd);
    return _mm512_shuffle_f32x4(r[0], r[1], 0x88) + _mm512_shuffle_f32x4(r[0], r[1], 0xdd);
#else
    VEC_UNROLL for (int i = 0; i < 4; i++) r[i] = _mm256_hadd_ps(r[2 * i], r[2 * i + 1]);
    VEC_UNROLL for (int i = 0; i < 2; i++) r[i] = _mm256_hadd_ps(r[2 * i], r[2 * i + 1]);
    return _mm256_permute2f128_ps(r[0], r[1], 0x20) + _mm256_permute2f128_ps(r[0], r[1], 0x31);
#endif
}

#endif
