/* Classes as words of the masked-language-model head, and multi-token classes of any language-model
 * head. Compared with transformers: masked_lm_*.safetensors from
 * tests/golden/make_masked_lm_golden.py, phrases.safetensors from make_phrases_golden.py. Also
 * tests bases with no such head, or with half of one. */
#include "ck.h"
#include "golden_model.h"
#include "loss.h"

#include <string.h>

enum { C = 12, ROWS = 5, WORDS = 3 };

static const struct {
    const char *name, *config, *last; /* of its tensors: the head's bias */
} CASES[] = {
    {"bert",
     "{\"model_type\":\"bert\",\"vocab_size\":40,\"hidden_size\":12,\"intermediate_size\":16,"
     "\"num_hidden_layers\":1,\"num_attention_heads\":2,\"max_position_embeddings\":24,"
     "\"hidden_act\":\"gelu_new\",\"layer_norm_eps\":1e-12%s}",
     "cls.predictions.bias"},
    {"roberta",
     "{\"model_type\":\"roberta\",\"vocab_size\":40,\"hidden_size\":12,\"intermediate_size\":16,"
     "\"num_hidden_layers\":1,\"num_attention_heads\":2,\"max_position_embeddings\":24,"
     "\"hidden_act\":\"relu\",\"layer_norm_eps\":1e-5,\"pad_token_id\":0%s}",
     "lm_head.bias"},
    {"electra",
     "{\"model_type\":\"electra\",\"vocab_size\":40,\"hidden_size\":12,\"intermediate_size\":16,"
     "\"num_hidden_layers\":1,\"num_attention_heads\":2,\"max_position_embeddings\":24,"
     "\"hidden_act\":\"relu\",\"embedding_size\":8%s}",
     "generator_lm_head.bias"},
    {"distilbert",
     "{\"model_type\":\"distilbert\",\"vocab_size\":40,\"dim\":12,\"hidden_dim\":16,"
     "\"n_layers\":1,\"n_heads\":2,\"max_position_embeddings\":24,"
     "\"activation\":\"relu\"%s}",
     "vocab_projector.bias"},
    {"modernbert",
     "{\"model_type\":\"modernbert\",\"vocab_size\":40,\"hidden_size\":12,"
     "\"intermediate_size\":16,\"num_hidden_layers\":1,\"num_attention_heads\":2,"
     "\"max_position_embeddings\":24,\"hidden_activation\":\"relu\"%s}",
     "decoder.bias"},
    {"nomic",
     "{\"model_type\":\"nomic_bert\",\"vocab_size\":40,\"hidden_size\":12,"
     "\"intermediate_size\":16,\"num_hidden_layers\":1,\"num_attention_heads\":2,"
     "\"max_position_embeddings\":24,\"hidden_act\":\"relu\"%s}",
     "cls.predictions.bias"},
    {"deberta",
     "{\"model_type\":\"deberta-v2\",\"vocab_size\":40,\"hidden_size\":12,\"intermediate_size\":16,"
     "\"num_hidden_layers\":1,\"num_attention_heads\":2,\"max_position_embeddings\":24,"
     "\"hidden_act\":\"relu\",\"relative_attention\":true,\"position_biased_input\":false,"
     "\"share_att_key\":true,\"pos_att_type\":\"p2c|c2p\",\"norm_rel_ebd\":\"layer_norm\","
     "\"position_buckets\":8%s}",
     "lm_predictions.lm_head.bias"},
};
/* The last one is not trained completely. */
enum { N_CASES = sizeof CASES / sizeof CASES[0], N_TRAINED = N_CASES - 1 };

static kvf_ctx *ctx;

static void setup(void)
{
    kvf_ctx_options options = {.threads = 2};
    ck_assert_int_eq(kvf_ctx_create(&options, &ctx), KVF_OK);
}

static void teardown(void)
{
    kvf_ctx_free(ctx);
}

typedef struct fixture {
    kvf__weights file;
    kvf__table table; /* tensors of the file without the omitted one */
    kvf__slots slots;
    kvf__model *model;
    char hash[33];
} fixture;

