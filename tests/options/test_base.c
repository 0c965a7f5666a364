/* Tests of src/base: status lines, the context, the reader, fingerprints. */
#include "base_int.h"
#include "ck.h"
#include "hash.h"
#include "infile.h"
#include "method.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

static kvf_ctx *ctx;

static void setup(void)
{
    unsetenv("KVF_CPU");
    ck_assert_int_eq(kvf_ctx_create(NULL, &ctx), KVF_OK);
}

static void teardown(void)
{
    kvf_ctx_free(ctx);
    ctx = NULL;
}

/* ---- status and context ---------------------------------------------------------------------- */

START_TEST(status_names)
{
    ck_assert_str_eq(kvf_status_name(KVF_OK), "OK");
    ck_assert_str_eq(kvf_status_name(KVF_EFORMAT), "EFORMAT");
    ck_assert_str_eq(kvf_status_text(KVF_EFORMAT), "malformed file");
    ck_assert_str_eq(kvf_status_text(KVF_EINTERNAL), "internal error");
    ck_assert_str_eq(kvf_status_name((kvf_status)12345), "?");
    ck_assert_str_eq(kvf_status_text((kvf_status)-1), "?");
}
END_TEST

START_TEST(error_lines)
{
    ck_assert_str_eq(kvf_ctx_error(ctx), "");
    ck_assert_int_eq(kvf__fail(ctx, KVF_ESHAPE, "wk is [%d]", 7), KVF_ESHAPE);
    ck_assert_str_eq(kvf_ctx_error(ctx), "wk is [7]");
    ck_assert_int_eq(kvf__fail_prefix(ctx, KVF_EIO, "block %d", 3), KVF_EIO);
    ck_assert_str_eq(kvf_ctx_error(ctx), "block 3: wk is [7]");
    /* the line may be an argument of its own replacement */
    kvf__fail(ctx, KVF_EIO, "again: %s", kvf_ctx_error(ctx));
    ck_assert_str_eq(kvf_ctx_error(ctx), "again: block 3: wk is [7]");
}
END_TEST

/* Text from a hostile file must not control a terminal or fake a second line. */
START_TEST(error_line_is_one_clean_line)
{
    kvf__fail(ctx, KVF_EFORMAT, "%s", "a\nb\tc\x1b[31md\x7f");
    ck_assert_str_eq(kvf_ctx_error(ctx), "a b c?[31md?");
}
END_TEST

START_TEST(error_line_is_cut_at_a_character)
{
    char text[4000];
    const char *line;
    size_t n;

    for (size_t shift = 0; shift < 2; shift++) { /* the cut falls on a sequence and inside one */
        memset(text, 'x', shift);
        for (size_t i = shift; i + 2 < sizeof text; i += 2)
            memcpy(text + i, "\xc3\xa9", 3);
        kvf__fail(ctx, KVF_EFORMAT, "%s", text);
        line = kvf_ctx_error(ctx);
        n = strlen(line);
        ck_assert_uint_lt(n, 2048);
        ck_assert_uint_gt(n, 2000);
        ck_assert_str_eq(line + n - 3, "...");
        ck_assert_uint_eq((unsigned char)line[n - 4], 0xa9);
    }
}
END_TEST

START_TEST(fail_without_context)
{
    ck_assert_int_eq(kvf__fail(NULL, KVF_EIO, "%s", "x"), KVF_EIO);
    ck_assert_int_eq(kvf__fail_prefix(NULL, KVF_EIO, "%s", "x"), KVF_EIO);
    kvf__log(NULL, KVF_LOG_INFO, "%s", "x");
    ck_assert_str_eq(kvf_ctx_error(NULL), "");
    kvf_ctx_free(NULL);
}
END_TEST

typedef struct heard {
    int n;
    kvf_log_level level;
    char line[256];
} heard;

static void hear(void *user, kvf_log_level level, const char *line)
{
    heard *h = user;
    h->n++;
    h->level = level;
    snprintf(h->line, sizeof h->line, "%s", line);
}

START_TEST(log_goes_to_the_sink)
{
    heard h = {0};
    kvf_ctx_options options = {.log = hear, .log_user = &h};
    kvf_ctx *loud = NULL;

    ck_assert_int_eq(kvf_ctx_create(&options, &loud), KVF_OK);
    kvf__log(loud, KVF_LOG_DEBUG, "step %d", 4);
    ck_assert_int_eq(h.n, 1);
    ck_assert_int_eq(h.level, KVF_LOG_DEBUG);
    ck_assert_str_eq(h.line, "step 4");
    kvf__log(ctx, KVF_LOG_WARN, "nobody listens");
    ck_assert_int_eq(h.n, 1);
    kvf_ctx_free(loud);
}
END_TEST

