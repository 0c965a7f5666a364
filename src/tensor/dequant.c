/* Conversion of GGUF block formats to f32: Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K to Q6_K IQ4_NL IQ4_XS
 * MXFP4.
 *
 * A block has a small scale (and minimum) in f16, or a power of 2, with 32 or 256 packed integers;
 * in the IQ4 types and MXFP4 these index a table. Roundings follow the order of the reference:
 * scales are multiplied first, each product is rounded once, nothing is fused. So results agree bit
 * for bit. Layouts: ggml-common.h, ggml-quants.c. Inner loops have constant trip counts and no
 * branches, so that they vectorise. */
#include "dequant.h"

#include <assert.h>

enum { SMALL = 32, BIG = 256 };

static float load_f16(const uint8_t *src)
{
    uint16_t half;
    memcpy(&half, src, sizeof half);
    return kvf__f16_value(half);
}

/* Returns the value of integer q: d q + m with a minimum, d (q - zero) without. */
static inline float value_of(float d, bool minimum, float m, int q, int zero)
{
    return minimum ? d * (float)q + m : d * (float)(q - zero);
}

/* Q4_0 and (minimum) Q4_1. 16 bytes hold 32 nibbles: the low ones are elements 0..15, the high ones
 * 16..31. */
static inline void q4(const uint8_t *restrict src, float *restrict dst, bool minimum)
{
    float d = load_f16(src), m = minimum ? load_f16(src + 2) : 0;
    const uint8_t *q = src + (minimum ? 4 : 2);
    for (int j = 0; j < SMALL / 2; j++)
        dst[j] = value_of(d, minimum, m, q[j] & 15, 8);
    for (int j = 0; j < SMALL / 2; j++)
        dst[j + SMALL / 2] = value_of(d, minimum, m, q[j] >> 4, 8);
}

/* Expands the fifth bits of 8 elements to bytes of 0 or 16. Copies the byte 8 times, keeps another
 * bit in each copy, and carries a remaining bit to the top of its copy. */
static void spread_bits(uint8_t bits, uint8_t out[8])
{
    uint64_t copies = bits * UINT64_C(0x0101010101010101) & UINT64_C(0x8040201008040201);
    copies = ((copies + UINT64_C(0x7f7f7f7f7f7f7f7f)) & UINT64_C(0x8080808080808080)) >> 3;
    memcpy(out, &copies, sizeof copies);
}

/* Unpacks the 5-bit values of one block: bit j of qh belongs to element j, ql has nibbles as in
 * Q4. */
static void unpack_q5(const uint8_t *restrict qh, const uint8_t *restrict ql, uint8_t v[SMALL])
{
    for (int j = 0; j < SMALL / 8; j++)
        spread_bits(qh[j], v + 8 * j);
    for (int j = 0; j < SMALL / 2; j++)
        v[j] |= ql[j] & 15;
    for (int j = 0; j < SMALL / 2; j++)
        v[j + SMALL / 2] |= ql[j] >> 4;
}

/* Q5_0 and (minimum) Q5_1. */
static inline void q5(const uint8_t *restrict src, float *restrict dst, bool minimum)
{
    float d = load_f16(src), m = minimum ? load_f16(src + 2) : 0;
    const uint8_t *qh = src + (minimum ? 4 : 2);
    uint8_t v[SMALL];
    unpack_q5(qh, qh + 4, v);
    for (int j = 0; j < SMALL; j++)
        dst[j] = value_of(d, minimum, m, v[j], 16);
}

static inline void q8_0(const uint8_t *restrict src, float *restrict dst, bool unused)
{
    (void)unused;
    float d = load_f16(src);
    int8_t q[SMALL];
    memcpy(q, src + 2, sizeof q);
    for (int j = 0; j < SMALL; j++)
        dst[j] = d * (float)q[j];
}

/* Unpacks the 6-bit scales and minima of the 8 sub-blocks of Q4_K and Q5_K from 12 bytes. The first
 * four are in bytes 0..3 and 4..7, whose upper two bits complete the nibbles in bytes 8..11 for the
 * last four. */
