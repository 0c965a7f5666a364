/* tokenizer.model of SentencePiece and tiktoken, and damaged files. Ids and texts of small
 * vocabularies are compared with both libraries (golden/make_sentencepiece_golden.py). Llama 2's
 * are compared with published ids if the shared data is available. T5's spiece.model is compared
 * with transformers (golden/make_spiece_golden.py). */
#include "infile.h"
#include "outfile.h"
#include "tok_check.h"

#include <sys/stat.h>

static kvf_ctx *own;

static void setup(void)
{
    own = new_ctx();
}

static void teardown(void)
{
    kvf_ctx_free(own);
}

/* A folder with that model under the name. */
static const char *folder_as(const char *name, const char *model, char dir[512])
{
    char path[640];
    kvf__mapfile file = {0};
    snprintf(dir, 512, "%s/tokenizer", ck_tmpdir());
    ck_assert_int_eq(mkdir(dir, 0777), 0);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    ok(own, kvf__mapfile_open(own, model, &file));
    ok(own, kvf__write_file(own, path, false, file.data, file.n));
    kvf__mapfile_close(&file);
    return dir;
}

static const char *folder_of(const char *model, char dir[512])
{
    return folder_as("tokenizer.model", model, dir);
}

static void check_row(const kvf__tokenizer *t, const char *name, const kvf_json *row, bool special)
{
    const kvf_json *ids = kvf_json_get(row, "ids"), *decoded = kvf_json_get(row, "decoded");
    kvf__ids got = {0};
    kvf__buf text = {0};
    size_t n = 0, want_n = 0;
    const char *line = kvf_json_str(kvf_json_get(row, "text"), &n);

    ok(own, kvf__encode(own, t, line, n, special, &got));
    for (size_t i = 0; i < kvf_json_size(ids) && i < got.n; i++)
        ck_assert_msg(got.data[i] == (int32_t)kvf_json_int(kvf_json_at(ids, i), -1),
                      "%s: \"%s\": id %zu is %d", name, line, i, (int)got.data[i]);
    ck_assert_msg(got.n == kvf_json_size(ids), "%s: \"%s\": %zu ids", name, line, got.n);
    if (decoded) {
        const char *want = kvf_json_str(decoded, &want_n);
        ok(own, kvf__decode(own, t, got.data, got.n, false, &text));
        ck_assert_msg(text.n == want_n && !memcmp(text.data ? text.data : "", want, want_n),
                      "%s: \"%s\" becomes \"%.*s\"", name, line, (int)text.n, text.data);
    }
    kvf__ids_done(&got);
    kvf__buf_done(&text);
}

static const char *const NAMES[] = {"bpe", "bpe_unknown", "unigram", "unigram_bytes", "tiktoken"};
enum { N_NAMES = sizeof NAMES / sizeof NAMES[0] };

static const char *model_of(int i, char path[512])
{
    char below[128];
    snprintf(below, sizeof below, "tests/golden/sentencepiece/%s.model", NAMES[i]);
    snprintf(path, 512, "%s", ck_source(below));
    return path;
}

START_TEST(ids_are_those_of_the_library)
{
    char model[512], dir[512];
    kvf_json *golden = load_json(own, ck_source("tests/golden/sentencepiece/lines.json"));
    const kvf_json *rows = kvf_json_get(golden, NAMES[_i]);
    kvf__tokenizer *t = NULL;

    ok(own, kvf__tokenizer_from_dir(own, folder_of(model_of(_i, model), dir), &t));
    ck_assert_uint_ge(kvf_json_size(rows), 20);
    for (size_t i = 0; i < kvf_json_size(rows); i++)
        check_row(t, NAMES[_i], kvf_json_at(rows, i), false);
    kvf__tokenizer_free(t);
    kvf_json_free(golden);
}
END_TEST

