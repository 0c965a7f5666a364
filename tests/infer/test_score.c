/* Scores equal the log-softmax of the logits and do not depend on other rows, with prefixes before
 * and inside rows and with a trained head. Their sums equal the losses of eval. Also tests
 * refusals. */
#include "score.h"
#include "toy_base.h"

#include <math.h>

enum { P = 3, MOST = 297, V = 61 };

static kvf_ctx *ctx;
static const char *dir;
static kvf_base *base;
static kvf_prefix prefix;
static kvf__scorer *scorer;

static void setup(void)
{
    const kvf_ctx_options options = {.threads = 2};
    const kvf_base_options exact = {.precision = KVF_PRECISION_F32};
    const kvf__scorer_limits limits = {.tokens = MOST, .P = P, .infix = true};
    kvf__rng rng = kvf__rng_make(3, 7);
    dir = ck_tmpdir();
    toy_folder(dir, 5, 0);
    ck_assert_int_eq(kvf_ctx_create(&options, &ctx), KVF_OK);
    ck_assert_msg(!kvf_base_open(ctx, dir, &exact, &base), "%s", kvf_ctx_error(ctx));
    const kvf__desc *d = kvf__model_desc(base->model);
    ck_assert_int_eq(kvf__prefix_init(ctx, &prefix.file.prefix, d->L, d->G, P, d->D), KVF_OK);
    for (size_t i = 0; i < kvf__prefix_count(&prefix.file.prefix); i++)
        prefix.file.prefix.kv[i] = (float)kvf__rng_normal(&rng);
    prefix.file.id.P = P;
    prefix.file.id.position_start = P;
    prefix.task = KVF__TASK_LM;
    ck_assert_msg(!kvf__scorer_create(ctx, base, &limits, &scorer), "%s", kvf_ctx_error(ctx));
}

static void teardown(void)
{
    kvf__scorer_free(scorer);
    kvf__prefix_done(&prefix.file.prefix);
    kvf_base_free(base);
    kvf_ctx_free(ctx);
}

/* Ids of letters, with labels from `first` on. */
static int64_t fill_row(int32_t *ids, int32_t *labels, int64_t n, int64_t first)
{
    for (int64_t i = 0; i < n; i++) {
        ids[i] = (int32_t)((i * i * 7 + i) % 57);
        labels[i] = i < first ? KVF__NO_LABEL : ids[i];
    }
    return n - (first ? first : 1);
}

static void run_row(const kvf__score_row *row, kvf_token_score *scores, kvf__candidate *top)
{
    ck_assert_msg(!kvf__score_row_run(ctx, scorer, row, scores, top), "%s", kvf_ctx_error(ctx));
}

/* ---- core ------------------------------------------------------------------------------------ */

/* Logits of token `at` from a session, which computes them in another way. */
static const float *session_logits(const int32_t *ids, int64_t at, const kvf_prefix *before,
                                   kvf__session **session)
{
    const kvf__session_limits limits = {.rows = 1, .capacity = MOST, .prompt_tokens = MOST};
    int32_t slot = 0, copy[MOST];
    int64_t start[2] = {0, at};
    const float *logits = NULL;
    memcpy(copy, ids, (size_t)at * sizeof *ids);
    const kvf__tokens tokens = {&slot, start, copy, 1};
    ck_assert_int_eq(kvf__session_create(ctx, base, before, &limits, session), KVF_OK);
    ck_assert_int_eq(kvf__session_feed(ctx, *session, &tokens, &logits), KVF_OK);
    return logits;
}

static double log_sum(const float *logits)
{
    double sum = 0;
    for (int v = 0; v < V; v++)
        sum += exp((double)logits[v]);
    return log(sum);
}

