/* Inside the server. Four threads: the one that called kvf_serve computes (work.c), one of
 * libmicrohttpd's receives and sends bytes (http.c), one makes ids of what was received (job.c), so
 * that no body holds up an answer, and one looks after those who are connected (guard.c). They
 * share jobs, under one lock; that of the guard is taken before it, that of the prefix cache behind
 * it. The engine is the computing thread's alone.
 *
 * A request goes bytes -> kvf__request (request.c, no HTTP in it) -> ids, a job that waits for rows
 * -> rows of the engine -> bytes of the answer (reply.c). */
#ifndef KVF_SERVE_INT_H
#define KVF_SERVE_INT_H

#include <kvfold/serve.h>
#include <pthread.h>
#include <sys/stat.h>

#include "engine.h"

/* ---- requests (request.c) -------------------------------------------------------------------- */

/* Why a request is refused, in the words of OpenAI's error objects. */
typedef struct kvf__problem {
    unsigned status;  /* of HTTP */
    const char *code; /* "model_not_found"; NULL: none */
    char param[40];   /* field of the request, "": none */
    char message[256];
} kvf__problem;
/* Fills it in; returns false, for `return kvf__problem_set(...)`. */
bool kvf__problem_set(kvf__problem *out, unsigned status, const char *param, const char *fmt, ...)
    KVF__PRINTF(4, 5);

/* One of the prompts of a completion. */
typedef struct kvf__asked {
    const char *text; /* [bytes], may hold U+0000; NULL: ids are given */
    size_t bytes;
    kvf__ids ids;
} kvf__asked;

/* A body, checked. Texts are views into root, but for stop. */
typedef struct kvf__request {
    bool chat, stream, usage; /* usage: a chunk with the counts ends the stream */
    kvf_json *root;
    const char *model;
    kvf__asked *prompts; /* completions: [n_prompts] */
    size_t n_prompts;
    kvf__message *messages; /* chat: [n_messages] */
    size_t n_messages;
    kvf__buf *contents; /* [n_messages] of messages whose content came in parts */
    int64_t max_tokens;
    kvf__sampling sampling;
    uint64_t seed;
    int64_t n; /* choices for each prompt */
    bool seeded;
    char **stop; /* [n_stop] */
    size_t n_stop;
} kvf__request;

/* From the bytes of a body; false with the problem. max_tokens: most that may be asked for, and
 * what a chat gets that asks for none. The request is empty or whole. */
bool kvf__request_parse(kvf_ctx *ctx, const char *body, size_t bytes, bool chat, int64_t max_tokens,
                        kvf__request *out, kvf__problem *problem);
/* All that is needed for its ids alone: what stays are numbers and stop texts. */
void kvf__request_forget(kvf__request *request);
void kvf__request_done(kvf__request *request);

/* ---- replies (reply.c): appended to a buffer ------------------------------------------------- */

typedef struct kvf__reply {
    bool chat;
    int64_t id, created; /* number of the request; seconds since 1970 */
    const char *model;
    int64_t prompt_tokens, new_tokens;
} kvf__reply;
/* One of the answers that a request asks for. */
typedef struct kvf__choice {
    struct kvf__job *job;
    int64_t index, row, new_tokens;
    kvf__buf text; /* so far; streams do not keep it */
    kvf__finish finish;
} kvf__choice;
kvf_status kvf__reply_whole(const kvf__reply *reply, const kvf__choice *choices, int64_t n,
                            kvf__buf *out);
/* Events of a stream: of a choice its beginning (chats say the role), more text, its end; and the
 * end of all, behind the counts where usage says so. */
kvf_status kvf__reply_begin(const kvf__reply *reply, int64_t index, kvf__buf *out);
kvf_status kvf__reply_text(const kvf__reply *reply, int64_t index, const char *text, size_t n,
                           kvf__buf *out);
kvf_status kvf__reply_end(const kvf__reply *reply, int64_t index, kvf__finish finish,
                          kvf__buf *out);
kvf_status kvf__reply_close(const kvf__reply *reply, bool usage, kvf__buf *out);
kvf_status kvf__reply_problem(const kvf__problem *problem, kvf__buf *out);
/* The same as an event. */
kvf_status kvf__reply_broken(const kvf__problem *problem, kvf__buf *out);
/* Models by name: a list, or (n = 1, not as_list) one. */
kvf_status kvf__reply_models(const char *const *names, size_t n, bool as_list, int64_t created,
                             kvf__buf *out);

/* ---- prefixes by name (prefix cache.c)
 * -------------------------------------------------------------- */

