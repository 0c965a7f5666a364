/* Differences between layers: place in the stacks, window, heads of keys and values, feed-forward
 * width, and sharing of keys and values. All code calls kvf__desc_layer, so equal layers are no
 * special case. */
#include "arch.h"

#include <string.h>

kvf__place kvf__layer_place(const kvf__desc *desc, int64_t layer)
{
    if (!desc->encoder) return KVF__PLACE_ONLY;
    if (layer < desc->encoder) return KVF__PLACE_ENCODER;
    return (layer - desc->encoder) % 2 ? KVF__PLACE_CROSS : KVF__PLACE_DECODER;
}

bool kvf__layer_is_first(const kvf__desc *desc, int64_t layer)
{
    return layer == 0 || (desc->encoder && (layer == desc->encoder || layer == desc->encoder + 1));
}

bool kvf__layer_feeds(const kvf__desc *desc, int64_t layer)
{
    return kvf__layer_place(desc, layer) != KVF__PLACE_DECODER;
}

int64_t kvf__layer_number(const kvf__desc *desc, int64_t layer)
{
    if (!desc->encoder || layer < desc->encoder) return layer;
    return (layer - desc->encoder) / 2;
}

int64_t kvf__stacks(const kvf__desc *desc)
{
    return desc->encoder ? 2 : 1;
}

void kvf__layers_mark(uint64_t bits[KVF__MOST_LAYERS / 64], int64_t layer)
{
    bits[layer / 64] |= UINT64_C(1) << layer % 64;
}

bool kvf__layers_has(const uint64_t bits[KVF__MOST_LAYERS / 64], int64_t layer)
{
    return bits[layer / 64] >> layer % 64 & 1;
}

int64_t kvf__positions_window(const kvf__positions *positions, int64_t layer)
{
    return kvf__layers_has(positions->global, layer) ? 0 : positions->window;
}

kvf__layer_shape kvf__desc_layer(const kvf__desc *desc, int64_t l)
{
    if (desc->by_layer.shape && l < desc->L) return desc->by_layer.shape[l];
    const bool bare = l < KVF__MOST_LAYERS && kvf__layers_has(desc->position.no_rope, l);
    return (kvf__layer_shape){.G = desc->G,
                              .D = desc->D,
                              .F = desc->F,
                              .R = bare ? 0 : desc->position.rotated,
                              .from = l};
}

bool kvf__layer_mixes(const kvf__desc *desc, int64_t l)
{
    return desc->mixer.kind && l < desc->L && !desc->by_layer.shape[l].G;
}

int64_t kvf__mixer_channels(const kvf__desc *desc)
{
    const kvf__mixer *m = &desc->mixer;

    if (m->kind != KVF__MIXER_DELTA) return desc->C;
    return 2 * m->key_heads * m->key_dim + m->value_heads * m->value_dim;
}

int64_t kvf__mixer_state(const kvf__desc *desc)
{
    const kvf__mixer *m = &desc->mixer;
    return (m->kernel - 1) * kvf__mixer_channels(desc) + m->value_heads * m->key_dim * m->value_dim;
}

int64_t kvf__mixer_state_at(const kvf__desc *desc, int64_t l)
{
    int64_t n = 0;

    for (int64_t before = 0; desc->mixer.kind && before < l; before++)
        n += kvf__layer_mixes(desc, before) ? kvf__mixer_state(desc) : 0;
    return n;
}

kvf__kv_shape kvf__desc_kv(const kvf__desc *desc)
{
    kvf__kv_shape shape = {.L = desc->L, .G = desc->G, .D = desc->D};

    if (desc->by_layer.shape) shape.L = desc->by_layer.with_kv;
    shape.heads = desc->by_layer.heads;
    if (shape.heads) shape.G = shape.D = KVF__BY_LAYER;
    return shape;
}

/* ---- making ---------------------------------------------------------------------------------- */