/* Loop rows: bare, prefix, prefix inside the row. */
START_TEST(scores_are_log_probabilities)
{
    int32_t ids[24], labels[24];
    kvf_token_score scores[24];
    kvf__candidate top[24 * 4];
    const kvf_prefix *before = _i ? &prefix : NULL;
    prefix.file.id.infix = prefix.file.id.pre_rope = _i == 2;
    if (_i == 2) prefix.file.id.position_start = 0;
    const int64_t n = fill_row(ids, labels, 24, 9);
    run_row(&(kvf__score_row){before, NULL, ids, labels, 24, 4}, scores, top);
    for (int64_t j = 0; j < n; j++) {
        kvf__session *session = NULL;
        const float *logits = session_logits(ids, 9 + j, before, &session);
        const double all = log_sum(logits);
        int best = 0;
        for (int v = 1; v < V; v++)
            if (logits[v] > logits[best]) best = v;
        if (_i < 2 || !j) { /* an infix precedes the last token fed */
            ck_assert_double_eq_tol((double)scores[j].logprob, (double)logits[ids[9 + j]] - all,
                                    2e-5);
            ck_assert_int_eq(top[4 * j].id, best);
            ck_assert_int_eq(scores[j].greedy, best == ids[9 + j]);
        }
        ck_assert_int_eq(scores[j].id, ids[9 + j]);
        for (int i = 1; i < 4; i++)
            ck_assert(top[4 * j + i].logit <= top[4 * j + i - 1].logit);
        for (int i = 0; i < 4; i++)
            if (top[4 * j + i].id == ids[9 + j])
                ck_assert(top[4 * j + i].logit == scores[j].logprob);
        kvf__session_free(session);
    }
}
END_TEST

/* More labels than one block, twice: no values of another row remain. */
START_TEST(long_rows_and_repeated_ones)
{
    static int32_t ids[MOST], labels[MOST];
    static kvf_token_score first[MOST], again[MOST], tail[MOST];
    const int64_t n = fill_row(ids, labels, MOST, 0);
    const kvf__score_row row = {&prefix, NULL, ids, labels, MOST, 0};
    ck_assert_int_gt(n, KVF__OUTPUT_LABELS);
    run_row(&row, first, NULL);
    run_row(&(kvf__score_row){NULL, NULL, ids, labels, 40, 0}, again, NULL);
    run_row(&row, again, NULL);
    ck_assert(!memcmp(first, again, (size_t)n * sizeof *first));
    for (int i = 0; i < 200; i++)
        labels[i] = KVF__NO_LABEL;
    run_row(&row, tail, NULL);
    for (int i = 0; i < MOST - 200; i++)
        ck_assert_double_eq_tol((double)tail[i].logprob, (double)first[199 + i].logprob, 2e-5);
}
END_TEST

START_TEST(top_of_equal_logits_is_in_the_order_of_ids)
{
    const float logits[6] = {1, 3, 3, -2, 3, 0};
    kvf_token_score score;
    kvf__candidate top[6];
    ck_assert(kvf__score_logits(logits, 6, 2, &score, top, 6));
    static const int32_t order[] = {1, 2, 4, 0, 5, 3};
    for (int i = 0; i < 6; i++)
        ck_assert_int_eq(top[i].id, order[i]);
    ck_assert(!score.greedy);
    ck_assert(top[1].logit == score.logprob);
    ck_assert(kvf__score_logits(logits, 6, 1, &score, top, 1));
    ck_assert(score.greedy);
}
END_TEST

/* ---- kvf_score ------------------------------------------------------------------------------- */

static kvf_score_result score_file(const char *text, const kvf_prefix *before,
                                   const kvf_eval_options *eval)
{
    char path[512];
    kvf_score_options options = {.eval = *eval};
    kvf_score_result result;
    toy_write(dir, "rows.jsonl", text);
    toy_path(path, dir, "rows.jsonl");
    options.eval.data = path;
    ck_assert_msg(!kvf_score(ctx, base, before, &options, &result), "%s", kvf_ctx_error(ctx));
    return result;
}

#define ROW_A "{\"prompt\": \"one two\", \"completion\": \" three\"}\n"
#define ROW_B "{\"text\": \"a text of letters\"}\n"
#define ROW_C "{\"input_ids\": [4, 5, 6, 7], \"labels\": [-100, -100, 6, 8]}\n"

