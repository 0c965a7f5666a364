/* The computing thread: assigns free rows of the engine to jobs, and passes the text of rows to
 * waiting connections. The choices of a job may get rows at different times. */
#include "server.h"

#include <math.h>
#include <time.h>

enum { IDLE_MS = 100 }; /* delay of noticing a stop or a changed file while idle */
static const double FLUSH_SECONDS = 10;

/* ---- ends of a job --------------------------------------------------------------------------- */

/* This and the following function are called under the lock. */
static void fail(kvf__job *job, unsigned status, const char *line)
{
    kvf__problem problem;
    kvf__problem_set(&problem, status, NULL, "%s", line);
    kvf__job_fail(job, &problem);
}

static void break_off(kvf__job *job, const char *line)
{
    job->broken = true;
    fail(job, 500, line);
}

static void release(kvf__job *job)
{
    kvf__job_list_remove(job);
    for (int64_t i = 0; i < job->n_choices; i++)
        job->server->queue.unfinished -= !job->choices[i].finish;
    kvf__classification_free(job->rows); /* a client that reads slowly holds text only */
    job->rows = NULL;
    kvf__prefix_cache_put(&job->server->cache, job->ref);
    job->ref = NULL;
    kvf__job_drop(job);
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
    KVF_TRY(kvf__reply_text(&job->reply, c, text, n, &job->out.text));
    if (!all_ended(job)) return KVF_OK;
    return kvf__reply_close(&job->reply, job->request.usage, &job->out.text);
}

static kvf_status add_whole(kvf__choice *c, const char *text, size_t n)
{
    kvf__job *job = c->job;
    KVF_TRY(kvf__buf_add(NULL, &c->text, text, n));
    if (!all_ended(job)) return KVF_OK;
    return kvf__reply_whole(&job->reply, job->choices, job->n_choices, &job->out.text);
}

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
        kvf__job_wake(job);
}

static void count_rows(const kvf__job *job, int n)
{
    if (job->tenant) job->tenant->rows += n;
}

/* Called by the engine with new text of a row; with `end` the row is gone afterwards. */
static void receive_text(void *user, const char *text, size_t n, int64_t new_tokens,
                         kvf__finish end)
{
    kvf__choice *c = user;
    kvf__job *job = c->job;
    kvf__server *server = job->server;
    pthread_mutex_lock(&server->queue.lock);
    if (job->first)
        kvf__histogram_add(&server->metrics.first_token, kvf__clock() - job->arrived, true);
    job->first = false;
    if (job->reply.cached_tokens >= 0 && !c->new_tokens && c->index % job->request.n == 0)
        job->reply.cached_tokens += c->cached; /* choices of one prompt count it once */
    job->reply.new_tokens += new_tokens - c->new_tokens;
    kvf__queue_charge(job, 0, new_tokens - c->new_tokens);
    count_rows(job, -(end != KVF__GOES_ON));
    c->new_tokens = new_tokens;
    c->finish = end;
    server->queue.unfinished -= end != KVF__GOES_ON;
    if (!job->broken) add_text(c, text, n);
    if (all_ended(job)) release(job);
    pthread_mutex_unlock(&server->queue.lock);
}

/* ---- prompts that are repeated --------------------------------------------------------------- */

/* Allocates memory for a row of this many tokens after the prefix, and frees smaller memory. */
static kvf_status fit_scorer(kvf__server *server, int64_t tokens, const kvf_prefix *prefix)
{
    enum { PIECE = 256 };
    kvf__scorer_limits *have = &server->scored;
    const int64_t P = prefix ? prefix->file.prefix.P : 0, neurons = kvf__prefix_neurons(prefix);
    if (server->scorer && tokens <= have->tokens && P <= have->P && neurons <= have->neurons)
        return KVF_OK;
    const kvf__scorer_limits more = {
        .tokens = tokens > have->tokens ? (tokens + PIECE - 1) / PIECE * PIECE : have->tokens,
        .P = P > have->P ? P : have->P,
        .neurons = neurons > have->neurons ? neurons : have->neurons};
    kvf__scorer_free(server->scorer);
    server->scorer = NULL;
    *have = (kvf__scorer_limits){0};
    KVF_TRY(kvf__scorer_create(server->ctx, server->base, &more, &server->scorer));
    *have = more;
    return KVF_OK;
}

