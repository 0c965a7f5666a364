/* Token ids compared with those of other implementations. Cases in the tree are synthetic pipelines
 * and a SentencePiece vocabulary. With the shared data also GPT-2, RoBERTa, Llama 2 and 3 and
 * Qwen3. */
#include "infile.h"
#include "outfile.h"
#include "tok_check.h"
#include "vocab_json.h"

/* ---- in the tree ----------------------------------------------------------------------------- */

static void check_case(kvf_ctx *ctx, const kvf_json *golden, size_t i)
{
    const kvf_json *row = kvf_json_at(kvf_json_get(golden, "cases"), i),
                   *texts = kvf_json_get(golden, "texts");
    const kvf_json *ids = kvf_json_get(row, "ids"), *plain = kvf_json_get(row, "plain");
    kvf__tokenizer *t = open_pipeline(ctx, golden, i);

    ck_assert_uint_eq(kvf_json_size(ids), kvf_json_size(texts));
    for (size_t k = 0; k < kvf_json_size(texts); k++) {
        size_t n = 0;
        const char *text = kvf_json_str(kvf_json_at(texts, k), &n);
        const char *want = kvf_json_str(kvf_json_at(ids, k), NULL);
        char what[200];
        snprintf(what, sizeof what, "%s: \"%.100s\"", field(row, "name"), text);
        check_encode(ctx, t, what, text, n, true, want);
        if (plain) want = kvf_json_str(kvf_json_at(plain, k), NULL);
        check_encode(ctx, t, what, text, n, false, want);
    }
    kvf__tokenizer_free(t);
}

START_TEST(pipelines_equal_tokenizers)
{
    kvf_ctx *ctx = new_ctx();
    kvf_json *golden = load_json(ctx, ck_source("tests/golden/tokenizer_pipelines.json"));

    ck_assert_uint_ge(kvf_json_size(kvf_json_get(golden, "cases")), 20);
    for (size_t i = 0; i < kvf_json_size(kvf_json_get(golden, "cases")); i++)
        check_case(ctx, golden, i);
    kvf_json_free(golden);
    kvf_ctx_free(ctx);
}
END_TEST

static void read_ids(kvf_ctx *ctx, const char *text, kvf__ids *out)
{
    char *end;
    for (out->n = 0; *text; text = *end == ' ' ? end + 1 : end)
        ok(ctx, kvf__ids_add(ctx, out, (int32_t)strtol(text, &end, 10)));
}

/* The text of ids given one by one: text once returned stays, and the final text is this one. */
static void check_growing(kvf_ctx *ctx, const kvf__tokenizer *t, const char *name,
                          const kvf__ids *ids, const char *want, size_t want_n)
{
    kvf__decoding *decoding = NULL;
    kvf__buf text = {0}, before = {0};
    kvf__grown grown;
    size_t settled = 0;
    ok(ctx, kvf__decoding_create(ctx, t, true, &decoding));
    for (size_t i = 0; i <= ids->n; i++) {
        before.n = 0;
        ok(ctx, kvf__buf_add(ctx, &before, text.data ? text.data : "", text.n));
        if (i < ids->n)
            ok(ctx, kvf__decoding_add(ctx, decoding, ids->data[i], &text, &grown));
        else
            ok(ctx, kvf__decoding_end(ctx, decoding, &text, &grown));
        ck_assert_uint_ge(grown.settled, settled);
        ck_assert_uint_le(grown.settled, text.n);
        ck_assert_uint_le(grown.settled, want_n);
        settled = grown.settled;
        ck_assert(grown.changed <= before.n && grown.changed <= text.n);
        ck_assert_mem_eq(text.data, before.data, grown.changed);
        ck_assert_msg(!memcmp(text.data, want, settled), "%s: \"%.*s\" of \"%s\"", name,
                      (int)settled, text.data, want);
    }
    ck_assert_msg(text.n == want_n && !memcmp(text.data, want, want_n), "%s: \"%.*s\", want \"%s\"",
                  name, (int)text.n, text.data, want);
    ck_assert_uint_eq(settled, want_n);
    kvf__decoding_free(decoding);
    kvf__buf_done(&before);
    kvf__buf_done(&text);
}

