/* The queue: jobs that wait to be read, then for a row; and what it refuses (queue.c). */
#ifndef KVF_QUEUE_H
#define KVF_QUEUE_H

#include "job.h"

typedef struct kvf__queue {
    const kvf_serve_options *options;
    pthread_mutex_t lock; /* of the queue, the outputs of all jobs, and the server's metrics */
    pthread_cond_t unread_came, ready_came;
    kvf__job_list unread; /* wait to be read */
    kvf__job_list ready;  /* wait for a row */
    int64_t n, bytes;     /* of jobs that wait: those, and one that is being read */
    int64_t unanswered;   /* jobs whose last byte is not sent */
    int64_t unfinished;   /* choices of running jobs that have or want a row */
    int64_t next_id, next_ticket;
    bool closing;
} kvf__queue;
void kvf__queue_init(kvf__queue *queue, const kvf_serve_options *options);
void kvf__queue_done(kvf__queue *queue);
/* Queues a job that has a server and a body and no more; false with the reason. */
bool kvf__queue_submit(kvf__queue *queue, kvf__job *job, kvf__problem *problem);

/* Under the lock. May so many bytes wait with the others? */
bool kvf__queue_fits(const kvf__queue *queue, size_t bytes, kvf__problem *problem);
/* job->bytes wait in a list of the queue. */
void kvf__queue_add(kvf__queue *queue, kvf__job_list *list, kvf__job *job);
/* The job waits no more; it may have left its list before. */
void kvf__queue_remove(kvf__queue *queue, kvf__job *job);

/* Waits for a signal, at most so long; the lock may be another than the queue's. */
void kvf__wait_ms(pthread_cond_t *signal, pthread_mutex_t *lock, int ms);

#endif
