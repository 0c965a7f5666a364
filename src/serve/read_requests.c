/* The reading thread converts bodies to the token ids of rows. A waiting job holds only these ids,
 * no JSON. A request with several prompts has n choices for each, grouped by prompt. Choice i in
 * total uses the random numbers of row i in a `generate` over a file with each prompt n times. */
#include "sandbox.h"
#include "server.h"

#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum { IDLE_MS = 1000, PARKED_MS = 10 };
static const double PASS_SECONDS = 2, PATIENCE_SECONDS = 1;

/* capacity: most tokens in a row. */
static kvf_status alloc_choices(kvf_ctx *ctx, kvf__job *job, int64_t capacity)
{
    const kvf__request *request = &job->request;
    const int64_t n_prompts = request->kind == KVF__CHAT ? 1 : (int64_t)request->n_prompts;
    const int64_t n_choices = n_prompts * request->n;
    KVF_TRY(kvf__alloc_array(ctx, (size_t)n_prompts, sizeof *job->prompts, &job->prompts));
    job->n_prompts = n_prompts;
    KVF_TRY(kvf__alloc_array(ctx, (size_t)n_choices, sizeof *job->choices, &job->choices));
    job->n_choices = n_choices;
    /* a prompt far above the limit is refused without tokenizing all of it */
    for (int64_t i = 0; i < n_prompts; i++)
        job->prompts[i].most = (size_t)(capacity + capacity / 4);
    if (request->echo)
        KVF_TRY(kvf__alloc_array(ctx, (size_t)n_prompts, sizeof *job->echoes, &job->echoes));
    for (int64_t i = 0; i < n_choices; i++)
        job->choices[i] = (kvf__choice){.job = job,
                                        .index = i,
                                        .echo = job->echoes ? &job->echoes[i / request->n] : NULL,
                                        .told = -1};
    return KVF_OK;
}

/* Sets the echoed text of a prompt: as sent, or decoded from its row if the prompt came as ids or
 * in a template. Virtual tokens have no text. */
static kvf_status echo_prompt(kvf_ctx *ctx, const kvf_base *base, const kvf__render *how,
                              const kvf__text_prompt *p, const kvf__ids *row, kvf__echo *out)
{
    const bool around = how->wrap_prompts || (how->pattern && how->pattern->n);
    kvf_status st = KVF_OK;
    if (p->text && !around) return kvf__buf_add(ctx, &out->text, p->text, p->bytes);
    for (size_t from = 0, to; from < row->n && !st; from = to) {
        for (to = from; to < row->n && row->data[to] >= 0;)
            to++;
        if (to > from)
            st = kvf__decode(ctx, base->tokenizer, row->data + from, to - from, false, &out->text);
        to += to < row->n;
    }
    return st;
}

/* field: name of the ids in the request. */
static kvf_status check_ids(kvf_ctx *ctx, const kvf_base *base, const char *field,
                            const kvf__ids *ids)
{
    const int64_t V = kvf__model_desc(base->model)->V;
    for (size_t i = 0; i < ids->n; i++)
        if (ids->data[i] >= V)
            return kvf__fail(ctx, KVF_EDATA, "%s: id %ld is outside the vocabulary of %lld", field,
                             (long)ids->data[i], (long long)V);
    return KVF_OK;
}

static kvf_status render(kvf_ctx *ctx, const kvf_base *base, kvf__job *job)
{
    const kvf__request *request = &job->request;
    const kvf__render *how = &job->ref->renderer.render;
    if (request->kind == KVF__CHAT)
        return kvf__render_chat(ctx, how, request->messages, request->n_messages, job->prompts);
    for (size_t i = 0; i < request->n_prompts; i++) {
        const kvf__text_prompt *p = &request->prompts[i];
        if (!p->text) KVF_TRY(check_ids(ctx, base, "prompt", &p->ids));
        KVF_TRY(p->text
                    ? kvf__render_prompt(ctx, how, p->text, p->bytes, &job->prompts[i])
                    : kvf__render_prompt_ids(ctx, how, p->ids.data, p->ids.n, &job->prompts[i]));
        if (job->echoes) KVF_TRY(echo_prompt(ctx, base, how, p, &job->prompts[i], &job->echoes[i]));
    }
    return KVF_OK;
}

