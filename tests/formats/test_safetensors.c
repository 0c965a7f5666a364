/* Tests of the safetensors reader and writer: the reference's test vectors, files of the reference
 * library, hostile files. Folders of shards: test_safetensors_dir.c. */
#include "ck.h"
#include "parse_copy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static kvf_ctx *ctx;

static void setup(void)
{
    ck_assert_int_eq(kvf_ctx_create(NULL, &ctx), KVF_OK);
}

static void teardown(void)
{
    kvf_ctx_free(ctx);
}

static kvf_status parse(const void *bytes, size_t n)
{
    return parse_copy(ctx, kvf__safetensors_parse, bytes, n);
}

/* A file with this header and `data` zero bytes. The caller frees it. */
static uint8_t *make_file(const char *header, size_t data, size_t *n)
{
    uint64_t header_n = strlen(header);
    *n = 8 + (size_t)header_n + data;
    uint8_t *bytes = calloc(1, *n);
    memcpy(bytes, &header_n, 8);
    memcpy(bytes + 8, header, (size_t)header_n);
    return bytes;
}

static kvf_status parse_header(const char *header, size_t data)
{
    size_t n;
    uint8_t *bytes = make_file(header, data, &n);
    kvf_status st = parse(bytes, n);
    free(bytes);
    return st;
}

#define I32_2X2 "{\"test\":{\"dtype\":\"I32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}"
#define ONE(dtype, shape, offsets)                                                                 \
    "{\"test\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
#define ALL_16(name) "\"" name "\":{\"dtype\":\"I32\",\"shape\":[2,2],\"data_offsets\":[0,16]}"

typedef struct vector {
    const char *header;
    size_t data;
} vector;

