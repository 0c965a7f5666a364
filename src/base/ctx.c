/* The context: thread count, log sink, last error, allocation counters.
 *
 * The OpenMP thread count belongs to the calling thread and to the host program: a public function
 * that computes sets the context's count and restores the host's. A bad KVF_CPU is refused when a
 * context is made, not later in a run. Only its spelling is checked here; src/tensor defines its
 * meaning. */
#include "ctx_int.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_THREADS = 1024 };

static const char *const CPU_LEVELS[] = {"ref", "avx2", "avx512", "avx512_bf16", "amx"};

static bool known_cpu_level(const char *level)
{
    for (size_t i = 0; i < sizeof CPU_LEVELS / sizeof CPU_LEVELS[0]; i++)
        if (strcmp(level, CPU_LEVELS[i]) == 0) return true;
    return false;
}

/* Reports errors to the caller's log, because no context exists yet to hold the line. */
static kvf_status check_options(const kvf_ctx_options *options)
{
    const char *level = getenv("KVF_CPU");
    kvf_ctx log_only = {.log = options->log, .log_user = options->log_user};

    if (KVF__CHECK_RESERVED(&log_only, kvf_ctx_options, options)) {
        kvf__log(&log_only, KVF_LOG_WARN, "%s", log_only.error);
        return KVF_EUSAGE;
    }
    if (options->threads < 0 || options->threads > MAX_THREADS) {
        kvf__log(&log_only, KVF_LOG_WARN, "threads is %d, want 1 to %d, or 0 for all cores",
                 options->threads, MAX_THREADS);
        return KVF_EUSAGE;
    }
    if (!options->alloc != !options->release) {
        kvf__log(&log_only, KVF_LOG_WARN, "alloc and release are needed together");
        return KVF_EUSAGE;
    }
    if (level && *level && !known_cpu_level(level)) {
        kvf__log(&log_only, KVF_LOG_WARN,
                 "environment: KVF_CPU is \"%s\", want ref, avx2, avx512, avx512_bf16 or amx",
                 level);
        return KVF_EUSAGE;
    }
    return KVF_OK;
}

kvf_status kvf_ctx_create(const kvf_ctx_options *options, kvf_ctx **out)
{
    const kvf_ctx_options defaults = {0};
    kvf_ctx *ctx;

    if (!options) options = &defaults;
    if (!out) return KVF_EUSAGE;
    KVF_TRY(check_options(options));
    ctx = calloc(1, sizeof *ctx);
    if (!ctx) return KVF_ENOMEM;

    ctx->threads = options->threads ? options->threads : kvf__usable_cores();
    if (options->check_program) {
        ctx->check_program = strdup(options->check_program);
        if (!ctx->check_program) {
            free(ctx);
            return KVF_ENOMEM;
        }
    }
    if (ctx->threads > MAX_THREADS) ctx->threads = MAX_THREADS;
    ctx->log = options->log;
    ctx->log_user = options->log_user;
    ctx->alloc = options->alloc;
    ctx->release = options->release;
    ctx->memory_user = options->memory_user;
    ctx->fail_in = -1;
    *out = ctx;
    return KVF_OK;
}

bool kvf__ctx_first(kvf_ctx *ctx, kvf__once what)
{
    const unsigned bit = 1u << what;
    if (!ctx) return true;
    bool first = !(ctx->done & bit);
    ctx->done |= bit;
    return first;
}

void kvf__ctx_hold(kvf_ctx *ctx, void *held, void (*leave)(void *held))
{
    ctx->held = held;
    ctx->leave = leave;
}

void *kvf__ctx_held(const kvf_ctx *ctx)
{
    return ctx->held;
}

void kvf_ctx_free(kvf_ctx *ctx)
{
    if (ctx && ctx->held) ctx->leave(ctx->held);
    if (ctx) free(ctx->check_program);
    free(ctx);
}

const char *kvf_ctx_error(const kvf_ctx *ctx)
{
    return ctx ? ctx->error : "";
}

int kvf_ctx_threads(const kvf_ctx *ctx)
{
    return ctx ? ctx->threads : 0;
}

/* ---- threads --------------------------------------------------------------------------------- */

kvf_status kvf__threads_enter(kvf_ctx *ctx, int *before)
{
    KVF_TRY(kvf__check_fork(ctx));
    KVF_TRY(kvf__memory_allows_threads(ctx));
    *before = omp_get_max_threads();
    omp_set_num_threads(ctx->threads);
    return KVF_OK;
}

void kvf__threads_leave(int before)
{
    omp_set_num_threads(before);
}

/* ---- stopping -------------------------------------------------------------------------------- */

void kvf_ctx_set_stop(kvf_ctx *ctx, const volatile int *stop)
{
    if (ctx) ctx->stop = stop;
}

int kvf__ctx_stop(const kvf_ctx *ctx)
{
    return ctx && ctx->stop ? *ctx->stop : 0;
}

void kvf__ctx_stop_when(kvf_ctx *ctx, bool (*stops)(void *user), void *user)
{
    ctx->stops = stops;
    ctx->stops_user = user;
}

kvf_status kvf__ctx_check_stop(kvf_ctx *ctx)
{
    const bool flagged = kvf__ctx_stop(ctx) && !ctx->defers_stop;
    if (!flagged && !(ctx && ctx->stops && ctx->stops(ctx->stops_user))) return KVF_OK;
    return kvf__fail(ctx, KVF_ESTOPPED, "stopped on request");
}

void kvf__ctx_defer_stop(kvf_ctx *ctx, bool defer)
{
    ctx->defers_stop = defer;
}

const volatile int *kvf__ctx_swap_stop(kvf_ctx *ctx, const volatile int *stop)
{
    const volatile int *before = ctx->stop;
    ctx->stop = stop;
    return before;
}

uint64_t kvf__ctx_allocations(const kvf_ctx *ctx)
{
    return ctx->allocations;
}

void kvf__ctx_fail_allocation(kvf_ctx *ctx, int64_t n)
{
    ctx->fail_in = n;
}
