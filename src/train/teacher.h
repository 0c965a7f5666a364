/* A teacher's likeliest tokens at the labels of a data set (teacher.c): the targets of distill and
 * of --kl-to-base. */
#ifndef KVF_TEACHER_H
#define KVF_TEACHER_H

#include "evaluator.h"

/* The likeliest tokens at every label of a data set of task lm, and those of one batch: a view for
 * kvf__pass_loss, valid until the next call. */
typedef struct kvf__teacher {
    int64_t k;
    bool reverse;     /* loss is KL(student || teacher) */
    int64_t *first;   /* [rows + 1] first label of each row */
    int32_t *ids;     /* [labels, k], by rows */
    float *logp;      /* [labels, k + 1] */
    int64_t capacity; /* labels for which the batch memory has room */
    int32_t *batch_ids;
    float *batch_logp;
} kvf__teacher;
/* Runs the teacher over the data set. ESHAPE: k is not below the vocabulary. */
kvf_status kvf__teacher_make(kvf_ctx *ctx, kvf_base *base, const kvf__dataset *dataset,
                             const kvf__subject *teacher, int64_t k, kvf__teacher *out);
void kvf__teacher_done(kvf__teacher *set);
/* Replaces the targets of rows[i], i < n, by those of row i of another set with the same k. */
void kvf__teacher_replace(kvf__teacher *set, const int64_t *rows, int64_t n,
                          const kvf__teacher *from);
/* Allocates memory for batches of this many labels. */
kvf_status kvf__teacher_reserve(kvf_ctx *ctx, kvf__teacher *set, int64_t labels);
kvf__soft_targets kvf__teacher_targets(kvf__teacher *set, const kvf__batch *batch);
/* Returns the mean over the labels of KL(teacher || subject), or the reverse, in nats. The
 * evaluator must use the set's data, with room for k. */
kvf_status kvf__teacher_loss(kvf_ctx *ctx, kvf__teacher *set, kvf__evaluator *evaluator,
                             const kvf__subject *subject, double *loss);

#endif
