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
void kvf__quant(kvf__dtype dtype, int64_t elements, size_t bytes, const float *src, uint8_t *dst,
                int64_t n_blocks);

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

/* Converts bfloat16 to binary32 exactly. */
static inline float kvf__bf16_value(uint16_t upper)
{
    const uint32_t bits = (uint32_t)upper << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Converts binary32 to binary16, rounding to nearest even; NaN stays NaN. */
static inline uint16_t kvf__f16_bits(float value)
{
    const int32_t rebias = (127 - 15) << 23;
    const float half = 0.5f; /* its last place is 2^-24, the step of f16 subnormals */
    uint32_t word;
    int32_t half_bits;

    memcpy(&word, &value, sizeof word);
    memcpy(&half_bits, &half, sizeof half_bits);
    int32_t magnitude = (int32_t)(word & 0x7fffffff);

    /* Normal numbers: add half an ulp, less one unless the kept part is odd, then cut; a carry
     * propagates to the exponent. */
    int32_t normal = (magnitude - rebias + 0x0fff + ((magnitude >> 13) & 1)) >> 13;
    int32_t too_big = -(magnitude > 0x477fefff); /* from 65520 on, and infinity */
    normal = (0x7c00 & too_big) | (normal & ~too_big);

    float lifted;
    int32_t subnormal;
    memcpy(&lifted, &magnitude, sizeof lifted);
    lifted += half;
    memcpy(&subnormal, &lifted, sizeof subnormal);
    subnormal -= half_bits;

    int32_t is_subnormal = -(magnitude < 0x38800000); /* below 2^-14 */
    int32_t is_nan = -(magnitude > 0x7f800000);
    int32_t nan = 0x7e00 | ((magnitude >> 13) & 0x03ff);
    int32_t bits = (subnormal & is_subnormal) | (normal & ~is_subnormal);
    bits = (nan & is_nan) | (bits & ~is_nan);
    return (uint16_t)((uint32_t)bits | ((word >> 16) & 0x8000));
}

#endif
