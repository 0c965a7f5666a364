/* Runs of tasks with a head, on a toy Llama: they learn, and parts of a step weigh as the whole
 * does. A step allocates nothing. Files restore head and labels, and several heads are averaged. */
#include <kvfold/kvfold.h>

#include "artifact.h"
#include "toy_base.h"

#include <signal.h>
#include <unistd.h>

static kvf_ctx *ctx;
static const char *dir;
static char base[512], data[512], out[512], other[512];

/* Rows of one task by a rule that a head can learn. */
static const struct task {
    const char *task, *metric;
    void (*write)(FILE *file, int i);
} * row;

static void write_class(FILE *file, int i)
{
    fprintf(file, "{\"text\": \"w%d %s\", \"label\": \"%s\"}\n", i, i % 3 ? "abc" : "xyz",
            i % 3 ? "low" : "high");
}

static void write_number(FILE *file, int i)
{
    fprintf(file, "{\"text\": \"w%d %s\", \"label\": %d}\n", i, i % 2 ? "abc" : "xyz", i % 2);
}

static void write_words(FILE *file, int i)
{
    fprintf(file, "{\"tokens\": [\"w\", \"n%d\", \"z\"], \"tags\": [\"O\", \"B-n\", \"O\"]}\n", i);
}

static void write_answer(FILE *file, int i)
{
    fprintf(file,
            "{\"context\": \"it was %d %s then\", \"question\": \"who\", \"answers\": [{\"text\": "
            "\"%s\", \"start\": %d}]}\n",
            i, i % 2 ? "ann" : "bob", i % 2 ? "ann" : "bob", i < 10 ? 9 : 10);
}

static void write_choices(FILE *file, int i)
{
    fprintf(file, "{\"text\": \"w%d\", \"choices\": [\"%s\", \"%s\"], \"label\": %d}\n", i,
            i % 2 ? "abc" : "xyz", i % 2 ? "xyz" : "abc", i % 2);
}

static const struct task TASKS[] = {
    {"seq-cls", "accuracy", write_class},
    {"seq-cls", "pearson", write_number},
    {"token-cls", "f1", write_words},
    {"qa", "f1", write_answer},
    {"multiple-choice", "accuracy", write_choices},
};

static void setup(int task)
{
    kvf_ctx_options options = {.threads = 2};
    row = &TASKS[task];
    dir = ck_tmpdir();
    snprintf(base, sizeof base, "%s/base", dir);
    snprintf(data, sizeof data, "%s/train.jsonl", dir);
    snprintf(out, sizeof out, "%s/run.h5", dir);
    snprintf(other, sizeof other, "%s/other.h5", dir);
    ck_assert_int_eq(mkdir(base, 0777), 0);
    toy_folder(base, 5, 0);
    FILE *file = fopen(data, "w");
    for (int i = 0; i < 24; i++)
        row->write(file, i);
    fclose(file);
    ck_assert_int_eq(kvf_ctx_create(&options, &ctx), KVF_OK);
}

static void teardown(void)
{
    kvf_ctx_free(ctx);
}

static kvf_train_options options_for(const char *path)
{
    kvf_train_options o = kvf_train_defaults();
    o.base = base;
    o.data = o.valid = data;
    o.out = path;
    o.task = row->task;
    o.regression = !strcmp(row->metric, "pearson");
    o.method = "direct";
    o.prefix_length = 4;
    o.steps = 6;
    o.batch_size = 5;
    o.precision = KVF_PRECISION_F32;
    o.schedule = KVF_SCHEDULE_CONSTANT;
    o.eval_every = o.save_every = 1000;
    return o;
}

static kvf_train_result train(const kvf_train_options *o)
{
    kvf_train_result result = {0};
    kvf_status st = kvf_train(ctx, o, &result);
    ck_assert_msg(st == KVF_OK, "%s: %s", row->task, kvf_ctx_error(ctx));
    return result;
}

