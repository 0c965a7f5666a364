/* Tests of the GGUF reader against files built here, each with a single error. */
#include "ck.h"
#include "parse_copy.h"

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
    return parse_copy(ctx, kvf__gguf_parse, bytes, n);
}

typedef struct maker {
    kvf__buf b;
} maker;

static void put(maker *m, const void *bytes, size_t n)
{
    ck_assert_int_eq(kvf__buf_add(ctx, &m->b, bytes, n), KVF_OK);
}

static void put_u32(maker *m, uint32_t v)
{
    put(m, &v, sizeof v);
}

static void put_u64(maker *m, uint64_t v)
{
    put(m, &v, sizeof v);
}

static void put_text(maker *m, const char *text)
{
    put_u64(m, strlen(text));
    put(m, text, strlen(text));
}

static maker start(uint32_t version, uint64_t n_tensors, uint64_t n_kv)
{
    maker m = {0};
    put(&m, "GGUF", 4);
    put_u32(&m, version);
    put_u64(&m, n_tensors);
    put_u64(&m, n_kv);
    return m;
}

static void put_key(maker *m, const char *key, uint32_t type)
{
    put_text(m, key);
    put_u32(m, type);
}

static void put_info(maker *m, const char *name, uint32_t rank, const uint64_t *ne, uint32_t type,
                     uint64_t offset)
{
    put_text(m, name);
    put_u32(m, rank);
    for (uint32_t i = 0; i < rank && i < 5; i++)
        put_u64(m, ne[i]);
    put_u32(m, type);
    put_u64(m, offset);
}

/* Pads to the alignment, then appends zeros. */
static void put_data(maker *m, size_t alignment, size_t n)
{
    while (m->b.n % alignment)
        put(m, "", 1);
    for (size_t i = 0; i < n; i++)
        put(m, "", 1);
}

/* Ends the file and parses it; expects the status and the words in the error line. */
static void expect(maker *m, kvf_status want, const char *words)
{
    kvf_status st = parse(m->b.data, m->b.n);
    ck_assert_msg(st == want, "want \"%s\", got %s: %s", words, kvf_status_name(st),
                  kvf_ctx_error(ctx));
    if (st) ck_assert_msg(strstr(kvf_ctx_error(ctx), words), "%s", kvf_ctx_error(ctx));
    if (st) ck_assert_msg(!strncmp(kvf_ctx_error(ctx), "mem: ", 5), "%s", kvf_ctx_error(ctx));
    kvf__buf_done(&m->b);
}

static void expect_tensor(uint32_t rank, const uint64_t *ne, uint32_t type, uint64_t offset,
                          size_t data, kvf_status want, const char *words)
{
    maker m = start(3, 1, 0);
    put_info(&m, "t", rank, ne, type, offset);
    put_data(&m, 32, data);
    expect(&m, want, words);
}

static void expect_scalar(const char *key, uint32_t type, const void *value, size_t n,
                          kvf_status want, const char *words)
{
    maker m = start(3, 0, 1);
    put_key(&m, key, type);
    put(&m, value, n);
    put(&m, "\0\0\0\0\0\0\0", 8);
    expect(&m, want, words);
}

START_TEST(frames)
{
    maker m = start(3, 0, 0);
    expect(&m, KVF_OK, "");
    m = start(2, 0, 0);
    expect(&m, KVF_OK, "");
    m = start(1, 0, 0);
    expect(&m, KVF_EUNSUPPORTED, "version 1");
    m = start(0, 0, 0);
    expect(&m, KVF_EUNSUPPORTED, "version 0");
    m = start(4, 0, 0);
    expect(&m, KVF_EUNSUPPORTED, "version 4");
    m = start(0x03000000, 0, 0);
    expect(&m, KVF_EUNSUPPORTED, "big-endian");
    m = start(3, UINT64_MAX, 0);
    expect(&m, KVF_EFORMAT, "claims 18446744073709551615 tensors, but has only 0 bytes");
    m = start(3, 65537, 0);
    for (int i = 0; i < 65537 * 3; i++) /* 24 bytes each */
        put_u64(&m, 0);
    expect(&m, KVF_EFORMAT, "65537 tensors, want at most 65536");
    m = start(3, 0, UINT64_C(1) << 60);
    expect(&m, KVF_EFORMAT, "metadata keys, but has only 0 bytes");
    m = start(3, 0, 1);
    put_data(&m, 1, 13);
    expect(&m, KVF_EFORMAT, "claims 1 metadata keys, but has only 13 bytes");
    ck_assert_int_eq(parse("GGUG\3\0\0\0", 8), KVF_EFORMAT);
    ck_assert_int_eq(parse("", 0), KVF_EFORMAT);
}
END_TEST

