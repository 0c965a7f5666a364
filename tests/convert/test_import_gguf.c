/* A GGUF as a base file: the same model bit for bit, the same ids, and the same chat text, for
 * every kind of tokenizer. Features that config.json cannot express are refused. */
#include "toy_base.h"

#include "h5_fixture.h"
#include "renderer.h"

#include <kvfold/kvfold.h>

static const struct row {
    const char *gguf;
    size_t tensors; /* of the base file */
    bool tied;
    kvf__rope_kind rope;
    const char *text;
} ROWS[] = {
    {"tests/golden/gguf_bpe.gguf", 2 + 2 * 9, true, KVF__ROPE_DEFAULT,
     "in the 1234 <|im_start|>user\n[PAD0] <tool>\xC3\xA4 thethe"},
    {"tests/golden/gguf_spm.gguf", 3 + 2 * 9, false, KVF__ROPE_YARN,
     "in the there\n<s> inner </s> \xE2\x98\x83 0123, 99"},
};
enum { N_ROWS = sizeof ROWS / sizeof ROWS[0] };

static kvf_base *open_exact(const char *path)
{
    const kvf_base_options exact = {.precision = KVF_PRECISION_F32};
    kvf_base *base = NULL;
    ck_assert_msg(!kvf_base_open(ctx, path, &exact, &base), "%s", kvf_ctx_error(ctx));
    return base;
}

static void import(const char *from, const char *to)
{
    const kvf_import_options options = {.path = from, .out = to};
    char kind[16];
    ck_assert_msg(!kvf_import(ctx, &options, kind), "%s", kvf_ctx_error(ctx));
    ck_assert_str_eq(kind, "base");
}

static kvf__ids ids_of(const kvf_base *base, const char *text)
{
    kvf__ids ids = {0};
    ck_assert_msg(!kvf__encode(ctx, base->tokenizer, text, strlen(text), true, &ids), "%s",
                  kvf_ctx_error(ctx));
    return ids;
}

/* [n, V], to be freed. */
static float *logits_of(kvf_base *base, const kvf__ids *ids)
{
    const int64_t n = (int64_t)ids->n, start[] = {0, n}, example = 0;
    const int64_t V = kvf__model_desc(base->model)->V;
    int32_t *at = calloc(ids->n, sizeof *at), *labels = calloc(ids->n, sizeof *labels);
    float *logits = calloc((size_t)(n * V), sizeof *logits);
    const kvf__pass_limits limits = {.rows = 1, .tokens = n, .row_len = n, .labels = n};
    kvf__pass *pass = NULL;

    for (int32_t i = 0; i < n; i++)
        at[i] = i;
    const kvf__batch batch = {.n_rows = 1,
                              .n_tokens = n,
                              .n_labels = n,
                              .start = start,
                              .ids = ids->data,
                              .label_at = at,
                              .label_id = labels,
                              .example = &example};
    const kvf__input input = {.batch = &batch};
    ck_assert_msg(!kvf__pass_create(ctx, base->model, &limits, &pass), "%s", kvf_ctx_error(ctx));
    ck_assert_msg(!kvf__pass_fwd(ctx, pass, &input), "%s", kvf_ctx_error(ctx));
    ck_assert_int_eq(kvf__pass_lm_logits(ctx, pass, logits), KVF_OK);
    kvf__pass_free(pass);
    free(at);
    free(labels);
    return logits;
}

static void same_tokenizer(const kvf__tokenizer *a, const kvf__tokenizer *b)
{
    ck_assert_int_eq(kvf__vocab_size(a), kvf__vocab_size(b));
    ck_assert_int_eq(kvf__token_bos(a), kvf__token_bos(b));
    ck_assert_int_eq(kvf__token_eos(a), kvf__token_eos(b));
    ck_assert_int_eq(kvf__adds_bos(a), kvf__adds_bos(b));
    for (int32_t id = 0; id < kvf__vocab_size(a); id++) {
        ck_assert_str_eq(kvf__token_text(a, id), kvf__token_text(b, id));
        ck_assert_int_eq(kvf__token_is_special(a, id), kvf__token_is_special(b, id));
        ck_assert_int_eq(kvf__token_is_ordinary(a, id), kvf__token_is_ordinary(b, id));
    }
    const char *x = kvf__tokenizer_chat_template(a), *y = kvf__tokenizer_chat_template(b);
    ck_assert(!x == !y);
    if (x) ck_assert_str_eq(x, y);
}

