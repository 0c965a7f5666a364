/* Saved sequences of llama.cpp: every form written by kvfold can be read back. Damaged and hostile
 * files, and files of another base, are refused. Files of engines: test_export_llamacpp.c. */
#include "h5_fixture.h"
#include "llama_state.h"

enum { L = 3, G = 2, P = 5, D = 4, N = L * 2 * G * P * D };

static const int32_t IDS[P] = {7, 7, 9, 7, 8};

static void make_prefix(kvf__prefix *prefix)
{
    ck_ok(kvf__prefix_init(ctx, prefix, L, G, P, D));
    for (int i = 0; i < N; i++)
        prefix->kv[i] = (float)(i % 97) / 32.0f - 1.5f; /* exact in f16 */
}

/* Keys in either order; one global layer between two local ones. */
static const uint64_t GLOBAL = 2;
#define BASE(interleaved, window, global)                                                          \
    {                                                                                              \
        L, G, D, interleaved, window, global                                                       \
    }
#define PERMUTED BASE(true, 0, NULL)
#define PLAIN    BASE(false, 0, NULL)
#define LOCAL    BASE(false, 3, &GLOBAL)

static uint8_t *written(const kvf__llama_form *form, size_t *n)
{
    kvf__prefix prefix = {0};

    make_prefix(&prefix);
    ck_ok(kvf__llama_state_write(ctx, in_dir("x.state"), true, form, &prefix, IDS));
    kvf__prefix_done(&prefix);
    return read_bytes(in_dir("x.state"), n);
}

static kvf_status parse(const uint8_t *bytes, size_t n, const kvf__llama_form *form,
                        kvf__prefix *out)
{
    return kvf__llama_state_parse(ctx, "input", bytes, n, &form->base, out);
}

/* ---- forms ----------------------------------------------------------------------------------- */

static const kvf__llama_form FORMS[] = {
    {3, 1, false, KVF__F16, PERMUTED}, {3, 1, true, KVF__F32, PERMUTED},
    {4, 1, false, KVF__F32, PLAIN},    {4, 3, false, KVF__F16, PERMUTED},
    {4, 4, true, KVF__F16, PLAIN},     {3, 2, true, KVF__F16, PERMUTED},
    {4, 2, true, KVF__F32, LOCAL},     {3, 1, false, KVF__F16, LOCAL},
};
enum { N_FORMS = sizeof FORMS / sizeof FORMS[0] };

START_TEST(reads_what_it_writes)
{
    const kvf__llama_form *form = &FORMS[_i];
    kvf__prefix want = {0}, got = {0};
    size_t n = 0;

    make_prefix(&want);
    uint8_t *bytes = written(form, &n);
    ck_ok(parse(bytes, n, form, &got));
    ck_assert(got.L == L && got.G == G && got.P == P && got.D == D);
    ck_assert_mem_eq(got.kv, want.kv, N * sizeof *got.kv);
    for (int l = 0; l < L; l++)
        ck_assert_int_eq(got.layer_mask[l], 1);
    kvf__prefix_done(&got);
    /* the base, not the file, determines the order of keys: the other order gives another prefix */
    kvf__llama_form other = *form;
    other.base.interleaved = !form->base.interleaved;
    ck_ok(parse(bytes, n, &other, &got));
    ck_assert_mem_ne(got.kv, want.kv, N * sizeof *got.kv);
    kvf__prefix_done(&got);
    kvf__prefix_done(&want);
    free(bytes);
}
END_TEST

