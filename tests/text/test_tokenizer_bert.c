/* WordPiece tokenizers and their files. */
#include "outfile.h"
#include "tok_check.h"

/* ---- core ------------------------------------------------------------------------------------ */

#define BERT_HEAD "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"

/* A folder with vocab.txt and, if given, tokenizer_config.json. */
static const char *bert_folder(kvf_ctx *ctx, const char *vocab, const char *config)
{
    const char *dir = ck_tmpdir();
    char path[1000];

    snprintf(path, sizeof path, "%s/vocab.txt", dir);
    ok(ctx, kvf__write_file(ctx, path, true, vocab, strlen(vocab)));
    snprintf(path, sizeof path, "%s/tokenizer_config.json", dir);
    if (config) ok(ctx, kvf__write_file(ctx, path, true, config, strlen(config)));
    return dir;
}

static kvf__tokenizer *open_bert(kvf_ctx *ctx, const char *vocab, const char *config)
{
    kvf__tokenizer *t = NULL;
    ok(ctx, kvf__tokenizer_from_dir(ctx, bert_folder(ctx, vocab, config), &t));
    return t;
}

static const struct {
    const char *config, *text, *want;
} SWITCHES[] = {
    {NULL, "The CAF\xC3\x89 \xE4\xB8\xAD\xE6\x96\x87", "2 5 6 8 9 3"},
    {"{\"do_lower_case\":false}", "The the caf\xC3\xA9", "2 1 5 7 3"},
    {"{\"strip_accents\":false}", "THE CAF\xC3\x89 cafe", "2 5 7 6 3"},
    {"{\"strip_accents\":true,\"do_lower_case\":false}", "the caf\xC3\xA9", "2 5 6 3"},
    {"{\"tokenize_chinese_chars\":false}", "\xE4\xB8\xAD\xE6\x96\x87", "2 8 10 3"},
    {"{\"tokenizer_class\":\"DistilBertTokenizer\",\"cls_token\":\"[PAD]\"}", "the", "0 5 3"},
};

START_TEST(vocab_txt_switches)
{
    kvf_ctx *ctx = new_ctx();
    kvf__tokenizer *t = open_bert(ctx,
                                  BERT_HEAD "the\r\ncafe\ncaf\xC3\xA9\n\xE4\xB8\xAD\n"
                                            "\xE6\x96\x87\n##\xE6\x96\x87\n",
                                  SWITCHES[_i].config);

    check_encode(ctx, t, SWITCHES[_i].text, SWITCHES[_i].text, strlen(SWITCHES[_i].text), true,
                 SWITCHES[_i].want);
    ck_assert_int_eq(kvf__token_mask(t), 4);
    ck_assert_int_eq(kvf__vocab_size(t), 11);
    ck_assert(kvf__token_is_special(t, _i == 5 ? 0 : 2) && kvf__token_is_special(t, 4));
    ck_assert(kvf__token_is_ordinary(t, 5));
    kvf__tokenizer_free(t);
    kvf_ctx_free(ctx);
}
END_TEST

/* The config overrides the normalizer of tokenizer.json. */
START_TEST(config_over_json)
{
    static const char json[] =
        "{\"model\":{\"unk_token\":\"u\",\"max_input_chars_per_word\":9,\"vocab\":{\"u\":0,\"a\":1,"
        "\"A\":2,\"\xC3\xA1\":3}},\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":true,"
        "\"handle_chinese_chars\":true,\"strip_accents\":null,\"lowercase\":true},"
        "\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"}}";
    kvf_ctx *ctx = new_ctx();
    kvf__tokenizer *t = NULL, *cased = NULL, *accents = NULL;

    ok(ctx, open_text(ctx, json, NULL, &t));
    ok(ctx, open_text(ctx, json, "{\"do_lower_case\":false}", &cased));
    ok(ctx, open_text(ctx, json, "{\"strip_accents\":false}", &accents));
    check_encode(ctx, t, "plain", "a A \xC3\xA1 b", 8, true, "1 1 1 0");
    check_encode(ctx, cased, "cased", "a A \xC3\xA1 b", 8, true, "1 2 3 0");
    check_encode(ctx, accents, "accents", "a A \xC3\xA1 b", 8, true, "1 1 3 0");
    ck_assert_int_eq(kvf__token_mask(t), -1);
    kvf__tokenizer_free(t);
    kvf__tokenizer_free(cased);
    kvf__tokenizer_free(accents);
    kvf_ctx_free(ctx);
}
END_TEST

