/* The run file. It holds everything that determines the next step, and nothing that depends on the
 * clock or the machine. A resumed run gives the same bits as one that never stopped. */
#include "answers.h"
#include "baselines.h"
#include "trainer.h"

#include <math.h>
#include <string.h>

/* ---- saving ---------------------------------------------------------------------------------- */

/* Returns the name of a metric in the history: losses are those of validation, other metrics have
 * their own names. */
static const char *metric_name(const kvf__trainer *t)
{
    return strcmp(t->run.progress.metric->name, "loss") ? t->run.progress.metric->name
                                                        : "valid_loss";
}

static kvf_json *state_of(const kvf__trainer *t)
{
    const kvf__sampler *sampler = kvf__tasks_are_named(&t->rows) ? NULL : &t->rows.task->sampler;
    kvf_json *state = kvf_json_object();
    kvf_json_set(state, "step", kvf_json_new_int(t->run.progress.step));
    kvf_json_set(state, "tokens", kvf_json_new_int(t->run.progress.tokens));
    kvf_json_set(state, "adamw_t", kvf_json_new_int(t->stepper.adamw.t));
    kvf_json_set(state, "epoch", kvf_json_new_int(sampler ? sampler->epoch : 0));
    kvf_json_set(state, "position_in_epoch", kvf_json_new_int(sampler ? sampler->at : 0));
    if (t->stepper.skipped)
        kvf_json_set(state, "skipped_steps", kvf_json_new_int(t->stepper.skipped));
    kvf_json_set(state, "stale_validations", kvf_json_new_int(t->run.progress.stale));
    kvf_json_set(state, "lr_k", kvf_json_new_real(t->tuned.lr_k[0]));
    if (t->run.id.neurons.N)
        kvf_json_set(state, "lr_k_neurons", kvf_json_new_real(t->tuned.lr_k[1]));
    kvf_json_set(state, "schedule_length", kvf_json_new_int(t->stepper.schedule.length));
    kvf_json_set(state, "schedule_warmup", kvf_json_new_int(t->stepper.schedule.warmup));
    return state;
}

static kvf_json *lineage_of(const kvf__trainer *t)
{
    const kvf__train_task *first = t->rows.task;
    kvf_json *lineage = kvf_json_object();
    kvf_json_set(lineage, "data_hash", kvf_json_new_str(t->rows.total.hash));
    kvf_json_set(lineage, "data_examples", kvf_json_new_int(t->rows.total.rows));
    kvf_json_set(lineage, "data_label_tokens", kvf_json_new_int(t->rows.total.labels));
    if (t->rows.total.valid_rows) {
        kvf_json_set(lineage, "valid_hash", kvf_json_new_str(t->rows.total.valid_hash));
        kvf_json_set(lineage, "valid_examples", kvf_json_new_int(t->rows.total.valid_rows));
    }
    if (!first->name && first->kind == KVF__TASK_QA)
        kvf_json_set(lineage, "data_no_answers",
                     kvf_json_new_bool(kvf__has_impossible(&first->data)));
    kvf_json_set(lineage, "threads", kvf_json_new_int(kvf_ctx_threads(t->run.ctx)));
    if (t->run.ranks)
        kvf_json_set(lineage, "ranks", kvf_json_new_int(kvf__ranks_size(t->run.ranks)));
    kvf__retention_lineage(t->retention, lineage);
    kvf__baselines_store(&t->run.progress.baselines, lineage);
    if (t->rows.feed) t->rows.feed->lineage(t->rows.feed->user, lineage);
    return lineage;
}

/* Splits a list of parameters into views of the encoder's and the heads'. */
static void split(const kvf__trainer *t, const kvf__params *all, kvf__params *encoder,
                  kvf__params *head)
{
    size_t n = kvf__tuned_own_params(&t->tuned);
    if (n > all->n) n = all->n;
    *encoder = (kvf__params){.n = n, .item = all->item};
    *head = (kvf__params){.n = all->n - n, .item = n < all->n ? all->item + n : NULL};
}

/* Makes the file's view of the trainer. It owns only the three JSON objects. */
static kvf_status view_run(kvf__trainer *t, kvf__artifact *run)
{
    run->id = t->run.id;
    run->layer_mask = t->tuned.layer_mask;
    run->neuron_mask = t->tuned.prefix.neurons.layer_mask;
    if (!t->tuned.state.n) { /* else it is among the values */
        run->prefix.state = t->tuned.prefix.state;
        run->prefix.states = t->tuned.prefix.states;
    }
    split(t, &t->tuned.params, &run->values.params, &run->head.params.params);
    KVF_TRY(kvf__tasks_describe(t->run.ctx, &t->rows, &run->head));
    split(t, &t->run.progress.best.params, &run->best.params, &run->best_head.params);
    run->best_step = t->run.progress.best.step;
    run->best_value = t->run.progress.best.value;
    run->best_metric = t->run.progress.best.params.n ? (char *)metric_name(t) : NULL;
    run->m.params = t->stepper.adamw.m;
    run->v.params = t->stepper.adamw.v;
    run->history = t->run.progress.history;
    run->history.n = t->run.progress.step;
    run->state = state_of(t);
    run->lineage = lineage_of(t);
    return kvf__options_store(t->run.ctx, &t->run.options, &run->options);
}

