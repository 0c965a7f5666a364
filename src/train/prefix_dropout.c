/* Prefix dropout: drops keys and values of the emitted prefix during training, between encoder and
 * base, and masks their gradients on the way back. By default one mask applies to all rows of a
 * step: the prefix has no batch axis, and common prefixes of rows stay shared. A mask for each row
 * is drawn inside the pass (pass_row_prefix.c). Both depend only on seed and step, so a resumed run
 * draws the same masks and nothing is stored. */
#include "tuned.h"

#include <string.h>

#define STEP_STREAM 0x70667374 /* "pfst" */

static bool has_one_mask(const kvf__run *run)
{
    return run->options.prefix_dropout > 0 && !run->options.prefix_dropout_per_row;
}

kvf_status kvf__dropout_alloc(const kvf__run *run, kvf__tuned *tuned)
{
    const kvf_train_options *o = &run->options;
    const kvf__desc *d = kvf__model_desc(run->base->model);
    const int64_t states = kvf__mixer_state_at(d, d->L);
    tuned->condition = (kvf__condition){.prefix = tuned->emitted.prefix,
                                        .vectors = tuned->emitted.vectors,
                                        .position_start = run->id.position_start};
    if (o->prefix_dropout > 0 && !tuned->emitted.prefix)
        return kvf__fail(run->ctx, KVF_EUSAGE, "--prefix-dropout: method %s trains no prefix",
                         run->method->name);
    tuned->row_dropout = (kvf__row_dropout){.p = o->prefix_dropout_per_row ? o->prefix_dropout : 0,
                                            .seed = o->seed};
    tuned->base_dropout = (kvf__row_dropout){.p = o->base_dropout, .seed = o->seed};
    if (!has_one_mask(run)) return KVF_OK;
    KVF_TRY(kvf__prefix_like(run->ctx, &tuned->masked, &tuned->prefix));
    KVF_TRY(kvf__prefix_take_weights(run->ctx, &tuned->masked, &tuned->prefix));
    if (states) KVF_TRY(kvf__prefix_zero_state(run->ctx, &tuned->masked, states));
    tuned->condition.prefix = &tuned->masked;
    return KVF_OK;
}

/* Sets `to` to `from` under the mask of the step. Both may be the same. */
static void mask(const kvf__run *run, kvf__prefix *to, const kvf__prefix *from)
{
    kvf__dropout dropout = kvf__dropout_make(run->options.prefix_dropout);
    kvf__rng stream = kvf__rng_make(run->options.seed,
                                    ((uint64_t)STEP_STREAM << 32) + (uint64_t)run->progress.step);

#pragma omp parallel for schedule(static)
    for (int64_t l = 0; l < from->L; l++) {
        const kvf__prefix_layer at = kvf__prefix_at(from, l);
        const int64_t first = at.k - from->kv;
        kvf__dropout_set(dropout, stream, first, to->kv + first, at.k, 2 * at.n);
    }
}

void kvf__dropout_fwd(const kvf__run *run, kvf__tuned *tuned)
{
    tuned->row_dropout.step = tuned->base_dropout.step = run->progress.step;
    if (!has_one_mask(run)) return;
    memcpy(tuned->masked.layer_mask, tuned->prefix.layer_mask, (size_t)tuned->prefix.L);
    kvf__neurons_take(&tuned->masked.neurons, &tuned->prefix.neurons);
    if (tuned->prefix.state)
        memcpy(tuned->masked.state, tuned->prefix.state,
               (size_t)tuned->prefix.states * sizeof(float));
    if (tuned->prefix.log_weight) /* neurons, states and log-weights are not dropped */
        memcpy(tuned->masked.log_weight, tuned->prefix.log_weight,
               kvf__prefix_weights(&tuned->prefix) * sizeof(float));
    mask(run, &tuned->masked, &tuned->prefix);
}

void kvf__dropout_bwd(const kvf__run *run, kvf__tuned *tuned)
{
    if (has_one_mask(run)) mask(run, &tuned->dprefix, &tuned->dprefix);
}