/* Scores a prompt's tokens from the second on, except virtual tokens. */
static kvf_status score_prompt(kvf__server *server, const kvf__job *job, const kvf__ids *prompt,
                               int32_t *labels, kvf__token_scores *out)
{
    const kvf_prefix *prefix = job->ref->prefix;
    int64_t first = 0;
    while (first < (int64_t)prompt->n && prompt->data[first] < 0)
        first++;
    if (first == (int64_t)prompt->n) return KVF_OK;
    for (int64_t i = 0; i < (int64_t)prompt->n; i++)
        labels[i] = i > first && prompt->data[i] >= 0 ? prompt->data[i] : KVF__NO_LABEL;
    const kvf__score_row row = {.prefix = prefix,
                                .head = job->ref->head,
                                .ids = prompt->data,
                                .labels = labels,
                                .n = (int64_t)prompt->n,
                                .n_top = job->request.logprobs};
    KVF_TRY(kvf__token_scores_reserve(server->ctx, out, row.n));
    KVF_TRY(fit_scorer(server, row.n, prefix));
    out->token[0] = (kvf_token_score){.id = prompt->data[first], .logprob = NAN};
    KVF_TRY(kvf__score_row_run(server->ctx, server->scorer, &row, out->token + 1,
                               out->top + row.n_top));
    for (int64_t i = first; i < row.n; i++)
        out->n += i == first || labels[i] != KVF__NO_LABEL;
    return KVF_OK;
}

/* Scores the prompt of the job's next choice once. */
static kvf_status score_echo(kvf__server *server, kvf__job *job, bool *scored)
{
    const int64_t at = job->started / job->request.n;
    kvf__echo *echo = job->echoes ? &job->echoes[at] : NULL;
    int32_t *labels = NULL;
    if (!echo || job->request.logprobs < 0 || echo->scores.n) return KVF_OK;
    *scored = true;
    echo->scores.n_top = job->request.logprobs;
    KVF_TRY(kvf__alloc_array(server->ctx, job->prompts[at].n, sizeof *labels, &labels));
    const kvf_status st = score_prompt(server, job, &job->prompts[at], labels, &echo->scores);
    kvf__free(labels);
    return st;
}

/* ---- rows for jobs --------------------------------------------------------------------------- */

/* Starts a row for the job's next choice, unless it consists of the prompt only. */
static kvf_status start_choice(kvf__server *server, kvf__job *job, bool *scored)
{
    const kvf__request *request = &job->request;
    kvf__choice *choice = &job->choices[job->started];
    const kvf__ids *prompt = &job->prompts[job->started / request->n];
    const kvf__part_key origin = {.owner = job->tenant ? (uint64_t)job->tenant->line : 0,
                                  .hash = {job->ref->hash[0], job->ref->hash[1]}};
    const kvf__row_request row = {.prefix = job->ref->prefix,
                                  .head = job->ref->head,
                                  .prompt = prompt->data,
                                  .n = (int64_t)prompt->n,
                                  .max_tokens = request->max_tokens,
                                  .sampling = request->sampling,
                                  .seed = request->seed,
                                  .stream = (uint64_t)job->started,
                                  .stop = (const char *const *)request->stop,
                                  .n_stop = request->n_stop,
                                  .ends = &job->ref->ends,
                                  .origin = origin,
                                  .cached = &choice->cached,
                                  .scores = request->logprobs >= 0 ? &choice->scores : NULL,
                                  .text = receive_text,
                                  .user = choice};
    KVF_TRY(score_echo(server, job, scored));
    choice->scores.n_top = request->logprobs > 0 ? request->logprobs : 0;
    if (request->max_tokens)
        KVF_TRY(kvf__engine_add(server->ctx, server->engine, &row, &choice->row));
    job->started++;
    return KVF_OK;
}

/* Records that the first choice has a row. Called under the lock. */
static void note_start(kvf__server *server, kvf__job *job)
{
    kvf__histogram_add(&server->metrics.waited, kvf__clock() - job->arrived, true);
    for (int64_t i = 0; i < job->n_prompts; i++)
        job->reply.prompt_tokens += (int64_t)job->prompts[i].n;
    kvf__queue_charge(job, job->reply.prompt_tokens, 0);
    if (!job->request.stream) return;
    job->out.state = KVF__JOB_RUNS;
    job->out.status = 200;
    for (int64_t i = 0; i < job->n_choices; i++)
        kvf__reply_begin(&job->reply, &job->choices[i], &job->out.text);
    kvf__job_wake(job);
}

/* Runs a ready job. Called under the lock. */
static void run(kvf__server *server, kvf__job *job)
{
    kvf__queue_remove(&server->queue, job);
    kvf__job_list_add(&server->running, job);
    server->queue.unfinished += job->n_choices;
}

