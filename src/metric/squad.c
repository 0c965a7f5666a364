/* Exact match and F1 of answers, as in the official scripts of SQuAD 1.1 and 2.0: both sides
 * normalised, F1 over their bags of words, the best reference counts. */
#include "metric_priv.h"
#include "words.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct judge {
    kvf__vocabulary vocabulary;
    kvf__ids predicted, reference, predicted_bag, reference_bag;
    bool no_answers;
} judge;

static int by_id(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static kvf_status sorted(kvf_ctx *ctx, const kvf__ids *words, kvf__ids *bag)
{
    bag->n = 0;
    KVF_TRY(kvf__ids_append(ctx, bag, words->data, words->n));
    if (bag->n) qsort(bag->data, bag->n, sizeof *bag->data, by_id);
    return KVF_OK;
}

static size_t shared(const kvf__ids *a, const kvf__ids *b)
{
    size_t n = 0;
    for (size_t i = 0, k = 0; i < a->n && k < b->n;) {
        int32_t x = a->data[i], y = b->data[k];
        n += x == y;
        i += x <= y;
        k += y <= x;
    }
    return n;
}

static bool same(const kvf__ids *a, const kvf__ids *b)
{
    return a->n == b->n && (!a->n || !memcmp(a->data, b->data, a->n * sizeof *a->data));
}

/* Raises *exact and *f1 to the scores for j->reference. */
static kvf_status compare(kvf_ctx *ctx, judge *j, double *exact, double *f1)
{
    KVF_TRY(sorted(ctx, &j->reference, &j->reference_bag));
    bool equal = same(&j->predicted, &j->reference);
    size_t n = shared(&j->predicted_bag, &j->reference_bag);
    double score = n ? 2 * (double)n / (double)(j->predicted.n + j->reference.n) : 0;
    if (j->no_answers && (!j->predicted.n || !j->reference.n)) score = equal;
    *exact = fmax(*exact, equal);
    *f1 = fmax(*f1, score);
    return KVF_OK;
}

/* SQuAD 2.0 ignores references that normalise to nothing; if none remains, "" is correct. */
static kvf_status judge_one(kvf_ctx *ctx, judge *j, const kvf__text_rows *rows, int64_t i,
                            double *exact, double *f1)
{
    int64_t compared = 0;

    *exact = *f1 = 0;
    KVF_TRY(
        kvf__words(ctx, &j->vocabulary, kvf__cut_answer, kvf__predicted(rows, i), &j->predicted));
    KVF_TRY(sorted(ctx, &j->predicted, &j->predicted_bag));
    for (int64_t r = rows->start[i]; r < rows->start[i + 1]; r++) {
        KVF_TRY(kvf__words(ctx, &j->vocabulary, kvf__cut_answer, kvf__reference(rows, r),
                           &j->reference));
        if (j->no_answers && !j->reference.n) continue;
        KVF_TRY(compare(ctx, j, exact, f1));
        compared++;
    }
    if (compared) return KVF_OK;
    j->reference.n = 0;
    return compare(ctx, j, exact, f1);
}

kvf_status kvf__squad(kvf_ctx *ctx, const kvf__text_rows *rows, bool no_answers,
                      kvf__squad_scores *out)
{
    judge j = {.no_answers = no_answers};
    /* index 0: without an answer, 1: with one */
    double exact[2] = {0}, f1[2] = {0}, count[2] = {0};

    kvf_status st = kvf__check_texts(ctx, rows, !no_answers);
    for (int64_t i = 0; i < rows->n && !st; i++) {
        bool has = rows->start[i] < rows->start[i + 1];
        double e, f;
        st = judge_one(ctx, &j, rows, i, &e, &f);
        if (st) break;
        exact[has] += e;
        f1[has] += f;
        count[has]++;
    }
    if (!st)
        *out = (kvf__squad_scores){.exact = 100 * (exact[0] + exact[1]) / (double)rows->n,
                                   .f1 = 100 * (f1[0] + f1[1]) / (double)rows->n,
                                   .has_exact = 100 * exact[1] /
                                                count[1], /* 0 / 0 if there are none */
                                   .has_f1 = 100 * f1[1] / count[1],
                                   .none_exact = 100 * exact[0] / count[0],
                                   .none_f1 = 100 * f1[0] / count[0],
                                   .has = (int64_t)count[1],
                                   .none = (int64_t)count[0]};
    kvf__vocabulary_done(&j.vocabulary);
    kvf__ids_done(&j.predicted);
    kvf__ids_done(&j.reference);
    kvf__ids_done(&j.predicted_bag);
    kvf__ids_done(&j.reference_bag);
    return st;
}
