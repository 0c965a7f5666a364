/* Several processes that train one run: who they are, and how bytes and sums get from one to
 * another. Rank 0 leads: what is broadcast is its, what is gathered or summed is for it.
 *
 * Sums are added along a tree that the number of ranks alone decides, each node its own value first
 * and then its children's in order, so their bits do not depend on when something arrives. They do
 * depend on the number of ranks. Everything is called by one thread of each rank, in the same order
 * on all of them. */
#ifndef KVF_DIST_INT_H
#define KVF_DIST_INT_H

#include "base_int.h"

typedef struct kvf__dist {
    int rank, size;
    double waited; /* seconds spent waiting for other ranks, in all calls so far */
    bool broken;   /* another rank has gone, or this one cannot do its part any more */
    struct kvf__links *links;
} kvf__dist;

/* *out stays NULL where nobody started this process together with others. EUNSUPPORTED: somebody
 * did, but this build has no MPI, or not the one of that launcher. The context owns it: the
 * processes stay connected until that is freed, so that all have printed their messages before
 * one exits. */
kvf_status kvf__dist_join(kvf_ctx *ctx, kvf__dist **out);
/* What a context has joined already; NULL: nothing. */
const kvf__dist *kvf__dist_joined(const kvf_ctx *ctx);
/* The machine a rank runs on, for messages. */
const char *kvf__dist_host(const kvf__dist *dist, int rank);

/* All of these: EIO where another rank has gone or cannot be reached, after which nothing works any
 * more, and this process ends the others when its context is freed. */

/* data of rank 0 to all. */
kvf_status kvf__dist_broadcast(kvf_ctx *ctx, kvf__dist *dist, void *data, size_t bytes);
/* all [size, bytes], on rank 0 alone (elsewhere NULL) = mine of each rank, in their order. */
kvf_status kvf__dist_gather(kvf_ctx *ctx, kvf__dist *dist, const void *mine, size_t bytes,
                            void *all);

/* Sums to rank 0, while something else is computed: begin states that x [n] is ready and stays as
 * it is until the end; push moves what can be moved without waiting; end waits for all that has
 * begun, in which x has become the sum on rank 0 and means nothing elsewhere. All ranks begin the
 * same sums in the same order. What fails before is reported by end. */
void kvf__dist_sum_begin(kvf__dist *dist, float *x, int64_t n);
void kvf__dist_sum_push(kvf__dist *dist);
kvf_status kvf__dist_sum_end(kvf_ctx *ctx, kvf__dist *dist);

#endif
