/* Prefix dropout: keys and values of the emitted prefix are dropped while training, between encoder
 * and base, and their gradients on the way back.
 *
 * One mask for all rows of a step is the default: the prefix keeps having no batch axis, and common
 * prefixes stay shared. A mask for each row is drawn inside the pass (pass_row_prefix.c). Either
 * depends on seed and step alone, so a resumed run draws what an unbroken one does, and nothing is
 * stored. */
#include "trainer.h"

#include <string.h>

#define STEP_STREAM 0x70667374 /* "pfst" */

static bool has_one_mask(const kvf__trainer *t)
{
    return t->options.prefix_dropout > 0 && !t->options.prefix_dropout_per_row;
}

kvf_status kvf__dropout_alloc(kvf__trainer *t)
{
    const kvf_train_options *o = &t->options;
    t->tuned.condition = (kvf__condition){.prefix = t->tuned.emitted.prefix,
                                          .vectors = t->tuned.emitted.vectors,
                                          .position_start = t->id.position_start};
    if (o->prefix_dropout > 0 && !t->tuned.emitted.prefix)
        return kvf__fail(t->ctx, KVF_EUSAGE, "--prefix-dropout: method %s trains no prefix",
                         t->tuned.method->name);
    t->tuned.row_dropout = (kvf__row_dropout){
        .p = o->prefix_dropout_per_row ? o->prefix_dropout : 0, .seed = o->seed};
    t->tuned.base_dropout = (kvf__row_dropout){.p = o->base_dropout, .seed = o->seed};
    if (!has_one_mask(t)) return KVF_OK;
    KVF_TRY(kvf__prefix_like(t->ctx, &t->tuned.masked, &t->tuned.prefix));
    KVF_TRY(kvf__prefix_take_weights(t->ctx, &t->tuned.masked, &t->tuned.prefix));
    t->tuned.condition.prefix = &t->tuned.masked;
    return KVF_OK;
}

/* to = from under the mask of the step; both may be one. */
static void mask(const kvf__trainer *t, kvf__prefix *to, const kvf__prefix *from)
{
    kvf__dropout dropout = kvf__dropout_make(t->options.prefix_dropout);
    kvf__rng stream = kvf__rng_make(t->options.seed,
                                    ((uint64_t)STEP_STREAM << 32) + (uint64_t)t->progress.step);

#pragma omp parallel for schedule(static)
    for (int64_t l = 0; l < from->L; l++) {
        const kvf__prefix_layer at = kvf__prefix_at(from, l);
        const int64_t first = at.k - from->kv;
        kvf__dropout_set(dropout, stream, first, to->kv + first, at.k, 2 * at.n);
    }
}

void kvf__dropout_fwd(kvf__trainer *t)
{
    t->tuned.row_dropout.step = t->tuned.base_dropout.step = t->progress.step;
    if (!has_one_mask(t)) return;
    memcpy(t->tuned.masked.layer_mask, t->tuned.prefix.layer_mask, (size_t)t->tuned.prefix.L);
    if (t->tuned.prefix.log_weight) /* not dropped: they are no part of keys or values */
        memcpy(t->tuned.masked.log_weight, t->tuned.prefix.log_weight,
               kvf__prefix_weights(&t->tuned.prefix) * sizeof(float));
    mask(t, &t->tuned.masked, &t->tuned.prefix);
}

void kvf__dropout_bwd(kvf__trainer *t)
{
    if (has_one_mask(t)) mask(t, &t->tuned.dprefix, &t->tuned.dprefix);
}
