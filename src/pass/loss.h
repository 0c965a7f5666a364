/* The loss between forward and backward pass, with any head, against labels or a teacher.
 *
 *   kvf__pass_fwd(ctx, pass, &input);
 *   kvf__pass_loss(ctx, pass, &(kvf__loss){.head = head, .scale = scale, .gradient = true}, &sum);
 *   kvf__pass_bwd(ctx, pass, &grads);
 *
 * The calls are the same for every head. */
#ifndef KVF_LOSS_H
#define KVF_LOSS_H

#include "head.h"
#include "pass.h"

typedef struct kvf__loss {
    kvf__head *head;                  /* NULL: the base's own head */
    const kvf__soft_targets *teacher; /* replaces labels, for the base's own head; NULL: none */
    bool gradient;     /* keep d(scale * loss)/d hidden for kvf__pass_bwd, and add the head's own
                          gradient */
    float scale;       /* factor on the gradient, not on the loss */
    int64_t step;      /* training step, for a task head's dropout */
    float *token_loss; /* lm: [n_labels], set to the loss of each label; NULL: not wanted */
} kvf__loss;

/* Computes the loss after fwd, on the batch of the pass: *loss_sum in nats (regression: squares),
 * summed over the terms of kvf__head_terms. ENUMERIC: it is not finite; with sections and the
 * base's own head the sections' sums show it instead. EUSAGE: a gradient in a pass without
 * backward, or with a cache. */
kvf_status kvf__pass_loss(kvf_ctx *ctx, kvf__pass *pass, const kvf__loss *how, double *loss_sum);
/* Computes the outputs [n_labels, kvf__head_width or V] after fwd, f32, dropout off. */
kvf_status kvf__pass_outputs(kvf_ctx *ctx, kvf__pass *pass, kvf__head *head, float *outputs);
/* Computes outputs for batches of many labels, up to KVF__OUTPUT_LABELS at a time in memory
 * [KVF__OUTPUT_LABELS, width]; visit receives the outputs of labels first .. first + n - 1. */
enum { KVF__OUTPUT_LABELS = KVF__HEAD_ROWS };
typedef kvf_status kvf__outputs_fn(void *user, int64_t first, int64_t n, const float *outputs);
kvf_status kvf__pass_outputs_each(kvf_ctx *ctx, kvf__pass *pass, kvf__head *head, float *memory,
                                  kvf__outputs_fn *visit, void *user);

/* For several heads in one pass. Returns the final states of the labelled positions, f32 [n_labels,
 * C], equal to transformers' last_hidden_state; a view, valid until the next call. */
kvf_status kvf__pass_hidden(kvf_ctx *ctx, kvf__pass *pass, const float **hidden);
/* Returns the pass's own memory for d loss / d hidden, [n_labels, C]; NULL: no backward. */
float *kvf__pass_dhidden(kvf__pass *pass);
/* Takes d loss / d hidden (in that memory or another) instead of a loss, before bwd. */
kvf_status kvf__pass_hidden_grad(kvf_ctx *ctx, kvf__pass *pass, const float *dhidden);

#endif
