/* Rows of a file's matrix as vectors of f32, 32 elements ("a part") at a time: the values of
 * dequant.c and dtype.c bit for bit. Where those round a product and a sum, the products here are
 * exact (scales have 11 to 17 bits, integers 8 at most), so that fusing them changes nothing.
 *
 * Layouts: ggml-common.h, ggml-quants.c. The type is a constant wherever this is inlined. */
#ifndef KVF_MATVEC_BLOCKS_H
#define KVF_MATVEC_BLOCKS_H

#include "matvec_int.h"
#include "vec.h"

enum { PART = KVF__MATVEC_PART, VECTORS = PART / VF_LANES, BIG_PARTS = 8 };

#if defined(__AVX512F__)

typedef __m512i vi;

VEC_INLINE vi vi_set(int32_t x)
{
    return _mm512_set1_epi32(x);
}

VEC_INLINE vi vi_lanes(void) /* 0, 1, 2, ... */
{
    return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

VEC_INLINE vi vi_bytes(const uint8_t *p)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
}

VEC_INLINE vi vi_signed_bytes(const uint8_t *p)
{
    return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p));
}

VEC_INLINE vi vi_and(vi a, vi b)
{
    return _mm512_and_si512(a, b);
}

VEC_INLINE vi vi_or(vi a, vi b)
{
    return _mm512_or_si512(a, b);
}

VEC_INLINE vi vi_right(vi v, int bits)
{
    return _mm512_srl_epi32(v, _mm_cvtsi32_si128(bits));
}

VEC_INLINE vi vi_right_by(vi v, vi bits)
{
    return _mm512_srlv_epi32(v, bits);
}

VEC_INLINE vi vi_left(vi v, int bits)
{
    return _mm512_sll_epi32(v, _mm_cvtsi32_si128(bits));
}

VEC_INLINE vf vi_to_f32(vi v)
{
    return _mm512_cvtepi32_ps(v);
}

VEC_INLINE vf vf_load_f16(const uint8_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

/* Two f16 side by side, each in all lanes. */
VEC_INLINE void load_two_f16(const uint8_t *p, vf *a, vf *b)
{
    int32_t both;
    memcpy(&both, p, sizeof both);
    vf v = _mm512_cvtph_ps(_mm256_set1_epi32(both));
    *a = _mm512_moveldup_ps(v);
    *b = _mm512_movehdup_ps(v);
}

VEC_INLINE vf load_one_f16(const uint8_t *p)
{
    int16_t half;
    memcpy(&half, p, sizeof half);
    return _mm512_cvtph_ps(_mm256_set1_epi16(half));
}

#else

typedef __m256i vi;

VEC_INLINE vi vi_set(int32_t x)
{
    return _mm256_set1_epi32(x);
}

VEC_INLINE vi vi_lanes(void) /* 0, 1, 2, ... */
{
    return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
}

VEC_INLINE vi vi_bytes(const uint8_t *p)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
}

VEC_INLINE vi vi_signed_bytes(const uint8_t *p)
{
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p));
}

VEC_INLINE vi vi_and(vi a, vi b)
{
    return _mm256_and_si256(a, b);
}

VEC_INLINE vi vi_or(vi a, vi b)
{
    return _mm256_or_si256(a, b);
}

VEC_INLINE vi vi_right(vi v, int bits)
{
    return _mm256_srl_epi32(v, _mm_cvtsi32_si128(bits));
}

VEC_INLINE vi vi_right_by(vi v, vi bits)
{
    return _mm256_srlv_epi32(v, bits);
}

VEC_INLINE vi vi_left(vi v, int bits)
{
    return _mm256_sll_epi32(v, _mm_cvtsi32_si128(bits));
}

VEC_INLINE vf vi_to_f32(vi v)
{
    return _mm256_cvtepi32_ps(v);
}

