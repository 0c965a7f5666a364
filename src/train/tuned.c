/* Forward from the trained parameters to the input of the base, and back:
 *
 *   forward    encoder -> prefix (-> low-rank task matrix) (-> dropout) = input of the base
 *   backward   its gradient (-> dropout) (-> low-rank task matrix) -> encoder -> parameters
 *
 * Depending on the method's port, vectors at the input replace the prefix, or (block) there is no
 * encoder and the values published by the base are updated. The encoder runs once each way,
 * whatever the number of parts of a step. */
#include "tuned.h"

#include <string.h>

static void clear_list(const kvf__params *params)
{
    for (size_t i = 0; params && i < params->n; i++)
        memset(params->item[i].grad, 0, (size_t)params->item[i].n * sizeof(float));
}

static void clear_gradients(const kvf__tuned *tuned, const kvf__train_rows *rows)
{
    const kvf__emitted *d = &tuned->gradient;
    if (d->prefix) memset(d->prefix->kv, 0, kvf__prefix_count(d->prefix) * sizeof(float));
    if (d->prefix && d->prefix->log_weight)
        memset(d->prefix->log_weight, 0, kvf__prefix_weights(d->prefix) * sizeof(float));
    if (d->prefix && d->prefix->state)
        memset(d->prefix->state, 0, (size_t)d->prefix->states * sizeof(float));
    if (d->prefix && d->prefix->neurons.w)
        memset(d->prefix->neurons.w, 0, kvf__neurons_count(&d->prefix->neurons) * sizeof(float));
    if (d->vectors)
        memset(d->vectors->x, 0, (size_t)(d->vectors->P * d->vectors->C) * sizeof(float));
    clear_list(tuned->base);
    for (size_t i = 0; i < rows->n; i++) {
        kvf__train_task *task = &rows->task[i];
        clear_list(kvf__task_head_params(task));
        if (task->low[0].value) clear_list(&(kvf__params){.n = 2, .item = task->low});
    }
}

/* ---- the list of parameters ------------------------------------------------------------------ */

bool kvf__log_weight_trained(const kvf__tuned *tuned)
{
    return tuned->log_weight.n && tuned->dprefix.log_weight;
}

size_t kvf__tuned_own_params(const kvf__tuned *tuned)
{
    return tuned->log_weight.n + tuned->state.n +
           (tuned->encoder ? kvf__encoder_params(tuned->encoder)->n : 0) +
           (tuned->base ? tuned->base->n : 0);
}

int64_t kvf__tuned_values(const kvf__tuned *tuned)
{
    const int64_t all = kvf__params_values(&tuned->params);
    return kvf__log_weight_trained(tuned) ? all : all - kvf__params_values(&tuned->log_weight);
}

static kvf_status list(kvf_ctx *ctx, const kvf__tuned *tuned, const kvf__train_rows *rows,
                       const kvf__params *log_weight, const kvf__params *encoder, kvf__params *out)
{
    out->n = 0;
    KVF_TRY(kvf__params_append(ctx, out, log_weight));
    KVF_TRY(kvf__params_append(ctx, out, &tuned->state));
    if (encoder) KVF_TRY(kvf__params_append(ctx, out, encoder));
    if (tuned->base) KVF_TRY(kvf__params_append(ctx, out, tuned->base));
    return kvf__tasks_list_params(ctx, rows, out);
}

kvf_status kvf__tuned_list(kvf_ctx *ctx, kvf__tuned *tuned, const kvf__train_rows *rows)
{
    const kvf__params *values = tuned->encoder ? kvf__encoder_params(tuned->encoder) : NULL;
    const kvf__params *steps = tuned->encoder ? kvf__encoder_steps(tuned->encoder) : NULL;
    const kvf__params none = {0};
    KVF_TRY(list(ctx, tuned, rows, &tuned->log_weight, values, &tuned->params));
    return list(ctx, tuned, rows, kvf__log_weight_trained(tuned) ? &tuned->log_weight : &none,
                steps, &tuned->steps);
}

kvf__subject kvf__tuned_subject(const kvf__tuned *tuned, const kvf__identity *id,
                                const kvf__train_task *task)
{
    return (kvf__subject){.condition.prefix = tuned->task_prefix.P ? &tuned->task_prefix
                                                                   : tuned->emitted.prefix,
                          .condition.vectors = tuned->emitted.vectors,
                          .condition.position_start = id->position_start,
                          .head = task->head};
}

/* ---- forward and backward -------------------------------------------------------------------- */

kvf_status kvf__tuned_emit(const kvf__run *run, kvf__tuned *tuned)
{
    const bool encodes = tuned->encoder && !kvf__ranks_follows(run->ranks);
    return encodes ? kvf__encoder_fwd(run->ctx, tuned->encoder, tuned->emitted) : KVF_OK;
}

void kvf__tuned_show(const kvf__run *run, kvf__tuned *tuned, const kvf__train_rows *rows)
{
    kvf__low_rank_task_fwd(tuned, rows->now);
    kvf__dropout_fwd(run, tuned);
    kvf__beside_fwd(run, tuned, rows);
    clear_gradients(tuned, rows);
}

kvf_status kvf__tuned_bwd(const kvf__run *run, kvf__tuned *tuned, const kvf__train_rows *rows)
{
    kvf__dropout_bwd(run, tuned);
    kvf__low_rank_task_bwd(tuned, rows->now);
    if (tuned->encoder) KVF_TRY(kvf__encoder_bwd(run->ctx, tuned->encoder, tuned->gradient));
    return kvf__tuned_list(run->ctx, tuned, rows);
}
