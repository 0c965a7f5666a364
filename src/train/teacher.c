/* The likeliest tokens of a teacher at every label of a data set. They are computed once and kept,
 * as k ids and k + 1 numbers per label. A step then runs only the student, and a resumed run has
 * the same targets. They are stored by row. A batch may reorder rows and share common prefixes, but
 * the labels of each row keep their order. */
#include "teacher.h"

#include <math.h>
#include <string.h>

/* Returns the index in the set of label j of a batch. *row: its row in the batch, from label j - 1,
 * or 0 for the first. */
static int64_t place(const kvf__teacher *set, const kvf__batch *batch, int64_t j, int64_t *row,
                     int64_t *row_first)
{
    while (batch->start[*row + 1] <= batch->label_at[j]) {
        ++*row;
        *row_first = j;
    }
    return set->first[batch->example[*row]] + j - *row_first;
}

/* ---- the teacher ----------------------------------------------------------------------------- */

typedef struct asking {
    kvf_ctx *ctx;
    kvf__teacher *set;
    double sum; /* sum of student losses */
    int64_t labels;
} asking;

static kvf_status ask_teacher(void *user, kvf__pass *pass, const kvf__batch *batch)
{
    asking *a = user;
    kvf__teacher *set = a->set;
    size_t k = (size_t)set->k;
    int64_t row = 0, row_first = 0;
    KVF_TRY(kvf__teacher_reserve(a->ctx, set, batch->n_labels));
    KVF_TRY(kvf__pass_lm_top(a->ctx, pass, set->k, set->batch_ids, set->batch_logp));
    for (int64_t j = 0; j < batch->n_labels; j++) {
        size_t to = (size_t)place(set, batch, j, &row, &row_first), from = (size_t)j;
        memcpy(set->ids + to * k, set->batch_ids + from * k, k * sizeof *set->ids);
        memcpy(set->logp + to * (k + 1), set->batch_logp + from * (k + 1),
               (k + 1) * sizeof *set->logp);
    }
    return KVF_OK;
}

static kvf_status alloc_memory(kvf_ctx *ctx, const kvf__dataset *dataset, kvf__teacher *set)
{
    size_t k = (size_t)set->k, labels;
    KVF_TRY(kvf__alloc_array(ctx, (size_t)dataset->n + 1, sizeof *set->first, &set->first));
    for (int64_t r = 0; r < dataset->n; r++)
        set->first[r + 1] = set->first[r] + kvf__example_labels(dataset, r);
    labels = (size_t)set->first[dataset->n];
    KVF_TRY(kvf__alloc_array(ctx, labels * k, sizeof *set->ids, &set->ids));
    return kvf__alloc_array(ctx, labels * (k + 1), sizeof *set->logp, &set->logp);
}

kvf_status kvf__teacher_make(kvf_ctx *ctx, kvf_base *base, const kvf__dataset *dataset,
                             const kvf__subject *teacher, int64_t k, kvf__teacher *out)
{
    kvf__teacher set = {.k = k};
    kvf__evaluator *evaluator = NULL;
    asking a = {.ctx = ctx, .set = &set};
    const kvf__prefix *prefix = teacher->condition.prefix;
    const kvf__evaluator_options how = {.P = prefix ? prefix->P : 0,
                                        .neurons = prefix ? prefix->neurons.shape.N : 0,
                                        .share_prefixes = true};
    int64_t V = kvf__model_desc(base->model)->V;
    if (k < 1 || k >= V)
        return kvf__fail(ctx, KVF_ESHAPE, "--top-k %lld of a vocabulary of %lld: want 1 to %lld",
                         (long long)k, (long long)V, (long long)V - 1);
    kvf_status st = alloc_memory(ctx, dataset, &set);
    if (!st) st = kvf__evaluator_create(ctx, base, dataset, &how, &evaluator);
    if (!st) st = kvf__evaluator_walk(ctx, evaluator, teacher, ask_teacher, &a);
    kvf__evaluator_free(evaluator);
    KVF__GIVE(st, out, set, kvf__teacher_done(&set));
    return st;
}

void kvf__teacher_done(kvf__teacher *set)
{
    kvf__free(set->first);
    kvf__free(set->ids);
    kvf__free(set->logp);
    kvf__free(set->batch_ids);
    kvf__free(set->batch_logp);
    *set = (kvf__teacher){0};
}

void kvf__teacher_replace(kvf__teacher *set, const int64_t *rows, int64_t n,
                          const kvf__teacher *from)
{
    const size_t k = (size_t)set->k;
    for (int64_t i = 0; i < n; i++) {
        const size_t to = (size_t)set->first[rows[i]], at = (size_t)from->first[i];
        const size_t labels = (size_t)from->first[i + 1] - at;
        memcpy(set->ids + to * k, from->ids + at * k, labels * k * sizeof *set->ids);
        memcpy(set->logp + to * (k + 1), from->logp + at * (k + 1),
               labels * (k + 1) * sizeof *set->logp);
    }
}

/* ---- the student ----------------------------------------------------------------------------- */

kvf_status kvf__teacher_reserve(kvf_ctx *ctx, kvf__teacher *set, int64_t labels)
{
    size_t n = (size_t)labels, k = (size_t)set->k;
    if (labels <= set->capacity) return KVF_OK;
    kvf__free(set->batch_ids);
    kvf__free(set->batch_logp);
    set->batch_ids = NULL;
    set->batch_logp = NULL;
    set->capacity = 0;
    KVF_TRY(kvf__alloc_array(ctx, n * k, sizeof *set->batch_ids, &set->batch_ids));
    KVF_TRY(kvf__alloc_array(ctx, n * (k + 1), sizeof *set->batch_logp, &set->batch_logp));
    set->capacity = labels;
    return KVF_OK;
}

kvf__soft_targets kvf__teacher_targets(kvf__teacher *set, const kvf__batch *batch)
{
    size_t k = (size_t)set->k;
    int64_t row = 0, row_first = 0;
    for (int64_t j = 0; j < batch->n_labels; j++) {
        size_t from = (size_t)place(set, batch, j, &row, &row_first), to = (size_t)j;
        memcpy(set->batch_ids + to * k, set->ids + from * k, k * sizeof *set->ids);
        memcpy(set->batch_logp + to * (k + 1), set->logp + from * (k + 1),
               (k + 1) * sizeof *set->logp);
    }
    return (kvf__soft_targets){
        .k = set->k, .ids = set->batch_ids, .logp = set->batch_logp, .reverse = set->reverse};
}

static kvf_status ask_student(void *user, kvf__pass *pass, const kvf__batch *batch)
{
    asking *a = user;
    double part = 0;
    KVF_TRY(kvf__teacher_reserve(a->ctx, a->set, batch->n_labels));
    const kvf__soft_targets soft = kvf__teacher_targets(a->set, batch);
    KVF_TRY(kvf__pass_loss(a->ctx, pass, &(kvf__loss){.teacher = &soft}, &part));
    a->sum += part;
    a->labels += batch->n_labels;
    return KVF_OK;
}

kvf_status kvf__teacher_loss(kvf_ctx *ctx, kvf__teacher *set, kvf__evaluator *evaluator,
                             const kvf__subject *subject, double *loss)
{
    asking a = {.ctx = ctx, .set = set};
    KVF_TRY(kvf__evaluator_walk(ctx, evaluator, subject, ask_student, &a));
    *loss = a.labels ? a.sum / (double)a.labels : NAN;
    return KVF_OK;
}
