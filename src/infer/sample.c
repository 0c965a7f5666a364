/* Samples the next token from logits: greedy, temperature, top-k, top-p (nucleus, Holtzman et al.
 * 2020), min-p (Nguyen et al. 2024). Sorting is avoided: a cut pops the largest candidates off a
 * heap, and a draw from all candidates goes by id. Sums are f64 in an order that depends only on
 * the logits, so a sample depends only on them and the generator's state. */
#include "sample.h"

#include <float.h>
#include <math.h>

kvf__logit_sum kvf__log_sum(const float *logits, int64_t V)
{
    kvf__logit_sum all = {.best = -1};
    double sum = 0;
    for (int64_t v = 0; v < V; v++) {
        if (isnan(logits[v])) continue;
        all.numbers++;
        if (all.best < 0 || logits[v] > logits[all.best]) all.best = v;
    }
    const double most = all.best < 0 ? -INFINITY : (double)logits[all.best];
    for (int64_t v = 0; v < V; v++)
        if (!isnan(logits[v])) sum += exp((double)logits[v] - most);
    all.value = most + log(sum);
    return all;
}

bool kvf__logits_fine(const float *logits, int64_t V)
{
    int bad = 0, some = 0;
    for (int64_t v = 0; v < V; v++) {
        bad |= !(logits[v] <= FLT_MAX);
        some |= logits[v] >= -FLT_MAX;
    }
    return !bad && some;
}

/* Computes several partial maxima in parallel, then their maximum. */
static float largest(const float *logits, int64_t V)
{
    enum { SIDE = 32 };
    float best[SIDE], top = -INFINITY;
    int64_t i = 0;
    for (int s = 0; s < SIDE; s++)
        best[s] = -INFINITY;
    for (; i + SIDE <= V; i += SIDE)
        for (int s = 0; s < SIDE; s++)
            best[s] = logits[i + s] > best[s] ? logits[i + s] : best[s];
    for (; i < V; i++)
        top = logits[i] > top ? logits[i] : top;
    for (int s = 0; s < SIDE; s++)
        top = best[s] > top ? best[s] : top;
    return top;
}

static int32_t greedy(const float *logits, int64_t V)
{
    const float top = largest(logits, V);
    for (int64_t i = 0; i < V; i++)
        if (logits[i] == top) return (int32_t)i;
    return 0;
}

/* ---- a heap of candidates, the likeliest on top ---------------------------------------------- */

/* Orders by descending logit, then ascending id. */
static bool goes_before(kvf__candidate a, kvf__candidate b)
{
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

static void sift_down(kvf__candidate *heap, int64_t at, int64_t n)
{
    const kvf__candidate moved = heap[at];
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && goes_before(heap[child + 1], heap[child])) child++;
        if (!goes_before(heap[child], moved)) break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

static void make_heap(kvf__candidate *heap, int64_t n)
{
    for (int64_t i = n / 2 - 1; i >= 0; i--)
        sift_down(heap, i, n);
}

/* Moves the top of the heap to its end. */
static void pop(kvf__candidate *heap, int64_t n)
{
    const kvf__candidate top = heap[0];
    heap[0] = heap[n - 1];
    heap[n - 1] = top;
    sift_down(heap, 0, n - 1);
}

/* ---- draws ----------------------------------------------------------------------------------- */

/* Candidates with their weights exp((logit - top) / temperature). */
typedef struct distribution {
    kvf__candidate *list;
    int64_t n;
    double top, temperature;
} distribution;

static double weight(const distribution *d, int64_t i)
{
    return exp(((double)d->list[i].logit - d->top) / d->temperature);
}

static double weights(const distribution *d)
{
    double sum = 0;
    for (int64_t i = 0; i < d->n; i++)
        sum += weight(d, i);
    return sum;
}

/* Draws one of the candidates, whose weights add up to `sum`. */
static int32_t pick(const distribution *d, double sum, kvf__rng *rng)
{
    double left = kvf__rng_uniform(rng) * sum;
    for (int64_t i = 0; i < d->n; i++) {
        left -= weight(d, i);
        if (left < 0) return d->list[i].id;
    }
    return d->list[d->n - 1].id;
}

/* Keeps the `most` likeliest, or the fewest that reach the weight `enough`, at least one, with the
 * least likely first. Returns their weight. */
static double cut(distribution *d, int64_t most, double enough)
{
    double mass = 0;
    int64_t kept = 0;
    make_heap(d->list, d->n);
    while (kept < most && (!kept || mass < enough)) {
        pop(d->list, d->n - kept);
        kept++;
        mass += weight(d, d->n - kept);
    }
    d->list += d->n - kept;
    d->n = kept;
    return mass;
}

/* Keeps, in order, candidates with at least `least` times the largest weight, which is 1. Returns
 * their weight. */
static double drop_unlikely(distribution *d, double least)
{
    double mass = 0;
    int64_t kept = 0;
    for (int64_t i = 0; i < d->n; i++) {
        const double w = weight(d, i);
        if (w < least) continue;
        mass += w;
        d->list[kept++] = d->list[i];
    }
    d->n = kept;
    return mass;
}

int32_t kvf__sample(const kvf__sampling *sampling, const float *logits, int64_t V, kvf__rng *rng,
                    kvf__candidate *scratch)
{
    if (!kvf__logits_fine(logits, V)) return -1;
    if (!(sampling->temperature > 0)) return greedy(logits, V);
    distribution d = {
        .list = scratch, .top = (double)largest(logits, V), .temperature = sampling->temperature};
    for (int64_t i = 0; i < V; i++)
        scratch[d.n++] = (kvf__candidate){logits[i], (int32_t)i};
    if (sampling->top_k > 0 && sampling->top_k < d.n) cut(&d, sampling->top_k, INFINITY);
    const double all = weights(&d);
    double sum = sampling->top_p < 1 ? cut(&d, d.n, sampling->top_p * all) : all;
    if (sampling->min_p > 0) sum = drop_unlikely(&d, sampling->min_p);
    return pick(&d, sum, rng);
}
