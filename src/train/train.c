/* Runs training from opening to result. */
#include "base_notes.h"
#include "trainer.h"

void kvf__trainer_result(const kvf__trainer *t, double begin, int64_t tokens_before,
                         kvf_train_result *r)
{
    double seconds = kvf__clock() - begin;
    *r = (kvf_train_result){
        .steps = t->run.progress.step,
        .train_loss = t->run.progress.train_loss,
        .valid_loss = t->run.progress.valid_loss,
        .best_valid_loss = t->run.progress.best.loss,
        .best = {t->run.progress.metric->name, t->run.progress.best.value},
        .best_step = t->run.progress.best.params.n ? t->run.progress.best.step : 0,
        .stopped_early = t->run.progress.stopped_early,
        .tokens = t->run.progress.tokens,
        .computed_tokens = t->run.progress.computed_tokens,
        .step_seconds = t->run.progress.step_seconds,
        .tokens_per_second = t->run.progress.step_seconds > 0
                                 ? (double)(t->run.progress.tokens - tokens_before) /
                                       t->run.progress.step_seconds
                                 : 0,
        .seconds = seconds,
        .peak_rss_bytes = kvf__peak_rss_bytes(),
        .trainable_parameters = kvf__tuned_values(&t->tuned),
        .parameters = kvf__trainer_all_parameters(t),
        .label_tokens = t->rows.total.labels,
        .examples = t->rows.total.rows,
        .truncated = t->rows.total.truncated,
        .precision = kvf__precision_name(t->run.base->precision),
        .forecast = t->run.progress.forecast,
        .bare_loss = t->run.progress.baselines.bare_loss,
        .start_loss = t->run.progress.baselines.start_loss,
        .largest_class = t->run.progress.baselines.largest_class,
    };
    kvf__retention_result(t->retention, r);
    kvf__ranks_result(t->run.ctx, t->run.ranks, r);
}

kvf_status kvf__trainer_open_journal(kvf__trainer *t)
{
    const kvf__run_size size = {.rows = t->rows.total.rows,
                                .labels = t->rows.total.labels,
                                .trained = kvf__tuned_values(&t->tuned),
                                .parameters = kvf__trainer_all_parameters(t)};
    return kvf__journal_open(&t->run, &size);
}

void kvf__trainer_end(kvf__trainer *t, kvf_status status)
{
    kvf__journal_end(&t->run, status);
}

/* Runs the remaining steps with log files, on all ranks, if every rank is ready. */
static kvf_status run_steps(kvf__trainer *t)
{
    kvf__evaluator *retention = t->retention ? t->retention->evaluator : NULL;
    kvf_status st = kvf__trainer_open_journal(t);
    if (!st) st = kvf__note_int8(&t->run, &t->rows);
    if (!st && t->run.progress.steps) st = kvf__trainer_prepare(t);
    if (!st && t->run.options.forecast == KVF_FORECAST_ON) st = kvf__trainer_forecast(t);
    if (!st) st = kvf__ranks_divide(&t->run, &t->rows, retention);
    st = kvf__trainer_agree(t, st);
    if (!st && kvf__ranks_follows(t->run.ranks)) {
        st = kvf__trainer_follow(t);
    } else if (!st) {
        st = kvf__ranks_end(&t->run, kvf__trainer_loop(t));
        /* losses of several tasks do not compare */
        if (!st && t->rows.n == 1) kvf__step_note_risen(&t->run);
    }
    kvf__trainer_end(t, st);
    return st;
}

void kvf__trainer_note_dry(kvf__trainer *t)
{
    kvf__run_note(&t->run, "dry run: %lld examples, %lld labels, %lld steps, nothing written",
                  (long long)t->rows.total.rows, (long long)t->rows.total.labels,
                  (long long)t->run.progress.steps);
}

static kvf_status run_dry(kvf__trainer *t)
{
    kvf_status st = t->run.progress.steps ? kvf__trainer_prepare(t) : KVF_OK;
    if (!st && t->run.options.forecast != KVF_FORECAST_OFF) st = kvf__trainer_forecast(t);
    KVF_TRY(kvf__trainer_agree(t, st));
    kvf__trainer_note_dry(t);
    return KVF_OK;
}

kvf_status kvf__trainer_run(kvf__trainer *t, double begin, kvf_train_result *result)
{
    kvf_status st = KVF_OK;
    int64_t tokens_before = t->run.progress.tokens;
    if (!t->run.output.finished_before) st = t->run.options.dry_run ? run_dry(t) : run_steps(t);
    if (st && st != KVF_ESTOPPED) return st;
    kvf__trainer_result(t, begin, tokens_before, result);
    result->finished_before = t->run.output.finished_before;
    return st;
}

/* prefix: trains in memory and folds this state; NULL: trains to a file. */
static kvf_status train(kvf_ctx *ctx, const kvf_train_options *options, kvf_checkpoint checkpoint,
                        kvf_train_result *result, kvf_prefix **prefix)
{
    const kvf__trainer_uses uses = {.joins = !prefix, .in_memory = prefix};
    kvf__trainer *t = NULL;
    double begin = kvf__clock();
    KVF_TRY(kvf__trainer_open(ctx, options, &uses, &t));
    kvf_status st = kvf__trainer_run(t, begin, result);
    if (prefix && (!st || st == KVF_ESTOPPED)) {
        const kvf_status folded = kvf__trainer_prefix(t, checkpoint, prefix);
        if (folded) st = folded;
    }
    kvf__trainer_free(t);
    return st;
}

/* Ends the run after the current step is finished and saved, if the stop flag is set. */
static kvf_status train_to_stop(kvf_ctx *ctx, const kvf_train_options *options,
                                kvf_checkpoint checkpoint, kvf_train_result *result,
                                kvf_prefix **prefix)
{
    kvf__ctx_defer_stop(ctx, true);
    const kvf_status st = train(ctx, options, checkpoint, result, prefix);
    kvf__ctx_defer_stop(ctx, false);
    return st;
}

kvf_status kvf_train(kvf_ctx *ctx, const kvf_train_options *options, kvf_train_result *result)
{
    KVF_TRY(KVF__NEED(ctx, options, result));
    KVF__RETURN(ctx, train_to_stop(ctx, options, KVF_CHECKPOINT_DEFAULT, result, NULL));
}

kvf_status kvf_train_prefix(kvf_ctx *ctx, const kvf_train_options *options,
                            kvf_checkpoint checkpoint, kvf_train_result *result, kvf_prefix **out)
{
    KVF_TRY(KVF__NEED(ctx, options, result, out));
    KVF_TRY(KVF__CHECK_ENUM(ctx, checkpoint, KVF_CHECKPOINT_LAST));
    KVF__RETURN(ctx, train_to_stop(ctx, options, checkpoint, result, out));
}
