/* Offsets of ids in their text, texts given as words, and pairs of texts. */
#include "rng.h"
#include "tok_check.h"

/* ---- golden ---------------------------------------------------------------------------------- */

static const char *const FILES[] = {"tests/golden/tokenizer_bert.json",
                                    "tests/golden/tokenizer_offsets.json",
                                    "tests/golden/tokenizer_unigram.json"};

/* "1 2 | 3 4" against two lists. */
static void check_both(const char *what, const kvf__ids *first, const kvf__ids *second,
                       const char *want)
{
    const char *bar = strstr(want, " | ");
    char left[4000];

    ck_assert_ptr_nonnull(bar);
    ck_assert_uint_lt((size_t)(bar - want), sizeof left);
    memcpy(left, want, (size_t)(bar - want));
    left[bar - want] = '\0';
    check_ids(what, first, left);
    check_ids(what, second, bar + 3);
}

static const char *row_text(const kvf_json *golden, const char *key, size_t k, size_t *n)
{
    return kvf_json_str(kvf_json_at(kvf_json_get(golden, key), k), n);
}

static void check_origins(kvf_ctx *ctx, const kvf__tokenizer *t, const kvf_json *row, size_t k,
                          const char *text, size_t n)
{
    kvf__ids ids = {0}, origins = {0}, plain = {0};
    size_t decoded_n = 0;
    const char *decoded = row_text(row, "decoded", k, &decoded_n);

    ok(ctx, kvf__encode_offsets(ctx, t, text, n, &ids, &origins));
    check_both(text, &ids, &origins, row_text(row, "origins", k, NULL));
    ok(ctx, kvf__encode(ctx, t, text, n, false, &plain));
    ck_assert_uint_eq(plain.n, ids.n);
    for (size_t i = 0; i < ids.n; i++)
        ck_assert_int_eq(plain.data[i], ids.data[i]);
    if (!strchr(text, '<')) /* the library decodes normalised added tokens to their normal form */
        check_decode(ctx, t, ids.data, ids.n, false, decoded, decoded_n);
    kvf__ids_done(&ids);
    kvf__ids_done(&origins);
    kvf__ids_done(&plain);
}

static void check_words(kvf_ctx *ctx, const kvf__tokenizer *t, const kvf_json *row, size_t k,
                        const kvf_json *words)
{
    kvf__ids ids = {0}, counts = {0};

    for (size_t i = 0; i < kvf_json_size(words); i++) {
        size_t n = 0, before = ids.n;
        const char *word = kvf_json_str(kvf_json_at(words, i), &n);
        ok(ctx, kvf__encode(ctx, t, word, n, false, &ids));
        ok(ctx, kvf__ids_add(ctx, &counts, (int32_t)(ids.n - before)));
    }
    check_both("words", &ids, &counts, row_text(row, "words", k, NULL));
    kvf__ids_done(&ids);
    kvf__ids_done(&counts);
}

/* A text and the next one. */
static void check_pair(kvf_ctx *ctx, const kvf__tokenizer *t, const kvf_json *golden,
                       const kvf_json *row, size_t k)
{
    const kvf_json *texts = kvf_json_get(golden, "texts");
    kvf__ids text[2] = {{0}, {0}}, ids = {0}, types = {0};
    size_t at[2] = {0};

    for (size_t i = 0; i < 2; i++) {
        size_t n = 0;
        const char *s = row_text(golden, "texts", (k + i) % kvf_json_size(texts), &n);
        ok(ctx, kvf__encode(ctx, t, s, n, false, &text[i]));
    }
    ok(ctx, kvf__add_specials(ctx, t, &text[0], &text[1], &ids, &types, &at[0], &at[1]));
    check_both("pair", &ids, &types, row_text(row, "pairs", k, NULL));
    ck_assert_uint_eq(ids.n, text[0].n + text[1].n + kvf__specials_cost(t, true));
    for (size_t i = 0; i < 2; i++)
        ck_assert(text[i].n == 0 ||
                  memcmp(ids.data + at[i], text[i].data, text[i].n * sizeof *ids.data) == 0);
    kvf__ids_done(&text[0]);
    kvf__ids_done(&text[1]);
    kvf__ids_done(&ids);
    kvf__ids_done(&types);
}