/* The form stored in a base file. */
START_TEST(text_form_is_the_same_tokenizer)
{
    char model[512];
    kvf_json *golden = load_json(own, ck_source("tests/golden/sentencepiece/lines.json"));
    const kvf_json *rows = kvf_json_get(golden, NAMES[_i]);
    kvf__buf bytes = {0};
    kvf__tokenizer *t = NULL;
    char *json = NULL;

    ok(own, kvf__read_file(own, model_of(_i, model), 1 << 20, &bytes));
    ck_assert(kvf__is_sentencepiece(bytes.data, bytes.n) == (_i < 4));
    if (_i < 4) {
        ok(own, kvf__sentencepiece_to_json(own, model, bytes.data, bytes.n, &json));
        const kvf__text_file file = {"tokenizer.gguf.json", json};
        ok(own, kvf__tokenizer_from_texts(own, "base.h5", &file, 1, &t));
    } else {
        ok(own, kvf__buf_addc(own, &bytes, 0));
        const kvf__text_file file = {"tokenizer.model", bytes.data};
        ok(own, kvf__tokenizer_from_texts(own, "base.h5", &file, 1, &t));
    }
    for (size_t i = 0; i < kvf_json_size(rows); i++)
        check_row(t, NAMES[_i], kvf_json_at(rows, i), false);
    kvf__tokenizer_free(t);
    kvf__free(json);
    kvf__buf_done(&bytes);
    kvf_json_free(golden);
}
END_TEST

/* Special tokens and BOS are those of the config. */
START_TEST(config_adds_to_it)
{
    char model[512], dir[512], path[640];
    static const char CONFIG[] =
        "{\"add_bos_token\":true,\"bos_token\":\"<s>\",\"eos_token\":\"<|end|>\","
        "\"added_tokens_decoder\":{\"500\":{\"content\":\"<|end|>\",\"special\":true}}}";
    kvf__tokenizer *t = NULL;
    kvf__ids ids = {0};

    folder_of(model_of(_i ? 4 : 0, model), dir);
    snprintf(path, sizeof path, "%s/tokenizer_config.json", dir);
    ok(own, kvf__write_file(own, path, false, CONFIG, sizeof CONFIG - 1));
    ok(own, kvf__tokenizer_from_dir(own, dir, &t));
    ck_assert_int_eq(kvf__token_eos(t), 500);
    ok(own, kvf__encode(own, t, "a<|end|>", 8, true, &ids));
    ck_assert_int_eq(ids.data[ids.n - 1], 500);
    if (!_i) ck_assert_int_eq(ids.data[0], 1);
    kvf__ids_done(&ids);
    kvf__tokenizer_free(t);
}
END_TEST

/* Spaces that a Llama class puts around the tokens of added_tokens.json; read from the folder, and
 * from a base file. Ids of transformers 5.24. */
static const struct {
    const char *legacy, *text, *want;
} LLAMA_SPACES[] = {
    {",\"legacy\":true", "a<|end|>a", "1 262 420 262"},
    {",\"legacy\":true", "a <|end|> a", "1 262 365 420 262"},
    {",\"legacy\":true", "<x y>the", "1 421 261"},
    {",\"legacy\":false", "a<|end|>a", "1 262 420 368"},
    {"", "a <|end|> a", "1 262 365 420 262"},
    {"", "<x y>the", "1 421 259 366"},
    {"", "the <x y> a", "1 261 365 421 262"},
};

