/* Metrics on hand-made cases small enough to check on paper, their limits, and refusals.
 * Comparisons with the libraries are in test_metric_golden.c. */
#include "ck.h"
#include "metric_int.h"

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

#define CLOSE(got, want) ck_assert_double_eq_tol(got, want, 1e-12)

/* ---- classes and numbers --------------------------------------------------------------------- */

START_TEST(classes)
{
    static const int32_t GOLD[] = {0, 0, 1, 1, 2, 2}, SAID[] = {0, 1, 1, 1, 2, 0};
    kvf__prf each[4];
    kvf__class_scores s;

    ck_assert_int_eq(kvf__classify(ctx, GOLD, SAID, 6, 4, each, &s), KVF_OK);
    CLOSE(s.accuracy, 4.0 / 6);
    CLOSE(each[1].precision, 2.0 / 3);
    CLOSE(each[1].recall, 1);
    CLOSE(each[1].f1, 0.8);
    ck_assert_int_eq(each[1].support, 2);
    /* class 3 does not occur, so the mean leaves it out */
    CLOSE(each[3].f1, 0);
    CLOSE(s.macro.f1, (0.5 + 0.8 + 2.0 / 3) / 3);
    CLOSE(s.micro.f1, s.accuracy);
}
END_TEST

START_TEST(matthews)
{
    static const int32_t GOLD[] = {1, 1, 1, 0}, SAID[] = {1, 1, 0, 0}, ONE[] = {1, 1, 1, 1};
    kvf__class_scores s;

    /* (2 * 1 - 0 * 1) / sqrt(2 * 3 * 1 * 2) */
    ck_assert_int_eq(kvf__classify(ctx, GOLD, SAID, 4, 2, NULL, &s), KVF_OK);
    CLOSE(s.mcc, 2 / sqrt(12));
    ck_assert_int_eq(kvf__classify(ctx, GOLD, ONE, 4, 2, NULL, &s), KVF_OK);
    CLOSE(s.mcc, 0);
}
END_TEST

START_TEST(correlations)
{
    static const double X[] = {1, 2, 3, 4}, CUBES[] = {1, 8, 27, 64}, TIES[] = {1, 1, 2, 3};
    static const double FLAT[] = {7, 7, 7, 7}, BAD[] = {1, NAN, 2, 3};
    double r;

    ck_assert_int_eq(kvf__spearman(ctx, X, CUBES, 4, &r), KVF_OK);
    CLOSE(r, 1);
    ck_assert_int_eq(kvf__pearson(ctx, X, CUBES, 4, &r), KVF_OK);
    CLOSE(r, 104 / sqrt(5 * 2390.0));
    /* ranks 1.5 1.5 3 4 */
    ck_assert_int_eq(kvf__spearman(ctx, X, TIES, 4, &r), KVF_OK);
    CLOSE(r, 4.5 / sqrt(5 * 4.5));
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(kvf__pearson(ctx, X, i ? BAD : FLAT, 4, &r), KVF_OK);
        ck_assert(isnan(r));
        ck_assert_int_eq(kvf__spearman(ctx, X, i ? BAD : FLAT, 4, &r), KVF_OK);
        ck_assert(isnan(r));
    }
}
END_TEST

/* ---- entities -------------------------------------------------------------------------------- */

enum { WORDS = 6 };

static kvf_status entities(const char *const *gold, const char *const *said, kvf__tag_scheme scheme,
                           kvf__entity_scores *s)
{
    static const int64_t START[] = {0, 4, WORDS};
    kvf__tag_rows rows = {2, START, gold, said};
    return kvf__entities(ctx, &rows, scheme, s);
}

