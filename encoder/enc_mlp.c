/* mlp: embedding [P, W] -> Linear(W, M) -> tanh -> Linear(M, N), W = G*D, N = 2*L*G*D: the
 * reparameterization of Li & Liang 2021 and P-tuning v2, with PEFT's parameter names and its width
 * under grouped-query attention. Weights are [out, in] as in torch.
 *
 *   h = tanh(E W1^T + b1)      [P, M]
 *   flat = h W2^T + b2         [P, N]
 *
 * W2 holds nearly all parameters; its gradient dflat^T h stays unformed (wide.h). */
#include "encoder_priv.h"
#include "matmul.h"
#include "wide.h"

#include <math.h>
#include <string.h>

enum { EMBEDDING, W1, B1, W2, B2 };

static kvf_status describe(kvf_ctx *ctx, kvf__encoder *encoder)
{
    int64_t W = encoder->shape.G * encoder->shape.D, M = encoder->shape.M, N = encoder->width;
    KVF_TRY(kvf__encoder_add(ctx, encoder, "embedding.weight", encoder->shape.P, W));
    KVF_TRY(kvf__encoder_add(ctx, encoder, "transform.0.weight", M, W));
    KVF_TRY(kvf__encoder_add(ctx, encoder, "transform.0.bias", M, 0));
    KVF_TRY(kvf__encoder_add(ctx, encoder, "transform.2.weight", N, M));
    KVF_TRY(kvf__encoder_add(ctx, encoder, "transform.2.bias", N, 0));
    encoder->params.item[W2].outer = encoder->shape.P;
    return KVF_OK;
}

static float *value(kvf__encoder *encoder, int which)
{
    return encoder->params.item[which].value;
}

static float *grad(kvf__encoder *encoder, int which)
{
    return encoder->params.item[which].grad;
}

/* h of the current parameters, into encoder->hidden. */
static void hidden_fwd(kvf__encoder *encoder)
{
    int64_t P = encoder->shape.P, W = encoder->shape.G * encoder->shape.D, M = encoder->shape.M;
    float *h = encoder->hidden;
    kvf__wide_get()->fwd(h, value(encoder, EMBEDDING), value(encoder, W1), value(encoder, B1), P, M,
                         W);
    for (int64_t i = 0; i < P * M; i++)
        h[i] = tanhf(h[i]);
}

static kvf_status fwd(kvf_ctx *ctx, kvf__encoder *encoder, float *flat)
{
    int64_t P = encoder->shape.P, M = encoder->shape.M, N = encoder->width;
    (void)ctx;
    hidden_fwd(encoder);
    kvf__wide_get()->fwd(flat, encoder->hidden, value(encoder, W2), value(encoder, B2), P, N, M);
    return KVF_OK;
}

static kvf_status bwd(kvf_ctx *ctx, kvf__encoder *encoder, const float *dflat)
{
    int64_t P = encoder->shape.P, W = encoder->shape.G * encoder->shape.D;
    int64_t M = encoder->shape.M, N = encoder->width;
    const float *h = encoder->hidden;
    const kvf__wide *wide = kvf__wide_get();
    float *da = encoder->dhidden;

    /* flat = h W2^T + b2 */
    encoder->params.item[W2].left = dflat;
    encoder->params.item[W2].right = h;
    kvf__column_sums(grad(encoder, B2), dflat, P, N);
    wide->bwd(da, dflat, value(encoder, W2), P, N, M);

    /* h = tanh(a) */
    for (int64_t i = 0; i < P * M; i++)
        da[i] *= 1 - h[i] * h[i];

    /* a = E W1^T + b1 */
    KVF_TRY(kvf__sgemm(ctx, true, false, M, W, P, da, M, value(encoder, EMBEDDING), W, 0,
                       grad(encoder, W1), W));
    kvf__column_sums(grad(encoder, B1), da, P, M);
    wide->bwd(grad(encoder, EMBEDDING), da, value(encoder, W1), P, M, W);
    return KVF_OK;
}

static void init_ptuning_v2(kvf__encoder *encoder, uint64_t seed)
{
    const int weights[] = {EMBEDDING, W1, W2}, biases[] = {B1, B2};
    for (size_t i = 0; i < 3; i++)
        kvf__fill_normal(value(encoder, weights[i]), encoder->params.item[weights[i]].n, 0.02, seed,
                         (uint64_t)weights[i]);
    for (size_t i = 0; i < 2; i++)
        memset(value(encoder, biases[i]), 0,
               (size_t)encoder->params.item[biases[i]].n * sizeof(float));
}

static void init_random(kvf__encoder *encoder, const char *scheme, uint64_t seed)
{
    if (!strcmp(scheme, "ptuning-v2")) {
        init_ptuning_v2(encoder, seed);
        return;
    }
    double first = 1 / sqrt((double)(encoder->shape.G * encoder->shape.D));
    double second = 1 / sqrt((double)encoder->shape.M);
    kvf__fill_normal(value(encoder, EMBEDDING), encoder->params.item[EMBEDDING].n, 1, seed,
                     EMBEDDING);
    kvf__fill_uniform(value(encoder, W1), encoder->params.item[W1].n, first, seed, W1);
    kvf__fill_uniform(value(encoder, B1), encoder->params.item[B1].n, first, seed, B1);
    kvf__fill_uniform(value(encoder, W2), encoder->params.item[W2].n, second, seed, W2);
    kvf__fill_uniform(value(encoder, B2), encoder->params.item[B2].n, second, seed, B2);
}

static kvf_status init_zero(kvf_ctx *ctx, kvf__encoder *encoder)
{
    (void)ctx;
    memset(value(encoder, W2), 0, (size_t)encoder->params.item[W2].n * sizeof(float));
    memset(value(encoder, B2), 0, (size_t)encoder->params.item[B2].n * sizeof(float));
    return KVF_OK;
}

static kvf_status shift(kvf_ctx *ctx, kvf__encoder *encoder, const double *change)
{
    return kvf__last_layer_shift(ctx, value(encoder, W2), value(encoder, B2),
                                 encoder->hidden, /* left by the fwd that measured the change */
                                 change, encoder->shape.P, encoder->shape.M, encoder->width);
}

static kvf_status lr_units(kvf_ctx *ctx, kvf__encoder *encoder, double *k)
{
    int64_t P = encoder->shape.P, M = encoder->shape.M;
    (void)ctx;
    if (!(*k > 0)) {
        hidden_fwd(encoder);
        double sum = 0;
        for (int64_t i = 0; i < P * M; i++)
            sum += fabs((double)encoder->hidden[i]);
        *k = sum > 0 ? sum / (double)P : 1;
    }
    encoder->params.item[EMBEDDING].lr_scale = 0.01;
    encoder->params.item[W1].lr_scale = 0.01;
    encoder->params.item[B1].lr_scale = 0.01;
    encoder->params.item[W2].lr_scale = 1 / *k;
    encoder->params.item[B2].lr_scale = 0.5;
    return KVF_OK;
}

const kvf__encoder_kind kvf__enc_mlp = {
    .method = "mlp",
    .hidden = true,
    .describe = describe,
    .fwd = fwd,
    .bwd = bwd,
    .init_random = init_random,
    .init_zero = init_zero,
    .shift = shift,
    .lr_units = lr_units,
};
