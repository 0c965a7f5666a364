/* Bound weights -> the packed model that a pass runs.
 *
 * Every dense layer is packed piece by piece (pack.c), in pre-norm blocks with the norm in front
 * folded in; other norms are copied as they are;
 * feed-forward and vocabulary are cut into planes of at most 1536 columns, where oneDNN is fastest
 * (docs/architecture.md, Computing). Only the embedding (and learned positions) stay in the file,
 * read row by row. */
#include "creation.h"

#include <string.h>

#define ROPE_ROWS_AT_CREATION 8192

typedef kvf__creation creation;

static const kvf__slot *slot_of(const creation *c, kvf__role role, int64_t layer)
{
    return kvf__creation_slot(c, role, layer);
}

/* A weight that is not packed, as f32; NULL if the file has none of this role. */
static kvf_status read_plain(creation *c, kvf__role role, int64_t layer, float **out)
{
    const kvf__slot *slot = slot_of(c, role, layer);
    if (!slot) return KVF_OK;
    if (!*out) return kvf__slot_f32(c->ctx, slot, out);
    kvf__slot_read(slot, *out);
    return KVF_OK;
}

/* One row per head: H times that of queries, G times that of keys. */
static kvf_status read_head_norms(creation *c, int64_t layer, float **out)
{
    const kvf__desc *d = c->desc;
    const kvf__slot *q = slot_of(c, KVF__W_Q_NORM, layer), *k = slot_of(c, KVF__W_K_NORM, layer);

    if (!*out)
        KVF_TRY(kvf__alloc_array(c->ctx, (size_t)((d->H + d->G) * d->D), sizeof(float), out));
    for (int64_t h = 0; h < d->H + d->G; h++)
        kvf__slot_row(h < d->H ? q : k, 0, *out + h * d->D);
    return KVF_OK;
}

/* The norms of a layer that are not folded. */
static kvf_status read_norms(creation *c, int64_t layer)
{
    kvf__layer *to = &c->model->layers[layer];

    if (c->desc->qk_norm) KVF_TRY(read_head_norms(c, layer, &to->head_gamma));
    if (!c->desc->post_norm && !c->model->unfolded) return KVF_OK;
    KVF_TRY(read_plain(c, KVF__W_NORM1, layer, &to->gamma1));
    KVF_TRY(read_plain(c, KVF__W_NORM1_BETA, layer, &to->beta1));
    KVF_TRY(read_plain(c, KVF__W_NORM2, layer, &to->gamma2));
    return read_plain(c, KVF__W_NORM2_BETA, layer, &to->beta2);
}

/* The vectors outside the layers. */
static kvf_status read_outer(creation *c)
{
    kvf__model *model = c->model;

    KVF_TRY(read_plain(c, KVF__W_EMBED_NORM, 0, &model->embed.gamma));
    KVF_TRY(read_plain(c, KVF__W_EMBED_NORM_BETA, 0, &model->embed.beta));
    KVF_TRY(read_plain(c, KVF__W_FINAL, 0, &model->lm.gamma));
    return read_plain(c, KVF__W_FINAL_BETA, 0, &model->lm.beta);
}

/* Whole or not at all; a decoder of its own is not read. */
static kvf_status read_masked_lm(creation *c)
{
    kvf__masked_lm *to = &c->model->masked_lm;
    const struct {
        kvf__role role;
        float **to;
    } parts[] = {{KVF__W_MLM_DENSE, &to->dense},
                 {KVF__W_MLM_DENSE_BIAS, &to->dense_bias},
                 {KVF__W_MLM_NORM, &to->gamma},
                 {KVF__W_MLM_NORM_BETA, &to->beta},
                 {KVF__W_MLM_BIAS, &to->bias}};
    enum { PARTS = sizeof parts / sizeof parts[0] };

    to->act = c->desc->arch->mlm_gelu ? KVF__GELU_ERF : c->desc->act;
    for (int i = 0; i < PARTS; i++)
        if (!c->desc->tied || !slot_of(c, parts[i].role, 0)) return KVF_OK;
    for (int i = 0; i < PARTS; i++)
        KVF_TRY(read_plain(c, parts[i].role, 0, parts[i].to));
    return KVF_OK;
}

