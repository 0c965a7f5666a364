/* A job up to its turn, and its end: its place in the queue, and the thread that reads it, which
 * makes of its body the ids that its rows begin with. What waits for a row is these, and holds no
 * JSON.
 *
 * A request of several prompts has n choices for each, one prompt's behind the other's; choice i of
 * them all draws as row i of a `generate` over a file with each prompt n times. */
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "serve_int.h"

/* ---- making and dropping --------------------------------------------------------------------- */

/* room: of a row. */
static kvf_status reserve(kvf_ctx *ctx, kvf__job *job, int64_t capacity)
{
    const kvf__request *request = &job->request;
    const int64_t n_prompts = request->chat ? 1 : (int64_t)request->n_prompts;
    const int64_t n_choices = n_prompts * request->n;
    KVF_TRY(kvf__alloc_array(ctx, (size_t)n_prompts, sizeof *job->prompts, &job->prompts));
    KVF_TRY(kvf__alloc_array(ctx, (size_t)n_choices, sizeof *job->choices, &job->choices));
    /* a prompt far too long is refused without its last token being looked for */
    for (int64_t i = 0; i < n_prompts; i++)
        job->prompts[i].most = (size_t)(capacity + capacity / 4);
    job->n_prompts = n_prompts;
    job->n_choices = n_choices;
    for (int64_t i = 0; i < n_choices; i++)
        job->choices[i] = (kvf__choice){.job = job, .index = i};
    return KVF_OK;
}

void kvf__job_drop(kvf__job *job)
{
    if (--job->owners > 0) return;
    for (int64_t i = 0; job->prompts && i < job->n_prompts; i++)
        kvf__ids_done(&job->prompts[i]);
    for (int64_t i = 0; job->choices && i < job->n_choices; i++)
        kvf__buf_done(&job->choices[i].text);
    kvf__free(job->prompts);
    kvf__free(job->choices);
    kvf__prefix_cache_put(&job->server->prefix_cache, job->ref);
    kvf__request_done(&job->request);
    kvf__buf_done(&job->body);
    kvf__buf_done(&job->out);
    kvf__free(job);
}

/* ---- ends: under the lock -------------------------------------------------------------------- */

void kvf__job_finish(kvf__job *job, unsigned status)
{
    kvf__server *server = job->server;
    if (job->state == KVF__JOB_WAITS) job->status = status;
    job->state = KVF__JOB_DONE;
    if (status == 200) {
        server->figures.answered++;
        kvf__histogram_add(&server->figures.whole, kvf__clock() - job->arrived, true);
    }
    server->figures.refused += status >= 400 && status < 500;
    server->figures.failed += status >= 500;
    kvf__http_wake(job);
}

void kvf__job_fail(kvf__job *job, const kvf__problem *problem)
{
    if (job->state == KVF__JOB_RUNS)
        kvf__reply_broken(problem, &job->out); /* out of memory: the stream ends without */
    else
        kvf__reply_problem(problem, &job->out);
    kvf__job_finish(job, problem->status);
}

kvf__problem kvf__problem_of(const kvf_ctx *ctx, kvf_status st)
{
    const bool asked = st == KVF_EDATA || st == KVF_EUSAGE || st == KVF_EUNSUPPORTED;
    kvf__problem problem;
    kvf__problem_set(&problem, asked ? 400 : 500, NULL, "%s", kvf_ctx_error(ctx));
    return problem;
}

/* ---- the queue: under the lock --------------------------------------------------------------- */

static void append(kvf__queue *queue, kvf__job *job)
{
    if (queue->last) queue->last->next = job;
    if (!queue->last) queue->first = job;
    queue->last = job;
    job->in = queue;
}

static void take_out(kvf__job *job)
{
    kvf__queue *queue = job->in;
    kvf__job *before = NULL;
    for (kvf__job *at = queue->first; at != job; at = at->next)
        before = at;
    if (before) before->next = job->next;
    if (!before) queue->first = job->next;
    if (queue->last == job) queue->last = before;
    job->next = NULL;
    job->in = NULL;
}

/* A job that is being read waits too, though in neither queue. */
static void count(kvf__job *job, bool waits)
{
    kvf__figures *figures = &job->server->figures;
    figures->queued += waits ? 1 : -1;
    figures->queued_bytes += waits ? (int64_t)job->bytes : -(int64_t)job->bytes;
}

