/* Classes read as words by the head of masked language models: against transformers
 * (masked_lm_*.safetensors, written by tests/golden/make_masked_lm_golden.py), and what a base
 * without such a head, or with half of one, is. */
#include "ck.h"
#include "file_int.h"
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
};
enum { N_CASES = sizeof CASES / sizeof CASES[0] };

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
    kvf__table table; /* of the file, but for what was left out */
    kvf__slots slots;
    kvf__model *model;
    char hash[33];
} fixture;

static void open_case(fixture *f, int at, const char *without, const char *more)
{
    char path[128], config[512];
    kvf__model_options options = {.act = KVF__F32, .backward = true};
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

static void close_case(fixture *f)
{
    kvf__model_free(f->model);
    kvf__slots_done(&f->slots);
    kvf__table_done(&f->table);
    kvf__weights_close(&f->file);
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

/* A base is the same with its pretraining head and without. */
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
    TCase *golden = tcase_create("golden"), *core = tcase_create("core"),
          *errors = tcase_create("errors");
    tcase_add_checked_fixture(golden, setup, teardown);
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_checked_fixture(errors, setup, teardown);
    tcase_add_loop_test(golden, words_are_those_of_transformers, 0, N_CASES);
    tcase_add_loop_test(core, the_head_is_no_part_of_the_base, 0, N_CASES);
    tcase_add_test(errors, bad_words_and_no_memory);
    suite_add_tcase(suite, golden);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, errors);
    return ck_main(suite);
}
