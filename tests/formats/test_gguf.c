/* Tests of the GGUF reader: a file of the reference writer (golden/make_gguf.py), and damage at
 * every byte of it. Files with a single error: test_gguf_bad.c. */
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

/* ---- the reference writer's file ------------------------------------------------------------- */

static kvf__weights open_golden(void)
{
    kvf__weights w = {0};
    kvf_status st = kvf__gguf_open(ctx, ck_source("tests/golden/tiny.gguf"), &w);
    ck_assert_msg(st == KVF_OK, "%s", kvf_ctx_error(ctx));
    return w;
}

static int64_t meta_int(const kvf__weights *w, const char *key)
{
    return kvf_json_int(kvf_json_get(w->meta, key), -12345);
}

START_TEST(metadata_of_all_kinds)
{
    kvf__weights w = open_golden();
    kvf_json *few;

    ck_assert_str_eq(kvf_json_str(kvf_json_get(w.meta, "general.architecture"), NULL), "llama");
    ck_assert_int_eq(meta_int(&w, "kind.u8"), 200);
    ck_assert_int_eq(meta_int(&w, "kind.i8"), -100);
    ck_assert_int_eq(meta_int(&w, "kind.u16"), 60000);
    ck_assert_int_eq(meta_int(&w, "kind.i16"), -30000);
    ck_assert_int_eq(meta_int(&w, "kind.u32"), 4000000000);
    ck_assert_int_eq(meta_int(&w, "kind.i32"), -2000000000);
    ck_assert_int_eq(meta_int(&w, "kind.u64"), INT64_MAX);
    ck_assert_int_eq(meta_int(&w, "kind.i64"), -(INT64_C(1) << 62));
    ck_assert_int_eq(kvf_json_typeof(kvf_json_get(w.meta, "kind.u64_big")), KVF_JSON_REAL);
    ck_assert(kvf_json_real(kvf_json_get(w.meta, "kind.u64_big"), 0) == 0x1p63 + 2048);
    ck_assert((float)kvf_json_real(kvf_json_get(w.meta, "kind.f32"), 0) == 1e-5f);
    ck_assert(kvf_json_real(kvf_json_get(w.meta, "kind.f64"), 0) == 0.1);
    ck_assert(kvf_json_bool(kvf_json_get(w.meta, "kind.true"), false));
    ck_assert(!kvf_json_bool(kvf_json_get(w.meta, "kind.false"), true));
    ck_assert_str_eq(kvf_json_str(kvf_json_get(w.meta, "kind.text"), NULL),
                     "Schn\xc3\xa4ppchen \xe2\x98\x83 \"quoted\"\n");
    few = kvf_json_get(w.meta, "few.texts");
    ck_assert_uint_eq(kvf_json_size(few), 3);
    ck_assert_str_eq(kvf_json_str(kvf_json_at(few, 1), NULL), "");
    ck_assert_str_eq(kvf_json_str(kvf_json_at(few, 2), NULL), "bc");
    ck_assert_int_eq(kvf_json_int(kvf_json_at(kvf_json_get(w.meta, "few.ints"), 1), 0), -1);
    few = kvf_json_get(w.meta, "many.ints");
    ck_assert_str_eq(kvf_json_str(kvf_json_get(few, "array"), NULL), "i32");
    ck_assert_int_eq(kvf_json_int(kvf_json_get(few, "count"), 0), 100);
    kvf__weights_close(&w);
    kvf__weights_close(&w); /* empty is fine */
}
END_TEST

START_TEST(arrays)
{
    kvf__weights w = open_golden();
    const char *const *texts = NULL;
    const size_t *bytes = NULL;
    float *floats = NULL;
    int32_t *ints = NULL;
    int64_t n = 0;

    ck_assert_int_eq(kvf__gguf_strings(ctx, &w, "tokenizer.ggml.tokens", &texts, &bytes, &n),
                     KVF_OK);
    ck_assert_int_eq(n, 80);
    ck_assert_uint_eq(bytes[79], 7);
    ck_assert_int_eq(memcmp(texts[79], "token79", 7), 0);
    kvf__free((void *)texts);
    kvf__free((void *)bytes);
    ck_assert_int_eq(kvf__gguf_floats(ctx, &w, "many.floats", &floats, &n), KVF_OK);
    ck_assert_int_eq(n, 100);
    ck_assert(floats[99] == 24.75f);
    kvf__free(floats);
    ck_assert_int_eq(kvf__gguf_ints(ctx, &w, "many.ints", &ints, &n), KVF_OK);
    ck_assert_int_eq(n, 100);
    ck_assert(ints[0] == -40 && ints[99] == 59);
    kvf__free(ints);
    ck_assert_int_eq(kvf__gguf_ints(ctx, &w, "few.bools", &ints, &n), KVF_OK);
    ck_assert(n == 2 && ints[0] == 1 && ints[1] == 0);
    kvf__free(ints);

    floats = NULL;
    ck_assert_int_eq(kvf__gguf_floats(ctx, &w, "many.ints", &floats, &n), KVF_OK);
    ck_assert(n == -1 && !floats);
    ck_assert_int_eq(kvf__gguf_floats(ctx, &w, "kind.f32", &floats, &n), KVF_OK);
    ck_assert_int_eq(n, -1);
    ck_assert_int_eq(kvf__gguf_strings(ctx, &w, "absent", &texts, &bytes, &n), KVF_OK);
    ck_assert_int_eq(n, -1);
    kvf__weights_close(&w);
}
END_TEST

