/* Tokenizers: refused files, damaged files, failing allocations. */
#include "prefixes.h"
#include "rng.h"
#include "tok_check.h"
#include "vocab_json.h"

/* ---- refused --------------------------------------------------------------------------------- */

#define WITH(rest) SMALL("", rest)
#define PIECES(model, rest)                                                                        \
    "{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}" model "}" rest "}"
static const struct {
    const char *json, *config;
    kvf_status status;
    const char *says;
} REFUSED[] = {
    {"", NULL, KVF_EFORMAT, "small.json"},
    {"[]", NULL, KVF_EFORMAT, "not a JSON object"},
    {"{}", NULL, KVF_EFORMAT, "\"model\""},
    {"{\"version\":\"2.0\"}", NULL, KVF_EUNSUPPORTED, "version"},
    {"{\"model\":{\"type\":\"WordLevel\",\"vocab\":[]}}", NULL, KVF_EUNSUPPORTED,
     "model.type \"WordLevel\""},
    {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", NULL, KVF_EFORMAT,
     "unk_id names none of the 0 tokens"},
    {"{\"model\":{\"type\":\"Unigram\",\"unk_id\":1,\"vocab\":[[\"a\",-1]]}}", NULL, KVF_EFORMAT,
     "unk_id names none of the 1 tokens"},
    {"{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"a\",-1],[\"b\"]]}}", NULL,
     KVF_EFORMAT, "model.vocab[1]"},
    {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{}}}", NULL, KVF_EFORMAT, "unk_token"},
    {PIECES("", ""), NULL, KVF_EFORMAT, "unk_token"},
    {PIECES(",\"unk_token\":\"?\"", ""), NULL, KVF_EFORMAT, "\"?\" is not in the vocabulary"},
    {PIECES(",\"unk_token\":7", ""), NULL, KVF_EFORMAT, "\"unk_token\" is not a string"},
    {PIECES(",\"unk_token\":\"a\",\"continuing_subword_prefix\":2", ""), NULL, KVF_EFORMAT,
     "\"continuing_subword_prefix\" is not a string"},
    {PIECES(",\"unk_token\":\"a\",\"max_input_chars_per_word\":-1", ""), NULL, KVF_EFORMAT,
     "max_input_chars_per_word"},
    {PIECES(",\"unk_token\":\"a\",\"max_input_chars_per_word\":\"9\"", ""), NULL, KVF_EFORMAT,
     "max_input_chars_per_word"},
    {PIECES(",\"unk_token\":\"a\"",
            ",\"normalizer\":{\"type\":\"BertNormalizer\",\"lowercase\":1}"),
     NULL, KVF_EFORMAT, "\"lowercase\" is not true or false"},
    {PIECES(",\"unk_token\":\"a\"", ",\"normalizer\":{\"type\":\"Bert\"}"), NULL, KVF_EUNSUPPORTED,
     "normalizer of type \"Bert\""},
    {PIECES(",\"unk_token\":\"a\"", ",\"pre_tokenizer\":{\"type\":\"Bert\"}"), NULL,
     KVF_EUNSUPPORTED, "pre_tokenizer of type \"Bert\""},
    {PIECES(",\"unk_token\":\"a\"", ",\"decoder\":{\"type\":\"WordPiece\"}"), NULL, KVF_EFORMAT,
     "\"prefix\""},
    {PIECES(",\"unk_token\":\"a\"", ",\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":["
                                    "\"a\",0]}"),
     NULL, KVF_EFORMAT, "not a token id"},
    {PIECES(",\"unk_token\":\"a\"", ",\"normalizer\":{\"type\":\"BertNormalizer\"}"),
     "{\"do_lower_case\":\"yes\"}", KVF_EFORMAT, "do_lower_case"},
    {WITH(",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[],\"pair\":[{"
          "\"Sequence\":{\"id\":\"C\"}}]}"),
     NULL, KVF_EFORMAT, "Sequence A or B"},
    {WITH(",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{"
          "\"id\":\"A\",\"type_id\":-1}}]}"),
     NULL, KVF_EFORMAT, "type_id"},
    {"{\"model\":{\"vocab\":{}}}", NULL, KVF_EUNSUPPORTED, "merges"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":[],\"merges\":[]}}", NULL, KVF_EFORMAT, "vocab"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}", NULL, KVF_EFORMAT,
     "id -1"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":\"0\"},\"merges\":[]}}", NULL, KVF_EFORMAT,
     "\"a\""},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":2097152},\"merges\":[]}}", NULL, KVF_EFORMAT,
     "has id 2097152, want 0 to 2097151"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":99999999},\"merges\":[]}}", NULL, KVF_EFORMAT,
     "99999999"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":{}}}", NULL, KVF_EFORMAT,
     "merges"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a\"]}}", NULL, KVF_EFORMAT,
     "merge 0"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a a a\"]}}", NULL, KVF_EFORMAT,
     "merge 0"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}", NULL, KVF_EFORMAT,
     "\"b\""},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a a\"]}}", NULL, KVF_EFORMAT,
     "\"aa\""},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]}}", NULL, KVF_EFORMAT,
     "merges[0]"},
    {SMALL(",\"dropout\":0.1", ""), NULL, KVF_EUNSUPPORTED, "dropout"},
    {SMALL(",\"unk_token\":\"?\"", ""), NULL, KVF_EFORMAT, "unk_token"},
    {SMALL(",\"byte_fallback\":1", ""), NULL, KVF_EFORMAT, "byte_fallback"},
    {WITH(",\"normalizer\":{\"type\":\"Nmt\"}"), NULL, KVF_EUNSUPPORTED,
     "normalizer of type \"Nmt\""},
    {WITH(",\"normalizer\":{\"type\":\"Precompiled\"}"), NULL, KVF_EFORMAT,
     "no \"precompiled_charsmap\""},
    {WITH(",\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AA*A\"}"), NULL,
     KVF_EFORMAT, "not base64"},
    {WITH(",\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"CAAAAAAA\"}"), NULL,
     KVF_EFORMAT, "the trie has 8 bytes, but the table has 6"},
    {WITH(",\"normalizer\":{\"type\":\"Replace\",\"content\":\"\"}"), NULL, KVF_EFORMAT, "pattern"},
    {WITH(",\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a*\"},\"content\":\"\"}"),
     NULL, KVF_EUNSUPPORTED, "Replace"},
    {WITH(",\"normalizer\":{\"type\":\"Sequence\"}"), NULL, KVF_EFORMAT, "normalizers"},
    {WITH(",\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}"), NULL, KVF_EUNSUPPORTED,
     "pre_tokenizer of type"},
    {WITH(",\"pre_tokenizer\":{}"), NULL, KVF_EFORMAT, "pre_tokenizer"},
    {WITH(",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},\"behavior\":"
          "\"Isolated\"}"),
     NULL, KVF_EFORMAT, "regex"},
    {WITH(",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a[b]]\"},\"behavior\":"
          "\"Isolated\"}"),
     NULL, KVF_EUNSUPPORTED, "class inside"},
    {WITH(",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a&&b]\"},\"behavior\":"
          "\"Isolated\"}"),
     NULL, KVF_EUNSUPPORTED, "&&"},
    {WITH(",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?m:.)\"},\"behavior\":"
          "\"Isolated\"}"),
     NULL, KVF_EUNSUPPORTED, "(?m)"},
    {WITH(",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a{1,2}+\"},\"behavior\":"
          "\"Isolated\"}"),
     NULL, KVF_EUNSUPPORTED, "{n,m}+"},
    {WITH(",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\h\"},\"behavior\":"
          "\"Isolated\"}"),
     NULL, KVF_EUNSUPPORTED, "\\h"},
    {WITH(",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[\\\\W]\"},\"behavior\":"
          "\"Isolated\"}"),
     NULL, KVF_EUNSUPPORTED, "class"},
    {WITH(",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\p{Nonsense}\"},"
          "\"behavior\":\"Isolated\"}"),
     NULL, KVF_EFORMAT, "regex"},
    {WITH(",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\\\\\"},\"behavior\":"
          "\"Isolated\"}"),
     NULL, KVF_EUNSUPPORTED, "lone"},
    {WITH(",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\p{L\"},\"behavior\":"
          "\"Isolated\"}"),
     NULL, KVF_EUNSUPPORTED, "\\p"},
    {WITH(",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\u12\"},\"behavior\":"
          "\"Isolated\"}"),
     NULL, KVF_EUNSUPPORTED, "\\u"},
    {WITH(",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":"
          "\"Odd\"}"),
     NULL, KVF_EUNSUPPORTED, "behavior"},
    {WITH(",\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"ab\"}"), NULL, KVF_EFORMAT,
     "replacement"},
    {WITH(",\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":"
          "\"x\"}"),
     NULL, KVF_EUNSUPPORTED, "prepend_scheme"},
    {WITH(",\"decoder\":{\"type\":\"CTC\"}"), NULL, KVF_EUNSUPPORTED, "decoder of type"},
    {WITH(",\"decoder\":{\"type\":\"Strip\",\"content\":\" \",\"start\":-1,\"stop\":0}"), NULL,
     KVF_EFORMAT, "Strip"},
    {WITH(",\"post_processor\":{\"type\":\"Odd\"}"), NULL, KVF_EUNSUPPORTED,
     "post_processor of type"},
    {WITH(",\"post_processor\":{\"type\":\"TemplateProcessing\"}"), NULL, KVF_EFORMAT, "single"},
    {WITH(",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":"
          "\"B\"}}]}"),
     NULL, KVF_EFORMAT, "single"},
    {WITH(",\"post_processor\":{\"type\":\"RobertaProcessing\",\"cls\":[\"a\",77],\"sep\":[\"b\",1]"
          "}"),
     NULL, KVF_EFORMAT, "id 77"},
    {WITH(",\"added_tokens\":[7]"), NULL, KVF_EFORMAT, "added token"},
    {WITH(",\"added_tokens\":[{\"id\":9}]"), NULL, KVF_EFORMAT, "content"},
    {WITH(",\"added_tokens\":[{\"content\":\"<z>\"}]"), NULL, KVF_EFORMAT, "<z>"},
    {WITH(",\"added_tokens\":[{\"id\":9,\"content\":\"<z>\",\"lstrip\":\"no\"}]"), NULL,
     KVF_EFORMAT, "lstrip"},
    {WITH(""), "{", KVF_EFORMAT, "tokenizer_config.json"},
    {WITH(""), "{\"added_tokens_decoder\":{\"x\":{}}}", KVF_EFORMAT, "added_tokens_decoder"},
};

