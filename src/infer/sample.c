/* The next token from logits: greedy, temperature, top-k, top-p (nucleus, Holtzman et al. 2020).
 * Sums run in f64 over candidates in descending order, so a draw depends on logits and generator
 * state alone. */
#include "infer_int.h"

#include <math.h>
#include <stdlib.h>

static int32_t greedy(const float *logits, int64_t V)
{
    int64_t best = 0;
    for (int64_t i = 1; i < V; i++)
        if (logits[i] > logits[best] || isnan(logits[best])) best = i;
    return (int32_t)best;
}

/* Descending logit, ascending id. */
static int by_logit(const void *a, const void *b)
{
    const kvf__candidate *x = a, *y = b;
    if (x->logit != y->logit) return x->logit < y->logit ? 1 : -1;
    return (x->id > y->id) - (x->id < y->id);
}

/* How many of the sorted candidates reach probability top_p, at least one. sum: of all their
 * weights. */
static int64_t nucleus(const kvf__candidate *c, int64_t n, double temperature, double top_p,
                       double sum)
{
    double mass = 0;
    for (int64_t i = 0; i < n; i++) {
        mass += exp((c[i].logit - c[0].logit) / temperature);
        if (mass >= top_p * sum) return i + 1;
    }
    return n;
}

int32_t kvf__sample(const kvf__sampling *sampling, const float *logits, int64_t V, kvf__rng *rng,
                    kvf__candidate *scratch)
{
    if (!(sampling->temperature > 0)) return greedy(logits, V);
    int64_t n = 0;
    for (int64_t i = 0; i < V; i++)
        if (!isnan(logits[i])) scratch[n++] = (kvf__candidate){logits[i], (int32_t)i};
    if (!n) return 0;
    qsort(scratch, (size_t)n, sizeof *scratch, by_logit);
    if (sampling->top_k > 0 && sampling->top_k < n) n = sampling->top_k;

    double sum = 0, t = sampling->temperature;
    for (int64_t i = 0; i < n; i++)
        sum += exp((scratch[i].logit - scratch[0].logit) / t);
    if (sampling->top_p < 1) {
        n = nucleus(scratch, n, t, sampling->top_p, sum);
        sum = 0;
        for (int64_t i = 0; i < n; i++)
            sum += exp((scratch[i].logit - scratch[0].logit) / t);
    }
    double left = kvf__rng_uniform(rng) * sum;
    for (int64_t i = 0; i < n; i++) {
        left -= exp((scratch[i].logit - scratch[0].logit) / t);
        if (left < 0) return scratch[i].id;
    }
    return scratch[n - 1].id;
}
