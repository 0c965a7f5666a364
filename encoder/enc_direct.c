/* Encoders whose parameter is the emitted value itself, under PEFT's name embedding.weight. direct:
 * the flat prefix [P, 2*L*G*D] (P-tuning v2 without reparameterization; PEFT's
 * prefix_projection=False). prompt: the vectors [P, C] (prompt tuning, Lester et al. 2021; PEFT's
 * PromptEmbedding). */
#include "encoder_priv.h"

#include <string.h>

static kvf_status describe(kvf_ctx *ctx, kvf__encoder *encoder)
{
    return kvf__encoder_add(ctx, encoder, "embedding.weight", encoder->shape.P, encoder->width);
}

static kvf_status fwd(kvf_ctx *ctx, kvf__encoder *encoder, float *flat)
{
    (void)ctx;
    memcpy(flat, encoder->params.item[0].value, (size_t)encoder->params.item[0].n * sizeof(float));
    return KVF_OK;
}

static kvf_status bwd(kvf_ctx *ctx, kvf__encoder *encoder)
{
    (void)ctx;
    memcpy(encoder->params.item[0].grad, encoder->flat,
           (size_t)encoder->params.item[0].n * sizeof(float));
    return KVF_OK;
}

const kvf__encoder_kind kvf__enc_direct = {.method = "direct",
                                           .describe = describe,
                                           .fwd = fwd,
                                           .bwd = bwd,
                                           .shift = kvf__encoder_shift_values};
const kvf__encoder_kind kvf__enc_prompt = {.method = "prompt",
                                           .describe = describe,
                                           .fwd = fwd,
                                           .bwd = bwd,
                                           .shift = kvf__encoder_shift_values};
