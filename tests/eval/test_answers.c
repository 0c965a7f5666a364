/* Tests of scores and answers. Probabilities and decisions from outputs of heads are checked on
 * data sets built by hand. Answers to questions are checked against a search of all pairs. */
#include "answers.h"
#include "ck.h"
#include "rng.h"

#include <math.h>
#include <string.h>

static kvf_ctx *ctx;

static void setup(void)
{
    ck_assert_int_eq(kvf_ctx_create(NULL, &ctx), KVF_OK);
}

static void teardown(void)
{
    kvf_ctx_free(ctx);
}

static void ck_ok(kvf_status st)
{
    ck_assert_msg(st == KVF_OK, "%s", kvf_ctx_error(ctx));
}

/* ---- classes, choices, numbers --------------------------------------------------------------- */

static char *const NAMES[] = {(char *)"O", (char *)"B-X", (char *)"I-X"};

START_TEST(classes)
{
    int64_t start[] = {0, 1, 2};
    int32_t labels[] = {2, 0};
    kvf__source groups[] = {{.gold = 2}, {.gold = 0}};
    kvf__sources sources = {.group = groups, .labelled = true};
    const kvf__dataset set = {.n = 2,
                              .n_groups = 2,
                              .start = start,
                              .labels = labels,
                              .n_labels = 2,
                              .task = KVF__TASK_SEQ_CLS,
                              .names = {3, (char **)NAMES},
                              .sources = &sources};
    const float one[] = {0, 1, 2, 5, 5, -1}, two[] = {100, 101, 99, 0, 0, 0};
    kvf__scores s;
    kvf__answers a;
    kvf_metric out[KVF_MAX_SCORES];
    size_t n = 0;

    ck_ok(kvf__scores_init(ctx, &s, &set, 3));
    kvf__scores_add(&s, one, 0.5);
    kvf__scores_add(&s, two, 0.5);
    double z1 = exp(0) + exp(1) + exp(2), z2 = exp(0) + exp(1) + exp(-1);
    ck_assert_double_eq_tol(s.p[2], (exp(2) / z1 + exp(-1) / z2) / 2, 1e-12);
    ck_assert_double_eq_tol(s.p[0] + s.p[1] + s.p[2], 1, 1e-12);
    ck_assert_double_eq_tol(kvf__scores_loss(&s), -(log(s.p[2]) + log(s.p[3])) / 2, 1e-12);
    ck_ok(kvf__answers_init(ctx, &a, &s, &(kvf__answer_rules){0}));
    ck_assert_int_eq(a.best[0], 1); /* 0.245 + 0.665 against 0.665 + 0.090 */
    ck_assert_int_eq(a.best[1], 0); /* the first of equals */
    ck_assert_double_eq(a.p[1], s.p[3]);
    ck_ok(kvf__measure(ctx, &a, 0.25, out, &n));
    ck_assert_str_eq(out[0].name, "accuracy");
    ck_assert_double_eq(out[0].value, 0.5);
    kvf__answers_done(&a);
    kvf__scores_done(&s);
}
END_TEST

START_TEST(choices_share_their_question)
{
    int64_t start[] = {0, 1, 2, 3, 4, 5}, group[] = {0, 2, 5};
    int32_t labels[] = {0, 1, 1, 0, 0};
    kvf__source groups[] = {{.gold = 1, .n = 2}, {.gold = 0, .n = 3}};
    kvf__sources sources = {.group = groups, .labelled = true};
    const kvf__dataset set = {.n = 5,
                              .n_groups = 2,
                              .group = group,
                              .start = start,
                              .labels = labels,
                              .n_labels = 5,
                              .task = KVF__TASK_CHOICE,
                              .sources = &sources};
    const float logits[] = {1, 3, 0, 0, 2};
    kvf__scores s;
    kvf__answers a;

    ck_ok(kvf__scores_init(ctx, &s, &set, 1));
    kvf__scores_add(&s, logits, 1);
    ck_assert_double_eq_tol(s.p[0] + s.p[1], 1, 1e-12);
    ck_assert_double_eq_tol(s.p[2], 1 / (2 + exp(2)), 1e-12);
    ck_assert_double_eq_tol(kvf__scores_loss(&s), -(log(s.p[1]) + log(s.p[2])) / 2, 1e-12);
    ck_ok(kvf__answers_init(ctx, &a, &s, &(kvf__answer_rules){0}));
    ck_assert(a.best[0] == 1 && a.best[1] == 2 && a.gold[1] == 0);
    kvf__answers_done(&a);
    kvf__scores_done(&s);
}
END_TEST

