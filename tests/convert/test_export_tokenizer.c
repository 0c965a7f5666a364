/* Export of a base's tokenizer as a folder for transformers. From a GGUF, the exported tokenizer
 * gives the same ids as the GGUF. (tests/tokenizer_parity.py --kvfold compares with transformers
 * itself.) */
#include <kvfold/io.h>

#include "ck.h"
#include "infile.h"
#include "open_base.h"

static kvf_ctx *ctx;
static char out[512];

static void setup(void)
{
    ck_assert_int_eq(kvf_ctx_create(NULL, &ctx), KVF_OK);
    snprintf(out, sizeof out, "%s/tokenizer", ck_tmpdir());
}

static void teardown(void)
{
    kvf_ctx_free(ctx);
}

static kvf_export_options to_folder(const char *path)
{
    return (kvf_export_options){.path = path, .out = out, .format = KVF_EXPORT_TOKENIZER};
}

static const char *const TEXTS[] = {
    "",
    "the",
    " the the  the",
    "in 12 the inner 1234",
    "a\nb\tc <|im_start|>user\n<|im_end|>",
    "<s> the</s>",
    "na\xC3\xAFve \xE6\x97\xA5\xE6\x9C\xAC \xF0\x9F\x99\x82",
    "  leading and trailing  ",
};

static void same_ids(const kvf__tokenizer *a, const kvf__tokenizer *b, const char *text,
                     bool special)
{
    kvf__ids x = {0}, y = {0};
    kvf__buf back = {0}, again = {0};
    ck_assert_int_eq(kvf__encode(ctx, a, text, strlen(text), special, &x), KVF_OK);
    ck_assert_int_eq(kvf__encode(ctx, b, text, strlen(text), special, &y), KVF_OK);
    ck_assert_msg(x.n == y.n && !(x.n && memcmp(x.data, y.data, x.n * sizeof *x.data)), "\"%s\"",
                  text);
    ck_assert_int_eq(kvf__decode(ctx, a, x.data, x.n, false, &back), KVF_OK);
    ck_assert_int_eq(kvf__decode(ctx, b, y.data, y.n, false, &again), KVF_OK);
    ck_assert_msg(back.n == again.n && !(back.n && memcmp(back.data, again.data, back.n)), "\"%s\"",
                  text);
    kvf__ids_done(&x);
    kvf__ids_done(&y);
    kvf__buf_done(&back);
    kvf__buf_done(&again);
}

static const char *const GGUFS[] = {"tests/golden/gguf_bpe.gguf", "tests/golden/gguf_spm.gguf"};

START_TEST(ids_are_those_of_the_gguf)
{
    const char *path = ck_source(GGUFS[_i]);
    const kvf_export_options options = to_folder(path);
    kvf__base_file texts = {0};
    kvf__tokenizer *own = NULL, *written = NULL;
    ck_assert_msg(!kvf_export(ctx, &options), "%s", kvf_ctx_error(ctx));
    ck_assert_int_eq(kvf__base_texts(ctx, path, &texts), KVF_OK);
    ck_assert_int_eq(kvf__base_tokenizer(ctx, path, &texts, &own), KVF_OK);
    ck_assert_msg(!kvf__tokenizer_from_dir(ctx, out, &written), "%s", kvf_ctx_error(ctx));
    for (size_t i = 0; i < sizeof TEXTS / sizeof TEXTS[0]; i++)
        for (int special = 0; special < 2; special++)
            same_ids(own, written, TEXTS[i], special);
    ck_assert_int_eq(kvf__vocab_size(own), kvf__vocab_size(written));
    ck_assert_int_eq(kvf__token_bos(own), kvf__token_bos(written));
    ck_assert_int_eq(kvf__token_eos(own), kvf__token_eos(written));
    ck_assert_int_eq(kvf__token_pad(own), kvf__token_pad(written));
    ck_assert(kvf__adds_bos(own) == kvf__adds_bos(written));
    const char *chat = kvf__tokenizer_chat_template(own);
    ck_assert((chat != NULL) == (_i == 0));
    if (chat) ck_assert_str_eq(kvf__tokenizer_chat_template(written), chat);
    kvf__tokenizer_free(written);
    kvf__tokenizer_free(own);
    kvf__base_file_done(&texts);
}
END_TEST

