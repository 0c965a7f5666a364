/* Tests of dtype.c, dequant.c and table.c in src/tensor: every f16 and bf16 value, rounding at
 * every midpoint, block formats against the reference (golden/make_dequant.py), views and the
 * table. */
#include "ck.h"
#include "view.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HALVES = 65536 };

static kvf_ctx *ctx;

static void setup(void)
{
    ck_assert_int_eq(kvf_ctx_create(NULL, &ctx), KVF_OK);
}

static void teardown(void)
{
    kvf_ctx_free(ctx);
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* All 65536 values of a 16-bit type as f32, from an odd address. */
static float *all_values(kvf__dtype dtype)
{
    uint8_t *bytes = malloc(2 * HALVES + 1);
    float *values = malloc(HALVES * sizeof *values);
    for (uint32_t i = 0; i < HALVES; i++) {
        uint16_t half = (uint16_t)i;
        memcpy(bytes + 1 + 2 * i, &half, sizeof half);
    }
    kvf__to_f32(dtype, bytes + 1, values, HALVES);
    free(bytes);
    return values;
}

/* Results of gguf 0.19 (quants.quantize); one value of the second block is 0. */
START_TEST(q8_0_is_written_as_the_reference_does)
{
    static const uint8_t want[68] = {
        77,  30, 129, 223, 61,  154, 248, 86,  180, 18,  112, 205, 43,  137, 231, 69,  162,
        0,   94, 187, 25,  119, 213, 51,  144, 238, 76,  170, 8,   102, 195, 33,  127, 220,
        101, 0,  60,  150, 246, 86,  176, 16,  111, 202, 0,   132, 227, 67,  158, 253, 93,
        183, 23, 119, 209, 49,  139, 235, 75,  165, 5,   101, 191, 31,  127, 217, 57,  147};
    float x[64], back[32];
    uint8_t got[68];
    for (int i = 0; i < 64; i++)
        x[i] = (float)(i * 37 % 101 - 50) / 64 * (i < 32 ? 1 : 1e-3f);
    x[40] = 0;
    kvf__from_f32(KVF__Q8_0, x, got, 64);
    ck_assert_mem_eq(got, want, sizeof want);
    x[5] = INFINITY;
    kvf__from_f32(KVF__Q8_0, x, got, 32);
    kvf__to_f32(KVF__Q8_0, got, back, 32);
    for (int i = 0; i < 32; i++)
        ck_assert(isnan(back[i]));
}
END_TEST

/* Decodes f16 by the definition of IEEE 754 binary16, in double. */
static double f16_by_definition(uint32_t half)
{
    uint32_t exponent = half >> 10 & 31, mantissa = half & 1023;
    double value = exponent ? ldexp(1024 + mantissa, (int)exponent - 25) : ldexp(mantissa, -24);
    if (exponent == 31) value = INFINITY;
    return half & 0x8000 ? -value : value;
}

START_TEST(f16_is_read_exactly)
{
    float *values = all_values(KVF__F16);
    for (uint32_t i = 0; i < HALVES; i++) {
        if ((i & 0x7fff) > 0x7c00) {
            ck_assert_msg(isnan(values[i]), "f16 %04x is NaN", i);
            ck_assert_uint_eq(bits_of(values[i]) >> 31, i >> 15);
        } else {
            ck_assert_msg(bits_of(values[i]) == bits_of((float)f16_by_definition(i)), "f16 %04x",
                          i);
        }
    }
    free(values);
}
END_TEST

START_TEST(bf16_is_read_exactly)
{
    float *values = all_values(KVF__BF16);
    for (uint32_t i = 0; i < HALVES; i++)
        ck_assert_msg(bits_of(values[i]) == i << 16, "bf16 %04x", i);
    free(values);
}
END_TEST

static const kvf__dtype SHORT_TYPES[] = {KVF__F16, KVF__BF16};

static bool is_nan16(kvf__dtype dtype, uint32_t half)
{
    return (half & 0x7fff) > (dtype == KVF__F16 ? 0x7c00 : 0x7f80);
}

START_TEST(round_trip_keeps_every_value)
{
    kvf__dtype dtype = SHORT_TYPES[_i];
    float *values = all_values(dtype);
    uint16_t *back = malloc(HALVES * sizeof *back);

    kvf__from_f32(dtype, values, back, HALVES);
    for (uint32_t i = 0; i < HALVES; i++) {
        if (is_nan16(dtype, i)) {
            ck_assert_msg(is_nan16(dtype, back[i]), "NaN %04x became %04x", i, back[i]);
            ck_assert_uint_eq(back[i] & 0x8000, i & 0x8000);
        } else {
            ck_assert_msg(back[i] == i, "%04x became %04x", i, back[i]);
        }
    }
    free(back);
    free(values);
}
END_TEST

static uint16_t narrowed(kvf__dtype dtype, float value)
{
    uint16_t half;
    kvf__from_f32(dtype, &value, &half, 1);
    return half;
}

/* Between neighbours: the midpoint rounds to even, the f32 next to it to the nearer neighbour.
 * The neighbour of the largest finite value is the next power of two: from the midpoint on,
 * infinity. */
START_TEST(rounds_to_nearest_even)
{
    kvf__dtype dtype = SHORT_TYPES[_i];
    uint32_t infinite = dtype == KVF__F16 ? 0x7c00 : 0x7f80;
    float *values = all_values(dtype);

    for (uint32_t low = 0; low < infinite; low++) {
        double below = (double)values[low];
        double above = low + 1 == infinite ? 2 * below - (double)values[low - 1]
                                           : (double)values[low + 1];
        float middle = (float)((below + above) / 2);
        uint32_t even = low & 1 ? low + 1 : low;
        ck_assert_msg(narrowed(dtype, middle) == even, "middle above %04x", low);
        ck_assert_msg(narrowed(dtype, nextafterf(middle, 0)) == low, "just below it, %04x", low);
        ck_assert_msg(narrowed(dtype, nextafterf(middle, INFINITY)) == low + 1, "just above, %04x",
                      low);
        ck_assert_msg(narrowed(dtype, -middle) == (even | 0x8000), "negative, %04x", low);
    }
    free(values);
}
END_TEST

START_TEST(extremes)
{
    static const struct {
        uint32_t f32;
        uint16_t f16, bf16;
    } ROWS[] = {
        {0x00000000, 0x0000, 0x0000}, {0x80000000, 0x8000, 0x8000}, /* zeros keep their sign */
        {0x7f800000, 0x7c00, 0x7f80}, {0xff800000, 0xfc00, 0xff80}, /* infinities */
        {0x7f7fffff, 0x7c00, 0x7f80}, {0x47800000, 0x7c00, 0x4780}, /* too big for one or both */
        {0x00000001, 0x0000, 0x0000}, {0x33000000, 0x0000, 0x3300}, /* 2^-25: tie, to even */
        {0x33000001, 0x0001, 0x3300}, {0x7fc00000, 0x7e00, 0x7fc0},
        {0x7f800001, 0x7e00, 0x7fc0}, /* NaN, also of a low payload */
        {0xffffffff, 0xffff, 0xffff},
    };
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        float value = from_bits(ROWS[i].f32);
        ck_assert_msg(narrowed(KVF__F16, value) == ROWS[i].f16, "f16 of %08x", ROWS[i].f32);
        ck_assert_msg(narrowed(KVF__BF16, value) == ROWS[i].bf16, "bf16 of %08x", ROWS[i].f32);
    }
}
END_TEST

