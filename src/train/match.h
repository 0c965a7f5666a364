/* Attention matching: P virtual tokens that approximate the effect of many more. */
#ifndef KVF_MATCH_H
#define KVF_MATCH_H

#include "evaluator.h"

/* The keys and values to match, computed by the base for T tokens. */
typedef struct kvf__match_source {
    const kvf__prefix *kv;   /* of T tokens */
    const int32_t *position; /* [T] positions at which they were read */
    int64_t start;           /* first position of the rows after them */
} kvf__match_source;

/* Fills *out. For every layer and key head it selects P of the source's keys. It solves for values
 * that give the labelled positions of the rows the same attention output as the whole source. Rows
 * after the prefix begin at `start`. If the source's rows begin elsewhere, keys with rope are
 * rotated to the P positions before `start`; other keys keep their positions. */
kvf_status kvf__match(kvf_ctx *ctx, kvf_base *base, const kvf__match_source *source,
                      const kvf__dataset *rows, int64_t start, kvf__prefix *out);

#endif
