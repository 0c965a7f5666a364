/* A job up to its turn: room for what is asked for, its place in the queue, the ids that its rows
 * begin with; and its end.
 *
 * A request of several prompts has n choices for each, one prompt's behind the other's; choice i of
 * them all draws as row i of a `generate` over a file with each prompt n times. */
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "serve_int.h"

/* ---- making and dropping --------------------------------------------------------------------- */

static bool make_room(kvf__job *job)
{
    const kvf__request *request = &job->request;
    job->n_prompts = request->chat ? 1 : (int64_t)request->n_prompts;
    job->n_choices = job->n_prompts * request->n;
    if (kvf__alloc_array(NULL, (size_t)job->n_prompts, sizeof *job->prompts, &job->prompts))
        return false;
    if (kvf__alloc_array(NULL, (size_t)job->n_choices, sizeof *job->choices, &job->choices))
        return false;
    for (int64_t i = 0; i < job->n_choices; i++)
        job->choices[i] = (kvf__choice){.job = job, .index = i};
    return true;
}

static void empty(kvf__job *job)
{
    for (int64_t i = 0; job->prompts && i < job->n_prompts; i++)
        kvf__ids_done(&job->prompts[i]);
    for (int64_t i = 0; job->choices && i < job->n_choices; i++)
        kvf__buf_done(&job->choices[i].text);
    kvf__free(job->prompts);
    kvf__free(job->choices);
    job->prompts = NULL;
    job->choices = NULL;
}

void kvf__job_drop(kvf__job *job)
{
    if (--job->owners > 0) return;
    empty(job);
    kvf__request_done(&job->request);
    kvf__buf_done(&job->out);
    kvf__free(job);
}

/* ---- the queue ------------------------------------------------------------------------------- */

/* Draws of a request without a seed begin anywhere. */
static uint64_t any_seed(void)
{
    uint64_t seed = 0;
    if (getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed) seed = (uint64_t)time(NULL);
    return seed >> 1;
}

/* Under the lock, as what follows. */
static void append(kvf__queue *queue, kvf__job *job)
{
    if (queue->last) queue->last->next = job;
    if (!queue->last) queue->first = job;
    queue->last = job;
    job->in = queue;
    job->server->figures.queued++;
}

static void leave_queue(kvf__job *job)
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
    job->server->figures.queued--;
}

kvf__job *kvf__queue_take(kvf__queue *queue)
{
    kvf__job *job = queue->first;
    if (job) leave_queue(job);
    return job;
}

bool kvf__job_abandon(kvf__job *job)
{
    if (job->state == KVF__JOB_DONE) return false;
    if (job->gone) return true;
    job->gone = true;
    job->server->figures.gone++;
    if (job->in) {
        leave_queue(job);
        kvf__job_drop(job);
    }
    return true;
}

static void accept_job(kvf__server *server, kvf__job *job)
{
    job->reply = (kvf__reply){.chat = job->request.chat,
                              .id = ++server->ids,
                              .created = (int64_t)time(NULL),
                              .model = server->shelf.names[job->model]};
    job->owners = 2;
    append(&server->ready, job);
    server->pending++;
    pthread_cond_signal(&server->arrival);
}

static bool take_place(kvf__server *server, kvf__job *job, kvf__problem *problem)
{
    if (server->closing) return kvf__problem_set(problem, 503, NULL, "the server is shutting down");
    if (server->figures.queued < server->options.max_queue) {
        accept_job(server, job);
        return true;
    }
    kvf__problem_set(problem, 503, NULL, "%lld requests wait already: try again later",
                     (long long)server->figures.queued);
    problem->code = "overloaded";
    return false;
}

bool kvf__job_submit(kvf__server *server, kvf__job *job, kvf__problem *problem)
{
    bool taken = false;
    job->model = kvf__shelf_find(&server->shelf, job->request.model);
    if (job->model < 0) {
        kvf__problem_set(problem, 404, "model", "the model \"%.80s\" does not exist",
                         job->request.model);
        problem->code = "model_not_found";
        return false;
    }
    if (make_room(job)) {
        if (!job->request.seeded) job->request.seed = any_seed();
        job->server = server;
        job->arrived = kvf__clock();
        job->first = true;
        pthread_mutex_lock(&server->lock);
        taken = take_place(server, job, problem);
        pthread_mutex_unlock(&server->lock);
    } else {
        kvf__problem_set(problem, 500, NULL, "out of memory");
    }
    if (!taken) empty(job);
    return taken;
}

/* ---- ids ------------------------------------------------------------------------------------- */

static kvf_status check_ids(kvf_ctx *ctx, const kvf_base *base, const kvf__ids *ids)
{
    const int64_t V = kvf__model_desc(base->model)->V;
    for (size_t i = 0; i < ids->n; i++)
        if (ids->data[i] >= V)
            return kvf__fail(ctx, KVF_EDATA, "prompt: id %ld is outside the vocabulary of %lld",
                             (long)ids->data[i], (long long)V);
    return KVF_OK;
}

kvf_status kvf__job_render(kvf_ctx *ctx, const kvf_base *base, kvf__job *job)
{
    const kvf__request *request = &job->request;
    const kvf__render *how = &job->held->renderer.render;
    if (request->chat)
        return kvf__render_chat(ctx, how, request->messages, request->n_messages, job->prompts);
    for (size_t i = 0; i < request->n_prompts; i++) {
        const kvf__asked *asked = &request->prompts[i];
        if (asked->text) {
            KVF_TRY(
                kvf__render_prompt(ctx, how, asked->text, strlen(asked->text), &job->prompts[i]));
            continue;
        }
        KVF_TRY(check_ids(ctx, base, &asked->ids));
        KVF_TRY(kvf__render_prompt_ids(ctx, how, asked->ids.data, asked->ids.n, &job->prompts[i]));
    }
    return KVF_OK;
}
