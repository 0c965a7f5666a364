/* Runs of tasks with a head, on a toy Llama: they learn, parts of a step weigh as the whole does, a
 * step allocates nothing, head and labels come back from the files, and several heads are averaged.
 */
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
    part.stop = &w.stop;
    ck_assert_int_eq(kvf_train(ctx, &part, &result), KVF_ESTOPPED);
    part.stop = NULL;
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

/* Of equal scores the one with the lowest loss is kept, and the summary has its loss, of a run that
 * was resumed too. */
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

/* Run and folded prefix: the same bits. One prefix twice: itself, by another way of adding. Other
 * batches: the same but for rounding, with every answer at its own row. */
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
    eval(model, both, 1, 40, &small);
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
    return ck_main(suite);
}
