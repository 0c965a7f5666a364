/* Task heads against transformers: logits, loss and every gradient of heads.safetensors, written by
 * tests/golden/make_head_golden.py. One loop row per architecture and task. */
#include "ck.h"
#include "file_int.h"
#include "loss.h"

#include <string.h>

static kvf_ctx *ctx;
static kvf__weights file;

static void setup(void)
{
    kvf_ctx_options options = {.threads = 2};
    ck_assert_int_eq(kvf_ctx_create(&options, &ctx), KVF_OK);
    ck_assert_msg(!kvf__safetensors_open(ctx, ck_source("tests/golden/heads.safetensors"), &file),
                  "%s", kvf_ctx_error(ctx));
}

static void teardown(void)
{
    kvf__weights_close(&file);
    kvf_ctx_free(ctx);
}

static const struct {
    const char *arch, *name;
    kvf__task task;
    int64_t labels;
    bool pooler; /* the case has one, or layers of the masked language model: run once with it
                    frozen, once trained */
} CASES[] = {
    {"bert", "seq-cls", KVF__TASK_SEQ_CLS, 3, true},
    {"bert", "regression", KVF__TASK_SEQ_CLS, 1, true},
    {"bert", "token-cls", KVF__TASK_TOKEN_CLS, 5, false},
    {"bert", "qa", KVF__TASK_QA, 0, false},
    {"bert", "qa_context", KVF__TASK_QA, 0, false},
    {"bert", "multiple-choice", KVF__TASK_CHOICE, 0, true},
    {"roberta", "seq-cls", KVF__TASK_SEQ_CLS, 3, false},
    {"roberta", "regression", KVF__TASK_SEQ_CLS, 1, false},
    {"roberta", "token-cls", KVF__TASK_TOKEN_CLS, 5, false},
    {"roberta", "qa", KVF__TASK_QA, 0, false},
    {"roberta", "qa_context", KVF__TASK_QA, 0, false},
    {"roberta", "multiple-choice", KVF__TASK_CHOICE, 0, true},
    {"electra", "seq-cls", KVF__TASK_SEQ_CLS, 3, false},
    {"electra", "regression", KVF__TASK_SEQ_CLS, 1, false},
    {"electra", "token-cls", KVF__TASK_TOKEN_CLS, 5, false},
    {"electra", "qa", KVF__TASK_QA, 0, false},
    {"electra", "qa_context", KVF__TASK_QA, 0, false},
    {"electra", "multiple-choice", KVF__TASK_CHOICE, 0, false},
    {"distilbert", "seq-cls", KVF__TASK_SEQ_CLS, 3, false},
    {"distilbert", "regression", KVF__TASK_SEQ_CLS, 1, false},
    {"distilbert", "token-cls", KVF__TASK_TOKEN_CLS, 5, false},
    {"distilbert", "qa", KVF__TASK_QA, 0, false},
    {"distilbert", "qa_context", KVF__TASK_QA, 0, false},
    {"distilbert", "multiple-choice", KVF__TASK_CHOICE, 0, false},
    {"deberta-v2", "seq-cls", KVF__TASK_SEQ_CLS, 3, false},
    {"deberta-v2", "regression", KVF__TASK_SEQ_CLS, 1, false},
    {"deberta-v2", "token-cls", KVF__TASK_TOKEN_CLS, 5, false},
    {"deberta-v2", "qa", KVF__TASK_QA, 0, false},
    {"deberta-v2", "qa_context", KVF__TASK_QA, 0, false},
    {"deberta-v2", "multiple-choice", KVF__TASK_CHOICE, 0, false},
    {"modernbert", "seq-cls", KVF__TASK_SEQ_CLS, 3, true},
    {"modernbert", "regression", KVF__TASK_SEQ_CLS, 1, true},
    {"modernbert", "token-cls", KVF__TASK_TOKEN_CLS, 5, true},
    {"modernbert", "qa", KVF__TASK_QA, 0, true},
    {"modernbert", "qa_context", KVF__TASK_QA, 0, true},
    {"modernbert", "multiple-choice", KVF__TASK_CHOICE, 0, true},
    {"modernbert", "mean-seq-cls", KVF__TASK_SEQ_CLS, 3, true},
    {"modernbert", "mean-regression", KVF__TASK_SEQ_CLS, 1, true},
    {"modernbert", "mean-multiple-choice", KVF__TASK_CHOICE, 0, true},
    {"nomic_bert", "seq-cls", KVF__TASK_SEQ_CLS, 3, true},
    {"nomic_bert", "regression", KVF__TASK_SEQ_CLS, 1, true},
    {"nomic_bert", "token-cls", KVF__TASK_TOKEN_CLS, 5, false},
    {"gpt2", "seq-cls", KVF__TASK_SEQ_CLS, 3, false},
    {"gpt2", "regression", KVF__TASK_SEQ_CLS, 1, false},
    {"gpt2", "token-cls", KVF__TASK_TOKEN_CLS, 5, false},
    {"gpt2", "qa", KVF__TASK_QA, 0, false},
    {"gpt2", "qa_context", KVF__TASK_QA, 0, false},
    {"llama", "seq-cls", KVF__TASK_SEQ_CLS, 3, false},
    {"llama", "regression", KVF__TASK_SEQ_CLS, 1, false},
    {"llama", "token-cls", KVF__TASK_TOKEN_CLS, 5, false},
    {"llama", "qa", KVF__TASK_QA, 0, false},
    {"llama", "qa_context", KVF__TASK_QA, 0, false},
    {"mistral", "seq-cls", KVF__TASK_SEQ_CLS, 3, false},
    {"mistral", "token-cls", KVF__TASK_TOKEN_CLS, 5, false},
    {"mistral", "qa_context", KVF__TASK_QA, 0, false},
    {"qwen2", "seq-cls", KVF__TASK_SEQ_CLS, 3, false},
    {"qwen2", "token-cls", KVF__TASK_TOKEN_CLS, 5, false},
    {"qwen2", "qa_context", KVF__TASK_QA, 0, false},
    {"qwen3", "seq-cls", KVF__TASK_SEQ_CLS, 3, false},
    {"qwen3", "token-cls", KVF__TASK_TOKEN_CLS, 5, false},
    {"qwen3", "qa_context", KVF__TASK_QA, 0, false},
    {"gpt_neox", "seq-cls", KVF__TASK_SEQ_CLS, 3, false},
    {"gpt_neox", "token-cls", KVF__TASK_TOKEN_CLS, 5, false},
    {"gpt_neox", "qa", KVF__TASK_QA, 0, false},
    {"gemma2", "seq-cls", KVF__TASK_SEQ_CLS, 3, false},
    {"gemma2", "token-cls", KVF__TASK_TOKEN_CLS, 5, false},
    {"gemma3_text", "seq-cls", KVF__TASK_SEQ_CLS, 3, false},
    {"phi3", "seq-cls", KVF__TASK_SEQ_CLS, 3, false},
    {"phi3", "token-cls", KVF__TASK_TOKEN_CLS, 5, false},
    {"olmo2", "seq-cls", KVF__TASK_SEQ_CLS, 3, false},
};
enum { N_CASES = sizeof CASES / sizeof CASES[0], WIDEST = 64, MAX_ROWS = 8 };