/* Returns which of two jobs gets a row first; the second may be NULL. */
static kvf__job *sooner(const kvf__server *server, kvf__job *job, kvf__job *other)
{
    const int64_t most = server->options.tenant_rows, rows = job->tenant ? job->tenant->rows : 0;
    if (most && rows >= most) return other;
    if (!other) return job;
    const int64_t others = other->tenant ? other->tenant->rows : 0;
    return rows < others || (rows == others && job->ticket < other->ticket) ? job : other;
}

/* Returns the job that gets the next free row; NULL: none needs one. After each row a job moves to
 * the end of the line. A job of many choices thus gets all rows while no other job needs any, and
 * its share otherwise. Tenants with fewer rows come first. Called under the lock. */
static kvf__job *next_job(kvf__server *server)
{
    kvf__queue *queue = &server->queue;
    kvf__job *next = NULL;
    for (kvf__job *job = queue->ready.first; job; job = job->next)
        if (!job->rows) next = sooner(server, job, next);
    for (kvf__job *job = server->running.first; job; job = job->next)
        if (!job->broken && job->started < job->n_choices) next = sooner(server, job, next);
    if (!next) return NULL;
    if (next->in == &queue->ready) run(server, next);
    next->ticket = queue->next_ticket++;
    return next;
}

/* Ends the last started choice, which consists of the prompt only. Called under the lock. */
static void end_echo(kvf__server *server, kvf__job *job)
{
    kvf__choice *choice = &job->choices[job->started - 1];
    choice->finish = KVF__FINISH_LENGTH;
    server->queue.unfinished--;
    if (!job->broken) add_text(choice, "", 0);
    if (all_ended(job)) release(job);
}

/* Scores at most one prompt, so that other rows continue in between. */
static void give_rows(kvf__server *server)
{
    bool scored = false;
    if (!server->engine) return;
    pthread_mutex_lock(&server->queue.lock);
    while (!kvf__engine_full(server->engine) && !scored) {
        kvf__job *job = next_job(server);
        if (!job) break;
        pthread_mutex_unlock(&server->queue.lock);
        const bool starts = !job->started;
        const kvf_status st = start_choice(server, job, &scored);
        pthread_mutex_lock(&server->queue.lock);
        if (st) {
            const kvf__problem problem = kvf__problem_of(server->ctx, st);
            job->broken = true; /* remove_gone releases it */
            kvf__job_fail(job, &problem);
            continue;
        }
        if (starts) note_start(server, job);
        count_rows(job, job->request.max_tokens > 0);
        if (!job->request.max_tokens) end_echo(server, job);
    }
    pthread_mutex_unlock(&server->queue.lock);
}

/* Removes the rows that still run. Called under the lock. */
static void remove_rows(kvf__server *server, kvf__job *job)
{
    for (int64_t i = 0; i < job->started; i++)
        if (!job->choices[i].finish) {
            kvf__engine_remove(server->ctx, server->engine, job->choices[i].row);
            count_rows(job, -1);
        }
}

/* Removes jobs whose clients have disconnected, or that were answered with an error. */
static void remove_gone(kvf__server *server)
{
    pthread_mutex_lock(&server->queue.lock);
    for (kvf__job *job = server->running.first, *next; job; job = next) {
        next = job->next;
        if (!job->broken && !job->out.gone) continue;
        remove_rows(server, job);
        release(job);
    }
    pthread_mutex_unlock(&server->queue.lock);
}

/* ---- rows to classify ------------------------------------------------------------------------ */

/* Returns the job whose rows are classified now, one job at a time; NULL: none. Called under the
 * lock. */
static kvf__job *next_to_classify(kvf__server *server)
{
    kvf__job *const firsts[] = {server->running.first, server->queue.ready.first};
    for (int i = 0; i < 2; i++)
        for (kvf__job *job = firsts[i]; job; job = job->next) {
            if (!job->rows || job->broken || job->out.gone) continue;
            if (i) {
                run(server, job);
                kvf__queue_charge(job, job->reply.prompt_tokens, 0);
                kvf__histogram_add(&server->metrics.waited, kvf__clock() - job->arrived, true);
            }
            return job;
        }
    return NULL;
}