START_TEST(f32_and_f64)
{
    static const double wide[] = {0, -0.0, 1.0 / 3, 1e300, -1e-300, 16777217.0, INFINITY};
    static const float want[] = {0, -0.0f, 1.0f / 3, INFINITY, -0.0f, 16777216.0f, INFINITY};
    const uint32_t quiet = 0x7fc12345;
    uint8_t bytes[sizeof wide + 1];
    float got[7], kept;

    memcpy(bytes + 1, wide, sizeof wide);
    kvf__to_f32(KVF__F64, bytes + 1, got, 7);
    for (int i = 0; i < 7; i++)
        ck_assert_uint_eq(bits_of(got[i]), bits_of(want[i]));
    memcpy(bytes + 1, &quiet, sizeof quiet);
    kvf__to_f32(KVF__F32, bytes + 1, &kept, 1);
    ck_assert_uint_eq(bits_of(kept), quiet);
    kvf__from_f32(KVF__F32, &kept, bytes + 1, 1);
    ck_assert_int_eq(memcmp(bytes + 1, &quiet, sizeof quiet), 0);
    kvf__to_f32(KVF__F16, NULL, NULL, 0); /* zero elements may have a NULL source */
    kvf__from_f32(KVF__BF16, NULL, NULL, 0);
}
END_TEST

