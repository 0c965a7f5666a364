/* Several processes that train one run: ranks, and transfer of bytes and sums between them. Rank 0
 * is the root of broadcasts, gathers and sums.
 *
 * Sums are added along a tree that depends on the number of ranks only. Each node adds its
 * children's values to its own in order, so the bits do not depend on arrival times, but on the
 * number of ranks. One thread of each rank makes all calls, in the same order on all ranks. */
#ifndef KVF_DIST_INT_H
#define KVF_DIST_INT_H

#include "base_int.h"

typedef struct kvf__dist {
    int rank, size;
    double waited; /* seconds spent waiting for other ranks in all calls */
    bool broken;   /* another rank is gone, or this one cannot continue */
    struct kvf__links *links;
} kvf__dist;

/* Joins the processes of a launch. *out stays NULL for a process started alone. EUNSUPPORTED:
 * started with others, but the module kvfold-mpi.so is not found, or its MPI is not the launcher's.
 * The context owns *out, and the processes stay connected until it is freed, so that all have
 * printed their messages before one exits. */
kvf_status kvf__dist_join(kvf_ctx *ctx, kvf__dist **out);
/* Returns the connection that a context has joined; NULL: none. */
const kvf__dist *kvf__dist_joined(const kvf_ctx *ctx);
/* Returns the host name of a rank, for messages. */
const char *kvf__dist_host(const kvf__dist *dist, int rank);

/* All of these return EIO if another rank is gone or unreachable. The connection is then broken,
 * and this process ends the others when its context is freed. */

/* Sends data of rank 0 to all ranks. */
kvf_status kvf__dist_broadcast(kvf_ctx *ctx, kvf__dist *dist, void *data, size_t bytes);
/* Collects `mine` of each rank in `all` [size, bytes] on rank 0; all is NULL on the others. */
kvf_status kvf__dist_gather(kvf_ctx *ctx, kvf__dist *dist, const void *mine, size_t bytes,
                            void *all);

/* Sums to rank 0 that run during other computation. begin: x [n] is ready and must not change until
 * end. push: moves data without waiting. end: waits for all sums; x is then the sum on rank 0 and
 * undefined elsewhere. All ranks begin the same sums in the same order. end reports earlier
 * failures. */
void kvf__dist_sum_begin(kvf__dist *dist, float *x, int64_t n);
void kvf__dist_sum_push(kvf__dist *dist);
kvf_status kvf__dist_sum_end(kvf_ctx *ctx, kvf__dist *dist);

#endif