static void check_one_line(kvf_ctx *ctx)
{
    ck_assert_int_gt((int)strlen(kvf_ctx_error(ctx)), 0);
    ck_assert_ptr_null(strchr(kvf_ctx_error(ctx), '\n'));
}

START_TEST(refused_files)
{
    kvf_ctx *ctx = new_ctx();
    kvf__tokenizer *t = NULL;

    ck_assert_int_eq(open_text(ctx, REFUSED[_i].json, REFUSED[_i].config, &t), REFUSED[_i].status);
    ck_assert_msg(strstr(kvf_ctx_error(ctx), "small.json") == kvf_ctx_error(ctx), "%s",
                  kvf_ctx_error(ctx));
    ck_assert_msg(strstr(kvf_ctx_error(ctx), REFUSED[_i].says), "%s, want \"%s\"",
                  kvf_ctx_error(ctx), REFUSED[_i].says);
    check_one_line(ctx);
    ck_assert_ptr_null(t);
    kvf_ctx_free(ctx);
}
END_TEST

/* A file with 257 steps, and one with a token of 1025 bytes. */
START_TEST(limits_of_files)
{
    static char steps[20000], token[2000];
    kvf_ctx *ctx = new_ctx();
    kvf__tokenizer *t = NULL;
    char *at = steps;

    at += sprintf(at, "%s",
                  "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]},\"normalizer\":"
                  "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"}");
    for (int i = 0; i < 256; i++)
        at += sprintf(at, ",{\"type\":\"NFC\"}");
    sprintf(at, "]}}");
    ck_assert_int_eq(open_text(ctx, steps, NULL, &t), KVF_EFORMAT);
    ck_assert_str_eq(kvf_ctx_error(ctx), "tokenizer: more than 256 steps");
    sprintf(token, "{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"%01025d\",-1]]}}",
            0);
    ck_assert_int_eq(open_text(ctx, token, NULL, &t), KVF_EFORMAT);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(ctx), "has 1025 bytes, want at most 1024"));
    kvf_ctx_free(ctx);
}
END_TEST

