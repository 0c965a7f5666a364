/* From bound weights to the packed model that a pass runs.
 *
 * Every dense layer is packed product by product (pack_units.c); in pre-norm blocks the preceding
 * norm is folded in. Other norms are copied. Only the embedding (and learned positions) stay in the
 * file, read row by row. */
#include "arena.h"
#include "creation.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define ROPE_ROWS_AT_CREATION 8192

typedef kvf__creation creation;

static const kvf__slot *slot_of(const creation *c, kvf__role role, int64_t layer)
{
    return kvf__creation_slot(c, role, layer);
}

/* ---- arrays and vectors ---------------------------------------------------------------------- */

/* Weights read as f32: into new pieces of the model's memory, or again into the existing ones. */
typedef struct reading {
    const creation *c;
    kvf__carver *carve; /* NULL: read again */
} reading;

/* *at stays NULL while memory is counted, and if the file lacks the weight. */
static void read_plain(const reading *r, kvf__role role, int64_t layer, float **at)
{
    const kvf__slot *slot = slot_of(r->c, role, layer);

    if (slot && r->carve)
        *at = kvf__carve(r->carve, kvf__slot_rows(slot), kvf__slot_columns(slot), sizeof(float));
    if (slot && *at) kvf__slot_read(slot, *at);
}

/* Reads one row per head: H copies of the queries' norm, G of the keys', and ones for values where
 * they are normed. Slots of norms over all heads have all rows. */
static void read_head_norms(const reading *r, int64_t layer, float **at)
{
    const kvf__desc *d = r->c->desc;
    const kvf__layer_shape shape = kvf__desc_layer(d, layer);
    const int64_t D = shape.D, ones = d->block.v_norm ? shape.G : 0;
    const kvf__slot *q = slot_of(r->c, KVF__W_Q_NORM, layer),
                    *k = slot_of(r->c, KVF__W_K_NORM, layer);

    if (!d->block.qk_norm || kvf__layer_mixes(d, layer)) return;
    if (r->carve) *at = kvf__carve(r->carve, d->H + shape.G + ones, D, sizeof(float));
    if (*at && d->block.qk_norm == KVF__QK_WHOLE) {
        kvf__slot_row(q, 0, *at);
        kvf__slot_row(k, 0, *at + d->H * D);
        return;
    }
    for (int64_t h = 0; *at && h < d->H + (k ? shape.G : 0); h++)
        kvf__slot_row(h < d->H ? q : k, 0, *at + h * D);
    for (int64_t i = 0; *at && i < ones * D; i++)
        (*at)[(d->H + shape.G) * D + i] = 1;
}

/* Reads a convolution tap by tap; a file has it channel by channel. */
static void read_conv(const reading *r, int64_t l, float **at)
{
    const kvf__slot *slot = slot_of(r->c, KVF__W_MIXER_CONV, l);
    float taps[KVF__MOST_TAPS];

    if (!slot) return;
    const int64_t channels = kvf__slot_rows(slot), kernel = kvf__slot_columns(slot);
    if (r->carve) *at = kvf__carve(r->carve, kernel, channels, sizeof(float));
    for (int64_t c = 0; *at && c < channels; c++) {
        kvf__slot_row(slot, c, taps);
        for (int64_t j = 0; j < kernel; j++)
            (*at)[j * channels + c] = taps[j];
    }
}

static void read_mixer(const reading *r, int64_t l, kvf__layer *to)
{
    read_conv(r, l, &to->mixer.conv);
    read_plain(r, KVF__W_MIXER_STEP, l, &to->mixer.step);
    read_plain(r, KVF__W_MIXER_RATE, l, &to->mixer.rate);
    read_plain(r, KVF__W_MIXER_NORM, l, &to->mixer.gamma);
    const kvf__slot *rate = slot_of(r->c, KVF__W_MIXER_RATE, l);
    for (int64_t h = 0; to->mixer.rate && h < r->c->desc->mixer.value_heads; h++)
        if (!rate->minus_exp) to->mixer.rate[h] = -expf(to->mixer.rate[h]);
}