/* "arch.task.what" of the case, NULL if the file has none; its numbers are aligned (checked). */
static const void *stored(int at, const char *what, const char *name, int64_t *n)
{
    char full[128];
    snprintf(full, sizeof full, "%s.%s.%s%s", CASES[at].arch, CASES[at].name, what, name);
    const kvf__view *view = kvf__table_find(&file.table, full);
    if (!view) return NULL;
    ck_assert_uint_eq((uintptr_t)view->data % sizeof(float), 0);
    if (n) *n = kvf__view_count(view);
    return view->data;
}

static kvf__batch stored_batch(int at, int64_t start[MAX_ROWS + 1], int64_t example[MAX_ROWS])
{
    kvf__batch batch = {.start = start, .example = example};
    int64_t n = 0;
    const void *starts = stored(at, "start", "", &n);
    ck_assert_int_le(n, MAX_ROWS + 1);
    memcpy(start, starts, (size_t)n * sizeof *start);
    batch.n_rows = n - 1;
    batch.n_tokens = start[n - 1];
    for (int64_t r = 0; r < batch.n_rows; r++)
        example[r] = CASES[at].task == KVF__TASK_CHOICE ? r / 2 : r;
    batch.label_at = stored(at, "at", "", &batch.n_labels);
    batch.label_id = stored(at, "id", "", NULL);
    batch.values = stored(at, "values", "", NULL);
    batch.spans = stored(at, "spans", "", NULL);
    return batch;
}