/* What stays in the file, what heads read, and the tables. */
static kvf_status put_embedding(creation *c)
{
    kvf__model *model = c->model;
    const kvf__slot *head = slot_of(c, KVF__W_HEAD, 0);
    const kvf__slot *positions = slot_of(c, KVF__W_POSITIONS, 0);
    const kvf__slot *types = slot_of(c, KVF__W_TYPES, 0);

    model->embed.tokens = *slot_of(c, KVF__W_TOKENS, 0);
    model->lm.file = head ? *head : model->embed.tokens;
    model->lm.slot = model->store.from && model->store.from->head.view.data
                         ? model->store.from->head
                         : model->lm.file;
    if (positions) model->embed.positions = *positions;
    if (types) model->embed.types = *types;
    KVF_TRY(read_plain(c, KVF__W_POOLER, 0, &model->pooler));
    KVF_TRY(read_plain(c, KVF__W_POOLER_BIAS, 0, &model->pooler_bias));
    KVF_TRY(read_masked_lm(c));
    int64_t rows = model->desc.max_positions;
    return kvf__rope_tables(c->ctx, model,
                            rows < ROPE_ROWS_AT_CREATION ? rows : ROPE_ROWS_AT_CREATION);
}

static kvf_status read_all_norms(creation *c)
{
    for (int64_t layer = 0; layer < c->desc->L; layer++)
        KVF_TRY(read_norms(c, layer));
    return read_outer(c);
}

static kvf_status pack_all(creation *c)
{
    const int64_t units = c->desc->L + c->model->lm.n;

    if (c->model->store.late) return kvf__creation_pack_first(c);
    for (int64_t unit = 0; unit < units; unit++) {
        KVF_TRY(kvf__creation_pack_unit(c, unit));
        if (c->options.packed && (unit < c->desc->L || unit == units - 1))
            c->options.packed(c->options.user);
    }
    return KVF_OK;
}

/* Where packed weights go: to memory of their own, or (late) of one layer and one plane. */
static kvf_status alloc_weights(creation *c)
{
    kvf__model *model = c->model;
    const int64_t L = c->desc->L, V = c->desc->V;
    const bool late = model->store.late;

    KVF_TRY(kvf__alloc_array(c->ctx, (size_t)L, sizeof *model->layers, &model->layers));
    KVF_TRY(
        kvf__alloc_array(c->ctx, late ? 1 : (size_t)L, sizeof *model->weights, &model->weights));
    for (int64_t l = 0; l < L; l++)
        model->layers[l].w = &model->weights[late ? 0 : l];
    if (!kvf__weight_by_role(c->desc, KVF__W_HEAD)) return KVF_OK;
    model->lm.n = (V + KVF__VOCAB_PLANE - 1) / KVF__VOCAB_PLANE;
    return kvf__alloc_array(c->ctx, late ? 1 : (size_t)model->lm.n, sizeof *model->lm.planes,
                            &model->lm.planes);
}

