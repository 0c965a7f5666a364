/* projected: P_theta [P, C] for each layer, multiplied by that layer's frozen key and value
 * projections (kv_projection.h). The prefix is thus one that real tokens could leave, and has fewer
 * degrees of freedom than `direct` where C < 2*G*D. The inputs skip the norm of the block.
 *
 * A learning rate is in prefix units when a step of +-1 in every input moves keys and values by
 * about 1. The signs of the inputs agree with a row of W only by chance, so the measure is the L2
 * norm of the row.
 *
 * Starts from words use the inputs that a layer of BERT reads, so the prefix begins as the keys and
 * values of the words. On causal bases every layer starts from the same embeddings. Measured on
 * SmolLM2 (E2E, P = 20): loss 9.6 after that start, 3.3 after small random inputs, so random is the
 * default. With the norm of the block in front it was worse still. */
#include "encoder_priv.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define NAME_BYTES 40

static kvf_status describe(kvf_ctx *ctx, kvf__encoder *encoder)
{
    int64_t L = encoder->shape.L, P = encoder->shape.P;
    const kvf__kv_projections *all = &encoder->projections;

    assert(all->L == L && all->P == P);
    KVF_TRY(kvf__alloc_array(ctx, (size_t)L, NAME_BYTES, &encoder->names));
    for (int64_t l = 0; l < L; l++) {
        char *name = encoder->names + l * NAME_BYTES;
        snprintf(name, NAME_BYTES, "embedding.%lld.weight", (long long)l);
        KVF_TRY(kvf__encoder_add(ctx, encoder, name, P, all->layer[l].C));
    }
    return KVF_OK;
}

/* Returns the offset of layer l's keys in a row of the flat view; *GD: number of key channels,
 * after which the values begin. */
static int64_t keys_at(const kvf__encoder *encoder, int64_t l, int64_t *GD)
{
    const kvf__kv_shape kv = kvf__encoder_kv(&encoder->shape);
    const kvf__kv_heads at = kvf__kv_at(&kv, l);

    *GD = at.G * at.D;
    return 2 * at.width;
}

static kvf_status fwd(kvf_ctx *ctx, kvf__encoder *encoder, float *flat)
{
    int64_t GD, P = encoder->shape.P;
    for (int64_t l = 0; l < encoder->shape.L; l++) {
        float *k = flat + keys_at(encoder, l, &GD);
        KVF_TRY(kvf__kv_projection_fwd(ctx, &encoder->projections.layer[l], k, k + GD,
                                       encoder->width, encoder->params.item[l].value, P,
                                       encoder->work));
    }
    return KVF_OK;
}

static kvf_status bwd(kvf_ctx *ctx, kvf__encoder *encoder)
{
    int64_t GD, P = encoder->shape.P;
    for (int64_t l = 0; l < encoder->shape.L; l++) {
        const kvf__param *param = &encoder->params.item[l];
        const float *dk = encoder->flat + keys_at(encoder, l, &GD);
        KVF_TRY(kvf__kv_projection_bwd(ctx, &encoder->projections.layer[l], param->grad, dk,
                                       dk + GD, encoder->width, param->value, P, encoder->work));
    }
    return KVF_OK;
}

static kvf_status lr_units(kvf_ctx *ctx, kvf__encoder *encoder, double *k)
{
    (void)ctx;
    for (size_t l = 0; l < encoder->params.n; l++) {
        double gain = kvf__kv_projection_gain(&encoder->projections.layer[l]);
        encoder->params.item[l].lr_scale = gain > 0 ? 1 / gain : 1;
    }
    *k = 1; /* the rate of a layer depends on the base only */
    return KVF_OK;
}

const kvf__encoder_kind kvf__enc_projected = {
    .method = "projected",
    .projected = true,
    .describe = describe,
    .fwd = fwd,
    .bwd = bwd,
    .lr_units = lr_units,
};
