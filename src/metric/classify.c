/* Scores of classes: accuracy, F1, Matthews correlation, as in scikit-learn.
 *
 * All are computed from one confusion matrix. A macro mean covers the classes that occur on either
 * side, not all classes of the task, as scikit-learn does with `labels=None`. So a class missing
 * from a small test set does not lower it. */
#include "metric_priv.h"

#include <math.h>
#include <string.h>

kvf__prf kvf__prf_of(int64_t correct, int64_t predicted, int64_t gold)
{
    kvf__prf s = {.support = gold};
    if (predicted) s.precision = (double)correct / (double)predicted;
    if (gold) s.recall = (double)correct / (double)gold;
    if (predicted + gold) s.f1 = 2 * (double)correct / (double)(predicted + gold);
    return s;
}

void kvf__prf_add(kvf__prf *sum, const kvf__prf *by)
{
    sum->precision += by->precision;
    sum->recall += by->recall;
    sum->f1 += by->f1;
    sum->support += by->support;
}

void kvf__prf_divide(kvf__prf *sum, double n)
{
    if (n == 0) return;
    sum->precision /= n;
    sum->recall /= n;
    sum->f1 /= n;
}

/* Gorodkin's K-category form: covariances of the two indicator matrices. */
static double matthews(const int64_t *gold, const int64_t *predicted, int32_t labels, double n,
                       double correct)
{
    double both = 0, gg = 0, pp = 0;

    for (int32_t c = 0; c < labels; c++) {
        both += (double)gold[c] * (double)predicted[c];
        gg += (double)gold[c] * (double)gold[c];
        pp += (double)predicted[c] * (double)predicted[c];
    }
    double cov_gg = n * n - gg, cov_pp = n * n - pp;
    if (cov_gg == 0 || cov_pp == 0) return 0;
    return (correct * n - both) / sqrt(cov_gg * cov_pp);
}

/* Counts per class: correct, gold, predicted, each [labels]. */
static kvf_status count(kvf_ctx *ctx, const int32_t *gold, const int32_t *predicted, int64_t n,
                        int32_t labels, int64_t *counts)
{
    int64_t *right = counts, *in_gold = right + labels, *in_predicted = in_gold + labels;

    for (int64_t i = 0; i < n; i++) {
        int32_t g = gold[i], p = predicted[i];
        if (g < 0 || g >= labels || p < 0 || p >= labels)
            return kvf__fail(ctx, KVF_EDATA, "example %lld: class %d, want 0 to %d", (long long)i,
                             g < 0 || g >= labels ? g : p, labels - 1);
        right[g] += g == p;
        in_gold[g]++;
        in_predicted[p]++;
    }
    return KVF_OK;
}

static void score(const int64_t *counts, int64_t n, int32_t labels, kvf__prf *per_class,
                  kvf__class_scores *out)
{
    const int64_t *right = counts, *in_gold = right + labels, *in_predicted = in_gold + labels;
    int64_t correct = 0, present = 0;

    memset(out, 0, sizeof *out);
    for (int32_t c = 0; c < labels; c++) {
        kvf__prf s = kvf__prf_of(right[c], in_predicted[c], in_gold[c]);
        correct += right[c];
        if (per_class) per_class[c] = s;
        if (!in_gold[c] && !in_predicted[c]) continue;
        kvf__prf_add(&out->macro, &s);
        present++;
    }
    kvf__prf_divide(&out->macro, (double)present);
    out->micro = kvf__prf_of(correct, n, n);
    out->accuracy = (double)correct / (double)n;
    out->mcc = matthews(in_gold, in_predicted, labels, (double)n, (double)correct);
}

kvf_status kvf__classify(kvf_ctx *ctx, const int32_t *gold, const int32_t *predicted, int64_t n,
                         int32_t labels, kvf__prf *per_class, kvf__class_scores *out)
{
    int64_t *counts = NULL;

    if (n <= 0 || labels <= 0) return kvf__fail(ctx, KVF_EDATA, "no examples to score");
    kvf_status st = kvf__alloc_array(ctx, (size_t)labels, 3 * sizeof *counts, &counts);
    if (!st) st = count(ctx, gold, predicted, n, labels, counts);
    if (!st) score(counts, n, labels, per_class, out);
    kvf__free(counts);
    return st;
}