static kvf_status make_ids(kvf_ctx *ctx, const kvf__server *server, kvf__job *job)
{
    const kvf_prefix *prefix = job->ref->prefix;
    if (prefix && prefix->task != KVF__TASK_LM)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "the model is of task %s and has no completions: use POST /v1/classify",
                         kvf__task_name(prefix->task));
    if (!server->engine)
        return kvf__fail(ctx, KVF_EUSAGE, "the base, a %s, does not predict the next token",
                         kvf_base_architecture(server->base));
    if (job->request.echo && job->request.logprobs >= 0 && prefix && prefix->file.id.infix)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "echo with logprobs: not supported for a prefix inside the row (--infix)");
    if (job->request.echo && job->request.logprobs >= 0 &&
        kvf__model_desc(server->base->model)->encoder)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "echo with logprobs: not supported on an encoder-decoder, which does not "
                         "predict the prompt");
    KVF_TRY(kvf__penalties_check(ctx, &job->request.sampling.penalties,
                                 kvf__model_desc(server->base->model)->V));
    KVF_TRY(alloc_choices(ctx, job, kvf__engine_capacity(server->engine, prefix)));
    KVF_TRY(render(ctx, server->base, job));
    return kvf__engine_check(ctx, server->engine, prefix, job->prompts, job->n_prompts);
}

/* ---- tokens and texts ------------------------------------------------------------------------ */

static kvf_status answer_tokenize(kvf_ctx *ctx, const kvf__server *server, kvf__job *job)
{
    const kvf__request *q = &job->request;
    const kvf__text_prompt *text = q->prompts;
    const kvf__tokenizer *tokenizer = server->base->tokenizer;
    kvf__ids ids = {0};
    kvf_status st = q->messages
                        ? kvf__chat_encode(ctx, tokenizer, &job->ref->renderer.chat, q->messages,
                                           q->n_messages, q->form.generation, &ids, NULL)
                        : kvf__encode(ctx, tokenizer, text->text, text->bytes, q->form.add_special,
                                      &ids);
    const int64_t most = server->engine ? kvf__engine_capacity(server->engine, job->ref->prefix)
                                        : kvf__row_capacity(server->base, job->ref->prefix);
    if (!st) st = kvf__reply_tokens(&ids, most, q->form.written ? tokenizer : NULL, &job->out.text);
    kvf__ids_done(&ids);
    return st;
}

static kvf_status answer_detokenize(kvf_ctx *ctx, const kvf__server *server, kvf__job *job)
{
    const kvf__ids *ids = &job->request.prompts[0].ids;
    kvf__buf text = {0};
    KVF_TRY(check_ids(ctx, server->base, "tokens", ids));
    kvf_status st = kvf__decode(ctx, server->base->tokenizer, ids->data, ids->n, false, &text);
    if (!st) st = kvf__reply_detokenized(&text, &job->out.text);
    kvf__buf_done(&text);
    return st;
}

/* ---- rows to classify ------------------------------------------------------------------------ */

static kvf_status read_rows(kvf_ctx *ctx, const kvf__server *server, kvf__job *job)
{
    KVF_TRY(kvf__classification_read(ctx, server->base, job->ref, job->request.input,
                                     &server->options, &job->rows));
    job->reply.prompt_tokens = kvf__classification_tokens(job->rows);
    return KVF_OK;
}

/* ---- jobs ------------------------------------------------------------------------------------ */

/* Returns a random seed for a request without one. */
static uint64_t any_seed(void)
{
    uint64_t seed = 0;
    if (getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed) seed = (uint64_t)time(NULL);
    return seed >> 1;
}

/* Answers a change of the models as vLLM does. */
static bool tell(kvf__job *job, const char *name, const char *what)
{
    return !kvf__buf_printf(NULL, &job->out.text, "Success: LoRA adapter '%s' %s successfully.\n",
                            name, what);
}