START_TEST(hostile_metadata)
{
    static const uint64_t huge = UINT64_MAX, gigabyte = UINT64_C(1) << 30;
    static const uint32_t three = 3, zero = 0, sixteen = 16;
    static const uint8_t two16[] = {2, 0}, one16[] = {1, 0};
    maker m;

    expect_scalar("k", 13, "", 0, KVF_EFORMAT, "unknown type 13");
    expect_scalar("k", 8, &huge, 8, KVF_EFORMAT, "text is longer");
    expect_scalar("k", 8, &gigabyte, 8, KVF_EFORMAT, "text is longer");
    expect_scalar("", 0, "\1\1", 2, KVF_EFORMAT, "name is empty");
    expect_scalar("k\xc3\xa4", 0, "", 0, KVF_EFORMAT, "not ASCII");
    expect_scalar("general.alignment", 4, &three, 4, KVF_EFORMAT, "power of two");
    expect_scalar("general.alignment", 4, &zero, 4, KVF_EFORMAT, "power of two");
    expect_scalar("general.alignment", 5, &sixteen, 4, KVF_EFORMAT, "u32");
    expect_scalar("general.alignment", 4, &sixteen, 4, KVF_OK, "");
    expect_scalar("split.count", 2, two16, 2, KVF_EUNSUPPORTED, "part 1 of 2");
    expect_scalar("split.count", 2, one16, 2, KVF_OK, "");

    m = start(3, 0, 1);
    put_u64(&m, huge); /* length of the key */
    put_data(&m, 1, 32);
    expect(&m, KVF_EFORMAT, "ends inside the name of metadata key 1 of 1");
    m = start(3, 0, 2);
    put_key(&m, "same", 0);
    put(&m, "\1", 1);
    put_key(&m, "same", 0);
    put(&m, "\1", 1);
    expect(&m, KVF_EFORMAT, "\"same\": occurs twice");
    m = start(3, 0, 1); /* not UTF-8, and a NUL: both are made printable */
    put_key(&m, "k", 8);
    put_u64(&m, 3);
    put(&m, "\xff\0x", 3);
    expect(&m, KVF_OK, "");
}
END_TEST

static void expect_array(uint32_t type, uint64_t count, size_t data, kvf_status want,
                         const char *words)
{
    maker m = start(3, 0, 1);
    put_key(&m, "k", 9);
    put_u32(&m, type);
    put_u64(&m, count);
    put_data(&m, 1, data);
    expect(&m, want, words);
}

START_TEST(hostile_arrays)
{
    expect_array(4, 3, 12, KVF_OK, "");
    expect_array(0, 0, 0, KVF_OK, "");
    expect_array(8, 2, 16, KVF_OK, ""); /* two empty texts */
    expect_array(4, 3, 11, KVF_EFORMAT, "longer than the rest");
    expect_array(4, UINT64_MAX, 12, KVF_EFORMAT, "longer than the rest");
    expect_array(12, UINT64_C(1) << 61, 64, KVF_EFORMAT, "longer than the rest");
    expect_array(8, 3, 16, KVF_EFORMAT, "longer than the rest");
    expect_array(9, 1, 64, KVF_EUNSUPPORTED, "array of arrays");
    expect_array(13, 1, 64, KVF_EFORMAT, "unknown type");
}
END_TEST

START_TEST(array_texts_are_checked)
{
    maker m = start(3, 0, 1);
    put_key(&m, "k", 9);
    put_u32(&m, 8);
    put_u64(&m, 2);
    put_text(&m, "fine");
    put_u64(&m, 5); /* one more than remain */
    put(&m, "four", 4);
    expect(&m, KVF_EFORMAT, "ends inside its array");
}
END_TEST