/* ---- limits ---------------------------------------------------------------------------------- */

START_TEST(long_words_are_unknown)
{
    kvf_ctx *ctx = new_ctx();
    kvf__tokenizer *t = open_bert(ctx, BERT_HEAD "\xC3\xB8\n##\xC3\xB8\n", NULL);
    char text[204], *at = text;
    kvf__ids ids = {0}, origins = {0};

    for (int i = 0; i < 101; i++) { /* o with stroke, which has no decomposition */
        *at++ = '\xC3';
        *at++ = '\xB8';
    }
    ok(ctx, kvf__encode(ctx, t, text, 200, false, &ids));
    ck_assert_uint_eq(ids.n, 100);
    ck_assert(ids.data[0] == 5 && ids.data[1] == 6 && ids.data[99] == 6);
    ids.n = 0;
    ok(ctx, kvf__encode_offsets(ctx, t, text, 202, &ids, &origins));
    check_ids("101", &ids, "1");
    check_ids("101", &origins, "0 202");
    kvf__ids_done(&ids);
    kvf__ids_done(&origins);
    kvf__tokenizer_free(t);
    kvf_ctx_free(ctx);
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------- */

static const struct {
    const char *vocab, *config, *file, *says;
    kvf_status status;
} REFUSED[] = {
    {"[CLS]\n[SEP]\na\n", NULL, "vocab.txt", "unk_token \"[UNK]\" is not among the 3 tokens",
     KVF_EFORMAT},
    {"[UNK]\n[SEP]\na\n", NULL, "vocab.txt", "cls_token \"[CLS]\"", KVF_EFORMAT},
    {"", NULL, "vocab.txt", "among the 0 tokens", KVF_EFORMAT},
    {BERT_HEAD "\xFF\n", NULL, "vocab.txt:6", "UTF-8", KVF_EFORMAT},
    {BERT_HEAD, "{\"sep_token\":\"<s>\"}", "vocab.txt", "sep_token \"<s>\"", KVF_EFORMAT},
    {BERT_HEAD, "{\"do_lower_case\":1}", "tokenizer_config.json", "do_lower_case", KVF_EFORMAT},
    {BERT_HEAD, "{\"strip_accents\":\"no\"}", "tokenizer_config.json", "strip_accents",
     KVF_EFORMAT},
    {BERT_HEAD, "{\"tokenizer_class\":\"BertJapaneseTokenizer\"}", "tokenizer_config.json",
     "BertJapaneseTokenizer", KVF_EUNSUPPORTED},
};

START_TEST(refused_vocab_txt)
{
    kvf_ctx *ctx = new_ctx();
    kvf__tokenizer *t = NULL;
    const char *dir = bert_folder(ctx, REFUSED[_i].vocab, REFUSED[_i].config);

    ck_assert_int_eq(kvf__tokenizer_from_dir(ctx, dir, &t), REFUSED[_i].status);
    ck_assert_msg(strstr(kvf_ctx_error(ctx), REFUSED[_i].file) &&
                      strstr(kvf_ctx_error(ctx), REFUSED[_i].says),
                  "%s, want \"%s\"", kvf_ctx_error(ctx), REFUSED[_i].says);
    ck_assert_ptr_null(strchr(kvf_ctx_error(ctx), '\n'));
    ck_assert_ptr_null(t);
    kvf_ctx_free(ctx);
}
END_TEST

/* ---- damaged files, allocations that fail ---------------------------------------------------- */

static const char WHOLE[] = "{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\","
                            "\"continuing_subword_prefix\":\"##\","
                            "\"max_input_chars_per_word\":100,\"vocab\":{\"[UNK]\":0,\"[CLS]\":1,"
                            "\"[SEP]\":2,\"the\":3,\"##re\":4,"
                            "\"e\":5}},\"added_tokens\":[{\"id\":1,\"content\":\"[CLS]\","
                            "\"special\":true}],\"normalizer\":{\"type\":"
                            "\"BertNormalizer\",\"clean_text\":true,\"handle_chinese_chars\":true,"
                            "\"strip_accents\":null,\"lowercase\":"
                            "true},\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},\"post_"
                            "processor\":{\"type\":\"BertProcessing\","
                            "\"sep\":[\"[SEP]\",2],\"cls\":[\"[CLS]\",1]},\"decoder\":{\"type\":"
                            "\"WordPiece\",\"prefix\":\"##\","
                            "\"cleanup\":true}}";
static const char SENTENCE[] = "There [CLS] \xC3\xA9\xE4\xB8\xAD e\xCC\x81\xCC\xA7 , zz";

/* Either refused with one line, or encodes safely. */
static void try_damaged(kvf_ctx *ctx, const char *text, size_t n, bool truncated)
{
    kvf__tokenizer *t = NULL;
    kvf__ids ids = {0}, origins = {0};
    kvf_status st = tokenizer_from_json(ctx, "damaged", text, n, NULL, 0, &t);

    ck_assert(st ? !t : !truncated);
    ck_assert(!st || !strchr(kvf_ctx_error(ctx), '\n'));
    if (!st) ok(ctx, kvf__encode_offsets(ctx, t, SENTENCE, sizeof SENTENCE - 1, &ids, &origins));
    ck_assert_uint_eq(ids.n * 2, origins.n);
    kvf__ids_done(&ids);
    kvf__ids_done(&origins);
    kvf__tokenizer_free(t);
}

START_TEST(damaged)
{
    kvf_ctx *ctx = new_ctx();
    char text[sizeof WHOLE];

    memcpy(text, WHOLE, sizeof text);
    for (size_t n = 0; n < sizeof text - 1; n++)
        try_damaged(ctx, text, n, true);
    for (size_t at = 0; at < sizeof text - 1; at++)
        for (int bit = 0; bit < 8; bit++) {
            text[at] = (char)(text[at] ^ 1 << bit);
            try_damaged(ctx, text, sizeof text - 1, false);
            text[at] = (char)(text[at] ^ 1 << bit);
        }
    kvf_ctx_free(ctx);
}
END_TEST

static kvf_status use_everything(kvf_ctx *ctx, const char *dir, kvf__ids *ids, kvf__ids *types)
{
    kvf__tokenizer *t = NULL;
    kvf__ids text = {0}, origins = {0};
    kvf__buf decoded = {0};
    kvf_status st = dir ? kvf__tokenizer_from_dir(ctx, dir, &t) : open_text(ctx, WHOLE, NULL, &t);

    ck_assert(st ? !t : t != NULL);
    if (!st) st = kvf__encode_offsets(ctx, t, SENTENCE, sizeof SENTENCE - 1, &text, &origins);
    ck_assert(!st || (text.n == 0 && origins.n == 0));
    if (!st) st = kvf__decode(ctx, t, text.data, text.n, false, &decoded);
    if (!st) st = kvf__add_specials(ctx, t, &text, &text, ids, types, NULL, NULL);
    ck_assert(!st || (ids->n == 0 && types->n == 0));
    kvf__ids_done(&text);
    kvf__ids_done(&origins);
    kvf__buf_done(&decoded);
    kvf__tokenizer_free(t);
    return st;
}

START_TEST(without_memory)
{
    kvf_ctx *ctx = new_ctx();
    const char *dir = _i ? bert_folder(ctx, BERT_HEAD "the\n##re\ne\n", "{\"do_lower_case\":true}")
                         : NULL;
    kvf__ids ids = {0}, types = {0};
    kvf_status st;
    int64_t n = 0;

    do {
        kvf__ctx_fail_allocation(ctx, n++);
        st = use_everything(ctx, dir, &ids, &types);
        ck_assert(st == KVF_OK || st == KVF_ENOMEM);
    } while (st);
    kvf__ctx_fail_allocation(ctx, -1);
    ck_assert_int_gt(n, 30);
    check_ids("pair", &ids,
              _i ? "2 5 6 2 7 1 7 1 1 3 5 6 2 7 1 7 1 1 3"
                 : "1 3 4 1 5 0 5 0 0 2 3 4 1 5 0 5 0 0 2");
    check_ids("types", &types, "0 0 0 0 0 0 0 0 0 0 1 1 1 1 1 1 1 1 1");
    kvf__ids_done(&ids);
    kvf__ids_done(&types);
    kvf_ctx_free(ctx);
}
END_TEST

/* ---- shared data ----------------------------------------------------------------------------- */

static kvf__tokenizer *open_uncased(kvf_ctx *ctx)
{
    const char *dir = ck_shared("data/tokenizers/bert-base-uncased");
    kvf__tokenizer *t = NULL;

    if (dir) ok(ctx, kvf__tokenizer_from_dir(ctx, dir, &t));
    return t;
}

/* Ids published by other implementations. */
START_TEST(published_strings)
{
    ck_need(ck_shared("data/tokenizers"), "the shared data are not there");
    kvf_ctx *ctx = new_ctx();
    kvf__tokenizer *t = open_uncased(ctx);
    kvf_json *json = t ? load_json(ctx, ck_shared("data/tokenizers/golden/tokenizer_tests.json"))
                       : NULL;
    const kvf_json *rows = kvf_json_get(json, "bert-base-uncased");

    ck_assert(!t || kvf_json_size(rows) >= 10);
    for (size_t i = 0; i < kvf_json_size(rows); i++) {
        const kvf_json *row = kvf_json_at(rows, i);
        const kvf_json *want = kvf_json_get(kvf_json_get(row, "encoded"), "input_ids");
        const char *text = field(row, "input");
        kvf__ids ids = {0};
        ok(ctx, kvf__encode(ctx, t, text, strlen(text), true, &ids));
        ck_assert_uint_eq(ids.n, kvf_json_size(want));
        for (size_t k = 0; k < ids.n; k++)
            ck_assert_int_eq(ids.data[k], kvf_json_int(kvf_json_at(want, k), -1));
        kvf__ids_done(&ids);
    }
    kvf_json_free(json);
    kvf__tokenizer_free(t);
    kvf_ctx_free(ctx);
}
END_TEST

START_TEST(published_long_text)
{
    ck_need(ck_shared("data/tokenizers"), "the shared data are not there");
    kvf_ctx *ctx = new_ctx();
    kvf__tokenizer *t = open_uncased(ctx);
    kvf_json *json =
        t ? load_json(ctx, ck_shared("data/tokenizers/golden/bert_uncased_encoded.json")) : NULL;
    const kvf_json *want = kvf_json_get(json, "token_ids");
    kvf__ids ids = {0};

    if (t) {
        const char *text = field(json, "text");
        ok(ctx, kvf__encode(ctx, t, text, strlen(text), true, &ids));
        ck_assert_uint_ge(ids.n, 100);
        ck_assert_uint_eq(ids.n, kvf_json_size(want));
    }
    for (size_t k = 0; k < ids.n; k++)
        ck_assert_int_eq(ids.data[k], kvf_json_int(kvf_json_at(want, k), -1));
    kvf__ids_done(&ids);
    kvf_json_free(json);
    kvf__tokenizer_free(t);
    kvf_ctx_free(ctx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tokenizer_bert");
    TCase *core = tcase_create("core"), *limits = tcase_create("limits");
    TCase *errors = tcase_create("errors"), *shared = tcase_create("shared");

    tcase_add_loop_test(core, vocab_txt_switches, 0, ROWS(SWITCHES));
    tcase_add_test(core, config_over_json);
    tcase_add_test(limits, long_words_are_unknown);
    tcase_add_loop_test(errors, refused_vocab_txt, 0, ROWS(REFUSED));
    tcase_set_timeout(errors, 60);
    tcase_add_test(errors, damaged);
    tcase_add_loop_test(errors, without_memory, 0, 2);
    tcase_set_timeout(shared, 60);
    tcase_add_test(shared, published_strings);
    tcase_add_test(shared, published_long_text);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, limits);
    suite_add_tcase(suite, errors);
    suite_add_tcase(suite, shared);
    return ck_main(suite);
}