/* ---- core ------------------------------------------------------------------------------------ */

START_TEST(training_learns)
{
    setup(_i);
    kvf_train_options o = options_for(out);
    kvf_train_result before = train(&o);
    o.steps = 80;
    o.force = true;
    kvf_train_result after = train(&o);
    ck_assert_str_eq(after.best.name, row->metric);
    ck_assert_msg(after.valid_loss < 0.7 * before.valid_loss, "%s: loss %g, %g after 6 steps",
                  row->task, after.valid_loss, before.valid_loss);
    ck_assert_msg(after.best.value >= before.best.value, "%s: %s %g, %g after 6 steps", row->task,
                  row->metric, after.best.value, before.best.value);
    teardown();
}
END_TEST

START_TEST(parts_weigh_as_the_whole)
{
    setup(_i);
    kvf_train_options o = options_for(out), parts = options_for(other);
    kvf_train_result whole = train(&o);
    parts.grad_accum = 3;
    kvf_train_result split = train(&parts);
    ck_assert_double_eq_tol(split.train_loss, whole.train_loss, 1e-4 * whole.train_loss);
    ck_assert_double_eq_tol(split.valid_loss, whole.valid_loss, 1e-4 * whole.valid_loss);
    teardown();
}
END_TEST

typedef struct watch {
    int stop, stop_at;
    uint64_t allocations[64];
} watch;

static void on_event(void *user, const kvf_event *event)
{
    watch *w = user;
    if (event->kind != KVF_EVENT_STEP) return;
    w->allocations[event->step] = kvf__ctx_allocations(ctx);
    if (event->step == w->stop_at) w->stop = SIGINT;
}

START_TEST(a_step_allocates_nothing_after_the_first)
{
    setup(_i);
    watch w = {.stop_at = -1};
    kvf_train_options o = options_for(out);
    o.steps = 20;
    o.grad_accum = 2;
    o.event = on_event;
    o.event_user = &w;
    train(&o);
    for (int step = 2; step <= 20; step++)
        ck_assert_msg(w.allocations[step] == w.allocations[1], "%s: step %d allocated", row->task,
                      step);
    teardown();
}
END_TEST

START_TEST(a_stop_request_saves_and_resumes)
{
    setup(_i);
    watch w = {.stop_at = 4};
    kvf_train_options whole = options_for(out), part = options_for(other);
    kvf_train_result result = {0};
    whole.head_dropout = part.head_dropout = 0.3;
    whole.method = part.method = "mlp";
    train(&whole);
    part.event = on_event;
    part.event_user = &w;
    kvf_ctx_set_stop(ctx, &w.stop);
    ck_assert_int_eq(kvf_train(ctx, &part, &result), KVF_ESTOPPED);
    kvf_ctx_set_stop(ctx, NULL);
    part.resume = true;
    train(&part);
    kvf__mapfile a = {0}, b = {0};
    ck_assert_int_eq(kvf__mapfile_open(ctx, out, &a), KVF_OK);
    ck_assert_int_eq(kvf__mapfile_open(ctx, other, &b), KVF_OK);
    ck_assert(a.n == b.n && !memcmp(a.data, b.data, a.n));
    kvf__mapfile_close(&a);
    kvf__mapfile_close(&b);
    teardown();
}
END_TEST

/* The last validation's metric is stored with its loss; NaN where no validation ran. */
START_TEST(history_keeps_the_metric)
{
    setup(_i);
    kvf_train_options o = options_for(out);
    kvf__artifact file;
    o.metric = row->metric;
    o.eval_every = 2;
    train(&o);
    ck_assert_int_eq(kvf__artifact_read_all(ctx, out, KVF__KIND_RUN, &file), KVF_OK);
    const kvf__history *h = &file.history;
    ck_assert_int_gt(h->n, 2);
    for (int64_t i = 0; i < h->n; i++)
        ck_assert(isnan(h->valid_metric[i]) == isnan(h->valid_loss[i]));
    ck_assert_int_eq(h->step[file.best_step - 1], file.best_step);
    ck_assert_double_eq(h->valid_metric[file.best_step - 1], file.best_value);
    kvf__artifact_done(&file);
    teardown();
}
END_TEST