static void check_packed(const kvf__weights *w, const char *packed, const char *values)
{
    const kvf__view *view = kvf__table_find(&w->table, packed);
    float got[512], want[512];
    const int64_t n = kvf__view_count(view);

    ck_assert(view->rank == 2 && view->dim[0] == 2 && n <= 512);
    kvf__to_f32(view->dtype, view->data, got, n);
    memcpy(want, kvf__table_find(&w->table, values)->data, (size_t)n * sizeof *want);
    ck_close(got, want, (size_t)n, 0, 0);
}

START_TEST(tensors)
{
    static const float counting[] = {0, 1, 2, 3, 4, 5};
    kvf__weights w = open_golden();
    const kvf__view *view = kvf__table_find(&w.table, "token_embd.weight");
    float values[6];

    ck_assert_uint_eq(w.table.n, 21);
    ck_assert_str_eq(w.table.items[1].name, "half");
    ck_assert(view->dtype == KVF__F32 && view->rank == 2 && view->dim[0] == 2 && view->dim[1] == 3);
    ck_assert_int_eq(memcmp(view->data, counting, sizeof counting), 0);
    view = kvf__table_find(&w.table, "half");
    kvf__to_f32(view->dtype, view->data, values, 6);
    ck_close(values, counting, 6, 0, 0);
    view = kvf__table_find(&w.table, "cube");
    ck_assert(view->dtype == KVF__I32 && view->rank == 3 && view->dim[0] == 2 && view->dim[2] == 4);
    check_packed(&w, "packed.Q4_1", "values.Q4_1");
    check_packed(&w, "packed.Q8_0", "values.Q8_0");
    check_packed(&w, "packed.BF16", "values.BF16");
    check_packed(&w, "packed.MXFP4", "values.MXFP4");
    check_packed(&w, "packed.Q2_K", "values.Q2_K");
    check_packed(&w, "packed.Q3_K", "values.Q3_K");
    check_packed(&w, "packed.IQ4_NL", "values.IQ4_NL");
    check_packed(&w, "packed.IQ4_XS", "values.IQ4_XS");
    view = kvf__table_find(&w.table, "other.IQ2_XS");
    ck_assert(view->dtype == KVF__OTHER && kvf__view_bytes(view) == 148 && view->dim[0] == 1);
    ck_assert_str_eq(view->other_name, "iq2_xs");
    kvf__weights_close(&w);
}
END_TEST

/* ---- damaged files --------------------------------------------------------------------------- */

static kvf__buf golden_bytes(void)
{
    kvf__buf bytes = {0};
    ck_assert_int_eq(kvf__read_file(ctx, ck_source("tests/golden/tiny.gguf"), 1 << 20, &bytes),
                     KVF_OK);
    return bytes;
}

/* Only the padding after the last tensor (148 bytes, 12 short of a multiple of 32) may be missing.
 */
START_TEST(truncated_at_every_byte)
{
    kvf__buf bytes = golden_bytes();
    for (size_t n = 0; n <= bytes.n; n++) {
        kvf_status st = parse(bytes.data, n);
        ck_assert_msg(st == (n < bytes.n - 12 ? KVF_EFORMAT : KVF_OK), "cut to %zu: %s", n,
                      kvf_status_name(st));
    }
    kvf__buf_done(&bytes);
}
END_TEST

/* Flips one bit in each byte, another one in each round: the file is refused or read, never out of
 * bounds. */
START_TEST(bits_flipped)
{
    kvf__buf bytes = golden_bytes();
    int refused = 0;

    for (size_t at = 0; at < bytes.n; at++) {
        char bit = (char)(1 << (at + (size_t)_i) % 8);
        bytes.data[at] ^= bit;
        kvf_status st = parse(bytes.data, bytes.n);
        ck_assert(st == KVF_OK || st == KVF_EFORMAT || st == KVF_EUNSUPPORTED);
        refused += st != KVF_OK;
        bytes.data[at] ^= bit;
    }
    ck_assert_int_gt(refused, 300);
    kvf__buf_done(&bytes);
}
END_TEST

START_TEST(lack_of_memory)
{
    kvf_status st = KVF_ENOMEM;

    for (int64_t fail = 0; st == KVF_ENOMEM; fail++) {
        kvf__weights w = {0};
        kvf__ctx_fail_allocation(ctx, fail);
        st = kvf__gguf_open(ctx, ck_source("tests/golden/tiny.gguf"), &w);
        kvf__ctx_fail_allocation(ctx, -1);
        ck_assert(st == KVF_OK || st == KVF_ENOMEM);
        ck_assert(fail > 10 || st == KVF_ENOMEM);
        if (st) ck_assert_ptr_null(w.maps);
        kvf__weights_close(&w);
    }
}
END_TEST

START_TEST(arrays_lack_memory)
{
    const char *const *texts = NULL;
    const size_t *bytes = NULL;
    kvf__weights w = open_golden();
    int64_t n = 5;

    for (int64_t fail = 0; fail < 2; fail++) {
        kvf__ctx_fail_allocation(ctx, fail);
        ck_assert_int_eq(kvf__gguf_strings(ctx, &w, "few.texts", &texts, &bytes, &n), KVF_ENOMEM);
        ck_assert(!texts && !bytes && n == 5);
    }
    kvf__ctx_fail_allocation(ctx, -1);
    kvf__weights_close(&w);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gguf");

    TCase *golden = ck_case(suite, "golden", setup, teardown, 30);
    tcase_add_test(golden, metadata_of_all_kinds);
    tcase_add_test(golden, arrays);
    tcase_add_test(golden, tensors);

    TCase *limits = ck_case(suite, "limits", setup, teardown, 30);
    tcase_add_test(limits, truncated_at_every_byte);
    tcase_add_loop_test(limits, bits_flipped, 0, 8);
    tcase_add_test(limits, lack_of_memory);
    tcase_add_test(limits, arrays_lack_memory);
    return ck_main(suite);
}