START_TEST(spans)
{
    static const char *const GOLD[] = {"B-LOC", "I-LOC", "O", "B-PER", "B-PER", "O"};
    static const char *const SAID[] = {"B-LOC", "I-LOC", "O", "I-PER", "O", "B-LOC"};
    kvf__entity_scores s;

    /* by default I after O begins an entity, in IOB2 it does not */
    ck_assert_int_eq(entities(GOLD, SAID, KVF__TAGS_MIXED, &s), KVF_OK);
    ck_assert_uint_eq(s.n_types, 2);
    ck_assert_str_eq(s.types[0].name, "LOC");
    CLOSE(s.types[0].scores.precision, 0.5);
    CLOSE(s.types[0].scores.recall, 1);
    CLOSE(s.types[1].scores.recall, 0.5);
    CLOSE(s.micro.f1, 2.0 / 3);
    CLOSE(s.macro.f1, 2.0 / 3);
    CLOSE(s.accuracy, 0.5);
    kvf__entity_scores_done(&s);
    ck_assert_int_eq(entities(GOLD, SAID, KVF__TAGS_AUTO, &s), KVF_OK);
    CLOSE(s.micro.f1, 2.0 / 5);
    kvf__entity_scores_done(&s);
}
END_TEST

/* Tags under the mixed rule; a word without a tag is outside. */
START_TEST(spans_of_a_sentence)
{
    static const char *const TAGS[] = {"I-LOC", "I-LOC", NULL, "B", "B-PER", "S-PER", "O"};
    static const struct {
        const char *type;
        int64_t first, last;
    } WANT[] = {{"LOC", 0, 1}, {"_", 3, 3}, {"PER", 4, 4}, {"PER", 5, 5}};
    const size_t n = sizeof WANT / sizeof *WANT;
    kvf__tag_scan scan = {0};
    kvf__tag_span e;

    for (size_t i = 0; i < n; i++) {
        ck_assert(kvf__tag_span_next(&scan, TAGS, 7, &e));
        ck_assert_uint_eq(e.type_bytes, strlen(WANT[i].type));
        ck_assert_mem_eq(e.type, WANT[i].type, e.type_bytes);
        ck_assert_int_eq(e.first, WANT[i].first);
        ck_assert_int_eq(e.last, WANT[i].last);
    }
    ck_assert(!kvf__tag_span_next(&scan, TAGS, 7, &e));
    scan = (kvf__tag_scan){0};
    ck_assert(!kvf__tag_span_next(&scan, TAGS, 0, &e));
    scan = (kvf__tag_scan){0}; /* the entity ends with the sentence */
    ck_assert(kvf__tag_span_next(&scan, TAGS, 2, &e));
    ck_assert_int_eq(e.last, 1);
}
END_TEST

/* One row of words in every scheme; all mean X over words 0-1, Y on 2, Y on 3-5. */
static const struct {
    kvf__tag_scheme scheme;
    const char *tags[WORDS];
} SPELT[] = {
    {KVF__TAGS_IOB1, {"I-X", "I-X", "I-Y", "B-Y", "I-Y", "I-Y"}},
    {KVF__TAGS_IOB2, {"B-X", "I-X", "B-Y", "B-Y", "I-Y", "I-Y"}},
    {KVF__TAGS_IOE2, {"I-X", "E-X", "E-Y", "I-Y", "I-Y", "E-Y"}},
    {KVF__TAGS_IOBES, {"B-X", "E-X", "S-Y", "B-Y", "I-Y", "E-Y"}},
    {KVF__TAGS_BILOU, {"B-X", "L-X", "U-Y", "B-Y", "I-Y", "L-Y"}},
};

START_TEST(schemes)
{
    static const int64_t START[] = {0, WORDS};
    kvf__tag_rows rows = {1, START, SPELT[_i].tags, SPELT[_i].tags};
    kvf__entity_scores s;

    ck_assert_int_eq(kvf__entities(ctx, &rows, SPELT[_i].scheme, &s), KVF_OK);
    ck_assert_uint_eq(s.n_types, 2);
    ck_assert_int_eq(s.types[0].scores.support, 1);
    ck_assert_int_eq(s.types[1].scores.support, 2);
    CLOSE(s.micro.f1, 1);
    kvf__entity_scores_done(&s);
}
END_TEST