/* Classifies a batch of a job's rows, and replies after the last; false: there is no such job. */
static bool classify(kvf__server *server)
{
    bool more = false;
    pthread_mutex_lock(&server->queue.lock);
    kvf__job *job = next_to_classify(server);
    pthread_mutex_unlock(&server->queue.lock);
    if (!job) return false;
    kvf__buf text = {0};
    kvf_status st = kvf__classification_step(server->ctx, job->rows, &more);
    if (!st && !more) st = kvf__classification_reply(server->ctx, job->rows, &job->reply, &text);
    pthread_mutex_lock(&server->queue.lock);
    if (st) {
        const kvf__problem problem = kvf__problem_of(server->ctx, st);
        job->broken = true; /* remove_gone releases it */
        kvf__job_fail(job, &problem);
    } else if (!more) {
        job->out.text = text;
        text = (kvf__buf){0};
        kvf__job_finish(job, 200);
        release(job);
    }
    pthread_mutex_unlock(&server->queue.lock);
    kvf__buf_done(&text);
    return true;
}

/* ---- the loop -------------------------------------------------------------------------------- */

static void publish(kvf__server *server)
{
    const kvf__engine_stats stats = server->engine ? kvf__engine_stats_of(server->engine)
                                                   : (kvf__engine_stats){.rows = 0};
    kvf__server_metrics *m = &server->metrics;
    pthread_mutex_lock(&server->queue.lock);
    if (stats.steps > m->engine.steps)
        kvf__histogram_add(&m->batch, (double)(stats.step_rows - m->engine.step_rows), false);
    m->engine = stats;
    m->reloads = server->cache.reloads;
    m->failed_reloads = server->cache.failed_reloads;
    pthread_mutex_unlock(&server->queue.lock);
}

static void wait_for_job(kvf__queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    if (!queue->ready.first) kvf__wait_ms(&queue->ready_came, &queue->lock, IDLE_MS);
    pthread_mutex_unlock(&queue->lock);
}

static void refuse_all(kvf__queue *queue, kvf__job_list *list)
{
    for (kvf__job *job; (job = list->first) != NULL;) {
        kvf__queue_remove(queue, job);
        fail(job, 503, "the server is shutting down");
        kvf__job_drop(job);
    }
}

/* Refuses jobs after a failure that ends the server: those that have or had rows, then those that
 * wait. */
static void refuse_rest(kvf__server *server)
{
    kvf__queue *queue = &server->queue;
    pthread_mutex_lock(&queue->lock);
    queue->closing = true;
    for (kvf__job *job = server->running.first; job; job = job->next)
        if (!job->broken && !job->out.gone) break_off(job, kvf_ctx_error(server->ctx));
    pthread_mutex_unlock(&queue->lock);
    remove_gone(server);
    kvf__reader_stop(server);
    pthread_mutex_lock(&queue->lock);
    refuse_all(queue, &queue->unread);
    refuse_all(queue, &queue->parked);
    refuse_all(queue, &queue->ready);
    pthread_mutex_unlock(&queue->lock);
}

/* Gives the last bytes some time to be sent after everything was computed. */
static void flush(kvf__queue *queue)
{
    const struct timespec nap = {.tv_nsec = 10000000};
    const double until = kvf__clock() + FLUSH_SECONDS;
    for (bool left = true; left && kvf__clock() < until;) {
        pthread_mutex_lock(&queue->lock);
        left = queue->unanswered > 0;
        pthread_mutex_unlock(&queue->lock);
        if (left) nanosleep(&nap, NULL);
    }
}

/* True if nothing is left to do after a stop. */
static bool stops(kvf__server *server)
{
    if (!kvf__ctx_stop(server->ctx)) return false;
    pthread_mutex_lock(&server->queue.lock);
    const bool first = !server->queue.closing, idle = !server->queue.n;
    server->queue.closing = true;
    pthread_mutex_unlock(&server->queue.lock);
    if (first) kvf__http_refuse_more(server);
    return !first && idle && !server->running.first;
}

kvf_status kvf__work(kvf__server *server)
{
    kvf_status st = KVF_OK;
    while (!st && !stops(server)) {
        kvf__prefix_cache_refresh(server->ctx, &server->cache);
        remove_gone(server);
        give_rows(server);
        const bool classified = classify(server);
        if (server->engine && server->running.first)
            st = kvf__engine_step(server->ctx, server->engine);
        else if (!classified)
            wait_for_job(&server->queue);
        if (st == KVF_ENOMEM) st = KVF_OK; /* its rows have ended, and other rows may find memory */
        publish(server);
    }
    if (st) refuse_rest(server);
    flush(&server->queue);
    return st;
}
