/* The queue of jobs that wait to be read, then for a row, and its limits (queue.c). */
#ifndef KVF_QUEUE_H
#define KVF_QUEUE_H

#include "job.h"

typedef struct kvf__queue {
    const kvf_serve_options *options;
    pthread_mutex_t lock; /* protects the queue, the outputs of all jobs, and the metrics */
    pthread_cond_t unread_came, ready_came;
    kvf__job_list unread; /* jobs to be read */
    kvf__job_list parked; /* jobs that wait for the memory of a prefix, to be read again */
    kvf__job_list ready;  /* jobs that wait for a row */
    int64_t n, bytes;     /* waiting jobs, including one that is being read; their memory in bytes
                           */
    int64_t unanswered;   /* jobs whose last byte was not sent yet */
    int64_t unfinished;   /* choices of running jobs that have or need a row */
    int64_t next_id, next_ticket;
    bool closing;
} kvf__queue;
void kvf__queue_init(kvf__queue *queue, const kvf_serve_options *options);
void kvf__queue_done(kvf__queue *queue);
/* Queues a job with only server and body set; returns false with the reason. */
bool kvf__queue_submit(kvf__queue *queue, kvf__job *job, kvf__problem *problem);

/* True if this many bytes may wait too. Called under the lock. */
bool kvf__queue_fits(const kvf__queue *queue, size_t bytes, kvf__problem *problem);
/* Adds a job with job->bytes to a list of the queue. */
void kvf__queue_add(kvf__queue *queue, kvf__job_list *list, kvf__job *job);
/* Removes a waiting job, which may have left its list before. */
void kvf__queue_remove(kvf__queue *queue, kvf__job *job);

/* Adds tokens to the counts of a job's tenant. Called under the lock. */
void kvf__queue_charge(const kvf__job *job, int64_t prompt_tokens, int64_t new_tokens);

/* Waits for a signal for at most `ms`; the lock may differ from the queue's. */
void kvf__wait_ms(pthread_cond_t *signal, pthread_mutex_t *lock, int ms);

#endif
