/* The loop: steps, history, validation, the best state, saves, and a clean stop between two steps.
 */
#include "trainer.h"

#include <math.h>
#include <string.h>

static void emit(kvf__trainer *t, kvf_event_kind kind, double seconds, int64_t tokens, bool best)
{
    kvf_train_result retention;
    kvf__retention_result(t, &retention);
    kvf_event event = {
        .kind = kind,
        .step = t->progress.step,
        .steps = t->progress.steps,
        .train_loss = t->progress.train_loss,
        .valid_loss = t->progress.valid_loss,
        .metric = {t->progress.metric->name, t->progress.metric_value},
        .best = best,
        .retention_loss = retention.retention_loss,
        .retention_base_loss = retention.retention_base_loss,
        .lr = t->stepper.lr,
        .grad_norm = t->stepper.grad_norm,
        .prefix_norm = t->progress.step ? t->progress.history.prefix_norm[t->progress.step - 1]
                                        : NAN,
        .tokens = t->progress.tokens,
        .tokens_per_second = seconds > 0 ? (double)tokens / seconds : 0,
        .seconds = kvf__clock() - t->progress.begin,
        .seconds_left = kvf__pace_left(t),
        .text = kind == KVF_EVENT_SAVE ? t->options.out : NULL,
    };
    kvf__trainer_emit(t, &event);
}