/* A step of a file may produce any number of bytes from a text: it is stopped. */
START_TEST(limit_of_growth)
{
    static const char json[] =
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]},\"normalizer\":{"
        "\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Replace\",\"pattern\":{\"String\":"
        "\"a\"},"
        "\"content\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"},{\"type\":\"Replace\","
        "\"pattern\":"
        "{\"String\":\"a\"},\"content\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}]}}";
    kvf_ctx *ctx = new_ctx();
    kvf__tokenizer *t = NULL;
    kvf__ids ids = {0};
    char text[100];

    memset(text, 'a', sizeof text);
    ok(ctx, open_text(ctx, json, NULL, &t));
    ok(ctx, kvf__encode(ctx, t, text, 10, false, &ids));
    ck_assert_uint_eq(ids.n, 10 * 40 * 40);
    ck_assert_int_eq(kvf__encode(ctx, t, text, sizeof text, false, &ids), KVF_EDATA);
    ck_assert_ptr_nonnull(
        strstr(kvf_ctx_error(ctx), "the steps expand a text to more than 67136 bytes"));
    kvf__ids_done(&ids);
    kvf__tokenizer_free(t);
    kvf_ctx_free(ctx);
}
END_TEST

/* Compares searches with a walk over all texts. */
START_TEST(prefixes_are_found)
{
    enum { TEXTS = 60, QUERIES = 2000, MOST = 7 };
    kvf_ctx *ctx = new_ctx();
    kvf__prefixes set = {0};
    kvf__rng rng = kvf__rng_make(5, 0);
    char texts[TEXTS][MOST], query[MOST];
    size_t length[TEXTS];

    for (int i = 0; i < TEXTS; i++) {
        length[i] = 1 + (size_t)kvf__rng_below(&rng, MOST);
        for (size_t k = 0; k < length[i]; k++)
            texts[i][k] = "ab\xFF"[kvf__rng_below(&rng, 3)];
        ok(ctx, kvf__prefixes_add(ctx, &set, "t", texts[i], length[i], i));
    }
    kvf__prefixes_sort(&set);
    for (int q = 0; q < QUERIES; q++) {
        const size_t n = 1 + (size_t)kvf__rng_below(&rng, MOST);
        for (size_t k = 0; k < n; k++)
            query[k] = "ab\xFF"[kvf__rng_below(&rng, 3)];
        int32_t entry = kvf__prefixes_find(&set, query, n);
        for (size_t k = n; k > 0; k--) {
            int want = -1;
            for (int i = TEXTS - 1; i >= 0; i--)
                if (length[i] == k && !memcmp(texts[i], query, k)) want = i;
            if (want < 0) continue;
            ck_assert_int_ge(entry, 0);
            ck_assert_int_eq(set.v[entry].value, want);
            entry = set.v[entry].shorter;
        }
        ck_assert_int_eq(entry, -1);
    }
    kvf__prefixes_done(&set);
    kvf_ctx_free(ctx);
}
END_TEST