static void open_trained(fixture *f, int at, const char *without, const char *more,
                         kvf__train_what what)
{
    char path[128], config[640];
    kvf__model_options options = {.act = KVF__F32, .backward = true, .train.what = what};
    kvf_json *json = NULL;
    kvf__desc desc = {0};

    snprintf(path, sizeof path, "tests/golden/masked_lm_%s.safetensors", CASES[at].name);
    ck_assert_msg(!kvf__safetensors_open(ctx, ck_source(path), &f->file), "%s", kvf_ctx_error(ctx));
    for (size_t i = 0; i < f->file.table.n; i++) {
        const kvf__tensor *tensor = &f->file.table.items[i];
        if (!strncmp(tensor->name, "case.", 5)) continue;
        if (without && !strncmp(tensor->name, without, strlen(without))) continue;
        ck_assert_int_eq(kvf__table_add(ctx, &f->table, tensor->name, tensor->view), KVF_OK);
    }
    snprintf(config, sizeof config, CASES[at].config, more);
    ck_assert_int_eq(kvf_json_parse(ctx, "config", config, strlen(config), &json), KVF_OK);
    ck_assert_msg(!kvf__desc_from_hf(ctx, "config", json, &desc), "%s", kvf_ctx_error(ctx));
    ck_assert_msg(!kvf__bind(ctx, path, &desc, &f->table, &f->slots), "%s", kvf_ctx_error(ctx));
    ck_assert_int_eq(kvf__slots_hash(ctx, &desc, &f->slots, NULL, NULL, f->hash), KVF_OK);
    ck_assert_int_eq(kvf__model_create(ctx, &desc, &f->slots, &options, &f->model), KVF_OK);
    kvf__desc_done(&desc);
    kvf_json_free(json);
}

static void open_case(fixture *f, int at, const char *without, const char *more)
{
    open_trained(f, at, without, more, KVF__TRAIN_NOTHING);
}

static void close_case(fixture *f)
{
    kvf__model_free(f->model);
    kvf__slots_done(&f->slots);
    kvf__table_done(&f->table);
    kvf__weights_close(&f->file);
}

static void open_llama(fixture *f, kvf__train_what what)
{
    static const char CONFIG[] = "tests/golden/model_llama_tied/config.json";
    kvf__model_options options = {.act = KVF__F32, .backward = true, .train.what = what};
    kvf__buf text = {0};
    kvf_json *json = NULL;
    kvf__desc desc = {0};

    ck_assert_int_eq(
        kvf__safetensors_open(ctx, ck_source("tests/golden/model_llama_tied/model.safetensors"),
                              &f->file),
        KVF_OK);
    for (size_t i = 0; i < f->file.table.n; i++) {
        const kvf__tensor *tensor = &f->file.table.items[i];
        if (!strncmp(tensor->name, "golden.", 7)) continue;
        ck_assert_int_eq(kvf__table_add(ctx, &f->table, tensor->name, tensor->view), KVF_OK);
    }
    ck_assert_int_eq(kvf__read_file(ctx, ck_source(CONFIG), 1 << 16, &text), KVF_OK);
    ck_assert_int_eq(kvf_json_parse(ctx, CONFIG, text.data, text.n, &json), KVF_OK);
    ck_assert_msg(!kvf__desc_from_hf(ctx, CONFIG, json, &desc), "%s", kvf_ctx_error(ctx));
    ck_assert_msg(!kvf__bind(ctx, CONFIG, &desc, &f->table, &f->slots), "%s", kvf_ctx_error(ctx));
    ck_assert_int_eq(kvf__model_create(ctx, &desc, &f->slots, &options, &f->model), KVF_OK);
    kvf__desc_done(&desc);
    kvf_json_free(json);
    kvf__buf_done(&text);
}

static const void *stored(const fixture *f, const char *what)
{
    char name[64];
    snprintf(name, sizeof name, "case.%s", what);
    const kvf__view *view = kvf__table_find(&f->file.table, name);
    ck_assert_msg(view != NULL, "no %s", name);
    return view->data;
}