/* Reads all norms that are not folded, and the dense layer after the embeddings. */
static void read_plain_weights(const reading *r)
{
    kvf__model *model = r->c->model;
    const bool folded = !r->c->desc->block.post_norm && !model->unfolded;

    for (int64_t l = 0; l < r->c->desc->L; l++) {
        kvf__layer none = {0}, *to = model->layers ? &model->layers[l] : &none;
        read_head_norms(r, l, &to->head_gamma);
        read_plain(r, KVF__W_OUT_NORM1, l, &to->out_gamma[0]);
        read_plain(r, KVF__W_OUT_NORM2, l, &to->out_gamma[1]);
        read_plain(r, KVF__W_OUT_NORM3, l, &to->input_gamma);
        read_plain(r, KVF__W_SCALE, l, &to->scale);
        read_mixer(r, l, to);
        if (folded) read_plain(r, KVF__W_NORM2, l, &to->folded_gamma);
        if (folded) read_plain(r, KVF__W_NORM2_BETA, l, &to->folded_beta);
        if (folded) continue;
        read_plain(r, KVF__W_NORM1, l, &to->gamma1);
        read_plain(r, KVF__W_NORM1_BETA, l, &to->beta1);
        read_plain(r, KVF__W_NORM2, l, &to->gamma2);
        read_plain(r, KVF__W_NORM2_BETA, l, &to->beta2);
    }
    for (int64_t first = 0, i = 0; i < kvf__stacks(r->c->desc); first = r->c->desc->encoder, i++) {
        read_plain(r, KVF__W_EMBED_NORM, first, &model->embed.stack[i].gamma);
        read_plain(r, KVF__W_EMBED_NORM_BETA, first, &model->embed.stack[i].beta);
    }
    read_plain(r, KVF__W_EMBED_OUT, 0, &model->embed.out);
    read_plain(r, KVF__W_EMBED_OUT_BIAS, 0, &model->embed.out_bias);
    read_plain(r, KVF__W_INPUT_PROJECTION, 0, &model->inputs.projection);
    read_plain(r, KVF__W_INPUT_NORM, 0, &model->inputs.gamma);
    read_plain(r, KVF__W_FINAL, 0, &model->lm.gamma);
    for (int64_t i = 0; model->lm.gamma && i < model->desc.C; i++)
        model->lm.gamma[i] *= model->desc.factors.head;
    read_plain(r, KVF__W_FINAL_BETA, 0, &model->lm.beta);
}

/* Reads the masked-LM head, complete or not at all; a decoder of its own is ignored. */
static void read_masked_lm(const reading *r)
{
    static const kvf__role ROLES[] = {KVF__W_MLM_DENSE, KVF__W_MLM_DENSE_BIAS, KVF__W_MLM_NORM,
                                      KVF__W_MLM_NORM_BETA, KVF__W_MLM_BIAS};
    kvf__masked_lm *to = &r->c->model->masked_lm;
    float **const at[] = {&to->dense, &to->dense_bias, &to->gamma, &to->beta, &to->bias};

    to->act = r->c->desc->arch->mlm_gelu ? KVF__GELU_ERF : r->c->desc->block.act;
    for (size_t i = 0; i < KVF__COUNT(ROLES); i++)
        if (!r->c->desc->tied ||
            (kvf__weight_by_role(r->c->desc, ROLES[i]) && !slot_of(r->c, ROLES[i], 0)))
            return;
    for (size_t i = 0; i < KVF__COUNT(ROLES); i++)
        read_plain(r, ROLES[i], 0, at[i]);
}

/* Layers packed on demand share the memory of one layer of their place; so do planes of the
 * head. */
static void lay_memory(void *object, kvf__carver *carve)
{
    const reading r = {.c = object, .carve = carve};
    kvf__model *model = r.c->model;
    const int64_t L = r.c->desc->L;
    const bool late = model->store.late;

    model->layers = kvf__carve(carve, L, 1, sizeof *model->layers);
    model->weights = kvf__carve(carve, late ? KVF__PLACES : L, 1, sizeof *model->weights);
    for (int64_t l = 0; model->layers && l < L; l++)
        model->layers[l].w = &model->weights[late ? (int64_t)kvf__layer_place(r.c->desc, l) : l];
    if (model->lm.n)
        model->lm.planes = kvf__carve(carve, late ? 1 : model->lm.n, 1, sizeof *model->lm.planes);
    read_plain_weights(&r);
    read_plain(&r, KVF__W_POOLER, 0, &model->pooler);
    read_plain(&r, KVF__W_POOLER_BIAS, 0, &model->pooler_bias);
    read_masked_lm(&r);
}

