/* Integers of 32 bits in the lanes of a vector, and conversion of f16. Bits are combined by the
 * operators & and |. */
#ifndef KVF_VEC_INT_H
#define KVF_VEC_INT_H

#include "vec.h"

#define vi_set      VEC(set1_epi32)
#define vi_right_by VEC(srlv_epi32) /* shifts each lane by its own count */
#define vi_to_f32   VEC(cvtepi32_ps)

VEC_INLINE __m128i load_lane_bytes(const uint8_t *p)
{
#if defined(__AVX512F__)
    return _mm_loadu_si128((const __m128i *)p);
#else
    return _mm_loadl_epi64((const __m128i *)p);
#endif
}

VEC_INLINE vi vi_bytes(const uint8_t *p)
{
    return VEC(cvtepu8_epi32)(load_lane_bytes(p));
}

VEC_INLINE vi vi_signed_bytes(const uint8_t *p)
{
    return VEC(cvtepi8_epi32)(load_lane_bytes(p));
}

VEC_INLINE vi vi_lanes(void) /* 0, 1, 2, ... */
{
    return VEC(cvtepu8_epi32)(_mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
}

VEC_INLINE vi vi_right(vi v, int bits)
{
    return VEC(srl_epi32)(v, _mm_cvtsi32_si128(bits));
}

VEC_INLINE vi vi_left(vi v, int bits)
{
    return VEC(sll_epi32)(v, _mm_cvtsi32_si128(bits));
}

VEC_INLINE vf vf_load_f16(const uint8_t *p)
{
    vh bits;
    memcpy(&bits, p, sizeof bits);
    return VEC(cvtph_ps)(bits);
}

/* Broadcasts one f16 to all lanes. */
VEC_INLINE vf load_one_f16(const uint8_t *p)
{
    int16_t bits;
    memcpy(&bits, p, sizeof bits);
    return VEC(cvtph_ps)(VEC_HALF(set1_epi16)(bits));
}

/* Broadcasts each of two adjacent f16. */
VEC_INLINE void load_two_f16(const uint8_t *p, vf *a, vf *b)
{
    int32_t both;
    memcpy(&both, p, sizeof both);
    vf v = VEC(cvtph_ps)(VEC_HALF(set1_epi32)(both));
    *a = VEC(moveldup_ps)(v);
    *b = VEC(movehdup_ps)(v);
}

#endif
