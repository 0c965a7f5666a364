/* The memory of a pass: one block, laid out by one function that runs twice, first to count, then
 * to carve (arena.h).
 *
 * Per token and layer only the values for the backward pass are kept. A pass without backward keeps
 * those of one layer, with one plane of the feed-forward part. A pass that recomputes keeps those
 * of one layer, and the input of each layer (Chen et al. 2016, arXiv 1604.06174, with segments of
 * one layer). */
#include "names.h"
#include "pass_priv.h"
#include "products.h"

/* Sizes used several times in the layout. */
typedef struct sizes {
    /* S: of the source; M: the larger of batch and source */
    int64_t M, ML, R, S, plane, head_rows, qkv, att, adapter;
    bool weights; /* weights are trained in this pass */
    bool neurons; /* neurons are trained in this pass */
    bool whole;   /* norms before halves apply weights */
    bool half;    /* outputs of halves are stored before they are added */
    bool f32;     /* the activation type is f32 */
    size_t act;
} sizes;

static sizes sizes_of(const kvf__pass *pass)
{
    const kvf__model *model = pass->model;
    const kvf__desc *d = &model->desc;
    sizes s = {.M = kvf__padded_rows(model, pass->limits.tokens),
               .ML = kvf__padded_rows(model, pass->limits.labels),
               .S = kvf__padded_rows(model, pass->limits.source_tokens)};

    s.M = kvf__most(s.M, s.S);
    s.R = kvf__most(s.M, s.ML);
    s.head_rows = !model->lm.n ? 0 : s.ML < KVF__HEAD_ROWS ? s.ML : KVF__HEAD_ROWS;
    s.plane = d->by_layer.inputs;
    for (int64_t l = 0; l < d->L; l++) /* the first of a layer is its widest */
        s.plane = kvf__most(s.plane, kvf__ffn_plane(kvf__desc_layer(d, l).F, 0).width);
    s.qkv = kvf__shape_most(d, "J");
    s.att = kvf__shape_most(d, "A");
    s.adapter = model->train.adapters ? kvf__adapters_shape(model->train.adapters)->size : 0;
    s.act = kvf__act_size(model->act);
    s.f32 = model->act == KVF__F32;
    s.weights = model->train.weights && pass->limits.backward;
    s.neurons = pass->limits.neurons && pass->limits.backward;
    s.whole = model->unfolded && !d->block.post_norm;
    s.half = kvf__desc_has(d, KVF__W_OUT_NORM1, 0) || pass->limits.base_dropout;
    return s;
}

static kvf__bottleneck_kept lay_adapter(kvf__carver *carve, const kvf__pass *pass, const sizes *s,
                                        kvf__half half, int64_t M2)
{
    if (!kvf__pass_adapts(pass, half)) return (kvf__bottleneck_kept){0};
    return (kvf__bottleneck_kept){
        .in = kvf__carve(carve, M2, pass->model->desc.C, sizeof(float)),
        .h = kvf__carve(carve, M2, s->adapter, sizeof(float)),
        .slope = kvf__carve(carve, M2, s->adapter, sizeof(float)),
    };
}

static kvf__neurons_kept lay_neurons_kept(kvf__carver *carve, const kvf__pass *pass, int64_t M2)
{
    const int64_t N = pass->limits.neurons;
    return (kvf__neurons_kept){
        .fac1 = kvf__carve(carve, M2, N, sizeof(float)),
        .fac2 = pass->model->desc.block.gated ? kvf__carve(carve, M2, N, sizeof(float)) : NULL,
        .g = kvf__carve(carve, M2, N, sizeof(float)),
    };
}

/* Evaluates a word of a shape (arch.h) in layer l; l < 0: the largest of all layers. */
static int64_t size_in(const kvf__desc *d, int64_t l, const char *word)
{
    return l < 0 ? kvf__shape_most(d, word) : kvf__shape_size(d, l, word);
}