/* ---- building -------------------------------------------------------------------------------- */

/* Sets up the weights that stay in the file, the head's planes, and the tables. */
static kvf_status put_embedding(creation *c)
{
    kvf__model *model = c->model;
    const kvf__slot *head = slot_of(c, KVF__W_HEAD, 0);
    const kvf__slot *types = slot_of(c, KVF__W_TYPES, 0);
    const kvf__slot *inputs = slot_of(c, KVF__W_INPUT_TOKENS, 0);

    model->embed.tokens = *slot_of(c, KVF__W_TOKENS, 0);
    model->lm.file = head ? *head : model->embed.tokens;
    model->lm.slot = model->store.from && model->store.from->head.view.data
                         ? model->store.from->head
                         : model->lm.file;
    for (int64_t first = 0, i = 0; i < kvf__stacks(c->desc); first = c->desc->encoder, i++) {
        const kvf__slot *positions = slot_of(c, KVF__W_POSITIONS, first);
        if (positions) model->embed.stack[i].positions = *positions;
    }
    if (types) model->embed.types = *types;
    if (inputs) model->inputs.tokens = *inputs;
    if (kvf__weight_by_role(c->desc, KVF__W_HEAD))
        model->lm.n = (c->desc->V + KVF__VOCAB_PLANE - 1) / KVF__VOCAB_PLANE;
    int64_t rows = model->desc.position.max;
    return kvf__rope_tables(c->ctx, model,
                            rows < ROPE_ROWS_AT_CREATION ? rows : ROPE_ROWS_AT_CREATION);
}

static kvf_status pack_all(creation *c)
{
    const int64_t units = c->desc->L + c->model->lm.n;

    if (c->model->store.late) return kvf__creation_pack_first(c);
    for (int64_t unit = 0; unit < units; unit++) {
        KVF_TRY(kvf__ctx_check_stop(c->ctx));
        KVF_TRY(kvf__creation_pack_unit(c, unit));
        if (c->options.packed && (unit < c->desc->L || unit == units - 1))
            c->options.packed(c->options.user);
    }
    return KVF_OK;
}

static kvf_status build(creation *c)
{
    kvf__model *model = c->model;

    KVF_TRY(kvf__mm_create(c->ctx, &model->mm));
    model->kernels = kvf__kernels_get();
    /* AMX is slow at other counts; elsewhere padding costs more than new shapes */
    model->row_step = strcmp(kvf__cpu_level(), "amx") ? 32 : 64;
    KVF_TRY(put_embedding(c));
    KVF_TRY(kvf__carve_block(c->ctx, lay_memory, c, &model->memory));
    if (c->desc->position.kind == KVF__POS_RELATIVE)
        KVF_TRY(kvf__relative_create(c->ctx, c->desc, c->slots, &model->relative));
    if (c->desc->position.kind == KVF__POS_BIAS)
        KVF_TRY(kvf__relative_bias_create(c->ctx, c->desc, c->slots, &model->relative));
    KVF_TRY(kvf__creation_prepare(c));
    KVF_TRY(pack_all(c));
    model->packed_bytes = c->packer.packed_bytes;
    return KVF_OK;
}

static void creation_free(creation *c)
{
    if (!c) return;
    kvf__packer_done(&c->packer);
    kvf__free(c->gamma);
    kvf__free(c->beta);
    kvf__free(c);
}

/* Frees workspace that is not needed again: packing needs it if packed weights change, the rest if
 * norms do. */
static void creation_rest(creation *c)
{
    if (c->options.train.what == KVF__TRAIN_EVERYTHING || c->model->store.late) return;
    kvf__packer_done(&c->packer);
    if (c->options.train.what != KVF__TRAIN_NOTHING) return;
    c->model->train.again = NULL;
    creation_free(c);
}

static kvf_status make_adapters(creation *c)
{
    const kvf__adapter_shape *shape = &c->options.train.adapters;
    kvf__model *model = c->model;

    if (!shape->size) return KVF_OK;
    KVF_TRY(kvf__adapters_create(c->ctx, shape, c->desc->L, c->desc->C, model->backward,
                                 &model->train.adapters));
    for (size_t i = 0; i < kvf__adapters_count(model->train.adapters); i++) {
        const kvf__param param = kvf__adapters_param(model->train.adapters, i);
        KVF_TRY(kvf__params_add(c->ctx, &model->train.params, &param));
    }
    return KVF_OK;
}