START_TEST(missing_folder)
{
    kvf_ctx *ctx = new_ctx();
    kvf__tokenizer *t = NULL;

    ck_assert_int_eq(kvf__tokenizer_from_dir(ctx, ck_tmpdir(), &t), KVF_EUNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(ctx), "tokenizer.json"));
    ck_assert_ptr_null(t);
    kvf_ctx_free(ctx);
}
END_TEST

/* Vocabularies as a GGUF may hold them: tokens a, b, ab. */
static const struct {
    const char *json;
    kvf_status status;
    const char *says;
} VOCABS[] = {
    {"{\"model\":\"gpt2\",\"pre\":\"smollm\",\"tokens\":[\"a\",\"b\",\"ab\"],\"merges\":[\"a b\"]}",
     KVF_OK, ""},
    {"{\"model\":\"gpt2\",\"tokens\":[\"a\",\"b\",\"ab\"],\"merges\":[\"a b\"]}", KVF_OK, ""},
    {"{\"model\":\"gpt2\",\"pre\":\"odd\",\"tokens\":[\"a\",\"b\",\"ab\"],\"merges\":[\"a b\"]}",
     KVF_EUNSUPPORTED, "\"odd\""},
    {"{\"model\":\"gpt2\",\"pre\":\"qwen2\",\"tokens\":[\"a\",\"b\",\"ab\"]}", KVF_EFORMAT,
     "merges"},
    {"{\"model\":\"gpt2\",\"pre\":\"qwen2\",\"tokens\":[\"a\",\"b\",\"ab\"],\"merges\":[\"a c\"]}",
     KVF_EFORMAT, "\"c\""},
    {"{\"model\":\"gpt2\",\"pre\":\"llama3\",\"tokens\":[\"a\",\"b\",\"ab\"],\"merges\":[\"a "
     "b\"],\"bos\":3}",
     KVF_EFORMAT, "bos"},
    {"{\"model\":\"rwkv\",\"tokens\":[\"a\"]}", KVF_EUNSUPPORTED, "\"rwkv\""},
    {"{\"model\":\"bert\",\"tokens\":[\"a\"]}", KVF_EFORMAT, "[UNK]"},
    {"{\"model\":\"llama\",\"tokens\":[]}", KVF_EFORMAT, "tokens"},
    {"{\"model\":\"llama\",\"tokens\":[\"a\"]}", KVF_EFORMAT, "scores"},
    {"{\"model\":\"llama\",\"tokens\":[\"a\",\"b\",\"ab\"],\"scores\":[0,0,1]}", KVF_OK, ""},
    {"{\"model\":\"llama\",\"tokens\":[\"a\",\"b\\u0000\"],\"scores\":[0,0]}", KVF_EFORMAT,
     "token 1"},
};

