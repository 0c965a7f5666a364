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
    pthread_mutex_lock(&server->lock);
    for (int64_t i = 0; i < job->n_choices; i++)
        server->open -= !job->choices[i].finish;
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
    server->open -= end != KVF__GOES_ON;
    if (!job->broken) add_text(c, text, n);
    pthread_mutex_unlock(&server->lock);
    if (all_ended(job)) let_go(job);
}

/* ---- beginnings ------------------------------------------------------------------------------ */

/* Its rows that still go on. */
static void leave_rows(kvf_ctx *ctx, kvf__engine *engine, kvf__job *job)
{
    for (int64_t i = 0; i < job->joined; i++)
        if (!job->choices[i].finish) kvf__engine_remove(ctx, engine, job->choices[i].row);
}

/* A row for the next choice. */
static kvf_status join_next(kvf_ctx *ctx, kvf__server *server, kvf__job *job)
{
    const kvf__request *request = &job->request;
    kvf__choice *choice = &job->choices[job->joined];
    const kvf__ids *prompt = &job->prompts[job->joined / request->n];
    const kvf__row_request order = {.prefix = job->ref->prefix,
                                    .head = job->ref->head,
                                    .prompt = prompt->data,
                                    .n = (int64_t)prompt->n,
                                    .max_tokens = request->max_tokens,
                                    .sampling = request->sampling,
                                    .seed = request->seed,
                                    .stream = (uint64_t)job->joined,
                                    .stop = (const char *const *)request->stop,
                                    .n_stop = request->n_stop,
                                    .ends = &job->ref->ends,
                                    .text = take_text,
                                    .user = choice};
    KVF_TRY(kvf__engine_add(ctx, server->engine, &order, &choice->row));
    job->joined++;
    return KVF_OK;
}

/* Under the lock: its first choice has a row. */
static void note_begin(kvf__server *server, kvf__job *job)
{
    kvf__histogram_add(&server->figures.waited, kvf__clock() - job->arrived, true);
    for (int64_t i = 0; i < job->n_prompts; i++)
        job->reply.prompt_tokens += (int64_t)job->prompts[i].n;
    if (!job->request.stream) return;
    job->state = KVF__JOB_RUNS;
    job->status = 200;
    for (int64_t i = 0; i < job->n_choices; i++)
        kvf__reply_begin(&job->reply, i, &job->out);
    kvf__http_wake(job);
}

/* Of those that have begun and want more rows, the one whose turn is next; NULL: none does. */
static kvf__job *next_to_go_on(const kvf__server *server)
{
    kvf__job *next = NULL;
    for (kvf__job *job = server->running; job; job = job->next)
        if (!job->broken && job->joined < job->n_choices && (!next || job->ticket < next->ticket))
            next = job;
    return next;
}

/* Free rows go round by request: each gets one, and its next behind all that came meanwhile. So one
 * of many choices has all rows while nobody else wants them, and no more than its share then. */
static kvf__job *next_in_ticket(kvf__server *server)
{
    kvf__job *job = next_to_go_on(server);
    pthread_mutex_lock(&server->lock);
    const kvf__job *first = server->ready.first;
    if (first && (!job || first->ticket < job->ticket)) {
        job = kvf__job_next(&server->ready);
        server->open += job->n_choices;
        job->next = server->running;
        server->running = job;
    }
    if (job) job->ticket = server->next_ticket++;
    pthread_mutex_unlock(&server->lock);
    return job;
}

static void give_row(kvf__server *server, kvf__job *job)
{
    const bool begins = !job->joined;
    kvf_status st = join_next(server->ctx, server, job);
    pthread_mutex_lock(&server->lock);
    if (st) {
        const kvf__problem problem = kvf__problem_of(server->ctx, st);
        job->broken = true; /* leave_gone lets it go */
        kvf__job_fail(job, &problem);
    } else if (begins) {
        note_begin(server, job);
    }
    pthread_mutex_unlock(&server->lock);
}

static void give_rows(kvf__server *server)
{
    kvf__job *job;
    while (!kvf__engine_full(server->engine) && (job = next_in_ticket(server)) != NULL)
        give_row(server, job);
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
    f->reloads = server->prefix_cache.reloads;
    f->failed_reloads = server->prefix_cache.failed_reloads;
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
    pthread_mutex_lock(&server->lock);
    for (kvf__job *job; (job = kvf__job_next(queue)) != NULL;) {
        fail(job, 503, "the server is shutting down");
        kvf__job_drop(job);
    }
    pthread_mutex_unlock(&server->lock);
}

/* After a failure that ends the server: those that have or had rows, then those that wait. */
static void refuse_rest(kvf__server *server)
{
    pthread_mutex_lock(&server->lock);
    server->closing = true;
    for (kvf__job *job = server->running; job; job = job->next)
        if (!job->broken && !job->gone) break_off(job, kvf_ctx_error(server->ctx));
    pthread_mutex_unlock(&server->lock);
    leave_gone(server);
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
        kvf__prefix_cache_refresh(server->ctx, &server->prefix_cache);
        leave_gone(server);
        give_rows(server);
        if (server->running)
            st = kvf__engine_step(server->ctx, server->engine);
        else
            wait_for_arrival(server);
        if (st == KVF_ENOMEM) st = KVF_OK; /* its rows were told: others may find some */
        publish(server);
    }
    if (st) refuse_rest(server);
    flush(server);
    return st;
}
