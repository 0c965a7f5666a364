/* Classifiers on the server: their answers equal those of kvf_predict for a file of the same rows,
 * bit for bit, while texts are generated. Files without a classifier are refused. All tasks, and
 * every kind of file: tests/cli/classify.sh. */
#include "serve_fx.h"

#include <math.h>

static kvf_json *answer, *predicted;
static char head_run[600], adapter_run[600];

static int post(const char *body)
{
    const int status = fetch(&s, "POST", "/v1/classify", NULL, body, text, ROOM);
    const char *json = strstr(text, "\r\n\r\n");
    ck_assert_ptr_nonnull(json);
    kvf_json_free(answer);
    answer = NULL;
    ck_assert_int_eq(kvf_json_parse(s.ctx, "answer", json + 4, strlen(json + 4), &answer), KVF_OK);
    return status;
}

static void keep(void *user, const char *lines, size_t n)
{
    (void)user;
    for (const char *end; n; n -= (size_t)(end + 1 - lines), lines = end + 1) {
        kvf_json *row = NULL;
        end = memchr(lines, '\n', n);
        ck_assert_int_eq(kvf_json_parse(s.ctx, "row", lines, (size_t)(end - lines), &row), KVF_OK);
        kvf_json_add(predicted, row);
    }
}

/* Output of kvf_predict for the rows of a file. */
static void predict(const char *file, const char *rows)
{
    static char data[600];
    const kvf_base_options how = {.precision = KVF_PRECISION_F32};
    const kvf_session_options options = {.base = how};
    kvf_session *session = NULL;
    size_t n = 0;
    toy_write(s.dir, "asked.jsonl", rows);
    snprintf(data, sizeof data, "%s/asked.jsonl", s.dir);
    const kvf_predict_options o = {.eval.data = data, .out = "kept", .write = keep};
    ck_assert_msg(!kvf_session_open(s.ctx, s.dir, file, &options, &session), "%s",
                  kvf_ctx_error(s.ctx));
    kvf_prefix *const *prefixes = kvf_session_prefixes(session, &n);
    kvf_json_free(predicted);
    predicted = kvf_json_array();
    ck_assert_msg(!kvf_predict(s.ctx, kvf_session_base(session), prefixes, n, &o, NULL), "%s",
                  kvf_ctx_error(s.ctx));
    kvf_session_close(session);
}

static void same_member(const kvf_json *got, const kvf_json *want, const char *key)
{
    char *a = kvf_json_text(kvf_json_get(got, key), KVF_JSON_COMPACT);
    char *b = kvf_json_text(kvf_json_get(want, key), KVF_JSON_COMPACT);
    ck_assert_ptr_nonnull(a);
    ck_assert_str_eq(a, b);
    kvf_json_text_free(a);
    kvf_json_text_free(b);
}

static void is_predicted(void)
{
    const kvf_json *data = kvf_json_get(answer, "data");
    ck_assert_uint_eq(kvf_json_size(data), kvf_json_size(predicted));
    for (size_t i = 0; i < kvf_json_size(data); i++) {
        ck_assert_uint_eq(kvf_json_size(kvf_json_at(data, i)), 2);
        same_member(kvf_json_at(data, i), kvf_json_at(predicted, i), "prediction");
        same_member(kvf_json_at(data, i), kvf_json_at(predicted, i), "probabilities");
    }
}

static void train_head(const char *task, const char *rows, const char *method, const char *path,
                       uint64_t seed)
{
    kvf_train_options o = short_run(method, path);
    static char data[600];
    toy_write(s.dir, "labels.jsonl", rows);
    snprintf(data, sizeof data, "%s/labels.jsonl", s.dir);
    o.data = data;
    o.task = task;
    o.chat_template = "auto";
    o.max_length = 200;
    o.lr = 0.01;
    o.seed = seed;
    train_run(&o);
}

static void train_classifier(const char *method, const char *path, uint64_t seed)
{
    train_head("seq-cls",
               "{\"text\":\"a good one\",\"label\":\"good\"}\n"
               "{\"text\":\"the bad\",\"text_pair\":\"is bad\",\"label\":\"bad\"}\n"
               "{\"text\":\"good\",\"label\":\"good\"}\n"
               "{\"text\":\"not so bad\",\"label\":\"bad\"}\n",
               method, path, seed);
}