START_TEST(numbers)
{
    int64_t start[] = {0, 1, 2, 3};
    int32_t labels[] = {0, 0, 0};
    float values[] = {1, 2, 4};
    kvf__source groups[] = {{.value = 1}, {.value = 2}, {.value = 4}};
    kvf__sources sources = {.group = groups, .labelled = true};
    const kvf__dataset set = {.n = 3,
                              .n_groups = 3,
                              .start = start,
                              .labels = labels,
                              .n_labels = 3,
                              .task = KVF__TASK_SEQ_CLS,
                              .regression = true,
                              .values = values,
                              .sources = &sources};
    kvf__scores s;
    kvf__answers a;
    kvf_metric out[KVF_MAX_SCORES];
    size_t n = 0;

    ck_ok(kvf__scores_init(ctx, &s, &set, 1));
    kvf__scores_add(&s, (const float[]){0, 2, 6}, 0.5);
    kvf__scores_add(&s, (const float[]){2, 4, 6}, 0.5);
    ck_assert_double_eq_tol(kvf__scores_loss(&s), (0 + 1 + 4) / 3.0, 1e-12);
    ck_ok(kvf__answers_init(ctx, &a, &s, &(kvf__answer_rules){0}));
    ck_assert(a.numbers[1] == 3 && a.wanted[2] == 4);
    ck_ok(kvf__measure(ctx, &a, 1, out, &n));
    ck_assert_str_eq(out[0].name, "pearson");
    ck_assert_double_eq_tol(out[0].value, 69 / sqrt(42.0 * 114.0), 1e-12);
    kvf__answers_done(&a);
    kvf__scores_done(&s);
}
END_TEST

START_TEST(outputs_that_are_not_finite_decide_nothing)
{
    int64_t start[] = {0, 1};
    int32_t labels[] = {0};
    kvf__source group = {.gold = -1};
    kvf__sources sources = {.group = &group};
    const kvf__dataset set = {.n = 1,
                              .n_groups = 1,
                              .start = start,
                              .labels = labels,
                              .n_labels = 1,
                              .task = KVF__TASK_SEQ_CLS,
                              .sources = &sources};
    static const float logits[][2] = {{NAN, 0}, {0, INFINITY}, {-INFINITY, -INFINITY}};
    for (size_t i = 0; i < 3; i++) {
        kvf__scores s;
        kvf__answers a;
        ck_ok(kvf__scores_init(ctx, &s, &set, 2));
        kvf__scores_add(&s, logits[i], 1);
        ck_assert_int_eq(kvf__answers_init(ctx, &a, &s, &(kvf__answer_rules){0}), KVF_ENUMERIC);
        kvf__scores_done(&s);
    }
}
END_TEST

/* A word without a token in its row is tagged O, and still counts. */
START_TEST(tags)
{
    int64_t start[] = {0, 4, 6};
    int32_t labels[] = {-100, 1, 2, -100, 0, -100};
    int32_t gold[] = {1, 2, 1, 0};
    const int32_t label_of[] = {0, 1, -1, 0};
    const char *words[] = {"Ann", "Lee", "Bob", "ran"};
    kvf__source groups[] = {
        {.n = 3, .items = words, .tags = gold, .label_of = label_of},
        {.n = 1, .items = words + 3, .tags = gold + 3, .label_of = label_of + 3}};
    kvf__sources sources = {.group = groups, .labelled = true};
    const kvf__dataset set = {.n = 2,
                              .n_groups = 2,
                              .start = start,
                              .labels = labels,
                              .n_labels = 3,
                              .task = KVF__TASK_TOKEN_CLS,
                              .names = {3, (char **)NAMES},
                              .sources = &sources};
    kvf__scores s;
    kvf__answers a;
    kvf_metric out[KVF_MAX_SCORES];
    size_t n = 0;

    ck_ok(kvf__scores_init(ctx, &s, &set, 3));
    kvf__scores_add(&s, (const float[]){0, 4, 0, 0, 0, 4, 4, 0, 0}, 1);
    ck_ok(kvf__answers_init(ctx, &a, &s, &(kvf__answer_rules){0}));
    ck_assert_int_eq(a.start[2], 4);
    const char *const want[] = {"B-X", "I-X", "O", "O"};
    for (int i = 0; i < 4; i++)
        ck_assert_str_eq(a.tags[i], want[i]);
    ck_assert(isnan(a.p[2]));
    ck_ok(kvf__measure(ctx, &a, 1, out, &n));
    for (size_t i = 0; i < n; i++)
        if (!strcmp(out[i].name, "recall")) ck_assert_double_eq(out[i].value, 0.5);
    kvf__answers_done(&a);
    kvf__scores_done(&s);
}
END_TEST

