/* Connections, and deadlines for their requests (guard.c).
 *
 * Nobody keeps a place by sending nothing: late connections are shut, and when places run out, the
 * one that has been silent longest. Nor is anything computed for a client that has hung up. */
#ifndef KVF_GUARD_H
#define KVF_GUARD_H

#include <poll.h>
#include <pthread.h>

#include "base_int.h"

struct kvf__job;

typedef struct kvf__connection {
    int fd;               /* -1: the place is free */
    double since;         /* clock: without a whole request; 0: it is being served */
    struct kvf__job *job; /* that it waits for, NULL: none */
} kvf__connection;

typedef struct kvf__guard {
    size_t n;                        /* places; this and the next two are set before the start */
    double patience;                 /* seconds until a request must have come */
    bool (*gone)(struct kvf__job *); /* its client has hung up; false: it is answered already */
    pthread_mutex_t lock;
    kvf__connection *places; /* [n] */
    struct pollfd *polled;   /* [n] */
    size_t used;
    int64_t evicted;
    pthread_t thread;
    pthread_cond_t end;
    bool ends;
} kvf__guard;
kvf_status kvf__guard_start(kvf_ctx *ctx, kvf__guard *guard);
void kvf__guard_stop(kvf__guard *guard); /* one that was not started is fine */
/* A new connection; NULL: there is no place even after an eviction. NULL is fine below. */
kvf__connection *kvf__guard_add(kvf__guard *guard, int fd);
void kvf__guard_remove(kvf__guard *guard, kvf__connection *c); /* before fd is closed */
/* Its request is whole; or answered, and the next one may come. */
void kvf__guard_serve(kvf__guard *guard, kvf__connection *c, bool served);
/* While it is served: it waits for a job, which lives until that is over. */
void kvf__guard_await(kvf__guard *guard, kvf__connection *c, struct kvf__job *job);

/* Connections now, and those that were shut so far. */
void kvf__guard_count(kvf__guard *guard, int64_t *connections, int64_t *evicted);

#endif