static void setup_classifiers(void)
{
    setup();
    snprintf(head_run, sizeof head_run, "%s/head.h5", s.dir);
    snprintf(adapter_run, sizeof adapter_run, "%s/adapter.h5", s.dir);
    train_classifier("direct", head_run, 1);
    train_classifier("adapter", adapter_run, 2);
    s.prefixes[0].path = head_run;
    s.prefixes[2].path = adapter_run;
}

static void teardown_classifiers(void)
{
    kvf_json_free(answer);
    kvf_json_free(predicted);
    answer = predicted = NULL;
    teardown();
}

START_TEST(answers_are_those_of_predict)
{
    static const char rows[] = "{\"text\":\"one\"}\n{\"text\":\"a b\",\"text_pair\":\"c d e\"}\n"
                               "{\"text\":\"good\"}\n";
    static const char input[] = "[\"one\",[\"a b\",\"c d e\"],{\"text\":\"good\"}]";
    /* given by --prefix, or from the folder of the files */
    const char *const models[2][2] = {{"one", "three"}, {"head", "adapter"}};
    const char *const files[] = {head_run, adapter_run}, *const folder = s.dir;
    char body[300];
    s.options.prefix_dirs = &folder;
    s.options.n_prefix_dirs = (size_t)_i;
    if (_i) s.options.n_prefixes = 0;
    serve_start(&s);
    for (int i = 0; i < 2; i++) {
        snprintf(body, sizeof body, "{\"model\":\"%s\",\"input\":%s}", models[_i][i], input);
        ck_assert_int_eq(post(body), 200);
        has("\"task\":\"seq-cls\"");
        predict(files[i], rows);
        is_predicted();
    }
    snprintf(body, sizeof body, "{\"model\":\"%s\",\"input\":\"good\"}", models[_i][0]);
    ck_assert_int_eq(post(body), 200);
    predict(head_run, "{\"text\":\"good\"}\n");
    is_predicted();
    is_served();
    serve_end(&s);
    ck_assert_int_eq(s.totals.requests, 4);
}
END_TEST

/* Rows of several batches, while a text is generated. */
START_TEST(many_rows_leave_room_for_others)
{
    enum { N = 60 };
    static char body[ROOM], rows[ROOM];
    size_t b = 0, r = 0;
    b += (size_t)snprintf(body, sizeof body, "{\"model\":\"one\",\"input\":[");
    for (int i = 0; i < N; i++) {
        b += (size_t)snprintf(body + b, sizeof body - b, "%s\"%0*d\"", i ? "," : "", 60 + i, i);
        r += (size_t)snprintf(rows + r, sizeof rows - r, "{\"text\":\"%0*d\"}\n", 60 + i, i);
    }
    snprintf(body + b, sizeof body - b, "]}");
    serve_start(&s);
    const int other = dial(&s);
    ask(other, "POST", "/v1/completions", NULL, body_of("two", "are you there", 3, false));
    ck_assert_int_eq(post(body), 200);
    predict(head_run, rows);
    is_predicted();
    ck_assert_int_eq(hear(other, text, ROOM), 200);
    serve_end(&s);
}
END_TEST

START_TEST(a_replaced_file_is_read_again)
{
    serve_start(&s);
    predict(head_run, "{\"text\":\"good\"}\n");
    ck_assert_int_eq(post("{\"model\":\"one\",\"input\":\"good\"}"), 200);
    is_predicted();
    train_classifier("direct", head_run, 9);
    ck_assert(becomes("prefix_reloads_total", 1, 20));
    predict(head_run, "{\"text\":\"good\"}\n");
    ck_assert_int_eq(post("{\"model\":\"one\",\"input\":\"good\"}"), 200);
    is_predicted();
    serve_end(&s);
}
END_TEST

static void is_refused(const char *body, const char *line)
{
    ck_assert_int_eq(post(body), 400);
    has(line);
}

