/* Tokenizers: queries, round trips, hostile text. */
#include "rng.h"
#include "tok_check.h"

/* ---- core ------------------------------------------------------------------------------------ */

START_TEST(answers_about_tokens)
{
    kvf_ctx *ctx = new_ctx();
    kvf__tokenizer *t = NULL;

    ok(ctx,
       open_text(
           ctx,
           SMALL(",\"unk_token\":\"<unk>\"",
                 ",\"added_tokens\":[{\"id\":6,\"content\":\"<s>\",\"special\":true},"
                 "{\"id\":9,\"content\":\"<x>\"}]"),
           "{\"bos_token\":\"<s>\",\"eos_token\":{\"content\":\"</s>\"},\"chat_template\":\"hi\","
           "\"model_max_length\":1000000000000000019884624838656}",
           &t));
    ck_assert_int_eq(kvf__vocab_size(t), 10);
    ck_assert_int_eq(kvf__token_bos(t), 6);
    ck_assert_int_eq(kvf__token_eos(t), 7);
    ck_assert_int_eq(kvf__token_id(t, "abc"), 4);
    ck_assert_int_eq(kvf__token_id(t, "<x>"), 9);
    ck_assert_int_eq(kvf__token_id(t, "nothing"), -1);
    ck_assert_str_eq(kvf__token_text(t, 3), "ab");
    ck_assert_ptr_null(kvf__token_text(t, 8));
    ck_assert_ptr_null(kvf__token_text(t, -1));
    ck_assert_ptr_null(kvf__token_text(t, 10));
    ck_assert(kvf__token_is_special(t, 6) && kvf__token_is_special(t, 7) &&
              !kvf__token_is_special(t, 9));
    ck_assert(kvf__token_is_ordinary(t, 0) && kvf__token_is_ordinary(t, 9));
    ck_assert(!kvf__token_is_ordinary(t, 5) && !kvf__token_is_ordinary(t, 6) &&
              !kvf__token_is_ordinary(t, 8));
    ck_assert_str_eq(kvf__tokenizer_chat_template(t), "hi");
    ck_assert(!kvf__adds_bos(t));
    check_encode(ctx, t, "added", "abc<x>ab<s>z</s>", 16, true, "4 9 3 6 5 7");
    kvf__tokenizer_set_bos(t, 3);
    kvf__tokenizer_set_eos(t, 4);
    ck_assert_int_eq(kvf__token_bos(t), 3);
    ck_assert_int_eq(kvf__token_eos(t), 4);
    kvf__tokenizer_free(t);
    kvf_ctx_free(ctx);
}
END_TEST

#define VOCAB_JSON "{\"a\":0,\"b\":1,\"c\":2,\"ab\":3,\"abc\":4,\"<unk>\":5,\"<s>\":6,\"</s>\":7}"

/* The post-processor of a tokenizer.json overrides add_bos_token and add_eos_token. With vocab.json
 * and merges.txt (rest: NULL) these build the post-processor. Ids of transformers 5.24. */
static const struct {
    const char *rest, *config, *want;
    bool adds_bos;
} BOS_EOS[] = {
    {"", "{}", "4", false},
    {TEMPLATE, "{}", "6 4", true},
    {TEMPLATE, "{\"tokenizer_class\":\"LlamaTokenizerFast\"}", "6 4", true},
    {"", "{\"tokenizer_class\":\"LlamaTokenizer\"}", "4", false},
    {"", "{\"tokenizer_class\":\"LlamaTokenizer\",\"add_bos_token\":true}", "4", false},
    {TEMPLATE, "{\"add_bos_token\":false}", "6 4", true},
    {TEMPLATE, "{\"add_bos_token\":false,\"add_eos_token\":true}", "6 4", true},
    {NULL, "{}", "4", false},
    {NULL, "{\"add_bos_token\":true}", "6 4", true},
    {NULL, "{\"add_bos_token\":true,\"add_eos_token\":true}", "6 4 7", true},
    {NULL, "{\"add_bos_token\":false,\"add_eos_token\":true}", "4 7", false},
    {NULL, "{\"add_bos_token\":true,\"bos_token\":null}", "4", false},
};

