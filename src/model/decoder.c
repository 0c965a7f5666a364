/* Making a decoder: the weights of a base by role as their file has them, and the memory of a step.
 *
 * Only vectors (norms, biases) are copied; matrices are viewed. */
#include "arch.h"
#include "decoder_priv.h"
#include "slot.h"
#include "stored.h"

/* What is needed only while creating. */
typedef struct making {
    kvf_ctx *ctx;
    kvf__decoder *decoder;
    const kvf__desc *desc;
    const kvf__slots *slots;
} making;

/* ---- weights --------------------------------------------------------------------------------- */

bool kvf__decoder_fits(const kvf__model *model, const kvf__slots *slots)
{
    const kvf__desc *d = &model->desc;

    if (!d->causal || d->post_norm || d->types || d->position_pad >= 0) return false;
    if (model->unfolded) return false; /* its weights may be others than the file has */
    for (size_t i = 0; i < slots->n; i++)
        if (slots->items[i].conv1d && slots->items[i].view.rank > 1) return false;
    return true;
}

static kvf_status vector_of(const making *m, kvf__role role, int64_t layer, float **out)
{
    const kvf__slot *slot = kvf__slot_of(m->desc, m->slots, role, layer);
    return slot ? kvf__slot_f32(m->ctx, slot, out) : KVF_OK;
}

static kvf_status norm_of(const making *m, kvf__role gamma, kvf__role beta, int64_t layer,
                          kvf__raw_norm *out)
{
    KVF_TRY(vector_of(m, gamma, layer, &out->gamma));
    return vector_of(m, beta, layer, &out->beta);
}

static void put_matrix(const kvf__slot *slot, kvf__raw *out)
{
    out->slot = slot;
    if (!slot) return;
    out->rows = kvf__slot_rows(slot);
    out->K = kvf__slot_columns(slot);
}

static kvf_status raw_of(const making *m, kvf__role weight, kvf__role bias, int64_t layer,
                         kvf__raw *out)
{
    put_matrix(kvf__slot_of(m->desc, m->slots, weight, layer), out);
    return vector_of(m, bias, layer, &out->bias);
}

static kvf_status layer_of(const making *m, int64_t l)
{
    kvf__raw_layer *to = &m->decoder->layers[l];

    KVF_TRY(norm_of(m, KVF__W_NORM1, KVF__W_NORM1_BETA, l, &to->norm1));
    KVF_TRY(norm_of(m, KVF__W_NORM2, KVF__W_NORM2_BETA, l, &to->norm2));
    if (kvf__slot_of(m->desc, m->slots, KVF__W_QKV, l)) {
        KVF_TRY(raw_of(m, KVF__W_QKV, KVF__W_QKV_BIAS, l, &to->qkv[0]));
    } else {
        KVF_TRY(raw_of(m, KVF__W_Q, KVF__W_Q_BIAS, l, &to->qkv[0]));
        KVF_TRY(raw_of(m, KVF__W_K, KVF__W_K_BIAS, l, &to->qkv[1]));
        KVF_TRY(raw_of(m, KVF__W_V, KVF__W_V_BIAS, l, &to->qkv[2]));
    }
    KVF_TRY(raw_of(m, KVF__W_OUT, KVF__W_OUT_BIAS, l, &to->out));
    if (m->desc->gated) KVF_TRY(raw_of(m, KVF__W_GATE, KVF__W_GATE_BIAS, l, &to->gate));
    KVF_TRY(raw_of(m, KVF__W_UP, KVF__W_UP_BIAS, l, &to->up));
    return raw_of(m, KVF__W_DOWN, KVF__W_DOWN_BIAS, l, &to->down);
}

static kvf_status take_weights(const making *m)
{
    kvf__decoder *decoder = m->decoder;

    KVF_TRY(
        kvf__alloc_array(m->ctx, (size_t)m->desc->L, sizeof *decoder->layers, &decoder->layers));
    for (int64_t l = 0; l < m->desc->L; l++)
        KVF_TRY(layer_of(m, l));
    put_matrix(&decoder->model->lm.slot, &decoder->head);
    return norm_of(m, KVF__W_FINAL, KVF__W_FINAL_BETA, 0, &decoder->final);
}

static void free_norm(kvf__raw_norm *norm)
{
    kvf__free(norm->gamma);
    kvf__free(norm->beta);
}