/* Converts a body to ids; returns false with the problem, or without one if the prefix has to wait
 * for memory. */
static bool read_request(kvf__server *server, kvf__job *job, kvf__problem *problem)
{
    kvf_ctx *ctx = server->reader.ctx;
    kvf__problem ignored;
    const char *body = job->body.data ? job->body.data : "";
    if (!kvf__request_parse(ctx, body, job->body.n, job->kind, server->options.max_tokens,
                            &job->request, problem))
        return false;
    const char *name = job->request.model ? job->request.model : server->options.base_name;
    if (job->kind == KVF__UNLOAD)
        return kvf__prefix_cache_unload(&server->cache, name, problem) &&
               tell(job, name, "removed");
    if (job->request.model && !kvf__tenant_may(job->tenant, name))
        return kvf__problem_no_model(problem, name);
    if (job->kind == KVF__LOAD &&
        !kvf__prefix_cache_load(ctx, &server->cache, name, job->request.path, problem))
        return false;
    if (!kvf__prefix_cache_use(ctx, &server->cache, job->request.model, &job->ref, &job->needs,
                               problem)) {
        if (job->kind == KVF__LOAD && problem->status)
            kvf__prefix_cache_unload(&server->cache, name, &ignored);
        return false;
    }
    snprintf(job->model, sizeof job->model, "%s", name);
    job->reply.model = job->model;
    if (job->kind == KVF__LOAD) return tell(job, name, "added");
    if (job->request.logprobs >= 0) job->reply.tokenizer = server->base->tokenizer;
    if (!job->request.seeded) job->request.seed = any_seed();
    kvf_status st = job->kind == KVF__TOKENIZE     ? answer_tokenize(ctx, server, job)
                    : job->kind == KVF__DETOKENIZE ? answer_detokenize(ctx, server, job)
                    : job->kind == KVF__CLASSIFY   ? read_rows(ctx, server, job)
                                                   : make_ids(ctx, server, job);
    if (st) *problem = kvf__problem_of(ctx, st);
    return !st;
}

/* Does the same and frees the parsed body, which is many times larger than its ids. */
static bool read_job(kvf__server *server, kvf__job *job, kvf__problem *problem)
{
    enum { LARGE = 64 << 10 };
    const bool large = job->body.n > LARGE;
    const bool fine = read_request(server, job, problem);
    if (!fine && !problem->status) {
        kvf__request_done(&job->request); /* its body is read again */
        return false;
    }
    kvf__buf_done(&job->body);
    kvf__request_forget(&job->request);
    if (large) kvf__free_kept();
    return fine;
}

/* Returns the memory of a job after reading. */
static size_t size_of(const kvf__job *job)
{
    size_t bytes = sizeof *job + (size_t)job->n_prompts * sizeof *job->prompts +
                   (size_t)job->n_choices * sizeof *job->choices;
    for (int64_t i = 0; i < job->n_prompts; i++)
        bytes += job->prompts[i].cap * sizeof *job->prompts[i].data +
                 (job->echoes ? sizeof *job->echoes + job->echoes[i].text.cap : 0);
    for (size_t i = 0; i < job->request.n_stop; i++)
        bytes += strlen(job->request.stop[i]) + 1;
    if (job->rows) bytes += kvf__classification_bytes(job->rows);
    bytes += job->request.sampling.penalties.n_bias * sizeof *job->request.bias;
    return bytes;
}

/* Moves a job that was read to the waiting jobs, or finishes it. Called under the lock. */
static void settle(kvf__queue *queue, kvf__job *job, bool fine, kvf__problem *problem)
{
    kvf__queue_remove(queue, job);
    if (!fine && !problem->status && !job->out.gone) {
        kvf__queue_add(queue, &queue->parked, job);
        return;
    }
    if (fine && job->out.text.n) { /* nothing to compute */
        if (!job->out.gone) kvf__job_finish(job, 200);
        kvf__job_drop(job);
        return;
    }
    if (fine) job->bytes = size_of(job);
    if (fine && !job->out.gone && kvf__queue_fits(queue, job->bytes, problem)) {
        kvf__queue_add(queue, &queue->ready, job);
        return;
    }
    if (!job->out.gone) kvf__job_fail(job, problem);
    kvf__job_drop(job);
}