START_TEST(decoders_equal_tokenizers)
{
    kvf_ctx *ctx = new_ctx();
    kvf_json *golden = load_json(ctx, ck_source("tests/golden/tokenizer_decoding.json"));
    const kvf_json *cases = kvf_json_get(golden, "cases");
    kvf__ids ids = {0};

    ck_assert_uint_ge(kvf_json_size(cases), 18);
    for (size_t i = 0; i < kvf_json_size(cases); i++) {
        const kvf_json *row = kvf_json_at(cases, i), *lists = kvf_json_get(row, "ids"),
                       *texts = kvf_json_get(row, "decoded");
        kvf__tokenizer *t = open_pipeline(ctx, golden, i);
        for (size_t k = 0; k < kvf_json_size(lists); k++) {
            size_t n = 0;
            const char *want = kvf_json_str(kvf_json_at(texts, k), &n);
            read_ids(ctx, kvf_json_str(kvf_json_at(lists, k), NULL), &ids);
            check_decode(ctx, t, ids.data, ids.n, true, want, n);
            check_growing(ctx, t, field(row, "name"), &ids, want, n);
        }
        kvf__tokenizer_free(t);
    }
    kvf__ids_done(&ids);
    kvf_json_free(golden);
    kvf_ctx_free(ctx);
}
END_TEST

/* Certain text is returned at once: a character with its last byte, even inside words. */
START_TEST(characters_settle_when_they_are_whole)
{
    kvf_ctx *ctx = new_ctx();
    kvf__tokenizer *t = open_named(ctx, "byte");
    kvf__decoding *decoding = NULL;
    kvf__buf text = {0};
    kvf__grown grown;
    kvf__ids ids = {0};

    ok(ctx, kvf__encode(ctx, t, "\xF0\x9F\xA6\x8A", 4, false, &ids));
    ck_assert_uint_gt(ids.n, 1);
    ok(ctx, kvf__decoding_create(ctx, t, true, &decoding));
    for (size_t i = 0; i < ids.n; i++) {
        ok(ctx, kvf__decoding_add(ctx, decoding, ids.data[i], &text, &grown));
        ck_assert_uint_eq(text.n, i + 1 < ids.n ? 0 : 4);
        ck_assert_uint_eq(grown.settled, text.n);
    }
    kvf__decoding_free(decoding);
    kvf__buf_done(&text);
    kvf__ids_done(&ids);
    kvf__tokenizer_free(t);
    kvf_ctx_free(ctx);
}
END_TEST

/* The cuts of each tokenizer.ggml.pre, on one vocabulary. */
START_TEST(splitters_equal_tokenizers)
{
    kvf_ctx *ctx = new_ctx();
    kvf_json *golden = load_json(ctx, ck_source("tests/golden/tokenizer_splitters.json"));
    const kvf_json *texts = kvf_json_get(golden, "texts");
    const kvf_json *row = kvf_json_at(kvf_json_get(golden, "cases"), (size_t)_i);
    vocab_json vocab;
    kvf__tokenizer *t = NULL;

    vocab_json_read(kvf_json_get(golden, "vocab"), field(row, "pre"), &vocab);
    vocab.v.pre = strcmp(field(row, "pre"), "default") ? field(row, "pre") : NULL; /* not given */
    ok(ctx, kvf__tokenizer_from_vocab(ctx, &vocab.v, &t));
    ck_assert_uint_ge(kvf_json_size(texts), 50);
    for (size_t k = 0; k < kvf_json_size(texts); k++) {
        size_t n = 0;
        const char *text = kvf_json_str(kvf_json_at(texts, k), &n);
        check_encode(ctx, t, text, text, n, true,
                     kvf_json_str(kvf_json_at(kvf_json_get(row, "ids"), k), NULL));
    }
    kvf__tokenizer_free(t);
    vocab_json_done(&vocab);
    kvf_json_free(golden);
    kvf_ctx_free(ctx);
}
END_TEST

