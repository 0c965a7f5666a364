/* The server: parts that know their own business, and what they share.
 *
 * Four threads: the one that called kvf_serve computes (worker.c), one of libmicrohttpd's receives
 * and sends bytes (http.c), one makes ids of what was received (read_requests.c), so that no body
 * holds up an answer, and one watches connections (guard.c). They share jobs, under the queue's
 * lock. Order of locks: the guard's, the queue's, the prefix cache's. The engine is the computing
 * thread's alone.
 *
 * A request goes bytes -> kvf__request -> ids, a job that waits for rows -> rows of the engine ->
 * bytes of the reply. */
#ifndef KVF_SERVER_H
#define KVF_SERVER_H

#include "engine.h"
#include "guard.h"
#include "prometheus.h"
#include "queue.h"

/* The thread that reads (read_requests.c). */
typedef struct kvf__reader_thread {
    kvf_ctx *ctx;
    pthread_t thread;
    bool runs, ends;
} kvf__reader_thread;

typedef struct kvf__server {
    kvf_ctx *ctx;
    kvf_base *base;
    kvf_serve_options options;
    char *token;    /* that clients must send; NULL: none */
    int access_log; /* file to write to; -1: none */
    int64_t created;
    kvf__prefix_cache cache;
    kvf__engine *engine;
    kvf__scorer *scorer;       /* of prompts that are repeated; NULL: none was needed yet */
    kvf__scorer_limits scored; /* its limits */
    kvf__queue queue;
    kvf__server_metrics metrics; /* under the queue's lock */
    kvf__reader_thread reader;
    kvf__job_list running; /* the computing thread's */
    kvf__guard guard;      /* of the connections */
    struct kvf__http *http;
} kvf__server;

/* Makes of every unread job the ids that its rows begin with, as generate makes them. */
kvf_status kvf__reader_start(kvf_ctx *ctx, kvf__server *server);
void kvf__reader_stop(kvf__server *server); /* what is unread stays so; again is fine */

/* Computes until all is answered after *stop (worker.c). */
kvf_status kvf__work(kvf__server *server);

/* Connections (http.c). */
kvf_status kvf__http_start(kvf_ctx *ctx, kvf__server *server, int *port);
void kvf__http_refuse_more(kvf__server *server); /* no further connections */
void kvf__http_stop(kvf__server *server);        /* again is fine */

/* What a status and the context's line are to the client. */
kvf__problem kvf__problem_of(const kvf_ctx *ctx, kvf_status st);

#endif