/* With equal scores, the checkpoint with the lowest loss is kept, and the summary has its loss,
 * also for a resumed run. */
START_TEST(equal_scores_are_told_by_loss)
{
    setup(_i);
    kvf_train_options o = options_for(out);
    kvf__artifact file;
    o.steps = 20;
    o.eval_every = 1;
    train(&o);
    o.steps = 40;
    o.resume = true;
    kvf_train_result result = train(&o), again = train(&o);
    ck_assert_int_eq(kvf__artifact_read_all(ctx, out, KVF__KIND_RUN, &file), KVF_OK);
    const double *score = file.history.valid_metric, *loss = file.history.valid_loss;
    int64_t best = 0, ties = 0;
    for (int64_t i = 1; i < file.history.n; i++) {
        ties += score[i] == score[best];
        if (score[i] > score[best] || (score[i] == score[best] && loss[i] < loss[best])) best = i;
    }
    ck_assert(ties > 0 || o.regression);
    ck_assert_int_eq(file.best_step, best + 1);
    ck_assert_int_eq(result.best_step, best + 1);
    ck_assert_double_eq(result.best_valid_loss, loss[best]);
    ck_assert_double_eq(again.best_valid_loss, loss[best]);
    kvf__artifact_done(&file);
    teardown();
}
END_TEST

/* ---- measuring ------------------------------------------------------------------------------- */

static void eval(kvf_base *model, kvf_prefix *const *prefixes, size_t n, int64_t batch_tokens,
                 kvf_eval_result *result)
{
    const kvf_eval_options options = {.data = data, .batch_tokens = batch_tokens};
    ck_assert_msg(!kvf_eval(ctx, model, prefixes, n, &options, result), "%s", kvf_ctx_error(ctx));
}

/* Run and folded prefix give the same bits. A prefix given twice equals the prefix alone, computed
 * with another sum. Other batches give the same except for rounding, with every answer at its own
 * row. This holds if each row of a question is a batch. */
START_TEST(runs_prefixes_and_ensembles_agree)
{
    setup(_i);
    const kvf_base_options exact = {.precision = KVF_PRECISION_F32};
    kvf_train_options o = options_for(out);
    kvf_merge_options fold = {.run = out, .out = other};
    kvf_merge_result merged;
    kvf_base *model = NULL;
    kvf_prefix *both[2] = {NULL, NULL};
    kvf_eval_result run, prefix, twice, small;
    kvf_train_result trained = train(&o);
    ck_assert_msg(!kvf_merge(ctx, &fold, &merged), "%s", kvf_ctx_error(ctx));
    ck_assert_int_eq(kvf_base_open(ctx, base, &exact, &model), KVF_OK);
    ck_assert_int_eq(kvf_prefix_open(ctx, out, KVF_CHECKPOINT_DEFAULT, &both[0]), KVF_OK);
    ck_assert_int_eq(kvf_prefix_open(ctx, other, KVF_CHECKPOINT_DEFAULT, &both[1]), KVF_OK);
    eval(model, both, 1, 0, &run);
    eval(model, both + 1, 1, 0, &prefix);
    eval(model, both, 2, 0, &twice);
    eval(model, both, 1, 1, &small);
    ck_assert_double_eq(run.loss, trained.valid_loss);
    ck_assert_double_eq(run.loss, prefix.loss);
    ck_assert_double_eq_tol(twice.loss, run.loss, 1e-5 * (1 + run.loss));
    ck_assert_double_eq_tol(small.loss, run.loss, 1e-5 * (1 + run.loss));
    ck_assert_uint_gt(run.n_scores, 1);
    for (size_t i = 0; i < run.n_scores; i++) {
        ck_assert_str_eq(run.scores[i].name, prefix.scores[i].name);
        ck_assert_double_eq(run.scores[i].value, prefix.scores[i].value);
        ck_assert_double_eq_tol(run.scores[i].value, small.scores[i].value, 1e-4);
    }
    kvf_prefix_free(both[0]);
    kvf_prefix_free(both[1]);
    kvf_base_free(model);
    teardown();
}
END_TEST