kvf__job *kvf__job_next(kvf__queue *queue)
{
    kvf__job *job = queue->first;
    if (!job) return NULL;
    take_out(job);
    count(job, false);
    return job;
}

bool kvf__job_abandon(kvf__job *job)
{
    if (job->state == KVF__JOB_DONE) return false;
    if (job->gone) return true;
    job->gone = true;
    job->server->figures.gone++;
    if (job->in) {
        take_out(job);
        count(job, false);
        kvf__job_drop(job);
    }
    return true;
}

static bool overloaded(kvf__problem *problem, int64_t n, const char *what)
{
    kvf__problem_set(problem, 503, NULL, "%lld %s wait already: try again later", (long long)n,
                     what);
    problem->code = "overloaded";
    return false;
}

/* May so many bytes wait with the others? Without others, any. */
static bool have_place(const kvf__server *server, size_t bytes, kvf__problem *problem)
{
    const int64_t queued = server->figures.queued, taken = server->figures.queued_bytes;
    if (!queued || (int64_t)bytes <= server->options.max_queue_bytes - taken) return true;
    return overloaded(problem, taken, "bytes of requests");
}

/* Free ones that no request before wants: as many more do not wait. */
static int64_t rows_to_come(const kvf__server *server)
{
    const int64_t free_rows = server->options.max_rows - server->open;
    return free_rows > 0 ? free_rows : 0;
}

static bool take_place(kvf__server *server, kvf__job *job, kvf__problem *problem)
{
    if (server->closing) return kvf__problem_set(problem, 503, NULL, "the server is shutting down");
    if (server->figures.queued >= server->options.max_queue + rows_to_come(server))
        return overloaded(problem, server->figures.queued, "requests");
    if (!have_place(server, job->bytes, problem)) return false;
    job->reply = (kvf__reply){
        .chat = job->chat, .id = ++server->ids, .created = (int64_t)time(NULL)};
    job->owners = 2;
    job->ticket = server->next_ticket++;
    append(&server->unread, job);
    count(job, true);
    server->pending++;
    pthread_cond_signal(&server->reader.arrival);
    return true;
}

bool kvf__job_submit(kvf__server *server, kvf__job *job, kvf__problem *problem)
{
    job->server = server;
    job->arrived = kvf__clock();
    job->first = true;
    job->bytes = sizeof *job + job->body.cap;
    pthread_mutex_lock(&server->lock);
    const bool taken = take_place(server, job, problem);
    pthread_mutex_unlock(&server->lock);
    return taken;
}

/* ---- reading --------------------------------------------------------------------------------- */

static kvf_status check_ids(kvf_ctx *ctx, const kvf_base *base, const kvf__ids *ids)
{
    const int64_t V = kvf__model_desc(base->model)->V;
    for (size_t i = 0; i < ids->n; i++)
        if (ids->data[i] >= V)
            return kvf__fail(ctx, KVF_EDATA, "prompt: id %ld is outside the vocabulary of %lld",
                             (long)ids->data[i], (long long)V);
    return KVF_OK;
}

static kvf_status render(kvf_ctx *ctx, const kvf_base *base, kvf__job *job)
{
    const kvf__request *request = &job->request;
    const kvf__render *how = &job->ref->renderer.render;
    if (request->chat)
        return kvf__render_chat(ctx, how, request->messages, request->n_messages, job->prompts);
    for (size_t i = 0; i < request->n_prompts; i++) {
        const kvf__asked *asked = &request->prompts[i];
        if (asked->text) {
            KVF_TRY(kvf__render_prompt(ctx, how, asked->text, asked->bytes, &job->prompts[i]));
            continue;
        }
        KVF_TRY(check_ids(ctx, base, &asked->ids));
        KVF_TRY(kvf__render_prompt_ids(ctx, how, asked->ids.data, asked->ids.n, &job->prompts[i]));
    }
    return KVF_OK;
}

/* Draws of a request without a seed begin anywhere. */
static uint64_t any_seed(void)
{
    uint64_t seed = 0;
    if (getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed) seed = (uint64_t)time(NULL);
    return seed >> 1;
}

static bool find_model(kvf__server *server, kvf__job *job, kvf__problem *problem)
{
    const char *name = job->request.model;
    const int64_t model = kvf__prefix_cache_find(&server->prefix_cache, name);
    if (model < 0) {
        kvf__problem_set(problem, 404, "model", "the model \"%.80s\" does not exist", name);
        problem->code = "model_not_found";
        return false;
    }
    job->ref = kvf__prefix_cache_get(&server->prefix_cache, model);
    job->reply.model = server->prefix_cache.names[model];
    return true;
}

