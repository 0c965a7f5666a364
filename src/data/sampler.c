/* The order of steps. An epoch's order depends on (seed, epoch) alone, so any step can be found
 * again by walking from the start without touching data: that is all that resume needs. */
#include "data_int.h"

#define SHUFFLE_STREAM                                                                             \
    0x73687566 /* "shuf": keeps this stream apart from those of the encoder's initialisation */

static void begin_epoch(kvf__sampler *sampler)
{
    for (int64_t i = 0; i < sampler->dataset->n; i++)
        sampler->order[i] = i;
    sampler->at = 0;
    if (!sampler->shuffle) return;
    kvf__rng rng = kvf__rng_make(sampler->seed,
                                 ((uint64_t)SHUFFLE_STREAM << 32) + (uint64_t)sampler->epoch);
    kvf__rng_shuffle(&rng, sampler->order, (size_t)sampler->dataset->n);
}

kvf_status kvf__sampler_init(kvf_ctx *ctx, kvf__sampler *sampler, const kvf__dataset *dataset,
                             bool shuffle, uint64_t seed, int64_t batch_size, int64_t batch_tokens)
{
    kvf__sampler s = {.dataset = dataset,
                      .shuffle = shuffle,
                      .seed = seed,
                      .batch_size = batch_size,
                      .batch_tokens = batch_tokens};
    KVF_TRY(kvf__alloc_array(ctx, (size_t)dataset->n, sizeof *s.order, &s.order));
    *sampler = s;
    begin_epoch(sampler);
    return KVF_OK;
}

void kvf__sampler_done(kvf__sampler *sampler)
{
    kvf__free(sampler->order);
    *sampler = (kvf__sampler){0};
}

void kvf__sampler_rewind(kvf__sampler *sampler)
{
    sampler->epoch = 0;
    begin_epoch(sampler);
}

/* Rows of the step that begins at `at`: at least one. */
static int64_t step_rows(const kvf__sampler *sampler)
{
    int64_t left = sampler->dataset->n - sampler->at;
    if (!sampler->batch_tokens) return left < sampler->batch_size ? left : sampler->batch_size;
    int64_t n = 0, tokens = 0;
    while (n < left) {
        tokens += kvf__example_length(sampler->dataset, sampler->order[sampler->at + n]);
        if (n && tokens > sampler->batch_tokens) break;
        n++;
    }
    return n;
}

const int64_t *kvf__sampler_next(kvf__sampler *sampler, int64_t *n, bool *last)
{
    if (sampler->at == sampler->dataset->n) {
        sampler->epoch++;
        begin_epoch(sampler);
    }
    *n = step_rows(sampler);
    const int64_t *examples = sampler->order + sampler->at;
    sampler->at += *n;
    *last = sampler->at == sampler->dataset->n;
    return examples;
}