/* ---- predictions ----------------------------------------------------------------------------- */

/* The same rows, with a row that is too long before the last one. */
static void write_with_long_row(const char *path)
{
    FILE *file = fopen(path, "w");
    char *text = malloc(4000);
    memset(text, 'y', 3999);
    text[3999] = 0;
    for (int i = 0; i < 4; i++) {
        if (i == 3 && !strcmp(row->task, "token-cls"))
            fprintf(file, "{\"tokens\": [\"%s\"], \"tags\": [\"O\"]}\n", text);
        else if (i == 3 && !strcmp(row->task, "multiple-choice"))
            fprintf(file, "{\"text\": \"%s\", \"choices\": [\"a\", \"b\"]}\n", text);
        else if (i == 3 && strcmp(row->task, "qa"))
            fprintf(file, "{\"text\": \"%s\"}\n", text);
        row->write(file, i);
    }
    fclose(file);
    free(text);
}

typedef struct printed {
    char text[16384];
    size_t n;
} printed;

static void take_text(void *user, const char *text, size_t n)
{
    printed *to = user;
    ck_assert_uint_lt(n, sizeof to->text);
    memcpy(to->text, text, n);
    to->n = n;
}

static double real_of(const kvf_json *object, const char *key)
{
    return kvf_json_real(kvf_json_get(object, key), NAN);
}

static void same_number(double got, double want)
{
    ck_assert_msg(got == want || (isnan(got) && isnan(want)), "%.17g, want %.17g", got, want);
}

static void same_label(const kvf_prediction *p, const kvf_json *line)
{
    size_t bytes = 0;
    const char *text = kvf_json_str(kvf_json_get(line, "prediction"), &bytes);
    ck_assert(text && bytes == p->label_bytes && !memcmp(text, p->label, bytes));
}

/* A line of the file has the members of the row. */
static void same_row(const kvf_predict_result *r, const kvf_prediction *p, const kvf_json *line)
{
    const kvf_json *all = kvf_json_get(line, "probabilities");
    if (p->skipped || !strcmp(row->metric, "pearson")) {
        same_number(p->value, real_of(line, "prediction"));
        ck_assert(p->best == -1 && !p->label && !p->n && isnan(p->probability));
    } else if (!strcmp(row->task, "seq-cls")) {
        same_label(p, line);
        ck_assert_str_eq(p->label, r->labels[p->best]);
        ck_assert_uint_eq(p->n, r->n_labels);
        for (size_t c = 0; c < p->n; c++)
            same_number(p->probabilities[c], real_of(all, r->labels[c]));
        same_number(p->probability, p->probabilities[p->best]);
    } else if (!strcmp(row->task, "qa")) {
        same_label(p, line);
        same_number(p->probability, real_of(line, "probability"));
        same_number(p->no_answer_probability, real_of(line, "no_answer_probability"));
        ck_assert_int_eq(p->start, kvf_json_int(kvf_json_get(line, "start"), -1));
        ck_assert_int_eq(p->end - p->start, (int64_t)p->label_bytes); /* ASCII */
    } else {
        ck_assert_uint_eq(p->n, kvf_json_size(all));
        for (size_t i = 0; i < p->n; i++)
            same_number(p->probabilities[i], kvf_json_real(kvf_json_at(all, i), NAN));
    }
    if (!strcmp(row->task, "multiple-choice") && !p->skipped)
        ck_assert_int_eq(p->best, kvf_json_int(kvf_json_get(line, "prediction"), -1));
    for (size_t i = 0; p->tags && i < p->n; i++)
        ck_assert_str_eq(p->tags[i],
                         kvf_json_str(kvf_json_at(kvf_json_get(line, "prediction"), i), NULL));
}