START_TEST(scores_equal_sentencepiece)
{
    kvf_ctx *ctx = new_ctx();
    kvf_json *golden = load_json(ctx, ck_source("tests/golden/tokenizer_spm.json"));
    const kvf_json *cases = kvf_json_get(golden, "cases");
    vocab_json vocab;
    kvf__tokenizer *t = NULL;

    vocab_json_read(kvf_json_get(golden, "vocab"), "spm", &vocab);
    ok(ctx, kvf__tokenizer_from_vocab(ctx, &vocab.v, &t));
    vocab_json_done(&vocab);
    ck_assert(kvf__adds_bos(t));
    ck_assert_uint_ge(kvf_json_size(cases), 100);
    for (size_t i = 0; i < kvf_json_size(cases); i++) {
        const kvf_json *row = kvf_json_at(cases, i);
        kvf__ids ids = {0};
        ok(ctx, kvf__encode(ctx, t, field(row, "text"), strlen(field(row, "text")), false, &ids));
        check_ids(field(row, "text"), &ids, field(row, "ids"));
        check_decode(ctx, t, ids.data, ids.n, false, field(row, "decoded"),
                     strlen(field(row, "decoded")));
        kvf__ids_done(&ids);
    }
    kvf__tokenizer_free(t);
    kvf_json_free(golden);
    kvf_ctx_free(ctx);
}
END_TEST

/* ---- shared data ----------------------------------------------------------------------------- */

static kvf__tokenizer *open_shared(kvf_ctx *ctx, const char *name)
{
    char path[200];
    const char *dir;
    kvf__tokenizer *t = NULL;

    snprintf(path, sizeof path, "data/tokenizers/%s", name);
    dir = ck_shared(path);
    if (!dir) return NULL;
    ok(ctx, kvf__tokenizer_from_dir(ctx, dir, &t));
    return t;
}

START_TEST(nasty_texts)
{
    ck_need(ck_shared("data/tokenizers"), "the shared data are not there");
    kvf_ctx *ctx = new_ctx();
    kvf_json *golden = load_json(ctx, ck_source("tests/golden/tokenizer_shared.json"));
    const kvf_json *row = kvf_json_at(kvf_json_get(golden, "cases"), (size_t)_i);
    const kvf_json *texts = kvf_json_get(golden, "texts");
    kvf__tokenizer *t = open_shared(ctx, field(row, "tokenizer"));

    for (size_t k = 0; t && k < kvf_json_size(texts); k++) {
        size_t n = 0;
        const char *text = kvf_json_str(kvf_json_at(texts, k), &n);
        check_encode(ctx, t, text, text, n, true,
                     kvf_json_str(kvf_json_at(kvf_json_get(row, "ids"), k), NULL));
        if (strcmp(field(row, "tokenizer"), "gpt2") == 0) check_round_trip(ctx, t, text, n);
    }
    kvf__tokenizer_free(t);
    kvf_json_free(golden);
    kvf_ctx_free(ctx);
}
END_TEST

/* Llama 2 by scores from llama2.c's file: longest token i32, then per token score f32, length i32,
 * bytes. It spells U+2581 as a space, and the two marks with line breaks around. */
static kvf__tokenizer *open_llama2(kvf_ctx *ctx, kvf__mapfile *file)
{
    enum { TOKENS = 32000 };
    const char *path = ck_shared("data/tokenizers/llama2/tokenizer.llama2c.bin");
    static const char *tokens[TOKENS];
    static size_t bytes[TOKENS];
    static float scores[TOKENS];
    static int32_t types[TOKENS];
    kvf__vocab v = {.where = "llama2c",
                    .model = "llama",
                    .n_tokens = TOKENS,
                    .tokens = tokens,
                    .token_bytes = bytes,
                    .scores = scores,
                    .types = types,
                    .bos = 1,
                    .eos = 2,
                    .unk = 0,
                    .pad = -1,
                    .add_bos = -1,
                    .add_eos = -1,
                    .add_space_prefix = -1};
    kvf__buf text = {0};
    size_t at[TOKENS + 1];
    kvf__reader r = {0};
    kvf__tokenizer *t = NULL;

    if (!path) return NULL;
    ok(ctx, kvf__mapfile_open(ctx, path, file));
    r = (kvf__reader){.data = file->data, .n = file->n};
    kvf__read_u32(&r);
    for (size_t i = 0; i < TOKENS; i++) {
        scores[i] = kvf__read_f32(&r);
        size_t n = kvf__read_u32(&r);
        const char *s = (const char *)kvf__read_bytes(&r, n);
        ck_assert_ptr_nonnull(s);
        at[i] = text.n;
        types[i] = i == 0 ? 2 : i < 3 ? 3 : i < 259 ? 6 : 1;
        for (size_t k = 0; k < n; k++)
            if (s[k] == ' ')
                ok(ctx, kvf__buf_add(ctx, &text, "\xE2\x96\x81", 3));
            else if (types[i] != 3 || s[k] != '\n')
                ok(ctx, kvf__buf_addc(ctx, &text, s[k]));
    }
    at[TOKENS] = text.n;
    for (size_t i = 0; i < TOKENS; i++) {
        tokens[i] = text.data + at[i];
        bytes[i] = at[i + 1] - at[i];
    }
    ok(ctx, kvf__tokenizer_from_vocab(ctx, &v, &t));
    kvf__buf_done(&text);
    return t;
}

