/* The order of steps (sampler.c). */
#ifndef KVF_SAMPLER_H
#define KVF_SAMPLER_H

#include "dataset.h"

/* The rows of each step. Every epoch has an order of the groups that depends on (seed, epoch)
 * alone. The order is cut into steps of batch_size groups, or of at most batch_tokens tokens. The
 * last step of an epoch may be shorter. Without groups, every row is a group. */
typedef struct kvf__sampler {
    const kvf__dataset *dataset;
    bool shuffle;
    uint64_t seed;
    int64_t batch_size, batch_tokens; /* one of them is 0 */
    int64_t epoch, at;                /* next group within the epoch's order */
    int64_t n, *order;                /* [n] groups in the epoch's order */
    int64_t *rows;                    /* [dataset rows] rows of the step; NULL: groups are rows */
    struct kvf__clusters *clusters;   /* --group-by prefix; NULL: off */
} kvf__sampler;
kvf_status kvf__sampler_init(kvf_ctx *ctx, kvf__sampler *sampler, const kvf__dataset *dataset,
                             bool shuffle, uint64_t seed, int64_t batch_size, int64_t batch_tokens);
/* Turns on --group-by prefix; call it after init. Groups whose first rows share at least half of
 * the shorter beginning go to the same steps, as far as they fit. Every epoch still contains every
 * group once, in an order that depends on (seed, epoch) alone. */
kvf_status kvf__sampler_group_by_common(kvf_ctx *ctx, kvf__sampler *sampler);
void kvf__sampler_done(kvf__sampler *sampler);
void kvf__sampler_rewind(kvf__sampler *sampler); /* back to step 0 */
/* Returns the rows of the next step, in order within each group: a view, valid until the next call.
 * *last: the step ends its epoch. */
const int64_t *kvf__sampler_next(kvf__sampler *sampler, int64_t *n, bool *last);

#endif
