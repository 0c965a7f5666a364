/* Runs the server from options to end: creates and frees its parts in order. */
#include <time.h>

#include "access.h"
#include "access_log.h"

enum { DEFAULT_CONTEXT = 4096 };

kvf_serve_options kvf_serve_defaults(void)
{
    return (kvf_serve_options){.host = "127.0.0.1",
                               .port = 8080,
                               .max_body = 1 << 20,
                               .max_rows = 16,
                               .max_queue = 256,
                               .max_queue_bytes = 64 << 20,
                               .max_tokens = 1024,
                               .max_context = DEFAULT_CONTEXT,
                               .prefix_memory = 1 << 30,
                               .timeout = 30};
}

static kvf_status check_options(kvf_ctx *ctx, const kvf_serve_options *o)
{
    const struct {
        const char *name;
        int64_t value, least, most;
    } rows[] = {{"port", o->port, 0, 65535},
                {"max-body", o->max_body, 1, INT32_MAX},
                {"max-rows", o->max_rows, 1, 1024},
                {"max-queue", o->max_queue, 0, INT32_MAX},
                {"max-queue-bytes", o->max_queue_bytes, 1, INT64_MAX},
                {"max-tokens", o->max_tokens, 1, INT32_MAX},
                {"max-context", o->max_context, 0, INT32_MAX},
                {"prefix-memory", o->prefix_memory, 1, INT64_MAX / 2},
                {"cache-memory", o->cache_memory, 0, INT64_MAX / 2},
                {"tenant-rows", o->tenant_rows, 0, INT32_MAX},
                {"tenant-queue", o->tenant_queue, 0, INT32_MAX},
                {"tenant-tokens", o->tenant_tokens, 0, INT32_MAX},
                {"timeout", o->timeout, 1, 86400}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].value < rows[i].least || rows[i].value > rows[i].most)
            return kvf__fail(ctx, KVF_EUSAGE, "%s %lld: want %lld to %lld", rows[i].name,
                             (long long)rows[i].value, (long long)rows[i].least,
                             (long long)rows[i].most);
    if (!o->token_file && (o->tenant_rows || o->tenant_queue || o->tenant_tokens))
        return kvf__fail(ctx, KVF_EUSAGE, "limits of tenants need a token file");
    return KVF_OK;
}

static kvf_status open_engine(kvf_ctx *ctx, kvf__server *server)
{
    const kvf__desc *d = kvf__model_desc(server->base->model);
    int64_t most = server->options.max_context;
    if (!most || most > d->position.max) most = d->position.max;
    if (!d->block.causal) return KVF_OK; /* it classifies and generates no text */
    KVF_TRY(kvf__engine_create(ctx, server->base, server->options.max_rows, most, &server->engine));
    if (!server->options.cache_memory) return KVF_OK;
    return kvf__engine_keep(ctx, server->engine, (size_t)server->options.cache_memory);
}

static kvf_status serve(kvf_ctx *ctx, kvf__server *server)
{
    int port = 0;
    const char *token_file = server->options.token_file, *log_file = server->options.access_log;
    KVF_TRY(check_options(ctx, &server->options));
    KVF_TRY(kvf__origins_check(ctx, &server->options));
    if (token_file) KVF_TRY(kvf__tenants_read(ctx, token_file, &server->tenants));
    if (log_file) KVF_TRY(kvf__access_log_open(ctx, log_file, &server->access_log));
    KVF_TRY(open_engine(ctx, server));
    KVF_TRY(kvf__prefix_cache_init(ctx, server->base, &server->options, &server->cache));
    KVF_TRY(kvf__reader_start(ctx, server));
    KVF_TRY(kvf__http_start(ctx, server, &port));
    if (server->options.listening) server->options.listening(server->options.user, port);
    KVF_TRY(kvf__work(server));
    return kvf__fail(ctx, KVF_ESTOPPED, "stopped on request");
}

static kvf_status serve_until_stop(kvf_ctx *ctx, kvf_base *base, const kvf_serve_options *options,
                                   kvf_serve_totals *totals)
{
    const double begin = kvf__clock();
    kvf__server server = {
        .ctx = ctx, .base = base, .options = *options, .access_log = -1, .created = time(NULL)};
    if (!options->base_name) server.options.base_name = kvf_base_name(base);
    server.metrics.max_rows = options->max_rows;
    kvf__queue_init(&server.queue, &server.options);
    kvf__ctx_defer_stop(ctx, true); /* accepted requests are answered first */
    kvf_status st = serve(ctx, &server);
    kvf__ctx_defer_stop(ctx, false);
    kvf__reader_stop(&server);
    kvf__http_stop(&server);
    if (totals)
        *totals = (kvf_serve_totals){.requests = server.metrics.answered,
                                     .prompt_tokens = server.metrics.engine.prompt_tokens,
                                     .new_tokens = server.metrics.engine.new_tokens,
                                     .reloads = server.cache.reloads,
                                     .seconds = kvf__clock() - begin};
    kvf__engine_free(server.engine);
    kvf__scorer_free(server.scorer);
    kvf__prefix_cache_done(&server.cache);
    kvf__access_log_close(server.access_log);
    kvf__tenants_done(&server.tenants);
    kvf__queue_done(&server.queue);
    return st;
}

kvf_status kvf_serve(kvf_ctx *ctx, kvf_base *base, const kvf_serve_options *options,
                     kvf_serve_totals *totals)
{
    KVF_TRY(KVF__NEED(ctx, base, options));
    KVF_TRY(KVF__NEED(ctx, options->host));
    KVF_TRY(KVF__CHECK_ENUM(ctx, options->checkpoint, KVF_CHECKPOINT_LAST));
    if (options->n_prefixes) KVF_TRY(KVF__NEED(ctx, options->prefixes));
    for (size_t i = 0; i < options->n_prefixes; i++)
        KVF_TRY(KVF__NEED(ctx, options->prefixes[i].name, options->prefixes[i].path));
    if (options->n_prefix_dirs) KVF_TRY(KVF__NEED(ctx, options->prefix_dirs));
    if (options->n_allow_hosts) KVF_TRY(KVF__NEED(ctx, options->allow_hosts));
    if (options->n_cors) KVF_TRY(KVF__NEED(ctx, options->cors));
    KVF__RETURN(ctx, serve_until_stop(ctx, base, options, totals));
}
