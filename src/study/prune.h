/* Scores of virtual tokens by one pass over data, there and back (prune_score.c). */
#ifndef KVF_PRUNE_H
#define KVF_PRUNE_H

#include "evaluation.h"

typedef struct kvf__prune_data {
    kvf_ctx *ctx;
    kvf_base *base; /* opened for the backward pass */
    const kvf__dataset *set;
    const kvf__subject
        *subject; /* its prefix is what is scored; an lm head has room for a gradient */
    int64_t batch_tokens;
} kvf__prune_data;

/* score [P]: |gradient x value| of the mean loss, summed over all places of a token. */
kvf_status kvf__prune_gradient(const kvf__prune_data *data, double *score);

#endif
