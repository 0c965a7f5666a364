/* Opening a base with any kind of prefix file as a session, and its API results: keys and values,
 * ids and texts, logits. */
#include "toy_run.h"

#include <math.h>

enum { V = 61 };

static kvf_session *open_as(const char *prefix, kvf_status want)
{
    const kvf_session_options options = {.base.precision = KVF_PRECISION_F32, .own_head = true};
    kvf_session *session = NULL;
    ck_assert_msg(kvf_session_open(ctx, base, prefix, &options, &session) == want, "%s",
                  kvf_ctx_error(ctx));
    return session;
}

static double loss_of(const kvf_session *session)
{
    const kvf_eval_options eval = {.data = valid};
    kvf_eval_result result;
    size_t n;
    kvf_prefix *const *prefixes = kvf_session_prefixes(session, &n);
    ck_assert_msg(!kvf_eval(ctx, kvf_session_base(session), prefixes, n, &eval, &result), "%s",
                  kvf_ctx_error(ctx));
    return result.loss;
}

/* ---- core ------------------------------------------------------------------------------------ */

/* Runs of an encoder, of virtual tokens at the input, of a method that reads its base, and of
 * adapters, which change it. All give the last validation result of training. */
static const char *const METHODS[] = {"direct", "prompt", "projected", "adapter"};

START_TEST(every_kind_of_run_opens_on_its_base)
{
    kvf_train_options o = toy_run_options(out);
    o.method = METHODS[_i];
    const kvf_train_result result = train(&o);
    kvf_session *session = open_as(out, KVF_OK), *bare = open_as(NULL, KVF_OK);
    ck_assert_ptr_nonnull(kvf_session_prefix(session));
    ck_assert_double_eq_tol(loss_of(session), result.best_valid_loss, 1e-6);
    ck_assert_ptr_null(kvf_session_prefix(bare));
    ck_assert(loss_of(bare) != loss_of(session));
    kvf_session_close(session);
    kvf_session_close(bare);
    kvf_session_close(NULL);
}
END_TEST

START_TEST(a_wrong_prefix_is_found)
{
    kvf_session *session = NULL;
    const char *const more[] = {"b"};
    const kvf_session_options two = {.more = more, .n_more = 1};
    open_as("nothing.h5", KVF_EIO);
    open_as(base, KVF_EFORMAT);
    ck_assert_int_eq(kvf_session_open(ctx, base, NULL, &two, &session), KVF_EUSAGE);
    ck_assert_int_eq(kvf_session_open(ctx, "nothing", NULL, NULL, &session), KVF_EIO);
    ck_assert_ptr_null(session);
}
END_TEST

/* Keys and values from a run into a prefix, to a file and back. */
START_TEST(keys_and_values_go_out_and_in)
{
    kvf_train_options o = toy_run_options(out);
    int64_t shape[6], again[6];
    kvf_prefix *copy = NULL;
    train(&o);
    kvf_session *session = open_as(out, KVF_OK);
    const kvf_base *b = kvf_session_base(session);
    const float *kv = kvf_prefix_kv(kvf_session_prefix(session), shape);
    const kvf_shape s = kvf_base_shape(b);
    const int64_t want[6] = {s.L, 2, 1, s.G, kvf_prefix_length(kvf_session_prefix(session)), s.D};
    ck_assert(!memcmp(shape, want, sizeof want));
    ck_assert_int_eq(kvf_prefix_from_array(ctx, b, kv, shape, -1, &copy), KVF_OK);
    ck_assert_int_eq(kvf_prefix_position_start(copy), shape[4]);
    ck_assert_str_eq(kvf_prefix_base_hash(copy), kvf_base_hash(b));
    ck_assert_int_eq(kvf_prefix_save(ctx, copy, other, KVF_DTYPE_F32, false), KVF_OK);
    ck_assert_int_eq(kvf_prefix_save(ctx, copy, other, KVF_DTYPE_F32, false), KVF_EEXIST);
    kvf_session *saved = open_as(other, KVF_OK);
    const float *read = kvf_prefix_kv(kvf_session_prefix(saved), again);
    ck_assert(!memcmp(shape, again, sizeof shape));
    ck_assert(!memcmp(kv, read, (size_t)(s.L * 2 * s.G * shape[4] * s.D) * sizeof *kv));
    ck_assert(loss_of(saved) == loss_of(session));
    kvf_prefix_free(copy);
    kvf_session_close(saved);
    kvf_session_close(session);
}
END_TEST