START_TEST(ints_that_do_not_fit)
{
    kvf__weights w = {0};
    int32_t *ints = NULL;
    int64_t n = 77;
    maker m = start(3, 0, 2);

    put_key(&m, "wide", 9);
    put_u32(&m, 10);
    put_u64(&m, 2);
    put_u64(&m, INT32_MAX);
    put_u64(&m, (uint64_t)INT32_MAX + 1);
    put_key(&m, "fits", 9);
    put_u32(&m, 11);
    put_u64(&m, 1);
    put_u64(&m, (uint64_t)(int64_t)INT32_MIN);
    ck_assert_int_eq(kvf__gguf_parse(ctx, "mem", m.b.data, m.b.n, &w), KVF_OK);
    ck_assert_int_eq(kvf__gguf_ints(ctx, &w, "wide", &ints, &n), KVF_EFORMAT);
    ck_assert(!ints && n == 77);
    ck_assert_int_eq(kvf__gguf_ints(ctx, &w, "fits", &ints, &n), KVF_OK);
    ck_assert(n == 1 && ints[0] == INT32_MIN);
    kvf__free(ints);
    kvf__weights_close(&w);
    kvf__buf_done(&m.b);
}
END_TEST

START_TEST(tensor_shapes)
{
    static const uint64_t four[] = {4}, none[] = {0, 5}, negative[] = {UINT64_C(1) << 63},
                          wide[] = {UINT64_C(1) << 32, UINT64_C(1) << 31},
                          bytes[] = {UINT64_C(1) << 62}, ones[] = {1, 1, 1, 1, 1},
                          block[] = {32, 1}, part[] = {31, 32},
                          hidden[] = {0, UINT64_C(1) << 40, UINT64_C(1) << 40};

    expect_tensor(1, four, 0, 0, 16, KVF_OK, "");
    expect_tensor(1, four, 0, 0, 15, KVF_EFORMAT, "truncated");
    expect_tensor(1, four, 0, 0, 0, KVF_EFORMAT, "truncated");
    expect_tensor(0, NULL, 0, 0, 4, KVF_OK, "");
    expect_tensor(2, none, 0, 0, 0, KVF_OK, "");
    expect_tensor(5, ones, 0, 0, 4, KVF_EFORMAT, "5 dimensions");
    expect_tensor(UINT32_MAX, ones, 0, 0, 4, KVF_EFORMAT, "dimensions");
    expect_tensor(1, negative, 0, 0, 64, KVF_EFORMAT, "negative");
    expect_tensor(2, wide, 24, 0, 64, KVF_EFORMAT, "too large");
    expect_tensor(1, bytes, 0, 0, 64, KVF_EFORMAT, "too large");
    expect_tensor(3, hidden, 0, 0, 64, KVF_EFORMAT, "too large");
    expect_tensor(2, block, 2, 0, 18, KVF_OK, "");
    expect_tensor(2, block, 2, 0, 17, KVF_EFORMAT, "truncated");
    expect_tensor(2, part, 2, 0, 999, KVF_EFORMAT, "whole blocks");
    expect_tensor(0, NULL, 2, 0, 999, KVF_EFORMAT, "whole blocks");
    expect_tensor(2, block, 39, 0, 17, KVF_OK, "");
    expect_tensor(1, four, 0, 32, 64, KVF_EFORMAT, "begins at byte 32 of the data, expected 0");
    expect_tensor(1, four, 0, UINT64_MAX, 64, KVF_EFORMAT, "expected 0");
}
END_TEST

static const uint32_t UNKNOWN_TYPES[] = {4, 5, 31, 32, 33, 36, 37, 38, 42, 99, UINT32_MAX};
enum { N_UNKNOWN_TYPES = sizeof UNKNOWN_TYPES / sizeof UNKNOWN_TYPES[0] };

START_TEST(unknown_types)
{
    static const uint64_t ne[] = {256};
    expect_tensor(1, ne, UNKNOWN_TYPES[_i], 0, 4096, KVF_EFORMAT, "unknown type");
}
END_TEST

