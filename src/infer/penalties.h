/* Changes of the logits before sampling: biases of tokens, and penalties for earlier tokens
 * (penalties.c). */
#ifndef KVF_PENALTIES_H
#define KVF_PENALTIES_H

#include <kvfold/infer.h>

/* {0}: none. In this order:
 *   logit += bias                                of the tokens in the list (OpenAI's logit_bias)
 *   logit  = logit < 0 ? logit * r : logit / r   of tokens in prompt or completion (transformers'
 *                                                repetition_penalty, Keskar et al. 2019); 0, 1: off
 *   logit -= count * frequency + presence        of tokens in the completion, by how often they are
 *                                                there (OpenAI's penalties) */
typedef struct kvf__penalties {
    const kvf_token_bias *bias; /* [n_bias], ids below V; borrowed */
    size_t n_bias;
    double repetition, frequency, presence;
} kvf__penalties;
bool kvf__penalties_any(const kvf__penalties *penalties);

/* EDATA: bias of an id outside the vocabulary; EUSAGE: bias that is not finite. */
kvf_status kvf__penalties_check(kvf_ctx *ctx, const kvf__penalties *penalties, int64_t V);

/* Tokens of a row: prompt (ids below 0 are virtual tokens and are ignored) and completion. */
typedef struct kvf__said {
    const int32_t *prompt, *out;
    int64_t n_prompt, n_out;
} kvf__said;
/* Computes out [V] from logits [V]. counts [V] is scratch memory: zeros before and after. */
void kvf__penalize(const kvf__penalties *penalties, const kvf__said *said, const float *logits,
                   int64_t V, int32_t *counts, float *out);

#endif
