/* The computing thread: takes requests as they come, puts them in rows of the engine, and hands
 * their text to the connections that wait for it.
 *
 * A job has two owners, this thread and that of HTTP; whoever is last frees it. Everything between
 * them is under the server's lock, which no computation holds. */
#include <time.h>

#include "serve_int.h"

enum { IDLE_MS = 100 }; /* how long a stop or a replaced file goes unnoticed while nothing runs */
static const double FLUSH_SECONDS = 10;

/* ---- ends of a job --------------------------------------------------------------------------- */

/* Under the lock. */
static void fail(kvf__job *job, unsigned status, const char *line)
{
    kvf__problem problem;
    kvf__problem_set(&problem, status, NULL, "%s", line);
    kvf__job_fail(job, &problem);
}

/* The job is no longer this thread's. */
static void let_go(kvf__job *job)
{
    kvf__server *server = job->server;
    for (kvf__job **at = &server->running; *at; at = &(*at)->next)
        if (*at == job) {
            *at = job->next;
            break;
        }
    if (server->joining == job) server->joining = NULL;
    pthread_mutex_lock(&server->lock);
    kvf__job_drop(job);
    pthread_mutex_unlock(&server->lock);
}

/* ---- text ------------------------------------------------------------------------------------ */

static bool all_ended(const kvf__job *job)
{
    for (int64_t i = 0; i < job->n_choices; i++)
        if (!job->choices[i].finish) return false;
    return true;
}

static kvf_status add_stream(kvf__choice *c, const char *text, size_t n)
{
    kvf__job *job = c->job;
    KVF_TRY(kvf__reply_text(&job->reply, c->index, text, n, &job->out));
    if (c->finish) KVF_TRY(kvf__reply_end(&job->reply, c->index, c->finish, &job->out));
    return all_ended(job) ? kvf__reply_close(&job->reply, job->request.usage, &job->out) : KVF_OK;
}

static kvf_status add_whole(kvf__choice *c, const char *text, size_t n)
{
    kvf__job *job = c->job;
    KVF_TRY(kvf__buf_add(NULL, &c->text, text, n));
    if (!all_ended(job)) return KVF_OK;
    return kvf__reply_whole(&job->reply, job->choices, job->n_choices, &job->out);
}

/* Under the lock. */
static void break_off(kvf__job *job, const char *line)
{
    job->broken = true;
    fail(job, 500, line);
}

/* Under the lock. */
static void add_text(kvf__choice *c, const char *text, size_t n)
{
    kvf__job *job = c->job;
    const bool stream = job->request.stream;
    if (c->finish == KVF__FINISH_FAILED)
        break_off(job, kvf_ctx_error(job->server->ctx));
    else if (stream ? add_stream(c, text, n) : add_whole(c, text, n))
        break_off(job, "out of memory");
    else if (all_ended(job))
        kvf__job_finish(job, 200);
    else if (stream && (n || c->finish))
        kvf__http_wake(job);
}

/* Called by the engine, at the end of which the row is gone. */
static void take_text(void *user, const char *text, size_t n, int64_t new_tokens, kvf__finish end)
{
    kvf__choice *c = user;
    kvf__job *job = c->job;
    kvf__server *server = job->server;
    pthread_mutex_lock(&server->lock);
    if (job->first)
        kvf__histogram_add(&server->figures.first_token, kvf__clock() - job->arrived, true);
    job->first = false;
    job->reply.new_tokens += new_tokens - c->new_tokens;
    c->new_tokens = new_tokens;
    c->finish = end;
    if (!job->broken) add_text(c, text, n);
    pthread_mutex_unlock(&server->lock);
    if (all_ended(job)) let_go(job);
}

/* ---- beginnings ------------------------------------------------------------------------------ */

/* Its rows that still go on. */
static void leave_rows(kvf_ctx *ctx, kvf__engine *engine, kvf__job *job)
{
    for (int64_t i = 0; i < job->joined; i++)
        if (!job->choices[i].finish) kvf__engine_leave(ctx, engine, job->choices[i].row);
}

/* A row for the next choice. */
static kvf_status join_next(kvf_ctx *ctx, kvf__server *server, kvf__job *job)
{
    const kvf__request *request = &job->request;
    kvf__choice *choice = &job->choices[job->joined];
    const kvf__ids *prompt = &job->prompts[job->joined / request->n];
    const kvf__order order = {.prefix = job->held->prefix,
                              .head = job->held->head,
                              .prompt = prompt->data,
                              .n = (int64_t)prompt->n,
                              .max_tokens = request->max_tokens,
                              .sampling = request->sampling,
                              .seed = request->seed,
                              .stream = (uint64_t)job->joined,
                              .stop = (const char *const *)request->stop,
                              .n_stop = request->n_stop,
                              .turn_end = job->held->turn_end,
                              .text = take_text,
                              .user = choice};
    KVF_TRY(kvf__engine_join(ctx, server->engine, &order, &choice->row));
    job->joined++;
    return KVF_OK;
}

/* Rows for its choices, as many as there are free; the others get theirs before any later job. */
static kvf_status join(kvf_ctx *ctx, kvf__server *server, kvf__job *job)
{
    while (job->joined < job->n_choices && !kvf__engine_full(server->engine))
        KVF_TRY(join_next(ctx, server, job));
    server->joining = job->joined < job->n_choices ? job : NULL;
    return KVF_OK;
}

