/* The inside of src/dist where MPI is there. */
#ifndef KVF_DIST_PRIV_H
#define KVF_DIST_PRIV_H

#include <mpi.h>

#include "dist_int.h"

enum {
    KVF__SUM_CHUNK = 1 << 18, /* floats that travel at once: 1 MB */
    KVF__SUM_WINDOW = 8,      /* chunks that travel at a time */
    KVF__SUM_CHILDREN = 31    /* most: ranks are counted by int */
};

/* Where a rank runs: enough to see on the same machine whether it still does. */
typedef struct kvf__peer {
    char host[64];
    int64_t pid;
    uint64_t space; /* of process ids; 0: unknown */
} kvf__peer;

typedef enum kvf__chunk_state {
    KVF__CHUNK_COMING,
    KVF__CHUNK_GOING,
    KVF__CHUNK_DONE
} kvf__chunk_state;

typedef struct kvf__chunk {
    float *x;
    int64_t n;
} kvf__chunk;

/* What travels in one place of the window. */
typedef struct kvf__travel {
    kvf__chunk_state state;
    MPI_Request coming[KVF__SUM_CHILDREN], going;
} kvf__travel;

typedef struct kvf__sums {
    int parent; /* -1: rank 0 has none */
    int n_children, child[KVF__SUM_CHILDREN];
    kvf__chunk *queue; /* [room] chunks in the order in which they began */
    int64_t n, capacity;
    int64_t posted, done; /* of the queue: those before travel or are done; those before are done */
    kvf__travel window[KVF__SUM_WINDOW]; /* chunk i travels in place i % WINDOW */
    float *buffer;                       /* [WINDOW, n_children, CHUNK] */
    kvf_status status;                   /* of the first failure since the last end */
} kvf__sums;

typedef struct kvf__links {
    kvf_ctx *ctx; /* of the sums, which are begun without one */
    MPI_Comm comm;
    kvf__peer *peers; /* [size] */
    kvf__sums sums;
} kvf__links;

/* The status of a call of MPI; EIO breaks the connection. */
kvf_status kvf__dist_check(kvf_ctx *ctx, kvf__dist *dist, int code, const char *what);
/* Between two looks at what has not come yet: gives the core away, the longer the wait the more,
 * and now and then looks whether all ranks that can be seen from here are still there. EIO. */
typedef struct kvf__wait {
    double begin, looked; /* clock */
} kvf__wait;
kvf__wait kvf__dist_wait_begin(void);
kvf_status kvf__dist_pause(kvf_ctx *ctx, kvf__dist *dist, kvf__wait *wait);

/* A rank on this machine whose process has ended; -1: none. */
int kvf__dist_lost(const kvf__dist *dist);

kvf_status kvf__sums_init(kvf_ctx *ctx, kvf__dist *dist);
void kvf__sums_done(kvf__sums *sums);

#endif
