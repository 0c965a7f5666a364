/* Task heads: gradients against central differences under dropout, valid and invalid batches, and
 * the head described by a config. Against transformers: test_head_task_golden.c. */
#include "ck.h"
#include "loss.h"
#include "rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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

/* ---- a batch by hand ------------------------------------------------------------------------- */

enum { C = 10, ROWS = 4 };

/* Rows of 3, 2, 4 and 3 tokens. Classes read the first token, words and spans several. */
static const int64_t START[] = {0, 3, 5, 9, 12}, EXAMPLE[] = {7, 7, 9, 9}, ALONE[] = {3, 1, 4, 8};
static const int32_t FIRST[] = {0, 3, 5, 9}, EVERY[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11},
                     CLASSES[] = {2, 0, 1, 2}, TAGS[] = {2, -1, 0, 1, 1, 2, 0, -1, 1, 2, 2, 0},
                     RIGHT[] = {0, 1, 1, 0}, SPANS[] = {1, 2, 0, 0, -1, -1, 2, 2};
static const float VALUES[] = {0.5f, -1, 2, 0.25f};

static kvf__batch batch_for(kvf__task task)
{
    bool all = task == KVF__TASK_TOKEN_CLS || task == KVF__TASK_QA;
    return (kvf__batch){.n_rows = ROWS,
                        .n_tokens = 12,
                        .n_labels = all ? 12 : ROWS,
                        .start = START,
                        .example = task == KVF__TASK_CHOICE ? EXAMPLE : ALONE,
                        .label_at = all ? EVERY : FIRST,
                        .label_id = task == KVF__TASK_TOKEN_CLS ? TAGS
                                    : task == KVF__TASK_CHOICE  ? RIGHT
                                                                : CLASSES,
                        .values = VALUES,
                        .spans = SPANS};
}

static const struct {
    const char *arch;
    kvf__task task;
    int64_t labels;
    bool regression;
    int64_t terms;
} HEADS[] = {
    {"bert", KVF__TASK_SEQ_CLS, 3, false, 4},     {"bert", KVF__TASK_SEQ_CLS, 1, true, 4},
    {"bert", KVF__TASK_TOKEN_CLS, 3, false, 10},  {"bert", KVF__TASK_QA, 0, false, 3},
    {"bert", KVF__TASK_CHOICE, 0, false, 2},      {"roberta", KVF__TASK_SEQ_CLS, 3, false, 4},
    {"roberta", KVF__TASK_CHOICE, 0, false, 2},   {"llama", KVF__TASK_SEQ_CLS, 3, false, 4},
    {"qwen3", KVF__TASK_TOKEN_CLS, 3, false, 10}, {"gpt2", KVF__TASK_CHOICE, 0, false, 2},
    {"t5", KVF__TASK_SEQ_CLS, 3, false, 4},
};
enum { N_HEADS = sizeof HEADS / sizeof HEADS[0] };

static void fill(float *out, int64_t n, uint64_t seed, double by)
{
    kvf__rng rng = kvf__rng_make(seed, 1);
    for (int64_t i = 0; i < n; i++)
        out[i] = (float)(by * kvf__rng_normal(&rng));
}

/* A head with values large enough that every part affects the result. */
static kvf__head *make(int at, double dropout)
{
    const bool t5 = !strcmp(HEADS[at].arch, "t5");
    kvf__head_base base = {
        .arch = HEADS[at].arch, .C = C, .initializer_range = 0.3, .factor = t5 ? 0.25f : 1};
    kvf__head_options options = {.task = HEADS[at].task,
                                 .labels = HEADS[at].labels,
                                 .regression = HEADS[at].regression,
                                 .dropout = dropout,
                                 .seed = 5};
    kvf__head *head = NULL;
    ck_assert_msg(!kvf__head_create_on(ctx, &base, &options, &head), "%s", kvf_ctx_error(ctx));
    return head;
}

static double loss_of(kvf__head *head, const kvf__batch *batch, const float *hidden)
{
    float ignored[12 * C];
    double loss = 0;
    ck_assert_msg(!kvf__head_loss(ctx, head, batch, hidden, &(kvf__loss){.step = 3, .scale = 1},
                                  &loss, ignored),
                  "%s", kvf_ctx_error(ctx));
    return loss;
}

