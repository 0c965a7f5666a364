/* Where a forward pass ends and the backward pass begins: the loss of its labels, by whichever
 * head, against labels or a teacher.
 *
 *   kvf__pass_fwd(ctx, pass, &input);
 *   kvf__pass_loss(ctx, pass, &(kvf__loss){.head = head, .scale = scale, .gradient = true}, &sum);
 *   kvf__pass_bwd(ctx, pass, &grads);
 *
 * No caller asks which head it has. */
#ifndef KVF_LOSS_H
#define KVF_LOSS_H

#include "head.h"
#include "pass.h"

typedef struct kvf__loss {
    kvf__head *head;                  /* NULL: the base's own */
    const kvf__soft_targets *teacher; /* in place of labels, by the base's own head; NULL: none */
    bool gradient; /* leave d(scale * loss)/d hidden for kvf__pass_bwd, and add the head's own */
    float scale;   /* of the gradient; the loss is not scaled */
    int64_t step;  /* of training, by which a task head draws its dropout */
    float *token_loss; /* lm: [n_labels], set to the loss of each; NULL: not wanted */
} kvf__loss;

/* After fwd, on the batch of the pass: *loss_sum = the loss, in nats (regression: squares), summed
 * over the terms of kvf__head_terms. ENUMERIC if that is not finite; with sections and the base's
 * own head the caller sees that in the sections' sums. EUSAGE: a gradient in a pass that has no
 * backward, or continues a cache. */
kvf_status kvf__pass_loss(kvf_ctx *ctx, kvf__pass *pass, const kvf__loss *how, double *loss_sum);
/* After fwd: outputs [n_labels, kvf__head_width or V], f32, dropout off. */
kvf_status kvf__pass_outputs(kvf_ctx *ctx, kvf__pass *pass, kvf__head *head, float *outputs);
/* The same for batches of many labels: for at most KVF__OUTPUT_LABELS at a time, in the memory
 * [KVF__OUTPUT_LABELS, width], visit gets the outputs of labels first .. first + n - 1. */
enum { KVF__OUTPUT_LABELS = KVF__HEAD_ROWS };
typedef kvf_status kvf__outputs_fn(void *user, int64_t first, int64_t n, const float *outputs);
kvf_status kvf__pass_outputs_each(kvf_ctx *ctx, kvf__pass *pass, kvf__head *head, float *memory,
                                  kvf__outputs_fn *visit, void *user);

/* For those who have several heads in one pass. hidden: final states of the labelled positions, f32
 * [n_labels, C], as transformers' last_hidden_state; a view, valid until the next call. */
kvf_status kvf__pass_hidden(kvf_ctx *ctx, kvf__pass *pass, const float **hidden);
/* The pass's own memory for d loss / d hidden, [n_labels, C]; NULL: it has no backward. */
float *kvf__pass_dhidden(kvf__pass *pass);
/* Takes d loss / d hidden (in that memory or another) in place of a loss, before bwd. */
kvf_status kvf__pass_hidden_grad(kvf_ctx *ctx, kvf__pass *pass, const float *dhidden);

#endif
