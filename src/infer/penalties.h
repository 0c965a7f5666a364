/* What is changed about logits before the next token is drawn: biases of tokens, and penalties for
 * what was said already (penalties.c). */
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

/* EDATA: a bias of an id outside the vocabulary; EUSAGE: one that is not finite. */
kvf_status kvf__penalties_check(kvf_ctx *ctx, const kvf__penalties *penalties, int64_t V);

/* The tokens of a row: prompt, whose ids below 0 are virtual tokens and do not count, completion.
 */
typedef struct kvf__said {
    const int32_t *prompt, *out;
    int64_t n_prompt, n_out;
} kvf__said;
/* out [V] from logits [V]. counts [V] is memory to work in: zeros before and after. */
void kvf__penalize(const kvf__penalties *penalties, const kvf__said *said, const float *logits,
                   int64_t V, int32_t *counts, float *out);

#endif
