/* p-tuning: vectors at the input from an embedding [P, C] and what makes its rows depend on each
 * other (Liu et al. 2021, "GPT Understands, Too"). Two forms, with the names, shapes and starting
 * values of PEFT's PromptEncoder:
 *
 *   lstm   embedding -> LSTM of two bidirectional layers, state M -> Linear(2M, 2M) -> ReLU
 *          -> Linear(2M, C)
 *   mlp    embedding -> Linear(C, M) -> ReLU -> Linear(M, M) -> ReLU -> Linear(M, C)
 *
 * The gradients of the linear layers stay unformed (wide.h): what they are made of is kept here
 * until the optimizer's step is over. */
#include "encoder_priv.h"
#include "lstm.h"
#include "wide.h"

#include <math.h>
#include <string.h>

enum { LSTM_LAYERS = 2, MOST_LINEARS = 3 };
enum { EMBEDDING, FIRST_LSTM }; /* the LSTM's, then the linears'; mlp: the linears' at once */

/* One of the linear layers, with what it read and the gradient of what it wrote. */
typedef struct linear {
    size_t weight; /* index of the parameter; the bias is the next */
    int64_t in, out;
    float *x;  /* [P, in] */
    float *dy; /* [P, out], of what it wrote before the ReLU behind it */
} linear;

typedef struct state {
    kvf__lstm *layer[LSTM_LAYERS]; /* form lstm */
    float *between, *dbetween;     /* [P, 2M] what the first layer hands to the second */
    float *dinner;                 /* [P, 2M] gradient of what the second hands on */
    int n;
    linear linears[MOST_LINEARS];
    float *memory;
} state;

static state *state_of(kvf__encoder *encoder)
{
    return encoder->own;
}

static bool has_lstm(const kvf__encoder *encoder)
{
    return encoder->kind == &kvf__enc_ptuning_lstm;
}

static kvf__param *item(kvf__encoder *encoder, size_t i)
{
    return &encoder->params.item[i];
}

/* ---- parameters ------------------------------------------------------------------------------ */