/* Two tensors of 16 bytes; the second in its place, over the first, or after a gap. */
START_TEST(offsets_in_sequence)
{
    static const uint64_t ne[] = {4};
    static const struct {
        uint64_t offset;
        size_t data;
        kvf_status want;
        const char *words;
    } ROWS[] = {{32, 48, KVF_OK, ""},
                {32, 47, KVF_EFORMAT, "truncated"},
                {16, 64, KVF_EFORMAT, "expected 32"},
                {0, 64, KVF_EFORMAT, "expected 32"},
                {64, 128, KVF_EFORMAT, "expected 32"}};
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        maker m = start(3, 2, 0);
        put_info(&m, "a", 1, ne, 0, 0);
        put_info(&m, "b", 1, ne, 0, ROWS[i].offset);
        put_data(&m, 32, ROWS[i].data);
        expect(&m, ROWS[i].want, ROWS[i].words);
    }
}
END_TEST

START_TEST(alignment_moves_the_data)
{
    static const uint64_t ne[] = {1};
    kvf__weights w = {0};
    maker m = start(3, 2, 1);

    put_key(&m, "general.alignment", 4);
    put_u32(&m, 128);
    put_info(&m, "a", 1, ne, 0, 0);
    put_info(&m, "b", 1, ne, 0, 128);
    put_data(&m, 128, 132);
    ck_assert_int_eq(kvf__gguf_parse(ctx, "mem", m.b.data, m.b.n, &w), KVF_OK);
    ck_assert(kvf__table_find(&w.table, "b")->data == m.b.data + 256);
    kvf__weights_close(&w);
    kvf__buf_done(&m.b);

    m = start(3, 1, 1); /* an alignment beyond the file */
    put_key(&m, "general.alignment", 4);
    put_u32(&m, UINT32_C(1) << 31);
    put_info(&m, "a", 1, ne, 0, 0);
    put_data(&m, 32, 64);
    expect(&m, KVF_EFORMAT, "truncated");
}
END_TEST

START_TEST(tensor_names)
{
    static const uint64_t ne[] = {1};
    char name[65];
    maker m = start(3, 1, 0);

    memset(name, 'n', sizeof name);
    name[63] = '\0';
    put_info(&m, name, 1, ne, 0, 0);
    put_data(&m, 32, 4);
    expect(&m, KVF_OK, "");

    memcpy(name + 63, "n", 2);
    m = start(3, 1, 0);
    put_info(&m, name, 1, ne, 0, 0);
    put_data(&m, 32, 4);
    expect(&m, KVF_EFORMAT, "name of 64 bytes");

    m = start(3, 1, 0);
    put_u64(&m, 2);
    put(&m, "a\0", 2);
    put_data(&m, 1, 64);
    expect(&m, KVF_EFORMAT, "NUL");

    m = start(3, 1, 0);
    put_u64(&m, UINT64_MAX);
    put_data(&m, 1, 64);
    expect(&m, KVF_EFORMAT, "ends inside the name of tensor 1 of 1");

    m = start(3, 2, 0);
    put_info(&m, "same", 1, ne, 0, 0);
    put_info(&m, "same", 1, ne, 0, 32);
    put_data(&m, 32, 64);
    expect(&m, KVF_EFORMAT, "\"same\" occurs twice");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gguf_bad");

    TCase *errors = ck_case(suite, "errors", setup, teardown, 30);
    tcase_add_test(errors, frames);
    tcase_add_test(errors, hostile_metadata);
    tcase_add_test(errors, hostile_arrays);
    tcase_add_test(errors, array_texts_are_checked);
    tcase_add_test(errors, ints_that_do_not_fit);
    tcase_add_test(errors, tensor_shapes);
    tcase_add_loop_test(errors, unknown_types, 0, N_UNKNOWN_TYPES);
    tcase_add_test(errors, offsets_in_sequence);
    tcase_add_test(errors, alignment_moves_the_data);
    tcase_add_test(errors, tensor_names);
    return ck_main(suite);
}
