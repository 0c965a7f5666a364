/* What is emitted is itself the parameter, under PEFT's name embedding.weight. direct: the flat
 * prefix [P, 2*L*G*D] (P-tuning v2 without reparameterization; PEFT's prefix_projection=False).
 * prompt: the vectors [P, C] (prompt tuning, Lester et al. 2021; PEFT's PromptEmbedding). */
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

static kvf_status bwd(kvf_ctx *ctx, kvf__encoder *encoder, const float *dflat)
{
    (void)ctx;
    memcpy(encoder->params.item[0].grad, dflat, (size_t)encoder->params.item[0].n * sizeof(float));
    return KVF_OK;
}

static void init_random(kvf__encoder *encoder, const char *scheme, uint64_t seed)
{
    double deviation = strcmp(scheme, "ptuning-v2") ? 1 : 0.02; /* nn.Embedding; its initializer */
    kvf__fill_normal(encoder->params.item[0].value, encoder->params.item[0].n, deviation, seed, 0);
}

static kvf_status init_zero(kvf_ctx *ctx, kvf__encoder *encoder)
{
    (void)ctx;
    memset(encoder->params.item[0].value, 0, (size_t)encoder->params.item[0].n * sizeof(float));
    return KVF_OK;
}

static kvf_status shift(kvf_ctx *ctx, kvf__encoder *encoder, const double *change)
{
    (void)ctx;
    float *value = encoder->params.item[0].value;
    for (int64_t i = 0; i < encoder->params.item[0].n; i++)
        value[i] = (float)((double)value[i] + change[i]);
    return KVF_OK;
}

static kvf_status lr_units(kvf_ctx *ctx, kvf__encoder *encoder, double *k)
{
    (void)ctx;
    (void)encoder; /* its parameter is the prefix: the plain rate */
    *k = 1;
    return KVF_OK;
}

const kvf__encoder_kind kvf__enc_direct = {
    .method = "direct",
    .describe = describe,
    .fwd = fwd,
    .bwd = bwd,
    .init_random = init_random,
    .init_zero = init_zero,
    .shift = shift,
    .lr_units = lr_units,
};

const kvf__encoder_kind kvf__enc_prompt = {
    .method = "prompt",
    .describe = describe,
    .fwd = fwd,
    .bwd = bwd,
    .init_random = init_random,
    .init_zero = init_zero,
    .shift = shift,
    .lr_units = lr_units,
};