/* l: layer index; a negative value selects all layers in order. */
static kvf__kept lay_kept(kvf__carver *carve, const kvf__pass *pass, const sizes *s, int64_t l,
                          int64_t M2)
{
    const kvf__desc *d = &pass->model->desc;
    const int64_t F = size_in(d, l, "F"), I = d->by_layer.inputs;
    const bool feeds = l < 0 || kvf__layer_feeds(d, l);
    const bool cross = l < 0 ? d->encoder > 0 : kvf__layer_place(d, l) == KVF__PLACE_CROSS;
    int64_t width = !feeds ? 0 : pass->limits.backward ? F : s->plane;
    const bool mixes = l >= 0 && kvf__layer_mixes(d, l);
    int64_t heads = !d->block.qk_norm || mixes ? 0 : size_in(d, l, d->block.v_norm ? "S" : "H");
    if (heads && !d->block.v_norm) heads += d->G;

    const int64_t like = l < 0 ? d->L - 1
                               : l; /* the last layer has every norm that any layer has */
    const bool own = s->weights, after = kvf__desc_has(d, KVF__W_OUT_NORM1, like);
    const bool own2 = own || (s->neurons && !kvf__neurons_fold(pass->model, like));
    return (kvf__kept){
        .in1 = own ? kvf__carve(carve, s->M, d->C, s->act) : pass->fwd.normed,
        .in2 = own2 ? kvf__carve(carve, M2, d->C, s->act) : pass->fwd.normed,
        .g = own ? kvf__carve(carve, M2, F, s->act) : NULL,
        .neurons = lay_neurons_kept(carve, pass, M2),
        .xhat1 = kvf__desc_has(d, KVF__W_NORM1, like) ? kvf__carve(carve, s->M, d->C, s->act)
                                                      : NULL,
        .qkv = kvf__carve(carve, s->M, l < 0 ? s->qkv : kvf__qkv_width(d, l), s->act),
        .kv = cross ? kvf__carve(carve, s->S, 2 * d->G * d->D, s->act) : NULL,
        .att = kvf__carve(carve, s->M, size_in(d, l, "A"), s->act),
        .xhat2 = kvf__desc_has(d, KVF__W_NORM2, like) ? kvf__carve(carve, M2, d->C, s->act) : NULL,
        .fac1 = kvf__carve(carve, M2, width, s->act),
        .fac2 = d->block.gated ? kvf__carve(carve, M2, width, s->act) : NULL,
        .rstd1 = kvf__carve(carve, s->M, 1, sizeof(float)),
        .rstd2 = kvf__carve(carve, M2, 1, sizeof(float)),
        .out_xhat = {after ? kvf__carve(carve, M2, d->C, s->act) : NULL,
                     after ? kvf__carve(carve, M2, d->C, s->act) : NULL},
        .out_rstd = {after ? kvf__carve(carve, M2, 1, sizeof(float)) : NULL,
                     after ? kvf__carve(carve, M2, 1, sizeof(float)) : NULL},
        .lse = mixes ? NULL : kvf__carve(carve, d->H, s->M, sizeof(float)),
        .qk_xhat = heads && pass->limits.backward
                       ? kvf__carve(carve, s->M, heads * size_in(d, l, "D"), s->act)
                       : NULL,
        .qk_rstd = heads ? kvf__carve(carve, s->M, heads, sizeof(float)) : NULL,
        .adapt = {lay_adapter(carve, pass, s, KVF__HALF_ATTN, M2),
                  lay_adapter(carve, pass, s, KVF__HALF_FFN, M2)},
        .input_fac1 = I ? kvf__carve(carve, M2, I, s->act) : NULL,
        .input_fac2 = I ? kvf__carve(carve, M2, I, s->act) : NULL,
        .input_xhat = I ? kvf__carve(carve, M2, d->C, s->act) : NULL,
        .input_rstd = I ? kvf__carve(carve, M2, 1, sizeof(float)) : NULL,
    };
}