START_TEST(threads)
{
    kvf_ctx_options options = {.threads = 3};
    kvf_ctx *three = NULL;

    ck_assert_int_ge(kvf_ctx_threads(ctx), 1);
    ck_assert_int_eq(kvf_ctx_create(&options, &three), KVF_OK);
    ck_assert_int_eq(kvf_ctx_threads(three), 3);
    kvf_ctx_free(three);
}
END_TEST

static const int BAD_THREADS[] = {-1, 1025, INT32_MIN, INT32_MAX};

START_TEST(bad_threads)
{
    heard h = {0};
    kvf_ctx_options options = {.threads = BAD_THREADS[_i], .log = hear, .log_user = &h};
    kvf_ctx *out = NULL;

    ck_assert_int_eq(kvf_ctx_create(&options, &out), KVF_EUSAGE);
    ck_assert_ptr_null(out);
    ck_assert_int_eq(h.n, 1);
}
END_TEST

static const struct {
    const char *level;
    kvf_status want;
} CPU_CAPS[] = {
    {"ref", KVF_OK},      {"avx2", KVF_OK},     {"avx512", KVF_OK},   {"avx512_bf16", KVF_OK},
    {"amx", KVF_OK},      {"", KVF_OK},         {"AVX2", KVF_EUSAGE}, {"avx", KVF_EUSAGE},
    {" ref", KVF_EUSAGE}, {"sse2", KVF_EUSAGE},
};

START_TEST(cpu_cap)
{
    heard h = {0};
    kvf_ctx_options options = {.log = hear, .log_user = &h};
    kvf_ctx *out = NULL;

    setenv("KVF_CPU", CPU_CAPS[_i].level, 1);
    ck_assert_int_eq(kvf_ctx_create(&options, &out), CPU_CAPS[_i].want);
    ck_assert_int_eq(out != NULL, CPU_CAPS[_i].want == KVF_OK);
    if (!out) ck_assert_ptr_nonnull(strstr(h.line, "KVF_CPU"));
    kvf_ctx_free(out);
}
END_TEST

START_TEST(process_facts)
{
    double before = kvf__clock();
    int64_t rss = kvf__peak_rss_bytes();

    ck_assert_int_gt(rss, 100 * 1024);
    ck_assert_int_lt(rss, (int64_t)1 << 50);
    ck_assert_double_ge(kvf__clock(), before);
}
END_TEST

/* ---- reader ---------------------------------------------------------------------------------- */

static const uint8_t RECORD[] = {
    0x7f,                                           /* u8 */
    0x34, 0x12,                                     /* u16 */
    0x78, 0x56, 0x34, 0x12,                         /* u32 */
    0xf0, 0xde, 0xbc, 0x9a, 0x78, 0x56, 0x34, 0x12, /* u64 */
    0x00, 0x00, 0xc0, 0xbf,                         /* f32 -1.5 */
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x40, /* f64 2.5 */
    'a',  'b',  'c',
};

/* Number of RECORD's fields read in full. */
static int read_record(kvf__reader *r)
{
    int good = 0;
    const uint8_t *bytes;

    good += kvf__read_u8(r) == 0x7f;
    good += kvf__read_u16(r) == 0x1234;
    good += kvf__read_u32(r) == 0x12345678;
    good += kvf__read_u64(r) == 0x123456789abcdef0;
    good += kvf__read_f32(r) == -1.5f;
    good += kvf__read_f64(r) == 2.5;
    bytes = kvf__read_bytes(r, 3);
    good += bytes && memcmp(bytes, "abc", 3) == 0;
    return good;
}

START_TEST(reader_fields)
{
    kvf__reader r = {.data = RECORD, .n = sizeof RECORD};

    ck_assert_int_eq(read_record(&r), 7);
    ck_assert(!r.failed);
    ck_assert_uint_eq(r.at, sizeof RECORD);
    ck_assert_ptr_nonnull(kvf__read_bytes(&r, 0));
    ck_assert_uint_eq(kvf__read_u8(&r), 0);
    ck_assert(r.failed);
}
END_TEST

START_TEST(reader_truncated_at_every_byte)
{
    for (size_t n = 0; n < sizeof RECORD; n++) {
        uint8_t *copy = NULL; /* exact size, so that a sanitizer detects one byte too many */
        ck_assert_int_eq(kvf__alloc(ctx, n, &copy), KVF_OK);
        memcpy(copy, RECORD, n);
        kvf__reader r = {.data = copy, .n = n};
        ck_assert_int_lt(read_record(&r), 7);
        ck_assert(r.failed);
        ck_assert_uint_le(r.at, n);
        ck_assert_uint_eq(kvf__read_u32(&r), 0);
        ck_assert_ptr_null(kvf__read_bytes(&r, 0)); /* sticky */
        kvf__free(copy);
    }
}
END_TEST