static void begin(kvf__server *server, kvf__job *job)
{
    kvf_ctx *ctx = server->ctx;
    job->next = server->running;
    server->running = job;
    for (int64_t i = 0; i < job->n_prompts; i++)
        job->reply.prompt_tokens += (int64_t)job->prompts[i].n;
    kvf_status st = join(ctx, server, job);
    if (st) leave_rows(ctx, server->engine, job);
    pthread_mutex_lock(&server->lock);
    kvf__histogram_add(&server->figures.waited, kvf__clock() - job->arrived, true);
    if (st) {
        const kvf__problem problem = kvf__problem_of(ctx, st);
        kvf__job_fail(job, &problem);
    } else if (job->request.stream) {
        job->state = KVF__JOB_RUNS;
        job->status = 200;
        for (int64_t i = 0; i < job->n_choices; i++)
            kvf__reply_begin(&job->reply, i, &job->out);
        kvf__http_wake(job);
    }
    pthread_mutex_unlock(&server->lock);
    if (st) let_go(job);
}

/* More rows for the choices of the job that began last. */
static void go_on_joining(kvf__server *server)
{
    kvf__job *job = server->joining;
    if (!job || job->broken || !join(server->ctx, server, job)) return;
    pthread_mutex_lock(&server->lock);
    break_off(job, kvf_ctx_error(server->ctx)); /* leave_gone lets it go */
    pthread_mutex_unlock(&server->lock);
}

static kvf__job *next_job(kvf__server *server, kvf__queue *queue)
{
    pthread_mutex_lock(&server->lock);
    kvf__job *job = kvf__job_next(queue);
    pthread_mutex_unlock(&server->lock);
    return job;
}

static void begin_all(kvf__server *server)
{
    kvf__job *job;
    go_on_joining(server);
    while (!server->joining && !kvf__engine_full(server->engine) &&
           (job = next_job(server, &server->ready)) != NULL)
        begin(server, job);
}

static bool is_gone(kvf__server *server, const kvf__job *job)
{
    pthread_mutex_lock(&server->lock);
    bool gone = job->gone;
    pthread_mutex_unlock(&server->lock);
    return gone;
}

/* Rows whose clients went away, or were told that there is no answer. */
static void leave_gone(kvf__server *server)
{
    for (kvf__job *job = server->running, *next; job; job = next) {
        next = job->next;
        if (!job->broken && !is_gone(server, job)) continue;
        leave_rows(server->ctx, server->engine, job);
        let_go(job);
    }
}

/* ---- the loop -------------------------------------------------------------------------------- */

static void publish(kvf__server *server)
{
    kvf__engine_stats stats = kvf__engine_stats_of(server->engine);
    pthread_mutex_lock(&server->lock);
    kvf__figures *f = &server->figures;
    if (stats.steps > f->engine.steps)
        kvf__histogram_add(&f->batch, (double)(stats.step_rows - f->engine.step_rows), false);
    f->engine = stats;
    f->reloads = server->shelf.reloads;
    f->failed_reloads = server->shelf.failed_reloads;
    pthread_mutex_unlock(&server->lock);
}

static void wait_for_arrival(kvf__server *server)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += IDLE_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_mutex_lock(&server->lock);
    if (!server->ready.first) pthread_cond_timedwait(&server->arrival, &server->lock, &until);
    pthread_mutex_unlock(&server->lock);
}

static void refuse_all(kvf__server *server, kvf__queue *queue)
{
    for (kvf__job *job; (job = next_job(server, queue)) != NULL;) {
        pthread_mutex_lock(&server->lock);
        fail(job, 503, "the server is shutting down");
        kvf__job_drop(job);
        pthread_mutex_unlock(&server->lock);
    }
}

/* Those that wait, after a failure that ends the server. */
static void refuse_waiting(kvf__server *server)
{
    pthread_mutex_lock(&server->lock);
    server->closing = true;
    pthread_mutex_unlock(&server->lock);
    kvf__reader_stop(server);
    refuse_all(server, &server->unread);
    refuse_all(server, &server->ready);
}

/* Everything was computed: the last bytes get some time to leave. */
static void flush(kvf__server *server)
{
    const struct timespec nap = {.tv_nsec = 10000000};
    const double until = kvf__clock() + FLUSH_SECONDS;
    for (bool left = true; left && kvf__clock() < until;) {
        pthread_mutex_lock(&server->lock);
        left = server->pending > 0;
        pthread_mutex_unlock(&server->lock);
        if (left) nanosleep(&nap, NULL);
    }
}

/* True once nothing is left to do after a stop. */
static bool stops(kvf__server *server)
{
    if (!server->options.stop || !*server->options.stop) return false;
    pthread_mutex_lock(&server->lock);
    bool first = !server->closing, idle = !server->figures.queued;
    server->closing = true;
    pthread_mutex_unlock(&server->lock);
    if (first) kvf__http_refuse_more(server);
    return !first && idle && !server->running;
}

kvf_status kvf__work(kvf__server *server)
{
    kvf_status st = KVF_OK;
    while (!st && !stops(server)) {
        kvf__shelf_refresh(server->ctx, &server->shelf);
        leave_gone(server);
        begin_all(server);
        if (server->running)
            st = kvf__engine_step(server->ctx, server->engine);
        else
            wait_for_arrival(server);
        if (st == KVF_ENOMEM) st = KVF_OK; /* its rows were told: others may find some */
        publish(server);
    }
    if (st) {
        leave_gone(server); /* jobs some of whose choices had no row yet */
        refuse_waiting(server);
    }
    flush(server);
    return st;
}