static kvf_status make_trained(creation *c, const kvf__slots *slots)
{
    const kvf__train *train = &c->options.train;

    c->slots = slots;
    if (c->desc->encoder && (train->what != KVF__TRAIN_NOTHING || train->unfolded))
        return kvf__fail(
            c->ctx, KVF_EUNSUPPORTED,
            "%s is an encoder-decoder, whose weights cannot be trained: train a prefix",
            c->desc->arch_name);
    c->model->unfolded = train->unfolded || train->what != KVF__TRAIN_NOTHING;
    if (train->what == KVF__TRAIN_NOTHING) return KVF_OK;
    if (c->desc->by_layer.shape)
        return kvf__fail(c->ctx, KVF_EUNSUPPORTED,
                         "%s: weights and adapters of a base whose layers differ cannot be "
                         "trained: train a prefix",
                         c->desc->arch_name);
    if (train->what == KVF__TRAIN_EVERYTHING && c->desc->position.kind == KVF__POS_RELATIVE)
        return kvf__fail(
            c->ctx, KVF_EUNSUPPORTED,
            "method full: %s has attention by relative positions, whose weights cannot be trained",
            c->desc->arch_name);
    KVF_TRY(kvf__masters_create(c->ctx, c->desc, slots, train, c->model->backward,
                                &c->model->train.masters));
    c->slots = kvf__masters_slots(c->model->train.masters);
    c->model->train.weights = train->what == KVF__TRAIN_EVERYTHING;
    if (train->what == KVF__TRAIN_ADAPTERS) KVF_TRY(make_adapters(c));
    return kvf__params_append(c->ctx, &c->model->train.params,
                              kvf__masters_params(c->model->train.masters));
}

/* Makes separate slots for matrices that are packed on demand. */
static kvf_status make_stored(creation *c)
{
    if (c->model->int8 && (c->options.keep != KVF__KEEP_PACKED || c->model->train.weights))
        return kvf__fail(c->ctx, KVF_EUSAGE,
                         "eight-bit products need frozen weights that are kept packed");
    if (c->options.keep == KVF__KEEP_PACKED) return KVF_OK;
    if (c->model->train.weights)
        return kvf__fail(c->ctx, KVF_EUSAGE, "trained weights must be kept packed");
    KVF_TRY(kvf__stored_create(c->ctx, c->desc, c->slots, &c->options, &c->model->store.from));
    c->slots = &c->model->store.from->slots;
    c->model->store.late = true;
    return KVF_OK;
}

kvf_status kvf__model_create(kvf_ctx *ctx, kvf__desc *desc, const kvf__slots *slots,
                             const kvf__model_options *options, kvf__model **out)
{
    kvf__model *model = NULL;
    creation *c = NULL;

    KVF_TRY(kvf__alloc(ctx, sizeof *model, &model));
    model->desc = *desc; /* borrowed until success */
    model->act = options->act;
    model->int8 = options->int8;
    model->embed.read = options->read;
    model->embed.user = options->user;
    model->backward = options->backward;
    kvf_status st = kvf__alloc(ctx, sizeof *c, &c);
    if (st) goto out;
    *c = (creation){.ctx = ctx, .model = model, .desc = &model->desc, .options = *options};
    model->train.again = c;
    st = make_trained(c, slots);
    if (!st) st = make_stored(c);
    if (!st) st = build(c);
    if (st) goto out;

    creation_rest(c);
    /* A file may hold a head contrary to its config; see bind.c. */
    model->desc.tied = model->lm.file.view.data == model->embed.tokens.view.data;
    *desc = (kvf__desc){0};
    *out = model;
    model = NULL;
out:
    if (model) {
        model->desc.position.inv_freq = model->desc.position.divisors =
            model->desc.position.local_inv_freq = NULL; /* still owned by the caller */
        model->desc.by_layer = (kvf__by_layer){0};
    }
    kvf__model_free(model);
    return st;
}