START_TEST(reader_huge_lengths)
{
    kvf__reader r = {.data = RECORD, .n = sizeof RECORD};
    kvf__reader none = {0};

    kvf__read_u8(&r);
    ck_assert_ptr_null(kvf__read_bytes(&r, SIZE_MAX));
    ck_assert(r.failed);
    ck_assert_uint_eq(r.at, 1);
    ck_assert_ptr_nonnull(kvf__read_bytes(&none, 0));
    ck_assert(!none.failed);
    ck_assert_uint_eq(kvf__read_u64(&none), 0);
    ck_assert(none.failed);
}
END_TEST

/* ---- hash ------------------------------------------------------------------------------------ */

/* The first two values are from the XXH3 test suite and specification, for seed 0. */
static const struct {
    const char *text, *hex;
} HASHES[] = {
    {"", "99aa06d3014798d86001c324468d497f"},
    {"abc", "06b05ab6733a618578af5f94892f3950"},
};

START_TEST(hash_of_known_text)
{
    kvf__hash *hash = NULL;
    char hex[33];

    ck_assert_int_eq(kvf__hash_create(ctx, &hash), KVF_OK);
    kvf__hash_add(hash, HASHES[_i].text, strlen(HASHES[_i].text));
    kvf__hash_hex(hash, hex);
    ck_assert_str_eq(hex, HASHES[_i].hex);
    kvf__hash_free(hash);
    kvf__hash_free(NULL);
}
END_TEST

/* Pieces of any size give the hash of the whole; reading the hash does not end the stream. */
START_TEST(hash_is_a_stream)
{
    enum { N = 5000 };
    kvf__hash *whole = NULL, *pieces = NULL;
    char text[N], a[33], b[33];

    for (size_t i = 0; i < N; i++)
        text[i] = (char)(i * 31 % 251);
    ck_assert_int_eq(kvf__hash_create(ctx, &whole), KVF_OK);
    ck_assert_int_eq(kvf__hash_create(ctx, &pieces), KVF_OK);
    kvf__hash_add(whole, text, N);
    for (size_t at = 0, n = 0; at < N; at += n, n++) {
        if (n > N - at) n = N - at;
        kvf__hash_add(pieces, text + at, n);
        kvf__hash_hex(pieces, b);
    }
    kvf__hash_add(pieces, NULL, 0);
    kvf__hash_hex(whole, a);
    kvf__hash_hex(pieces, b);
    ck_assert_str_eq(a, b);
    kvf__hash_add(pieces, "", 1);
    kvf__hash_hex(pieces, b);
    ck_assert_str_ne(a, b);
    kvf__hash_free(whole);
    kvf__hash_free(pieces);
}
END_TEST

/* Names in errors and options are those of the table, in its order. */
START_TEST(methods)
{
    char comma[512] = "", bar[512] = "";
    for (size_t i = 0; kvf__method_at(i); i++) {
        const kvf__method *method = kvf__method_at(i);
        ck_assert_ptr_eq(kvf__method_find(method->name), method);
        ck_assert(method->default_lr > 0);
        sprintf(comma + strlen(comma), "%s%s", i ? ", " : "", method->name);
        sprintf(bar + strlen(bar), "%s%s", i ? "|" : "", method->name);
    }
    ck_assert_str_eq(KVF__METHOD_NAMES, comma);
    ck_assert_str_eq(KVF__METHOD_CHOICES, bar);
    ck_assert_ptr_null(kvf__method_find("lora"));
    ck_assert_int_eq(kvf__method_find("mlp")->port, KVF__PORT_KV);
}
END_TEST

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

int main(void)
{
    Suite *suite = suite_create("base");
    TCase *core = ck_case(suite, "core", setup, teardown, 30);
    TCase *limits = ck_case(suite, "limits", setup, teardown, 30);
    TCase *errors = ck_case(suite, "errors", setup, teardown, 30);

    tcase_add_test(core, status_names);
    tcase_add_test(core, methods);
    tcase_add_test(core, error_lines);
    tcase_add_test(core, log_goes_to_the_sink);
    tcase_add_test(core, threads);
    tcase_add_test(core, process_facts);
    tcase_add_test(core, reader_fields);
    tcase_add_loop_test(core, hash_of_known_text, 0, COUNT(HASHES));
    tcase_add_test(core, hash_is_a_stream);

    tcase_add_test(limits, error_line_is_cut_at_a_character);
    tcase_add_test(limits, reader_huge_lengths);

    tcase_add_test(errors, error_line_is_one_clean_line);
    tcase_add_test(errors, fail_without_context);
    tcase_add_loop_test(errors, bad_threads, 0, COUNT(BAD_THREADS));
    tcase_add_loop_test(errors, cpu_cap, 0, COUNT(CPU_CAPS));
    tcase_add_test(errors, reader_truncated_at_every_byte);
    return ck_main(suite);
}
