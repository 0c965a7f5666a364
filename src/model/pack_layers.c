/* The weights of a layer, or of a plane of the head, from their slots into packed form: which
 * matrices are stacked, cut into planes, and have the norm in front of them folded in. */
#include "creation.h"

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

kvf_status kvf__creation_prepare(kvf__creation *c)
{
    const kvf__desc *d = c->desc;
    int64_t fused = (d->H + 2 * d->G) * d->D, heads = d->H * d->D;
    int64_t widest = most(most(fused, heads), most(KVF__VOCAB_PLANE, d->C));
    size_t matrix;

    /* The largest piece: qkv, out, a plane of the feed-forward part or of the vocabulary. */
    if (!kvf__mul((size_t)d->C, (size_t)widest, &matrix))
        return kvf__fail(c->ctx, KVF_ENOMEM, "a matrix of %lld x %lld", (long long)d->C,
                         (long long)widest);
    KVF_TRY(kvf__packer_init(c->ctx, &c->packer, matrix, (size_t)widest, (size_t)widest));
    c->packer.mm = c->model->mm;
    c->packer.act = c->model->act;
    c->packer.forward = true;
    c->packer.backward = c->model->backward;
    KVF_TRY(kvf__alloc_array(c->ctx, (size_t)d->C, sizeof(float), &c->gamma));
    return kvf__alloc_array(c->ctx, (size_t)d->C, sizeof(float), &c->beta);
}

/* Sets gamma and beta of a linear layer that follows a norm. */
static void put_norm(kvf__creation *c, kvf__role gamma, kvf__role beta, int64_t layer,
                     kvf__dense *linear)
{
    const kvf__slot *beta_slot = kvf__creation_slot(c, beta, layer);

    kvf__slot_row(kvf__creation_slot(c, gamma, layer), 0, c->gamma);
    linear->gamma = c->gamma;
    if (beta_slot) kvf__slot_row(beta_slot, 0, c->beta);
    linear->beta = beta_slot ? c->beta : NULL;
}

static kvf__dense one_part(const kvf__creation *c, kvf__role weight, kvf__role bias, int64_t layer)
{
    return (kvf__dense){.n_parts = 1,
                        .weight = {kvf__creation_slot(c, weight, layer)},
                        .bias = {kvf__creation_slot(c, bias, layer)}};
}

static kvf_status pack_attention(kvf__creation *c, int64_t layer)
{
    const kvf__desc *d = c->desc;
    kvf__layer *to = &c->model->layers[layer];
    kvf__dense qkv = one_part(c, KVF__W_QKV, KVF__W_QKV_BIAS, layer);
    kvf__dense out = one_part(c, KVF__W_OUT, KVF__W_OUT_BIAS, layer);
    int64_t fused = (d->H + 2 * d->G) * d->D, heads = d->H * d->D;

    if (!qkv.weight[0])
        qkv = (kvf__dense){.n_parts = 3,
                           .weight = {kvf__creation_slot(c, KVF__W_Q, layer),
                                      kvf__creation_slot(c, KVF__W_K, layer),
                                      kvf__creation_slot(c, KVF__W_V, layer)},
                           .bias = {kvf__creation_slot(c, KVF__W_Q_BIAS, layer),
                                    kvf__creation_slot(c, KVF__W_K_BIAS, layer),
                                    kvf__creation_slot(c, KVF__W_V_BIAS, layer)}};
    if (kvf__creation_folds(c)) put_norm(c, KVF__W_NORM1, KVF__W_NORM1_BETA, layer, &qkv);
    const kvf__tile all = {.n = fused, .n_padded = fused, .k = d->C, .with_bias = true};
    KVF_TRY(kvf__pack_tile(&c->packer, &qkv, &all, &to->qkv, &to->qkv_t));

    const kvf__tile whole = {.n = d->C, .n_padded = d->C, .k = heads, .with_bias = true};
    return kvf__pack_tile(&c->packer, &out, &whole, &to->out, &to->out_t);
}

static kvf_status pack_ffn(kvf__creation *c, int64_t layer)
{
    const kvf__desc *d = c->desc;
    kvf__layer *to = &c->model->layers[layer];
    kvf__dense up = one_part(c, KVF__W_UP, KVF__W_UP_BIAS, layer);
    kvf__dense down = one_part(c, KVF__W_DOWN, KVF__W_DOWN_BIAS, layer);
    kvf__dense gate = {0};

    if (kvf__creation_folds(c)) put_norm(c, KVF__W_NORM2, KVF__W_NORM2_BETA, layer, &up);
    if (d->gated) {
        gate = one_part(c, KVF__W_GATE, KVF__W_GATE_BIAS, layer);
        gate.gamma = up.gamma;
        gate.beta = up.beta;
    }
    for (int i = 0; i < c->model->ffn.n; i++) {
        int64_t start = c->model->ffn.start[i], width = c->model->ffn.width[i];
        const kvf__tile outputs = {
            .n0 = start, .n = width, .n_padded = width, .k = d->C, .with_bias = true};
        const kvf__tile inputs = {
            .n = d->C, .n_padded = d->C, .k0 = start, .k = width, .with_bias = i == 0};
        KVF_TRY(kvf__pack_tile(&c->packer, &up, &outputs, &to->up[i], &to->up_t[i]));
        if (d->gated)
            KVF_TRY(kvf__pack_tile(&c->packer, &gate, &outputs, &to->gate[i], &to->gate_t[i]));
        KVF_TRY(kvf__pack_tile(&c->packer, &down, &inputs, &to->down[i], &to->down_t[i]));
    }
    return KVF_OK;
}

kvf_status kvf__creation_pack_layer(kvf__creation *c, int64_t layer)
{
    KVF_TRY(pack_attention(c, layer));
    return pack_ffn(c, layer);
}

kvf_status kvf__creation_take_head(kvf__creation *c)
{
    kvf__model *model = c->model;
    int64_t n = (c->desc->V + KVF__VOCAB_PLANE - 1) / KVF__VOCAB_PLANE;

    if (!kvf__weight_by_role(c->desc, KVF__W_HEAD)) return KVF_OK;
    if (!model->lm.packed)
        KVF_TRY(kvf__alloc_array(c->ctx, (size_t)n, sizeof *model->lm.packed, &model->lm.packed));
    model->lm.n = n;
    if (model->backward && !model->lm.packed_t)
        KVF_TRY(
            kvf__alloc_array(c->ctx, (size_t)n, sizeof *model->lm.packed_t, &model->lm.packed_t));
    return KVF_OK;
}

kvf_status kvf__creation_pack_plane(kvf__creation *c, int64_t plane)
{
    kvf__model *model = c->model;
    kvf__dense head = {.n_parts = 1,
                       .weight = {&model->lm.slot},
                       .bias = {kvf__creation_slot(c, KVF__W_HEAD_BIAS, 0)}};
    int64_t start = plane * KVF__VOCAB_PLANE, left = c->desc->V - start;
    const kvf__tile piece = {.n0 = start,
                             .n = left < KVF__VOCAB_PLANE ? left : KVF__VOCAB_PLANE,
                             .n_padded = KVF__VOCAB_PLANE,
                             .k = c->desc->C,
                             .with_bias = true};

    if (kvf__creation_folds(c)) put_norm(c, KVF__W_FINAL, KVF__W_FINAL_BETA, 0, &head);
    return kvf__pack_tile(&c->packer, &head, &piece, &model->lm.packed[plane],
                          model->backward ? &model->lm.packed_t[plane] : NULL);
}