/* want[i] = d loss / d at[i], by differences. */
static void differ(kvf__head *head, const kvf__batch *batch, const float *hidden, float *at,
                   int64_t n, float *want)
{
    for (int64_t i = 0; i < n; i++) {
        float saved = at[i], step = 4e-3f;
        at[i] = saved + step;
        double up = loss_of(head, batch, hidden);
        at[i] = saved - step;
        double down = loss_of(head, batch, hidden);
        at[i] = saved;
        want[i] = (float)((up - down) / (2 * (double)step));
    }
}

/* One loop row per head, dropout on: the masks of a step are the same at every call. */
START_TEST(gradients_match_differences)
{
    kvf__head *head = make(_i, 0.3);
    kvf__batch batch = batch_for(HEADS[_i].task);
    kvf__params *params = kvf__head_params(head);
    float hidden[12 * C], dhidden[12 * C], want[3 * C * C], *grads[4] = {NULL};
    double loss;
    fill(hidden, batch.n_labels * C, 2, 1);
    ck_assert(!kvf__head_loss(ctx, head, &batch, hidden, &(kvf__loss){.step = 3, .scale = 1}, &loss,
                              dhidden));
    for (size_t i = 0; i < params->n; i++) {
        size_t bytes = (size_t)params->item[i].n * sizeof(float);
        grads[i] = memcpy(malloc(bytes), params->item[i].grad, bytes);
    }
    differ(head, &batch, hidden, hidden, batch.n_labels * C, want);
    ck_close(dhidden, want, (size_t)(batch.n_labels * C), 2e-3, 2e-4);
    for (size_t i = 0; i < params->n; i++) {
        differ(head, &batch, hidden, params->item[i].value, params->item[i].n, want);
        ck_close(grads[i], want, (size_t)params->item[i].n, 2e-3, 2e-4);
        free(grads[i]);
    }
    kvf__head_free(head);
}
END_TEST

/* The parts of a step: the same masks, summed losses and summed gradients, for any division of rows
 * into batches. */
START_TEST(rows_alone_equal_rows_together)
{
    static const int64_t CUTS[] = {0, 2, 4}; /* between questions */
    kvf__head *whole = make(_i, 0.25), *parts = make(_i, 0.25);
    kvf__batch all = batch_for(HEADS[_i].task);
    float hidden[12 * C], together[12 * C], apart[12 * C];
    double loss = 0, sum = 0, one = 0;
    int64_t j = 0, terms = 0;
    fill(hidden, all.n_labels * C, 4, 1);
    ck_assert(!kvf__head_loss(ctx, whole, &all, hidden, &(kvf__loss){.step = 1, .scale = 0.5f},
                              &loss, together));
    for (int part = 0; part < 2; part++) {
        int64_t first = CUTS[part], shift = START[first], start[3], from = j;
        int32_t at[12];
        for (int64_t r = 0; r <= 2; r++)
            start[r] = START[first + r] - shift;
        for (; j < all.n_labels && all.label_at[j] < START[first + 2]; j++)
            at[j - from] = all.label_at[j] - (int32_t)shift;
        kvf__batch batch = all;
        batch.n_rows = 2, batch.n_tokens = start[2], batch.n_labels = j - from;
        batch.start = start, batch.label_at = at, batch.label_id += from;
        batch.example += first, batch.values += first, batch.spans += 2 * first;
        ck_assert(!kvf__head_loss(ctx, parts, &batch, hidden + from * C,
                                  &(kvf__loss){.step = 1, .scale = 0.5f}, &one, apart + from * C));
        sum += one;
        terms += kvf__head_terms(parts, &batch);
    }
    ck_assert_int_eq(terms, HEADS[_i].terms);
    ck_assert_int_eq(kvf__head_terms(whole, &all), HEADS[_i].terms);
    ck_assert_double_eq_tol(loss, sum, 1e-9);
    ck_assert_mem_eq(together, apart, (size_t)(all.n_labels * C) * sizeof(float));
    for (size_t i = 0; i < kvf__head_params(whole)->n; i++)
        ck_close(kvf__head_params(parts)->item[i].grad, kvf__head_params(whole)->item[i].grad,
                 (size_t)kvf__head_params(whole)->item[i].n, 1e-5, 1e-7);
    kvf__head_free(whole);
    kvf__head_free(parts);
}
END_TEST