/* text, tokens, ids of one long text, made with the models' own tokenizers. */
static void check_long_text(kvf_ctx *ctx, const kvf__tokenizer *t, const char *file, size_t skip)
{
    kvf_json *json = load_json(ctx, ck_shared(file));
    const kvf_json *want = kvf_json_get(json, "token_ids"),
                   *tokens = kvf_json_get(json, "bpe_tokens");
    const char *text = field(json, "text");
    kvf__ids ids = {0};

    ok(ctx, kvf__encode(ctx, t, text, strlen(text), false, &ids));
    ck_assert_uint_eq(ids.n, kvf_json_size(want) - skip);
    ck_assert_uint_eq(ids.n, kvf_json_size(tokens));
    for (size_t i = 0; i < ids.n; i++) {
        ck_assert_int_eq(ids.data[i], kvf_json_int(kvf_json_at(want, i + skip), -1));
        ck_assert_str_eq(kvf__token_text(t, ids.data[i]),
                         kvf_json_str(kvf_json_at(tokens, i), NULL));
    }
    check_decode(ctx, t, ids.data, ids.n, true, text, strlen(text));
    kvf__ids_done(&ids);
    kvf_json_free(json);
}

/* `skip`: leading special ids that this copy of the tokenizer does not add. transformers cleaned up
 * the strings' decoded form, so decoding must return the text itself. */
static void check_strings(kvf_ctx *ctx, const kvf__tokenizer *t, const char *key, size_t skip)
{
    kvf_json *json = load_json(ctx, ck_shared("data/tokenizers/golden/tokenizer_tests.json"));
    const kvf_json *rows = kvf_json_get(json, key);

    ck_assert_uint_ge(kvf_json_size(rows), 18);
    for (size_t i = 0; i < kvf_json_size(rows); i++) {
        const kvf_json *row = kvf_json_at(rows, i);
        const kvf_json *want = kvf_json_get(kvf_json_get(row, "encoded"), "input_ids");
        const char *text = field(row, "input");
        kvf__ids ids = {0};
        ok(ctx, kvf__encode(ctx, t, text, strlen(text), false, &ids));
        ck_assert_uint_eq(ids.n, kvf_json_size(want) - skip);
        for (size_t k = 0; k < ids.n; k++)
            ck_assert_int_eq(ids.data[k], kvf_json_int(kvf_json_at(want, k + skip), -1));
        check_decode(ctx, t, ids.data, ids.n, true, text, strlen(text));
        kvf__ids_done(&ids);
    }
    kvf_json_free(json);
}

static const struct {
    const char *tokenizer, *long_text, *strings;
    size_t skip;
} PUBLISHED[] = {
    {"gpt2", "data/tokenizers/golden/gpt2_encoded_tokens.json", "distilgpt2", 0},
    {"llama3", "data/tokenizers/golden/llama_3.2_encoded.json",
     "pcuenq/Llama-3.2-1B-Instruct-tokenizer", 1},
    {"llama2", "data/tokenizers/golden/llama_encoded.json",
     "coreml-projects/Llama-2-7b-chat-coreml", 1},
};