/* Two tokens with equal scores have no order: the first merge wins in both. */
START_TEST(scores_become_merges_in_their_order)
{
    static const char vocab[] =
        "{\"model\":\"llama\",\"tokens\":[\"<unk>\",\"\xE2\x96\x81\",\"a\",\"b\",\"ab\",\"ba\","
        "\"aba\",\"x\"],\"scores\":[0,-9,-9,-9,-2,-1,-3,-9],\"types\":[2,1,1,1,1,1,1,5],\"unk\":0}";
    char *tokenizer = NULL, *config = NULL;
    ck_assert_msg(!kvf__vocab_to_transformers(ctx, "v", vocab, &tokenizer, &config), "%s",
                  kvf_ctx_error(ctx));
    ck_assert_ptr_nonnull(strstr(
        tokenizer, "\"merges\":[[\"b\",\"a\"],[\"a\",\"b\"],[\"ab\",\"a\"],[\"a\",\"ba\"]]"));
    ck_assert_ptr_nonnull(strstr(tokenizer, "\"unk_token\":\"<unk>\""));
    ck_assert_ptr_nonnull(strstr(config, "\"unk_token\":\"<unk>\""));
    kvf__free(tokenizer);
    kvf__free(config);
}
END_TEST

/* A folder's own files are copied; an existing output folder requires force. */
START_TEST(a_folder_s_files_are_copied)
{
    char again[600], path[700];
    const kvf_export_options first = to_folder(ck_source(GGUFS[0]));
    ck_assert_int_eq(kvf_export(ctx, &first), KVF_OK);
    ck_assert_int_eq(kvf_export(ctx, &first), KVF_EEXIST);
    snprintf(path, sizeof path, "%s/config.json", out);
    FILE *config = fopen(path, "w");
    ck_assert_ptr_nonnull(config);
    fputs("{\"model_type\":\"llama\"}", config);
    fclose(config);
    snprintf(again, sizeof again, "%s-again", out);
    kvf_export_options second = first;
    second.path = out;
    second.out = again;
    ck_assert_msg(!kvf_export(ctx, &second), "%s", kvf_ctx_error(ctx));
    for (int i = 0; i < 2; i++) {
        static const char *const names[] = {"tokenizer.json", "tokenizer_config.json"};
        kvf__buf a = {0}, b = {0};
        snprintf(path, sizeof path, "%s/%s", out, names[i]);
        ck_assert_int_eq(kvf__read_file(ctx, path, 1 << 20, &a), KVF_OK);
        snprintf(path, sizeof path, "%s/%s", again, names[i]);
        ck_assert_int_eq(kvf__read_file(ctx, path, 1 << 20, &b), KVF_OK);
        ck_assert(a.n == b.n && !memcmp(a.data, b.data, a.n));
        kvf__buf_done(&a);
        kvf__buf_done(&b);
    }
    second.force = true;
    ck_assert_int_eq(kvf_export(ctx, &second), KVF_OK);
}
END_TEST

START_TEST(what_has_no_place_is_refused)
{
    kvf_export_options options = to_folder(ck_source(GGUFS[0]));
    options.head = "x";
    ck_assert_int_eq(kvf_export(ctx, &options), KVF_EUSAGE);
    options = to_folder(ck_source(GGUFS[0]));
    options.checkpoint = KVF_CHECKPOINT_LAST;
    ck_assert_int_eq(kvf_export(ctx, &options), KVF_EUSAGE);
    options = to_folder(ck_source("tests/golden/lm_heads.safetensors"));
    ck_assert_int_ne(kvf_export(ctx, &options), KVF_OK);
    ck_assert_msg(strstr(kvf_ctx_error(ctx), "not a base") != NULL, "%s", kvf_ctx_error(ctx));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("export_tokenizer");
    TCase *core = tcase_create("core"), *errors = tcase_create("errors");
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_checked_fixture(errors, setup, teardown);
    tcase_add_loop_test(core, ids_are_those_of_the_gguf, 0, 2);
    tcase_add_test(core, scores_become_merges_in_their_order);
    tcase_add_test(core, a_folder_s_files_are_copied);
    tcase_add_test(errors, what_has_no_place_is_refused);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, errors);
    return ck_main(suite);
}