START_TEST(vocabularies)
{
    kvf_ctx *ctx = new_ctx();
    kvf_json *json = NULL;
    vocab_json vocab;
    kvf__tokenizer *t = NULL;

    ok(ctx, kvf_json_parse(ctx, "vocab", VOCABS[_i].json, strlen(VOCABS[_i].json), &json));
    vocab_json_read(json, "x.gguf", &vocab);
    ck_assert_int_eq(kvf__tokenizer_from_vocab(ctx, &vocab.v, &t), VOCABS[_i].status);
    if (VOCABS[_i].status) {
        ck_assert_msg(strstr(kvf_ctx_error(ctx), VOCABS[_i].says) != NULL, "%s",
                      kvf_ctx_error(ctx));
        ck_assert_ptr_eq(strstr(kvf_ctx_error(ctx), "x.gguf"), kvf_ctx_error(ctx));
        check_one_line(ctx);
        ck_assert_ptr_null(t);
    } else {
        check_encode(ctx, t, "merged", "abab", 4, false, "2 2");
    }
    kvf__tokenizer_free(t);
    vocab_json_done(&vocab);
    kvf_json_free(json);
    kvf_ctx_free(ctx);
}
END_TEST

/* Any file is either refused with one line or works. */
static void try_damaged(kvf_ctx *ctx, const char *text, size_t n, bool must_fail)
{
    kvf__tokenizer *t = NULL;
    kvf__ids ids = {0};
    kvf__buf out = {0};
    kvf_status st = tokenizer_from_json(ctx, "damaged", text, n, NULL, 0, &t);

    ck_assert(st == KVF_OK || st == KVF_EFORMAT || st == KVF_EUNSUPPORTED);
    ck_assert(st != KVF_OK || !must_fail);
    if (st) {
        check_one_line(ctx);
        ck_assert_ptr_null(t);
        return;
    }
    st = kvf__encode(ctx, t, "the <T> x\xFF\n", 12, true, &ids);
    ck_assert(st == KVF_OK || st == KVF_EDATA);
    ok(ctx, kvf__decode(ctx, t, ids.data, ids.n, false, &out));
    kvf__ids_done(&ids);
    kvf__buf_done(&out);
    kvf__tokenizer_free(t);
}

static const char *const DAMAGED[] = {"affixes @@ </w>", "metaspace after removal",
                                      "replace {'Regex': '\\\\s+'}"};

START_TEST(truncated_files)
{
    kvf_ctx *ctx = new_ctx();
    kvf_json *json = golden(ctx);
    char *text = pipeline_text(json, find_case(json, DAMAGED[_i]));
    size_t n = strlen(text);

    for (size_t length = 0; length < n; length += length < 200 || length + 2000 > n ? 1 : 7)
        try_damaged(ctx, text, length, true);
    free(text);
    kvf_json_free(json);
    kvf_ctx_free(ctx);
}
END_TEST

START_TEST(flipped_bits)
{
    kvf_ctx *ctx = new_ctx();
    kvf_json *json = golden(ctx);
    char *text = pipeline_text(json, find_case(json, DAMAGED[_i]));
    size_t n = strlen(text);

    for (size_t at = 0; at<n; at += at + 1500> n ? 1 : 5) {
        text[at] = (char)(text[at] ^ 1 << at * 5 % 8);
        try_damaged(ctx, text, n, false);
        text[at] = (char)(text[at] ^ 1 << at * 5 % 8);
    }
    free(text);
    kvf_json_free(json);
    kvf_ctx_free(ctx);
}
END_TEST