START_TEST(a_gguf_and_its_file_are_one)
{
    const struct row *row = &ROWS[_i];
    const char *path = in_dir("base.h5");

    import(ck_source(row->gguf), path);
    kvf_base *gguf = open_exact(ck_source(row->gguf)), *file = open_exact(path);
    const kvf__desc *d = kvf__model_desc(file->model);
    ck_assert_uint_eq(file->weights.table.n, row->tensors);
    ck_assert(d->tied == row->tied && !d->gguf && d->position.rope.kind == row->rope);
    same_tokenizer(gguf->tokenizer, file->tokenizer);

    kvf__ids a = ids_of(gguf, row->text), b = ids_of(file, row->text);
    ck_assert_uint_eq(a.n, b.n);
    ck_assert_uint_gt(a.n, 10);
    ck_assert_mem_eq(a.data, b.data, a.n * sizeof *a.data);
    float *x = logits_of(gguf, &a), *y = logits_of(file, &b);
    ck_assert_mem_eq(x, y, a.n * (size_t)d->V * sizeof *x);
    ck_assert(x[0] != x[1]);
    free(x);
    free(y);
    kvf__ids_done(&a);
    kvf__ids_done(&b);
    kvf_base_free(gguf);
    kvf_base_free(file);
}
END_TEST

/* A run that trains every weight of a GGUF folds to a complete base file. */
/* A Unigram vocabulary in a GGUF gives the ids of its original SentencePiece model. */
START_TEST(unigram_is_that_of_its_model)
{
    static const char *const TEXTS[] = {"abe  ins ", " sin\xEF\xBC\xA1 \xC3\x9F", "xyz ab", ""};
    kvf_base *gguf = open_exact(ck_source("tests/golden/model_t5/model.gguf"));
    kvf__tokenizer *model = NULL;

    ck_assert_msg(!kvf__tokenizer_from_dir(ctx, ck_source("tests/golden/model_t5"), &model), "%s",
                  kvf_ctx_error(ctx));
    for (size_t i = 0; i < sizeof TEXTS / sizeof TEXTS[0]; i++) {
        kvf__ids a = ids_of(gguf, TEXTS[i]), b = {0};
        ck_assert(!kvf__encode(ctx, model, TEXTS[i], strlen(TEXTS[i]), true, &b));
        ck_assert_uint_eq(a.n, b.n);
        if (a.n) ck_assert_mem_eq(a.data, b.data, a.n * sizeof *a.data);
        kvf__ids_done(&a);
        kvf__ids_done(&b);
    }
    ck_assert_int_eq(kvf__token_eos(gguf->tokenizer), 1);
    kvf__tokenizer_free(model);
    kvf_base_free(gguf);
}
END_TEST

START_TEST(full_folds_on_a_gguf)
{
    const char *run = in_dir("run.h5"), *rows = in_dir("rows.jsonl"), *folded = in_dir("folded.h5");

    toy_rows(dir, "rows.jsonl", 12, 0);
    kvf_train_options o = kvf_train_defaults();
    o.base = ck_source(ROWS[_i].gguf);
    o.data = o.valid = rows;
    o.out = run;
    o.method = "full";
    o.steps = o.eval_every = 6;
    o.batch_size = 4;
    o.lr = 1e-3;
    o.precision = KVF_PRECISION_F32;
    kvf_train_result trained = {0};
    ck_assert_msg(!kvf_train(ctx, &o, &trained), "%s", kvf_ctx_error(ctx));

    const kvf_merge_options merge = {.run = run, .out = folded, .base = o.base};
    kvf_merge_result result;
    ck_assert_msg(!kvf_merge(ctx, &merge, &result), "%s", kvf_ctx_error(ctx));
    ck_assert_double_eq(result.max_abs_diff, 0);
    const kvf_eval_options eval = {.data = rows};
    kvf_eval_result loss = {0};
    kvf_base *base = open_exact(folded);
    ck_assert_msg(!kvf_eval(ctx, base, NULL, 0, &eval, &loss), "%s", kvf_ctx_error(ctx));
    ck_assert_double_eq_tol(loss.loss, trained.valid_loss, 1e-5 * loss.loss);
    ck_assert_double_lt(trained.valid_loss, trained.train_loss + 1);
    kvf_base_free(base);
}
END_TEST

/* ---- refusals -------------------------------------------------------------------------------- */

