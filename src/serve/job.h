/* A job: one request from its arrival to the last byte of its reply (job.c).
 *
 * A job has two owners: the thread of HTTP, and that which reads or computes it; the last one frees
 * it. What both look at is under the queue's lock, which no computation holds. */
#ifndef KVF_JOB_H
#define KVF_JOB_H

#include <pthread.h>

#include "classification.h"
#include "prefix_cache.h"
#include "reply.h"

typedef enum kvf__job_state {
    KVF__JOB_WAITS,
    KVF__JOB_RUNS, /* a stream may be sent */
    KVF__JOB_DONE  /* the output is whole, status final */
} kvf__job_state;

/* What is sent. Under the queue's lock. */
typedef struct kvf__job_output {
    kvf__job_state state;
    unsigned status;
    kvf__buf text;
    size_t sent;
    bool gone;     /* the client has hung up */
    void *sleeper; /* the connection that sleeps until there is more; NULL: awake */
    void (*wake)(void *sleeper);
} kvf__job_output;

/* In the order in which they came. {0} is empty. */
typedef struct kvf__job_list {
    struct kvf__job *first, *last;
} kvf__job_list;

typedef struct kvf__job {
    struct kvf__server *server;
    kvf__request_kind kind;
    kvf__buf body; /* until it is read */
    double arrived;
    kvf__job_output out;

    /* the reading thread's, then the computing thread's */
    kvf__request request;
    kvf__reply reply;
    kvf__prefix_ref *ref;
    kvf__classification *rows; /* of a request to classify; NULL: of another */
    kvf__ids *prompts;         /* [n_prompts] */
    kvf__echo *echoes;         /* [n_prompts], NULL: no echo */
    kvf__choice *choices;      /* [n_choices]: request.n for each prompt */
    int64_t n_prompts, n_choices;
    int64_t started; /* choices that have or had a row */
    bool first;      /* the first token is still to come */
    bool broken;     /* its problem was replied: rows that still run are to be removed */

    /* under the queue's lock */
    struct kvf__job *next;
    kvf__job_list *in; /* NULL: none */
    size_t bytes;      /* that it takes while it waits */
    int64_t ticket;    /* jobs get their next row in this order */
    int owners;
} kvf__job;

/* The client has hung up: the job waits no more, and its rows are to be removed. False: it is done
 * already. As what follows, under the queue's lock. */
bool kvf__job_abandon(kvf__job *job);
/* There is more: wakes the connection, if it sleeps. */
void kvf__job_wake(kvf__job *job);
/* Nothing more will come. */
void kvf__job_finish(kvf__job *job, unsigned status);
void kvf__job_fail(kvf__job *job, const kvf__problem *problem);
/* One of its owners has done with it. */
void kvf__job_drop(kvf__job *job);

/* Lists of jobs (queue.c). */
void kvf__job_list_add(kvf__job_list *list, kvf__job *job);
void kvf__job_list_remove(kvf__job *job); /* from the list that it is in */

#endif