/* llama_state.h byte by byte: the header, and one key in each order. */
START_TEST(bytes_are_those_of_the_format)
{
    const uint32_t head[] = {0x67677371, 4, P, 7, 7, 9, 7, 8, 1, P, 0, 1, 0, 1, 1, 0};
    kvf__llama_form form = {4, 1, false, KVF__F32, PERMUTED};
    kvf__prefix x = {0};
    size_t n = 0, keys = 4 * (3 + P + 2 + 3 * P + 2 + 2);
    float row[G * D];

    make_prefix(&x);
    uint8_t *bytes = written(&form, &n);
    ck_assert_mem_eq(bytes, head, sizeof head);
    ck_assert_uint_eq(n, keys + 2 * L * (4 + 8) + N * sizeof(float));
    memcpy(row, bytes + keys + 12 + sizeof row, sizeof row); /* cell 1 of layer 0 */
    for (int g = 0; g < G; g++)
        for (int d = 0; d < D / 2; d++) {
            const float *head_of = x.kv + (g * P + 1) * D;
            ck_assert(row[g * D + 2 * d] == head_of[d]);
            ck_assert(row[g * D + 2 * d + 1] == head_of[D / 2 + d]);
        }
    kvf__prefix_done(&x);
    free(bytes);
}
END_TEST

START_TEST(what_a_type_cannot_hold)
{
    const kvf__llama_form form = {4, 1, false, KVF__F16, PERMUTED};
    kvf__prefix prefix = {0};

    make_prefix(&prefix);
    prefix.kv[N - 1] = 1e5f;
    ck_fails(kvf__llama_state_write(ctx, in_dir("x.state"), true, &form, &prefix, IDS),
             KVF_ENUMERIC, "f16 cannot store");
    ck_assert_int_eq(files_in_dir(), 0);
    kvf__prefix_done(&prefix);
}
END_TEST

/* ---- bad input ------------------------------------------------------------------------------- */

START_TEST(every_cut_is_refused)
{
    const kvf__llama_form *form = &FORMS[_i];
    kvf__prefix out = {0};
    size_t n = 0;
    uint8_t *bytes = written(form, &n);

    for (size_t cut = 0; cut < n; cut++) {
        uint8_t *copy = malloc(cut + 1); /* so that a sanitizer detects a read past the end */
        memcpy(copy, bytes, cut);
        ck_assert_msg(parse(copy, cut, form, &out) == KVF_EFORMAT, "cut at %zu", cut);
        ck_assert_ptr_null(out.kv);
        free(copy);
    }
    free(bytes);
}
END_TEST

/* Words of version 4 files of P cells: offset, new value, and the error line. From SECOND on, the
 * file is one of two caches. */
enum { CELLS = 3 + P + 1, CELL = CELLS + 1, FORM = CELL + 3 * P, KEYS = FORM + 4 };
enum {
    SECOND = KEYS + 2 * (3 + G * P * D),
    LOCAL_CELL = SECOND + 2,
    LOCAL_FORM = LOCAL_CELL + 3 * P
};
static const struct {
    size_t word;
    uint32_t value;
    kvf_status status;
    const char *line;
} BAD[] = {
    {0, 0x6767736e, KVF_EFORMAT, "is not a saved sequence"},
    {1, 2, KVF_EUNSUPPORTED, "state version 2 is not supported, want 3 or 4"},
    {1, 5, KVF_EUNSUPPORTED, "state version 5"},
    {2, 0xFFFFFFFF, KVF_EFORMAT, "ends within"},
    {CELLS - 1, 0, KVF_EFORMAT, "is empty"},
    {CELLS - 1, 0xFFFFFFFF, KVF_EFORMAT, "ends within"},
    {CELLS, 0, KVF_EFORMAT, "is empty"},
    {CELLS, 0xFFFFFFFF, KVF_EFORMAT, "ends within"},
    {CELL, 1, KVF_EUNSUPPORTED, "cell 1 is at position 1, want each of 0 to 4 once"},
    {CELL, P, KVF_EUNSUPPORTED, "cell 0 is at position 5"},
    {CELL, 0xFFFFFFFF, KVF_EUNSUPPORTED, "cell 0 is at position -1"},
    {CELL + 1, 2, KVF_EFORMAT, "cell 0 belongs to 2 sequences"},
    {FORM, 2, KVF_EUNSUPPORTED, "rotated"},
    {FORM + 1, L + 1, KVF_ESHAPE, "has 4 layers, but the base has 3"},
    {FORM + 2, 4, KVF_EUNSUPPORTED, "rotated"},
    {FORM + 3, 4, KVF_EUNSUPPORTED, "rotated"},
    {KEYS, 8, KVF_EUNSUPPORTED, "ggml type 8"},
    {KEYS + 1, 17, KVF_ESHAPE, "the base has G * D = 8"},
    {KEYS + 1, 64, KVF_ESHAPE, "keys or values have 16 elements per token"},
    {KEYS + 2, 1, KVF_ESHAPE, "the base has G * D = 8"},
    {KEYS + 3, 0x7FC00000, KVF_ENUMERIC, "want finite values"},
    {SECOND, 0, KVF_EFORMAT, "is empty"},
    {SECOND + 1, 0xFFFFFFFF, KVF_EFORMAT, "ends within"},
    {SECOND + 1, P - 1, KVF_EUNSUPPORTED, "layers with a window lack 1 of positions 3 to 4"},
    {LOCAL_CELL, P, KVF_EUNSUPPORTED, "cell 0 is at position 5, want each of 0 to 4 once"},
    {LOCAL_CELL + 3, 0, KVF_EUNSUPPORTED, "cell 1 is at position 0"},
    {LOCAL_FORM + 1, L, KVF_ESHAPE, "has 3 layers with a window, but the base has 2"},
};

