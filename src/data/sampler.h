/* The order of steps (sampler.c). */
#ifndef KVF_SAMPLER_H
#define KVF_SAMPLER_H

#include "dataset.h"

/* Which rows form step s (0-based): epochs of the data set, each in an order of its groups that
 * depends on (seed, epoch) alone, cut into steps of batch_size groups (rows, where every row is
 * alone), or of at most batch_tokens tokens. The last step of an epoch may be shorter. */
typedef struct kvf__sampler {
    const kvf__dataset *dataset;
    bool shuffle;
    uint64_t seed;
    int64_t batch_size, batch_tokens; /* one of them is 0 */
    int64_t epoch, at;                /* next group within the epoch's order */
    int64_t n, *order;                /* [n] groups */
    int64_t *rows;                    /* [dataset rows] of the step; NULL: groups are rows */
    struct kvf__clusters *clusters;   /* --group-by prefix; NULL: off */
} kvf__sampler;
kvf_status kvf__sampler_init(kvf_ctx *ctx, kvf__sampler *sampler, const kvf__dataset *dataset,
                             bool shuffle, uint64_t seed, int64_t batch_size, int64_t batch_tokens);
/* --group-by prefix, to be called after init: groups whose first rows begin alike (at least half of
 * the shorter) come into the same steps, as far as these hold them. Every epoch still sees every
 * group once, in an order that depends on (seed, epoch) alone. */
kvf_status kvf__sampler_group_by_common(kvf_ctx *ctx, kvf__sampler *sampler);
void kvf__sampler_done(kvf__sampler *sampler);
void kvf__sampler_rewind(kvf__sampler *sampler); /* to step 0 */
/* Rows of the next step, those of a group in order: a view, valid until the next call. *last: this
 * step ends its epoch. */
const int64_t *kvf__sampler_next(kvf__sampler *sampler, int64_t *n, bool *last);

#endif