/* Vector bodies and scalar tails agree, at every length and alignment. */
START_TEST(any_length_and_alignment)
{
    enum { MOST = 67 };
    uint8_t bytes[2 * MOST + 8];
    float one, got[MOST + 1];

    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 37 + 11);
    for (int offset = 0; offset < 4; offset++) {
        for (int64_t n = 0; n <= MOST; n++) {
            got[n] = 123;
            kvf__to_f32(SHORT_TYPES[_i], bytes + offset, got, n);
            ck_assert(got[n] == 123);
            for (int64_t i = 0; i < n; i++) {
                kvf__to_f32(SHORT_TYPES[_i], bytes + offset + 2 * i, &one, 1);
                ck_assert_uint_eq(bits_of(got[i]), bits_of(one));
            }
        }
    }
}
END_TEST

/* ---- block formats --------------------------------------------------------------------------- */

static const kvf__dtype BLOCK_TYPES[] = {KVF__Q4_0,   KVF__Q4_1,   KVF__Q5_0, KVF__Q5_1, KVF__Q8_0,
                                         KVF__Q4_K,   KVF__Q5_K,   KVF__Q6_K, KVF__Q2_K, KVF__Q3_K,
                                         KVF__IQ4_NL, KVF__IQ4_XS, KVF__MXFP4};
enum { N_BLOCK_TYPES = 13, GOLDEN_BLOCKS = 6, GOLDEN_HEAD = 64 };

START_TEST(dequant_equals_reference)
{
    FILE *file = fopen(ck_source("tests/golden/dequant.bin"), "rb");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fseek(file, GOLDEN_HEAD, SEEK_SET), 0);
    for (int i = 0; i <= _i; i++) {
        size_t n_bytes = GOLDEN_BLOCKS * kvf__dtype_block_bytes(BLOCK_TYPES[i]);
        size_t n = GOLDEN_BLOCKS * (size_t)kvf__dtype_block(BLOCK_TYPES[i]);
        uint8_t *blocks = malloc(n_bytes + 1);
        float *want = malloc(n * sizeof *want), *got = malloc(n * sizeof *got);
        ck_assert_uint_eq(fread(blocks + 1, 1, n_bytes, file), n_bytes);
        ck_assert_uint_eq(fread(want, sizeof *want, n, file), n);
        kvf__to_f32(BLOCK_TYPES[i], blocks + 1, got, (int64_t)n);
        for (size_t j = 0; j < n; j++)
            ck_assert_msg(bits_of(got[j]) == bits_of(want[j]), "%s [%zu] got %.9g want %.9g",
                          kvf__dtype_name(BLOCK_TYPES[i]), j, (double)got[j], (double)want[j]);
        free(blocks);
        free(want);
        free(got);
    }
    if (_i == N_BLOCK_TYPES - 1) ck_assert_int_eq(fgetc(file), EOF);
    fclose(file);
}
END_TEST

/* Largest error, as a share of the block's largest magnitude A: half of a step of a range of 2 A;
 * of Q4_0 and Q5_0 a step of A / 8 and A / 16, at the end that they cut. Scales of K types are
 * rounded up to 6 bits or 7, and smallest steps of f16 are 2^-24. Q8_0's 127 steps are found by the
 * scale before its rounding. */