START_TEST(bad_words_are_refused)
{
    const kvf__llama_form one = {4, 1, false, KVF__F32, PERMUTED},
                          two = {4, 1, false, KVF__F32, LOCAL};
    const kvf__llama_form form = BAD[_i].word < SECOND ? one : two;
    kvf__prefix out = {0};
    size_t n = 0;
    uint8_t *bytes = written(&form, &n);

    memcpy(bytes + 4 * BAD[_i].word, &BAD[_i].value, 4);
    ck_fails(parse(bytes, n, &form, &out), BAD[_i].status, BAD[_i].line);
    ck_assert_ptr_null(out.kv);
    free(bytes);
}
END_TEST

START_TEST(bad_transposed_widths_are_refused)
{
    const kvf__llama_form form = {4, 1, true, KVF__F32, PERMUTED};
    const size_t values = 4 * KEYS + L * (12 + G * P * D * sizeof(float));
    kvf__prefix out = {0};
    size_t n = 0;
    uint8_t *bytes = written(&form, &n);

    bytes[values + 4] = 2;
    ck_fails(parse(bytes, n, &form, &out), KVF_EFORMAT, "elements have 2 bytes, want 4");
    bytes[values + 4] = 4;
    bytes[values + 8] = 9;
    ck_fails(parse(bytes, n, &form, &out), KVF_ESHAPE, "have 9 elements per token");
    free(bytes);
}
END_TEST

START_TEST(what_follows_is_refused)
{
    const kvf__llama_form form = {4, 2, false, KVF__F16, PERMUTED};
    kvf__prefix out = {0};
    size_t n = 0;
    uint8_t *bytes = written(&form, &n);

    bytes[n] = 1; /* read_bytes has one more */
    ck_fails(parse(bytes, n + 1, &form, &out), KVF_EUNSUPPORTED, "has 1 bytes more");
    bytes[n - 4] = 1; /* a cell of the second stream */
    ck_fails(parse(bytes, n, &form, &out), KVF_EUNSUPPORTED, "cells of several streams");
    free(bytes);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("llama_state");
    TCase *tc = ck_case(suite, "forms", setup, teardown, 30);
    tcase_add_loop_test(tc, reads_what_it_writes, 0, N_FORMS);
    tcase_add_test(tc, bytes_are_those_of_the_format);
    tcase_add_test(tc, what_a_type_cannot_hold);
    tc = ck_case(suite, "bad input", setup, teardown, 60);
    tcase_add_loop_test(tc, every_cut_is_refused, 0, N_FORMS);
    tcase_add_loop_test(tc, bad_words_are_refused, 0, (int)(sizeof BAD / sizeof BAD[0]));
    tcase_add_test(tc, bad_transposed_widths_are_refused);
    tcase_add_test(tc, what_follows_is_refused);
    return ck_main(suite);
}
