/* Shared by dtype.c, dequant.c and quant.c: block formats to and from f32, and the f16 conversion.
 *
 * Loads use memcpy, because tensors in foreign files start at any address; compilers turn it into
 * plain unaligned loads, also in vectorised loops. */
#ifndef KVF_DEQUANT_H
#define KVF_DEQUANT_H

#include "view.h"

#include <string.h>

/* src: n_blocks blocks of a Q* type with the given bytes each; dst: n_blocks * elements values. */
void kvf__dequant(kvf__dtype dtype, int64_t elements, size_t bytes, const uint8_t *src, float *dst,
                  int64_t n_blocks);

/* src: finite values of n_blocks blocks of Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K or Q6_K, below
 * kvf__dtype_limit. */
void kvf__quant(kvf__dtype dtype, const float *src, uint8_t *dst, int64_t n_blocks);

/* Converts IEEE binary16 to binary32 exactly, NaN payloads included.
 *
 * Normal numbers: exponent and mantissa move up by 13 bits, and the exponent is rebiased by 127 -
 * 15. Infinity and NaN need the rebias twice. A subnormal is read with the exponent of the smallest
 * normal and its implicit one (2^-14), which an exact subtraction removes again. Masks instead of
 * branches, and signed comparisons only, keep the loop vectorisable on SSE2. */
static inline float kvf__f16_value(uint16_t half)
{
    const int32_t rebias = (127 - 15) << 23;
    int32_t magnitude = half & 0x7fff;
    int32_t normal = (magnitude << 13) + rebias;
    int32_t as_normal = normal + (1 << 23), bits, subnormal;
    float tiny, value;

    memcpy(&tiny, &as_normal, sizeof tiny);
    tiny -= 0x1p-14f;
    memcpy(&subnormal, &tiny, sizeof subnormal);

    int32_t is_subnormal = -(magnitude < 0x0400);
    int32_t is_special = -(magnitude > 0x7bff);
    bits = (subnormal & is_subnormal) | ((normal + (rebias & is_special)) & ~is_subnormal);
    bits = (int32_t)((uint32_t)bits | (uint32_t)(half & 0x8000) << 16);
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif
