/* The run file: everything that decides the next step goes in, nothing that depends on the clock or
 * the machine's place does. A run that is saved and resumed continues bit for bit as one that never
 * stopped. */
#include "train_int.h"

#include <string.h>

/* ---- saving ---------------------------------------------------------------------------------- */

static kvf_json *state_of(const kvf__trainer *t)
{
    kvf_json *state = kvf_json_object();
    kvf_json_set(state, "step", kvf_json_new_int(t->step));
    kvf_json_set(state, "tokens", kvf_json_new_int(t->tokens));
    kvf_json_set(state, "adamw_t", kvf_json_new_int(t->adamw.t));
    kvf_json_set(state, "epoch", kvf_json_new_int(t->sampler.epoch));
    kvf_json_set(state, "position_in_epoch", kvf_json_new_int(t->sampler.at));
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
    kvf_json_set(lineage, "threads", kvf_json_new_int(kvf_ctx_threads(t->ctx)));
    return lineage;
}

/* The file's view of the trainer; nothing but the three JSON objects is owned by it. */
static kvf_status view_run(kvf__trainer *t, kvf__run_file *run)
{
    run->id = t->id;
    run->layer_mask = t->prefix.layer_mask;
    run->encoder.params = *kvf__encoder_params(t->encoder);
    run->best.params = t->best;
    run->best_step = t->best_step;
    run->best_value = t->best_value;
    run->best_metric = t->best.n ? (char *)"valid_loss" : NULL;
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
    KVF_TRY(same_text(t, "data file", data, t->data.hash));
    return same_text(t, "validation file", valid, t->valid.n ? t->valid.hash : "");
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
    memcpy(to->step, from->step, n * sizeof *to->step);
    memcpy(to->tokens, from->tokens, n * sizeof *to->tokens);
    memcpy(to->train_loss, from->train_loss, n * sizeof *to->train_loss);
    memcpy(to->valid_loss, from->valid_loss, n * sizeof *to->valid_loss);
    memcpy(to->lr, from->lr, n * sizeof *to->lr);
    memcpy(to->grad_norm, from->grad_norm, n * sizeof *to->grad_norm);
    memcpy(to->prefix_norm, from->prefix_norm, n * sizeof *to->prefix_norm);
    t->train_loss = from->train_loss[n - 1];
    t->valid_loss = from->valid_loss[n - 1];
    return KVF_OK;
}

/* Walks the sampler to the run's step and compares with the stored position. */
static kvf_status find_position(kvf__trainer *t, const kvf_json *state)
{
    int64_t n;
    bool last = false;
    kvf__sampler_rewind(&t->sampler);
    for (int64_t step = 0; step < t->step; step++)
        kvf__sampler_next(&t->sampler, &n, &last);
    if (t->sampler.epoch == kvf_json_int(kvf_json_get(state, "epoch"), -1) &&
        t->sampler.at == kvf_json_int(kvf_json_get(state, "position_in_epoch"), -1))
        return KVF_OK;
    return kvf__fail(t->ctx, KVF_EFORMAT,
                     "%s: /state says another data position than step %lld has", t->options.out,
                     (long long)t->step);
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
    KVF_TRY(copy_values(t, "/encoder", &run->encoder.params, kvf__encoder_params(t->encoder)));
    if (run->m.params.n) {
        KVF_TRY(copy_values(t, "/optimizer/m", &run->m.params, &t->adamw.m));
        KVF_TRY(copy_values(t, "/optimizer/v", &run->v.params, &t->adamw.v));
    }
    if (run->best.params.n) {
        KVF_TRY(copy_values(t, "/best/encoder", &run->best.params, &t->best));
        t->best_step = run->best_step;
        t->best_value = run->best_value;
    } else {
        t->best.n = 0;
    }
    KVF_TRY(copy_history(t, &run->history));
    return find_position(t, run->state);
}