START_TEST(no_entities)
{
    static const char *const NONE[] = {"O", "O", "O", "O", "O", "O"};
    kvf__entity_scores s;

    ck_assert_int_eq(entities(NONE, NONE, KVF__TAGS_MIXED, &s), KVF_OK);
    CLOSE(s.micro.f1, 0);
    CLOSE(s.macro.f1, 0); /* sklearn: 0 for an empty class */
    ck_assert_uint_eq(s.n_types, 0);
    kvf__entity_scores_done(&s);
    ck_assert_int_eq(entities(NONE, NONE, KVF__TAGS_AUTO, &s), KVF_EDATA);
}
END_TEST

/* ---- answers and texts ----------------------------------------------------------------------- */

START_TEST(answers)
{
    static const char *const SAID[] = {"The  Eiffel-Tower!", "in Paris", ""};
    static const char *const WANT[] = {"eiffeltower", "Paris", "Paris, France"};
    static const int64_t START[] = {0, 1, 3, 3};
    kvf__text_rows rows = {.n = 3, .predicted = SAID, .start = START, .references = WANT};
    kvf__squad_scores s;

    ck_assert_int_eq(kvf__squad(ctx, &rows, true, &s), KVF_OK);
    CLOSE(s.exact, 200.0 / 3);
    CLOSE(s.f1, 100 * (1 + 2.0 / 3 + 1) / 3);
    CLOSE(s.has_exact, 50);
    CLOSE(s.none_f1, 100);
    ck_assert_int_eq(s.none, 1);
    ck_assert_int_eq(kvf__squad(ctx, &rows, false, &s), KVF_EDATA);
    ck_assert_str_eq(kvf_ctx_error(ctx), "example 2 has no reference");
    rows.n = 2;
    ck_assert_int_eq(kvf__squad(ctx, &rows, false, &s), KVF_OK);
    CLOSE(s.exact, 50);
    ck_assert(isnan(s.none_f1));
}
END_TEST

START_TEST(texts)
{
    static const char *const SAID[] = {"the cat sat on the mat."};
    static const char *const WANT[] = {"The cat is on the mat.", "the cat sat on a mat, it did."};
    static const int64_t START[] = {0, 2};
    kvf__text_rows rows = {.n = 1, .predicted = SAID, .start = START, .references = WANT};
    kvf__bleu_scores b;
    kvf__prf r;

    /* the period is a word; the references together contain all 6 pairs, but "the" only once
     * each */
    ck_assert_int_eq(kvf__bleu(ctx, &rows, &b), KVF_OK);
    ck_assert_int_eq(b.predicted_length, 7);
    ck_assert_int_eq(b.reference_length, 7);
    ck_assert_int_eq(b.correct[0], 6);
    ck_assert_int_eq(b.correct[1], 6);
    ck_assert_int_eq(b.total[3], 4);
    ck_assert_int_eq(kvf__rouge_l(ctx, &rows, &r), KVF_OK);
    CLOSE(r.f1, 5.0 / 6);
}
END_TEST

START_TEST(smoothing)
{
    static const char *const SAID[] = {"a b c d", "x"}, *const WANT[] = {"a c b d", "y"};
    static const int64_t START[] = {0, 1, 2};
    kvf__text_rows rows = {.n = 1, .predicted = SAID, .start = START, .references = WANT};
    kvf__bleu_scores b;

    ck_assert_int_eq(kvf__bleu(ctx, &rows, &b), KVF_OK);
    CLOSE(b.precisions[0], 100);
    CLOSE(b.precisions[1], 100.0 / (2 * 3));
    CLOSE(b.precisions[2], 100.0 / (4 * 2));
    CLOSE(b.precisions[3], 100.0 / (8 * 1));
    /* no match at all */
    rows.predicted++;
    rows.start++;
    ck_assert_int_eq(kvf__bleu(ctx, &rows, &b), KVF_OK);
    CLOSE(b.score, 0);
    CLOSE(b.precisions[0], 0);
}
END_TEST