START_TEST(words_are_those_of_transformers)
{
    static const int64_t START[] = {0, 6, 12, 18, 24, 30}, EXAMPLE[] = {0, 1, 2, 3, 4};
    static const int32_t AT[] = {1, 10, 14, 23, 27};
    float logits[ROWS * WORDS], dhidden[ROWS * C], loss;
    kvf__head *head = NULL;
    fixture f = {0};
    double sum = 0;

    open_case(&f, _i, NULL, "");
    ck_assert_msg(!kvf__head_create_words(ctx, f.model, stored(&f, "words"), WORDS, &head), "%s",
                  kvf_ctx_error(ctx));
    ck_assert_uint_eq(kvf__head_params(head)->n, 0);
    ck_assert_int_eq(kvf__head_width(head), WORDS);
    const kvf__batch batch = {.n_rows = ROWS,
                              .n_tokens = 30,
                              .n_labels = ROWS,
                              .start = START,
                              .example = EXAMPLE,
                              .label_at = AT,
                              .label_id = stored(&f, "id")};
    const float *hidden = stored(&f, "hidden");
    ck_assert_int_eq(kvf__head_logits(ctx, head, hidden, ROWS, logits), KVF_OK);
    ck_close(logits, stored(&f, "logits"), ROWS * WORDS, 1e-5, 1e-5);
    ck_assert_int_eq(kvf__head_loss(ctx, head, &batch, hidden, &(kvf__loss){.scale = 1.0f / ROWS},
                                    &sum, dhidden),
                     KVF_OK);
    loss = (float)(sum / ROWS);
    ck_close(&loss, stored(&f, "loss"), 1, 1e-5, 0);
    ck_assert_double_le(ck_rel_l2(dhidden, stored(&f, "dhidden"), (size_t)ROWS * C), 1e-5);
    kvf__head_free(head);
    close_case(&f);
}
END_TEST

/* ---- classes of several tokens --------------------------------------------------------------- */

enum { LABELS = 6 };

/* Two rows of data with two classes each, of one and two tokens. The second class is right in the
 * first row, the first class in the second row. */
static kvf__batch phrase_batch(const int32_t *ids)
{
    static const int64_t START[] = {0, 2, 5, 7, 10}, EXAMPLE[] = {0, 0, 1, 1};
    static const int32_t AT[] = {1, 3, 4, 6, 8, 9};
    static const float VALUES[] = {0, 1, 1, 0};
    return (kvf__batch){.n_rows = 4,
                        .n_tokens = 10,
                        .n_labels = LABELS,
                        .start = START,
                        .example = EXAMPLE,
                        .label_at = AT,
                        .label_id = ids,
                        .values = VALUES};
}

static double phrase_loss(kvf__head *head, const kvf__batch *batch, const float *hidden,
                          float *dhidden)
{
    const kvf__loss how = {.scale = 0.5f};
    double sum = 0;
    ck_assert_int_eq(kvf__head_terms(head, batch), 2);
    ck_assert_msg(!kvf__head_loss(ctx, head, batch, hidden, &how, &sum, dhidden), "%s",
                  kvf_ctx_error(ctx));
    return sum / 2;
}

/* Reference results for a model, with the gradient of the matrix if it is trained. */
static void compare_phrases(const kvf__weights *from, const char *name, const kvf__model *model,
                            const kvf__param *matrix)
{
    const kvf__batch batch = phrase_batch(kvf__table_find(&from->table, "labels")->data);
    const int64_t width = kvf__model_desc(model)->C;
    float logp[LABELS], dhidden[LABELS * 64];
    kvf__head *head = NULL;

    ck_assert_int_le(width, 64);
    ck_assert_msg(!kvf__head_create_phrases(ctx, model, &head), "%s", kvf_ctx_error(ctx));
    ck_assert_uint_eq(kvf__head_params(head)->n, 0);
    ck_assert_int_eq(kvf__head_width(head), 1);
    ck_assert(!kvf__head_is_lm(head));
    const float *hidden = golden_stored(from, name, "hidden");
    ck_assert_int_eq(kvf__head_outputs(ctx, head, &batch, hidden, logp), KVF_OK);
    ck_close(logp, golden_stored(from, name, "logp"), LABELS, 1e-5, 1e-5);
    float loss = (float)phrase_loss(head, &batch, hidden, dhidden);
    ck_close(&loss, golden_stored(from, name, "loss"), 1, 1e-5, 0);
    ck_assert_double_le(
        ck_rel_l2(dhidden, golden_stored(from, name, "dhidden"), (size_t)(LABELS * width)), 1e-5);
    if (matrix)
        ck_assert_double_le(
            ck_rel_l2(matrix->grad, golden_stored(from, name, "dmatrix"), (size_t)matrix->n), 1e-5);
    kvf__head_free(head);
}

