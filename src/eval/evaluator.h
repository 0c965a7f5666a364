/* A data set measured under a prefix, in fixed batches: one path for validation in training and for
 * eval after it. */
#ifndef KVF_EVALUATOR_H
#define KVF_EVALUATOR_H

#include "renderer.h"

#include <kvfold/train.h>

/* What is measured on a base. */
typedef struct kvf__subject {
    kvf__condition condition;
    kvf__head *head;                    /* NULL: the base's own */
    double *share;                      /* [L, H] as of kvf__input; NULL: not wanted */
    double *adapter_sizes;              /* [L, 2, 2] of the same */
    const struct kvf__queries *queries; /* as of kvf__input; NULL: not wanted */
} kvf__subject;
/* prefix NULL: the bare base. */
kvf__subject kvf__subject_of(const kvf_prefix *prefix, kvf__head *head);

/* A data set under a subject, in batches fixed by the data alone. */
typedef struct kvf__evaluator kvf__evaluator;
typedef struct kvf__evaluator_options {
    int64_t P;            /* of the longest prefix */
    int64_t batch_tokens; /* most in a batch; 0: 2048 */
    bool share_prefixes;
    bool infix;    /* prefixes are inside rows */
    int64_t soft;  /* most items of a teacher, for who visits its batches; 0: none */
    bool backward; /* who visits its batches goes back through them; the base was opened for it */
} kvf__evaluator_options;
kvf_status kvf__evaluator_create(kvf_ctx *ctx, kvf_base *base, const kvf__dataset *dataset,
                                 const kvf__evaluator_options *options, kvf__evaluator **out);
void kvf__evaluator_free(kvf__evaluator *evaluator);
/* *loss: mean over the terms of the task's loss (lm: label tokens), in nats; NaN where rows lack
 * their gold. each, may be NULL: for lm the loss of each label [n_labels], in the batches' order,
 * which is the same at every call; with a head its outputs [n_labels, width] in the order of the
 * rows. */
kvf_status kvf__evaluator_run(kvf_ctx *ctx, kvf__evaluator *evaluator, const kvf__subject *subject,
                              double *loss, float *each);
/* From now on runs are those of all ranks together, which call them at the same time with equal
 * arguments (each: with a head only): every rank computes some of the batches, and rank 0 gets what
 * one process gets. Elsewhere what a run returns means nothing. */
struct kvf__dist;
kvf_status kvf__evaluator_divide(kvf_ctx *ctx, kvf__evaluator *evaluator, struct kvf__dist *dist);
/* Is this another rank than 0 of an evaluator that was divided? */
bool kvf__evaluator_helps(const kvf__evaluator *evaluator);
/* A run that the other ranks count on cannot be. */
void kvf__evaluator_give_up(const kvf__evaluator *evaluator);

/* From now on what enters the layer of these states is kept for each batch, where the subject is
 * one that has no prefix below it and asks for no sums (share, sizes, queries); they outlive its
 * runs. */
struct kvf__states;
void kvf__evaluator_keep(kvf__evaluator *evaluator, struct kvf__states *states);
/* Most tokens in one batch, of an encoder-decoder in its source. */
int64_t kvf__evaluator_tokens(const kvf__evaluator *evaluator);

/* One of its batches, [0, kvf__evaluator_batches()): the outputs that kvf__evaluator_run gives its
 * rows, in their places of `each`. */
int64_t kvf__evaluator_batches(const kvf__evaluator *evaluator);
kvf_status kvf__evaluator_outputs(kvf_ctx *ctx, kvf__evaluator *evaluator,
                                  const kvf__subject *subject, int64_t batch, float *each);

/* Every batch with labels, in an order that is the same at every call, after its forward pass under
 * the subject; stops at the first status that is not KVF_OK. */
typedef kvf_status kvf__visit_fn(void *user, kvf__pass *pass, const kvf__batch *batch);
kvf_status kvf__evaluator_walk(kvf_ctx *ctx, kvf__evaluator *evaluator, const kvf__subject *subject,
                               kvf__visit_fn *visit, void *user);

/* *seconds: about what a run takes, from the last of so many times of one batch of so many tokens,
 * or more. */
kvf_status kvf__evaluator_probe(kvf_ctx *ctx, kvf__evaluator *evaluator,
                                const kvf__subject *subject, int64_t tokens, int times,
                                double *seconds);

/* Limits of a pass for batches of at most these sizes. */
kvf__pass_limits kvf__limits_for(const kvf__batch_sizes *sizes, int64_t P, bool backward);

/* --infix (infix.c): every row needs a prompt, after which the prefix is placed. EDATA. */
kvf_status kvf__infix_check_rows(kvf_ctx *ctx, const char *path, const kvf__dataset *set);
/* Sets the fields of *id that --infix decides. */
void kvf__infix_identity(const kvf_train_options *options, const kvf_base *base, kvf__identity *id);

#endif
