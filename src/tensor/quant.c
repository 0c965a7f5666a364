/* Conversion of f32 to the GGUF block formats Q4_0 Q4_1 Q5_0 Q5_1 Q4_K Q5_K Q6_K, which dequant.c
 * reads. Scales are rounded up to the precision in which they are stored, and integers are found
 * with the stored scales. So no value lies outside of its block's range, but for one end of Q4_0's
 * and Q5_0's, as in llama.cpp. A block of zeros stays zero. Values that f16 rounds to zero count as
 * zeros, because a scale of 2^-24 would add noise to an engine's product. */
#include "dequant.h"

#include <math.h>

enum { SMALL = 32, BIG = 256, PARTS = 8, MOST_SCALE = 63 };

static float store(uint16_t half, uint8_t *to)
{
    memcpy(to, &half, sizeof half);
    return kvf__f16_value(half);
}

/* Stores the f16 of smallest magnitude that is not below the value's. */
static float store_up(float value, uint8_t *to)
{
    const uint16_t half = kvf__f16_bits(value);
    return store(half + (fabsf(kvf__f16_value(half)) < fabsf(value)), to);
}

static void range(const float *x, int n, float *low, float *high)
{
    *low = *high = x[0];
    for (int i = 1; i < n; i++) {
        *low = fminf(*low, x[i]);
        *high = fmaxf(*high, x[i]);
    }
}

static float inverse(float scale)
{
    return scale != 0 ? 1 / scale : 0;
}

static int nearest(float steps, int most)
{
    return steps > 0 ? (int)fminf(steps + 0.5f, (float)most) : 0;
}

/* Q4_0, Q4_1, Q5_0, Q5_1: a scale, a minimum, the fifth bits, nibbles. Without a minimum the value
 * of largest magnitude has integer 0. */
static void small(const float *x, uint8_t *to, bool five, bool minimum)
{
    const int most = five ? 31 : 15, zero = (most + 1) / 2;
    uint8_t *high_bits = to + (minimum ? 4 : 2), *nibbles = high_bits + (five ? 4 : 0);
    float low, high, scale;

    range(x, SMALL, &low, &high);
    if (minimum) {
        low = store(kvf__f16_bits(low), to + 2);
        scale = store_up((high - low) / (float)most, to);
    } else {
        scale = store_up((high > -low ? high : low) / (float)-zero, to);
        low = (float)-zero * scale;
    }
    for (int i = 0; i < SMALL; i++) {
        const int q = nearest((x[i] - low) * inverse(scale), most);
        nibbles[i % 16] |= (uint8_t)((q & 15) << i / 16 * 4);
        if (five) high_bits[i / 8] |= (uint8_t)(q >> 4 << i % 8);
    }
}

/* Returns how many units a part's scale is. */
static int units(float scale, float unit, int most)
{
    return nearest(ceilf(scale * inverse(unit)), most);
}

/* Packs 6-bit scales and minima as k_scales() in dequant.c reads them. */
static void pack_scales(const int scale[PARTS], const int minimum[PARTS], uint8_t s[12])
{
    for (int j = 0; j < 4; j++) {
        s[j] = (uint8_t)(scale[j] | scale[j + 4] >> 4 << 6);
        s[j + 4] = (uint8_t)(minimum[j] | minimum[j + 4] >> 4 << 6);
        s[j + 8] = (uint8_t)((scale[j + 4] & 15) | (minimum[j + 4] & 15) << 4);
    }
}

/* Q4_K and (five bits) Q5_K: 8 parts with a scale and a minimum each, which is at most 0. */
static void q45_k(const float *x, uint8_t *to, bool five)
{
    const int most = five ? 31 : 15;
    uint8_t *q = to + (five ? 48 : 16);
    float low[PARTS], high[PARTS], lowest = 0, widest = 0;
    int scale[PARTS], minimum[PARTS];

    for (int j = 0; j < PARTS; j++) {
        range(x + SMALL * j, SMALL, &low[j], &high[j]);
        lowest = fminf(lowest, low[j]);
    }
    const float dmin = store_up(-lowest / MOST_SCALE, to + 2);
    for (int j = 0; j < PARTS; j++) {
        minimum[j] = units(-low[j], dmin, MOST_SCALE);
        low[j] = dmin * (float)minimum[j];
        high[j] = (high[j] + low[j]) / (float)most; /* the scale that it takes */
        widest = fmaxf(widest, high[j]);
    }
    const float d = store_up(widest / MOST_SCALE, to);
    for (int j = 0; j < PARTS; j++) {
        scale[j] = units(high[j], d, MOST_SCALE);
        const float by = inverse(d * (float)scale[j]);
        for (int l = 0; l < SMALL; l++) {
            const int value = nearest((x[SMALL * j + l] + low[j]) * by, most);
            q[j / 2 * SMALL + l] |= (uint8_t)((value & 15) << j % 2 * 4);
            if (five) to[16 + l] |= (uint8_t)(value >> 4 << j);
        }
    }
    pack_scales(scale, minimum, to + 4);
}

/* Q6_K: 16 parts of 16 elements with a scale each; integers have a bias of 32. */
static void q6_k(const float *x, uint8_t *to)
{
    enum { PART = 16, BIAS = 32, MOST = 127 };
    float low, high;

    range(x, BIG, &low, &high);
    const float d = store_up(fmaxf(high, -low) / (BIAS - 1) / MOST, to + 208);
    for (int part = 0; part < BIG / PART; part++) {
        const float *y = x + part * PART;
        range(y, PART, &low, &high);
        const int scale = units(fmaxf(high, -low) / (BIAS - 1), d, MOST);
        const float step = d * (float)scale;
        const int half = part / 8, row = part % 8 / 2; /* as in q6_k() of dequant.c */
        to[192 + part] = (uint8_t)scale;
        for (int i = 0; i < PART; i++) {
            const int q = nearest(y[i] * inverse(step) + BIAS, 2 * BIAS - 1);
            const int l = part % 2 * PART + i;
            to[64 * half + row % 2 * 32 + l] |= (uint8_t)((q & 15) << row / 2 * 4);
            to[128 + 32 * half + l] |= (uint8_t)(q >> 4 << 2 * row);
        }
    }
}

void kvf__quant(kvf__dtype dtype, int64_t elements, size_t bytes, const float *src, uint8_t *dst,
                int64_t n_blocks)
{
    static const float zeros[BIG];
    const bool five = dtype == KVF__Q5_0 || dtype == KVF__Q5_1 || dtype == KVF__Q5_K;
    float low, high;

    memset(dst, 0, (size_t)n_blocks * bytes);
    for (int64_t i = 0; i < n_blocks; i++, src += elements, dst += bytes) {
        range(src, (int)elements, &low, &high);
        const float *x = fmaxf(high, -low) < 0x1p-25F ? zeros : src; /* as f16 would round it */
        if (dtype == KVF__Q6_K)
            q6_k(x, dst);
        else if (elements == BIG)
            q45_k(x, dst, five);
        else
            small(x, dst, five, dtype == KVF__Q4_1 || dtype == KVF__Q5_1);
    }
}