static bool is_embedding(const kvf__param *param)
{
    static const char *const NAMES[] = {"word_embeddings", "tok_embeddings", "embed_tokens"};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (strstr(param->name, NAMES[i])) return true;
    return false;
}

/* Loop rows: the models, frozen and trained. */
START_TEST(phrases_are_those_of_transformers)
{
    const bool trained = _i % 2;
    const kvf__train_what what = trained ? KVF__TRAIN_EVERYTHING : KVF__TRAIN_NOTHING;
    const char *name = _i / 2 < N_TRAINED ? CASES[_i / 2].name : "llama";
    kvf__weights file;
    fixture f = {0};

    ck_assert_int_eq(
        kvf__safetensors_open(ctx, ck_source("tests/golden/phrases.safetensors"), &file), KVF_OK);
    if (_i / 2 < N_TRAINED)
        open_trained(&f, _i / 2, NULL, "", what);
    else
        open_llama(&f, what);
    const kvf__params *params = kvf__model_params(f.model);
    const kvf__param *matrix = NULL;
    for (size_t i = 0; i < params->n; i++)
        if (is_embedding(&params->item[i])) matrix = &params->item[i];
    ck_assert((matrix != NULL) == trained);
    compare_phrases(&file, name, f.model, matrix);
    close_case(&f);
    kvf__weights_close(&file);
}
END_TEST

/* Classes of one token each, as rows of their own and as scores of one row. Both give the same loss
 * and, if the embedding is trained, the same gradient for it. */
START_TEST(phrases_of_one_token_are_words)
{
    static const int64_t START[] = {0, 1, 2, 3}, EXAMPLE[] = {0, 0, 0};
    static const int32_t AT[] = {0, 1, 2}, RIGHT[] = {1}, FIRST[] = {0};
    static const float VALUES[] = {0, 1, 0};
    float hidden[WORDS * C], dphrases[WORDS * C], dwords[C], sum[C] = {0};
    kvf__head *words = NULL, *phrases = NULL;
    double loss[2];
    fixture f = {0};

    open_trained(&f, _i, NULL, "", KVF__TRAIN_EVERYTHING);
    const int32_t *ids = stored(&f, "words");
    for (int i = 0; i < WORDS; i++)
        memcpy(hidden + i * C, stored(&f, "hidden"), C * sizeof *hidden);
    const kvf__batch one = {.n_rows = 1,
                            .n_tokens = 1,
                            .n_labels = 1,
                            .start = START,
                            .example = EXAMPLE,
                            .label_at = FIRST,
                            .label_id = RIGHT};
    const kvf__batch rows = {.n_rows = WORDS,
                             .n_tokens = WORDS,
                             .n_labels = WORDS,
                             .start = START,
                             .example = EXAMPLE,
                             .label_at = AT,
                             .label_id = ids,
                             .values = VALUES};
    kvf__param *matrix = NULL;
    for (size_t i = 0; i < kvf__model_params(f.model)->n; i++)
        if (is_embedding(&kvf__model_params(f.model)->item[i]))
            matrix = &kvf__model_params(f.model)->item[i];
    ck_assert_ptr_nonnull(matrix);
    matrix->value[ids[1] * matrix->dim[1]] += 0.25f; /* the rows depend on the trained weights */
    ck_assert_int_eq(kvf__head_create_words(ctx, f.model, ids, WORDS, &words), KVF_OK);
    matrix->value[ids[0] * matrix->dim[1] + 1] -= 0.5f;
    ck_assert_int_eq(kvf__head_create_phrases(ctx, f.model, &phrases), KVF_OK);
    const kvf__loss how = {.scale = 1};
    ck_assert_int_eq(kvf__head_loss(ctx, words, &one, hidden, &how, &loss[0], dwords), KVF_OK);
    float *grad = malloc((size_t)matrix->n * sizeof *grad);
    memcpy(grad, matrix->grad, (size_t)matrix->n * sizeof *grad);
    memset(matrix->grad, 0, (size_t)matrix->n * sizeof *grad);
    ck_assert_int_eq(kvf__head_loss(ctx, phrases, &rows, hidden, &how, &loss[1], dphrases), KVF_OK);
    ck_assert_double_eq_tol(loss[0], loss[1], 1e-5 * loss[0]);
    for (int i = 0; i < WORDS * C; i++)
        sum[i % C] += dphrases[i];
    ck_assert_double_le(ck_rel_l2(sum, dwords, C), 1e-5);
    ck_assert_double_le(ck_rel_l2(matrix->grad, grad, (size_t)matrix->n), 1e-5);
    free(grad);
    kvf__head_free(words);
    kvf__head_free(phrases);
    close_case(&f);
}
END_TEST

