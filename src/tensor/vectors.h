/* Virtual tokens: vectors that take the place of a token's embedding in a row, the value and the
 * gradient of port `embed` (Lester et al. 2021, Liu et al. 2021). As the prefix they have no batch
 * axis: every row reads the same memory, and a gradient is already summed over the rows.
 *
 * A row names virtual token p by the id -1 - p; no such id is ever a label. */
#ifndef KVF_VECTORS_H
#define KVF_VECTORS_H

#include "base_int.h"

typedef struct kvf__vectors {
    int64_t P, C;
    float *x; /* [P, C], owned */
} kvf__vectors;

/* Zeros. */
kvf_status kvf__vectors_init(kvf_ctx *ctx, kvf__vectors *out, int64_t P, int64_t C);
void kvf__vectors_done(kvf__vectors *vectors); /* {0} is fine */

static inline int32_t kvf__virtual_id(int64_t p)
{
    return (int32_t)(-1 - p);
}

/* Which virtual token an id < 0 names. */
static inline int64_t kvf__virtual_token(int32_t id)
{
    return -1 - (int64_t)id;
}

#endif
