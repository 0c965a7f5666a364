/* Attention matching: P virtual tokens that answer as many more do. */
#ifndef KVF_MATCH_H
#define KVF_MATCH_H

#include "evaluator.h"

/* What is matched: keys and values that the base computed for tokens. */
typedef struct kvf__match_source {
    const kvf__prefix *kv;   /* of T tokens */
    const int32_t *position; /* [T] where each was read */
    int64_t start;           /* rows behind them begin here */
} kvf__match_source;

/* Fills *out: of every layer and key head P of the source's keys, and the values with which they
 * answer the labelled positions of the rows as the whole source does. Rows behind it begin at
 * `start`: if that is not the source's, keys with rope are turned to the P positions before it,
 * otherwise they stay at their own. */
kvf_status kvf__match(kvf_ctx *ctx, kvf_base *base, const kvf__match_source *source,
                      const kvf__dataset *rows, int64_t start, kvf__prefix *out);

#endif
