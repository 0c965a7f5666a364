/* p-tuning: vectors at the input from an embedding [P, C] and a network that makes its rows depend
 * on each other (Liu et al. 2021, "GPT Understands, Too"). Two forms, with the names, shapes and
 * starting values of PEFT's PromptEncoder:
 *
 *   lstm   embedding -> LSTM of two bidirectional layers, state M -> Linear(2M, 2M) -> ReLU
 *          -> Linear(2M, C)
 *   mlp    embedding -> Linear(C, M) -> ReLU -> Linear(M, M) -> ReLU -> Linear(M, C) */
#include "encoder_priv.h"

#include <string.h>

/* Parameter indices. The linear layers come last. */
enum { EMBEDDING, FIRST_LSTM };

/* ---- parameters ------------------------------------------------------------------------------ */

static kvf_status add_lstm(kvf_ctx *ctx, kvf__encoder *encoder)
{
    static const char *const NAMES[KVF__ENCODER_LSTMS][2][4] = {
        {{"lstm_head.weight_ih_l0", "lstm_head.weight_hh_l0", "lstm_head.bias_ih_l0",
          "lstm_head.bias_hh_l0"},
         {"lstm_head.weight_ih_l0_reverse", "lstm_head.weight_hh_l0_reverse",
          "lstm_head.bias_ih_l0_reverse", "lstm_head.bias_hh_l0_reverse"}},
        {{"lstm_head.weight_ih_l1", "lstm_head.weight_hh_l1", "lstm_head.bias_ih_l1",
          "lstm_head.bias_hh_l1"},
         {"lstm_head.weight_ih_l1_reverse", "lstm_head.weight_hh_l1_reverse",
          "lstm_head.bias_ih_l1_reverse", "lstm_head.bias_hh_l1_reverse"}},
    };
    const int64_t M = encoder->shape.M;
    for (int layer = 0; layer < KVF__ENCODER_LSTMS; layer++) {
        const kvf__lstm_sizes sizes = {
            .T = encoder->shape.P, .I = layer ? 2 * M : encoder->shape.C, .H = M};
        for (int d = 0; d < 2; d++) {
            const char *const *name = NAMES[layer][d];
            KVF_TRY(kvf__encoder_add(ctx, encoder, name[0], 4 * M, sizes.I));
            KVF_TRY(kvf__encoder_add(ctx, encoder, name[1], 4 * M, M));
            KVF_TRY(kvf__encoder_add(ctx, encoder, name[2], 4 * M, 0));
            KVF_TRY(kvf__encoder_add(ctx, encoder, name[3], 4 * M, 0));
        }
        KVF_TRY(kvf__lstm_create(ctx, &sizes, &encoder->lstm.layer[layer]));
    }
    return KVF_OK;
}

static kvf_status add_linears(kvf_ctx *ctx, kvf__encoder *encoder, int n, const int64_t width[])
{
    static const char *const NAMES[KVF__ENCODER_LINEARS][2] = {
        {"mlp_head.0.weight", "mlp_head.0.bias"},
        {"mlp_head.2.weight", "mlp_head.2.bias"},
        {"mlp_head.4.weight", "mlp_head.4.bias"}};
    for (int i = 0; i < n; i++)
        KVF_TRY(kvf__encoder_add_linear(ctx, encoder, NAMES[i][0], NAMES[i][1], width[i],
                                        width[i + 1], true));
    return KVF_OK;
}

static kvf_status describe_lstm(kvf_ctx *ctx, kvf__encoder *encoder)
{
    const int64_t C = encoder->shape.C, M = encoder->shape.M, width[] = {2 * M, 2 * M, C};
    KVF_TRY(kvf__encoder_add(ctx, encoder, "embedding.weight", encoder->shape.P, C));
    KVF_TRY(add_lstm(ctx, encoder));
    return add_linears(ctx, encoder, 2, width);
}

static kvf_status describe_mlp(kvf_ctx *ctx, kvf__encoder *encoder)
{
    const int64_t C = encoder->shape.C, M = encoder->shape.M, width[] = {C, M, M, C};
    KVF_TRY(kvf__encoder_add(ctx, encoder, "embedding.weight", encoder->shape.P, C));
    return add_linears(ctx, encoder, 3, width);
}

/* ---- forward and backward -------------------------------------------------------------------- */

static void weights_of(const kvf__encoder *encoder, int layer, kvf__lstm_weights w[2],
                       kvf__lstm_grads g[2])
{
    for (int d = 0; d < 2; d++) {
        const kvf__param *p = &encoder->params.item[FIRST_LSTM + (layer * 2 + d) * 4];
        w[d] = (kvf__lstm_weights){p[0].value, p[1].value, p[2].value, p[3].value};
        g[d] = (kvf__lstm_grads){p[0].grad, p[1].grad, p[2].grad, p[3].grad};
    }
}

static kvf_status lstm_fwd(kvf_ctx *ctx, kvf__encoder *encoder, float *flat)
{
    kvf__lstm_weights w[2];
    kvf__lstm_grads g[2];

    weights_of(encoder, 0, w, g);
    KVF_TRY(kvf__lstm_fwd(ctx, encoder->lstm.layer[0], encoder->lstm.between,
                          encoder->params.item[EMBEDDING].value, w));
    weights_of(encoder, 1, w, g);
    KVF_TRY(kvf__lstm_fwd(ctx, encoder->lstm.layer[1], encoder->linears[0].x, encoder->lstm.between,
                          w));
    kvf__encoder_linears_fwd(encoder, flat);
    return KVF_OK;
}

static kvf_status lstm_bwd(kvf_ctx *ctx, kvf__encoder *encoder)
{
    kvf__lstm_weights w[2];
    kvf__lstm_grads g[2];

    KVF_TRY(kvf__encoder_linears_bwd(ctx, encoder, encoder->lstm.dy));
    weights_of(encoder, 1, w, g);
    KVF_TRY(
        kvf__lstm_bwd(ctx, encoder->lstm.layer[1], encoder->lstm.dbetween, g, encoder->lstm.dy));
    weights_of(encoder, 0, w, g);
    return kvf__lstm_bwd(ctx, encoder->lstm.layer[0], encoder->params.item[EMBEDDING].grad, g,
                         encoder->lstm.dbetween);
}

static kvf_status mlp_fwd(kvf_ctx *ctx, kvf__encoder *encoder, float *flat)
{
    const kvf__param *embedding = &encoder->params.item[EMBEDDING];
    (void)ctx;
    /* a copy, because AdamW updates the embedding before this is read */
    memcpy(encoder->linears[0].x, embedding->value, (size_t)embedding->n * sizeof(float));
    kvf__encoder_linears_fwd(encoder, flat);
    return KVF_OK;
}

static kvf_status mlp_bwd(kvf_ctx *ctx, kvf__encoder *encoder)
{
    return kvf__encoder_linears_bwd(ctx, encoder, encoder->params.item[EMBEDDING].grad);
}

/* No rule for learning rates is known here, so all parameters have the same, as in PEFT. */
const kvf__encoder_kind kvf__enc_ptuning_lstm = {
    .method = "p-tuning",
    .form = "lstm",
    .hidden = true,
    .describe = describe_lstm,
    .fwd = lstm_fwd,
    .bwd = lstm_bwd,
    .shift = kvf__encoder_shift_last_layer,
};

const kvf__encoder_kind kvf__enc_ptuning_mlp = {
    .method = "p-tuning",
    .form = "mlp",
    .hidden = true,
    .describe = describe_mlp,
    .fwd = mlp_fwd,
    .bwd = mlp_bwd,
    .shift = kvf__encoder_shift_last_layer,
};