START_TEST(bos_and_eos_rule)
{
    const char *rest = BOS_EOS[_i].rest;
    kvf_ctx *ctx = new_ctx();
    char text[1000];
    const kvf__text_file files[] = {
        {"tokenizer_config.json", BOS_EOS[_i].config},
        {"special_tokens_map.json", strstr(BOS_EOS[_i].config, "null")
                                        ? "{}"
                                        : "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}"},
        {rest ? "tokenizer.json" : "vocab.json", rest ? text : VOCAB_JSON},
        {"merges.txt", "a b\nab c\n"}};
    kvf__tokenizer *t = NULL;

    snprintf(text, sizeof text, "%.*s%s}", (int)strlen(SMALL("", "")) - 1, SMALL("", ""),
             rest ? rest : "");
    ok(ctx, kvf__tokenizer_from_texts(ctx, "folder", files, ROWS(files), &t));
    check_encode(ctx, t, "with", "abc", 3, true, BOS_EOS[_i].want);
    check_encode(ctx, t, "without", "abc", 3, false, "4");
    ck_assert_int_eq(kvf__adds_bos(t), BOS_EOS[_i].adds_bos);
    if (!rest) ck_assert_uint_eq(kvf__specials_cost(t, true), 2 * kvf__specials_cost(t, false));
    kvf__tokenizer_free(t);
    kvf_ctx_free(ctx);
}
END_TEST

/* Ids, EOS and special tokens of transformers 5.24 for "ab<e>c<x y>a</s>"; says: part of the
 * warning, or of the error if there are no ids. */
static const struct {
    const char *model, *config, *special, *added, *want, *says;
    int32_t eos;
    bool e_special, xy_special;
} ADDED_FILES[] = {
    {SMALL("", ""), "{\"eos_token\":\"<e>\"}", NULL, "{\"<e>\":8,\"<x y>\":9}", "3 8 2 9 0", NULL,
     8, true, false},
    {SMALL("", ""), NULL,
     "{\"eos_token\":{\"content\":\"<e>\"},\"additional_special_tokens\":[\"<x y>\",\"<e>\"]}",
     "{\"<e>\":8,\"<x y>\":9}", "3 8 2 9 0", NULL, 8, true, true},
    {SMALL("", ""), "{\"extra_special_tokens\":{\"my\":\"</s>\"},\"other_token\":\"<e>\"}", NULL,
     "{\"<e>\":8}", "3 8 2 0 7", NULL, -1, true, false},
    {SMALL("", ",\"added_tokens\":[{\"id\":6,\"content\":\"<s>\",\"special\":true}]"),
     "{\"eos_token\":\"<s>\"}", NULL, "{\"<s>\":99,\"<e>\":8,\"<x y>\":9}", "3 8 2 9 0", NULL, 6,
     false, false},
    {SMALL("", ""),
     "{\"eos_token\":\"<e>\",\"added_tokens_decoder\":{\"8\":{\"content\":\"<e>\",\"special\":true}"
     "}}",
     "{\"eos_token\":\"<s>\"}", "{\"<e>\":7,\"<x y>\":9}", "3 8 2 0", NULL, 8, true, false},
    {SMALL("", ""), "{\"eos_token\":\"<s>\"}", "{\"eos_token\":\"</s>\"}", NULL, "4 0 7", NULL, 7,
     false, false},
    {NULL, "{\"tokenizer_class\":\"GPT2Tokenizer\",\"eos_token\":\"</s>\",\"bos_token\":\"<s>\"}",
     NULL, "{\"<e>\":8,\"<x y>\":9}", "3 8 2 9 0 7", NULL, 7, false, false},
    {SMALL("", ""), "{\"eos_token\":\"<e>\",\"pad_token\":null}", NULL, NULL, "3 8 2 0",
     "folder: eos_token \"<e>\" has no id in any file of the tokenizer and gets 8, the next one, "
     "as "
     "in transformers",
     8, true, false},
    {SMALL("", ""), NULL, "{\"additional_special_tokens\":[\"<x y>\"]}", "{\"<e>\":8}", "3 8 2 9 0",
     "folder: additional_special_tokens \"<x y>\" has no id", -1, false, true},
    {SMALL("", ""), "{\"a_token\":\"<x y>\",\"pad_token\":\"<p>\",\"eos_token\":\"<e>\"}", NULL,
     NULL, "3 8 2 10 0", "\"<x y>\" has no id", 8, true, true},
    {SMALL("", ""), NULL, NULL, "[\"<e>\"]", NULL, "folder/added_tokens.json: not a JSON object", 0,
     false, false},
    {SMALL("", ""), NULL, NULL, "{\"<e>\":\"8\"}", NULL,
     "folder/added_tokens.json: the id of \"<e>\" is not a number of at least 0", 0, false, false},
    {SMALL("", ""), NULL, NULL, "{\"<e>\":99999999}", NULL,
     "folder/added_tokens.json: token \"<e>\" has id 99999999", 0, false, false},
    {SMALL("", ""), NULL, NULL, "{\"<e>\":3}", NULL,
     "folder/added_tokens.json: \"<e>\" has id 3, which belongs to \"ab\"", 0, false, false},
};