/* A base gives the same results with its pretraining head and without. */
START_TEST(the_head_is_no_part_of_the_base)
{
    static const int32_t IDS[] = {1, 2};
    fixture with = {0}, half = {0}, untied = {0};
    kvf__head *head = NULL;

    open_case(&with, _i, NULL, "");
    open_case(&half, _i, CASES[_i].last, "");
    open_case(&untied, _i, NULL, ",\"tie_word_embeddings\":false");
    ck_assert_ptr_nonnull(kvf__model_masked_lm(with.model));
    ck_assert_ptr_null(kvf__model_masked_lm(half.model));
    ck_assert_ptr_null(kvf__model_masked_lm(untied.model));
    ck_assert_str_eq(with.hash, half.hash);
    ck_assert_int_eq(kvf__head_create_words(ctx, half.model, IDS, 2, &head), KVF_EUNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(ctx), "has no masked-language-model head"));
    close_case(&with);
    close_case(&half);
    close_case(&untied);
}
END_TEST

START_TEST(bad_words_and_no_memory)
{
    static const int32_t BAD[] = {1, 40}, GOOD[] = {1, 39};
    kvf__head *head = NULL;
    kvf_status st = KVF_ENOMEM;
    fixture f = {0};
    long n = 0;

    open_case(&f, 0, NULL, "");
    ck_assert_int_eq(kvf__head_create_words(ctx, f.model, BAD, 2, &head), KVF_ESHAPE);
    for (; st == KVF_ENOMEM && n < 20; n++) {
        kvf__ctx_fail_allocation(ctx, n);
        st = kvf__head_create_words(ctx, f.model, GOOD, 2, &head);
    }
    kvf__ctx_fail_allocation(ctx, -1);
    ck_assert_int_eq(st, KVF_OK);
    ck_assert_int_gt(n, 2);
    kvf__head_free(head);
    close_case(&f);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("head_words");
    TCase *parity = tcase_create("golden"), *core = tcase_create("core"),
          *errors = tcase_create("errors");
    tcase_add_checked_fixture(parity, setup, teardown);
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_checked_fixture(errors, setup, teardown);
    tcase_add_loop_test(parity, words_are_those_of_transformers, 0, N_CASES);
    tcase_add_loop_test(parity, phrases_are_those_of_transformers, 0, 2 * (N_TRAINED + 1));
    tcase_add_loop_test(core, phrases_of_one_token_are_words, 0, N_TRAINED);
    tcase_add_loop_test(core, the_head_is_no_part_of_the_base, 0, N_CASES);
    tcase_add_test(errors, bad_words_and_no_memory);
    suite_add_tcase(suite, parity);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, errors);
    return ck_main(suite);
}
