/* The order of steps. An epoch's order depends on (seed, epoch) alone. On resume any step is found
 * again by walking from the start, without touching data. Groups are ordered; a step lists their
 * rows. */
#include "sampler.h"
#include "clusters.h"

#define SHUFFLE_STREAM                                                                             \
    0x73687566 /* "shuf": separates this stream from those of encoder initialisation */

static void begin_epoch(kvf__sampler *sampler)
{
    kvf__rng rng = kvf__rng_make(sampler->seed,
                                 ((uint64_t)SHUFFLE_STREAM << 32) + (uint64_t)sampler->epoch);
    sampler->at = 0;
    if (sampler->clusters) {
        kvf__clusters_order(sampler->clusters, sampler->shuffle ? &rng : NULL, sampler->batch_size,
                            sampler->order);
        return;
    }
    for (int64_t i = 0; i < sampler->n; i++)
        sampler->order[i] = i;
    if (sampler->shuffle) kvf__rng_shuffle(&rng, sampler->order, (size_t)sampler->n);
}

kvf_status kvf__sampler_init(kvf_ctx *ctx, kvf__sampler *sampler, const kvf__dataset *dataset,
                             bool shuffle, uint64_t seed, int64_t batch_size, int64_t batch_tokens)
{
    kvf__sampler s = {.dataset = dataset,
                      .shuffle = shuffle,
                      .seed = seed,
                      .batch_size = batch_size,
                      .batch_tokens = batch_tokens,
                      .n = kvf__group_count(dataset)};
    KVF_TRY(kvf__alloc_array(ctx, (size_t)s.n, sizeof *s.order, &s.order));
    if (dataset->group) {
        kvf_status st = kvf__alloc_array(ctx, (size_t)dataset->n, sizeof *s.rows, &s.rows);
        if (st) kvf__free(s.order);
        KVF_TRY(st);
    }
    *sampler = s;
    begin_epoch(sampler);
    return KVF_OK;
}

kvf_status kvf__sampler_group_by_common(kvf_ctx *ctx, kvf__sampler *sampler)
{
    KVF_TRY(kvf__clusters_create(ctx, sampler->dataset, &sampler->clusters));
    kvf__sampler_rewind(sampler);
    return KVF_OK;
}

void kvf__sampler_done(kvf__sampler *sampler)
{
    kvf__free(sampler->order);
    kvf__free(sampler->rows);
    kvf__free(sampler->clusters);
    *sampler = (kvf__sampler){0};
}

void kvf__sampler_rewind(kvf__sampler *sampler)
{
    sampler->epoch = 0;
    begin_epoch(sampler);
}

static int64_t group_tokens(const kvf__dataset *dataset, int64_t group)
{
    const int64_t *rows = dataset->group;
    return rows ? dataset->start[rows[group + 1]] - dataset->start[rows[group]]
                : kvf__example_length(dataset, group);
}

/* Returns the number of groups in the step that begins at `at`, at least one. */
static int64_t step_groups(const kvf__sampler *sampler)
{
    int64_t left = sampler->n - sampler->at;
    if (!sampler->batch_tokens) return left < sampler->batch_size ? left : sampler->batch_size;
    int64_t n = 0, tokens = 0;
    while (n < left) {
        tokens += group_tokens(sampler->dataset, sampler->order[sampler->at + n]);
        if (n && tokens > sampler->batch_tokens) break;
        n++;
    }
    return n;
}

/* Lists the rows of n groups; returns their number. */
static int64_t list_rows(kvf__sampler *sampler, const int64_t *groups, int64_t n)
{
    int64_t rows = 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t r = sampler->dataset->group[groups[i]];
             r < sampler->dataset->group[groups[i] + 1]; r++)
            sampler->rows[rows++] = r;
    return rows;
}

const int64_t *kvf__sampler_next(kvf__sampler *sampler, int64_t *n, bool *last)
{
    if (sampler->at == sampler->n) {
        sampler->epoch++;
        begin_epoch(sampler);
    }
    *n = step_groups(sampler);
    const int64_t *groups = sampler->order + sampler->at;
    sampler->at += *n;
    *last = sampler->at == sampler->n;
    if (!sampler->rows) return groups;
    *n = list_rows(sampler, groups, *n);
    return sampler->rows;
}