static char warned[1000];

static void keep_warning(void *user, kvf_log_level level, const char *line)
{
    (void)user;
    if (level == KVF_LOG_WARN) snprintf(warned, sizeof warned, "%s", line);
}

START_TEST(added_tokens_of_a_file)
{
    static const char text[] = "ab<e>c<x y>a</s>";
    const kvf__text_file rows[] = {{ADDED_FILES[_i].model ? "tokenizer.json" : "vocab.json",
                                    ADDED_FILES[_i].model ? ADDED_FILES[_i].model : VOCAB_JSON},
                                   {"merges.txt", "a b\nab c\n"},
                                   {"tokenizer_config.json", ADDED_FILES[_i].config},
                                   {"special_tokens_map.json", ADDED_FILES[_i].special},
                                   {"added_tokens.json", ADDED_FILES[_i].added}};
    kvf__text_file files[ROWS(rows)];
    size_t n = 0;
    const kvf_ctx_options options = {.log = keep_warning};
    kvf_ctx *ctx = NULL;
    kvf__tokenizer *t = NULL;

    for (size_t i = 0; i < (size_t)ROWS(rows); i++)
        if (rows[i].text) files[n++] = rows[i];
    *warned = 0;
    ck_assert_int_eq(kvf_ctx_create(&options, &ctx), KVF_OK);
    if (!ADDED_FILES[_i].want) {
        ck_assert_int_eq(kvf__tokenizer_from_texts(ctx, "folder", files, n, &t), KVF_EFORMAT);
        ck_assert_ptr_nonnull(strstr(kvf_ctx_error(ctx), ADDED_FILES[_i].says));
        kvf_ctx_free(ctx);
        return;
    }
    ok(ctx, kvf__tokenizer_from_texts(ctx, "folder", files, n, &t));
    ck_assert_msg(ADDED_FILES[_i].says ? strstr(warned, ADDED_FILES[_i].says) != NULL : !*warned,
                  "warning: %s", warned);
    check_encode(ctx, t, "added", text, strlen(text), false, ADDED_FILES[_i].want);
    ck_assert_int_eq(kvf__token_eos(t), ADDED_FILES[_i].eos);
    ck_assert_int_eq(kvf__token_is_special(t, kvf__token_id(t, "<e>")), ADDED_FILES[_i].e_special);
    ck_assert_int_eq(kvf__token_is_special(t, kvf__token_id(t, "<x y>")),
                     ADDED_FILES[_i].xy_special);
    kvf__tokenizer_free(t);
    kvf_ctx_free(ctx);
}
END_TEST

START_TEST(decoding)
{
    kvf_ctx *ctx = new_ctx();
    kvf__tokenizer *t = open_named(ctx, "llama legacy");
    int32_t a = kvf__token_id(t, "a"), hex = kvf__token_id(t, "<0xC3>"),
            nine = kvf__token_id(t, "<0xA9>");
    int32_t special = kvf__token_id(t, "<T>");

    check_decode(ctx, t, NULL, 0, false, "", 0);
    check_decode(ctx, t, (int32_t[]){hex, nine, a}, 3, false,
                 "\xC3\xA9"
                 "a",
                 3);
    check_decode(ctx, t, (int32_t[]){hex, a, nine}, 3, false,
                 "\xEF\xBF\xBD"
                 "a\xEF\xBF\xBD",
                 7);
    check_decode(ctx, t, (int32_t[]){special, a}, 2, false, "<T>a", 4);
    check_decode(ctx, t, (int32_t[]){special, a}, 2, true, "a", 1);
    check_decode(ctx, t, (int32_t[]){a, -1, 1 << 30, a}, 4, true,
                 "a\xEF\xBF\xBD\xEF\xBF\xBD"
                 "a",
                 8);
    kvf__tokenizer_free(t);
    kvf_ctx_free(ctx);
}
END_TEST

