/* ROUGE-L (Lin, 2004) as the rouge_score package computes it without stemmer: precision and recall
 * of the longest common subsequence of words. */
#include "metric_priv.h"
#include "words.h"

typedef struct scorer {
    kvf__vocabulary vocabulary;
    kvf__ids predicted, reference;
    kvf__ids row; /* row of the table of lengths [predicted words + 1] */
} scorer;

/* One row suffices: `diagonal` keeps the entry overwritten last. */
static kvf_status common_length(kvf_ctx *ctx, scorer *s, int32_t *out)
{
    s->row.n = 0;
    for (size_t k = 0; k <= s->predicted.n; k++)
        KVF_TRY(kvf__ids_add(ctx, &s->row, 0));
    int32_t *row = s->row.data;
    for (size_t i = 0; i < s->reference.n; i++) {
        int32_t diagonal = 0;
        for (size_t k = 0; k < s->predicted.n; k++) {
            int32_t above = row[k + 1], left = row[k];
            if (s->reference.data[i] == s->predicted.data[k])
                row[k + 1] = diagonal + 1;
            else
                row[k + 1] = above > left ? above : left;
            diagonal = above;
        }
    }
    *out = row[s->predicted.n];
    return KVF_OK;
}

/* Computes F1 from precision and recall instead of counts, because the last bit may decide between
 * two references. */
static kvf_status score(kvf_ctx *ctx, scorer *s, kvf__phrase reference, kvf__prf *out)
{
    int32_t common;

    *out = (kvf__prf){0};
    KVF_TRY(kvf__words(ctx, &s->vocabulary, kvf__cut_rouge, reference, &s->reference));
    if (!s->predicted.n || !s->reference.n) return KVF_OK;
    KVF_TRY(common_length(ctx, s, &common));
    double p = (double)common / (double)s->predicted.n, r = (double)common / (double)s->reference.n;
    *out = (kvf__prf){p, r, p + r > 0 ? 2 * p * r / (p + r) : 0, 0};
    return KVF_OK;
}

static kvf_status best(kvf_ctx *ctx, scorer *s, const kvf__text_rows *rows, int64_t i,
                       kvf__prf *out)
{
    KVF_TRY(
        kvf__words(ctx, &s->vocabulary, kvf__cut_rouge, kvf__predicted(rows, i), &s->predicted));
    for (int64_t r = rows->start[i]; r < rows->start[i + 1]; r++) {
        kvf__prf here;
        KVF_TRY(score(ctx, s, kvf__reference(rows, r), &here));
        if (r == rows->start[i] || here.f1 > out->f1) *out = here;
    }
    return KVF_OK;
}

kvf_status kvf__rouge_l(kvf_ctx *ctx, const kvf__text_rows *rows, kvf__prf *out)
{
    scorer s = {0};
    kvf__prf sum = {0};
    kvf_status st = kvf__check_texts(ctx, rows, true);

    for (int64_t i = 0; i < rows->n && !st; i++) {
        kvf__prf here = {0};
        st = best(ctx, &s, rows, i, &here);
        kvf__prf_add(&sum, &here);
    }
    if (!st) {
        kvf__prf_divide(&sum, (double)rows->n);
        sum.support = rows->n;
        *out = sum;
    }
    kvf__vocabulary_done(&s.vocabulary);
    kvf__ids_done(&s.predicted);
    kvf__ids_done(&s.reference);
    kvf__ids_done(&s.row);
    return st;
}