static void lay_layers(kvf__pass *pass, kvf__carver *carve, const sizes *s)
{
    int64_t L = pass->model->desc.L;
    bool shared = !pass->limits.backward || pass->limits.recompute;
    kvf__kept one = {0};

    pass->kept = kvf__carve(carve, L, 1, sizeof(kvf__kept));
    for (int64_t l = 0; l < L; l++) {
        if (l == 0 || (!shared && l >= pass->limits.lowest)) {
            const bool encoder = l < pass->model->desc.encoder;
            sizes own = *s;
            if (!shared)
                own.M = encoder ? s->S : kvf__padded_rows(pass->model, pass->limits.tokens);
            int64_t M2 = shared ? s->R : l == L - 1 ? s->ML : own.M;
            one = lay_kept(carve, pass, &own, shared || l < pass->limits.lowest ? -1 : l, M2);
        }
        if (pass->kept) pass->kept[l] = one;
    }
}

static void lay_keys(kvf__pass *pass, kvf__carver *carve, const sizes *s)
{
    const kvf__pass_limits *limits = &pass->limits;
    kvf__pass_keys *keys = &pass->keys;
    int64_t segs = limits->infix ? 2 : 1; /* segments of a row: its own prefix, and its cache */
    int64_t shared = kvf__most(limits->sections, 1);

    keys->rows = kvf__carve(carve, limits->rows, 1, sizeof(kvf__attn_row));
    if (pass->model->desc.encoder) segs = 2;
    keys->segs = kvf__carve(carve, segs * limits->rows + shared, 1, sizeof(kvf__kvseg));
    keys->common = kvf__carve(carve, limits->rows, 1, sizeof(int32_t));
    keys->offset = kvf__carve(carve, limits->rows, 1, sizeof(int64_t));
    if (limits->backward)
        keys->dcommon = kvf__carve(carve, limits->common_tokens, s->qkv, sizeof(float));
}

static void lay_sections(kvf__pass *pass, kvf__carver *carve, const sizes *s)
{
    int64_t n = pass->limits.sections;

    pass->sections.at = kvf__carve(carve, kvf__most(n, 1), 1, sizeof(kvf__pass_section));
    if (n) pass->sections.label_scale = kvf__carve(carve, s->ML, 1, sizeof(float));
}

static void lay_rows(kvf__pass *pass, kvf__carver *carve)
{
    const kvf__desc *d = &pass->model->desc;
    int64_t one = 2 * kvf__shape_most(d, "GD") * pass->limits.P, rows = pass->limits.rows;
    kvf__pass_rows *own = &pass->own;

    if (!pass->limits.row_dropout && !pass->limits.infix) return;
    own->kv = kvf__carve(carve, rows, one, sizeof(float));
    own->dkv = kvf__carve(carve, pass->limits.backward ? rows : 0, one, sizeof(float));
    own->stream = kvf__carve(carve, rows, 1, sizeof(kvf__rng));
}

static void lay_dropout(kvf__pass *pass, kvf__carver *carve, const sizes *s)
{
    int64_t rows = pass->limits.rows;
    kvf__pass_dropout *drop = &pass->drop;

    if (!pass->limits.base_dropout) return;
    drop->stream = kvf__carve(carve, rows, 1, sizeof(kvf__rng));
    drop->attn_stream = kvf__carve(carve, rows, 1, sizeof(kvf__rng));
    drop->row = kvf__carve(carve, s->M, 1, sizeof(int32_t));
}

static void lay_adapters(kvf__pass *pass, kvf__carver *carve, const sizes *s)
{
    int64_t C = pass->model->desc.C;
    kvf__pass_adapters *adapt = &pass->adapt;

    if (!s->adapter) return;
    adapt->part = kvf__carve(carve, s->R, C, sizeof(float));
    if (!pass->limits.backward) return;
    adapt->d = kvf__carve(carve, s->R, C, sizeof(float));
    adapt->d_act = s->f32 ? adapt->d : kvf__carve(carve, s->R, C, s->act);
    adapt->dh = kvf__carve(carve, s->R, s->adapter, sizeof(float));
}