/* ---- allocations that fail ------------------------------------------------------------------- */

static const char SMALL_WHOLE[] = SMALL(
    ",\"unk_token\":\"<unk>\",\"end_of_word_suffix\":\"\"",
    ",\"added_tokens\":[{\"id\":6,\"content\":\"<s>\",\"special\":true},{\"id\":8,\"content\":\"<n>"
    "\"}],"
    "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":"
    "\"Replace\",\"pattern\":{\"String\":\"x\"},\"content\":\"a\"}]},"
    "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{"
    "\"Regex\":\"\\\\s|c\"},\"behavior\":\"MergedWithNext\"},"
    "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"never\"}]},"
    "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Metaspace\",\"replacement\":\"_"
    "\"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}]}" TEMPLATE);

START_TEST(create_without_memory)
{
    kvf_ctx *ctx = new_ctx();
    kvf__tokenizer *t = NULL;
    kvf_status st;
    int64_t n = 0;

    do {
        kvf__ctx_fail_allocation(ctx, n++);
        st = open_text(ctx, SMALL_WHOLE,
                       "{\"bos_token\":\"<s>\",\"chat_template\":\"x\",\"add_bos_token\":true}",
                       &t);
        ck_assert(st == KVF_OK || (st == KVF_ENOMEM && !t));
    } while (st);
    kvf__ctx_fail_allocation(ctx, -1);
    ck_assert_int_gt(n, 20);
    kvf__tokenizer_free(t);
    kvf_ctx_free(ctx);
}
END_TEST

START_TEST(encode_without_memory)
{
    static const char text[] = "xbc <s>abab <n>e\xCC\x81\xCC\xA7 zz";
    kvf_ctx *ctx = new_ctx();
    kvf__tokenizer *t = NULL;
    kvf__ids ids = {0}, want = {0};
    kvf__buf out = {0};
    kvf_status st;
    int64_t n = 0;

    ok(ctx, open_text(ctx, SMALL_WHOLE, NULL, &t));
    ok(ctx, kvf__encode(ctx, t, text, sizeof text - 1, true, &want));
    do {
        kvf__ctx_fail_allocation(ctx, n++);
        st = kvf__encode(ctx, t, text, sizeof text - 1, true, &ids);
        ck_assert(st == KVF_OK || (st == KVF_ENOMEM && ids.n == 0));
    } while (st);
    ck_assert_uint_eq(ids.n, want.n);
    ck_assert_mem_eq(ids.data, want.data, want.n * sizeof *want.data);
    ck_assert_int_gt(n, 5);
    n = 0;
    do {
        kvf__ctx_fail_allocation(ctx, n++);
        st = kvf__decode(ctx, t, ids.data, ids.n, false, &out);
        ck_assert(st == KVF_OK || (st == KVF_ENOMEM && out.n == 0));
    } while (st);
    ck_assert_int_gt(n, 3);
    kvf__ctx_fail_allocation(ctx, -1);
    kvf__ids_done(&ids);
    kvf__ids_done(&want);
    kvf__buf_done(&out);
    kvf__tokenizer_free(t);
    kvf_ctx_free(ctx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tokenizer_bad");
    TCase *errors = tcase_create("errors"), *memory = tcase_create("memory");

    tcase_add_loop_test(errors, refused_files, 0, ROWS(REFUSED));
    tcase_add_test(errors, limits_of_files);
    tcase_add_test(errors, limit_of_growth);
    tcase_add_test(errors, prefixes_are_found);
    tcase_add_test(errors, missing_folder);
    tcase_add_loop_test(errors, vocabularies, 0, ROWS(VOCABS));
    tcase_add_loop_test(errors, truncated_files, 0, ROWS(DAMAGED));
    tcase_add_loop_test(errors, flipped_bits, 0, ROWS(DAMAGED));
    tcase_set_timeout(errors, 60);
    tcase_add_test(memory, create_without_memory);
    tcase_add_test(memory, encode_without_memory);
    suite_add_tcase(suite, errors);
    suite_add_tcase(suite, memory);
    return ck_main(suite);
}