static void view_done(kvf__artifact *run)
{
    kvf__free(run->head.tasks);
    kvf_json_free(run->state);
    kvf_json_free(run->lineage);
    kvf_json_free(run->options);
}

kvf_status kvf__trainer_save(kvf__trainer *t, bool force)
{
    kvf__artifact run = {.kind = KVF__KIND_RUN};
    kvf_status st = view_run(t, &run);
    if (!st) st = kvf__artifact_write(t->run.ctx, t->run.options.out, force, &run);
    view_done(&run);
    return st;
}

kvf_status kvf__trainer_prefix(kvf__trainer *t, kvf_checkpoint checkpoint, kvf_prefix **out)
{
    kvf__artifact run = {.kind = KVF__KIND_RUN};
    kvf_status st = view_run(t, &run);
    if (!st)
        st = kvf__prefix_of(t->run.ctx, "the run in memory", &run, t->run.base, checkpoint, out);
    view_done(&run);
    return st;
}

/* ---- restoring ------------------------------------------------------------------------------- */

static kvf_status same_text(kvf__trainer *t, const char *what, const char *found, const char *want)
{
    if (!strcmp(found ? found : "", want)) return KVF_OK;
    return kvf__fail(
        t->run.ctx, KVF_EMISMATCH,
        "%s: the run was created with a different %s (%s, now %s); --resume cannot change it",
        t->run.options.out, what, found && *found ? found : "none", *want ? want : "none");
}

static kvf_status check_same_inputs(kvf__trainer *t, const kvf__artifact *run)
{
    const char *data = kvf_json_str(kvf_json_get(run->lineage, "data_hash"), NULL);
    const char *valid = kvf_json_str(kvf_json_get(run->lineage, "valid_hash"), NULL);
    KVF_TRY(same_text(t, "base or tokenizer", run->id.base_hash, t->run.base->hash));
    KVF_TRY(kvf__tasks_compare(&t->run, &t->rows, &run->head));
    KVF_TRY(same_text(t, "data file", data, t->rows.total.hash));
    KVF_TRY(same_text(t, "validation file", valid,
                      t->rows.total.valid_rows ? t->rows.total.valid_hash : ""));
    const char *retention = kvf_json_str(kvf_json_get(run->lineage, "retention_hash"), NULL);
    return same_text(t, "retention file", retention, kvf__retention_hash(t->retention));
}

static kvf_status copy_values(kvf__trainer *t, const char *what, const kvf__params *from,
                              kvf__params *to)
{
    for (size_t i = 0; i < to->n; i++) {
        if (i >= from->n || strcmp(from->item[i].name, to->item[i].name) ||
            from->item[i].n != to->item[i].n)
            return kvf__fail(t->run.ctx, KVF_EFORMAT, "%s: %s/%s is missing or has another shape",
                             t->run.options.out, what, to->item[i].name);
        memcpy(to->item[i].value, from->item[i].value, (size_t)to->item[i].n * sizeof(float));
    }
    return KVF_OK;
}

static kvf_status copy_history(kvf__trainer *t, const kvf__history *from)
{
    kvf__history *to = &t->run.progress.history;
    if (from->n != t->run.progress.step)
        return kvf__fail(t->run.ctx, KVF_EFORMAT,
                         "%s: damaged: /history has %lld rows, /state has step %lld",
                         t->run.options.out, (long long)from->n, (long long)t->run.progress.step);
    size_t n = (size_t)from->n;
    if (!n) return KVF_OK;
    for (int i = 0; i < KVF__COLUMNS; i++)
        if (to->column[i] && from->column[i])
            memcpy(to->column[i], from->column[i],
                   n * kvf__dtype_block_bytes(kvf__columns[i].dtype));
    t->run.progress.train_loss = from->train_loss[n - 1];
    t->run.progress.valid_loss = from->valid_loss[n - 1];
    if (t->run.progress.best.params.n && t->run.progress.best.step > 0 &&
        t->run.progress.best.step <= from->n)
        t->run.progress.best.loss = from->valid_loss[t->run.progress.best.step - 1];
    return KVF_OK;
}

