/* The training loop: steps, history, validation, best state, saves, and a clean stop between steps.
 */
#include "answers.h"
#include "base_notes.h"
#include "baselines.h"
#include "trainer.h"

#include <math.h>
#include <string.h>

static void emit(kvf__trainer *t, kvf_event_kind kind, double seconds, int64_t tokens, bool best)
{
    kvf_train_result retention;
    kvf__retention_result(t->retention, &retention);
    kvf_event event = {
        .kind = kind,
        .step = t->run.progress.step,
        .steps = t->run.progress.steps,
        .train_loss = t->run.progress.train_loss,
        .valid_loss = t->run.progress.valid_loss,
        .metric = {t->run.progress.metric->name, t->run.progress.metric_value},
        .best = best,
        .retention_loss = retention.retention_loss,
        .retention_base_loss = retention.retention_base_loss,
        .lr = t->stepper.lr,
        .grad_norm = t->stepper.grad_norm,
        .prefix_norm = t->run.progress.step
                           ? t->run.progress.history.prefix_norm[t->run.progress.step - 1]
                           : NAN,
        .tokens = t->run.progress.tokens,
        .tokens_per_second = seconds > 0 ? (double)tokens / seconds : 0,
        .seconds = kvf__clock() - t->run.progress.begin,
        .seconds_left = kvf__pace_left(&t->run, &t->rows),
        .text = kind == KVF_EVENT_SAVE ? t->run.options.out : NULL,
    };
    kvf__run_emit(&t->run, &event);
}