static const struct {
    kvf__dtype dtype;
    double error;
} WRITTEN[] = {{KVF__F16, 1 / 2048.},
               {KVF__BF16, 1 / 256.},
               {KVF__Q4_0, 1 / 8.},
               {KVF__Q4_1, 1 / 15.},
               {KVF__Q5_0, 1 / 16.},
               {KVF__Q5_1, 1 / 31.},
               {KVF__Q8_0, 1 / 254. + 1 / 2048.},
               {KVF__Q4_K, 1.04 / 15},
               {KVF__Q5_K, 1.04 / 31},
               {KVF__Q6_K, 1.04 / 62}};
enum { N_WRITTEN = sizeof WRITTEN / sizeof WRITTEN[0], TRIES = 300 };

START_TEST(blocks_are_written_within_the_error_of_their_type)
{
    static const float SIZES[] = {1, 1e-3f, 1e-6f, 6e4f};
    const kvf__dtype dtype = WRITTEN[_i].dtype;
    const double finest = dtype == KVF__Q8_0 ? 127 * 0x1p-25 : 0x1p-24;
    const int n = 256, block = (int)kvf__dtype_block(dtype);
    uint8_t bytes[1024];
    float x[256], back[256];
    uint32_t state = 3;

    for (int try = 0; try < TRIES; try++) {
        const float size = SIZES[try % 4];
        for (int i = 0; i < n; i++) {
            state = state * 1664525u + 1013904223u;
            x[i] = size * ((float)(state >> 8) / (1 << 23) - 1); /* every part of another size */
            x[i] = try % 5 == 4 ? fabsf(x[i]) : ldexpf(x[i], -(i / 16 * (try % 5)) % 7);
        }
        kvf__from_f32(dtype, x, bytes, n);
        kvf__to_f32(dtype, bytes, back, n);
        for (int i = 0; i < n; i += block) {
            float largest = 0;
            for (int j = i; j < i + block; j++)
                largest = fmaxf(largest, fabsf(x[j]));
            for (int j = i; j < i + block; j++)
                ck_assert_msg(fabs((double)(back[j] - x[j])) <=
                                  1.002 * WRITTEN[_i].error * (double)largest + finest,
                              "%s, try %d: [%d] is %g, want %g, largest %g", kvf__dtype_name(dtype),
                              try, j, (double)back[j], (double)x[j], (double)largest);
        }
    }
    memset(x, 0, sizeof x);
    kvf__from_f32(dtype, x, bytes, n);
    kvf__to_f32(dtype, bytes, back, n);
    ck_assert_mem_eq(back, x, sizeof x);
    if (block == 1 || dtype == KVF__Q8_0) return;
    uint8_t tiny[1024]; /* values below the types' scales: the bytes of zeros */
    for (int i = 0; i < n; i++)
        x[i] = i % 3 ? 1e-30f : -2e-8f;
    kvf__from_f32(dtype, x, tiny, n);
    ck_assert_mem_eq(tiny, bytes, (size_t)(n / block) * kvf__dtype_block_bytes(dtype));
}
END_TEST

/* Sizes are those of ggml-common.h, in bits per weight. */
START_TEST(dtype_table)
{
    ck_assert_str_eq(kvf__dtype_name(KVF__F32), "f32");
    ck_assert_str_eq(kvf__dtype_name(KVF__OTHER), "other");
    ck_assert_int_eq(kvf__dtype_block(KVF__Q6_K), 256);
    ck_assert_uint_eq(kvf__dtype_block_bytes(KVF__Q6_K), 210);
    for (kvf__dtype t = KVF__F32; t <= KVF__OTHER; t++) {
        bool block = kvf__dtype_block(t) > 1;
        ck_assert(kvf__dtype_is_float(t) == (t <= KVF__F64 || block));
    }
}
END_TEST

/* ---- views and the table --------------------------------------------------------------------- */

