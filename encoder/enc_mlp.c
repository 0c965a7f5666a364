/* mlp: embedding [P, W] -> Linear(W, M) -> tanh -> Linear(M, N), W = G*D, N = 2*L*G*D
 * (where layers differ, the largest G*D and the sum over layers). This is the
 * reparameterization of Li & Liang 2021 and P-tuning v2, with PEFT's parameter names and its width
 * under grouped-query attention.
 *
 *   h = tanh(E W1^T + b1)      [P, M]
 *   flat = h W2^T + b2         [P, N]
 *
 * W2 holds nearly all parameters. */
#include "encoder_priv.h"

#include <math.h>

enum { EMBEDDING, W1, B1, W2, B2 };

static kvf_status describe(kvf_ctx *ctx, kvf__encoder *encoder)
{
    const kvf__kv_shape kv = kvf__encoder_kv(&encoder->shape);
    int64_t W = encoder->emits_neurons ? encoder->shape.C : 0, M = encoder->shape.M;

    for (int64_t l = 0; !encoder->emits_neurons && l < kv.L; l++) {
        const kvf__kv_heads at = kvf__kv_at(&kv, l);
        if (at.G * at.D > W) W = at.G * at.D;
    }
    KVF_TRY(kvf__encoder_add(ctx, encoder, "embedding.weight", encoder->shape.P, W));
    KVF_TRY(kvf__encoder_add_linear(ctx, encoder, "transform.0.weight", "transform.0.bias", W, M,
                                    false));
    return kvf__encoder_add_linear(ctx, encoder, "transform.2.weight", "transform.2.bias", M,
                                   encoder->width, true);
}

static void hidden_fwd(kvf__encoder *encoder)
{
    encoder->linears[0].x = encoder->params.item[EMBEDDING].value;
    kvf__encoder_linears_hidden(encoder);
}

static kvf_status fwd(kvf_ctx *ctx, kvf__encoder *encoder, float *flat)
{
    (void)ctx;
    encoder->linears[0].x = encoder->params.item[EMBEDDING].value;
    kvf__encoder_linears_fwd(encoder, flat);
    return KVF_OK;
}

static kvf_status bwd(kvf_ctx *ctx, kvf__encoder *encoder)
{
    return kvf__encoder_linears_bwd(ctx, encoder, encoder->params.item[EMBEDDING].grad);
}

/* k: mean L1 norm of the hidden rows of the virtual tokens. */
static kvf_status lr_units(kvf_ctx *ctx, kvf__encoder *encoder, double *k)
{
    int64_t P = encoder->shape.P, M = encoder->shape.M;
    (void)ctx;
    if (!(*k > 0)) {
        hidden_fwd(encoder);
        double sum = 0;
        for (int64_t i = 0; i < P * M; i++)
            sum += fabs((double)encoder->linears[1].x[i]);
        *k = sum > 0 ? sum / (double)P : 1;
    }
    const double scale[] = {
        [EMBEDDING] = 0.01, [W1] = 0.01, [B1] = 0.01, [W2] = 1 / *k, [B2] = 0.5};
    for (int i = EMBEDDING; i <= B2; i++)
        encoder->params.item[i].lr_scale = scale[i];
    return KVF_OK;
}

const kvf__encoder_kind kvf__enc_mlp = {
    .method = "mlp",
    .hidden = true,
    .tanh = true,
    .describe = describe,
    .fwd = fwd,
    .bwd = bwd,
    .shift = kvf__encoder_shift_last_layer,
    .lr_units = lr_units,
};