static kvf_status check_layer(kvf_ctx *ctx, const char *where, const kvf__desc *desc, int64_t l)
{
    const kvf__layer_shape *s = &desc->by_layer.shape[l];
    const bool own = s->from == l, local = kvf__positions_window(&desc->position, l) > 0;

    if (kvf__layer_mixes(desc, l)) return KVF_OK;
    if (s->D > 1024 || s->G > 4096 || desc->H % s->G)
        return kvf__fail(ctx, KVF_EFORMAT,
                         "%s: layer %lld has %lld key/value heads of size %lld for %lld attention "
                         "heads",
                         where, (long long)l, (long long)s->G, (long long)s->D, (long long)desc->H);
    if (s->R != (local && desc->position.local_theta > 0 ? desc->position.local_rotated
                                                         : desc->position.rotated))
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: layer %lld has another head size than the layers of its kind", where,
                         (long long)l);
    if (s->R < 2 || s->R > s->D || s->R % 2)
        return kvf__fail(ctx, KVF_EFORMAT,
                         "%s: rope rotates %lld elements of a head of layer %lld, expected an even "
                         "number of 2 to %lld",
                         where, (long long)s->R, (long long)l, (long long)s->D);
    if (own && l > 0 && s[-1].from != l - 1)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: layer %lld has keys and values of its own, but layer %lld before it "
                         "has none: only the last layers may share",
                         where, (long long)l, (long long)l - 1);
    const kvf__layer_shape *from = &desc->by_layer.shape[s->from];
    const bool from_local = kvf__positions_window(&desc->position, s->from) > 0;
    if (from->G != s->G || from->D != s->D || local != from_local)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: layer %lld shares keys and values with layer %lld, which has other "
                         "heads or another window",
                         where, (long long)l, (long long)s->from);
    return KVF_OK;
}

static bool heads_differ(const kvf__by_layer *by)
{
    for (int64_t l = 1; l < by->with_kv; l++)
        if (by->shape[l].G != by->shape[0].G || by->shape[l].D != by->shape[0].D) return true;
    return false;
}

kvf_status kvf__desc_finish_layers(kvf_ctx *ctx, const char *where, kvf__desc *desc)
{
    kvf__by_layer *by = &desc->by_layer;

    if (!by->shape) return KVF_OK;
    by->with_kv = 0;
    for (int64_t l = 0; l < desc->L; l++) {
        if (desc->mixer.kind) by->shape[l].R = by->shape[l].G ? desc->position.rotated : 0;
        KVF_TRY(check_layer(ctx, where, desc, l));
        by->with_kv += by->shape[l].from == l;
    }
    if (!desc->mixer.kind) desc->G = by->shape[0].G;
    if (!desc->mixer.kind) desc->D = by->shape[0].D;
    if (!heads_differ(by)) return KVF_OK;
    KVF_TRY(kvf__alloc_array(ctx, (size_t)by->with_kv + 1, sizeof *by->heads, &by->heads));
    for (int64_t l = 0; l < by->with_kv; l++) {
        const int64_t G = by->shape[l].G, D = by->shape[l].D;
        kvf__kv_heads *at = &by->heads[l];
        at->G = G;
        at->D = D;
        at[1] = (kvf__kv_heads){.heads = at->heads + G, .width = at->width + G * D};
    }
    return KVF_OK;
}

kvf_status kvf__by_layer_copy(kvf_ctx *ctx, const kvf__desc *from, kvf__by_layer *out)
{
    const kvf__kv_shape kv = kvf__desc_kv(from);

    *out = from->by_layer;
    out->shape = NULL;
    out->heads = NULL;
    if (!from->by_layer.shape) return KVF_OK;
    KVF_TRY(kvf__alloc_array(ctx, (size_t)from->L, sizeof *out->shape, &out->shape));
    memcpy(out->shape, from->by_layer.shape, (size_t)from->L * sizeof *out->shape);
    return kvf__kv_copy_heads(ctx, &kv, &out->heads);
}

void kvf__by_layer_done(kvf__by_layer *by)
{
    kvf__free(by->shape);
    kvf__free(by->heads);
    *by = (kvf__by_layer){0};
}
