/* From parameters to what the base sees, and back:
 *
 *   forward    encoder -> prefix (-> the task's share of it) (-> dropout) = what the base sees
 *   backward   its gradient (-> dropout) (-> the task's share) -> encoder -> parameters
 *
 * or, by the method's port, with vectors at the input in place of the prefix, or (block) without an
 * encoder: what the base itself publishes is stepped. The encoder runs once each way, whatever the
 * number of parts of a step. */
#include "trainer.h"

#include <string.h>

static void clear_list(const kvf__params *params)
{
    for (size_t i = 0; params && i < params->n; i++)
        memset(params->item[i].grad, 0, (size_t)params->item[i].n * sizeof(float));
}

static void clear_gradients(kvf__trainer *t)
{
    const kvf__emitted *d = &t->tuned.gradient;
    if (d->prefix) memset(d->prefix->kv, 0, kvf__prefix_count(d->prefix) * sizeof(float));
    if (d->prefix && d->prefix->log_weight)
        memset(d->prefix->log_weight, 0, kvf__prefix_weights(d->prefix) * sizeof(float));
    if (d->vectors)
        memset(d->vectors->x, 0, (size_t)(d->vectors->P * d->vectors->C) * sizeof(float));
    clear_list(t->tuned.base);
    for (size_t i = 0; i < t->rows.n; i++) {
        kvf__train_task *task = &t->rows.task[i];
        clear_list(kvf__task_head_params(task));
        if (task->low[0].value) clear_list(&(kvf__params){.n = 2, .item = task->low});
    }
}

/* Processes that follow have got the value from the first one. */
kvf_status kvf__tuned_fwd(kvf__trainer *t)
{
    kvf__tuned *tuned = &t->tuned;
    const bool encodes = tuned->encoder && !kvf__ranks_follows(t);
    if (encodes) KVF_TRY(kvf__encoder_fwd(t->ctx, tuned->encoder, tuned->emitted));
    KVF_TRY(kvf__ranks_send(t));
    kvf__low_rank_task_fwd(t, t->rows.now);
    kvf__dropout_fwd(t);
    clear_gradients(t);
    kvf__step_lap(t, KVF__STEP_ENCODER);
    return KVF_OK;
}

kvf_status kvf__tuned_bwd(kvf__trainer *t)
{
    kvf__dropout_bwd(t);
    kvf__low_rank_task_bwd(t, t->rows.now);
    if (t->tuned.encoder) KVF_TRY(kvf__encoder_bwd(t->ctx, t->tuned.encoder, t->tuned.gradient));
    KVF_TRY(kvf__trainer_list_params(t));
    kvf__step_lap(t, KVF__STEP_ENCODER_BWD);
    return KVF_OK;
}