/* Large enough that the loops run in parallel: 64 rows, 96 wide, RoBERTa's two layers. */
static void run_wide(int threads, float *dhidden, float *grad)
{
    enum { N = 64, WIDE = 96 };
    static float hidden[N * WIDE];
    int64_t start[N + 1], example[N];
    int32_t at[N], id[N];
    for (int i = 0; i <= N; i++)
        start[i] = i;
    for (int i = 0; i < N; i++)
        example[i] = at[i] = i, id[i] = i % 3;
    kvf__batch batch = {.n_rows = N,
                        .n_tokens = N,
                        .n_labels = N,
                        .start = start,
                        .example = example,
                        .label_at = at,
                        .label_id = id};
    kvf__head_base base = {.arch = "roberta", .C = WIDE};
    kvf__head_options options = {.task = KVF__TASK_SEQ_CLS, .labels = 3, .dropout = 0.1};
    kvf_ctx_options with = {.threads = threads};
    kvf_ctx *own = NULL;
    kvf__head *head = NULL;
    double loss;
    fill(hidden, N * WIDE, 9, 1);
    ck_assert(!kvf_ctx_create(&with, &own));
    ck_assert(!kvf__head_create_on(own, &base, &options, &head));
    ck_assert(!kvf__head_prepare(own, head, N));
    uint64_t before = kvf__ctx_allocations(own);
    ck_assert(!kvf__head_loss(own, head, &batch, hidden, &(kvf__loss){.step = 1, .scale = 1}, &loss,
                              dhidden));
    ck_assert_uint_eq(kvf__ctx_allocations(own), before);
    memcpy(grad, kvf__head_params(head)->item[0].grad, WIDE * WIDE * sizeof(float));
    kvf__head_free(head);
    kvf_ctx_free(own);
}

START_TEST(threads_do_not_change_a_bit)
{
    static float dhidden[2][64 * 96], grad[2][96 * 96];
    run_wide(1, dhidden[0], grad[0]);
    run_wide(3, dhidden[1], grad[1]);
    ck_assert_mem_eq(dhidden[0], dhidden[1], sizeof dhidden[0]);
    ck_assert_mem_eq(grad[0], grad[1], sizeof grad[0]);
}
END_TEST

/* Without a gradient dropout is off; with a gradient, steps differ. */
START_TEST(dropout_is_for_training)
{
    kvf__head *head = make(0, 0.5), *plain = make(0, 0);
    kvf__batch batch = batch_for(KVF__TASK_SEQ_CLS);
    float hidden[ROWS * C], dhidden[ROWS * C];
    double off, bare, first, again, second;
    fill(hidden, ROWS * C, 6, 1);
    ck_assert(!kvf__head_loss(ctx, head, &batch, hidden, &(kvf__loss){.step = 1, .scale = 1}, &off,
                              NULL));
    ck_assert(!kvf__head_loss(ctx, plain, &batch, hidden, &(kvf__loss){.step = 1, .scale = 1},
                              &bare, dhidden));
    ck_assert(!kvf__head_loss(ctx, head, &batch, hidden, &(kvf__loss){.step = 1, .scale = 1},
                              &first, dhidden));
    ck_assert(!kvf__head_loss(ctx, head, &batch, hidden, &(kvf__loss){.step = 1, .scale = 1},
                              &again, dhidden));
    ck_assert(!kvf__head_loss(ctx, head, &batch, hidden, &(kvf__loss){.step = 2, .scale = 1},
                              &second, dhidden));
    ck_assert_double_eq(off, bare);
    ck_assert_double_eq(first, again);
    ck_assert_double_ne(first, off);
    ck_assert_double_ne(first, second);
    kvf__head_free(head);
    kvf__head_free(plain);
}
END_TEST

/* ---- on a model ------------------------------------------------------------------------------ */

static const char BERT[] = "{\"model_type\":\"bert\",\"vocab_size\":20,\"hidden_size\":10,"
                           "\"num_hidden_layers\":1,\"num_attention_heads\":2,"
                           "\"intermediate_size\":12,\"max_position_embeddings\":16,"
                           "\"classifier_dropout\":0.25,\"hidden_dropout_prob\":0.5,"
                           "\"initializer_range\":0.3}";

