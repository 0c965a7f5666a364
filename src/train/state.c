/* The run file: everything that decides the next step goes in, nothing that depends on the clock or
 * the machine's place does. A run that is saved and resumed continues bit for bit as one that never
 * stopped. */
#include "train_int.h"

#include <math.h>
#include <string.h>

/* ---- saving ---------------------------------------------------------------------------------- */

/* Losses are those of validation; other metrics are called by their own names. */
static const char *metric_name(const kvf__trainer *t)
{
    return strcmp(t->metric->name, "loss") ? t->metric->name : "valid_loss";
}

static kvf_json *state_of(const kvf__trainer *t)
{
    kvf_json *state = kvf_json_object();
    kvf_json_set(state, "step", kvf_json_new_int(t->step));
    kvf_json_set(state, "tokens", kvf_json_new_int(t->tokens));
    kvf_json_set(state, "adamw_t", kvf_json_new_int(t->adamw.t));
    kvf_json_set(state, "epoch", kvf_json_new_int(t->sampler.epoch));
    kvf_json_set(state, "position_in_epoch", kvf_json_new_int(t->sampler.at));
    if (t->skipped) kvf_json_set(state, "skipped_steps", kvf_json_new_int(t->skipped));
    kvf_json_set(state, "stale_validations", kvf_json_new_int(t->stale));
    kvf_json_set(state, "lr_k", kvf_json_new_real(t->lr_k));
    kvf_json_set(state, "schedule_length", kvf_json_new_int(t->schedule.length));
    kvf_json_set(state, "schedule_warmup", kvf_json_new_int(t->schedule.warmup));
    return state;
}

static kvf_json *lineage_of(const kvf__trainer *t)
{
    kvf_json *lineage = kvf_json_object();
    kvf_json_set(lineage, "data_hash", kvf_json_new_str(t->data.hash));
    kvf_json_set(lineage, "data_examples", kvf_json_new_int(t->data.n));
    kvf_json_set(lineage, "data_label_tokens", kvf_json_new_int(t->data.n_labels));
    if (t->valid.n) {
        kvf_json_set(lineage, "valid_hash", kvf_json_new_str(t->valid.hash));
        kvf_json_set(lineage, "valid_examples", kvf_json_new_int(t->valid.n));
    }
    if (t->task == KVF__TASK_QA)
        kvf_json_set(lineage, "data_no_answers", kvf_json_new_bool(kvf__has_impossible(&t->data)));
    kvf_json_set(lineage, "threads", kvf_json_new_int(kvf_ctx_threads(t->ctx)));
    if (t->ranks) kvf_json_set(lineage, "ranks", kvf_json_new_int(kvf__ranks_size(t)));
    kvf__retention_lineage(t, lineage);
    if (t->feed) t->feed->lineage(t->feed->user, lineage);
    return lineage;
}

/* Views of a list that begins with the encoder's parameters: those, and the head's. */
static void split(const kvf__trainer *t, const kvf__params *all, kvf__params *encoder,
                  kvf__params *head)
{
    size_t n = kvf__trainer_own_params(t);
    if (n > all->n) n = all->n;
    *encoder = (kvf__params){.n = n, .item = all->item};
    *head = (kvf__params){.n = all->n - n, .item = n < all->n ? all->item + n : NULL};
}

/* The file's view of the trainer; nothing but the three JSON objects is owned by it. */
static kvf_status view_run(kvf__trainer *t, kvf__run_file *run)
{
    run->id = t->id;
    run->layer_mask = t->layer_mask;
    split(t, &t->params, &run->encoder.params, &run->head.params.params);
    if (t->n_jobs) KVF_TRY(kvf__jobs_describe(t, &run->head));
    run->head.labels = t->data.names.names;
    run->head.n_labels = t->data.names.n;
    run->head.words = t->words;
    run->head.regression = t->data.regression;
    split(t, &t->best, &run->best.params, &run->best_head.params);
    run->best_step = t->best_step;
    run->best_value = t->best_value;
    run->best_metric = t->best.n ? (char *)metric_name(t) : NULL;
    run->m.params = t->adamw.m;
    run->v.params = t->adamw.v;
    run->history = t->history;
    run->history.n = t->step;
    run->state = state_of(t);
    run->lineage = lineage_of(t);
    return kvf__train_options_store(t->ctx, &t->options, &run->options);
}

kvf_status kvf__trainer_save(kvf__trainer *t, bool force)
{
    kvf__run_file run = {0};
    kvf_status st = view_run(t, &run);
    if (!st) st = kvf__run_file_write(t->ctx, t->options.out, force, &run);
    kvf__free(run.head.tasks);
    kvf_json_free(run.state);
    kvf_json_free(run.lineage);
    kvf_json_free(run.options);
    return st;
}

/* ---- restoring ------------------------------------------------------------------------------- */

static kvf_status same_text(kvf__trainer *t, const char *what, const char *found, const char *want)
{
    if (!strcmp(found ? found : "", want)) return KVF_OK;
    return kvf__fail(
        t->ctx, KVF_EMISMATCH,
        "%s: the run was created with another %s (%s, now %s); --resume cannot change it",
        t->options.out, what, found && *found ? found : "none", *want ? want : "none");
}