START_TEST(llama_spaces_are_those_of_transformers)
{
    static const char *const NAMED[] = {"tokenizer.gguf.json", "tokenizer_config.json",
                                        "added_tokens.json"};
    const char *model = ck_source("tests/golden/sentencepiece/bpe.model");
    const char *text = LLAMA_SPACES[_i].text, *added = "{\"<|end|>\":420,\"<x y>\":421}";
    char dir[512], path[640], config[300], *json = NULL;
    kvf__buf bytes = {0};
    kvf__tokenizer *t = NULL, *kept = NULL;

    snprintf(
        config, sizeof config,
        "{\"tokenizer_class\":\"LlamaTokenizer\",\"bos_token\":\"<s>\",\"eos_token\":\"<|end|>\","
        "\"add_bos_token\":true%s}",
        LLAMA_SPACES[_i].legacy);
    folder_of(model, dir);
    snprintf(path, sizeof path, "%s/tokenizer_config.json", dir);
    ok(own, kvf__write_file(own, path, false, config, strlen(config)));
    snprintf(path, sizeof path, "%s/added_tokens.json", dir);
    ok(own, kvf__write_file(own, path, false, added, strlen(added)));
    ok(own, kvf__tokenizer_from_dir(own, dir, &t));
    ok(own, kvf__read_file(own, model, 1 << 20, &bytes));
    ok(own, kvf__sentencepiece_to_json(own, model, bytes.data, bytes.n, &json));
    const kvf__text_file files[] = {{NAMED[0], json}, {NAMED[1], config}, {NAMED[2], added}};
    ok(own, kvf__tokenizer_from_texts(own, "base.h5", files, 3, &kept));
    ck_assert_int_eq(kvf__token_eos(t), 420);
    check_encode(own, t, text, text, strlen(text), true, LLAMA_SPACES[_i].want);
    check_encode(own, kept, text, text, strlen(text), true, LLAMA_SPACES[_i].want);
    kvf__buf_done(&bytes);
    kvf__free(json);
    kvf__tokenizer_free(t);
    kvf__tokenizer_free(kept);
}
END_TEST

/* T5's own file: EOS, and <extra_id_N> after the pieces; read from the folder, and from a base
 * file. */
START_TEST(spiece_is_as_transformers_has_it)
{
    static const char *const CONFIGS[] = {"{}", "{\"extra_ids\": 7}"};
    char dir[512], path[640], *json = NULL;
    kvf_json *golden = load_json(own, ck_source("tests/golden/sentencepiece/spiece.json"));
    const kvf_json *rows = kvf_json_get(golden, _i ? "seven" : "default");
    kvf_json *config = NULL;
    kvf__buf bytes = {0};
    kvf__tokenizer *t = NULL, *kept = NULL;

    folder_as("spiece.model", ck_source("tests/golden/sentencepiece/spiece.model"), dir);
    snprintf(path, sizeof path, "%s/tokenizer_config.json", dir);
    ok(own, kvf__write_file(own, path, false, CONFIGS[_i], strlen(CONFIGS[_i])));
    ok(own, kvf__tokenizer_from_dir(own, dir, &t));
    const char *model = ck_source("tests/golden/sentencepiece/spiece.model");
    ok(own, kvf__read_file(own, model, 1 << 20, &bytes));
    ok(own, kvf_json_parse(own, "config", CONFIGS[_i], strlen(CONFIGS[_i]), &config));
    ok(own, kvf__spiece_to_json(own, model, bytes.data, bytes.n, config, &json));
    const kvf__text_file file = {"tokenizer.gguf.json", json};
    ok(own, kvf__tokenizer_from_texts(own, "base.h5", &file, 1, &kept));
    ck_assert_uint_ge(kvf_json_size(rows), 25);
    ck_assert_int_eq(kvf__token_eos(t), 1);
    for (size_t i = 0; i < kvf_json_size(rows); i++) {
        check_row(t, "spiece", kvf_json_at(rows, i), true);
        check_row(kept, "spiece kept", kvf_json_at(rows, i), true);
    }
    kvf_json_free(config);
    kvf_json_free(golden);
    kvf__buf_done(&bytes);
    kvf__free(json);
    kvf__tokenizer_free(t);
    kvf__tokenizer_free(kept);
}
END_TEST

/* ---- shared data ----------------------------------------------------------------------------- */

/* Ids from transformers, after BOS, for the model of this tokenizer.model. */
START_TEST(llama_2_has_its_published_ids)
{
    char model[640], dir[512];
    const char *shared = ck_shared("data/tokenizers/llama2");
    kvf__tokenizer *t = NULL;
    kvf__ids ids = {0};

    ck_need(shared, "the shared data are not there");
    snprintf(model, sizeof model, "%s/tokenizer.model", shared);
    ok(own, kvf__tokenizer_from_dir(own, folder_of(model, dir), &t));
    kvf_json *json = load_json(own, ck_shared("data/tokenizers/golden/llama_encoded.json"));
    const kvf_json *want = kvf_json_get(json, "token_ids");
    const char *text = kvf_json_str(kvf_json_get(json, "text"), NULL);
    ok(own, kvf__encode(own, t, text, strlen(text), true, &ids));
    ck_assert_uint_eq(ids.n, kvf_json_size(want));
    for (size_t i = 0; i < ids.n; i++)
        ck_assert_int_eq(ids.data[i], kvf_json_int(kvf_json_at(want, i), -1));
    check_decode(own, t, ids.data, ids.n, true, text, strlen(text));
    kvf__ids_done(&ids);
    kvf_json_free(json);
    kvf__tokenizer_free(t);
}
END_TEST