START_TEST(views)
{
    char text[128];
    kvf__view view = {.dtype = KVF__Q4_1, .rank = 2, .dim = {3, 64}};
    int64_t long_shape[6] = {INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX};

    ck_assert_int_eq(kvf__view_count(&view), 192);
    ck_assert_uint_eq(kvf__view_bytes(&view), 6 * 20);
    view = (kvf__view){.dtype = KVF__I64};
    ck_assert_int_eq(kvf__view_count(&view), 1);
    ck_assert_uint_eq(kvf__view_bytes(&view), 8);
    view = (kvf__view){.dtype = KVF__OTHER, .rank = 1, .dim = {8}, .other_bytes = 4};
    ck_assert_uint_eq(kvf__view_bytes(&view), 4);
    ck_assert_str_eq(kvf__shape_text(text, 3, (int64_t[]){30, 2, 3}), "[30, 2, 3]");
    ck_assert_str_eq(kvf__shape_text(text, 0, NULL), "[]");
    ck_assert_uint_lt(strlen(kvf__shape_text(text, 6, long_shape)), 128);
}
END_TEST

START_TEST(table_keeps_order_and_finds)
{
    kvf__table table = {0};
    char name[16];

    ck_assert_ptr_null(kvf__table_find(&table, "t0"));
    for (int i = 0; i < 500; i++) {
        snprintf(name, sizeof name, "t%d", i);
        kvf__view view = {.rank = 1, .dim = {i}};
        ck_assert_int_eq(kvf__table_add(ctx, &table, name, view), KVF_OK);
    }
    ck_assert_uint_eq(table.n, 500);
    for (int i = 0; i < 500; i++) {
        snprintf(name, sizeof name, "t%d", i);
        ck_assert_str_eq(table.items[i].name, name);
        ck_assert_int_eq(kvf__table_find(&table, name)->dim[0], i);
    }
    ck_assert_ptr_null(kvf__table_find(&table, "t500"));
    ck_assert_int_eq(kvf__table_add(ctx, &table, "t7", (kvf__view){0}), KVF_EFORMAT);
    ck_assert_str_eq(kvf_ctx_error(ctx), "tensor \"t7\" occurs twice");
    ck_assert_uint_eq(table.n, 500);
    kvf__table_done(&table);
    kvf__table_done(&table); /* empty is fine */
}
END_TEST

START_TEST(table_survives_lack_of_memory)
{
    for (int64_t fail = 0;; fail++) {
        kvf__table table = {0};
        kvf__ctx_fail_allocation(ctx, fail);
        kvf_status st = kvf__table_add(ctx, &table, "a", (kvf__view){0});
        kvf__ctx_fail_allocation(ctx, -1);
        ck_assert(st == KVF_OK || st == KVF_ENOMEM);
        ck_assert((kvf__table_find(&table, "a") != NULL) == (st == KVF_OK));
        kvf__table_done(&table);
        if (st == KVF_OK) {
            ck_assert_int_gt(fail, 1);
            return;
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("dtype");

    TCase *core = ck_case(suite, "core", setup, teardown, 30);
    tcase_add_test(core, f16_is_read_exactly);
    tcase_add_test(core, bf16_is_read_exactly);
    tcase_add_loop_test(core, round_trip_keeps_every_value, 0, 2);
    tcase_add_loop_test(core, rounds_to_nearest_even, 0, 2);
    tcase_add_test(core, f32_and_f64);
    tcase_add_test(core, q8_0_is_written_as_the_reference_does);
    tcase_add_test(core, dtype_table);
    tcase_add_test(core, views);
    tcase_add_test(core, table_keeps_order_and_finds);

    tcase_add_loop_test(core, blocks_are_written_within_the_error_of_their_type, 0, N_WRITTEN);

    TCase *limits = ck_case(suite, "limits", setup, teardown, 30);
    tcase_add_test(limits, extremes);
    tcase_add_loop_test(limits, any_length_and_alignment, 0, 2);
    tcase_add_test(limits, table_survives_lack_of_memory);

    TCase *golden = ck_case(suite, "golden", setup, teardown, 30);
    tcase_add_loop_test(golden, dequant_equals_reference, 0, N_BLOCK_TYPES);
    return ck_main(suite);
}