static kvf_status pack_transposed(creation *c)
{
    KVF_TRY(kvf__creation_prepare(c));
    c->packer.forward = false;
    c->packer.packed_bytes = c->model->packed_bytes;
    KVF_TRY(pack_all(c));
    c->model->packed_bytes = c->packer.packed_bytes;
    return KVF_OK;
}

kvf_status kvf__model_add_backward(kvf_ctx *ctx, kvf__model *model, const kvf__slots *slots,
                                   const kvf__model_options *options)
{
    creation *c = model->train.again; /* kept if weights are packed on demand */
    kvf_status st;

    if (model->backward) return KVF_OK;
    assert(!c || model->store.late);
    model->backward = true;
    if (c) {
        c->ctx = ctx;
        st = kvf__creation_pack_first(c);
    } else {
        st = kvf__alloc(ctx, sizeof *c, &c);
        if (!st) {
            *c = (creation){.ctx = ctx, .model = model, .desc = &model->desc, .slots = slots};
            c->options = *options;
            st = pack_transposed(c);
            creation_free(c);
        }
    }
    model->backward = !st;
    return st;
}

kvf_status kvf__model_refresh(kvf_ctx *ctx, kvf__model *model)
{
    creation *c = model->train.again;

    if (!c || c->options.train.what == KVF__TRAIN_NOTHING) return KVF_OK;
    c->ctx = c->packer.ctx = ctx;
    c->options.packed = NULL;
    read_plain_weights(&(reading){.c = c});
    return c->options.train.what == KVF__TRAIN_EVERYTHING ? pack_all(c) : KVF_OK;
}

static void free_unit(const kvf__model *model, int64_t unit)
{
    kvf__product p;

    for (size_t i = 0; kvf__product_at(&model->desc, unit, i, &p); i++) {
        kvf__packed_pair *pair = kvf__product_packed(model, &p);
        kvf__packed_free(pair->fwd);
        kvf__packed_free(pair->bwd);
        *pair = (kvf__packed_pair){0}; /* shared with other layers */
    }
}

static void free_weights(kvf__model *model)
{
    const int64_t L = model->desc.L;
    const bool late = model->store.late;

    for (int64_t l = 0; model->weights && l < L; l++)
        free_unit(model, l);
    for (int64_t p = 0; model->lm.planes && p < (late ? 1 : model->lm.n); p++)
        free_unit(model, L + p);
}

void kvf__model_free(kvf__model *model)
{
    if (!model) return;
    free_weights(model);
    kvf__free(model->memory);
    kvf__free(model->relative.memory);
    kvf__free(model->rope.cos);
    kvf__free(model->rope.sin);
    kvf__free(model->local_rope.cos);
    kvf__free(model->local_rope.sin);
    kvf__adapters_free(model->train.adapters);
    creation_free(model->train.again);
    kvf__stored_free(model->store.from);
    kvf__masters_free(model->train.masters);
    kvf__params_done(&model->train.params);
    kvf__mm_free(model->mm);
    kvf__desc_done(&model->desc);
    kvf__free(model);
}

kvf__params *kvf__model_params(kvf__model *model)
{
    return &model->train.params;
}

const kvf__desc *kvf__model_desc(const kvf__model *model)
{
    return &model->desc;
}

const float *kvf__model_pooler(const kvf__model *model, const float **bias)
{
    *bias = model->pooler_bias;
    return model->pooler;
}

const kvf__masked_lm *kvf__model_masked_lm(const kvf__model *model)
{
    return model->masked_lm.bias ? &model->masked_lm : NULL;
}

kvf__adapters *kvf__model_adapters(kvf__model *model)
{
    return model->train.adapters;
}

void kvf__model_embedding(const kvf__model *model, const int32_t *ids, int64_t n, float *out)
{
    int64_t E = model->desc.E;

#pragma omp parallel for schedule(static) if (n * E > 1 << 16)
    for (int64_t i = 0; i < n; i++)
        kvf__embed_row(model, ids[i], out + i * E);
}

void kvf__embed_row(const kvf__model *model, int64_t id, float *out)
{
    const float factor = model->desc.factors.embed;

    kvf__table_row(model, &model->embed.tokens, id, out);
    for (int64_t c = 0; factor != 1 && c < model->desc.E; c++)
        out[c] *= factor;
}