static kvf_status build(creation *c)
{
    kvf__model *model = c->model;

    KVF_TRY(kvf__mm_create(c->ctx, &model->mm));
    model->kernels = kvf__kernels_get();
    /* AMX has cliffs at other counts; elsewhere padding costs more than new shapes do */
    model->row_step = strcmp(kvf__cpu_level(), "amx") ? 32 : 64;
    KVF_TRY(alloc_weights(c));
    KVF_TRY(put_embedding(c));
    KVF_TRY(kvf__creation_prepare(c));
    KVF_TRY(read_all_norms(c));
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

/* Packing needs its workspace again only where packed weights change, the rest of it wherever norms
 * do. */
static void creation_rest(creation *c)
{
    if (c->options.train.what == KVF__TRAIN_EVERYTHING || c->model->store.late) return;
    kvf__packer_done(&c->packer);
    if (c->options.train.what != KVF__TRAIN_NOTHING) return;
    c->model->train.again = NULL;
    creation_free(c);
}

static kvf_status take_adapters(creation *c)
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

static kvf_status take_trained(creation *c, const kvf__slots *slots)
{
    const kvf__train *train = &c->options.train;

    c->slots = slots;
    c->model->unfolded = train->unfolded || train->what != KVF__TRAIN_NOTHING;
    if (train->what == KVF__TRAIN_NOTHING) return KVF_OK;
    KVF_TRY(kvf__masters_create(c->ctx, c->desc, slots, train, c->model->backward,
                                &c->model->train.masters));
    c->slots = kvf__masters_slots(c->model->train.masters);
    c->model->train.weights = train->what == KVF__TRAIN_EVERYTHING;
    if (train->what == KVF__TRAIN_ADAPTERS) KVF_TRY(take_adapters(c));
    return kvf__params_append(c->ctx, &c->model->train.params,
                              kvf__masters_params(c->model->train.masters));
}

/* Matrices that are packed just before use come from slots of their own. */
static kvf_status take_stored(creation *c)
{
    if (c->options.keep == KVF__KEEP_PACKED) return KVF_OK;
    if (c->model->train.weights)
        return kvf__fail(c->ctx, KVF_EUSAGE, "weights that are trained must be kept packed");
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
    kvf_status st;

    st = kvf__alloc(ctx, sizeof *model, &model);
    if (st) goto out;
    model->desc = *desc; /* borrowed until success */
    model->act = options->act;
    model->embed.read = options->read;
    model->embed.user = options->user;
    model->backward = options->backward;
    st = kvf__alloc(ctx, sizeof *c, &c);
    if (st) goto out;
    *c = (creation){.ctx = ctx, .model = model, .desc = &model->desc, .options = *options};
    model->train.again = c;
    st = take_trained(c, slots);
    if (st) goto out;
    st = take_stored(c);
    if (st) goto out;
    st = build(c);
    if (st) goto out;

    creation_rest(c);
    /* A file may hold a head that the config denies; see bind.c. */
    model->desc.tied = model->lm.file.view.data == model->embed.tokens.view.data;
    *desc = (kvf__desc){0};
    *out = model;
    model = NULL;
out:
    if (model) model->desc.inv_freq = model->desc.rope_divisors = NULL; /* still the caller's */
    kvf__model_free(model);
    return st;
}

kvf_status kvf__model_refresh(kvf_ctx *ctx, kvf__model *model)
{
    creation *c = model->train.again;

    if (!c || c->options.train.what == KVF__TRAIN_NOTHING) return KVF_OK;
    c->ctx = c->packer.ctx = ctx;
    c->options.packed = NULL;
    KVF_TRY(read_all_norms(c));
    return c->options.train.what == KVF__TRAIN_EVERYTHING ? pack_all(c) : KVF_OK;
}

static void free_unit(const kvf__model *model, int64_t unit)
{
    kvf__product p;

    for (size_t i = 0; kvf__product_at(&model->desc, unit, i, &p); i++) {
        kvf__packed_pair *pair = kvf__product_packed(model, &p);
        kvf__packed_free(pair->fwd);
        kvf__packed_free(pair->bwd);
    }
}

/* Layers and planes that share packed memory have it once. */
static void free_weights(kvf__model *model)
{
    const int64_t L = model->desc.L;
    const bool late = model->store.late;

    for (int64_t l = 0; model->weights && l < (late ? 1 : L); l++)
        free_unit(model, l);
    for (int64_t p = 0; model->lm.planes && p < (late ? 1 : model->lm.n); p++)
        free_unit(model, L + p);
    kvf__free(model->weights);
    kvf__free(model->lm.planes);
}

static void free_norms(kvf__layer *layer)
{
    float *const vectors[] = {layer->gamma1, layer->beta1, layer->gamma2, layer->beta2,
                              layer->head_gamma};
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
        kvf__free(vectors[i]);
}

void kvf__model_free(kvf__model *model)
{
    if (!model) return;
    free_weights(model);
    for (int64_t l = 0; model->layers && l < model->desc.L; l++)
        free_norms(&model->layers[l]);
    kvf__free(model->layers);
    kvf__free(model->lm.gamma);
    kvf__free(model->lm.beta);
    kvf__free(model->embed.gamma);
    kvf__free(model->embed.beta);
    kvf__free(model->pooler);
    kvf__free(model->pooler_bias);
    kvf__free(model->masked_lm.dense);
    kvf__free(model->masked_lm.dense_bias);
    kvf__free(model->masked_lm.gamma);
    kvf__free(model->masked_lm.beta);
    kvf__free(model->masked_lm.bias);
    kvf__free(model->rope.cos);
    kvf__free(model->rope.sin);
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

kvf__dtype kvf__model_act(const kvf__model *model)
{
    return model->act;
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

bool kvf__model_has_head(const kvf__model *model)
{
    return model->lm.n > 0;
}

size_t kvf__model_packed_bytes(const kvf__model *model)
{
    return model->packed_bytes;
}

void kvf__model_embedding(const kvf__model *model, const int32_t *ids, int64_t n, float *out)
{
    int64_t C = model->desc.C;

#pragma omp parallel for schedule(static) if (n * C > 1 << 16)
    for (int64_t i = 0; i < n; i++)
        kvf__table_row(model, &model->embed.tokens, ids[i], out + i * C);
}