START_TEST(a_row_is_scored_as_if_it_were_alone)
{
    static const char *const ROWS[] = {ROW_A, ROW_B, ROW_C};
    static const size_t TOKENS[] = {6, 16, 2};
    const kvf_eval_options eval = {0};
    const kvf_prefix *before = _i ? &prefix : NULL;
    kvf_score_result all = score_file(ROW_A ROW_B ROW_C, before, &eval);
    ck_assert_uint_eq(all.n, 3);
    for (size_t i = 0; i < 3; i++) {
        double sum = 0;
        kvf_score_result one = score_file(ROWS[i], before, &eval);
        ck_assert_uint_eq(one.n, 1);
        ck_assert_uint_eq(all.rows[i].n, TOKENS[i]);
        ck_assert_uint_eq(one.rows[0].n, TOKENS[i]);
        ck_assert(
            !memcmp(one.rows[0].tokens, all.rows[i].tokens, TOKENS[i] * sizeof(kvf_token_score)));
        for (size_t t = 0; t < TOKENS[i]; t++)
            sum += (double)all.rows[i].tokens[t].logprob;
        ck_assert(sum == all.rows[i].loglikelihood);
        kvf_score_result_done(&one);
    }
    ck_assert_int_eq(all.rows[2].tokens[1].id, 8); /* the label, not the id */
    kvf_score_result_done(&all);
}
END_TEST

/* Rows of ids get no end token, so eval measures the same labels. */
START_TEST(the_sum_is_what_eval_measures)
{
    char path[512];
    kvf_prefix *list[] = {&prefix};
    kvf_eval_options eval = {0};
    kvf_eval_result measured;
    kvf_score_result scored = score_file(ROW_C ROW_C, &prefix, &eval);
    toy_path(path, dir, "rows.jsonl");
    eval.data = path;
    ck_assert_int_eq(kvf_eval(ctx, base, list, 1, &eval, &measured), KVF_OK);
    ck_assert_int_eq(measured.label_tokens, scored.tokens);
    ck_assert_double_eq_tol(measured.loss * 4,
                            -scored.rows[0].loglikelihood - scored.rows[1].loglikelihood, 2e-5);
    kvf_score_result_done(&scored);
}
END_TEST

START_TEST(rows_that_are_left_out_keep_their_place)
{
    const kvf_eval_options eval = {.max_length = 15, .overlong = KVF_OVERLONG_SKIP};
    kvf_score_result all = score_file(ROW_A ROW_B ROW_C, NULL, &eval);
    ck_assert_uint_eq(all.n, 3);
    ck_assert(!all.rows[0].skipped && all.rows[1].skipped && !all.rows[2].skipped);
    ck_assert_uint_eq(all.rows[1].n, 0);
    ck_assert_int_eq(all.skipped, 1);
    kvf_score_result_done(&all);
}
END_TEST

/* ---- errors ---------------------------------------------------------------------------------- */

START_TEST(what_cannot_be_scored_is_refused)
{
    int32_t ids[MOST + 1] = {0}, labels[MOST + 1] = {0};
    kvf_token_score scores[4];
    const kvf__score_row longer = {NULL, NULL, ids, labels, MOST + 1, 0};
    ck_assert_int_eq(kvf__score_row_run(ctx, scorer, &longer, scores, NULL), KVF_ESHAPE);
    labels[1] = V;
    const kvf__score_row outside = {NULL, NULL, ids, labels, 2, 0};
    ck_assert_int_eq(kvf__score_row_run(ctx, scorer, &outside, scores, NULL), KVF_ESHAPE);
    const float nan_logits[2] = {0, NAN}, huge[2] = {INFINITY, 0};
    ck_assert(!kvf__score_logits(nan_logits, 2, 0, scores, NULL, 0));
    ck_assert(!kvf__score_logits(huge, 2, 1, scores, NULL, 0));

    kvf_score_options options = {.eval = {.data = "none", .n_best = 3}};
    ck_assert_int_eq(kvf_score(ctx, base, NULL, &options, NULL), KVF_EUSAGE);
    options.eval.n_best = 0;
    ck_assert_int_eq(kvf_score(ctx, base, NULL, &options, NULL), KVF_EIO);
    prefix.task = KVF__TASK_QA;
    ck_assert_int_eq(kvf_score(ctx, base, &prefix, &options, NULL), KVF_EUSAGE);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("score");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 60);
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_loop_test(core, scores_are_log_probabilities, 0, 3);
    tcase_add_test(core, long_rows_and_repeated_ones);
    tcase_add_test(core, top_of_equal_logits_is_in_the_order_of_ids);
    tcase_add_loop_test(core, a_row_is_scored_as_if_it_were_alone, 0, 2);
    tcase_add_test(core, the_sum_is_what_eval_measures);
    tcase_add_test(core, rows_that_are_left_out_keep_their_place);
    tcase_add_test(core, what_cannot_be_scored_is_refused);
    suite_add_tcase(suite, core);
    return ck_main(suite);
}