static void lay_neurons(kvf__pass *pass, kvf__carver *carve, const sizes *s)
{
    const int64_t C = pass->model->desc.C, N = pass->limits.neurons;
    const int64_t gradients = pass->model->desc.block.gated ? 3 : 1;
    kvf__pass_neurons *neurons = &pass->neurons;

    if (!N) return;
    neurons->keys = kvf__carve(carve, 2 * N, C, sizeof(float));
    neurons->bias = kvf__carve(carve, 2, N, sizeof(float));
    if (!s->f32) neurons->src = kvf__carve(carve, s->R, C, sizeof(float));
    if (!s->neurons) return;
    neurons->dkeys = kvf__carve(carve, N, C, sizeof(float));
    neurons->sums = kvf__carve(carve, N, 1, sizeof(double));
    neurons->dg = kvf__carve(carve, gradients * s->R, N, sizeof(float));
}

static void lay_head(kvf__pass *pass, kvf__carver *carve, const sizes *s)
{
    int64_t C = pass->model->desc.C, rows = s->head_rows, soft = pass->limits.soft;
    bool own_input = s->whole || pass->model->desc.block.post_norm;
    kvf__pass_head *head = &pass->head;

    head->xhat = kvf__carve(carve, s->ML, C, s->act);
    head->in = own_input ? kvf__carve(carve, s->ML, C, s->act) : head->xhat;
    head->rstd = kvf__carve(carve, s->ML, 1, sizeof(float));
    head->sums = kvf__vocab_sums_lay(carve, rows);
    head->soft_logit = kvf__carve(carve, rows, soft, sizeof(float));
    if (!pass->limits.backward) return;
    head->e = kvf__carve(carve, rows, KVF__VOCAB_PLANE, s->act);
    head->acc = kvf__carve(carve, rows, C, sizeof(float));
    head->target_row = kvf__carve(carve, rows, C, sizeof(float));
    if (soft) head->soft_row = kvf__carve(carve, rows, C, sizeof(float));
}

static void lay_trained(kvf__pass *pass, kvf__carver *carve, const sizes *s)
{
    int64_t C = pass->model->desc.C, E = pass->model->desc.E,
            widest = kvf__most(kvf__most(s->qkv, s->plane), kvf__most(s->att, C));
    kvf__pass_trained *weights = &pass->weights;

    if (s->weights && !s->f32) {
        weights->wide_x = kvf__carve(carve, s->R, widest, sizeof(float));
        weights->wide_dy = kvf__carve(carve, s->R, widest, sizeof(float));
    }
    if (pass->limits.backward && pass->model->train.masters && pass->model->embed.stack[0].gamma) {
        weights->embed_xhat = kvf__carve(carve, s->M, E, s->act);
        weights->embed_rstd = kvf__carve(carve, s->M, 1, sizeof(float));
    }
}

static void lay_forward(kvf__pass *pass, kvf__carver *carve, const sizes *s)
{
    const kvf__desc *d = &pass->model->desc;
    kvf__pass_forward *fwd = &pass->fwd;

    fwd->position = kvf__carve(carve, s->M, 1, sizeof(int32_t));
    fwd->scratch = kvf__carve(carve, pass->threads, kvf__most(d->C, d->E), sizeof(float));
    fwd->x = kvf__carve(carve, s->M, d->C, sizeof(float));
    fwd->embedded = d->E == d->C ? fwd->x : kvf__carve(carve, s->M, d->E, sizeof(float));
    fwd->x_lab = kvf__carve(carve, s->ML, d->C, sizeof(float));
    if (d->block.post_norm || !kvf__desc_has(d, KVF__W_NORM1, 0) || d->by_layer.inputs)
        fwd->x_act = kvf__carve(carve, s->R, d->C, s->act);
    if (s->half) fwd->half = kvf__carve(carve, s->R, d->C, sizeof(float));
    if (!d->block.post_norm) fwd->hidden = kvf__carve(carve, s->ML, d->C, sizeof(float));
    if (s->whole && !s->weights) fwd->normed = kvf__carve(carve, s->R, d->C, s->act);
    if (s->whole && !s->f32) fwd->normed_f = kvf__carve(carve, s->R, d->C, sizeof(float));
    fwd->att_lab = kvf__carve(carve, s->ML, s->att, s->act);
    fwd->g = kvf__carve(carve, s->R, s->plane, s->act);
    if (d->by_layer.inputs)
        pass->inputs.all = kvf__carve(carve, s->M, d->L * d->by_layer.inputs, sizeof(float));
}