/* ---- refused --------------------------------------------------------------------------------- */

START_TEST(refused)
{
    static const int32_t GOLD[] = {0, 2}, SAID[] = {0, 1};
    static const char *const TAGS[] = {"O", "B-X", "O", "O", "", "O"};
    static const char *const ODD[] = {"O", "B-X", "O", "E-X", "O", "O"};
    kvf__class_scores c;
    kvf__entity_scores e;
    double r;

    ck_assert_int_eq(kvf__classify(ctx, GOLD, SAID, 0, 3, NULL, &c), KVF_EDATA);
    ck_assert_str_eq(kvf_ctx_error(ctx), "no examples to score");
    ck_assert_int_eq(kvf__classify(ctx, GOLD, SAID, 2, 2, NULL, &c), KVF_EDATA);
    ck_assert_str_eq(kvf_ctx_error(ctx), "example 1: class 2, want 0 to 1");
    ck_assert_int_eq(kvf__pearson(ctx, &r, &r, 1, &r), KVF_EDATA);
    ck_assert_str_eq(kvf_ctx_error(ctx), "1 examples to correlate, want 2 or more");
    ck_assert_int_eq(entities(TAGS, TAGS, KVF__TAGS_MIXED, &e), KVF_EDATA);
    ck_assert_str_eq(kvf_ctx_error(ctx), "word 4: the tag is empty");
    ck_assert_int_eq(entities(ODD, ODD, KVF__TAGS_IOB2, &e), KVF_EDATA);
    ck_assert_str_eq(kvf_ctx_error(ctx), "sentence 0: the scheme has no tag \"E-X\"");
}
END_TEST

static const struct {
    const char *const *said, *const *want;
} PAIR = {(const char *const[]){"a b a b", "c"}, (const char *const[]){"a b", "b a b", "c d"}};

/* Every allocation fails once: no leak, and the same result if none fails. */
START_TEST(out_of_memory)
{
    static const int64_t START[] = {0, 2, 3};
    static const char *const TAGS[] = {"B-X", "I-X", "O", "B-Y", "B-Z", "O"};
    kvf__text_rows rows = {.n = 2, .predicted = PAIR.said, .start = START, .references = PAIR.want};
    kvf__entity_scores e;
    kvf__squad_scores q;
    kvf__bleu_scores b;
    kvf__prf r;
    int failures = 0;

    for (int64_t n = 0, more = 1; more; n++) {
        more = 0;
        for (int what = 0; what < 4; what++) {
            kvf__ctx_fail_allocation(ctx, n);
            kvf_status st = what == 0   ? entities(TAGS, TAGS, KVF__TAGS_MIXED, &e)
                            : what == 1 ? kvf__squad(ctx, &rows, false, &q)
                            : what == 2 ? kvf__bleu(ctx, &rows, &b)
                                        : kvf__rouge_l(ctx, &rows, &r);
            if (st) ck_assert_int_eq(st, KVF_ENOMEM);
            if (!st && what == 0) kvf__entity_scores_done(&e);
            failures += st != KVF_OK;
            more |= st != KVF_OK;
        }
    }
    kvf__ctx_fail_allocation(ctx, -1);
    ck_assert_int_gt(failures, 20);
}
END_TEST

/* ---- the table ------------------------------------------------------------------------------- */