typedef struct making {
    kvf__table table;
    float *weights; /* of all tensors, back to back */
    int64_t used;
    bool pooler; /* make one */
} making;

static kvf_status add_weight(void *user, const char *name, int rank, const int64_t *dim)
{
    making *m = user;
    kvf__view view = {.data = m->weights + m->used, .dtype = KVF__F32, .rank = rank};
    memcpy(view.dim, dim, (size_t)rank * sizeof *dim);
    fill(m->weights + m->used, kvf__view_count(&view), (uint64_t)m->used, 0.3);
    if (!m->pooler && strstr(name, "pooler")) return KVF_OK;
    m->used += kvf__view_count(&view);
    return kvf__table_add(ctx, &m->table, name, view);
}

static kvf__model *make_model(making *m, kvf__slots *slots)
{
    const kvf__model_options options = {.act = KVF__F32};
    kvf__model *model = NULL;
    kvf__desc desc = {0};
    kvf_json *json = NULL;
    m->weights = malloc(20000 * sizeof *m->weights);
    ck_assert(!kvf_json_parse(ctx, "bert", BERT, sizeof BERT - 1, &json));
    ck_assert_msg(!kvf__desc_from_hf(ctx, "bert", json, &desc), "%s", kvf_ctx_error(ctx));
    ck_assert(!kvf__desc_weights(&desc, add_weight, m));
    ck_assert_msg(!kvf__bind(ctx, "bert", &desc, &m->table, slots), "%s", kvf_ctx_error(ctx));
    ck_assert_msg(!kvf__model_create(ctx, &desc, slots, &options, &model), "%s",
                  kvf_ctx_error(ctx));
    kvf__desc_done(&desc);
    kvf_json_free(json);
    return model;
}

/* Loop row 0: a base without pooler; 1: with. The head takes from the model the tensors in its
 * config and file. */