/* ---- damage ---------------------------------------------------------------------------------- */

static kvf_status read_bytes(const char *data, size_t n)
{
    char dir[512], path[640];
    kvf__tokenizer *t = NULL;
    snprintf(dir, sizeof dir, "%s/damaged", ck_tmpdir());
    mkdir(dir, 0777);
    snprintf(path, sizeof path, "%s/tokenizer.model", dir);
    ok(own, kvf__write_file(own, path, true, data, n));
    kvf_status st = kvf__tokenizer_from_dir(own, dir, &t);
    kvf__tokenizer_free(t);
    return st;
}

static void refused(const char *text, const char *want)
{
    ck_assert_int_ne(read_bytes(text, strlen(text)), KVF_OK);
    ck_assert_msg(strstr(kvf_ctx_error(own), want) != NULL, "%s, want %s", kvf_ctx_error(own),
                  want);
}

START_TEST(refuses_what_is_damaged)
{
    char model[512];
    kvf__buf bytes = {0};
    ok(own, kvf__read_file(own, model_of(2, model), 1 << 20, &bytes));
    for (size_t n = 0; n + 1 < bytes.n; n += n < 64 ? 1 : 97) {
        const kvf_status st = read_bytes(bytes.data, n);
        ck_assert_msg(st == KVF_OK || st == KVF_EFORMAT || st == KVF_EUNSUPPORTED, "%s",
                      kvf_ctx_error(own));
    }
    for (size_t at = 0; at < bytes.n; at += 7) { /* read, or refused with a line */
        bytes.data[at] ^= 0x55;
        (void)read_bytes(bytes.data, bytes.n);
        bytes.data[at] ^= 0x55;
    }
    kvf__buf_done(&bytes);
    refused("\n\3\n\1a\n", "tokenizer.model: ");
    refused("IQ==\n", "tokenizer.model:1: no base64");
    refused("IQ== x\n", "tokenizer.model:1: no rank");
    refused("IQ== 0\nIQ== 1\n", "tokenizer.model:2: the token is already defined");
    refused("IQ== 0\nIg== 0\n", "tokenizer.model:2: the rank is already used");
    refused("IQ== 0\n", "no token for the byte 0x00");
    refused("I!== 0\n", "tokenizer.model:1: no base64");
    kvf_json *config = NULL;
    char *json = NULL;
    ok(own, kvf_json_parse(own, "config", "{\"extra_ids\": -1}", 17, &config));
    ck_assert_int_eq(kvf__spiece_to_json(own, "spiece.model", "\n", 1, config, &json), KVF_EFORMAT);
    ck_assert_ptr_null(json);
    kvf_json_free(config);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sentencepiece");
    TCase *golden = ck_case(suite, "golden", setup, teardown, 60);
    TCase *shared = ck_case(suite, "shared", setup, teardown, 120);
    TCase *errors = ck_case(suite, "errors", setup, teardown, 120);

    tcase_add_loop_test(golden, ids_are_those_of_the_library, 0, N_NAMES);
    tcase_add_loop_test(golden, text_form_is_the_same_tokenizer, 0, N_NAMES);
    tcase_add_loop_test(golden, config_adds_to_it, 0, 2);
    tcase_add_loop_test(golden, llama_spaces_are_those_of_transformers, 0, ROWS(LLAMA_SPACES));
    tcase_add_loop_test(golden, spiece_is_as_transformers_has_it, 0, 2);
    tcase_add_test(shared, llama_2_has_its_published_ids);
    tcase_add_test(errors, refuses_what_is_damaged);
    return ck_main(suite);
}
