/* Activations as vectors: bf16 if `half`, else f32. `half` is a constant wherever this is inlined.
 * `_n`: see vec_tail.h. */
#ifndef KVF_VEC_ACT_H
#define KVF_VEC_ACT_H

#include "vec_tail.h"

VEC_INLINE vf vf_load_bf16(const uint16_t *p)
{
    vh bits;
    memcpy(&bits, p, sizeof bits);
    return (vf)VEC(slli_epi32)(VEC(cvtepu16_epi32)(bits), 16);
}

VEC_INLINE void vf_store_bf16(uint16_t *p, vf v)
{
    vh bits = vec_narrow(v);
    memcpy(p, &bits, sizeof bits);
}

VEC_INLINE vf vf_load_bf16_n(const uint16_t *p, int64_t n)
{
#if defined(__AVX512F__)
    return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(vf_first(n), p)),
                                 16);
#else
    uint16_t lanes[VF_LANES] = {0};
    memcpy(lanes, p, (size_t)n * sizeof *p);
    return vf_load_bf16(lanes);
#endif
}

VEC_INLINE void vf_store_bf16_n(uint16_t *p, vf v, int64_t n)
{
#if defined(__AVX512F__)
    _mm256_mask_storeu_epi16(p, vf_first(n), vec_narrow(v));
#else
    uint16_t lanes[VF_LANES];
    vf_store_bf16(lanes, v);
    memcpy(p, lanes, (size_t)n * sizeof *p);
#endif
}

/* Loads elements i .. i + n - 1. */
VEC_INLINE vf act_load(bool half, const void *p, int64_t i, int64_t n)
{
    if (!half) return vf_load_upto((const float *)p + i, n);
    const uint16_t *from = (const uint16_t *)p + i;
    return n >= VF_LANES ? vf_load_bf16(from) : vf_load_bf16_n(from, n);
}

VEC_INLINE void act_store(bool half, void *p, int64_t i, vf v, int64_t n)
{
    if (!half)
        vf_store_upto((float *)p + i, v, n);
    else if (n >= VF_LANES)
        vf_store_bf16((uint16_t *)p + i, v);
    else
        vf_store_bf16_n((uint16_t *)p + i, v, n);
}

/* Returns row `row` of act [, width]; NULL stays NULL. */
VEC_INLINE void *act_row(bool half, const void *p, int64_t row, int64_t width)
{
    return p ? (char *)p + row * width * (half ? 2 : 4) : NULL;
}

#endif