static void k_scales(const uint8_t s[12], float d, float dmin, float scale[8], float minimum[8])
{
    for (int j = 0; j < 4; j++) {
        scale[j] = d * (float)(s[j] & 63);
        minimum[j] = dmin * (float)(s[j + 4] & 63);
        scale[j + 4] = d * (float)((s[j + 8] & 15) | (s[j] >> 6) << 4);
        minimum[j + 4] = dmin * (float)((s[j + 8] >> 4) | (s[j + 4] >> 6) << 4);
    }
}

/* Q4_K and (five bits) Q5_K: 64 elements are the low nibbles of 32 bytes, then the high ones. Bits
 * 2c and 2c + 1 of qh[l] are the fifth bits of chunk c's low and high nibble. */
static inline void q45_k(const uint8_t *restrict src, float *restrict dst, bool five)
{
    float scale[8], minimum[8];
    const uint8_t *qh = src + 16;
    k_scales(src + 4, load_f16(src), load_f16(src + 2), scale, minimum);
    for (int half = 0; half < 8; half++) {
        const uint8_t *q = src + (five ? 48 : 16) + half / 2 * 32;
        for (int l = 0; l < 32; l++) {
            int low = half % 2 ? q[l] >> 4 : q[l] & 15, high = five ? qh[l] >> half & 1 : 0;
            dst[32 * half + l] = scale[half] * (float)(low | high << 4) - minimum[half];
        }
    }
}

/* 32 elements of Q6_K with two scales: nibbles from ql (shifted), two bits from qh (shifted),
 * bias 32. */
static void q6_k_part(const uint8_t *restrict ql, int low, const uint8_t *restrict qh, int high,
                      const float scale[2], float *restrict y)
{
    for (int half = 0; half < 32; half += 16) {
        float s = scale[half / 16];
        for (int l = half; l < half + 16; l++)
            y[l] = s * (float)(((ql[l] >> low & 15) | (qh[l] >> high & 3) << 4) - 32);
    }
}

static inline void q6_k(const uint8_t *restrict src, float *restrict dst, bool unused)
{
    (void)unused;
    float d = load_f16(src + 208);
    for (int n = 0; n < 2; n++) { /* 128 elements each */
        const uint8_t *ql = src + 64 * n, *qh = src + 128 + 32 * n;
        float *y = dst + 128 * n, scale[8];
        int8_t s[8];
        memcpy(s, src + 192 + 8 * n, sizeof s);
        for (int i = 0; i < 8; i++)
            scale[i] = d * (float)s[i];
        q6_k_part(ql, 0, qh, 0, scale, y);
        q6_k_part(ql + 32, 0, qh, 2, scale + 2, y + 32);
        q6_k_part(ql, 4, qh, 4, scale + 4, y + 64);
        q6_k_part(ql + 32, 4, qh, 6, scale + 6, y + 96);
    }
}

/* ---- by parts of 32 elements ----------------------------------------------------------------- */

/* Q2_K: 16 scales and minima of 4 bits, 256 integers of 2 bits, d, dmin. */
static void q2_k_part(const uint8_t *restrict src, int part, float *restrict y)
{
    const float d = load_f16(src + 80), dmin = load_f16(src + 82);
    const uint8_t *q = src + 16 + part / 4 * 32;
    for (int half = 0; half < 2; half++) {
        const uint8_t s = src[2 * part + half];
        const float scale = d * (float)(s & 15), minimum = dmin * (float)(s >> 4);
        for (int l = 16 * half; l < 16 * half + 16; l++)
            y[l] = scale * (float)(q[l] >> part % 4 * 2 & 3) - minimum;
    }
}

/* Returns the 6-bit scale i of Q3_K: four bits in bytes 0..7, the low halves first, two in bytes
 * 8..11. */
static int q3_k_scale(const uint8_t s[12], int i)
{
    return ((s[i % 8] >> i / 8 * 4 & 15) | (s[8 + i % 4] >> i / 4 * 2 & 3) << 4) - 32;
}

