/* The server: its parts and their shared state. There are four threads. The caller of kvf_serve
 * computes (worker.c), and a thread of libmicrohttpd receives and sends bytes (http.c). A third
 * converts requests to ids (read_requests.c), so that no body delays an answer. A fourth watches
 * connections (guard.c). The threads share jobs under the queue's lock. Lock order: the guard's,
 * the queue's, the prefix cache's. Only the computing thread uses the engine.
 *
 * A request passes through these forms: bytes -> kvf__request -> ids, a job that waits for rows ->
 * rows of the engine -> bytes of the reply. */
#ifndef KVF_SERVER_H
#define KVF_SERVER_H

#include "engine.h"
#include "guard.h"
#include "prometheus.h"
#include "queue.h"

/* The reading thread (read_requests.c). */
typedef struct kvf__reader_thread {
    kvf_ctx *ctx;
    pthread_t thread;
    bool runs, ends;
} kvf__reader_thread;

typedef struct kvf__server {
    kvf_ctx *ctx;
    kvf_base *base;
    kvf_serve_options options;
    kvf__tenants tenants; /* clients with their API keys; n = 0: no key is needed */
    int access_log;       /* file descriptor; -1: none */
    int64_t created;
    kvf__prefix_cache cache;
    kvf__engine *engine;
    kvf__scorer *scorer;       /* scores echoed prompts; NULL: not needed yet */
    kvf__scorer_limits scored; /* limits of scorer */
    kvf__queue queue;
    kvf__server_metrics metrics; /* protected by the queue's lock */
    kvf__reader_thread reader;
    kvf__job_list running; /* used by the computing thread */
    kvf__guard guard;      /* guards the connections */
    struct kvf__http *http;
} kvf__server;

/* Starts the thread that converts unread jobs to ids, as generate does. */
kvf_status kvf__reader_start(kvf_ctx *ctx, kvf__server *server);
void kvf__reader_stop(kvf__server *server); /* unread jobs stay unread; may be called again */

/* Computes until every request is answered after *stop (worker.c). */
kvf_status kvf__work(kvf__server *server);

/* Connections (http.c). */
kvf_status kvf__http_start(kvf_ctx *ctx, kvf__server *server, int *port);
void kvf__http_refuse_more(kvf__server *server); /* accepts no further connections */
void kvf__http_stop(kvf__server *server);        /* may be called again */

/* Converts a status and the context's error line to a problem for the client. */
kvf__problem kvf__problem_of(const kvf_ctx *ctx, kvf_status st);

#endif