START_TEST(table)
{
    static const struct {
        kvf__task task;
        bool regression;
        const char *first;
        bool larger;
    } FIRST[] = {
        {KVF__TASK_LM, false, "loss", false},       {KVF__TASK_SEQ_CLS, false, "accuracy", true},
        {KVF__TASK_SEQ_CLS, true, "pearson", true}, {KVF__TASK_TOKEN_CLS, false, "f1", true},
        {KVF__TASK_QA, false, "f1", true},          {KVF__TASK_CHOICE, false, "accuracy", true}};
    kvf__metric_input in = {.loss = 2};
    double v;

    for (size_t i = 0; i < sizeof FIRST / sizeof *FIRST; i++) {
        const kvf__metric *row = kvf__metric_find(FIRST[i].task, FIRST[i].regression, NULL);
        ck_assert_str_eq(row->name, FIRST[i].first);
        ck_assert_int_eq(row->larger, FIRST[i].larger);
        ck_assert_ptr_nonnull(kvf__metric_find(FIRST[i].task, FIRST[i].regression, "loss"));
    }
    ck_assert_ptr_null(kvf__metric_find(KVF__TASK_QA, false, "bleu"));
    ck_assert_int_eq(
        kvf__metric_score(ctx, kvf__metric_find(KVF__TASK_LM, false, "perplexity"), &in, &v),
        KVF_OK);
    CLOSE(v, exp(2));
}
END_TEST

/* Every row gives a number within its range on all kinds of inputs. */
START_TEST(rows)
{
    static const int32_t CLASSES[] = {0, 1, 1}, SAID[] = {0, 1, 0};
    static const double GOLD[] = {1, 2, 4}, NUMBERS[] = {1, 3, 3};
    static const int64_t TEXTS[] = {0, 2, 3}, WORDS_OF[] = {0, 4, WORDS};
    static const char *const TAGS[] = {"B-X", "I-X", "O", "B-Y", "B-Z", "O"};
    kvf__metric_input in = {
        .loss = 0.5,
        .classes = {CLASSES, SAID, 3, 2},
        .numbers = {GOLD, NUMBERS, 3},
        .tags = {2, WORDS_OF, TAGS, TAGS},
        .texts = {.n = 2, .predicted = PAIR.said, .start = TEXTS, .references = PAIR.want}};
    size_t n;
    const kvf__metric *list = kvf__metric_table(&n);

    for (size_t i = 0; i < n; i++) {
        double v = -1;
        ck_assert_int_eq(kvf__metric_score(ctx, &list[i], &in, &v), KVF_OK);
        ck_assert_msg(v > 0 && v <= 100, "%s: %g", list[i].name, v);
        if (list[i].task == KVF__TASK_TOKEN_CLS && list[i].larger) CLOSE(v, 1);
    }
    /* tags of mixed schemes: no strict score, and no error */
    in.scheme = KVF__TAGS_IOE1;
    ck_assert_int_eq(kvf__metric_score(ctx,
                                       kvf__metric_find(KVF__TASK_TOKEN_CLS, false, "f1_strict"),
                                       &in, &in.loss),
                     KVF_OK);
    ck_assert(isnan(in.loss));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("metric");
    TCase *core = tcase_create("core"), *limits = tcase_create("limits");
    TCase *errors = tcase_create("errors");

    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_test(core, classes);
    tcase_add_test(core, matthews);
    tcase_add_test(core, correlations);
    tcase_add_test(core, spans);
    tcase_add_test(core, spans_of_a_sentence);
    tcase_add_loop_test(core, schemes, 0, (int)(sizeof SPELT / sizeof *SPELT));
    tcase_add_test(core, answers);
    tcase_add_test(core, texts);
    tcase_add_test(core, table);
    tcase_add_test(core, rows);
    tcase_add_checked_fixture(limits, setup, teardown);
    tcase_add_test(limits, no_entities);
    tcase_add_test(limits, smoothing);
    tcase_add_checked_fixture(errors, setup, teardown);
    tcase_add_test(errors, refused);
    tcase_add_test(errors, out_of_memory);
    suite_add_tcase(s, core);
    suite_add_tcase(s, limits);
    suite_add_tcase(s, errors);
    return ck_main(s);
}
