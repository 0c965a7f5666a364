/* Per-layer overrides of a config.json: Gemma 4 has different heads in local and other layers, and
 * last layers that read the keys and values of earlier ones. Both forms are read: the list by layer
 * of transformers 5.23 (configuration_gemma4.py), and the keys of the published files. */
#include "config_keys.h"

#include <string.h>

static bool is_there(const kvf_json *value)
{
    return value && kvf_json_typeof(value) != KVF_JSON_NULL;
}

/* Reads a count of the root; `otherwise` if absent or null. */
static kvf_status read_count(const kvf__config *c, const char *key, int64_t otherwise, int64_t *out)
{
    const kvf_json *value = kvf_json_get(c->root, key);

    *out = otherwise;
    return is_there(value) ? kvf__config_count(c, key, value, out) : KVF_OK;
}

/* ---- heads ----------------------------------------------------------------------------------- */

/* Reads the heads of all layers that are not local. */
static kvf_status read_global_heads(const kvf__config *c, kvf__desc *desc)
{
    const kvf__layer_keys *keys = desc->arch->keys->by_layer;
    const int64_t head_dim = (int64_t)keys->global_head_dim.otherwise;
    int64_t D, G;
    bool k_is_v;

    KVF_TRY(kvf__config_switch(c, keys->k_is_v, false, &k_is_v));
    KVF_TRY(read_count(c, keys->global_head_dim.name, head_dim, &D));
    KVF_TRY(read_count(c, keys->global_kv_heads, desc->G, &G));
    for (int64_t l = 0; l < desc->L; l++) {
        kvf__layer_shape *s = &desc->by_layer.shape[l];
        if (kvf__positions_window(&desc->position, l)) continue;
        s->D = D;
        if (k_is_v) s->G = G;
    }
    return KVF_OK;
}

/* Reads the list's entry for layer l, such as "3": {"head_dim": 512, "num_key_value_heads": 4}. */
static kvf_status read_layer_heads(const kvf__config *c, const kvf_json *list, int64_t l,
                                   kvf__desc *desc)
{
    const kvf__config_keys *keys = desc->arch->keys;
    const char *const names[] = {keys->kv_heads.names[0], keys->head_dim.names[0]};
    kvf__layer_shape *s = &desc->by_layer.shape[l];
    int64_t *const to[] = {&s->G, &s->D};
    char number[24], name[KVF__NAME_BYTES];
    size_t read = 0;

    snprintf(number, sizeof number, "%lld", (long long)l);
    const kvf_json *layer = kvf_json_get(list, number);
    for (int i = 0; i < 2; i++) {
        const kvf_json *value = kvf_json_get(layer, names[i]);
        snprintf(name, sizeof name, "%s.%s.%s", keys->by_layer->list, number, names[i]);
        if (!value) continue;
        KVF_TRY(kvf__config_count(c, name, value, to[i]));
        read++;
    }
    if (kvf_json_size(layer) <= read) return KVF_OK;
    snprintf(name, sizeof name, "%s.%s", keys->by_layer->list, number);
    return kvf__config_bad(c, KVF_EUNSUPPORTED, name, layer,
                           "only numbers of key/value heads and their size");
}

static kvf_status read_heads(const kvf__config *c, kvf__desc *desc)
{
    const kvf_json *list = kvf_json_get(c->root, desc->arch->keys->by_layer->list);

    if (!is_there(list)) return read_global_heads(c, desc);
    for (int64_t l = 0; l < desc->L; l++)
        KVF_TRY(read_layer_heads(c, list, l, desc));
    return KVF_OK;
}

/* ---- what they share ------------------------------------------------------------------------- */

/* Returns the last layer before `end` of the same kind as l (local or not); -1: none. */
static int64_t last_alike(const kvf__desc *desc, int64_t end, int64_t l)
{
    const bool local = kvf__positions_window(&desc->position, l) > 0;
    int64_t at = end - 1;

    while (at >= 0 && (kvf__positions_window(&desc->position, at) > 0) != local)
        at--;
    return at;
}

static kvf_status read_sharing(const kvf__config *c, kvf__desc *desc)
{
    const kvf__layer_keys *keys = desc->arch->keys->by_layer;
    double shared;
    bool wide;

    KVF_TRY(kvf__config_real(c, c->root, keys->shared, 0, &shared));
    KVF_TRY(kvf__config_switch(c, keys->wide, false, &wide));
    if (shared < 0 || shared >= (double)desc->L)
        return kvf__config_bad(c, KVF_EFORMAT, keys->shared, kvf_json_get(c->root, keys->shared),
                               "0 to the number of layers - 1");
    const int64_t first = desc->L - (int64_t)shared;
    for (int64_t l = first; l < desc->L; l++) {
        kvf__layer_shape *s = &desc->by_layer.shape[l];
        s->from = last_alike(desc, first, l);
        s->k_is_v = false;
        if (wide) s->F *= 2;
        if (s->from < 0)
            return kvf__fail(c->ctx, KVF_EFORMAT,
                             "%s: %s is %g, but layer %lld has no earlier layer of its kind to "
                             "share keys and values with",
                             c->where, keys->shared, shared, (long long)l);
    }
    return KVF_OK;
}

/* ---- inputs ---------------------------------------------------------------------------------- */

static kvf_status read_inputs(const kvf__config *c, kvf__desc *desc)
{
    const kvf__layer_keys *keys = desc->arch->keys->by_layer;
    double width;
    int64_t vocab;

    KVF_TRY(kvf__config_real(c, c->root, keys->inputs.name, keys->inputs.otherwise, &width));
    if (width < 0 || width > 1 << 16 || width != (double)(int64_t)width)
        return kvf__config_bad(c, KVF_EFORMAT, keys->inputs.name,
                               kvf_json_get(c->root, keys->inputs.name), "0 or a width");
    desc->by_layer.inputs = (int64_t)width;
    KVF_TRY(read_count(c, keys->inputs_vocab, desc->V, &vocab));
    if (!desc->by_layer.inputs || vocab == desc->V) return KVF_OK;
    return kvf__fail(c->ctx, KVF_EUNSUPPORTED, "%s: %s is %lld, expected the vocabulary's %lld",
                     c->where, keys->inputs_vocab, (long long)vocab, (long long)desc->V);
}

kvf_status kvf__config_layers(const kvf__config *c, kvf__desc *desc)
{
    const kvf__layer_keys *keys = desc->arch->keys->by_layer;
    bool k_is_v;

    if (!keys || desc->L > KVF__MOST_LAYERS) return KVF_OK; /* more layers are refused later */
    KVF_TRY(kvf__alloc_array(c->ctx, (size_t)desc->L, sizeof *desc->by_layer.shape,
                             &desc->by_layer.shape));
    KVF_TRY(kvf__config_switch(c, keys->k_is_v, false, &k_is_v));
    for (int64_t l = 0; l < desc->L; l++)
        desc->by_layer.shape[l] = (kvf__layer_shape){
            .G = desc->G,
            .D = desc->D,
            .F = desc->F,
            .from = l,
            .k_is_v = k_is_v && !kvf__positions_window(&desc->position, l)};
    KVF_TRY(read_heads(c, desc));
    for (int64_t l = 0; l < desc->L; l++) { /* rope rotates whole heads */
        kvf__layer_shape *s = &desc->by_layer.shape[l];
        const bool local = kvf__positions_window(&desc->position, l) > 0;
        s->R = s->D;
        *(local ? &desc->position.local_rotated : &desc->position.rotated) = s->D;
    }
    KVF_TRY(read_sharing(c, desc));
    return read_inputs(c, desc);
}