START_TEST(arrays_that_do_not_fit_are_refused)
{
    kvf_session *session = open_as(NULL, KVF_OK);
    const kvf_base *b = kvf_session_base(session);
    const kvf_shape s = kvf_base_shape(b);
    const size_t n = (size_t)(s.L * 2 * s.G * 3 * s.D);
    int64_t shape[6] = {s.L, 2, 1, s.G, 3, s.D + 1};
    float *kv = calloc(n, sizeof *kv);
    kvf_prefix *prefix = NULL;
    ck_assert_int_eq(kvf_prefix_from_array(ctx, b, kv, shape, -1, &prefix), KVF_ESHAPE);
    shape[5] = s.D;
    shape[4] = 0;
    ck_assert_int_eq(kvf_prefix_from_array(ctx, b, kv, shape, -1, &prefix), KVF_ESHAPE);
    shape[4] = 3;
    ck_assert_int_eq(kvf_prefix_from_array(ctx, b, kv, shape, 1 << 20, &prefix), KVF_ESHAPE);
    kv[n - 1] = NAN;
    ck_assert_int_eq(kvf_prefix_from_array(ctx, b, kv, shape, -1, &prefix), KVF_ENUMERIC);
    ck_assert_ptr_null(prefix);
    free(kv);
    kvf_session_close(session);
}
END_TEST

/* The losses in events equal the column. */
static void keep_loss(void *user, const kvf_event *event)
{
    double *losses = user;
    if (event->kind == KVF_EVENT_STEP) losses[event->step - 1] = event->train_loss;
}

START_TEST(a_history_is_what_the_run_told)
{
    double told[6] = {0};
    const double *values = NULL;
    const char *name;
    kvf_history *history = NULL;
    bool found = false, validated = false;
    kvf_train_options o = toy_run_options(out);
    o.event = keep_loss;
    o.event_user = told;
    const kvf_train_result result = train(&o);
    ck_assert_int_eq(kvf_history_open(ctx, out, &history), KVF_OK);
    ck_assert_int_eq(kvf_history_steps(history), 6);
    for (size_t i = 0; (name = kvf_history_column(history, i, &values)) != NULL; i++) {
        if (!strcmp(name, "train_loss")) {
            found = true;
            ck_assert(!memcmp(values, told, sizeof told));
        }
        if (!strcmp(name, "valid_loss")) {
            validated = true;
            ck_assert(isnan(values[1]) && values[5] == result.valid_loss);
        }
        if (!strcmp(name, "step")) ck_assert(values[0] == 1 && values[5] == 6);
    }
    ck_assert(found && validated);
    kvf_history_free(history);
    kvf_history_free(NULL);
    ck_assert_int_eq(kvf_history_open(ctx, data, &history), KVF_EFORMAT);
}
END_TEST