static void lay_backward(kvf__pass *pass, kvf__carver *carve, const sizes *s)
{
    const kvf__desc *d = &pass->model->desc;
    kvf__pass_backward *bwd = &pass->bwd;

    if (!pass->limits.backward) return;
    bwd->dx = kvf__carve(carve, s->M, d->C, sizeof(float));
    bwd->dembedded = d->E == d->C ? bwd->dx : kvf__carve(carve, s->M, d->E, sizeof(float));
    bwd->dx_lab = kvf__carve(carve, s->ML, d->C, sizeof(float));
    bwd->dx_act = s->f32 ? bwd->dx : kvf__carve(carve, s->M, d->C, s->act);
    bwd->dx_lab_act = s->f32 ? bwd->dx_lab : kvf__carve(carve, s->ML, d->C, s->act);
    bwd->dxhat = kvf__carve(carve, s->R, d->C, s->act);
    if (s->half) {
        bwd->dhalf = kvf__carve(carve, s->R, d->C, sizeof(float));
        bwd->dhalf_act = s->f32 ? bwd->dhalf : kvf__carve(carve, s->R, d->C, s->act);
    }
    bwd->da = kvf__carve(carve, s->R, s->plane, s->act);
    if (d->block.gated) {
        bwd->dg = kvf__carve(carve, s->R, s->plane, s->act);
        bwd->du = kvf__carve(carve, s->R, s->plane, s->act);
    }
    bwd->datt = kvf__carve(carve, s->M, s->att, s->act);
    bwd->datt_lab = kvf__carve(carve, s->ML, s->att, s->act);
    bwd->dqkv = kvf__carve(carve, s->M, s->qkv, s->act);
    pass->again.rows = s->M;
    if (pass->limits.recompute)
        pass->again.entered = kvf__carve(carve, d->L * s->M, d->C, sizeof(float));
}

static void lay_source(kvf__pass *pass, kvf__carver *carve, const sizes *s)
{
    const kvf__desc *d = &pass->model->desc;
    kvf__pass_source *source = &pass->source;

    if (!d->encoder) return;
    source->states = kvf__carve(carve, s->S, d->C, s->act);
    source->rstd = kvf__carve(carve, s->S, 1, sizeof(float));
    if (!pass->limits.backward) return;
    source->dstates = kvf__carve(carve, s->S, d->C, sizeof(float));
    source->dkv = kvf__carve(carve, s->S, 2 * d->G * d->D, sizeof(float));
    source->dkv_act = s->f32 ? source->dkv : kvf__carve(carve, s->S, 2 * d->G * d->D, s->act);
}

static void lay_out(kvf__pass *pass, kvf__carver *carve)
{
    const sizes s = sizes_of(pass);

    lay_keys(pass, carve, &s);
    lay_sections(pass, carve, &s);
    lay_forward(pass, carve, &s);
    lay_rows(pass, carve);
    lay_dropout(pass, carve, &s);
    lay_adapters(pass, carve, &s);
    lay_neurons(pass, carve, &s);
    lay_head(pass, carve, &s);
    lay_layers(pass, carve, &s);
    kvf__pass_lay_shared(pass, carve, s.M);
    lay_source(pass, carve, &s);
    kvf__pass_lay_mixer(pass, carve, s.M);
    lay_backward(pass, carve, &s);
    lay_trained(pass, carve, &s);
}

kvf_status kvf__pass_alloc(kvf_ctx *ctx, kvf__pass *pass)
{
    kvf__carver carve = {0};

    lay_out(pass, &carve);
    if (carve.overflow)
        return kvf__fail(ctx, KVF_ENOMEM,
                         "pass: %lld tokens and %lld labels are more than memory can address",
                         (long long)pass->limits.tokens, (long long)pass->limits.labels);
    KVF_TRY(kvf__arena_init(ctx, &pass->arena, carve.bytes));
    carve = (kvf__carver){.arena = &pass->arena};
    lay_out(pass, &carve);
    return KVF_OK;
}
