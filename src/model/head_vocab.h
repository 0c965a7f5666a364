/* The language model's head where it is trained beside the prefix (--train-head): the matrix
 * lm_head.weight [V, C] of its own, which starts as a copy of the base's, so that a tied base is
 * untied and its input embedding stays frozen.
 *
 * It stands where task heads stand, on the final hidden states (head_task.h), and publishes its one
 * parameter as they do. Everything is f32: the matrix changes with every step, so packing it for
 * another type would cost more than it gains. */
#ifndef KVF_HEAD_VOCAB_H
#define KVF_HEAD_VOCAB_H

#include "pass.h"

#define KVF__LM_HEAD_NAME "lm_head.weight"

typedef struct kvf__lm_head kvf__lm_head;

/* gradient: room for it too. EUNSUPPORTED: the base has no language-model head, or one with a
 * bias. */
kvf_status kvf__lm_head_create(kvf_ctx *ctx, const kvf__model *model, bool gradient,
                               kvf__lm_head **out);
void kvf__lm_head_free(kvf__lm_head *head);
/* One parameter, lm_head.weight; value and gradient are the head's own memory. */
kvf__params *kvf__lm_head_params(kvf__lm_head *head);
/* The matrix as a slot of f32, for those who read weights row by row; valid as long as the head. */
const kvf__slot *kvf__lm_head_slot(const kvf__lm_head *head);

/* As kvf__pass_lm_loss, on hidden [n_labels, C] of kvf__pass_hidden. dhidden [n_labels, C] NULL:
 * loss only; else it is set to d(scale * loss_sum)/d hidden, and the parameter's gradient is added
 * to. Allocates nothing. */
kvf_status kvf__lm_head_loss(kvf_ctx *ctx, kvf__lm_head *head, const kvf__batch *batch,
                             const float *hidden, float scale, double *loss_sum, float *token_loss,
                             float *dhidden);
/* logits [n, V] of hidden [n, C]. */
kvf_status kvf__lm_head_logits(kvf_ctx *ctx, const kvf__lm_head *head, const float *hidden,
                               int64_t n, float *logits);

#endif