/* A list that grows keeps its contents; a decoded text is appended too. */
START_TEST(appends)
{
    kvf_ctx *ctx = new_ctx();
    kvf__tokenizer *t = NULL;
    kvf__ids ids = {0};
    kvf__buf text = {0};

    ok(ctx, open_text(ctx, SMALL("", ",\"decoder\":{\"type\":\"Fuse\"}"), NULL, &t));
    ok(ctx, kvf__encode(ctx, t, "ab", 2, false, &ids));
    ok(ctx, kvf__encode(ctx, t, "abcc", 4, false, &ids));
    check_ids("both", &ids, "3 4 2");
    ok(ctx, kvf__buf_add(ctx, &text, "> ", 2));
    ok(ctx, kvf__decode(ctx, t, ids.data, ids.n, false, &text));
    ck_assert_str_eq(text.data, "> ababcc");
    kvf__ids_done(&ids);
    kvf__buf_done(&text);
    kvf__tokenizer_free(t);
    kvf_ctx_free(ctx);
}
END_TEST

#define UNDERLINE_A                                                                                \
    "\xE2\x96\x81"                                                                                 \
    "a"

/* "llama" of GGUF: user-defined and control tokens are cut out first, then each text between them
 * gets its space. */
START_TEST(spm_special_tokens)
{
    static const char *const tokens[] = {"<unk>", "<s>", "</s>",      "<0x21>", "\xE2\x96\x81",
                                         "a",     "b",   UNDERLINE_A, "ab",     "<u v>"};
    size_t bytes[10];
    float scores[] = {0, 0, 0, 0, -1, -1, -1, -2, -3, 0};
    int32_t types[] = {2, 3, 3, 6, 1, 1, 1, 1, 1, 4};
    kvf__vocab v = {.where = "spm",
                    .model = "llama",
                    .n_tokens = 10,
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
    kvf_ctx *ctx = new_ctx();
    kvf__tokenizer *t = NULL;

    for (size_t i = 0; i < 10; i++)
        bytes[i] = strlen(tokens[i]);
    ok(ctx, kvf__tokenizer_from_vocab(ctx, &v, &t));
    check_encode(ctx, t, "score before place", "ab", 2, true, "1 7 6");
    check_encode(ctx, t, "special", "a<u v>a</s>b", 12, false, "7 9 7 2 4 6");
    check_encode(ctx, t, "bytes", "a!?", 3, false, "7 3 0");
    check_encode(ctx, t, "empty", "", 0, true, "1");
    ck_assert(!kvf__token_is_ordinary(t, 0) && !kvf__token_is_ordinary(t, 1) &&
              !kvf__token_is_ordinary(t, 3));
    ck_assert(kvf__token_is_ordinary(t, 9) && kvf__token_is_special(t, 2) &&
              !kvf__token_is_special(t, 9));
    check_decode(ctx, t, (int32_t[]){1, 7, 6, 9}, 4, true, "ab<u v>", 7);
    kvf__tokenizer_free(t);
    v.add_space_prefix = v.add_bos = 0;
    ok(ctx, kvf__tokenizer_from_vocab(ctx, &v, &t));
    check_encode(ctx, t, "no prefix", "ab a", 4, true, "8 7");
    kvf__tokenizer_free(t);
    v.strip_after = true; /* Phi-3: not after <s>; </s> is special by its text, as in llama.cpp */
    types[2] = 1;
    char *json = NULL, *config = NULL, *kept = NULL;
    ok(ctx, kvf__vocab_to_json(ctx, &v, &kept));
    ok(ctx, kvf__vocab_to_transformers(ctx, "x.gguf", kept, &json, &config));
    const kvf__text_file files[][2] = {
        {{"tokenizer.gguf.json", kept}},
        {{"tokenizer.json", json}, {"tokenizer_config.json", config}}};
    for (size_t i = 0; i < 3; i++) {
        if (i) ok(ctx, kvf__tokenizer_from_texts(ctx, "x", files[i - 1], i, &t));
        if (!i) ok(ctx, kvf__tokenizer_from_vocab(ctx, &v, &t));
        check_encode(ctx, t, "stripped", "a</s> \n<u v>  b<s> a", 20, true, "5 2 9 6 1 7");
        ck_assert(kvf__token_is_special(t, 2));
        kvf__tokenizer_free(t);
    }
    kvf__free(kept);
    kvf__free(json);
    kvf__free(config);
    kvf_ctx_free(ctx);
}
END_TEST

/* ---- limits ---------------------------------------------------------------------------------- */

/* Every kind of bad UTF-8 as read by a conforming reader: U+FFFD once per maximal subpart. */
static const struct {
    const char *bytes, *repaired;
} BROKEN[] = {
    {"a\x80z", "a\xEF\xBF\xBDz"},
    {"a\xC3", "a\xEF\xBF\xBD"},
    {"a\xC3z", "a\xEF\xBF\xBDz"},
    {"\xC0\xAF", "\xEF\xBF\xBD\xEF\xBF\xBD"},
    {"\xE2\x82", "\xEF\xBF\xBD"},
    {"\xE2\x82z", "\xEF\xBF\xBDz"},
    {"\xE0\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
    {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
    {"\xF0\x9F\x99", "\xEF\xBF\xBD"},
    {"\xF0\x9F\x99\xF0\x9F\x99\x82", "\xEF\xBF\xBD\xF0\x9F\x99\x82"},
    {"\xF4\x90\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
    {"\xF8\x88\x80\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
    {"\xFF\xFE", "\xEF\xBF\xBD\xEF\xBF\xBD"},
};

START_TEST(bad_utf8_is_replaced)
{
    kvf_ctx *ctx = new_ctx();
    kvf__tokenizer *t = open_named(ctx, "byte");
    kvf__ids ids = {0};

    ok(ctx, kvf__encode(ctx, t, BROKEN[_i].bytes, strlen(BROKEN[_i].bytes), false, &ids));
    check_decode(ctx, t, ids.data, ids.n, false, BROKEN[_i].repaired, strlen(BROKEN[_i].repaired));
    kvf__ids_done(&ids);
    kvf__tokenizer_free(t);
    kvf_ctx_free(ctx);
}
END_TEST

/* Bytes in runs of one kind, so that every decoder state occurs. */
static size_t random_bytes(kvf__rng *rng, char *out, size_t most)
{
    static const char *const kinds[] = {
        "ab the",           " \n\t",        "<T><S><L><XYZ>",  "\xC3\xA9\xCC\x81",
        "\xF0\x9F\x99\x82", "\xE2\x96\x81", "\xED\xA0\x80\xFF"};
    size_t n = 0, want = kvf__rng_below(rng, most);

    while (n < want) {
        const char *kind = kinds[kvf__rng_below(rng, sizeof kinds / sizeof *kinds)];
        size_t length = strlen(kind);
        if (kvf__rng_below(rng, 3) == 0)
            out[n++] = (char)kvf__rng_below(rng, 256);
        else
            for (size_t k = kvf__rng_below(rng, length); k < length && n < want; k++)
                out[n++] = kind[k];
    }
    return n;
}

START_TEST(random_bytes_do_no_harm)
{
    kvf_ctx *ctx = new_ctx();
    kvf_json *json = golden(ctx);
    size_t cases = kvf_json_size(kvf_json_get(json, "cases"));
    kvf__rng rng = kvf__rng_make(7, 0);

    for (size_t i = 0; i < cases; i++) {
        kvf__tokenizer *t = open_pipeline(ctx, json, i);
        for (int k = 0; k < 300; k++) {
            char bytes[64];
            size_t n = random_bytes(&rng, bytes, sizeof bytes);
            kvf__ids ids = {0};
            kvf__buf text = {0};
            ok(ctx, kvf__encode(ctx, t, bytes, n, true, &ids));
            for (size_t j = 0; j < ids.n; j++)
                ck_assert_ptr_nonnull(kvf__token_text(t, ids.data[j]));
            ok(ctx, kvf__decode(ctx, t, ids.data, ids.n, k % 2, &text));
            kvf__ids_done(&ids);
            kvf__buf_done(&text);
        }
        kvf__tokenizer_free(t);
    }
    kvf_json_free(json);
    kvf_ctx_free(ctx);
}
END_TEST

/* A list takes all ids of a text or refuses it, whether or not their number is known in advance. */
START_TEST(a_limit_of_ids_is_exact)
{
    kvf_ctx *ctx = new_ctx();
    kvf_json *json = golden(ctx);
    size_t cases = kvf_json_size(kvf_json_get(json, "cases"));
    kvf__rng rng = kvf__rng_make(8, 0);

    for (size_t i = 0; i < cases; i++) {
        kvf__tokenizer *t = open_pipeline(ctx, json, i);
        for (int k = 0; k < 20; k++) {
            char bytes[64];
            size_t n = random_bytes(&rng, bytes, sizeof bytes);
            kvf__ids all = {0};
            ok(ctx, kvf__encode(ctx, t, bytes, n, true, &all));
            for (size_t most = 1; most <= all.n + 1; most++) {
                kvf__ids ids = {.most = most};
                kvf_status st = kvf__encode(ctx, t, bytes, n, true, &ids);
                ck_assert_int_eq(st, most < all.n ? KVF_EDATA : KVF_OK);
                ck_assert_uint_eq(ids.n, most < all.n ? 0 : all.n);
                kvf__ids_done(&ids);
            }
            kvf__ids_done(&all);
        }
        kvf__tokenizer_free(t);
    }
    kvf_json_free(json);
    kvf_ctx_free(ctx);
}
END_TEST

/* Any Unicode text survives a byte-level tokenizer without normalizer. */
START_TEST(byte_level_round_trip)
{
    static const char *const names[] = {"byte", "digits", "empty matches"};
    kvf_ctx *ctx = new_ctx();
    kvf__tokenizer *t = open_named(ctx, names[_i]);
    kvf__rng rng = kvf__rng_make(11, 0);

    for (int k = 0; k < 1000; k++) {
        kvf__buf text = {0};
        for (size_t n = kvf__rng_below(&rng, 30); n > 0; n--) {
            static const uint32_t limits[] = {0x80, 0x800, 0x10000, 0x110000};
            uint32_t cp = (uint32_t)kvf__rng_below(&rng, limits[kvf__rng_below(&rng, 4)]);
            char utf8[8];
            if (cp < 0x80)
                ok(ctx, kvf__buf_addc(ctx, &text, (char)cp));
            else if (cp < 0x800)
                ok(ctx, kvf__buf_add(ctx, &text, utf8,
                                     (size_t)snprintf(utf8, 8, "%c%c", (int)(0xC0 | cp >> 6),
                                                      (int)(0x80 | (cp & 63)))));
            else if (cp < 0x10000 && (cp < 0xD800 || cp > 0xDFFF))
                ok(ctx, kvf__buf_add(ctx, &text, utf8,
                                     (size_t)snprintf(utf8, 8, "%c%c%c", (int)(0xE0 | cp >> 12),
                                                      (int)(0x80 | (cp >> 6 & 63)),
                                                      (int)(0x80 | (cp & 63)))));
            else if (cp >= 0x10000)
                ok(ctx, kvf__buf_add(ctx, &text, utf8,
                                     (size_t)snprintf(utf8, 8, "%c%c%c%c", (int)(0xF0 | cp >> 18),
                                                      (int)(0x80 | (cp >> 12 & 63)),
                                                      (int)(0x80 | (cp >> 6 & 63)),
                                                      (int)(0x80 | (cp & 63)))));
        }
        if (text.n) check_round_trip(ctx, t, text.data, text.n);
        kvf__buf_done(&text);
    }
    kvf__tokenizer_free(t);
    kvf_ctx_free(ctx);
}
END_TEST

/* Long repetitions: each would take minutes if any step were quadratic. */
static const struct {
    const char *pipeline, *unit;
} LONG_RUNS[] = {{"byte", "a"},
                 {"byte", " "},
                 {"byte", "\n"},
                 {"byte", "the "},
                 {"NFC", "\xCC\x81\xCC\xA7"},
                 {"NFKD", "\xEF\xB7\xBA"},
                 {"llama legacy", "a"},
                 {"llama legacy", "<S>"},
                 {"byte", "<X"},
                 {"split MergedWithNext False", ","}};

START_TEST(long_runs)
{
    enum { BYTES = 300000 };
    kvf_ctx *ctx = new_ctx();
    kvf__tokenizer *t = open_named(ctx, LONG_RUNS[_i].pipeline);
    size_t unit = strlen(LONG_RUNS[_i].unit);
    char *text = malloc(BYTES + unit);
    size_t n = 0;
    kvf__ids ids = {0};

    for (; n < BYTES; n += unit)
        memcpy(text + n, LONG_RUNS[_i].unit, unit);
    ok(ctx, kvf__encode(ctx, t, text, n, true, &ids));
    ck_assert_uint_gt(ids.n, 0);
    kvf__ids_done(&ids);
    free(text);
    kvf__tokenizer_free(t);
    kvf_ctx_free(ctx);
}
END_TEST

/* WordPiece in a GGUF: U+2581 begins a word, and continuations have lost their ##. */
START_TEST(wordpiece_of_a_gguf)
{
    static const char *const tokens[] = {"[PAD]",
                                         "[UNK]",
                                         "[CLS]",
                                         "[SEP]",
                                         "[MASK]",
                                         UNDERLINE_A,
                                         "a",
                                         "\xE2\x96\x81"
                                         "b",
                                         "bc",
                                         "\xE2\x96\x81"
                                         "!",
                                         "\xE2\x96\x81"
                                         "Ab"};
    size_t bytes[11];
    int32_t types[] = {3, 3, 3, 3, 3, 1, 1, 1, 1, 1, 1};
    kvf__vocab v = {.where = "wpm",
                    .model = "bert",
                    .n_tokens = 10,
                    .tokens = tokens,
                    .token_bytes = bytes,
                    .types = types,
                    .bos = 2,
                    .eos = 3,
                    .unk = 1,
                    .pad = 0,
                    .add_bos = -1,
                    .add_eos = -1,
                    .add_space_prefix = -1};
    kvf_ctx *ctx = new_ctx();
    kvf__tokenizer *t = NULL;
    char *json = NULL, *config = NULL;

    for (size_t i = 0; i < 11; i++)
        bytes[i] = strlen(tokens[i]);
    ok(ctx, kvf__tokenizer_from_vocab(ctx, &v, &t));
    check_encode(ctx, t, "small", "Abc B!", 6, true, "2 5 8 7 9 3");
    check_encode(ctx, t, "bare", "ba x [MASK]", 11, false, "7 6 1 4");
    check_decode(ctx, t, (int32_t[]){5, 8, 7}, 3, true, "abc b", 5);
    kvf__tokenizer_free(t);
    v.n_tokens = 11; /* a vocabulary with capitals keeps them */
    ok(ctx, kvf__tokenizer_from_vocab(ctx, &v, &t));
    check_encode(ctx, t, "as it is", "Abbc ab", 7, false, "10 8 1");
    kvf__tokenizer_free(t);
    ok(ctx, kvf__vocab_to_json(ctx, &v, &json));
    char *out = NULL;
    ck_assert_int_eq(kvf__vocab_to_transformers(ctx, "x.gguf", json, &out, &config),
                     KVF_EUNSUPPORTED);
    kvf__free(json);
    v.tokens = tokens + 2, v.token_bytes = bytes + 2, v.types = types + 2, v.n_tokens = 8;
    ck_assert_int_eq(kvf__tokenizer_from_vocab(ctx, &v, &t), KVF_EFORMAT);
    ck_assert_ptr_nonnull(
        strstr(kvf_ctx_error(ctx), "unk_token \"[UNK]\" is not among the 8 tokens"));
    kvf_ctx_free(ctx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tokenizer");
    TCase *core = tcase_create("core"), *limits = tcase_create("limits");

    tcase_add_test(core, answers_about_tokens);
    tcase_add_loop_test(core, bos_and_eos_rule, 0, ROWS(BOS_EOS));
    tcase_add_loop_test(core, added_tokens_of_a_file, 0, ROWS(ADDED_FILES));
    tcase_add_test(core, decoding);
    tcase_add_test(core, appends);
    tcase_add_test(core, spm_special_tokens);
    tcase_add_test(core, wordpiece_of_a_gguf);
    tcase_add_loop_test(limits, bad_utf8_is_replaced, 0, ROWS(BROKEN));
    tcase_add_test(limits, random_bytes_do_no_harm);
    tcase_add_test(limits, a_limit_of_ids_is_exact);
    tcase_add_loop_test(limits, byte_level_round_trip, 0, 3);
    tcase_add_loop_test(limits, long_runs, 0, ROWS(LONG_RUNS));
    tcase_set_timeout(limits, 30);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, limits);
    return ck_main(suite);
}