START_TEST(texts_become_ids_and_back)
{
    kvf_session *session = open_as(NULL, KVF_OK);
    const kvf_base *b = kvf_session_base(session);
    static const char text[] = "one two<s>";
    int32_t *ids = NULL;
    char *back = NULL;
    size_t n = 0, bytes = 0;
    ck_assert_int_eq(kvf_tokenize(ctx, b, text, sizeof text - 1, false, &ids, &n), KVF_OK);
    ck_assert_uint_eq(n, 8);
    ck_assert_int_eq(ids[7], 59);
    ck_assert_int_eq(kvf_detokenize(ctx, b, ids, n, true, &back, &bytes), KVF_OK);
    ck_assert_str_eq(back, text);
    kvf_string_free(back);
    ck_assert_int_eq(kvf_detokenize(ctx, b, ids, n, false, &back, NULL), KVF_OK);
    ck_assert_str_eq(back, "one two");
    kvf_string_free(back);
    ck_assert_int_eq(kvf_detokenize(ctx, b, ids, 0, false, &back, &bytes), KVF_OK);
    ck_assert_str_eq(back, "");
    kvf_string_free(back);
    kvf_ids_free(ids);
    ck_assert_int_eq(kvf_tokenize(ctx, b, "a\xE9", 2, false, &ids, &n), KVF_EDATA);
    ck_assert_int_eq(kvf_detokenize(ctx, b, (const int32_t[]){V}, 1, false, &back, NULL),
                     KVF_EUSAGE);
    kvf_session_close(session);
}
END_TEST

/* A run of every kind that a session accepts, by an option of train. */
static const struct {
    const char *option, *value;
} KINDS[] = {
    {"method", "direct"},        {"method", "prompt"}, {"method", "projected"},
    {"method", "adapter"},       {"method", "full"},   {"method", "p-tuning"},
    {"infix", "true"},           {"train-head", NULL}, {"task-prefix", "shared"},
    {"task-prefix", "low-rank"},
};
enum { N_KINDS = sizeof KINDS / sizeof KINDS[0], P = 3, N = 6 };

static void set(kvf_train_options *o, const char *name, const char *value)
{
    ck_assert_msg(!kvf_train_set(ctx, o, name, value), "%s", kvf_ctx_error(ctx));
}

/* Two tasks with a prefix each; the first prefix is opened. */
static void divide_tasks(kvf_train_options *o)
{
    static char texts[4][600];
    const char *const files[] = {data, data, valid, valid};
    o->data = o->valid = NULL;
    for (int i = 0; i < 4; i++) {
        snprintf(texts[i], sizeof texts[i], "%s=%s", i % 2 ? "second" : "first", files[i]);
        set(o, i < 2 ? "data" : "valid", texts[i]);
    }
}

static kvf_session *open_kind(int kind)
{
    const bool tasks = !strcmp(KINDS[kind].option, "task-prefix");
    kvf_session_options how = {.base.precision = KVF_PRECISION_F32};
    kvf_train_options o = toy_run_options(out);
    kvf_session *session = NULL;
    o.prefix_length = P;
    set(&o, KINDS[kind].option, KINDS[kind].value);
    if (tasks) divide_tasks(&o);
    if (tasks) how.head = "first";
    train(&o);
    ck_assert_msg(!kvf_session_open(ctx, base, out, &how, &session), "%s", kvf_ctx_error(ctx));
    return session;
}

/* The row in the layout of kvf_logits: virtual tokens in front, or the place of an infix. */
static size_t row_for(int kind, const int32_t *ids, int32_t *out_ids)
{
    const char *value = KINDS[kind].value;
    size_t n = 0;
    const bool input = value && (!strcmp(value, "prompt") || !strcmp(value, "p-tuning"));
    for (int32_t p = 0; input && p < P; p++)
        out_ids[n++] = -1 - p;
    for (int i = 0; i < N; i++) {
        if (!strcmp(KINDS[kind].option, "infix") && i == 2) out_ids[n++] = -1;
        out_ids[n++] = ids[i];
    }
    return n;
}

static double logprob(const float *logits, int32_t id)
{
    double sum = 0;
    for (int v = 0; v < V; v++)
        sum += exp((double)logits[v]);
    return (double)logits[id] - log(sum);
}

/* Log-softmax of the logits equals the scores, for every kind of file. Labels start at token 3, so
 * that an infix precedes token 2. */