START_TEST(model_says_what_a_head_needs)
{
    making m = {.pooler = _i == 1};
    kvf__slots slots = {0};
    kvf__model *model = make_model(&m, &slots);
    const kvf__head_options options = {
        .task = KVF__TASK_SEQ_CLS, .labels = 3, .dropout = -1, .seed = 5};
    kvf__head_base base = {
        .arch = "bert", .C = C, .dropout = {0.25, -1, -1, -1, 0}, .initializer_range = 0.3};
    base.pooler = kvf__model_pooler(model, &base.pooler_bias);
    ck_assert_int_eq(base.pooler != NULL, m.pooler);
    kvf__batch batch = batch_for(KVF__TASK_SEQ_CLS);
    kvf__head *got = NULL, *want = NULL;
    float hidden[ROWS * C];
    fill(hidden, ROWS * C, 6, 1);
    ck_assert_msg(!kvf__head_create(ctx, model, &options, &got), "%s", kvf_ctx_error(ctx));
    ck_assert(!kvf__head_create_on(ctx, &base, &options, &want));
    ck_assert_uint_eq(kvf__head_params(got)->n, m.pooler ? 2 : 4);
    ck_assert_str_eq(kvf__head_params(got)->item[0].name,
                     m.pooler ? "classifier.weight" : "bert.pooler.dense.weight");
    ck_assert_double_eq(loss_of(got, &batch, hidden), loss_of(want, &batch, hidden));
    kvf__head_free(got);
    kvf__head_free(want);
    kvf__model_free(model);
    kvf__slots_done(&slots);
    kvf__table_done(&m.table);
    free(m.weights);
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------- */

static const struct {
    const char *arch;
    kvf__head_options options;
    kvf_status want;
} BAD[] = {
    {"mpt", {.task = KVF__TASK_CHOICE}, KVF_EUNSUPPORTED},
    {"bert", {.task = KVF__TASK_LM}, KVF_EUNSUPPORTED},
    {"mpt", {.task = KVF__TASK_QA}, KVF_EUNSUPPORTED},
    {"bert", {.task = KVF__TASK_SEQ_CLS, .labels = 0}, KVF_EUSAGE},
    {"bert", {.task = KVF__TASK_SEQ_CLS, .labels = 2, .regression = true}, KVF_EUSAGE},
    {"bert", {.task = KVF__TASK_QA, .regression = true}, KVF_EUSAGE},
    {"bert", {.task = KVF__TASK_QA, .dropout = 1}, KVF_EUSAGE},
};

START_TEST(bad_requests_are_refused)
{
    kvf__head_base base = {.arch = BAD[_i].arch, .C = C};
    kvf__head *head = NULL;
    ck_assert_int_eq(kvf__head_create_on(ctx, &base, &BAD[_i].options, &head), BAD[_i].want);
    ck_assert_ptr_null(head);
    ck_assert_str_ne(kvf_ctx_error(ctx), "");
}
END_TEST

START_TEST(bad_targets_are_refused)
{
    static const int32_t OUTSIDE[] = {2, 0, 3, 2}, PAST[] = {1, 2, 0, 0, 0, 4, 2, 2};
    kvf__head *classes = make(0, 0), *spans = make(3, 0);
    kvf__batch batch = batch_for(KVF__TASK_SEQ_CLS), text = batch_for(KVF__TASK_QA);
    float hidden[12 * C];
    double loss = 42;
    fill(hidden, 12 * C, 6, 1);
    batch.label_id = OUTSIDE;
    ck_assert_int_eq(kvf__head_loss(ctx, classes, &batch, hidden,
                                    &(kvf__loss){.step = 1, .scale = 1}, &loss, NULL),
                     KVF_ESHAPE);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(ctx), "label 3"));
    text.spans = PAST;
    ck_assert_int_eq(
        kvf__head_loss(ctx, spans, &text, hidden, &(kvf__loss){.step = 1, .scale = 1}, &loss, NULL),
        KVF_ESHAPE);
    ck_assert_ptr_nonnull(strstr(kvf_ctx_error(ctx), "row 2: the answer ends at token 4"));
    hidden[3] = NAN;
    batch.label_id = CLASSES;
    ck_assert_int_eq(kvf__head_loss(ctx, classes, &batch, hidden,
                                    &(kvf__loss){.step = 1, .scale = 1}, &loss, NULL),
                     KVF_ENUMERIC);
    ck_assert_double_eq(loss, 42);
    kvf__head_free(classes);
    kvf__head_free(spans);
}
END_TEST

START_TEST(every_allocation_may_fail)
{
    kvf__head_base base = {.arch = "bert", .C = C};
    kvf__head_options options = {.task = KVF__TASK_SEQ_CLS, .labels = 2};
    kvf__head *head = NULL;
    kvf_status st = KVF_ENOMEM;
    int n = 0;
    for (; st == KVF_ENOMEM && n < 100; n++) {
        kvf__ctx_fail_allocation(ctx, n);
        st = kvf__head_create_on(ctx, &base, &options, &head);
        if (!st) st = kvf__head_prepare(ctx, head, 4);
        if (!st) break;
        kvf__head_free(head);
        head = NULL;
    }
    kvf__ctx_fail_allocation(ctx, -1);
    ck_assert_int_eq(st, KVF_OK);
    ck_assert_int_gt(n, 3);
    kvf__head_free(head);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("head_task");
    TCase *grad = tcase_create("grad"), *core = tcase_create("core"),
          *errors = tcase_create("errors");
    tcase_add_checked_fixture(grad, setup, teardown);
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_checked_fixture(errors, setup, teardown);
    tcase_set_timeout(grad, 30);
    tcase_add_loop_test(grad, gradients_match_differences, 0, N_HEADS);
    tcase_add_loop_test(core, rows_alone_equal_rows_together, 0, N_HEADS);
    tcase_add_test(core, threads_do_not_change_a_bit);
    tcase_add_test(core, dropout_is_for_training);
    tcase_add_loop_test(core, model_says_what_a_head_needs, 0, 2);
    tcase_add_loop_test(errors, bad_requests_are_refused, 0, (int)(sizeof BAD / sizeof BAD[0]));
    tcase_add_test(errors, bad_targets_are_refused);
    tcase_add_test(errors, every_allocation_may_fail);
    suite_add_tcase(suite, grad);
    suite_add_tcase(suite, core);
    suite_add_tcase(suite, errors);
    return ck_main(suite);
}