/* A prefix as a file had it, with how its prompts are rendered; lives until no row uses it. */
typedef struct kvf__prefix_ref {
    kvf_prefix *prefix; /* NULL: the bare base */
    kvf__head *head;    /* that the prefix brings, NULL: none */
    kvf__renderer renderer;
    kvf__ends ends;
    int64_t uses; /* under the prefix cache's lock */
} kvf__prefix_ref;

typedef struct kvf__prefix_cache {
    const kvf_serve_options *options;
    const kvf_base *base;
    const char **names; /* [n]: the prefixes in their order, the base last */
    size_t n;
    pthread_mutex_t lock;
    kvf__prefix_ref **ref; /* [n], under the lock */
    struct stat *seen;     /* [n] of files, as last tried */
    int64_t reloads, failed_reloads;
    double looked; /* clock of the last look at the files */
} kvf__prefix_cache;
kvf_status kvf__prefix_cache_init(kvf_ctx *ctx, kvf_base *base, const kvf_serve_options *options,
                                  kvf__prefix_cache *out);
void kvf__prefix_cache_done(kvf__prefix_cache *prefix_cache);
/* Reads files again that were replaced; looks at most every half second. A file that cannot be
 * used is warned about, and the prefix stays. */
void kvf__prefix_cache_refresh(kvf_ctx *ctx, kvf__prefix_cache *prefix_cache);
/* Any thread: index of a name, -1: there is none; what it holds now, to be given back. */
int64_t kvf__prefix_cache_find(const kvf__prefix_cache *prefix_cache, const char *name);
kvf__prefix_ref *kvf__prefix_cache_get(kvf__prefix_cache *prefix_cache, int64_t i);
void kvf__prefix_cache_put(kvf__prefix_cache *prefix_cache,
                           kvf__prefix_ref *ref); /* NULL is fine */

/* ---- figures (prometheus.c) ------------------------------------------------------------------ */

enum { KVF__BUCKETS = 12 };
typedef struct kvf__histogram {
    int64_t count[KVF__BUCKETS + 1];
    double sum;
} kvf__histogram;
typedef struct kvf__figures {
    int64_t answered, failed, refused, gone; /* requests: 200; 5xx; 4xx; left by the client */
    int64_t connections, evicted;            /* open; closed for being late with their request */
    int64_t queued, queued_bytes;
    int64_t reloads, failed_reloads;
    kvf__engine_stats engine;
    int64_t max_rows;
    kvf__histogram waited, first_token, whole; /* seconds from arrival */
    kvf__histogram batch;                      /* rows of a step */
} kvf__figures;
void kvf__histogram_add(kvf__histogram *histogram, double value, bool seconds);
kvf_status kvf__figures_print(const kvf__figures *figures, kvf__buf *out);

/* ---- jobs (job.c) --------------------------------------------------------------------------- */

typedef enum kvf__job_state {
    KVF__JOB_WAITS,
    KVF__JOB_RUNS, /* a stream may be sent */
    KVF__JOB_DONE  /* out is whole, status final */
} kvf__job_state;

/* In the order in which they came. */
typedef struct kvf__queue {
    struct kvf__job *first, *last;
} kvf__queue;

typedef struct kvf__job {
    struct kvf__job *next;
    struct kvf__server *server;
    bool chat;
    kvf__buf body; /* until it is read */
    double arrived;

    /* the reading thread's, then the computing thread's */
    kvf__request request;
    kvf__reply reply;
    kvf__prefix_ref *ref;
    kvf__ids *prompts;    /* [n_prompts] */
    kvf__choice *choices; /* [n_choices]: request.n for each prompt */
    int64_t n_prompts, n_choices;
    int64_t joined; /* choices that have or had a row */
    bool first;     /* token is still to come */
    bool broken;    /* its problem was said: the rows that still go on are to leave */

    /* under the server's lock */
    kvf__job_state state;
    unsigned status;
    kvf__buf out;
    size_t sent;
    kvf__queue *in; /* where it waits, NULL: nowhere */
    size_t bytes;   /* that it takes while it waits */
    int64_t ticket; /* to get a row */
    bool gone;      /* nobody waits any more */
    int owners;     /* threads that may look at it */
    void *sleeper;  /* the connection that sleeps until there is more; NULL: awake */
} kvf__job;

