/* An ensemble of prefixes: every row is decoded with each prefix, and the next token is sampled
 * from the mean of their probabilities, as in `eval`. Each prefix has its own session, so prefixes
 * may differ in length, be before or inside rows, and have their own heads. With at most one prefix
 * the session's logits are used directly. Otherwise the result is the log of the mean
 * probabilities, so that temperature, top-k and the like apply to the mean. */
#include "ensemble.h"

#include <assert.h>
#include <math.h>

struct kvf__ensemble {
    int64_t n, rows, V;
    int threads;
    kvf__session **sessions; /* [n] */
    double *mean;            /* [rows, V] sums of probabilities; NULL if n is 1 */
    float *logits;           /* [rows, V] */
};

/* Checks that the prefixes read the same rows. */
static kvf_status check_same_rows(kvf_ctx *ctx, const kvf_prefix *const *prefixes, int64_t n)
{
    for (int64_t i = 1; i < n; i++)
        if (!kvf__prefix_same_rows(prefixes[i], prefixes[0]))
            return kvf__fail(ctx, KVF_EUSAGE,
                             "prefix %lld has its virtual tokens at other positions of the row "
                             "than the first: merge both to prefix files",
                             (long long)i + 1);
    return KVF_OK;
}

static void lay_out(void *object, kvf__carver *carve)
{
    kvf__ensemble *e = object;
    e->sessions = kvf__carve(carve, e->n, 1, sizeof *e->sessions);
    if (e->n == 1) return;
    e->mean = kvf__carve(carve, e->rows, e->V, sizeof *e->mean);
    e->logits = kvf__carve(carve, e->rows, e->V, sizeof *e->logits);
}

kvf_status kvf__ensemble_create(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *const *prefixes,
                                int64_t n, const kvf__session_limits *limits, kvf__ensemble **out)
{
    kvf__ensemble made = {.n = n > 0 ? n : 1,
                          .rows = limits->rows,
                          .V = kvf__model_desc(base->model)->V,
                          .threads = kvf_ctx_threads(ctx)};
    kvf__ensemble *e = NULL;
    kvf_status st = KVF_OK;
    KVF_TRY(check_same_rows(ctx, prefixes, n));
    KVF_TRY(kvf__carve_object(ctx, lay_out, &made, sizeof made, &e));
    for (int64_t i = 0; !st && i < e->n; i++)
        st = kvf__session_create(ctx, base, n ? prefixes[i] : NULL, limits, &e->sessions[i]);
    KVF__GIVE(st, out, e, kvf__ensemble_free(e));
    return st;
}

void kvf__ensemble_free(kvf__ensemble *ensemble)
{
    if (!ensemble) return;
    for (int64_t i = 0; i < ensemble->n; i++)
        kvf__session_free(ensemble->sessions[i]);
    kvf__free(ensemble);
}

void kvf__ensemble_copy(kvf__ensemble *ensemble, int64_t from, int64_t to, int64_t n)
{
    for (int64_t i = 0; i < ensemble->n; i++)
        kvf__session_copy(ensemble->sessions[i], from, to, n);
}

void kvf__ensemble_reset(kvf__ensemble *ensemble)
{
    for (int64_t i = 0; i < ensemble->n; i++)
        kvf__session_reset(ensemble->sessions[i]);
}

/* Adds softmax(logits) to sum [V]. A NaN stays NaN without affecting other items. */
static void add_probabilities(double *sum, const float *logits, int64_t V)
{
    double top = -INFINITY, total = 0;
    for (int64_t v = 0; v < V; v++)
        if ((double)logits[v] > top) top = (double)logits[v];
    for (int64_t v = 0; v < V; v++)
        if (!isnan(logits[v])) total += exp((double)logits[v] - top);
    const double whole = top + log(total);
    for (int64_t v = 0; v < V; v++)
        sum[v] += exp((double)logits[v] - whole);
}

kvf_status kvf__ensemble_feed(kvf_ctx *ctx, kvf__ensemble *ensemble, const kvf__tokens *tokens,
                              const float **logits)
{
    const int64_t n = tokens->n, V = ensemble->V;
    if (ensemble->n == 1) return kvf__session_feed(ctx, ensemble->sessions[0], tokens, logits);
    for (int64_t i = 0; i < n * V; i++)
        ensemble->mean[i] = 0;
    for (int64_t i = 0; i < ensemble->n; i++) {
        const float *own = NULL;
        KVF_TRY(kvf__session_feed(ctx, ensemble->sessions[i], tokens, &own));
#pragma omp parallel for schedule(static) num_threads(ensemble->threads) if (n > 1)
        for (int64_t r = 0; r < n; r++)
            add_probabilities(ensemble->mean + r * V, own + r * V, V);
    }
#pragma omp parallel for schedule(static) num_threads(ensemble->threads)
    for (int64_t i = 0; i < n * V; i++)
        ensemble->logits[i] = (float)log(ensemble->mean[i] / (double)ensemble->n);
    *logits = ensemble->logits;
    return KVF_OK;
}

kvf_status kvf__ensemble_feed_runs(kvf_ctx *ctx, kvf__ensemble *ensemble, const kvf__tokens *tokens,
                                   const float **logits)
{
    assert(ensemble->n == 1);
    return kvf__session_feed_runs(ctx, ensemble->sessions[0], tokens, logits);
}

void kvf__ensemble_drop(kvf__ensemble *ensemble, int64_t slot, int64_t n)
{
    kvf__session_drop(ensemble->sessions[0], slot, n);
}