START_TEST(golden_details)
{
    kvf_ctx *ctx = new_ctx();
    kvf_json *golden = load_json(ctx, ck_source(FILES[_i]));
    const kvf_json *cases = kvf_json_get(golden, "cases"), *texts = kvf_json_get(golden, "texts");

    ck_assert_uint_ge(kvf_json_size(cases), 3);
    ck_assert_uint_ge(kvf_json_size(texts), 18);
    for (size_t i = 0; i < kvf_json_size(cases); i++) {
        const kvf_json *row = kvf_json_at(cases, i);
        kvf__tokenizer *t = open_pipeline(ctx, golden, i);
        for (size_t k = 0; k < kvf_json_size(texts); k++) {
            size_t n = 0;
            const char *text = row_text(golden, "texts", k, &n);
            check_origins(ctx, t, row, k, text, n);
            check_words(ctx, t, row, k, kvf_json_at(kvf_json_get(golden, "words"), k));
            check_pair(ctx, t, golden, row, k);
        }
        kvf__tokenizer_free(t);
    }
    kvf_json_free(golden);
    kvf_ctx_free(ctx);
}
END_TEST

/* ---- core ------------------------------------------------------------------------------------ */

static kvf__ids ids_of(kvf_ctx *ctx, int32_t first, int32_t second)
{
    kvf__ids ids = {0};
    ok(ctx, kvf__ids_add(ctx, &ids, first));
    ok(ctx, kvf__ids_add(ctx, &ids, second));
    return ids;
}

/* RoBERTa has two separators between the texts, GPT-2 nothing. */
static const struct {
    const char *rest, *single, *pair, *types;
} JOINS[] = {
    {"", "0 1", "0 1 2 3", "0 0 1 1"},
    {",\"post_processor\":{\"type\":\"RobertaProcessing\",\"cls\":[\"<s>\",6],\"sep\":[\"</s>\",7]"
     "}",
     "6 0 1 7", "6 0 1 7 7 2 3 7", "0 0 0 0 0 0 0 0"},
    {",\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"<s>\",6],\"sep\":[\"</s>\",7]}",
     "6 0 1 7", "6 0 1 7 2 3 7", "0 0 0 0 1 1 1"},
    {TEMPLATE, "6 0 1", "0 1 2 3", "0 0 1 1"},
};

START_TEST(joins)
{
    kvf_ctx *ctx = new_ctx();
    kvf__tokenizer *t = NULL;
    kvf__ids a = ids_of(ctx, 0, 1), b = ids_of(ctx, 2, 3), ids = {0}, types = {0};
    size_t a_at = 99, b_at = 99;
    char text[2000];

    snprintf(text, sizeof text, "%.*s%s}", (int)strlen(SMALL("", "")) - 1, SMALL("", ""),
             JOINS[_i].rest);
    ok(ctx, open_text(ctx, text, NULL, &t));
    ok(ctx, kvf__add_specials(ctx, t, &a, NULL, &ids, NULL, &a_at, NULL));
    check_ids("single", &ids, JOINS[_i].single);
    ck_assert_uint_eq(kvf__specials_cost(t, false), ids.n - 2);
    ck_assert_int_eq(ids.data[a_at], 0);
    ids.n = 1; /* appends, and offsets count from the start of the list */
    ok(ctx, kvf__ids_add(ctx, &types, 9));
    ok(ctx, kvf__add_specials(ctx, t, &a, &b, &ids, &types, &a_at, &b_at));
    ck_assert_uint_eq(ids.n, types.n);
    ck_assert_uint_eq(kvf__specials_cost(t, true), ids.n - 5);
    ck_assert(ids.data[a_at] == 0 && ids.data[b_at] == 2 && types.data[0] == 9);
    memmove(ids.data, ids.data + 1, --ids.n * sizeof *ids.data);
    memmove(types.data, types.data + 1, --types.n * sizeof *types.data);
    check_ids("pair", &ids, JOINS[_i].pair);
    check_ids("types", &types, JOINS[_i].types);
    kvf__ids_done(&a);
    kvf__ids_done(&b);
    kvf__ids_done(&ids);
    kvf__ids_done(&types);
    kvf__tokenizer_free(t);
    kvf_ctx_free(ctx);
}
END_TEST

/* ---- limits ---------------------------------------------------------------------------------- */

