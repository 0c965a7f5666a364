/* Batches of an evaluator, divided among ranks: rank i % size computes batch i. */
#ifndef KVF_SHARED_H
#define KVF_SHARED_H

#include "dist_int.h"

typedef struct kvf__shared kvf__shared;
kvf_status kvf__shared_create(kvf_ctx *ctx, kvf__dist *dist, int64_t batches, kvf__shared **out);
void kvf__shared_free(kvf__shared *shared);
void kvf__shared_give_up(kvf__shared *shared);
bool kvf__shared_helps(const kvf__shared *shared); /* true on ranks other than 0 */
bool kvf__shared_owns(const kvf__shared *shared, int64_t batch);
void kvf__shared_put(kvf__shared *shared, int64_t batch, double sum, int64_t terms);
/* Combines all ranks, each with its status. On rank 0 *sum and *terms become those of all batches,
 * added in batch order, and each [n], zero for batches of other ranks, becomes complete. Rank 0
 * returns the first failure of any rank. */
kvf_status kvf__shared_end(kvf_ctx *ctx, kvf__shared *shared, kvf_status status, float *each,
                           int64_t n, double *sum, int64_t *terms);

#endif