START_TEST(logits_are_what_scores_are_made_of)
{
    static float logits[(N + P) * V];
    const int32_t ids[N] = {4, 9, 16, 25, 36, 49};
    const int32_t labels[N] = {-100, -100, -100, 25, 36, 49};
    int32_t row[N + P];
    kvf_rows *rows = NULL;
    kvf_score_result scores;
    kvf_session *session = open_kind(_i);
    kvf_base *b = kvf_session_base(session);
    kvf_prefix *prefix = kvf_session_prefix(session);
    const size_t n = row_for(_i, ids, row);
    ck_assert_int_eq(kvf_rows_create(ctx, &rows), KVF_OK);
    ck_assert_int_eq(kvf_rows_add_ids(ctx, rows, ids, labels, N), KVF_OK);
    const kvf_score_options how = {.eval.data = kvf_rows_path(rows)};
    ck_assert_msg(!kvf_score(ctx, b, prefix, &how, &scores), "%s", kvf_ctx_error(ctx));
    ck_assert_msg(!kvf_logits(ctx, b, prefix, row, n, logits), "%s", kvf_ctx_error(ctx));
    ck_assert_uint_eq(scores.rows[0].n, 3);
    for (size_t i = 0; i < 3; i++) {
        const kvf_token_score *token = &scores.rows[0].tokens[i];
        ck_assert_double_eq_tol((double)token->logprob,
                                logprob(logits + (n - 4 + i) * V, token->id), 1e-5);
    }
    kvf_score_result_done(&scores);
    kvf_rows_free(rows);
    kvf_session_close(session);
}
END_TEST

/* Logits before an infix are those of the bare base, at the infix there are none, and after it
 * those of generation. */
START_TEST(logits_around_an_infix)
{
    static float logits[(N + 1) * V], bare[N * V];
    const int32_t ids[N] = {4, 9, 16, 25, 36, 49}, row[N + 1] = {4, 9, -1, 16, 25, 36, 49};
    const int32_t BAD[][3] = {{4, 9, 16}, {-1, 4, 9}, {4, 9, -1}, {4, -1, -2}};
    kvf_session *session = open_kind(6);
    kvf_base *b = kvf_session_base(session);
    kvf_prefix *prefix = kvf_session_prefix(session);
    ck_assert_msg(!kvf_logits(ctx, b, prefix, row, N + 1, logits), "%s", kvf_ctx_error(ctx));
    ck_assert_int_eq(kvf_logits(ctx, b, NULL, ids, N, bare), KVF_OK);
    ck_close(logits, bare, 2 * V, /* rtol */ 0, /* atol: other shapes of products */ 1e-5);
    for (int v = 0; v < V; v++)
        ck_assert(isnan(logits[2 * V + v]) && isfinite(logits[3 * V + v]));
    float most = 0;
    for (int v = 0; v < V; v++)
        most = fmaxf(most, fabsf(logits[6 * V + v] - bare[5 * V + v]));
    ck_assert_msg(most > 1e-3F, "the infix changes nothing");
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        ck_assert_int_eq(kvf_logits(ctx, b, prefix, BAD[i], 3, logits), KVF_EUSAGE);
        ck_assert_ptr_nonnull(strstr(kvf_ctx_error(ctx), "one id below 0"));
    }
    kvf_session_close(session);
}
END_TEST

START_TEST(logits_of_a_beginning)
{
    static float logits[N * V], first[2 * V];
    const int32_t ids[N] = {4, 9, 16, 25, 36, 49};
    kvf_session *session = open_kind(0);
    kvf_base *b = kvf_session_base(session);
    kvf_prefix *prefix = kvf_session_prefix(session);
    ck_assert_int_eq(kvf_logits(ctx, b, prefix, ids, N, logits), KVF_OK);
    ck_assert_int_eq(kvf_logits(ctx, b, prefix, ids, 2, first), KVF_OK);
    ck_close(first, logits, 2 * V, /* rtol */ 0, /* atol: other shapes of products */ 1e-5);
    ck_assert_int_eq(kvf_logits(ctx, b, prefix, ids, 0, logits), KVF_ESHAPE);
    ck_assert_int_eq(kvf_logits(ctx, b, prefix, (const int32_t[]){V}, 1, logits), KVF_ESHAPE);
    ck_assert_int_eq(kvf_logits(ctx, b, prefix, (const int32_t[]){-1}, 1, logits), KVF_ESHAPE);
    kvf_session_close(session);
}
END_TEST