/* ---- spans ----------------------------------------------------------------------------------- */

enum { WINDOWS = 3, LENGTH = 12, CONTEXT = 16, FIRST = 3 }; /* tokens 3 .. of a row are context */

/* One question whose context of 16 one-letter tokens comes in windows of 8 that overlap by 4. Row:
 * [CLS], two of the question, 8 of the context, [SEP]. */
typedef struct question {
    int64_t start[WINDOWS + 1], group[2];
    int32_t labels[WINDOWS * LENGTH], spans[2 * WINDOWS], offsets[2 * CONTEXT];
    kvf__window windows[WINDOWS];
    kvf__source source;
    kvf__sources sources;
    kvf__dataset set;
    float logits[2 * WINDOWS * 9];
} question;

static const char TEXT[] = "abcdefghijklmnop";

static void make_question(question *q, uint64_t seed)
{
    kvf__rng rng = kvf__rng_make(seed, 0);
    *q = (question){.group = {0, WINDOWS}};
    for (int row = 0; row < WINDOWS; row++) {
        q->start[row + 1] = q->start[row] + LENGTH;
        for (int t = 0; t < LENGTH; t++)
            q->labels[row * LENGTH + t] = t == 0                        ? KVF__LABEL_NONE
                                          : t >= FIRST && t < FIRST + 8 ? 0
                                                                        : KVF__NO_LABEL;
        q->windows[row] = (kvf__window){.at = FIRST, .first = 4 * row, .n = 8};
    }
    for (int i = 0; i < CONTEXT; i++) {
        q->offsets[2 * i] = i;
        q->offsets[2 * i + 1] = i + 1;
    }
    for (size_t i = 0; i < sizeof q->logits / sizeof *q->logits; i++)
        q->logits[i] = (float)(2 * kvf__rng_normal(&rng));
    q->source = (kvf__source){
        .text = TEXT, .pair = "?", .answered = true, .n_context = CONTEXT, .offsets = q->offsets};
    q->sources = (kvf__sources){.group = &q->source, .windows = q->windows, .labelled = true};
    q->set = (kvf__dataset){.n = WINDOWS,
                            .n_groups = 1,
                            .group = q->group,
                            .start = q->start,
                            .labels = q->labels,
                            .n_labels = WINDOWS * 9,
                            .task = KVF__TASK_QA,
                            .spans = q->spans,
                            .sources = &q->sources};
}

/* The best pair by logits, over all windows and pairs; *none: the lowest no-answer score. */
static double search_all(const question *q, int64_t most, int *from, int *to, double *none)
{
    double best = -INFINITY;
    *none = INFINITY;
    for (int row = 0; row < WINDOWS; row++) {
        const float *l = q->logits + (ptrdiff_t)row * 18;
        *none = fmin(*none, (double)l[0] + (double)l[1]);
        for (int i = 0; i < 8; i++)
            for (int j = i; j < 8 && j - i < most; j++) {
                double score = (double)l[2 * (1 + i)] + (double)l[2 * (1 + j) + 1];
                if (score <= best) continue;
                best = score;
                *from = 4 * row + i;
                *to = 4 * row + j + 1;
            }
    }
    return best;
}