static kvf_status check_same_inputs(kvf__trainer *t, const kvf__run_file *run)
{
    const char *data = kvf_json_str(kvf_json_get(run->lineage, "data_hash"), NULL);
    const char *valid = kvf_json_str(kvf_json_get(run->lineage, "valid_hash"), NULL);
    KVF_TRY(same_text(t, "base", run->id.base_hash, t->base->hash));
    KVF_TRY(kvf__jobs_same(t, &run->head));
    KVF_TRY(same_text(t, "data file", data, t->data.hash));
    KVF_TRY(same_text(t, "validation file", valid, t->valid.n ? t->valid.hash : ""));
    const char *retention = kvf_json_str(kvf_json_get(run->lineage, "meter_hash"), NULL);
    return same_text(t, "meter file", retention, kvf__retention_hash(t));
}

static kvf_status copy_values(kvf__trainer *t, const char *what, const kvf__params *from,
                              kvf__params *to)
{
    for (size_t i = 0; i < to->n; i++) {
        if (i >= from->n || strcmp(from->item[i].name, to->item[i].name) ||
            from->item[i].n != to->item[i].n)
            return kvf__fail(t->ctx, KVF_EFORMAT, "%s: %s/%s is missing or has another shape",
                             t->options.out, what, to->item[i].name);
        memcpy(to->item[i].value, from->item[i].value, (size_t)to->item[i].n * sizeof(float));
    }
    return KVF_OK;
}

static kvf_status copy_history(kvf__trainer *t, const kvf__history *from)
{
    kvf__history *to = &t->history;
    if (from->n != t->step)
        return kvf__fail(t->ctx, KVF_EFORMAT, "%s: /history has %lld rows, /state says step %lld",
                         t->options.out, (long long)from->n, (long long)t->step);
    size_t n = (size_t)from->n;
    if (!n) return KVF_OK;
    for (int i = 0; i < KVF__COLUMNS; i++)
        if (to->column[i] && from->column[i])
            memcpy(to->column[i], from->column[i],
                   n * kvf__dtype_block_bytes(kvf__columns[i].dtype));
    t->train_loss = from->train_loss[n - 1];
    t->valid_loss = from->valid_loss[n - 1];
    if (t->best.n && t->best_step > 0 && t->best_step <= from->n)
        t->best_loss = from->valid_loss[t->best_step - 1];
    return KVF_OK;
}

/* Walks the sampler to the run's step and compares with the stored position. */
static kvf_status find_position(kvf__trainer *t, const kvf_json *state)
{
    int64_t n;
    if (t->n_jobs) return KVF_OK; /* drawn from seed and step: nothing is stored */
    kvf__sampler_rewind(&t->sampler);
    for (int64_t step = 0; step < t->step; step++)
        kvf__sampler_next(&t->sampler, &n, &t->epoch_end);
    if (t->sampler.epoch == kvf_json_int(kvf_json_get(state, "epoch"), -1) &&
        t->sampler.at == kvf_json_int(kvf_json_get(state, "position_in_epoch"), -1))
        return KVF_OK;
    return kvf__fail(t->ctx, KVF_EFORMAT,
                     "%s: /state says another data position than step %lld has", t->options.out,
                     (long long)t->step);
}

/* The file's parts, one after the other, into the list that holds both. */
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

/* The retention set, which decides nothing, is read at the end too: where that is the end no more,
 * the run that never stopped has no such reading. */
static void drop_last_reading(kvf__trainer *t)
{
    if (t->history.meter_loss && t->step && !kvf__trainer_is_due(t, t->options.eval_every))
        t->history.meter_loss[t->step - 1] = NAN;
}

static kvf_status restore_best(kvf__trainer *t, const kvf__run_file *run)
{
    if (!run->best.params.n) {
        t->best.n = 0;
        return KVF_OK;
    }
    KVF_TRY(same_text(t, "metric", run->best_metric, metric_name(t)));
    t->best_step = run->best_step;
    t->best_value = t->metric_value = run->best_value;
    return copy_both(t, "/best", &run->best.params, &run->best_head.params, &t->best);
}

kvf_status kvf__trainer_restore(kvf__trainer *t)
{
    const kvf__run_file *run = &t->resumed;
    KVF_TRY(check_same_inputs(t, run));
    t->step = kvf_json_int(kvf_json_get(run->state, "step"), -1);
    t->tokens = kvf_json_int(kvf_json_get(run->state, "tokens"), 0);
    t->adamw.t = kvf_json_int(kvf_json_get(run->state, "adamw_t"), t->step);
    t->lr_k = kvf_json_real(kvf_json_get(run->state, "lr_k"), 0);
    if (t->step < 0 || !(t->lr_k > 0 || !t->step))
        return kvf__fail(t->ctx, KVF_EFORMAT, "%s: /state has no usable step or lr_k",
                         t->options.out);
    t->skipped = kvf_json_int(kvf_json_get(run->state, "skipped_steps"), 0);
    t->stale = kvf_json_int(kvf_json_get(run->state, "stale_validations"), 0);
    KVF_TRY(copy_both(t, "", &run->encoder.params, &run->head.params.params, &t->params));
    if (run->m.params.n) {
        KVF_TRY(copy_values(t, "/optimizer/m", &run->m.params, &t->adamw.m));
        KVF_TRY(copy_values(t, "/optimizer/v", &run->v.params, &t->adamw.v));
    }
    KVF_TRY(restore_best(t, run));
    KVF_TRY(copy_history(t, &run->history));
    KVF_TRY(find_position(t, run->state));
    drop_last_reading(t);
    return KVF_OK;
}