START_TEST(what_does_not_fit_is_refused)
{
    static char long_row[800];
    snprintf(long_row, sizeof long_row, "{\"model\":\"one\",\"input\":\"%0400d\"}", 1);
    serve_start(&s);
    is_refused("{\"model\":\"two\",\"input\":\"a\"}", "the model has no classification head");
    is_refused("{\"model\":\"bare\",\"input\":\"a\"}", "the model has no classification head");
    is_refused("{\"input\":\"a\"}", "model is missing");
    is_refused("{\"model\":\"one\"}", "input is missing");
    is_refused("{\"model\":\"one\",\"input\":[]}", "input: want a row, or an array of 1 to 1024");
    is_refused("{\"model\":\"one\",\"input\":7}", "input: want a row, or an array of 1 to 1024");
    is_refused("{\"model\":\"one\",\"input\":[\"a\",7]}", "input, row 2: want a text, an array");
    is_refused("{\"model\":\"one\",\"input\":[[\"a\",7]]}", "input, row 1: want a text, an array");
    is_refused("{\"model\":\"one\",\"input\":{\"words\":\"a\"}}", "rows:1: the row needs text, or text and text_pair; the row has words");
    is_refused("{\"model\":\"one\",\"input\":\"a\",\"n\":1}", "unknown field \\\"n\\\"");
    is_refused(long_row, "rows:1: ");
    ck_assert_int_eq(fetch(&s, "POST", "/v1/completions", NULL,
                           "{\"model\":\"one\",\"prompt\":\"a\"}", text, ROOM),
                     400);
    has("the model is of task seq-cls and has no completions: use POST /v1/classify");
    is_served();
    serve_end(&s);
}
END_TEST

/* A row of n choices, cycling through three texts, after a text of 100 letters. */
static const char *choices(int n)
{
    static char body[ROOM];
    size_t at = (size_t)snprintf(body, sizeof body,
                                 "{\"model\":\"one\",\"input\":{\"text\":\"%0100d\","
                                 "\"choices\":[",
                                 1);
    for (int i = 0; i < n; i++)
        at += (size_t)snprintf(body + at, sizeof body - at, "%s\"%c\"", i ? "," : "", "abc"[i % 3]);
    snprintf(body + at, sizeof body - at, "]}}");
    return body;
}

/* The rows of one group take many batches, whose outputs keep their places. */
START_TEST(many_choices_are_bounded)
{
    enum { N = 1000 };
    train_head("multiple-choice",
               "{\"text\":\"is it\",\"choices\":[\"a\",\"b\"],\"label\":0}\n"
               "{\"text\":\"or\",\"choices\":[\"c\",\"a\"],\"label\":1}\n",
               "direct", head_run, 1);
    serve_start(&s);
    is_refused(choices(1025), "rows:1: 1025 choices, want at most 1024");
    ck_assert_int_eq(post(choices(N)), 200);
    const kvf_json *p = kvf_json_get(kvf_json_at(kvf_json_get(answer, "data"), 0), "probabilities");
    const double first = kvf_json_real(kvf_json_at(p, 0), -1);
    ck_assert_uint_eq(kvf_json_size(p), N);
    ck_assert_double_gt(fabs(kvf_json_real(kvf_json_at(p, 1), -1) / first - 1), 1e-4);
    for (size_t i = 3; i < N; i++) {
        const double want = kvf_json_real(kvf_json_at(p, i % 3), -1);
        ck_assert_double_eq_tol(kvf_json_real(kvf_json_at(p, i), -1) / want, 1, 1e-5);
    }
    serve_end(&s);
}
END_TEST

START_TEST(tokens_of_a_request_are_bounded)
{
    enum { MOST = 8192 };
    train_head("multiple-choice", "{\"text\":\"is it\",\"choices\":[\"a\",\"b\"],\"label\":0}\n",
               "direct", head_run, 1);
    s.options.max_body = MOST;
    serve_start(&s);
    is_refused(choices(200), "rows:1: the rows so far have more than 8192 tokens");
    is_served();
    serve_end(&s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("serve_classify");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 120);
    tcase_add_checked_fixture(core, setup_classifiers, teardown_classifiers);
    tcase_add_loop_test(core, answers_are_those_of_predict, 0, 2);
    tcase_add_test(core, many_rows_leave_room_for_others);
    tcase_add_test(core, a_replaced_file_is_read_again);
    tcase_add_test(core, what_does_not_fit_is_refused);
    tcase_add_test(core, many_choices_are_bounded);
    tcase_add_test(core, tokens_of_a_request_are_bounded);
    suite_add_tcase(suite, core);
    return ck_main(suite);
}
