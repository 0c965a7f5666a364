/* Virtual tokens: vectors that replace a token's embedding in a row, the value and gradient of port
 * `embed` (Lester et al. 2021, Liu et al. 2021). Like the prefix they have no batch axis: every row
 * uses the same memory, and a gradient is already summed over rows.
 *
 * The id -1 - p in a row denotes virtual token p; such an id is never a label. */
#ifndef KVF_VECTORS_H
#define KVF_VECTORS_H

#include "base_int.h"

typedef struct kvf__vectors {
    int64_t P, C;
    float *x; /* [P, C], owned */
} kvf__vectors;

/* Allocates zeros. */
kvf_status kvf__vectors_init(kvf_ctx *ctx, kvf__vectors *out, int64_t P, int64_t C);
void kvf__vectors_done(kvf__vectors *vectors); /* {0} is allowed */

static inline int32_t kvf__virtual_id(int64_t p)
{
    return (int32_t)(-1 - p);
}

/* Returns the virtual token of an id < 0. */
static inline int64_t kvf__virtual_token(int32_t id)
{
    return -1 - (int64_t)id;
}

#endif
