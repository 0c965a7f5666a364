/* Pearson's and Spearman's correlation of two columns of numbers, as in scipy.
 *
 * Spearman's is Pearson's of the ranks, with the mean rank for ties. A constant column has no
 * correlation: NaN, as in scipy. */
#include "metric_priv.h"

#include <math.h>
#include <stdlib.h>

static double mean(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i];
    return sum / (double)n;
}

/* Detects constant columns by equal values, because a rounded mean leaves a nonzero norm. (Columns
 * are centred first: sums of raw squares would lose all digits for values far from 0.) */
static bool is_constant(const double *x, int64_t n)
{
    for (int64_t i = 1; i < n; i++)
        if (x[i] != x[0]) return false;
    return true;
}

static double pearson(const double *x, const double *y, int64_t n)
{
    double xy = 0, xx = 0, yy = 0, x_mean = mean(x, n), y_mean = mean(y, n);

    if (is_constant(x, n) || is_constant(y, n)) return NAN;
    for (int64_t i = 0; i < n; i++) {
        double dx = x[i] - x_mean, dy = y[i] - y_mean;
        xy += dx * dy;
        xx += dx * dx;
        yy += dy * dy;
    }
    double r = xy / (sqrt(xx) * sqrt(yy));
    return r > 1 ? 1 : r < -1 ? -1 : r; /* NaN is kept */
}

typedef struct ranked {
    double value;
    int64_t at;
} ranked;

static int by_value(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    return (x->value > y->value) - (x->value < y->value);
}

/* Computes ranks [n] from 1; false if a value has none. */
static bool rank(const double *x, ranked *items, double *ranks, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (isnan(x[i])) return false;
        items[i] = (ranked){x[i], i};
    }
    qsort(items, (size_t)n, sizeof *items, by_value);
    for (int64_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && items[end].value == items[i].value;)
            end++;
        for (int64_t k = i; k < end; k++)
            ranks[items[k].at] = (double)(i + 1 + end) / 2; /* mean of i + 1 .. end */
    }
    return true;
}

static kvf_status too_few(kvf_ctx *ctx, int64_t n)
{
    return kvf__fail(ctx, KVF_EDATA, "%lld examples to correlate, want 2 or more", (long long)n);
}

kvf_status kvf__pearson(kvf_ctx *ctx, const double *gold, const double *predicted, int64_t n,
                        double *out)
{
    if (n < 2) return too_few(ctx, n);
    *out = pearson(gold, predicted, n);
    return KVF_OK;
}

kvf_status kvf__spearman(kvf_ctx *ctx, const double *gold, const double *predicted, int64_t n,
                         double *out)
{
    ranked *items = NULL;
    double *ranks = NULL;

    if (n < 2) return too_few(ctx, n);
    kvf_status st = kvf__alloc_array(ctx, (size_t)n, sizeof *items, &items);
    if (!st) st = kvf__alloc_array(ctx, (size_t)n, 2 * sizeof *ranks, &ranks);
    if (!st)
        *out = rank(gold, items, ranks, n) && rank(predicted, items, ranks + n, n)
                   ? pearson(ranks, ranks + n, n)
                   : NAN;
    kvf__free(items);
    kvf__free(ranks);
    return st;
}
