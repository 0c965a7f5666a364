/* Creating a decoder: the weights of a base by role as stored in its file, and the memory of a
 * step, all in one block.
 *
 * Only vectors (norms, biases) are copied; matrices are viewed. */
#include "decoder_priv.h"
#include "names.h"
#include "products.h"
#include "slot.h"
#include "stored.h"

const char *kvf__decoder_refuses(const kvf__model *model, const kvf__slots *slots)
{
    const kvf__desc *d = &model->desc;
    const char *why = kvf__block_refused(&d->block, KVF__BLOCK_DECODER);

    if (why) return why;
    if (d->encoder) return "has an encoder";
    if (d->head_bias) return "has a head with a bias";
    if (d->types || d->position.pad >= 0 || model->embed.stack[0].gamma || model->embed.out)
        return "has embeddings other than those of tokens and positions";
    if (model->unfolded) return "is trained, so its weights may differ from the file";
    for (size_t i = 0; i < slots->n; i++) {
        const kvf__slot *slot = &slots->items[i];
        if (slot->conv1d && slot->view.rank > 1) return "stores transposed weights";
        if (slot->add) return "has a LoRA added to its weights";
        if (!kvf__matvec_takes(slot->view.dtype))
            return "stores weights in a type that has no products";
    }
    return NULL;
}

/* ---- weights --------------------------------------------------------------------------------- */

/* Reads a vector as f32, NULL if absent; read in the second pass, when memory exists. */
static float *lay_vector(kvf__carver *carve, const kvf__slot *slot)
{
    if (!slot) return NULL;
    float *at = kvf__carve(carve, kvf__slot_columns(slot), 1, sizeof(float));
    if (at) kvf__slot_read(slot, at);
    return at;
}

static kvf__raw_norm lay_norm(const kvf__decoder *decoder, kvf__carver *carve, kvf__role gamma,
                              kvf__role beta, int64_t layer)
{
    const kvf__desc *d = &decoder->model->desc;

    return (kvf__raw_norm){lay_vector(carve, kvf__slot_of(d, decoder->slots, gamma, layer)),
                           lay_vector(carve, kvf__slot_of(d, decoder->slots, beta, layer))};
}

static kvf__raw raw_of(const kvf__slot *slot, float *bias)
{
    return (kvf__raw){
        .slot = slot, .bias = bias, .rows = kvf__slot_rows(slot), .K = kvf__slot_columns(slot)};
}

/* Returns part i of a product: gate or up may be parts of one matrix, and so may queries and their
 * gates. */
static kvf__raw raw_part(const kvf__desc *d, const kvf__product *p, const kvf__slot *slot, int i,
                         float *bias)
{
    kvf__raw raw = raw_of(slot, bias);

    if (p->kind == KVF__PRODUCT_QKV) kvf__product_rows(d, slot, i, &raw.first, &raw.rows);

    if (slot->role != KVF__W_GATE_UP) return raw;
    raw.rows /= 2;
    raw.first = p->n0;
    return raw;
}