/* From the body to ids; false with the problem. */
static bool read_request(kvf__server *server, kvf__job *job, kvf__problem *problem)
{
    kvf_ctx *ctx = server->reader.ctx;
    const char *body = job->body.data ? job->body.data : "";
    if (!kvf__request_parse(ctx, body, job->body.n, job->chat, server->options.max_tokens,
                            &job->request, problem))
        return false;
    if (!find_model(server, job, problem)) return false;
    if (!job->request.seeded) job->request.seed = any_seed();
    kvf_status st = reserve(ctx, job, kvf__engine_capacity(server->engine, job->ref->prefix));
    if (!st) st = render(ctx, server->base, job);
    if (!st)
        st = kvf__engine_check(ctx, server->engine, job->ref->prefix, job->prompts, job->n_prompts);
    if (st) *problem = kvf__problem_of(ctx, st);
    return !st;
}

/* The same, and nothing stays of the body: parsed, it is many times as large. */
static bool read_job(kvf__server *server, kvf__job *job, kvf__problem *problem)
{
    enum { LARGE = 64 << 10 };
    const bool large = job->body.n > LARGE;
    const bool fine = read_request(server, job, problem);
    kvf__buf_done(&job->body);
    kvf__request_forget(&job->request);
    if (large) kvf__free_kept();
    return fine;
}

/* What a job takes once it is read. */
static size_t size_of(const kvf__job *job)
{
    size_t bytes = sizeof *job + (size_t)job->n_prompts * sizeof *job->prompts +
                   (size_t)job->n_choices * sizeof *job->choices;
    for (int64_t i = 0; i < job->n_prompts; i++)
        bytes += job->prompts[i].cap * sizeof *job->prompts[i].data;
    for (size_t i = 0; i < job->request.n_stop; i++)
        bytes += strlen(job->request.stop[i]) + 1;
    return bytes;
}

/* Under the lock: a job that was read waits for a row, or is answered. */
static void settle(kvf__server *server, kvf__job *job, bool fine, kvf__problem *problem)
{
    count(job, false);
    if (fine) job->bytes = size_of(job);
    if (fine && !job->gone && have_place(server, job->bytes, problem)) {
        append(&server->ready, job);
        count(job, true);
        pthread_cond_signal(&server->arrival);
        return;
    }
    if (!job->gone) kvf__job_fail(job, problem);
    kvf__job_drop(job);
}

/* Where there are no more cores than threads that compute, a core that this thread shares would
 * hold up every step: beside them it gets a tenth. On Linux threads have nice values of their own;
 * a refusal changes nothing but this. */
static void yield_to_answers(void)
{
    enum { NICE = 10 };
    const int now = nice(NICE);
    (void)now;
}

static void *read_jobs(void *user)
{
    kvf__server *server = user;
    yield_to_answers();
    pthread_mutex_lock(&server->lock);
    while (!server->reader.ends) {
        kvf__job *job = server->unread.first;
        if (!job) {
            pthread_cond_wait(&server->reader.arrival, &server->lock);
            continue;
        }
        kvf__problem problem = {0};
        take_out(job);
        pthread_mutex_unlock(&server->lock);
        const bool fine = read_job(server, job, &problem);
        pthread_mutex_lock(&server->lock);
        settle(server, job, fine, &problem);
    }
    pthread_mutex_unlock(&server->lock);
    return NULL;
}

kvf_status kvf__reader_start(kvf_ctx *ctx, kvf__server *server)
{
    const kvf_ctx_options quiet = {.threads = kvf_ctx_threads(ctx)};
    KVF_TRY(kvf_ctx_create(&quiet, &server->reader.ctx));
    if (pthread_create(&server->reader.thread, NULL, read_jobs, server))
        return kvf__fail(ctx, KVF_ENOMEM, "no thread can be started for requests");
    server->reader.runs = true;
    return KVF_OK;
}

void kvf__reader_stop(kvf__server *server)
{
    pthread_mutex_lock(&server->lock);
    server->reader.ends = true;
    pthread_cond_signal(&server->reader.arrival);
    pthread_mutex_unlock(&server->lock);
    if (server->reader.runs) pthread_join(server->reader.thread, NULL);
    server->reader.runs = false;
    kvf_ctx_free(server->reader.ctx);
    server->reader.ctx = NULL;
}