VEC_INLINE vf vf_load_f16(const uint8_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

/* Two f16 side by side, each in all lanes. */
VEC_INLINE void load_two_f16(const uint8_t *p, vf *a, vf *b)
{
    int32_t both;
    memcpy(&both, p, sizeof both);
    vf v = _mm256_cvtph_ps(_mm_set1_epi32(both));
    *a = _mm256_moveldup_ps(v);
    *b = _mm256_movehdup_ps(v);
}

VEC_INLINE vf load_one_f16(const uint8_t *p)
{
    int16_t half;
    memcpy(&half, p, sizeof half);
    return _mm256_cvtph_ps(_mm_set1_epi16(half));
}

#endif

/* The 4-bit integers of vector v of a part whose 16 bytes hold elements 0..15 in their low halves
 * and 16..31 in the high ones. */
VEC_INLINE vi nibbles(const uint8_t *q, int v)
{
    const int at = v * VF_LANES;
    vi bytes = vi_bytes(q + at % 16);
    return at < 16 ? vi_and(bytes, vi_set(15)) : vi_right(bytes, 4);
}

/* scale * n + offset for the 4-bit n of a part. AVX-512 looks the 16 possible values up, and its
 * look-up ignores the bits above the fourth. */
VEC_INLINE void q4_part(const uint8_t *q, vf scale, vf offset, vf out[VECTORS])
{
#if defined(__AVX512F__)
    vf values = vf_fma(vi_to_f32(vi_lanes()), scale, offset);
    vi bytes = vi_bytes(q);
    out[0] = _mm512_permutexvar_ps(bytes, values);
    out[1] = _mm512_permutexvar_ps(_mm512_srli_epi32(bytes, 4), values);
#else
    for (int v = 0; v < VECTORS; v++)
        out[v] = vf_fma(vi_to_f32(nibbles(q, v)), scale, offset);
#endif
}

/* As Q4, and bit j of qh is the fifth bit of element j. */
VEC_INLINE void q5_part(const uint8_t *qh, const uint8_t *q, vf scale, vf offset, vf out[VECTORS])
{
    int32_t bits;
    memcpy(&bits, qh, sizeof bits);
    for (int v = 0; v < VECTORS; v++) {
        vi high = vi_right_by(vi_set((int32_t)((uint32_t)bits >> (v * VF_LANES))), vi_lanes());
        high = vi_left(vi_and(high, vi_set(1)), 4);
        out[v] = vf_fma(vi_to_f32(vi_or(nibbles(q, v), high)), scale, offset);
    }
}

VEC_INLINE void q8_part(const uint8_t *q, vf scale, vf out[VECTORS])
{
    for (int v = 0; v < VECTORS; v++)
        out[v] = vi_to_f32(vi_signed_bytes(q + v * VF_LANES)) * scale;
}

/* Scale and minimum of part i of a Q4_K or Q5_K block; see k_scales in dequant.c. */
VEC_INLINE void k_part_scale(const uint8_t *block, int i, vf *scale, vf *minimum)
{
    const uint8_t *s = block + 4;
    int a = i < 4 ? s[i] & 63 : (s[i + 4] & 15) | (s[i - 4] >> 6) << 4;
    int b = i < 4 ? s[i + 4] & 63 : (s[i + 4] >> 4) | (s[i] >> 6) << 4;
    load_two_f16(block, scale, minimum);
    *scale *= vf_set((float)a);
    *minimum *= vf_set((float)b);
}

/* Part i of a Q4_K block: the low or high halves of 32 bytes; Q5_K has bit i of qh on top. */
VEC_INLINE void k_part(const uint8_t *block, bool five, int i, vf out[VECTORS])
{
    const uint8_t *qh = block + 16, *q = block + (five ? 48 : 16) + i / 2 * 32;
    vf scale, minimum;
    k_part_scale(block, i, &scale, &minimum);
    for (int v = 0; v < VECTORS; v++) {
        vi n = vi_and(vi_right(vi_bytes(q + v * VF_LANES), i % 2 * 4), vi_set(15));
        if (five) {
            vi high = vi_and(vi_right(vi_bytes(qh + v * VF_LANES), i), vi_set(1));
            n = vi_or(n, vi_left(high, 4));
        }
        out[v] = vf_fma(vi_to_f32(n), scale, -minimum);
    }
}

/* Part i of a Q6_K block: four bits from ql, two from qh, a scale for every 16 elements. */
VEC_INLINE void q6_k_part(const uint8_t *block, int i, vf out[VECTORS])
{
    const int half = i / 4, in = i % 4;
    const uint8_t *ql = block + 64 * half + in % 2 * 32, *qh = block + 128 + 32 * half;
    const int8_t *s = (const int8_t *)block + 192 + 8 * half + 2 * in;
    vf d = load_one_f16(block + 208);
    for (int v = 0; v < VECTORS; v++) {
        const int at = v * VF_LANES;
        vi low = vi_and(vi_right(vi_bytes(ql + at), in / 2 * 4), vi_set(15));
        vi high = vi_and(vi_right(vi_bytes(qh + at), in * 2), vi_set(3));
        vf n = vi_to_f32(vi_or(low, vi_left(high, 4))) - vf_set(32.0f);
        out[v] = n * (d * vf_set((float)s[at / 16]));
    }
}

/* Part i of a row of a plain type. */
VEC_INLINE void plain_part(kvf__dtype dtype, const uint8_t *row, int64_t i, vf out[VECTORS])
{
    for (int v = 0; v < VECTORS; v++) {
        const int64_t at = i * PART + v * VF_LANES;
        if (dtype == KVF__F32) out[v] = vf_load((const float *)(const void *)(row + 4 * at));
        if (dtype == KVF__F16) out[v] = vf_load_f16(row + 2 * at);
        if (dtype == KVF__BF16)
            out[v] = vf_load_bf16((const uint16_t *)(const void *)(row + 2 * at));
    }
}

/* Part i of a row, of which PART elements exist. */
VEC_INLINE void row_part(kvf__dtype dtype, const uint8_t *row, int64_t i, vf out[VECTORS])
{
    const uint8_t *big = row + i / BIG_PARTS *
                                   (dtype == KVF__Q4_K   ? 144
                                    : dtype == KVF__Q5_K ? 176
                                                         : 210);
    vf scale, offset;
    switch (dtype) {
    case KVF__Q4_0:
        scale = load_one_f16(row + 18 * i);
        q4_part(row + 18 * i + 2, scale, scale * vf_set(-8.0f), out);
        break;
    case KVF__Q4_1:
        load_two_f16(row + 20 * i, &scale, &offset);
        q4_part(row + 20 * i + 4, scale, offset, out);
        break;
    case KVF__Q5_0:
        scale = load_one_f16(row + 22 * i);
        q5_part(row + 22 * i + 2, row + 22 * i + 6, scale, scale * vf_set(-16.0f), out);
        break;
    case KVF__Q5_1:
        load_two_f16(row + 24 * i, &scale, &offset);
        q5_part(row + 24 * i + 4, row + 24 * i + 8, scale, offset, out);
        break;
    case KVF__Q8_0:
        q8_part(row + 34 * i + 2, load_one_f16(row + 34 * i), out);
        break;
    case KVF__Q4_K:
        k_part(big, false, (int)(i % BIG_PARTS), out);
        break;
    case KVF__Q5_K:
        k_part(big, true, (int)(i % BIG_PARTS), out);
        break;
    case KVF__Q6_K:
        q6_k_part(big, (int)(i % BIG_PARTS), out);
        break;
    default:
        plain_part(dtype, row, i, out);
        break;
    }
}

#endif
