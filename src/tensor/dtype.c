/* Element types: names, sizes, and conversion to and from f32.
 *
 * Loops over plain types are branch-free and unit-stride, so that the compiler vectorises them for
 * plain SSE2. Rounding to nearest, ties to even, uses integers and is independent of the thread's
 * rounding and flush-to-zero state, except for subnormals, which the adder rounds. f16 is IEEE 754
 * binary16; bf16 is the upper half of binary32. */
#include "dequant.h"

#include <assert.h>
#include <math.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "tensor files are little endian, and read in place");

typedef struct dtype_row {
    const char *name;
    size_t bytes; /* per block */
    int64_t elements;
} dtype_row;

static const dtype_row ROWS[] = {
#define DTYPE_ROW(id, text, bytes, elements) {text, bytes, elements},
    KVF__DTYPE_LIST(DTYPE_ROW)
#undef DTYPE_ROW
};

static const dtype_row *row_of(kvf__dtype dtype)
{
    assert((size_t)dtype < sizeof ROWS / sizeof ROWS[0]);
    return &ROWS[dtype];
}

const char *kvf__dtype_name(kvf__dtype dtype)
{
    return row_of(dtype)->name;
}

int64_t kvf__dtype_block(kvf__dtype dtype)
{
    return row_of(dtype)->elements;
}

size_t kvf__dtype_block_bytes(kvf__dtype dtype)
{
    return row_of(dtype)->bytes;
}

/* The largest finite f16 is 65504, and values below 65520 round to it; the scales of blocks are
 * f16. bf16 has the range of f32, up to rounding. */
float kvf__dtype_limit(kvf__dtype dtype)
{
    if (kvf__dtype_block(dtype) > 1) return 65504.0f;
    return dtype == KVF__F16 ? 65520.0f : dtype == KVF__BF16 ? 0x1.FFp+127f : INFINITY;
}

bool kvf__dtype_is_float(kvf__dtype dtype)
{
    return dtype <= KVF__F64 || (dtype >= KVF__Q4_0 && dtype <= KVF__MXFP4);
}

bool kvf__dtype_is_written(kvf__dtype dtype)
{
    return dtype <= KVF__BF16 || (dtype >= KVF__Q4_0 && dtype <= KVF__Q6_K);
}

/* ---- to f32 ---------------------------------------------------------------------------------- */

static void f16_to_f32(const uint8_t *restrict src, float *restrict dst, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint16_t half;
        memcpy(&half, src + 2 * i, sizeof half);
        dst[i] = kvf__f16_value(half);
    }
}

static void bf16_to_f32(const uint8_t *restrict src, float *restrict dst, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint16_t upper;
        memcpy(&upper, src + 2 * i, sizeof upper);
        dst[i] = kvf__bf16_value(upper);
    }
}

static void f64_to_f32(const uint8_t *restrict src, float *restrict dst, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double value;
        memcpy(&value, src + 8 * i, sizeof value);
        dst[i] = (float)value;
    }
}

void kvf__to_f32(kvf__dtype dtype, const void *src, float *dst, int64_t n)
{
    int64_t block = kvf__dtype_block(dtype);

    assert(kvf__dtype_is_float(dtype) && n >= 0 && n % block == 0);
    if (n == 0) return;
    switch (dtype) {
    case KVF__F32:
        memcpy(dst, src, (size_t)n * sizeof *dst);
        break;
    case KVF__F16:
        f16_to_f32(src, dst, n);
        break;
    case KVF__BF16:
        bf16_to_f32(src, dst, n);
        break;
    case KVF__F64:
        f64_to_f32(src, dst, n);
        break;
    default:
        kvf__dequant(dtype, block, kvf__dtype_block_bytes(dtype), src, dst, n / block);
        break;
    }
}

/* ---- from f32 -------------------------------------------------------------------------------- */

static void f32_to_f16(const float *restrict src, uint8_t *restrict dst, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint16_t half = kvf__f16_bits(src[i]);
        memcpy(dst + 2 * i, &half, sizeof half);
    }
}

static void f32_to_bf16(const float *restrict src, uint8_t *restrict dst, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t word;
        memcpy(&word, &src[i], sizeof word);
        uint32_t is_nan = (uint32_t) - ((int32_t)(word & 0x7fffffff) > 0x7f800000);
        uint32_t rounded = word + 0x7fff + ((word >> 16) & 1);
        uint32_t bits = ((word | 0x00400000) & is_nan) |
                        /* sets the quiet bit, because a cut payload may be 0 */
                        (rounded & ~is_nan);
        uint16_t upper = (uint16_t)(bits >> 16);
        memcpy(dst + 2 * i, &upper, sizeof upper);
    }
}

/* Quantizes a block like ggml's quantize_row_q8_0_ref: scale = largest / 127 as f16, integers by
 * the unrounded scale, halves away from 0. A block with a non-finite value becomes NaN. */
static void q8_0_block(const float *restrict src, uint8_t *restrict dst, int64_t block)
{
    float largest = 0, poison = 0;
    for (int64_t i = 0; i < block; i++) {
        largest = fmaxf(largest, fabsf(src[i]));
        poison += src[i] - src[i]; /* NaN if src is NaN or infinite */
    }
    const float scale = isnan(poison) ? NAN : largest / 127;
    const float by = scale > 0 ? 1 / scale : 0;
    const uint16_t half = kvf__f16_bits(scale);
    memcpy(dst, &half, sizeof half);
    for (int64_t i = 0; i < block; i++)
        dst[2 + i] = isnan(poison) ? 1 : (uint8_t)(int8_t)roundf(src[i] * by);
}

static void f32_to_q8_0(const float *src, uint8_t *dst, int64_t n)
{
    const int64_t block = kvf__dtype_block(KVF__Q8_0);
    for (int64_t i = 0; i < n / block; i++)
        q8_0_block(src + i * block, dst + i * (int64_t)kvf__dtype_block_bytes(KVF__Q8_0), block);
}

void kvf__from_f32(kvf__dtype dtype, const float *src, void *dst, int64_t n)
{
    assert(n >= 0 && kvf__dtype_is_written(dtype) && n % kvf__dtype_block(dtype) == 0);
    if (n == 0) return;
    switch (dtype) {
    case KVF__F32:
        memcpy(dst, src, (size_t)n * sizeof *src);
        break;
    case KVF__F16:
        f32_to_f16(src, dst, n);
        break;
    case KVF__BF16:
        f32_to_bf16(src, dst, n);
        break;
    case KVF__Q8_0:
        f32_to_q8_0(src, dst, n);
        break;
    default:
        kvf__quant(dtype, kvf__dtype_block(dtype), kvf__dtype_block_bytes(dtype), src, dst,
                   n / kvf__dtype_block(dtype));
        break;
    }
}
