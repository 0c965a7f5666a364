/* Measures a data set with a prefix, in fixed batches. Validation in training and eval use the same
 * code. */
#ifndef KVF_EVALUATOR_H
#define KVF_EVALUATOR_H

#include "renderer.h"

#include <kvfold/train.h>

/* A base with an optional prefix and head. */
typedef struct kvf__subject {
    kvf__condition condition;
    kvf__head *head;                    /* NULL: the base's own head */
    double *share;                      /* [L, H] as in kvf__input; NULL: not collected */
    const struct kvf__queries *queries; /* as in kvf__input; NULL: not collected */
} kvf__subject;
/* Returns the subject of a prefix; NULL: the bare base. */
kvf__subject kvf__subject_of(const kvf_prefix *prefix, kvf__head *head);

/* A data set in batches that depend only on the data. */
typedef struct kvf__evaluator kvf__evaluator;
typedef struct kvf__evaluator_options {
    int64_t P;            /* length of the longest prefix */
    int64_t neurons;      /* its most virtual neurons */
    int64_t batch_tokens; /* most tokens in a batch; 0: 2048 */
    bool share_prefixes;
    bool infix;    /* prefixes are inside rows (--infix) */
    int64_t soft;  /* most teacher's tokens per label for batch visitors; 0: none */
    bool backward; /* batch visitors run the backward pass, for which the base was opened */
} kvf__evaluator_options;
kvf_status kvf__evaluator_create(kvf_ctx *ctx, kvf_base *base, const kvf__dataset *dataset,
                                 const kvf__evaluator_options *options, kvf__evaluator **out);
void kvf__evaluator_free(kvf__evaluator *evaluator);
/* Computes *loss, the mean over the terms of the task's loss (lm: label tokens) in nats; NaN if
 * rows have no gold labels. each may be NULL. For lm it gets the loss of each label [n_labels] in
 * batch order, which is the same at every call. With a head it gets the outputs [n_labels, width]
 * in row order. */
kvf_status kvf__evaluator_run(kvf_ctx *ctx, kvf__evaluator *evaluator, const kvf__subject *subject,
                              double *loss, float *each);
/* Divides the batches among all ranks from now on. All ranks must make the same calls together
 * (each: with a head only). Rank 0 gets the result of one process; results on other ranks are
 * undefined. */
struct kvf__dist;
kvf_status kvf__evaluator_divide(kvf_ctx *ctx, kvf__evaluator *evaluator, struct kvf__dist *dist);
/* True on ranks other than 0 of a divided evaluator. */
bool kvf__evaluator_helps(const kvf__evaluator *evaluator);
/* Reports to the other ranks that a run cannot take place. */
void kvf__evaluator_give_up(const kvf__evaluator *evaluator);

/* Caches the states of each batch from now on, for subjects without a prefix below the states'
 * layer and without sums (share, queries). The states must outlive the runs. */
struct kvf__states;
void kvf__evaluator_keep(kvf__evaluator *evaluator, struct kvf__states *states);
/* Returns the most tokens in a batch, on encoder-decoders in its source. */
int64_t kvf__evaluator_tokens(const kvf__evaluator *evaluator);

/* Computes one batch, [0, kvf__evaluator_batches()): the outputs that kvf__evaluator_run gives its
 * rows, in their places of `each`. */
int64_t kvf__evaluator_batches(const kvf__evaluator *evaluator);
kvf_status kvf__evaluator_outputs(kvf_ctx *ctx, kvf__evaluator *evaluator,
                                  const kvf__subject *subject, int64_t batch, float *each);

/* Calls back for every batch with labels after its forward pass, in an order that is the same at
 * every call. Stops at the first status other than KVF_OK. */
typedef kvf_status kvf__visit_fn(void *user, kvf__pass *pass, const kvf__batch *batch);
kvf_status kvf__evaluator_walk(kvf_ctx *ctx, kvf__evaluator *evaluator, const kvf__subject *subject,
                               kvf__visit_fn *visit, void *user);

/* Estimates the *seconds of a run from the last of several repetitions of a batch with at least
 * this many tokens. */
kvf_status kvf__evaluator_probe(kvf_ctx *ctx, kvf__evaluator *evaluator,
                                const kvf__subject *subject, int64_t tokens, int times,
                                double *seconds);

/* Returns the limits of a pass for batches of at most these sizes. */
kvf__pass_limits kvf__limits_for(const kvf__batch_sizes *sizes, int64_t P, int64_t neurons,
                                 bool backward);

/* --infix (infix.c): checks that every row has a prompt, inside which the prefix is placed. EDATA.
 */
kvf_status kvf__infix_check_rows(kvf_ctx *ctx, const char *path, const kvf__dataset *set);
/* Sets the fields of *id that depend on --infix. */
void kvf__infix_identity(const kvf_train_options *options, const kvf_base *base, kvf__identity *id);

#endif
