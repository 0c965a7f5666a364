/* Connections and deadlines of their requests (guard.c). Late connections are closed; if places run
 * out, the one without a complete request for the longest time is closed. Nothing is computed for
 * clients that disconnected. */
#ifndef KVF_GUARD_H
#define KVF_GUARD_H

#include <poll.h>
#include <pthread.h>

#include "base_int.h"

struct kvf__job;

typedef struct kvf__connection {
    int fd;               /* -1: free place */
    double since;         /* clock since when there is no complete request; 0: being served */
    struct kvf__job *job; /* job that it waits for; NULL: none */
} kvf__connection;

typedef struct kvf__guard {
    size_t n;                        /* number of places; set before the start, like the next two */
    double patience;                 /* seconds within which a request must arrive */
    bool (*gone)(struct kvf__job *); /* called when the client disconnects; returns false if it is
                                      * answered already */
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
void kvf__guard_stop(kvf__guard *guard); /* does nothing if not started */
/* Adds a connection; NULL: no place even after an eviction. The functions below accept NULL. */
kvf__connection *kvf__guard_add(kvf__guard *guard, int fd);
void kvf__guard_remove(kvf__guard *guard, kvf__connection *c); /* before fd is closed */
/* Marks its request as complete; or as answered, so that the next one may arrive. */
void kvf__guard_serve(kvf__guard *guard, kvf__connection *c, bool served);
/* Marks a served connection as waiting for a job, which must live until it is served. */
void kvf__guard_await(kvf__guard *guard, kvf__connection *c, struct kvf__job *job);

/* Counts open connections, and connections closed so far. */
void kvf__guard_count(kvf__guard *guard, int64_t *connections, int64_t *evicted);

#endif
