/* Private to src/dist. */
#ifndef KVF_DIST_PRIV_H
#define KVF_DIST_PRIV_H

#include "dist_int.h"
#include "mpi_table.h"

enum {
    KVF__SUM_CHUNK = 1 << 18, /* floats sent at once: 1 MB */
    KVF__SUM_WINDOW = 8,      /* chunks in transfer at a time */
    KVF__SUM_CHILDREN = 31    /* maximum, since ranks are counted by int */
};

/* Identity of a rank's process, for liveness checks on the same machine. */
typedef struct kvf__peer {
    char host[64];
    int64_t pid;
    uint64_t space; /* process id namespace; 0: unknown */
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

/* Transfer state of one place in the window. */
typedef struct kvf__travel {
    kvf__chunk_state state;
    kvf__request coming[KVF__SUM_CHILDREN], going;
} kvf__travel;

typedef struct kvf__sums {
    int parent; /* parent rank; -1 for rank 0 */
    int n_children, child[KVF__SUM_CHILDREN];
    kvf__chunk *queue; /* [room] chunks in the order of their sums */
    int64_t n, capacity;
    int64_t posted, done; /* queue indices: chunks before `posted` are in transfer or done, those
                             before `done` are done */
    kvf__travel window[KVF__SUM_WINDOW]; /* chunk i uses place i % WINDOW */
    float *buffer;                       /* [WINDOW, n_children, CHUNK] */
    kvf_status status;                   /* first failure since the last end */
} kvf__sums;

typedef struct kvf__links {
    kvf_ctx *ctx; /* context of the sums, which begin without one */
    const kvf__mpi *mpi;
    kvf__peer *peers; /* [size] */
    kvf__sums sums;
} kvf__links;

/* Converts the status of an MPI call; EIO marks the connection as broken. */
kvf_status kvf__dist_check(kvf_ctx *ctx, kvf__dist *dist, int code, const char *what);
/* Pauses between tests of a pending transfer: yields or sleeps, longer the longer the wait. From
 * time to time it checks that all visible ranks are alive. EIO. */
typedef struct kvf__wait {
    double begin, looked; /* clock times */
} kvf__wait;
kvf__wait kvf__dist_wait_begin(void);
kvf_status kvf__dist_pause(kvf_ctx *ctx, kvf__dist *dist, kvf__wait *wait);

/* Returns a rank on this machine whose process has ended; -1: none. */
int kvf__dist_lost(const kvf__dist *dist);

kvf_status kvf__sums_init(kvf_ctx *ctx, kvf__dist *dist);
void kvf__sums_done(kvf__sums *sums);

#endif
