/* The ends of rows: `_n` forms access the first n lanes only, 0 <= n <= VF_LANES; `_upto` forms
 * access all if n is larger. Loads give zero in the other lanes. The tail of a row thus uses the
 * same arithmetic as its body. */
#ifndef KVF_VEC_TAIL_H
#define KVF_VEC_TAIL_H

#include "vec.h"

#if defined(__AVX512F__)

VEC_INLINE __mmask16 vf_first(int64_t n)
{
    return (__mmask16)((1u << n) - 1u);
}

VEC_INLINE vf vf_load_n(const float *p, int64_t n)
{
    return _mm512_maskz_loadu_ps(vf_first(n), p);
}

VEC_INLINE void vf_store_n(float *p, vf v, int64_t n)
{
    _mm512_mask_storeu_ps(p, vf_first(n), v);
}

/* Keeps the first n lanes of v, `other` in the rest. */
VEC_INLINE vf vf_keep_n(vf v, int64_t n, vf other)
{
    return _mm512_mask_blend_ps(vf_first(n), other, v);
}

#else /* AVX2 */

VEC_INLINE vi vf_first(int64_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

VEC_INLINE vf vf_load_n(const float *p, int64_t n)
{
    return _mm256_maskload_ps(p, vf_first(n));
}

VEC_INLINE void vf_store_n(float *p, vf v, int64_t n)
{
    _mm256_maskstore_ps(p, vf_first(n), v);
}

VEC_INLINE vf vf_keep_n(vf v, int64_t n, vf other)
{
    return _mm256_blendv_ps(other, v, (vf)vf_first(n));
}

#endif

VEC_INLINE vf vf_load_upto(const float *p, int64_t n)
{
    return n >= VF_LANES ? vf_load(p) : vf_load_n(p, n);
}

VEC_INLINE void vf_store_upto(float *p, vf v, int64_t n)
{
    if (n >= VF_LANES)
        vf_store(p, v);
    else
        vf_store_n(p, v, n);
}

/* Runs body for lanes i .. i + n - 1 of [from, to), in two copies. Whole vectors have the constant
 * n = VF_LANES. In the tail, the remainder tells the compiler that n is less. */
#define FOR_LANES(i, n, from, to, ...)                                                             \
    do {                                                                                           \
        int64_t i = (from);                                                                        \
        for (const int64_t n = VF_LANES; i + n <= (to); i += n)                                    \
            __VA_ARGS__                                                                            \
        if (i < (to)) {                                                                            \
            const int64_t n = ((to)-i) % VF_LANES;                                                 \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    } while (0)

#endif