typedef struct kvf__server {
    kvf_ctx *ctx;
    kvf_base *base;
    kvf_serve_options options;
    kvf__prefix_cache prefix_cache;
    kvf__engine *engine;
    char *token; /* NULL: none is asked for */
    int64_t created;

    pthread_mutex_t lock;
    pthread_cond_t arrival;
    kvf__queue unread; /* that wait to be read */
    kvf__queue ready;  /* that wait for a row */
    struct {
        kvf_ctx *ctx;
        pthread_t thread;
        pthread_cond_t arrival;
        bool runs, ends;
    } reader;
    kvf__job *running;   /* list by next; the computing thread's alone */
    int64_t pending;     /* jobs that are not answered to the last byte */
    int64_t open;        /* choices of begun jobs that have or want a row */
    int64_t next_ticket; /* rows are given out in this order */
    int64_t ids;
    bool closing;
    kvf__figures figures;
    struct kvf__http *http;
} kvf__server;

/* Queues a job, which has its body and no more, or says why not. Called by the HTTP thread. */
bool kvf__job_submit(kvf__server *server, kvf__job *job, kvf__problem *problem);
/* The thread that reads what was submitted, in order: parses it, and makes the ids that its rows
 * begin with, as generate makes them. */
kvf_status kvf__reader_start(kvf_ctx *ctx, kvf__server *server);
void kvf__reader_stop(kvf__server *server); /* what is unread stays so; again is fine */
/* The one that has waited longest leaves a queue; NULL: none waits. Under the lock, as what
 * follows. */
kvf__job *kvf__job_next(kvf__queue *queue);
/* Nobody waits for it any more: its place is free, and its rows are to leave. False: it is done
 * already. */
bool kvf__job_abandon(kvf__job *job);
/* Nothing more will come. */
void kvf__job_finish(kvf__job *job, unsigned status);
void kvf__job_fail(kvf__job *job, const kvf__problem *problem);
/* One of its threads has done with it. */
void kvf__job_drop(kvf__job *job);
/* What a status and the context's line are to the client. */
kvf__problem kvf__problem_of(const kvf_ctx *ctx, kvf_status st);

/* ---- the computing thread (work.c) ----------------------------------------------------------- */

/* The computing thread's loop, until all is answered after *stop. */
kvf_status kvf__work(kvf__server *server);

/* ---- HTTP (http.c) --------------------------------------------------------------------------- */

kvf_status kvf__http_start(kvf_ctx *ctx, kvf__server *server, int *port);
/* Wakes the connection that sleeps on a job; under the lock. */
void kvf__http_wake(kvf__job *job);
void kvf__http_refuse_more(kvf__server *server); /* no further connections */
void kvf__http_stop(kvf__server *server);        /* NULL is fine */

/* ---- connections and those behind them (guard.c) --------------------------------------------- */

/* Who has been connected since when without a whole request, and who waits for what. Nobody keeps a
 * place by saying nothing: late ones are shut, and when places run out, the one that is longest
 * silent. Nor does anything go on for who has hung up. */
typedef struct kvf__guard {
    size_t n;                 /* places; this and the next two are set before the start */
    double patience;          /* seconds until a request must have come */
    bool (*gone)(kvf__job *); /* its client has hung up; false: it is answered already */
    pthread_mutex_t lock;
    struct kvf__guest {
        int fd;        /* -1: the place is free */
        double since;  /* clock; 0: it is being served */
        kvf__job *job; /* that its connection waits for, NULL: none */
    } * guests;
    size_t used;
    int64_t evicted;
    struct pollfd *polled; /* [n] */
    pthread_t thread;
    pthread_cond_t end;
    bool ends;
} kvf__guard;
kvf_status kvf__guard_start(kvf_ctx *ctx, kvf__guard *guard);
void kvf__guard_stop(kvf__guard *guard); /* one that was not started is fine */
/* A new connection; its place, NULL: there is none even so. */
struct kvf__guest *kvf__guard_enter(kvf__guard *guard, int fd);
void kvf__guard_leave(kvf__guard *guard, struct kvf__guest *guest); /* before fd is closed */
/* Its request is whole; or answered, and the next one may come. */
void kvf__guard_serve(kvf__guard *guard, struct kvf__guest *guest, bool served);
/* While it is served: it waits for a job, which lives until that is over. */
void kvf__guard_await(kvf__guard *guard, struct kvf__guest *guest, kvf__job *job);

/* Whether a Host header names this machine, the address listened on, or what is allowed beside. */
bool kvf__host_known(const kvf_serve_options *options, const char *host);
/* Equal in a time that depends on the length of `given` alone. */
bool kvf__token_equal(const char *given, const char *token);
/* The first line of a file, without white space around it. EFORMAT: it is empty. */
kvf_status kvf__token_read(kvf_ctx *ctx, const char *path, char **out);

#endif