/* Q3_K: the third bit of 256 integers (unset: minus 4), their other two bits, 16 scales, d. */
static void q3_k_part(const uint8_t *restrict src, int part, float *restrict y)
{
    const float d = load_f16(src + 108);
    const uint8_t *q = src + 32 + part / 4 * 32;
    for (int half = 0; half < 2; half++) {
        const float scale = d * (float)q3_k_scale(src + 96, 2 * part + half);
        for (int l = 16 * half; l < 16 * half + 16; l++)
            y[l] = scale * (float)((q[l] >> part % 4 * 2 & 3) - (src[l] >> part & 1 ? 0 : 4));
    }
}

static const float IQ4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                              1,    13,   25,  38,  53,  69,  89,  113};
/* Floats of 4 bits (OCP Microscaling Formats 1.0: E2M1), doubled. */
static const float FP4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* Looks up 32 nibbles in the order of q4(). */
static void look_up(const uint8_t *restrict q, float d, const float table[16], float *restrict y)
{
    for (int j = 0; j < SMALL / 2; j++) {
        y[j] = d * table[q[j] & 15];
        y[j + SMALL / 2] = d * table[q[j] >> 4];
    }
}

/* IQ4_XS: d, the upper two bits of 8 scales, their lower four bits, the nibbles. */
static void iq4_xs_part(const uint8_t *restrict src, int part, float *restrict y)
{
    const int high = (src[2] | src[3] << 8) >> 2 * part & 3;
    const int low = src[4 + part / 2] >> part % 2 * 4 & 15;
    look_up(src + 8 + 16 * part, load_f16(src) * (float)((low | high << 4) - 32), IQ4, y);
}

/* Returns half the power of 2 with the stored exponent (E8M0), since the table is doubled. */
static float half_e8m0(uint8_t exponent)
{
    const uint32_t bits = exponent < 2 ? UINT32_C(0x200000) << exponent
                                       : (uint32_t)(exponent - 1) << 23;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void dequant_part(kvf__dtype dtype, const uint8_t *block, int part, float *dst)
{
    switch (dtype) {
    case KVF__Q2_K:
        q2_k_part(block, part, dst);
        break;
    case KVF__Q3_K:
        q3_k_part(block, part, dst);
        break;
    case KVF__IQ4_NL:
        look_up(block + 2, load_f16(block), IQ4, dst);
        break;
    case KVF__IQ4_XS:
        iq4_xs_part(block, part, dst);
        break;
    case KVF__MXFP4:
        look_up(block + 1, half_e8m0(block[0]), FP4, dst);
        break;
    default:
        assert(!"a type that has no parts");
    }
}

static void by_parts(kvf__dtype dtype, int64_t elements, size_t bytes, const uint8_t *src,
                     float *dst, int64_t n_blocks)
{
    const int64_t parts = elements / SMALL;

    for (int64_t i = 0; i < n_blocks * parts; i++)
        dequant_part(dtype, src + (size_t)(i / parts) * bytes, (int)(i % parts), dst + i * SMALL);
}

/* One loop per type, so that the block function is inlined into it. */
#define EACH_BLOCK(type, block, bytes, function, flag)                                             \
    case type:                                                                                     \
        for (int64_t i = 0; i < n_blocks; i++)                                                     \
            function(src + (bytes)*i, dst + (block)*i, flag);                                      \
        break

void kvf__dequant(kvf__dtype dtype, int64_t elements, size_t bytes, const uint8_t *src, float *dst,
                  int64_t n_blocks)
{
    switch (dtype) {
        EACH_BLOCK(KVF__Q4_0, SMALL, 18, q4, false);
        EACH_BLOCK(KVF__Q4_1, SMALL, 20, q4, true);
        EACH_BLOCK(KVF__Q5_0, SMALL, 22, q5, false);
        EACH_BLOCK(KVF__Q5_1, SMALL, 24, q5, true);
        EACH_BLOCK(KVF__Q8_0, SMALL, 34, q8_0, false);
        EACH_BLOCK(KVF__Q4_K, BIG, 144, q45_k, false);
        EACH_BLOCK(KVF__Q5_K, BIG, 176, q45_k, true);
        EACH_BLOCK(KVF__Q6_K, BIG, 210, q6_k, false);
    default:
        by_parts(dtype, elements, bytes, src, dst, n_blocks);
    }
}