static double norm(const float *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

/* Of what the encoder emitted. */
static double emitted_norm(kvf__emitted e)
{
    if (e.prefix) return norm(e.prefix->kv, kvf__prefix_count(e.prefix));
    return e.vectors ? norm(e.vectors->x, (size_t)(e.vectors->P * e.vectors->C)) : 0;
}

/* The row of the step just done; its prefix is the one the step ran with. */
static void record(kvf__trainer *t)
{
    kvf__history *h = &t->progress.history;
    int64_t i = t->progress.step - 1;
    for (int c = 0; c < KVF__COLUMNS; c++)
        if (h->column[c] && kvf__columns[c].dtype == KVF__F64) ((double *)h->column[c])[i] = NAN;
    h->step[i] = t->progress.step;
    h->tokens[i] = t->progress.tokens;
    h->train_loss[i] = t->progress.train_loss;
    h->lr[i] = t->stepper.lr;
    h->grad_norm[i] = t->stepper.grad_norm;
    h->prefix_norm[i] = emitted_norm(t->tuned.emitted);
    if (h->kl_to_base) h->kl_to_base[i] = kvf__base_kl_mean(t);
}

static void keep_best(kvf__trainer *t)
{
    const kvf__params *params = &t->tuned.params;
    t->progress.best.params.n = params->n;
    for (size_t i = 0; i < params->n; i++)
        memcpy(t->progress.best.params.item[i].value, params->item[i].value,
               (size_t)params->item[i].n * sizeof(float));
    t->progress.best.step = t->progress.step;
    t->progress.best.value = t->progress.metric_value;
    t->progress.best.loss = t->progress.valid_loss;
}

/* A value that is not a number is worse than any. */
static bool is_better(double value, double than, bool larger)
{
    if (isnan(value) || isnan(than)) return !isnan(value) && isnan(than);
    return larger ? value > than : value < than;
}

/* Of equal scores the lower loss is kept; patience counts scores alone. */
static bool judge(kvf__trainer *t)
{
    const bool larger = t->progress.metric->larger, first = !t->progress.best.params.n;
    bool better = first || is_better(t->progress.metric_value, t->progress.best.value, larger);
    bool worse = !first && is_better(t->progress.best.value, t->progress.metric_value, larger);
    t->progress.stale = better ? 0 : t->progress.stale + 1;
    return better || (!worse && is_better(t->progress.valid_loss, t->progress.best.loss, false));
}

static kvf_status validate(kvf__trainer *t)
{
    double begin = kvf__clock();
    if (t->tuned.encoder) KVF_TRY(kvf__encoder_fwd(t->ctx, t->tuned.encoder, t->tuned.emitted));
    KVF_TRY(kvf__ranks_validate(t));
    KVF_TRY(kvf__tasks_validate(t));
    t->progress.history.valid_loss[t->progress.step - 1] = t->progress.valid_loss;
    t->progress.history.valid_metric[t->progress.step - 1] = t->progress.metric_value;
    bool best = judge(t);
    if (best) keep_best(t);
    kvf__pace_add(&t->progress.pace.validation, kvf__clock() - begin);
    emit(t, KVF_EVENT_EVAL, 0, 0, best);
    return KVF_OK;
}

bool kvf__trainer_is_due(const kvf__trainer *t, int64_t every)
{
    if (t->progress.step == t->progress.steps) return true;
    return every ? t->progress.step % every == 0 : t->rows.epoch_end;
}

static kvf_status read_retention(kvf__trainer *t)
{
    kvf_train_result now;
    KVF_TRY(kvf__retention_measure(t));
    kvf__retention_result(t, &now);
    t->progress.history.retention_loss[t->progress.step - 1] = now.retention_loss;
    emit(t, KVF_EVENT_RETENTION, 0, 0, false);
    return KVF_OK;
}

static kvf_status save(kvf__trainer *t)
{
    double begin = kvf__clock();
    KVF_TRY(kvf__trainer_save(t, true));
    kvf__pace_add(&t->progress.pace.save, kvf__clock() - begin);
    emit(t, KVF_EVENT_SAVE, 0, 0, false);
    return KVF_OK;
}

bool kvf__trainer_patience_over(const kvf__trainer *t)
{
    return t->options.early_stop && t->progress.stale >= t->options.early_stop;
}

static bool stop_requested(const kvf__trainer *t)
{
    return kvf__ranks_signal(t) != 0;
}

kvf_status kvf__trainer_after_step(kvf__trainer *t, double seconds, int64_t tokens_before,
                                   bool *over)
{
    t->progress.step_seconds += seconds;
    kvf__pace_add(&t->progress.pace.step, seconds);
    record(t);
    emit(t, KVF_EVENT_STEP, seconds, t->progress.tokens - tokens_before, false);
    if (t->rows.total.valid_rows && kvf__trainer_is_due(t, t->options.eval_every))
        KVF_TRY(validate(t));
    if (t->retention && kvf__trainer_is_due(t, t->options.eval_every)) KVF_TRY(read_retention(t));
    bool stop = stop_requested(t) && t->progress.step < t->progress.steps;
    t->progress.stopped_early = kvf__trainer_patience_over(t);
    if (stop || t->progress.stopped_early || kvf__trainer_is_due(t, t->options.save_every))
        KVF_TRY(save(t));
    *over = t->progress.stopped_early || t->progress.step >= t->progress.steps;
    if (!stop || t->progress.stopped_early) return KVF_OK;
    return kvf__fail(t->ctx, KVF_ESTOPPED, "stopped after step %lld of %lld; --resume continues",
                     (long long)t->progress.step, (long long)t->progress.steps);
}

void kvf__trainer_start(kvf__trainer *t)
{
    emit(t, KVF_EVENT_START, 0, 0, false);
    if (t->retention) emit(t, KVF_EVENT_RETENTION, 0, 0, false);
}

kvf_status kvf__trainer_loop(kvf__trainer *t)
{
    bool over = t->progress.step >= t->progress.steps;
    kvf__trainer_start(t);
    if (over) return save(t); /* no steps: starting values */
    while (!over) {
        double begin = kvf__clock();
        int64_t tokens = t->progress.tokens;
        KVF_TRY(kvf__trainer_step(t));
        const double seconds = kvf__clock() - begin;
        KVF_TRY(kvf__trainer_check_base(t));
        KVF_TRY(kvf__trainer_after_step(t, seconds, tokens, &over));
    }
    return KVF_OK;
}