START_TEST(published_goldens)
{
    ck_need(ck_shared("data/tokenizers"), "the shared data are not there");
    kvf_ctx *ctx = new_ctx();
    kvf__mapfile file = {0};
    bool llama2 = strcmp(PUBLISHED[_i].tokenizer, "llama2") == 0;
    kvf__tokenizer *t = llama2 ? open_llama2(ctx, &file)
                               : open_shared(ctx, PUBLISHED[_i].tokenizer);

    if (t) {
        check_long_text(ctx, t, PUBLISHED[_i].long_text, PUBLISHED[_i].skip);
        check_strings(ctx, t, PUBLISHED[_i].strings, PUBLISHED[_i].skip);
    }
    kvf__tokenizer_free(t);
    kvf__mapfile_close(&file);
    kvf_ctx_free(ctx);
}
END_TEST

/* Its file lost the no-break spaces of three merges, which then cannot be distinguished: refused
 * with its place. */
START_TEST(damaged_llama2_is_refused)
{
    ck_need(ck_shared("data/tokenizers"), "the shared data are not there");
    kvf_ctx *ctx = new_ctx();
    const char *dir = ck_shared("data/tokenizers/llama2");
    kvf__tokenizer *t = NULL;

    if (dir) {
        ck_assert_int_eq(kvf__tokenizer_from_dir(ctx, dir, &t), KVF_EFORMAT);
        ck_assert_ptr_nonnull(strstr(kvf_ctx_error(ctx), "merge 18917"));
        ck_assert_ptr_null(t);
    }
    kvf_ctx_free(ctx);
}
END_TEST

/* vocab.json + merges.txt give the ids of tokenizer.json. */
START_TEST(merges_equal_json)
{
    ck_need(ck_shared("data/tokenizers"), "the shared data are not there");
    kvf_ctx *ctx = new_ctx();
    kvf__tokenizer *t = open_shared(ctx, "gpt2"), *other = NULL;
    const char *dir = ck_tmpdir(), *files[] = {"vocab.json", "merges.txt"};
    char from[200], to[1000], text[] = "Hello  world's <|endoftext|> 123\n\tété";
    kvf__ids ids = {0}, other_ids = {0};

    for (size_t i = 0; t && i < 2; i++) {
        kvf__buf data = {0};
        snprintf(from, sizeof from, "data/tokenizers/gpt2/%s", files[i]);
        snprintf(to, sizeof to, "%s/%s", dir, files[i]);
        ok(ctx, kvf__read_file(ctx, ck_shared(from), (size_t)1 << 24, &data));
        ok(ctx, kvf__write_file(ctx, to, false, data.data, data.n));
        kvf__buf_done(&data);
    }
    if (t) {
        ok(ctx, kvf__tokenizer_from_dir(ctx, dir, &other));
        ok(ctx, kvf__encode(ctx, t, text, strlen(text), true, &ids));
        ok(ctx, kvf__encode(ctx, other, text, strlen(text), true, &other_ids));
        ck_assert_uint_eq(ids.n, other_ids.n);
        ck_assert_mem_eq(ids.data, other_ids.data, ids.n * sizeof *ids.data);
        ck_assert_int_eq(kvf__token_eos(other), 50256);
        ck_assert_int_eq(kvf__vocab_size(other), 50257);
        ck_assert(!kvf__adds_bos(other));
    }
    kvf__ids_done(&ids);
    kvf__ids_done(&other_ids);
    kvf__tokenizer_free(t);
    kvf__tokenizer_free(other);
    kvf_ctx_free(ctx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tokenizer_golden");
    TCase *golden = tcase_create("golden");
    TCase *shared = tcase_create("shared");

    tcase_add_test(golden, pipelines_equal_tokenizers);
    tcase_add_test(golden, decoders_equal_tokenizers);
    tcase_add_test(golden, characters_settle_when_they_are_whole);
    tcase_add_test(golden, scores_equal_sentencepiece);
    tcase_add_loop_test(golden, splitters_equal_tokenizers, 0, 12);
    tcase_set_timeout(shared, 60);
    tcase_add_loop_test(shared, nasty_texts, 0, 4);
    tcase_add_loop_test(shared, published_goldens, 0, ROWS(PUBLISHED));
    tcase_add_test(shared, damaged_llama2_is_refused);
    tcase_add_test(shared, merges_equal_json);
    suite_add_tcase(suite, golden);
    suite_add_tcase(suite, shared);
    return ck_main(suite);
}