/* Moves the sampler to the run's step and compares it with the stored position. */
static kvf_status find_position(kvf__trainer *t, const kvf_json *state)
{
    const kvf__sampler *sampler = &t->rows.task->sampler;
    kvf__rows_seek(&t->run, &t->rows);
    if (kvf__tasks_are_named(&t->rows))
        return KVF_OK; /* drawn from seed and step, so nothing is stored */
    if (sampler->epoch == kvf_json_int(kvf_json_get(state, "epoch"), -1) &&
        sampler->at == kvf_json_int(kvf_json_get(state, "position_in_epoch"), -1))
        return KVF_OK;
    return kvf__fail(t->run.ctx, KVF_EFORMAT,
                     "%s: damaged: the data position in /state is not that of step %lld",
                     t->run.options.out, (long long)t->run.progress.step);
}

/* Copies the encoder's and the heads' values of a file into one list. */
static kvf_status copy_both(kvf__trainer *t, const char *group, const kvf__params *encoder,
                            const kvf__params *head, kvf__params *to)
{
    kvf__params parts[2];
    char what[32];
    split(t, to, &parts[0], &parts[1]);
    snprintf(what, sizeof what, "%s/encoder", group);
    KVF_TRY(copy_values(t, what, encoder, &parts[0]));
    snprintf(what, sizeof what, "%s/head", group);
    return copy_values(t, what, head, &parts[1]);
}

/* Drops the last value of the retention set. It is measured at the end of a run, and an
 * uninterrupted longer run would not have it. */
static void drop_last_reading(kvf__trainer *t)
{
    if (t->run.progress.history.retention_loss && t->run.progress.step &&
        !kvf__pace_is_due(&t->run, &t->rows, t->run.options.eval_every))
        t->run.progress.history.retention_loss[t->run.progress.step - 1] = NAN;
}

static kvf_status restore_best(kvf__trainer *t, const kvf__artifact *run)
{
    if (!kvf__run_has_best(run)) {
        t->run.progress.best.params.n = 0;
        return KVF_OK;
    }
    KVF_TRY(same_text(t, "metric", run->best_metric, metric_name(t)));
    t->run.progress.best.step = run->best_step;
    t->run.progress.best.value = t->run.progress.metric_value = run->best_value;
    return copy_both(t, "/best", &run->best.params, &run->best_head.params,
                     &t->run.progress.best.params);
}

kvf_status kvf__trainer_restore(kvf__trainer *t)
{
    const kvf__artifact *run = &t->run.output.resumed;
    KVF_TRY(check_same_inputs(t, run));
    t->run.progress.step = kvf_json_int(kvf_json_get(run->state, "step"), -1);
    t->run.progress.baselines = kvf__baselines_stored(run->lineage);
    t->run.progress.tokens = kvf_json_int(kvf_json_get(run->state, "tokens"), 0);
    t->stepper.adamw.t = kvf_json_int(kvf_json_get(run->state, "adamw_t"), 0);
    t->tuned.lr_k[0] = kvf_json_real(kvf_json_get(run->state, "lr_k"), 0);
    t->tuned.lr_k[1] = kvf_json_real(kvf_json_get(run->state, "lr_k_neurons"), 0);
    const bool scaled = t->tuned.lr_k[0] > 0 &&
                        (!t->run.id.neurons.N ||
                         (t->tuned.lr_k[1] > 0 && isfinite(t->tuned.lr_k[1])));
    if (t->run.progress.step < 0 || !(scaled || !t->run.progress.step))
        return kvf__fail(t->run.ctx, KVF_EFORMAT, "%s: damaged: /state has no valid step or lr_k",
                         t->run.options.out);
    t->stepper.skipped = kvf_json_int(kvf_json_get(run->state, "skipped_steps"), 0);
    t->run.progress.stale = kvf_json_int(kvf_json_get(run->state, "stale_validations"), 0);
    if (!t->tuned.state.n)
        KVF_TRY(kvf__prefix_set_state(t->run.ctx, &t->tuned.prefix, run->prefix.state,
                                      run->prefix.states));
    KVF_TRY(copy_both(t, "", &run->values.params, &run->head.params.params, &t->tuned.params));
    KVF_TRY(copy_values(t, "/optimizer/m", &run->m.params, &t->stepper.adamw.m));
    KVF_TRY(copy_values(t, "/optimizer/v", &run->v.params, &t->stepper.adamw.v));
    KVF_TRY(restore_best(t, run));
    KVF_TRY(copy_history(t, &run->history));
    KVF_TRY(find_position(t, run->state));
    drop_last_reading(t);
    return KVF_OK;
}

/* ---- the best state -------------------------------------------------------------------------- */

void kvf__trainer_swap_best(kvf__trainer *t)
{
    const kvf__params *best = &t->run.progress.best.params;
    for (size_t i = 0; i < best->n; i++) {
        float *a = t->tuned.params.item[i].value, *b = best->item[i].value;
        for (int64_t k = 0; k < best->item[i].n; k++) {
            const float value = a[k];
            a[k] = b[k];
            b[k] = value;
        }
    }
}
