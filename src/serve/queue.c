/* The queue is bounded in jobs and bytes. A job above the limits is refused at once, so that the
 * client can react, rather than answered late. */
#include "queue.h"

#include <time.h>

void kvf__job_list_add(kvf__job_list *list, kvf__job *job)
{
    if (list->last) list->last->next = job;
    if (!list->last) list->first = job;
    list->last = job;
    job->in = list;
}

void kvf__job_list_remove(kvf__job *job)
{
    kvf__job_list *list = job->in;
    kvf__job *before = NULL;
    for (kvf__job *at = list->first; at != job; at = at->next)
        before = at;
    if (before) before->next = job->next;
    if (!before) list->first = job->next;
    if (list->last == job) list->last = before;
    job->next = NULL;
    job->in = NULL;
}

void kvf__queue_init(kvf__queue *queue, const kvf_serve_options *options)
{
    *queue = (kvf__queue){.options = options};
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->unread_came, NULL);
    pthread_cond_init(&queue->ready_came, NULL);
}

void kvf__queue_done(kvf__queue *queue)
{
    pthread_cond_destroy(&queue->ready_came);
    pthread_cond_destroy(&queue->unread_came);
    pthread_mutex_destroy(&queue->lock);
}

void kvf__queue_add(kvf__queue *queue, kvf__job_list *list, kvf__job *job)
{
    kvf__job_list_add(list, job);
    queue->n++;
    if (job->tenant) job->tenant->waiting++;
    queue->bytes += (int64_t)job->bytes;
    pthread_cond_signal(list == &queue->unread ? &queue->unread_came : &queue->ready_came);
}

void kvf__queue_charge(const kvf__job *job, int64_t prompt_tokens, int64_t new_tokens)
{
    if (!job->tenant) return;
    job->tenant->prompt_tokens += prompt_tokens;
    job->tenant->new_tokens += new_tokens;
    job->tenant->budget -= (double)(prompt_tokens + new_tokens);
}

void kvf__queue_remove(kvf__queue *queue, kvf__job *job)
{
    if (job->in) kvf__job_list_remove(job);
    queue->n--;
    if (job->tenant) job->tenant->waiting--;
    queue->bytes -= (int64_t)job->bytes;
}

static bool overloaded(kvf__problem *problem, int64_t n, const char *what)
{
    kvf__problem_set(problem, 503, NULL, "%lld %s are waiting already: try again later",
                     (long long)n, what);
    problem->code = "overloaded";
    return false;
}

/* An empty queue accepts any size. */
bool kvf__queue_fits(const kvf__queue *queue, size_t bytes, kvf__problem *problem)
{
    if (!queue->n || (int64_t)bytes <= queue->options->max_queue_bytes - queue->bytes) return true;
    return overloaded(problem, queue->bytes, "bytes of requests");
}

/* Returns the number of rows that earlier jobs do not need: that many jobs start without waiting.
 */
static int64_t rows_to_come(const kvf__queue *queue)
{
    const int64_t free_rows = queue->options->max_rows - queue->unfinished;
    return free_rows > 0 ? free_rows : 0;
}

/* Refuses a job above a limit of its tenant. */
static bool tenant_fits(const kvf__queue *queue, kvf__tenant *tenant, kvf__problem *problem)
{
    const kvf_serve_options *o = queue->options;
    const double rate = (double)o->tenant_tokens / 60, now = kvf__clock();
    if (!tenant) return true;
    tenant->budget += (now - tenant->filled) * rate;
    if (tenant->filled == 0 || tenant->budget > 60 * rate) tenant->budget = 60 * rate;
    tenant->filled = now;
    if (o->tenant_tokens && tenant->budget <= 0)
        kvf__problem_set(problem, 429, NULL,
                         "the limit of %lld tokens a minute is reached: try again later",
                         (long long)o->tenant_tokens);
    else if (o->tenant_queue && tenant->waiting >= o->tenant_queue)
        kvf__problem_set(problem, 429, NULL,
                         "%lld requests of this API key are waiting already: try again later",
                         (long long)tenant->waiting);
    else
        return true;
    problem->code = "rate_limit_exceeded";
    problem->retry = tenant->budget < 0 ? 1 + (int)(-tenant->budget / rate) : 1;
    tenant->refused++;
    return false;
}

static bool accept_job(kvf__queue *queue, kvf__job *job, kvf__problem *problem)
{
    if (queue->closing) return kvf__problem_set(problem, 503, NULL, "the server is shutting down");
    if (queue->n >= queue->options->max_queue + rows_to_come(queue))
        return overloaded(problem, queue->n, "requests");
    if (!kvf__queue_fits(queue, job->bytes, problem)) return false;
    if (!tenant_fits(queue, job->tenant, problem)) return false;
    if (job->tenant) job->tenant->accepted++;
    job->reply = (kvf__reply){.chat = job->kind == KVF__CHAT,
                              .id = ++queue->next_id,
                              .created = (int64_t)time(NULL),
                              .cached_tokens = queue->options->cache_memory ? 0 : -1};
    job->owners = 2;
    job->ticket = queue->next_ticket++;
    kvf__queue_add(queue, &queue->unread, job);
    queue->unanswered++;
    return true;
}

bool kvf__queue_submit(kvf__queue *queue, kvf__job *job, kvf__problem *problem)
{
    job->arrived = kvf__clock();
    job->first = true;
    job->bytes = sizeof *job + job->body.cap;
    pthread_mutex_lock(&queue->lock);
    const bool accepted = accept_job(queue, job, problem);
    pthread_mutex_unlock(&queue->lock);
    return accepted;
}

void kvf__wait_ms(pthread_cond_t *signal, pthread_mutex_t *lock, int ms)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += ms * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_cond_timedwait(signal, lock, &until);
}