static kvf_status add_lstm(kvf_ctx *ctx, kvf__encoder *encoder)
{
    static const char *const NAMES[LSTM_LAYERS][2][4] = {
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
    for (int layer = 0; layer < LSTM_LAYERS; layer++)
        for (int d = 0; d < 2; d++) {
            const char *const *name = NAMES[layer][d];
            int64_t width = layer ? 2 * M : encoder->shape.C;
            KVF_TRY(kvf__encoder_add(ctx, encoder, name[0], 4 * M, width));
            KVF_TRY(kvf__encoder_add(ctx, encoder, name[1], 4 * M, M));
            KVF_TRY(kvf__encoder_add(ctx, encoder, name[2], 4 * M, 0));
            KVF_TRY(kvf__encoder_add(ctx, encoder, name[3], 4 * M, 0));
        }
    return KVF_OK;
}

static kvf_status add_linear(kvf_ctx *ctx, kvf__encoder *encoder, int64_t in, int64_t out)
{
    static const char *const NAMES[MOST_LINEARS][2] = {{"mlp_head.0.weight", "mlp_head.0.bias"},
                                                       {"mlp_head.2.weight", "mlp_head.2.bias"},
                                                       {"mlp_head.4.weight", "mlp_head.4.bias"}};
    state *s = state_of(encoder);
    linear *l = &s->linears[s->n];
    *l = (linear){.weight = encoder->params.n, .in = in, .out = out};
    KVF_TRY(kvf__encoder_add(ctx, encoder, NAMES[s->n][0], out, in));
    item(encoder, l->weight)->outer = encoder->shape.P;
    return kvf__encoder_add(ctx, encoder, NAMES[s->n++][1], out, 0);
}

static kvf_status alloc_buffers(kvf_ctx *ctx, kvf__encoder *encoder)
{
    state *s = state_of(encoder);
    const int64_t P = encoder->shape.P, between = has_lstm(encoder) ? 2 * encoder->shape.M : 0;
    int64_t total = 3 * between;
    for (int i = 0; i < s->n; i++)
        total += s->linears[i].in + s->linears[i].out;
    KVF_TRY(kvf__alloc_array(ctx, (size_t)(P * total), sizeof(float), &s->memory));
    float *at = s->memory;
    s->between = at;
    s->dbetween = at + P * between;
    s->dinner = at + 2 * P * between;
    at += 3 * P * between;
    for (int i = 0; i < s->n; i++) {
        s->linears[i].x = at;
        s->linears[i].dy = at + P * s->linears[i].in;
        at += P * (s->linears[i].in + s->linears[i].out);
    }
    return KVF_OK;
}

static kvf_status begin(kvf_ctx *ctx, kvf__encoder *encoder)
{
    KVF_TRY(kvf__alloc(ctx, sizeof(state), &encoder->own));
    return kvf__encoder_add(ctx, encoder, "embedding.weight", encoder->shape.P, encoder->shape.C);
}

static kvf_status describe_lstm(kvf_ctx *ctx, kvf__encoder *encoder)
{
    const int64_t P = encoder->shape.P, C = encoder->shape.C, M = encoder->shape.M;
    KVF_TRY(begin(ctx, encoder));
    KVF_TRY(add_lstm(ctx, encoder));
    KVF_TRY(add_linear(ctx, encoder, 2 * M, 2 * M));
    KVF_TRY(add_linear(ctx, encoder, 2 * M, C));
    for (int layer = 0; layer < LSTM_LAYERS; layer++) {
        const kvf__lstm_sizes sizes = {.T = P, .I = layer ? 2 * M : C, .H = M};
        KVF_TRY(kvf__lstm_create(ctx, &sizes, &state_of(encoder)->layer[layer]));
    }
    return alloc_buffers(ctx, encoder);
}

static kvf_status describe_mlp(kvf_ctx *ctx, kvf__encoder *encoder)
{
    const int64_t C = encoder->shape.C, M = encoder->shape.M;
    KVF_TRY(begin(ctx, encoder));
    KVF_TRY(add_linear(ctx, encoder, C, M));
    KVF_TRY(add_linear(ctx, encoder, M, M));
    KVF_TRY(add_linear(ctx, encoder, M, C));
    return alloc_buffers(ctx, encoder);
}

static void done(kvf__encoder *encoder)
{
    state *s = state_of(encoder);
    if (!s) return;
    for (int layer = 0; layer < LSTM_LAYERS; layer++)
        kvf__lstm_free(s->layer[layer]);
    kvf__free(s->memory);
    kvf__free(s);
}

/* ---- forward and backward -------------------------------------------------------------------- */

static void weights_of(kvf__encoder *encoder, int layer, kvf__lstm_weights w[2],
                       kvf__lstm_grads g[2])
{
    for (int d = 0; d < 2; d++) {
        const kvf__param *p = item(encoder, (size_t)(FIRST_LSTM + (layer * 2 + d) * 4));
        w[d] = (kvf__lstm_weights){p[0].value, p[1].value, p[2].value, p[3].value};
        g[d] = (kvf__lstm_grads){p[0].grad, p[1].grad, p[2].grad, p[3].grad};
    }
}

/* What the first linear layer reads. */
static kvf_status inner_fwd(kvf_ctx *ctx, kvf__encoder *encoder)
{
    state *s = state_of(encoder);
    const float *embedding = item(encoder, EMBEDDING)->value;
    kvf__lstm_weights w[2];
    kvf__lstm_grads g[2];

    if (!has_lstm(encoder)) { /* a copy: AdamW steps the embedding before it reads this */
        memcpy(s->linears[0].x, embedding, (size_t)item(encoder, EMBEDDING)->n * sizeof(float));
        return KVF_OK;
    }
    weights_of(encoder, 0, w, g);
    KVF_TRY(kvf__lstm_fwd(ctx, s->layer[0], s->between, embedding, w));
    weights_of(encoder, 1, w, g);
    return kvf__lstm_fwd(ctx, s->layer[1], s->linears[0].x, s->between, w);
}

/* The linear layers up to, but not with, the last. */
static kvf_status hidden_fwd(kvf_ctx *ctx, kvf__encoder *encoder)
{
    state *s = state_of(encoder);
    KVF_TRY(inner_fwd(ctx, encoder));
    for (int i = 0; i + 1 < s->n; i++) {
        const linear *l = &s->linears[i];
        float *y = s->linears[i + 1].x;
        kvf__wide_get()->fwd(y, l->x, item(encoder, l->weight)->value,
                             item(encoder, l->weight + 1)->value, encoder->shape.P, l->out, l->in);
        for (int64_t j = 0; j < encoder->shape.P * l->out; j++)
            y[j] = y[j] > 0 ? y[j] : 0;
    }
    return KVF_OK;
}

static const linear *last_of(kvf__encoder *encoder)
{
    const state *s = state_of(encoder);
    return &s->linears[s->n - 1];
}

static kvf_status fwd(kvf_ctx *ctx, kvf__encoder *encoder, float *flat)
{
    const linear *l = last_of(encoder);
    KVF_TRY(hidden_fwd(ctx, encoder));
    kvf__wide_get()->fwd(flat, l->x, item(encoder, l->weight)->value,
                         item(encoder, l->weight + 1)->value, encoder->shape.P, l->out, l->in);
    return KVF_OK;
}

/* y = x W^T + b: the gradient of W is left as its factors, that of x goes to dx. */
static void linear_bwd(kvf__encoder *encoder, const linear *l, float *dx)
{
    kvf__param *w = item(encoder, l->weight), *b = w + 1;
    w->left = l->dy;
    w->right = l->x;
    kvf__column_sums(b->grad, l->dy, encoder->shape.P, l->out);
    kvf__wide_get()->bwd(dx, l->dy, w->value, encoder->shape.P, l->out, l->in);
}

static kvf_status bwd(kvf_ctx *ctx, kvf__encoder *encoder, const float *dflat)
{
    state *s = state_of(encoder);
    float *dembedding = item(encoder, EMBEDDING)->grad;
    kvf__lstm_weights w[2];
    kvf__lstm_grads g[2];

    memcpy(last_of(encoder)->dy, dflat,
           (size_t)(encoder->shape.P * encoder->shape.C) * sizeof(float));
    for (int i = s->n - 1; i > 0; i--) {
        const linear *l = &s->linears[i];
        float *dx = s->linears[i - 1].dy;
        linear_bwd(encoder, l, dx);
        for (int64_t j = 0; j < encoder->shape.P * l->in; j++) /* x = relu(...) */
            if (!(l->x[j] > 0)) dx[j] = 0;
    }
    if (!has_lstm(encoder)) {
        linear_bwd(encoder, &s->linears[0], dembedding);
        return KVF_OK;
    }
    linear_bwd(encoder, &s->linears[0], s->dinner);
    weights_of(encoder, 1, w, g);
    KVF_TRY(kvf__lstm_bwd(ctx, s->layer[1], s->dbetween, g, s->dinner));
    weights_of(encoder, 0, w, g);
    return kvf__lstm_bwd(ctx, s->layer[0], dembedding, g, s->dbetween);
}

/* ---- starting values ------------------------------------------------------------------------- */

/* As torch: embedding N(0, 1), an LSTM U(+-1/sqrt(M)), linear layers U(+-1/sqrt(inputs)). */
static void init_random(kvf__encoder *encoder, const char *scheme, uint64_t seed)
{
    const state *s = state_of(encoder);
    const bool small = !strcmp(scheme, "ptuning-v2");
    for (size_t i = 0; i < encoder->params.n; i++) {
        kvf__param *p = item(encoder, i);
        double inputs = (double)encoder->shape.M;
        for (int l = 0; l < s->n; l++)
            if (i == s->linears[l].weight || i == s->linears[l].weight + 1)
                inputs = (double)s->linears[l].in;
        if (small && p->rank == 1)
            memset(p->value, 0, (size_t)p->n * sizeof(float));
        else if (small || i == EMBEDDING)
            kvf__fill_normal(p->value, p->n, small ? 0.02 : 1, seed, i);
        else
            kvf__fill_uniform(p->value, p->n, 1 / sqrt(inputs), seed, i);
    }
}

static kvf_status init_zero(kvf_ctx *ctx, kvf__encoder *encoder)
{
    (void)ctx;
    kvf__param *w = item(encoder, last_of(encoder)->weight);
    memset(w[0].value, 0, (size_t)w[0].n * sizeof(float));
    memset(w[1].value, 0, (size_t)w[1].n * sizeof(float));
    return KVF_OK;
}

static kvf_status shift(kvf_ctx *ctx, kvf__encoder *encoder, const double *change)
{
    const linear *l = last_of(encoder); /* its x is that of the fwd that measured the change */
    return kvf__last_layer_shift(ctx, item(encoder, l->weight)->value,
                                 item(encoder, l->weight + 1)->value, l->x, change,
                                 encoder->shape.P, l->in, l->out);
}

/* No measured rule for this encoder: one rate for all, as PEFT has it. */
static kvf_status lr_units(kvf_ctx *ctx, kvf__encoder *encoder, double *k)
{
    (void)ctx;
    (void)encoder;
    *k = 1;
    return KVF_OK;
}

const kvf__encoder_kind kvf__enc_ptuning_lstm = {
    .method = "p-tuning",
    .form = "lstm",
    .hidden = true,
    .describe = describe_lstm,
    .done = done,
    .fwd = fwd,
    .bwd = bwd,
    .init_random = init_random,
    .init_zero = init_zero,
    .shift = shift,
    .lr_units = lr_units,
};

const kvf__encoder_kind kvf__enc_ptuning_mlp = {
    .method = "p-tuning",
    .form = "mlp",
    .hidden = true,
    .describe = describe_mlp,
    .done = done,
    .fwd = fwd,
    .bwd = bwd,
    .init_random = init_random,
    .init_zero = init_zero,
    .shift = shift,
    .lr_units = lr_units,
};
