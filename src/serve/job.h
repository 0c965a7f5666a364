/* A job: one request from arrival to the last byte of its reply (job.c). It has two owners, the
 * HTTP thread and the thread that reads or computes it; the last one frees it. The queue's lock,
 * which no computation holds, protects their shared members. */
#ifndef KVF_JOB_H
#define KVF_JOB_H

#include <pthread.h>

#include "access.h"
#include "classification.h"
#include "prefix_cache.h"
#include "reply.h"

typedef enum kvf__job_state {
    KVF__JOB_WAITS,
    KVF__JOB_RUNS, /* a stream may be sent */
    KVF__JOB_DONE  /* output complete, status final */
} kvf__job_state;

/* Output to send. Protected by the queue's lock. */
typedef struct kvf__job_output {
    kvf__job_state state;
    unsigned status;
    kvf__buf text;
    size_t sent;
    bool gone;     /* the client has disconnected */
    void *sleeper; /* the suspended connection; NULL: awake */
    void (*wake)(void *sleeper);
} kvf__job_output;

/* A list in order of arrival. {0} is empty. */
typedef struct kvf__job_list {
    struct kvf__job *first, *last;
} kvf__job_list;

typedef struct kvf__job {
    struct kvf__server *server;
    kvf__request_kind kind;
    kvf__tenant *tenant; /* NULL: the server has no keys */
    kvf__buf body;       /* until it is parsed */
    double arrived;
    kvf__job_output out;

    /* used by the reading thread, then by the computing thread */
    kvf__request request;
    kvf__reply reply;
    kvf__prefix_ref *ref;
    kvf__classification *rows; /* request to classify; NULL: another kind */
    kvf__ids *prompts;         /* [n_prompts] */
    kvf__echo *echoes;         /* [n_prompts], NULL: no echo */
    kvf__choice *choices;      /* [n_choices]: request.n for each prompt */
    char model[KVF__MODEL_NAME + 1];
    int64_t n_prompts, n_choices;
    int64_t started; /* choices that have or had a row */
    bool first;      /* waiting for the first token */
    bool broken;     /* an error was sent: remove the rows that still run */

    /* protected by the queue's lock */
    struct kvf__job *next;
    kvf__job_list *in; /* list that contains it; NULL: none */
    size_t needs;      /* memory that its prefix waits for */
    size_t bytes;      /* memory that it takes while waiting */
    int64_t ticket;    /* jobs get rows in ticket order */
    int owners;
} kvf__job;

/* Abandons a job whose client has disconnected: it no longer waits, and its rows are to be removed.
 * False: it is complete. This and the following functions are called under the queue's lock. */
bool kvf__job_abandon(kvf__job *job);
/* Wakes a suspended connection after new output. */
void kvf__job_wake(kvf__job *job);
/* Completes the output. */
void kvf__job_finish(kvf__job *job, unsigned status);
void kvf__job_fail(kvf__job *job, const kvf__problem *problem);
/* Drops the reference of one owner. */
void kvf__job_drop(kvf__job *job);

/* Lists of jobs (queue.c). */
void kvf__job_list_add(kvf__job_list *list, kvf__job *job);
void kvf__job_list_remove(kvf__job *job); /* removes it from its list */

#endif