/* Lowers the priority of this thread. If all cores compute, sharing a core with this thread would
 * delay every step; at low priority it gets a tenth of a core. On Linux nice values apply to single
 * threads. A failure has no other effect. */
static void lower_priority(void)
{
    enum { NICE = 10 };
    const int now = nice(NICE);
    (void)now;
}

/* Stops reading a job if its client has disconnected or the server ends. */
static bool is_unwanted(void *user)
{
    const kvf__job *job = user;
    kvf__server *server = job->server;
    pthread_mutex_lock(&server->queue.lock);
    const bool unwanted = job->out.gone || server->reader.ends;
    pthread_mutex_unlock(&server->queue.lock);
    return unwanted;
}

/* Returns the next job to read, and removes it from its list; NULL: none. A job that waits for the
 * memory of a prefix is read again once there is room. Those after it may overtake it, but no
 * longer than a second. Called under the lock. */
static kvf__job *next_job(kvf__server *server)
{
    kvf__queue *queue = &server->queue;
    kvf__job *job = queue->unread.first, *parked = queue->parked.first;
    if (parked && kvf__prefix_cache_has_room(&server->cache, parked->needs))
        job = parked;
    else if (parked && kvf__clock() - parked->arrived > PATIENCE_SECONDS)
        job = NULL;
    if (job) kvf__job_list_remove(job); /* it still waits, and its bytes count */
    return job;
}

static void wait_for_job(const kvf__server *server, kvf__queue *queue)
{
    if (!server->options.n_prefix_dirs)
        pthread_cond_wait(&queue->unread_came, &queue->lock);
    else
        kvf__wait_ms(&queue->unread_came, &queue->lock, queue->parked.first ? PARKED_MS : IDLE_MS);
}

static void *read_jobs(void *user)
{
    kvf__server *server = user;
    kvf__queue *queue = &server->queue;
    lower_priority();
    pthread_mutex_lock(&queue->lock);
    while (!server->reader.ends) {
        kvf__job *job = next_job(server);
        kvf__problem problem = {0};
        if (!job) wait_for_job(server, queue);
        pthread_mutex_unlock(&queue->lock);
        kvf__prefix_cache_look(server->reader.ctx, &server->cache, PASS_SECONDS);
        if (!job) {
            pthread_mutex_lock(&queue->lock);
            continue;
        }
        kvf__ctx_stop_when(server->reader.ctx, is_unwanted, job);
        const bool fine = read_job(server, job, &problem);
        pthread_mutex_lock(&queue->lock);
        settle(queue, job, fine, &problem);
    }
    pthread_mutex_unlock(&queue->lock);
    return NULL;
}

kvf_status kvf__reader_start(kvf_ctx *ctx, kvf__server *server)
{
    const kvf_ctx_options quiet = {.threads = kvf_ctx_threads(ctx),
                                   .check_program = kvf__ctx_check_program(ctx)};
    KVF_TRY(kvf_ctx_create(&quiet, &server->reader.ctx));
    if (pthread_create(&server->reader.thread, NULL, read_jobs, server))
        return kvf__fail(ctx, KVF_ENOMEM, "cannot start a thread for requests");
    server->reader.runs = true;
    return KVF_OK;
}

void kvf__reader_stop(kvf__server *server)
{
    pthread_mutex_lock(&server->queue.lock);
    server->reader.ends = true;
    pthread_cond_signal(&server->queue.unread_came);
    pthread_mutex_unlock(&server->queue.lock);
    if (server->reader.runs) pthread_join(server->reader.thread, NULL);
    server->reader.runs = false;
    kvf_ctx_free(server->reader.ctx);
    server->reader.ctx = NULL;
}
