/* Answers each path, directly or by a job. */
#include "call.h"
#include "web_page.h"

#include <stdlib.h>
#include <string.h>

/* Queues a job of the route's kind, which takes over the body. */
static kvf_status answer_job(kvf__call *call)
{
    kvf__job *job = NULL;
    KVF_TRY(kvf__alloc(NULL, sizeof *job, &job));
    job->server = call->server;
    job->kind = call->route->kind;
    job->tenant = call->tenant;
    job->body = call->body;
    call->body = (kvf__buf){0};
    if (kvf__queue_submit(&call->server->queue, job, &call->problem)) {
        call->job = job;
        return KVF_OK;
    }
    kvf__buf_done(&job->body);
    kvf__free(job);
    return KVF_OK;
}

/* Changes which models are served: for clients with a key alone. */
static kvf_status answer_control(kvf__call *call)
{
    if (call->tenant && call->server->options.n_prefix_dirs) return answer_job(call);
    kvf__problem_set(&call->problem, 403, NULL, "%s: start the server with %s to allow it",
                     call->route->path, call->tenant ? "--prefix-dir" : "--token-file");
    return KVF_OK;
}

static bool read_limit(kvf__call *call, int64_t *most)
{
    const size_t n = strspn(call->limit, "0123456789");
    const int64_t limit = n && n < 10 && !call->limit[n] ? atoll(call->limit) : 0;
    if (limit < 1)
        return kvf__problem_set(&call->problem, 400, "limit",
                                "limit: want a whole number from 1 to 999999999");
    if (limit < *most) *most = limit;
    return true;
}

/* Answers with all models, or the one in the path. */
static kvf_status answer_models(kvf__call *call)
{
    kvf__server *server = call->server;
    const char *name = call->url + strlen(call->route->path);
    int64_t most = KVF__MOST_MODELS + (int64_t)server->options.n_prefixes + 1;
    kvf__listed model;
    if (!call->route->subpath) {
        if (call->limit && !read_limit(call, &most)) return KVF_OK;
        return kvf__reply_models(&server->cache, call->tenant, call->after, most, server->created,
                                 &call->reply);
    }
    if (kvf__tenant_may(call->tenant, name) && kvf__prefix_cache_show(&server->cache, name, &model))
        return kvf__reply_model(&server->cache, &model, server->created, &call->reply);
    kvf__problem_no_model(&call->problem, name);
    return KVF_OK;
}

static kvf_status answer_tokenizer_info(kvf__call *call)
{
    return kvf__reply_tokenizer(call->server->base->tokenizer, &call->reply);
}

static kvf_status answer_page(kvf__call *call)
{
    call->type = "text/html; charset=utf-8";
    call->policy = kvf__web_policy;
    return kvf__buf_add(NULL, &call->reply, kvf__web_page, strlen(kvf__web_page));
}

static kvf_status answer_health(kvf__call *call)
{
    pthread_mutex_lock(&call->server->queue.lock);
    const bool closing = call->server->queue.closing;
    pthread_mutex_unlock(&call->server->queue.lock);
    if (closing) call->status = 503;
    return kvf__buf_printf(NULL, &call->reply, "{\"status\":\"%s\"}\n",
                           closing ? "stopping" : "ok");
}

static kvf_status answer_metrics(kvf__call *call)
{
    kvf__queue *queue = &call->server->queue;
    pthread_mutex_lock(&queue->lock);
    kvf__server_metrics metrics = call->server->metrics;
    kvf_status st = kvf__tenants_print(&call->server->tenants, &call->reply);
    metrics.queued = queue->n;
    metrics.queued_bytes = queue->bytes;
    pthread_mutex_unlock(&queue->lock);
    metrics.prefixes = kvf__prefix_cache_counts(&call->server->cache);
    kvf__guard_count(&call->server->guard, &metrics.connections, &metrics.evicted);
    call->type = "text/plain; version=0.0.4";
    return st ? st : kvf__server_metrics_print(&metrics, &call->reply);
}

static const kvf__route ROUTES[] = {
    {"POST", "/v1/completions", answer_job, .kind = KVF__COMPLETIONS},
    {"POST", "/v1/chat/completions", answer_job, .kind = KVF__CHAT},
    {"POST", "/v1/classify", answer_job, .kind = KVF__CLASSIFY},
    {"GET", "/v1/models", answer_models, .subpath = false},
    {"GET", "/v1/models/", answer_models, .subpath = true},
    {"POST", "/v1/load_lora_adapter", answer_control, .whole = true, .kind = KVF__LOAD},
    {"POST", "/v1/unload_lora_adapter", answer_control, .whole = true, .kind = KVF__UNLOAD},
    {"GET", "/tokenizer_info", answer_tokenizer_info, .open = false},
    {"POST", "/tokenize", answer_job, .kind = KVF__TOKENIZE},
    {"POST", "/detokenize", answer_job, .kind = KVF__DETOKENIZE},
    {"GET", "/metrics", answer_metrics, .whole = true},
    {"GET", "/health", answer_health, .open = true},
    {"GET", "/", answer_page, .open = true},
};

const kvf__route *kvf__route_find(const char *url)
{
    for (size_t i = 0; i < sizeof ROUTES / sizeof ROUTES[0]; i++) {
        const size_t n = strlen(ROUTES[i].path);
        if (!strncmp(ROUTES[i].path, url, n) && (ROUTES[i].subpath || !url[n])) return &ROUTES[i];
    }
    return NULL;
}