START_TEST(no_words_for_it)
{
    char *text = NULL;
    kvf__weights weights = {0};
    kvf__desc desc = {0};

    ck_assert_int_eq(kvf__gguf_open(ctx, ck_source(ROWS[0].gguf), &weights), KVF_OK);
    ck_assert_int_eq(kvf__desc_from_gguf(ctx, "m.gguf", weights.meta, &weights.table, &desc),
                     KVF_OK);
    ck_assert_int_eq(kvf__desc_to_hf(ctx, "m.gguf", &desc, &text), KVF_OK);
    ck_assert_ptr_nonnull(strstr(text, "\"rms_norm_eps\": 1e-05"));
    ck_assert_ptr_nonnull(strstr(text, "\"LlamaForCausalLM\""));
    kvf__free(text);
    desc.block.qkv_bias = true; /* without an output matrix */
    ck_fails(kvf__desc_to_hf(ctx, "m.gguf", &desc, &text), KVF_EUNSUPPORTED,
             "m.gguf: cannot write a base file, because a config.json of architecture llama");
    desc.block.qkv_bias = false;
    desc.position.window = 16;
    ck_fails(kvf__desc_to_hf(ctx, "m.gguf", &desc, &text), KVF_EUNSUPPORTED, "cannot express all");
    kvf__desc_done(&desc);
    kvf__weights_close(&weights);
}
END_TEST

static const struct bad {
    const char *text, *line;
} BAD[] = {
    {"{}", "tokenizer.ggml.tokens is empty"},
    {"{\"model\":\"gpt2\",\"pre\":\"gpt-2\",\"tokens\":[\"a\",1]}", "tokens[1] is not a text"},
    {"{\"model\":\"llama\",\"tokens\":[\"a\"],\"scores\":[]}", "scores is not a list of 1 numbers"},
    {"{\"model\":\"llama\",\"tokens\":[\"a\"],\"scores\":[\"x\"]}", "score of token 0 is not"},
    {"{\"model\":\"llama\",\"tokens\":[\"a\"],\"scores\":[1],\"types\":{}}", "types is not a list"},
    {"{\"model\":\"rwkv\",\"tokens\":[\"a\"]}", "\"rwkv\" is not supported"},
    {"[]", "tokenizer.ggml.tokens is empty"},
};

START_TEST(vocabulary_refused)
{
    const kvf__text_file file = {"tokenizer.gguf.json", BAD[_i].text};
    kvf__tokenizer *tokenizer = NULL;
    kvf_status st = kvf__tokenizer_from_texts(ctx, "x", &file, 1, &tokenizer);
    ck_assert_int_ne(st, KVF_OK);
    ck_assert_msg(strstr(kvf_ctx_error(ctx), BAD[_i].line), "%s", kvf_ctx_error(ctx));
}
END_TEST

static const struct bad CONFIGS[] = {
    {"{\"rope_type\":\"divisors\"}", "want a list of 4 numbers"},
    {"{\"rope_type\":\"divisors\",\"divisors\":[1,2,3]}", "want a list of 4 numbers"},
    {"{\"rope_type\":\"divisors\",\"divisors\":[1,2,0,4]}", "rope divisor 2 is 0"},
    {"{\"rope_type\":\"divisors\",\"divisors\":[1,2,\"x\",4]}", "rope divisor 2 is 0"},
};

START_TEST(divisors_refused)
{
    char text[1024];
    kvf_json *config = NULL;
    kvf__desc desc = {0};

    snprintf(text, sizeof text,
             "{\"model_type\":\"llama\",\"vocab_size\":9,\"hidden_size\":32,"
             "\"intermediate_size\":64,\"num_hidden_layers\":1,\"num_attention_heads\":4,"
             "\"head_dim\":8,\"rope_scaling\":%s}",
             CONFIGS[_i].text);
    ck_assert_int_eq(kvf_json_parse(ctx, "c", text, strlen(text), &config), KVF_OK);
    ck_fails(kvf__desc_from_hf(ctx, "c", config, &desc), KVF_EFORMAT, CONFIGS[_i].line);
    kvf_json_free(config);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("import_gguf");
    TCase *core = tcase_create("core"), *errors = tcase_create("errors");

    suite_add_tcase(suite, core);
    suite_add_tcase(suite, errors);
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_checked_fixture(errors, setup, teardown);
    tcase_set_timeout(core, 60);
    tcase_add_loop_test(core, a_gguf_and_its_file_are_one, 0, N_ROWS);
    tcase_add_test(core, unigram_is_that_of_its_model);
    tcase_add_loop_test(core, full_folds_on_a_gguf, 0, N_ROWS);
    tcase_add_test(errors, no_words_for_it);
    tcase_add_loop_test(errors, vocabulary_refused, 0, sizeof BAD / sizeof BAD[0]);
    tcase_add_loop_test(errors, divisors_refused, 0, sizeof CONFIGS / sizeof CONFIGS[0]);
    return ck_main(suite);
}