static double norm(const float *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

/* Returns the norm of the encoder's output. */
static double emitted_norm(kvf__emitted e)
{
    if (e.prefix) return norm(e.prefix->kv, kvf__prefix_count(e.prefix));
    return e.vectors ? norm(e.vectors->x, (size_t)(e.vectors->P * e.vectors->C)) : 0;
}

/* Records the finished step. The prefix is the one that the step used. */
static void record(kvf__trainer *t)
{
    kvf__history *h = &t->run.progress.history;
    int64_t i = t->run.progress.step - 1;
    for (int c = 0; c < KVF__COLUMNS; c++)
        if (h->column[c] && kvf__columns[c].dtype == KVF__F64) ((double *)h->column[c])[i] = NAN;
    h->step[i] = t->run.progress.step;
    h->tokens[i] = t->run.progress.tokens;
    h->train_loss[i] = t->run.progress.train_loss;
    h->lr[i] = t->stepper.lr;
    h->grad_norm[i] = t->stepper.grad_norm;
    h->prefix_norm[i] = emitted_norm(t->tuned.emitted);
    if (h->kl_to_base) h->kl_to_base[i] = t->run.progress.kl_to_base;
}

static void keep_best(kvf__trainer *t)
{
    const kvf__params *params = &t->tuned.params;
    t->run.progress.best.params.n = params->n;
    for (size_t i = 0; i < params->n; i++)
        memcpy(t->run.progress.best.params.item[i].value, params->item[i].value,
               (size_t)params->item[i].n * sizeof(float));
    t->run.progress.best.step = t->run.progress.step;
    t->run.progress.best.value = t->run.progress.metric_value;
    t->run.progress.best.loss = t->run.progress.valid_loss;
}

/* True if value is better than `than`. NaN is worse than any value. */
static bool is_better(double value, double than, bool larger)
{
    if (isnan(value) || isnan(than)) return !isnan(value) && isnan(than);
    return larger ? value > than : value < than;
}

/* Compares a validation with the best one. At equal scores the lower loss wins; patience counts
 * scores only. */
static bool judge(kvf__trainer *t)
{
    const bool larger = t->run.progress.metric->larger, first = !t->run.progress.best.params.n;
    bool better = first ||
                  is_better(t->run.progress.metric_value, t->run.progress.best.value, larger);
    bool worse = !first &&
                 is_better(t->run.progress.best.value, t->run.progress.metric_value, larger);
    t->run.progress.stale = better ? 0 : t->run.progress.stale + 1;
    return better ||
           (!worse && is_better(t->run.progress.valid_loss, t->run.progress.best.loss, false));
}

static kvf_status validate_task(kvf__trainer *t, const kvf__train_task *task, double *loss,
                                double *value)
{
    const char *metric = strcmp(task->metric->name, "loss") ? task->metric->name : NULL;
    kvf__low_rank_task_fwd(&t->tuned, task);
    const kvf__subject subject = kvf__tuned_subject(&t->tuned, &t->run.id, task);
    KVF_TRY(kvf__measure_subject(t->run.ctx, task->evaluator, &task->valid, &subject, task->metric,
                                 loss, value));
    if (task->name && !kvf__ranks_follows(t->run.ranks))
        kvf__run_note(&t->run, "step %lld, %s: validation loss %.4f%s%s",
                      (long long)t->run.progress.step, task->name, *loss, metric ? ", " : "",
                      metric ? metric : "");
    return KVF_OK;
}

kvf_status kvf__trainer_validate(kvf__trainer *t)
{
    double loss = 0, value = 0;
    int64_t n = 0;
    for (size_t i = 0; i < t->rows.n; i++) {
        double one_loss = 0, one = 0;
        if (!t->rows.task[i].evaluator) continue;
        KVF_TRY(validate_task(t, &t->rows.task[i], &one_loss, &one));
        loss += one_loss;
        value += one;
        n++;
    }
    t->run.progress.valid_loss = loss / (double)n;
    t->run.progress.metric_value = value / (double)n;
    return KVF_OK;
}

static kvf_status validate(kvf__trainer *t)
{
    double begin = kvf__clock();
    if (t->tuned.encoder) KVF_TRY(kvf__encoder_fwd(t->run.ctx, t->tuned.encoder, t->tuned.emitted));
    KVF_TRY(kvf__ranks_measure(&t->run, &t->tuned, KVF__ORDER_VALIDATE));
    KVF_TRY(kvf__trainer_validate(t));
    t->run.progress.history.valid_loss[t->run.progress.step - 1] = t->run.progress.valid_loss;
    t->run.progress.history.valid_metric[t->run.progress.step - 1] = t->run.progress.metric_value;
    bool best = judge(t);
    if (best) keep_best(t);
    kvf__pace_add(&t->run.progress.pace.validation, kvf__clock() - begin);
    emit(t, KVF_EVENT_EVAL, 0, 0, best);
    return KVF_OK;
}

static kvf_status read_retention(kvf__trainer *t)
{
    kvf_train_result now;
    KVF_TRY(kvf__retention_measure(&t->run, t->retention, &t->tuned, &t->rows));
    kvf__retention_result(t->retention, &now);
    t->run.progress.history.retention_loss[t->run.progress.step - 1] = now.retention_loss;
    emit(t, KVF_EVENT_RETENTION, 0, 0, false);
    return KVF_OK;
}

static kvf_status save(kvf__trainer *t)
{
    double begin = kvf__clock();
    if (t->run.output.in_memory) return KVF_OK;
    KVF_TRY(kvf__trainer_save(t, true));
    kvf__pace_add(&t->run.progress.pace.save, kvf__clock() - begin);
    emit(t, KVF_EVENT_SAVE, 0, 0, false);
    return KVF_OK;
}

kvf_status kvf__trainer_after_step(kvf__trainer *t, double seconds, int64_t tokens_before,
                                   bool *over)
{
    t->run.progress.step_seconds += seconds;
    kvf__pace_add(&t->run.progress.pace.step, seconds);
    record(t);
    emit(t, KVF_EVENT_STEP, seconds, t->run.progress.tokens - tokens_before, false);
    if (t->rows.total.valid_rows && kvf__pace_is_due(&t->run, &t->rows, t->run.options.eval_every))
        KVF_TRY(validate(t));
    if (t->retention && kvf__pace_is_due(&t->run, &t->rows, t->run.options.eval_every))
        KVF_TRY(read_retention(t));
    bool stop = kvf__ranks_signal(t->run.ctx, t->run.ranks) &&
                t->run.progress.step < t->run.progress.steps;
    t->run.progress.stopped_early = kvf__run_patience_over(&t->run);
    if (stop || t->run.progress.stopped_early ||
        kvf__pace_is_due(&t->run, &t->rows, t->run.options.save_every))
        KVF_TRY(save(t));
    *over = t->run.progress.stopped_early || t->run.progress.step >= t->run.progress.steps;
    if (!stop || t->run.progress.stopped_early) return KVF_OK;
    return kvf__fail(t->run.ctx, KVF_ESTOPPED,
                     "stopped after step %lld of %lld; --resume continues",
                     (long long)t->run.progress.step, (long long)t->run.progress.steps);
}

kvf_status kvf__trainer_start(kvf__trainer *t)
{
    KVF_TRY(kvf__baselines_measure(&t->run, &t->tuned, &t->rows));
    emit(t, KVF_EVENT_START, 0, 0, false);
    if (t->retention) emit(t, KVF_EVENT_RETENTION, 0, 0, false);
    return KVF_OK;
}

kvf_status kvf__trainer_loop(kvf__trainer *t)
{
    bool over = t->run.progress.step >= t->run.progress.steps;
    KVF_TRY(kvf__trainer_start(t));
    if (over) return save(t); /* no steps: save the initial values */
    while (!over) {
        double begin = kvf__clock();
        int64_t tokens = t->run.progress.tokens;
        KVF_TRY(kvf__trainer_step(t));
        const double seconds = kvf__clock() - begin;
        KVF_TRY(kvf__note_untrained(&t->run, &t->rows, t->pass));
        KVF_TRY(kvf__trainer_after_step(t, seconds, tokens, &over));
    }
    return KVF_OK;
}

/* ---- following another process --------------------------------------------------------------- */

kvf_status kvf__trainer_follow(kvf__trainer *t)
{
    kvf__order_kind kind;
    for (;;) {
        KVF_TRY(kvf__ranks_next(&t->run, &t->tuned, &kind));
        if (kind == KVF__ORDER_END) return KVF_OK;
        if (kind == KVF__ORDER_STEP) {
            KVF_TRY(kvf__trainer_step(t));
            continue;
        }
        KVF_TRY(kvf__ranks_refresh(&t->run, &t->tuned));
        KVF_TRY(kind == KVF__ORDER_RETENTION
                    ? kvf__retention_run(&t->run, t->retention, &t->tuned, &t->rows)
                    : kvf__trainer_validate(t));
    }
}