static void same_lines(const kvf_predict_result *r, const printed *file)
{
    const char *at = file->text, *end = file->text + file->n;
    for (size_t i = 0; i < r->n; i++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        kvf_json *line = NULL;
        ck_assert_ptr_nonnull(newline);
        ck_assert_int_eq(kvf_json_parse(ctx, "line", at, (size_t)(newline - at), &line), KVF_OK);
        same_row(r, &r->rows[i], line);
        kvf_json_free(line);
        at = newline + 1;
    }
    ck_assert_ptr_eq(at, end);
}

/* The rows of a result equal those of the file, and outlive base and prefix. */
START_TEST(predictions_are_rows_and_lines)
{
    setup(_i);
    const kvf_base_options exact = {.precision = KVF_PRECISION_F32};
    kvf_train_options o = options_for(out);
    kvf_session_options how = {.base = exact};
    kvf_session *session = NULL;
    kvf_predict_result r, again;
    printed *file = malloc(sizeof *file);
    size_t n = 0;
    train(&o);
    write_with_long_row(other);
    ck_assert_msg(!kvf_session_open(ctx, base, out, &how, &session), "%s", kvf_ctx_error(ctx));
    kvf_predict_options predict = {
        .eval = {.data = other, .overlong = KVF_OVERLONG_SKIP}, .write = take_text, .user = file};
    kvf_prefix *const *prefixes = kvf_session_prefixes(session, &n);
    kvf_base *model = kvf_session_base(session);
    ck_assert_msg(!kvf_predict(ctx, model, prefixes, n, &predict, &r), "%s", kvf_ctx_error(ctx));
    predict.write = NULL; /* no file at all */
    ck_assert_int_eq(kvf_predict(ctx, model, prefixes, n, &predict, NULL), KVF_OK);
    ck_assert_int_eq(kvf_predict(ctx, model, prefixes, n, &predict, &again), KVF_OK);
    kvf_session_close(session);
    const size_t skipped = strcmp(row->task, "qa") ? 1 : 0;
    ck_assert(r.n == 4 + skipped && r.examples == 4 && r.skipped == (int64_t)skipped);
    ck_assert(again.n == r.n && again.truncated == r.truncated);
    for (size_t i = 0; i < r.n; i++) {
        ck_assert_int_eq(r.rows[i].skipped, skipped && i == 3);
        same_number(again.rows[i].probability, r.rows[i].probability);
    }
    same_lines(&r, file);
    kvf_predict_result_done(&r);
    kvf_predict_result_done(&again);
    free(file);
    teardown();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("train_heads");
    TCase *core = tcase_create("core");
    const int n = (int)(sizeof TASKS / sizeof TASKS[0]);

    tcase_set_timeout(core, 60);
    suite_add_tcase(suite, core);
    tcase_add_loop_test(core, training_learns, 0, n);
    tcase_add_loop_test(core, parts_weigh_as_the_whole, 0, n);
    tcase_add_loop_test(core, a_step_allocates_nothing_after_the_first, 0, n);
    tcase_add_loop_test(core, a_stop_request_saves_and_resumes, 0, n);
    tcase_add_loop_test(core, history_keeps_the_metric, 0, n);
    tcase_add_loop_test(core, equal_scores_are_told_by_loss, 0, n);
    tcase_add_loop_test(core, runs_prefixes_and_ensembles_agree, 0, n);
    tcase_add_loop_test(core, predictions_are_rows_and_lines, 0, n);
    return ck_main(suite);
}