/* Bad bytes become U+FFFD, which BERT drops; offsets still count the original bytes. */
START_TEST(invalid_utf8)
{
    static const char text[] = "\xFF"
                               "b\xE2\x82 a\xC3";
    kvf_ctx *ctx = new_ctx();
    kvf__tokenizer *t = NULL, *small = NULL;
    kvf__ids ids = {0}, origins = {0};

    ok(ctx,
       open_text(
           ctx,
           "{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"u\",\"vocab\":{\"u\":1,\"a\":5,"
           "\"b\":6}},\"normalizer\":{\"type\":\"BertNormalizer\"},\"pre_tokenizer\":{\"type\":"
           "\"BertPreTokenizer\"}}",
           NULL, &t));
    ok(ctx, kvf__encode_offsets(ctx, t, text, sizeof text - 1, &ids, &origins));
    check_ids("bert", &ids, "6 5");
    check_ids("bert", &origins, "1 2 5 6");
    ids.n = origins.n = 0;
    ok(ctx, open_text(ctx, SMALL(",\"unk_token\":\"<unk>\"", ""), NULL, &small));
    ok(ctx, kvf__encode_offsets(ctx, small, text, sizeof text - 1, &ids, &origins));
    check_ids("bpe", &ids, "5 1 5 5 0 5");
    check_ids("bpe", &origins, "0 1 1 2 2 4 4 5 5 6 6 7");
    ids.n = origins.n = 0;
    ok(ctx, kvf__encode_offsets(ctx, t, NULL, 0, &ids, &origins));
    ck_assert(ids.n == 0 && origins.n == 0);
    kvf__ids_done(&ids);
    kvf__ids_done(&origins);
    kvf__tokenizer_free(t);
    kvf__tokenizer_free(small);
    kvf_ctx_free(ctx);
}
END_TEST

/* Any bytes give the same ids as without offsets, and offsets inside the text. */
START_TEST(random_bytes)
{
    static const char *const parts[] = {
        "the",      " ",   "\xC3\xA9", "e\xCC\x81",    "\xE4\xB8\xAD", "\xF0\x9F\x99\x82",
        "\xCC\xA7", "<T>", "<L>",      "\xEF\xBF\xBD", "\xC2\xA0",     ","};
    kvf_ctx *ctx = new_ctx();
    kvf_json *golden = load_json(ctx, ck_source(FILES[_i]));
    size_t n_cases = kvf_json_size(kvf_json_get(golden, "cases"));
    kvf__rng rng = kvf__rng_make(5, (uint64_t)_i);

    for (size_t i = 0; i < n_cases; i++) {
        kvf__tokenizer *t = open_pipeline(ctx, golden, i);
        for (int round = 0; round < 300; round++) {
            kvf__buf text = {0};
            kvf__ids ids = {0}, origins = {0}, plain = {0};
            for (uint64_t k = 1 + kvf__rng_below(&rng, 12); k > 0; k--) {
                const char *part = parts[kvf__rng_below(&rng, sizeof parts / sizeof *parts)];
                ok(ctx, kvf__buf_add(ctx, &text, part, strlen(part)));
                if (kvf__rng_below(&rng, 3) == 0)
                    ok(ctx, kvf__buf_addc(ctx, &text, (char)kvf__rng_below(&rng, 256)));
            }
            ok(ctx, kvf__encode_offsets(ctx, t, text.data, text.n, &ids, &origins));
            ok(ctx, kvf__encode(ctx, t, text.data, text.n, false, &plain));
            ck_assert(plain.n == ids.n && origins.n == 2 * ids.n);
            for (size_t k = 0; k < ids.n; k++) {
                int32_t from = origins.data[2 * k], to = origins.data[2 * k + 1];
                ck_assert_int_eq(plain.data[k], ids.data[k]);
                ck_assert(from >= 0 && from <= to && (size_t)to <= text.n);
            }
            kvf__buf_done(&text);
            kvf__ids_done(&ids);
            kvf__ids_done(&origins);
            kvf__ids_done(&plain);
        }
        kvf__tokenizer_free(t);
    }
    kvf_json_free(golden);
    kvf_ctx_free(ctx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tokenizer_offsets");
    TCase *core = tcase_create("core"), *limits = tcase_create("limits");
    TCase *golden = tcase_create("golden");

    tcase_add_loop_test(core, joins, 0, ROWS(JOINS));
    tcase_add_test(limits, invalid_utf8);
    tcase_set_timeout(limits, 60);
    tcase_add_loop_test(limits, random_bytes, 0, ROWS(FILES));
    tcase_add_loop_test(golden, golden_details, 0, ROWS(FILES));
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, limits);
    suite_add_tcase(suite, golden);
    return ck_main(suite);
}