static const vector ACCEPTED[] = {
    {I32_2X2, 16},
    {"{}\r \t\n", 0},
    {"\t\n{}\r \t\n", 0},
    {ONE("I32", "[2,0]", "[0,0]"), 0},
    {ONE("I32", "[]", "[0,4]"), 4},
    {ONE("F32", "[1,1,1,1,1,2]", "[0,8]"), 8},
    {ONE("F4", "[3,2]", "[0,3]"), 3},
    {ONE("F6_E2M3", "[4]", "[0,3]"), 3},
    {ONE("F8_E4M3", "[4]", "[0,4]"), 4},
    {ONE("C64", "[2]", "[0,16]"), 16},
    {"{\"__metadata__\":null}", 0},
    {"{\"__metadata__\":{\"a\":\"b\",\"nul\":\"\\u0000\"}}", 0},
    {"{\"t\":{\"extra\":[1.5,{}],\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1},
    /* not in the order of the data; an empty tensor at a boundary */
    {"{\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[3,5]},"
     "\"e\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[3,3]},"
     "\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}",
     5},
};

START_TEST(accepts)
{
    kvf_status st = parse_header(ACCEPTED[_i].header, ACCEPTED[_i].data);
    ck_assert_msg(st == KVF_OK, "%s: %s", ACCEPTED[_i].header, kvf_ctx_error(ctx));
}
END_TEST

static const vector REJECTED[] = {
    {I32_2X2, 17},
    {I32_2X2, 14},
    {"{}", 1},
    {"", 0},
    {"{", 0},
    {"\xff", 0},
    {"\xef\xbb\xbf{}", 0},
    {"[]", 0},
    {"{} {}", 0},
    {"{},", 0},
    {ONE("I32", "[2,2]", "[0,4]"), 4},
    {ONE("I32", "[2,18446744073709551614]", "[0,16]"), 16},
    {ONE("I32", "[2,9223372036854775807]", "[0,16]"), 16},
    {ONE("I32", "[9223372036854775807,9223372036854775807,0]", "[0,0]"), 0},
    {ONE("I32", "[2,2]", "[0,18446744073709551615]"), 16},
    {ONE("I32", "[2,2]", "[18446744073709551600,18446744073709551616]"), 16},
    {ONE("I32", "[2,2]", "[0,9223372036854775807]"), 16},
    {ONE("I32", "[2,2]", "[16,0]"), 16},
    {ONE("I32", "[0]", "[4,4]"), 4},
    {ONE("I32", "[2,2]", "[4,20]"), 20},
    {ONE("I32", "[2,2]", "[0,16,16]"), 16},
    {ONE("I32", "[2,2]", "[16]"), 16},
    {ONE("I32", "[2,2]", "[0.0,16]"), 16},
    {ONE("I32", "[2,2]", "[0,1.6e1]"), 16},
    {ONE("I32", "[2,2]", "[-0,16]"), 16},
    {ONE("I32", "[-2,-2]", "[0,16]"), 16},
    {ONE("I32", "[2.0,2]", "[0,16]"), 16},
    {ONE("I32", "[\"2\",2]", "[0,16]"), 16},
    {ONE("I32", "[02,2]", "[0,16]"), 16},
    {ONE("I32", "[2,2,]", "[0,16]"), 16},
    {ONE("I32", "4", "[0,16]"), 16},
    {ONE("I33", "[2,2]", "[0,16]"), 16},
    {ONE("i32", "[2,2]", "[0,16]"), 16},
    {ONE("", "[2,2]", "[0,16]"), 16},
    {ONE("I32\\u0000", "[2,2]", "[0,16]"), 16},
    {ONE("F4", "[3]", "[0,1]"), 1}, /* 12 bits are not whole bytes */
    {ONE("F4", "[3]", "[0,2]"), 2},
    {ONE("F32", "[1,1,1,1,1,1,1]", "[0,4]"), 4}, /* kvfold's own limit: at most 6 dimensions */
    {"{\"t\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1},
    {"{\"t\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1},
    {"{\"t\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1},
    {"{\"t\":{\"dtype\":8,\"shape\":[1],\"data_offsets\":[0,1]}}", 1},
    {"{\"t\":[]}", 0},
    {"{\"t\":null}", 0},
    {"{\"__metadata__\":{\"a\":1}}", 0},
    {"{\"__metadata__\":{\"a\":null}}", 0},
    {"{\"__metadata__\":[]}", 0},
    {"{\"__metadata__\":\"pt\"}", 0},
    /* duplicates: a tensor, a field, metadata, a key in metadata */
    {"{" ALL_16("a") "," ALL_16("a") "}", 16},
    {"{\"t\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0},
    {"{\"__metadata__\":{\"a\":\"b\",\"a\":\"b\"}}", 0},
    /* the same bytes */
    {"{" ALL_16("0") "," ALL_16("1") "," ALL_16("2") "," ALL_16("3") "," ALL_16("4") "," ALL_16(
         "5") "," ALL_16("6") "," ALL_16("7") "," ALL_16("8") "," ALL_16("9") "}",
     16},
    /* partial overlap, gap */
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[2,5]}}",
     5},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[4,5]}}",
     5},
    {"{\"lone\\ud800\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1},
    {"{\"control\x01\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1},
};

START_TEST(rejects)
{
    kvf_status st = parse_header(REJECTED[_i].header, REJECTED[_i].data);
    ck_assert_msg(st == KVF_EFORMAT || st == KVF_EUNSUPPORTED, "%s: %s", REJECTED[_i].header,
                  kvf_status_name(st));
    ck_assert_msg(!strncmp(kvf_ctx_error(ctx), "mem", 3), "%s", kvf_ctx_error(ctx));
}
END_TEST

START_TEST(rejects_lengths)
{
    static const uint8_t long_header[] = {0x3c, 0, 0, 0, 0, 0, 0xff, 0xff, '{', '}'};
    static const uint8_t only_length[] = {0x3c, 0, 0, 0, 0, 0, 0, 0};
    static const uint8_t above_limit[] = {0x01, 0xe1, 0xf5, 0x05, 0, 0, 0, 0, '{', '}'};
    static const uint8_t nul_after[] = {3, 0, 0, 0, 0, 0, 0, 0, '{', '}', 0};

    ck_assert_int_eq(parse("", 0), KVF_EFORMAT);
    ck_assert_int_eq(parse(only_length, sizeof only_length), KVF_EFORMAT);
    ck_assert_int_eq(parse(long_header, sizeof long_header), KVF_EFORMAT);
    ck_assert_int_eq(parse(above_limit, sizeof above_limit), KVF_EFORMAT);
    ck_assert_int_eq(parse(nul_after, sizeof nul_after), KVF_EFORMAT);
}
END_TEST

START_TEST(error_lines_say_what_and_where)
{
    parse_header(ONE("I32", "[2,2]", "[0,4]"), 4);
    ck_assert_str_eq(kvf_ctx_error(ctx),
                     "mem: tensor \"test\": 4 bytes of data do not match I32 of shape [2, 2]");
    parse_header(I32_2X2, 14);
    ck_assert_str_eq(kvf_ctx_error(ctx),
                     "mem: tensor \"test\": ends at byte 16 of the data, which has "
                     "14 (truncated?)");
}
END_TEST

/* ---- the reference library's file ------------------------------------------------------------ */

static kvf__buf golden_bytes(void)
{
    kvf__buf bytes = {0};
    const char *path = ck_source("tests/golden/foreign.safetensors");
    ck_assert_int_eq(kvf__read_file(ctx, path, 1 << 20, &bytes), KVF_OK);
    return bytes;
}

START_TEST(reads_foreign_file)
{
    static const float counting[] = {0, 1, 2, 3, 4, 5};
    kvf__weights w = {0};
    const kvf__view *view;
    float values[8];

    ck_assert_int_eq(kvf__safetensors_open(ctx, ck_source("tests/golden/foreign.safetensors"), &w),
                     KVF_OK);
    ck_assert_uint_eq(w.table.n, 14);
    ck_assert_str_eq(kvf_json_str(kvf_json_get(w.meta, "format"), NULL), "pt");
    ck_assert_str_eq(w.table.items[0].name, "d.i64");

    view = kvf__table_find(&w.table, "zeta.f32");
    ck_assert(view->dtype == KVF__F32 && view->rank == 2 && view->dim[0] == 2 && view->dim[1] == 3);
    ck_assert_int_eq(memcmp(view->data, counting, sizeof counting), 0);
    view = kvf__table_find(&w.table, "b.bf16");
    kvf__to_f32(view->dtype, view->data, values, kvf__view_count(view));
    ck_close(values, counting, 5, 0, 0);
    view = kvf__table_find(&w.table, "c.f64");
    kvf__to_f32(view->dtype, view->data, values, kvf__view_count(view));
    ck_close(values, counting, 4, 0, 0);
    view = kvf__table_find(&w.table, "b.f16");
    kvf__to_f32(view->dtype, view->data, values, kvf__view_count(view));
    ck_close(values, counting, 6, 0, 0);
    ck_assert(view->rank == 3 && view->dim[1] == 1);
    view = kvf__table_find(&w.table, "a scalar");
    ck_assert(view->rank == 0 && kvf__view_count(view) == 1);
    view = kvf__table_find(&w.table, "empty");
    ck_assert(view->rank == 2 && kvf__view_bytes(view) == 0);
    ck_assert_ptr_nonnull(kvf__table_find(
        &w.table, "quote\" back\\slash tab\t bell\x07 umlaut \xc3\xa4 / \xe2\x98\x83"));
    kvf__weights_close(&w);
    kvf__weights_close(&w); /* empty is fine */
}
END_TEST

/* The writer makes the reference's bytes from its tensors in any order. Hence reading and writing
 * again is exact, and the reference can read the result. */
START_TEST(writes_the_same_bytes_as_the_reference)
{
    kvf__weights w = {0};
    kvf__buf want = golden_bytes(), got = {0};
    char path[4096];

    snprintf(path, sizeof path, "%s/out.safetensors", ck_tmpdir());
    ck_assert_int_eq(kvf__safetensors_open(ctx, ck_source("tests/golden/foreign.safetensors"), &w),
                     KVF_OK);
    for (size_t i = 0; i < w.table.n / 2; i++) { /* reversed: the order must not matter */
        kvf__tensor swap = w.table.items[i];
        w.table.items[i] = w.table.items[w.table.n - 1 - i];
        w.table.items[w.table.n - 1 - i] = swap;
    }
    ck_assert_int_eq(kvf__safetensors_write(ctx, path, false, w.table.items, w.table.n), KVF_OK);
    ck_assert_int_eq(kvf__read_file(ctx, path, 1 << 20, &got), KVF_OK);
    ck_assert_uint_eq(got.n, want.n);
    ck_assert_int_eq(memcmp(got.data, want.data, want.n), 0);

    ck_assert_int_eq(kvf__safetensors_write(ctx, path, false, w.table.items, w.table.n),
                     KVF_EEXIST);
    ck_assert_int_eq(kvf__safetensors_write(ctx, path, true, w.table.items, 0), KVF_OK);
    kvf__weights_close(&w);
    ck_assert_int_eq(kvf__safetensors_open(ctx, path, &w), KVF_OK);
    ck_assert_uint_eq(w.table.n, 0);
    kvf__weights_close(&w);
    kvf__buf_done(&got);
    kvf__buf_done(&want);
}
END_TEST

START_TEST(writer_refuses)
{
    static const float values[32];
    char path[4096];
    kvf__view view = {.data = values, .dtype = KVF__F32, .rank = 1, .dim = {2}};
    kvf__view packed = {.data = values, .dtype = KVF__Q8_0, .rank = 1, .dim = {32}};
    kvf__tensor twice[] = {{"a", view}, {"a", view}};
    kvf__tensor not_utf8 = {"\xff", view}, reserved = {"__metadata__", view};
    kvf__tensor quantised = {"q", packed};

    snprintf(path, sizeof path, "%s/out.safetensors", ck_tmpdir());
    ck_assert_int_eq(kvf__safetensors_write(ctx, path, false, twice, 2), KVF_EFORMAT);
    ck_assert_int_eq(kvf__safetensors_write(ctx, path, false, &not_utf8, 1), KVF_EFORMAT);
    ck_assert_int_eq(kvf__safetensors_write(ctx, path, false, &reserved, 1), KVF_EFORMAT);
    ck_assert_int_eq(kvf__safetensors_write(ctx, path, false, &quantised, 1), KVF_EUNSUPPORTED);
    ck_assert(!kvf__exists(path));
    ck_assert_int_eq(kvf__safetensors_write(ctx, "/nowhere/x.safetensors", false, twice, 1),
                     KVF_EIO);
}
END_TEST

START_TEST(other_types_are_listed_with_their_size)
{
    kvf__weights w = {0};
    size_t n;
    uint8_t *bytes = make_file(ONE("F8_E5M2", "[4,2]", "[0,8]"), 8, &n);

    ck_assert_int_eq(kvf__safetensors_parse(ctx, "mem", bytes, n, &w), KVF_OK);
    const kvf__view *view = kvf__table_find(&w.table, "test");
    ck_assert(view->dtype == KVF__OTHER && view->dim[0] == 4);
    ck_assert_uint_eq(kvf__view_bytes(view), 8);
    ck_assert_str_eq(view->other_name, "F8_E5M2");
    kvf__weights_close(&w);
    free(bytes);
}
END_TEST

/* ---- damaged files --------------------------------------------------------------------------- */

START_TEST(truncated_at_every_byte)
{
    kvf__buf bytes = golden_bytes();
    for (size_t n = 0; n < bytes.n; n++)
        ck_assert_msg(parse(bytes.data, n) == KVF_EFORMAT, "cut to %zu bytes", n);
    ck_assert_int_eq(parse(bytes.data, bytes.n), KVF_OK);
    kvf__buf_done(&bytes);
}
END_TEST

/* Flips every bit of length and header: refused or read, never out of bounds. */
START_TEST(every_bit_flipped)
{
    kvf__buf bytes = golden_bytes();
    int refused = 0, read = 0;

    for (size_t bit = 0; bit < 8 * bytes.n; bit++) {
        bytes.data[bit / 8] ^= (char)(1 << bit % 8);
        kvf_status st = parse(bytes.data, bytes.n);
        ck_assert(st == KVF_OK || st == KVF_EFORMAT || st == KVF_EUNSUPPORTED);
        *(st ? &refused : &read) += 1;
        bytes.data[bit / 8] ^= (char)(1 << bit % 8);
    }
    ck_assert_int_gt(refused, read); /* only names and data may pass */
    kvf__buf_done(&bytes);
}
END_TEST

START_TEST(writer_lacks_memory)
{
    char path[4096];
    kvf__weights w = {0};
    kvf_status st = KVF_ENOMEM;

    snprintf(path, sizeof path, "%s/out.safetensors", ck_tmpdir());
    ck_assert_int_eq(kvf__safetensors_open(ctx, ck_source("tests/golden/foreign.safetensors"), &w),
                     KVF_OK);
    for (int64_t fail = 0; st == KVF_ENOMEM; fail++) {
        ck_assert(!kvf__exists(path));
        kvf__ctx_fail_allocation(ctx, fail);
        st = kvf__safetensors_write(ctx, path, false, w.table.items, w.table.n);
        kvf__ctx_fail_allocation(ctx, -1);
        ck_assert(st == KVF_OK || st == KVF_ENOMEM);
        ck_assert(fail > 2 || st == KVF_ENOMEM);
    }
    kvf__weights_close(&w);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("safetensors");

    TCase *core = ck_case(suite, "core", setup, teardown, 30);
    tcase_add_loop_test(core, accepts, 0, sizeof ACCEPTED / sizeof ACCEPTED[0]);
    tcase_add_test(core, other_types_are_listed_with_their_size);

    TCase *errors = ck_case(suite, "errors", setup, teardown, 30);
    tcase_add_loop_test(errors, rejects, 0, sizeof REJECTED / sizeof REJECTED[0]);
    tcase_add_test(errors, rejects_lengths);
    tcase_add_test(errors, error_lines_say_what_and_where);
    tcase_add_test(errors, writer_refuses);

    TCase *limits = ck_case(suite, "limits", setup, teardown, 30);
    tcase_add_test(limits, truncated_at_every_byte);
    tcase_add_test(limits, every_bit_flipped);
    tcase_add_test(limits, writer_lacks_memory);

    TCase *golden = ck_case(suite, "golden", setup, teardown, 30);
    tcase_add_test(golden, reads_foreign_file);
    tcase_add_test(golden, writes_the_same_bytes_as_the_reference);
    return ck_main(suite);
}