/* ---- memory runs out ------------------------------------------------------------------------- */

static kvf_status make_prefix(kvf_session *session)
{
    int64_t shape[6];
    kvf_prefix *copy = NULL;
    const float *kv = kvf_prefix_kv(kvf_session_prefix(session), shape);
    kvf_status st = kvf_prefix_from_array(ctx, kvf_session_base(session), kv, shape, -1, &copy);
    kvf_prefix_free(copy);
    return st;
}

static kvf_status make_history(kvf_session *session)
{
    kvf_history *history = NULL;
    (void)session;
    kvf_status st = kvf_history_open(ctx, out, &history);
    kvf_history_free(history);
    return st;
}

static kvf_status make_options(kvf_session *session)
{
    kvf_train_options *options = NULL;
    (void)session;
    kvf_status st = kvf_train_options_create(ctx, &options);
    if (!st) st = kvf_train_set(ctx, options, "method", "direct");
    kvf_train_options_free(options);
    return st;
}

static kvf_status make_logits(kvf_session *session)
{
    static float logits[2 * V];
    return kvf_logits(ctx, kvf_session_base(session), kvf_session_prefix(session),
                      (const int32_t[]){1, 2}, 2, logits);
}

static kvf_status make_scores(kvf_session *session)
{
    const kvf_score_options how = {.eval.data = valid};
    kvf_score_result scores = {0};
    kvf_status st = kvf_score(ctx, kvf_session_base(session), kvf_session_prefix(session), &how,
                              &scores);
    kvf_score_result_done(&scores);
    return st;
}

static kvf_status (*const MAKERS[])(kvf_session *) = {make_prefix, make_history, make_options,
                                                      make_logits, make_scores};
enum { N_MAKERS = sizeof MAKERS / sizeof MAKERS[0] };

START_TEST(every_allocation_may_fail)
{
    kvf_train_options o = toy_run_options(out);
    kvf_status st = KVF_ENOMEM;
    o.method = "direct";
    train(&o);
    kvf_session *session = open_as(out, KVF_OK);
    for (int64_t n = 0; st && n < 10000; n++) {
        kvf__ctx_fail_allocation(ctx, n);
        st = MAKERS[_i](session);
        kvf__ctx_fail_allocation(ctx, -1);
        ck_assert_msg(!st || st == KVF_ENOMEM, "allocation %d: %s", (int)n, kvf_ctx_error(ctx));
    }
    ck_assert_int_eq(st, KVF_OK);
    kvf_session_close(session);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("open_session");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 60);
    tcase_add_checked_fixture(core, toy_run_setup, toy_run_teardown);
    tcase_add_loop_test(core, every_kind_of_run_opens_on_its_base, 0, 4);
    tcase_add_test(core, a_wrong_prefix_is_found);
    tcase_add_test(core, keys_and_values_go_out_and_in);
    tcase_add_test(core, arrays_that_do_not_fit_are_refused);
    tcase_add_test(core, a_history_is_what_the_run_told);
    tcase_add_test(core, texts_become_ids_and_back);
    tcase_add_loop_test(core, logits_are_what_scores_are_made_of, 0, N_KINDS);
    tcase_add_test(core, logits_around_an_infix);
    tcase_add_test(core, logits_of_a_beginning);
    tcase_add_loop_test(core, every_allocation_may_fail, 0, N_MAKERS);
    suite_add_tcase(suite, core);
    return ck_main(suite);
}