static kvf__raw_layer lay_layer(const kvf__decoder *decoder, kvf__carver *carve, int64_t l)
{
    const kvf__desc *d = &decoder->model->desc;
    const kvf__slot *slot, *bias;
    kvf__raw_layer to = {.norm1 = lay_norm(decoder, carve, KVF__W_NORM1, KVF__W_NORM1_BETA, l),
                         .norm2 = lay_norm(decoder, carve, KVF__W_NORM2, KVF__W_NORM2_BETA, l),
                         .out_norm1 = lay_norm(decoder, carve, KVF__W_OUT_NORM1, KVF__W_ROLES, l),
                         .out_norm2 = lay_norm(decoder, carve, KVF__W_OUT_NORM2, KVF__W_ROLES, l),
                         .out_norm3 = lay_norm(decoder, carve, KVF__W_OUT_NORM3, KVF__W_ROLES, l)};
    kvf__raw *const raws[] = {/* indexed by kind of product */
                              to.qkv,   &to.out,        &to.up,        &to.gate,
                              &to.down, &to.input_gate, &to.input_down};
    kvf__product p;

    for (size_t i = 0; kvf__product_at(d, l, i, &p) && !p.plane; i++)
        for (int part = 0; (slot = kvf__product_slot(d, decoder->slots, &p, part, &bias)); part++)
            raws[p.kind][part] = raw_part(d, &p, slot, part, lay_vector(carve, bias));
    return to;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static kvf__decoder_own lay_own(const kvf__decoder *decoder, kvf__carver *carve)
{
    const kvf__desc *d = &decoder->model->desc;
    const int64_t D = kvf__shape_most(d, "D");
    const bool mixes = d->mixer.kind;
    int64_t K = kvf__most(kvf__most(d->C, d->by_layer.inputs),
                          kvf__most(kvf__shape_most(d, "F"), kvf__shape_most(d, "A")));

    return (kvf__decoder_own){
        .xhat = kvf__carve(carve, decoder->rows, d->C, sizeof(float)),
        .rstd = kvf__carve(carve, decoder->rows, 1, sizeof(float)),
        .head = kvf__carve(carve, D, 1, sizeof(float)),
        .whole_rstd = kvf__carve(carve, 2, decoder->rows, sizeof(float)),
        .of_token = kvf__carve(carve, d->L, d->by_layer.inputs, sizeof(float)),
        .product = kvf__carve(carve, 1, 1, kvf__matvec_scratch(decoder->rows, K)),
        .attention = kvf__carve(
            carve, 1, 1, kvf__attn_head_scratch(D, decoder->P + decoder->cache->capacity + 1)),
        .segs = kvf__carve(carve, decoder->rows, 2, sizeof(kvf__kvseg)),
        .rows = kvf__carve(carve, decoder->rows, 1, sizeof(kvf__attn_row)),
        .mixer = mixes ? kvf__carve(carve, 1, kvf__mixer_scratch(d, 1), sizeof(float)) : NULL,
        .state = mixes ? kvf__carve(carve, 1, kvf__mixer_unit_state(d), sizeof(float)) : NULL,
    };
}

static void lay_out(void *object, kvf__carver *carve)
{
    kvf__decoder *decoder = object;
    const kvf__desc *d = &decoder->model->desc;
    int64_t rows = decoder->rows;

    decoder->layers = kvf__carve(carve, d->L, 1, sizeof *decoder->layers);
    for (int64_t l = 0; l < d->L; l++) {
        kvf__raw_layer layer = lay_layer(decoder, carve, l);
        if (decoder->layers) decoder->layers[l] = layer;
    }
    decoder->final = lay_norm(decoder, carve, KVF__W_FINAL, KVF__W_FINAL_BETA, 0);
    for (int64_t c = 0; decoder->final.gamma && c < d->C; c++)
        decoder->final.gamma[c] *= d->factors.head;
    decoder->x = kvf__carve(carve, rows, d->C, sizeof(float));
    decoder->qkv = kvf__carve(carve, rows, kvf__shape_most(d, "J"), sizeof(float));
    decoder->att = kvf__carve(carve, rows, kvf__shape_most(d, "A"), sizeof(float));
    decoder->inputs = kvf__carve(carve, rows, d->L * d->by_layer.inputs, sizeof(float));
    decoder->half = kvf__carve(carve, rows, d->C, sizeof(float));
    const int64_t F = kvf__most(kvf__shape_most(d, "F"), d->by_layer.inputs);
    decoder->h1 = kvf__carve(carve, rows, F, sizeof(float));
    if (d->block.gated) decoder->h2 = kvf__carve(carve, rows, F, sizeof(float));
    decoder->g = kvf__carve(carve, rows, F, sizeof(float));
    decoder->n1 = kvf__carve(carve, rows, decoder->neurons, sizeof(float));
    if (d->block.gated) decoder->n2 = kvf__carve(carve, rows, decoder->neurons, sizeof(float));
    decoder->ng = kvf__carve(carve, rows, decoder->neurons, sizeof(float));
    decoder->lse = kvf__carve(carve, d->H, rows, sizeof(float));
    decoder->position = kvf__carve(carve, rows, 1, sizeof(int32_t));
    decoder->own = kvf__carve(carve, decoder->threads, 1, sizeof *decoder->own);
    for (int t = 0; t < decoder->threads; t++) {
        kvf__decoder_own own = lay_own(decoder, carve);
        if (decoder->own) decoder->own[t] = own;
    }
}

kvf_status kvf__decoder_create(kvf_ctx *ctx, kvf__model *model, const kvf__slots *slots,
                               kvf__cache *cache, int64_t rows, int64_t P, int64_t neurons,
                               kvf__decoder **out)
{
    kvf__decoder made = {
        .model = model,
        /* the same values as in the packed model */
        .slots = model->store.from ? &model->store.from->slots : slots,
        .cache = cache,
        .matvec = kvf__matvec_get(),
        .head = raw_of(&model->lm.slot, NULL),
        .rows = rows,
        .P = P,
        .neurons = neurons,
        .threads = kvf_ctx_threads(ctx),
    };

    const kvf__slot *inputs = kvf__slot_of(&model->desc, made.slots, KVF__W_INPUT_PROJECTION, 0);
    if (inputs) made.inputs_of = raw_of(inputs, NULL);
    if (rows < 1 || P < 0)
        return kvf__fail(ctx, KVF_ESHAPE, "decoder: %lld rows and a prefix of %lld",
                         (long long)rows, (long long)P);
    const char *why = kvf__decoder_refuses(model, slots);
    if (why) return kvf__fail(ctx, KVF_EUSAGE, "decoder: the base %s", why);
    return kvf__carve_object(ctx, lay_out, &made, sizeof made, out);
}

void kvf__decoder_set_head(kvf__decoder *decoder, const kvf__slot *head)
{
    decoder->head = raw_of(head, NULL);
}

void kvf__decoder_free(kvf__decoder *decoder)
{
    kvf__free(decoder);
}