START_TEST(spans)
{
    question q;
    kvf__scores s;
    kvf__answers a;
    int from = 0, to = 0;
    double none;

    make_question(&q, (uint64_t)_i);
    ck_ok(kvf__scores_init(ctx, &s, &q.set, 2));
    kvf__scores_add(&s, q.logits, 1);
    double best = search_all(&q, 4, &from, &to, &none);
    const kvf__answer_rules rules[] = {
        {.max_tokens = 4},
        {.max_tokens = 4, .no_answer = true, .no_answer_above = none - best + 0.01},
        {.max_tokens = 4, .no_answer = true, .no_answer_above = none - best - 0.01},
    };
    for (int r = 0; r < 3; r++) {
        bool answer = r < 2;
        ck_ok(kvf__answers_init(ctx, &a, &s, &rules[r]));
        ck_assert_int_eq(a.spans[0], answer ? from : -1);
        ck_assert_int_eq(strlen(a.texts[0]), answer ? to - from : 0);
        if (answer) ck_assert_int_eq(strncmp(a.texts[0], TEXT + from, (size_t)(to - from)), 0);
        ck_assert(a.p[0] > 0 && a.p[0] <= 1 && (r > 0) == !isnan(a.p_none[0]));
        kvf__answers_done(&a);
    }
    kvf__scores_done(&s);
}
END_TEST

/* A context with U+0000: the answer contains it, and later answers keep their places. */
START_TEST(spans_over_nul)
{
    static const char ZEROS[CONTEXT + 1] = "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    const int64_t groups[] = {0, 1, WINDOWS};
    const kvf__answer_rules rules = {.max_tokens = 4};
    question q;
    kvf__scores s;
    kvf__answers a;

    make_question(&q, (uint64_t)_i);
    kvf__source two[2] = {q.source, q.source};
    two[0].text = ZEROS;
    q.sources.group = two;
    q.set.group = (int64_t *)groups;
    q.set.n_groups = 2;
    ck_ok(kvf__scores_init(ctx, &s, &q.set, 2));
    kvf__scores_add(&s, q.logits, 1);
    ck_ok(kvf__answers_init(ctx, &a, &s, &rules));
    for (int g = 0; g < 2; g++) {
        size_t n = (size_t)(a.spans[2 * g + 1] - a.spans[2 * g]);
        ck_assert_uint_eq(a.text_bytes[g], n);
        ck_assert_mem_eq(a.texts[g], two[g].text + a.spans[2 * g], n);
    }
    kvf__answers_done(&a);
    kvf__scores_done(&s);
}
END_TEST

/* The loss is that of a separate softmax over each window. */
START_TEST(span_loss)
{
    question q;
    kvf__scores s;
    double want = 0;

    make_question(&q, 7);
    q.spans[2] = FIRST +
                 2; /* window 1 holds the answer, other labels are the window's first token */
    q.spans[3] = FIRST + 4;
    for (int row = 0; row < WINDOWS; row++)
        for (int c = 0; c < 2; c++) {
            const float *l = q.logits + (ptrdiff_t)row * 18 + c;
            int label = q.spans[2 * row + c] ? q.spans[2 * row + c] - FIRST + 1 : 0;
            double sum = 0;
            for (int i = 0; i < 9; i++)
                sum += exp((double)l[2 * i]);
            want -= log(exp((double)l[2 * label]) / sum) / 2;
        }
    ck_ok(kvf__scores_init(ctx, &s, &q.set, 2));
    kvf__scores_add(&s, q.logits, 1);
    ck_assert_double_eq_tol(kvf__scores_loss(&s), want / WINDOWS, 1e-9);
    kvf__scores_done(&s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("answers");
    TCase *core = ck_case(suite, "core", setup, teardown, 4);
    TCase *spans_case = ck_case(suite, "spans", setup, teardown, 4);

    tcase_add_test(core, classes);
    tcase_add_test(core, choices_share_their_question);
    tcase_add_test(core, outputs_that_are_not_finite_decide_nothing);
    tcase_add_test(core, numbers);
    tcase_add_test(core, tags);
    tcase_add_loop_test(spans_case, spans, 0, 50);
    tcase_add_loop_test(spans_case, spans_over_nul, 0, 10);
    tcase_add_test(spans_case, span_loss);
    return ck_main(suite);
}