static void check_params(int at, kvf__params *params)
{
    for (size_t i = 0; i < params->n; i++) {
        int64_t n = 0;
        const float *want = stored(at, "grad.", params->item[i].name, &n);
        ck_assert_msg(want != NULL, "case %d has no %s", at, params->item[i].name);
        ck_close(params->item[i].grad, want, (size_t)n, 1e-4, 1e-6);
    }
}

static void compare(int at, bool frozen)
{
    int64_t start[MAX_ROWS + 1], example[MAX_ROWS];
    kvf__batch batch = stored_batch(at, start, example);
    kvf__head_base base = {
        .arch = CASES[at].arch,
        .C = 12,
        .norm_eps = 1e-5,
        .mean_pooled = !strncmp(CASES[at].name, "mean-", 5),
    };
    char pooler[64];
    snprintf(pooler, sizeof pooler, "%s.pooler.dense.weight", base.arch);
    if (frozen) base.pooler = stored(at, "param.", pooler, NULL);
    snprintf(pooler, sizeof pooler, "%s.pooler.dense.bias", base.arch);
    if (frozen) base.pooler_bias = stored(at, "param.", pooler, NULL);
    kvf__masked_lm transform = {.act = KVF__GELU_ERF,
                                .dense = (float *)stored(at, "param.", "head.dense.weight", NULL),
                                .gamma = (float *)stored(at, "param.", "head.norm.weight", NULL)};
    if (frozen && transform.dense) base.masked_lm = &transform;
    const kvf__head_options options = {
        .task = CASES[at].task, .labels = CASES[at].labels, .regression = batch.values != NULL};
    kvf__head *head = NULL;
    ck_assert_msg(!kvf__head_create_on(ctx, &base, &options, &head), "%s", kvf_ctx_error(ctx));

    kvf__params *params = kvf__head_params(head);
    for (size_t i = 0; i < params->n; i++) {
        int64_t n = 0;
        const float *from = stored(at, "param.", params->item[i].name, &n);
        ck_assert_msg(from && n == params->item[i].n, "case %d: %s", at, params->item[i].name);
        memcpy(params->item[i].value, from, (size_t)n * sizeof(float));
    }
    int64_t width = kvf__head_width(head), terms = kvf__head_terms(head, &batch);
    const float *hidden = stored(at, "hidden", "", NULL);
    float logits[WIDEST * 5], dhidden[WIDEST * 12], loss, scale = 1 / (float)terms;
    double sum = 0;
    ck_assert_int_le(batch.n_labels, WIDEST);
    const int64_t outputs = base.mean_pooled ? batch.n_rows : batch.n_labels;
    ck_assert(!kvf__head_outputs(ctx, head, &batch, hidden, logits));
    ck_close(logits, stored(at, "logits", "", NULL), (size_t)(outputs * width), 1e-5, 1e-6);
    ck_assert(
        !kvf__head_loss(ctx, head, &batch, hidden, &(kvf__loss){.scale = scale}, &sum, dhidden));
    loss = (float)(sum / (double)terms);
    ck_close(&loss, stored(at, "loss", "", NULL), 1, 1e-5, 0);
    ck_close(dhidden, stored(at, "dhidden", "", NULL), (size_t)(batch.n_labels * 12), 1e-4, 1e-6);
    check_params(at, params);
    kvf__head_free(head);
}

START_TEST(heads_are_those_of_transformers)
{
    compare(_i, false);
    if (CASES[_i].pooler) compare(_i, true);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("head_task_golden");
    TCase *golden = tcase_create("golden");
    tcase_add_checked_fixture(golden, setup, teardown);
    tcase_add_loop_test(golden, heads_are_those_of_transformers, 0, N_CASES);
    suite_add_tcase(suite, golden);
    return ck_main(suite);
}