static void free_layer(kvf__raw_layer *layer)
{
    for (int i = 0; i < 3; i++)
        kvf__free(layer->qkv[i].bias);
    kvf__free(layer->out.bias);
    kvf__free(layer->gate.bias);
    kvf__free(layer->up.bias);
    kvf__free(layer->down.bias);
    free_norm(&layer->norm1);
    free_norm(&layer->norm2);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static kvf__decoder_own lay_own(const kvf__decoder *decoder, kvf__carver *carve)
{
    const kvf__desc *d = &decoder->model->desc;
    int64_t K = larger(d->C, larger(d->F, d->H * d->D));

    return (kvf__decoder_own){
        .xhat = kvf__carve(carve, decoder->rows, d->C, sizeof(float)),
        .rstd = kvf__carve(carve, decoder->rows, 1, sizeof(float)),
        .head = kvf__carve(carve, d->D, 1, sizeof(float)),
        .product = kvf__carve(carve, 1, 1, kvf__matvec_scratch(decoder->rows, K)),
        .attention = kvf__carve(
            carve, 1, 1, kvf__attn_head_scratch(d->D, decoder->P + decoder->cache->capacity + 1)),
        .segs = kvf__carve(carve, decoder->rows, 2, sizeof(kvf__kvseg)),
        .rows = kvf__carve(carve, decoder->rows, 1, sizeof(kvf__attn_row)),
    };
}

static void lay_out(kvf__decoder *decoder, kvf__carver *carve)
{
    const kvf__desc *d = &decoder->model->desc;
    int64_t rows = decoder->rows;

    decoder->x = kvf__carve(carve, rows, d->C, sizeof(float));
    decoder->qkv = kvf__carve(carve, rows, (d->H + 2 * d->G) * d->D, sizeof(float));
    decoder->att = kvf__carve(carve, rows, d->H * d->D, sizeof(float));
    decoder->h1 = kvf__carve(carve, rows, d->F, sizeof(float));
    if (d->gated) decoder->h2 = kvf__carve(carve, rows, d->F, sizeof(float));
    decoder->g = kvf__carve(carve, rows, d->F, sizeof(float));
    decoder->lse = kvf__carve(carve, d->H, rows, sizeof(float));
    decoder->position_rows = kvf__carve(carve, rows, d->C, sizeof(float));
    decoder->position = kvf__carve(carve, rows, 1, sizeof(int64_t));
    decoder->own = kvf__carve(carve, decoder->threads, 1, sizeof *decoder->own);
    for (int t = 0; t < decoder->threads; t++) {
        kvf__decoder_own own = lay_own(decoder, carve);
        if (carve->arena) decoder->own[t] = own;
    }
}

static kvf_status alloc_memory(kvf_ctx *ctx, kvf__decoder *decoder)
{
    kvf__carver carve = {0};

    lay_out(decoder, &carve);
    if (carve.overflow)
        return kvf__fail(ctx, KVF_ENOMEM, "decoder: %lld rows are more than memory can address",
                         (long long)decoder->rows);
    KVF_TRY(kvf__arena_init(ctx, &decoder->arena, carve.bytes));
    carve = (kvf__carver){.arena = &decoder->arena};
    lay_out(decoder, &carve);
    return KVF_OK;
}

/* ---- create ---------------------------------------------------------------------------------- */

kvf_status kvf__decoder_create(kvf_ctx *ctx, kvf__model *model, const kvf__slots *slots,
                               kvf__cache *cache, int64_t rows, int64_t P, kvf__decoder **out)
{
    kvf__decoder *decoder = NULL;
    kvf_status st;

    if (rows < 1 || P < 0)
        return kvf__fail(ctx, KVF_ESHAPE, "decoder: %lld rows and a prefix of %lld",
                         (long long)rows, (long long)P);
    if (!kvf__decoder_fits(model, slots))
        return kvf__fail(ctx, KVF_EUSAGE, "decoder: this base stores weights by inputs");
    st = kvf__alloc(ctx, sizeof *decoder, &decoder);
    if (st) goto out;
    decoder->model = model;
    decoder->cache = cache;
    decoder->matvec = kvf__matvec_get();
    decoder->rows = rows;
    decoder->P = P;
    decoder->threads = kvf_ctx_threads(ctx);
    /* the values that the model itself computes with */
    if (model->store.from) slots = &model->store.from->slots;
    const making m = {.ctx = ctx, .decoder = decoder, .desc = &model->desc, .slots = slots};
    st = take_weights(&m);
    if (st) goto out;
    st = alloc_memory(ctx, decoder);
    if (st) goto out;

    *out = decoder;
    decoder = NULL;
out:
    kvf__decoder_free(decoder);
    return st;
}

void kvf__decoder_set_head(kvf__decoder *decoder, const kvf__slot *head)
{
    put_matrix(head, &decoder->head);
}

void kvf__decoder_free(kvf__decoder *decoder)
{
    if (!decoder) return;
    for (int64_t l = 0; decoder->layers && l < decoder->model->desc.L; l++)
        free_layer(&decoder->layers[l]);
    kvf__free(decoder->layers);
    free_norm(&decoder->final);
    kvf__arena_done(&decoder->arena);
    kvf__free(decoder);
}
