/* Layers without attention (desc.h) in a config.json or a GGUF: which they are, and their sizes. A
 * GGUF of LFM2 lists the key/value heads of each layer, 0 for such a layer. */
#include "config_keys.h"

#include <math.h>
#include <string.h>

/* LFM2's feed-forward width is two thirds of the config's, times a factor, rounded up to a
 * multiple. */
static kvf_status adjust_ffn(const kvf__config *c, kvf__desc *desc)
{
    const char *const *keys = desc->arch->keys->mixer->ffn;
    const kvf_json *factor = keys[1] ? kvf_json_get(c->root, keys[1]) : NULL;
    double by, multiple;
    bool on;

    if (!keys[0] || c->gguf) return KVF_OK;
    KVF_TRY(kvf__config_switch(c, keys[0], true, &on));
    KVF_TRY(kvf__config_real(c, c->root, keys[1], 1, &by));
    KVF_TRY(kvf__config_real(c, c->root, keys[2], 256, &multiple));
    if (!(by > 0) || by > 1e3 || !(multiple >= 1) || multiple > 1 << 20)
        return kvf__fail(c->ctx, KVF_EFORMAT,
                         "%s: %s is %g and %s is %g, expected positive numbers", c->where, keys[1],
                         by, keys[2], multiple);
    if (!on) return KVF_OK;
    desc->F = 2 * desc->F / 3;
    if (kvf_json_typeof(factor) == KVF_JSON_NULL && factor) return KVF_OK;
    const int64_t each = (int64_t)multiple;
    desc->F = ((int64_t)(by * (double)desc->F) + each - 1) / each * each;
    return KVF_OK;
}

/* Turns value_dim from the size of all value heads, as a GGUF has it, into that of one. */
static kvf_status divide_inner(const kvf__config *c, const kvf__mixer_keys *keys, kvf__mixer *m)
{
    const int64_t inner = m->value_dim;

    m->value_dim = inner / m->value_heads;
    if (m->value_dim > 0 && m->value_dim <= 1024 && inner % m->value_heads == 0) return KVF_OK;
    return kvf__fail(c->ctx, KVF_EFORMAT,
                     "%s: %s.%s is %lld, expected %lld heads of at most 1024 values", c->where,
                     c->gguf, keys->gguf.inner, (long long)inner, (long long)m->value_heads);
}

static kvf_status read_sizes(const kvf__config *c, kvf__desc *desc)
{
    const kvf__mixer_keys *keys = desc->arch->keys->mixer;
    kvf__mixer *m = &desc->mixer;
    const struct {
        const kvf__config_key *key;
        const char *gguf;
        int64_t *to, most;
    } rows[] = {{&keys->kernel, keys->gguf.kernel, &m->kernel, KVF__MOST_TAPS},
                {&keys->key_heads, keys->gguf.key_heads, &m->key_heads, 4096},
                {&keys->value_heads, keys->gguf.value_heads, &m->value_heads, 4096},
                {&keys->key_dim, keys->gguf.key_dim, &m->key_dim, 1024},
                {&keys->value_dim, keys->gguf.inner, &m->value_dim, c->gguf ? 1 << 22 : 1024}};

    m->kind = keys->delta ? KVF__MIXER_DELTA : KVF__MIXER_CONV;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char full[KVF__NAME_BYTES];
        if (!rows[i].key->names[0]) continue;
        const char *name = kvf__config_name(c, c->gguf ? rows[i].gguf : rows[i].key->names[0],
                                            full);
        const kvf_json *value = kvf_json_get(c->root, name);
        if (!value && c->gguf) return kvf__config_missing(c, rows[i].gguf);
        *rows[i].to = rows[i].key->otherwise;
        if (value) KVF_TRY(kvf__config_count(c, name, value, rows[i].to));
        if (*rows[i].to > rows[i].most)
            return kvf__fail(c->ctx, KVF_EFORMAT, "%s: %s is %lld, expected at most %lld", c->where,
                             name, (long long)*rows[i].to, (long long)rows[i].most);
    }
    if (!keys->delta) return KVF_OK;
    if (c->gguf) KVF_TRY(divide_inner(c, keys, m));
    if (m->value_heads % m->key_heads == 0) return KVF_OK;
    return kvf__fail(c->ctx, KVF_EFORMAT, "%s: %lld value heads do not divide into %lld key heads",
                     c->where, (long long)m->value_heads, (long long)m->key_heads);
}

/* Sets *attends for layer l of a list of layer types. */
static kvf_status read_type(const kvf__config *c, const kvf_json *types, const kvf__desc *desc,
                            int64_t l, bool *attends)
{
    const kvf_json *value = kvf_json_at(types, (size_t)l);
    const char *type = kvf_json_str(value, NULL), *mixer = desc->arch->keys->mixer->type;

    *attends = type && !strcmp(type, "full_attention");
    if (*attends || (type && !strcmp(type, mixer))) return KVF_OK;
    char expected[64];
    snprintf(expected, sizeof expected, "\"full_attention\" or \"%s\"", mixer);
    return kvf__config_bad(c, KVF_EUNSUPPORTED, "layer_types", value, expected);
}

/* Without a list of layer types: by a list of the layers with attention, or every n-th layer. */
static kvf_status read_rule(const kvf__config *c, const kvf__desc *desc, bool *attends)
{
    const kvf__mixer_keys *keys = desc->arch->keys->mixer;
    const kvf_json *list = keys->attention ? kvf_json_get(c->root, keys->attention) : NULL;
    double every = 1;

    if (keys->every.name)
        KVF_TRY(kvf__config_real(c, c->root, keys->every.name, keys->every.otherwise, &every));
    if (!(every >= 1) || every > INT32_MAX)
        return kvf__config_bad(c, KVF_EFORMAT, keys->every.name,
                               kvf_json_get(c->root, keys->every.name), "a positive integer");
    const bool listed = kvf_json_typeof(list) == KVF_JSON_ARRAY;
    for (int64_t l = 0; l < desc->L; l++)
        attends[l] = !listed && (l + 1) % (int64_t)every == 0;
    for (size_t i = 0; listed && i < kvf_json_size(list); i++) {
        const int64_t l = kvf_json_int(kvf_json_at(list, i), -1);
        if (l < 0 || l >= desc->L)
            return kvf__config_bad(c, KVF_EFORMAT, keys->attention, kvf_json_at(list, i),
                                   "the number of a layer");
        attends[l] = true;
    }
    return KVF_OK;
}

/* Sets attends [L] and G from a GGUF's key/value heads of each layer, or by the rule. */
static kvf_status read_gguf_heads(const kvf__config *c, kvf__desc *desc, bool *attends)
{
    char full[KVF__NAME_BYTES];
    const char *name = kvf__config_name(c, "attention.head_count_kv", full);
    const kvf_json *list = kvf_json_get(c->root, name);
    int64_t G = 0;

    const bool listed = kvf_json_typeof(list) == KVF_JSON_ARRAY;
    if (!listed && desc->arch->keys->mixer->every.name) return read_rule(c, desc, attends);
    if (!listed)
        return kvf__config_bad(c, KVF_EFORMAT, name, list, "a list with a number for each layer");
    KVF_TRY(kvf__config_covers(c, name, list, desc));
    for (int64_t l = 0; l < desc->L; l++) {
        const int64_t heads = kvf_json_int(kvf_json_at(list, (size_t)l), -1);
        attends[l] = heads != 0;
        if (heads < 0 || heads > 4096 || (heads && G && heads != G))
            return kvf__config_bad(c, KVF_EUNSUPPORTED, name, list,
                                   "0 or one number in all layers");
        if (heads) G = heads;
    }
    if (G) desc->G = G;
    return KVF_OK;
}

/* Removes the last blocks of a GGUF, which predict several tokens at once. */
static kvf_status drop_predicting(const kvf__config *c, kvf__desc *desc)
{
    char full[KVF__NAME_BYTES];
    const char *name = kvf__config_name(c, "nextn_predict_layers", full);
    const kvf_json *value = kvf_json_get(c->root, name);
    const int64_t n = kvf_json_int(value, value ? -1 : 0);

    if (n < 0 || n >= desc->L)
        return kvf__config_bad(c, KVF_EFORMAT, name, value, "less than block_count");
    desc->L -= n;
    return KVF_OK;
}

kvf_status kvf__config_mixer(const kvf__config *c, kvf__desc *desc)
{
    const kvf_json *types = c->gguf ? NULL : kvf_json_get(c->root, "layer_types");
    bool attends[KVF__MOST_LAYERS], any = false;

    if (c->gguf) KVF_TRY(drop_predicting(c, desc));
    if (desc->L > KVF__MOST_LAYERS) return KVF_OK; /* refused later */
    KVF_TRY(read_sizes(c, desc));
    KVF_TRY(adjust_ffn(c, desc));
    const bool typed = kvf_json_typeof(types) == KVF_JSON_ARRAY;
    if (typed) KVF_TRY(kvf__config_covers(c, "layer_types", types, desc));
    for (int64_t l = 0; typed && l < desc->L; l++)
        KVF_TRY(read_type(c, types, desc, l, &attends[l]));
    if (!typed) KVF_TRY(c->gguf ? read_gguf_heads(c, desc, attends) : read_rule(c, desc, attends));
    KVF_TRY(kvf__alloc_array(c->ctx, (size_t)desc->L, sizeof *desc->by_layer.shape,
                             &desc->by_layer.shape));
    for (int64_t l = 0; l < desc->L; l++) {
        any = any || attends[l];
        desc->by_layer.shape[l] = (kvf__layer_shape){
            .G = attends[l] ? desc->G : 0, .D = desc->D, .F = desc->F, .from = l};
    }
    if (any) return KVF_OK;
    return kvf__fail(c->ctx, KVF_EUNSUPPORTED,
                     "%s: no layer has attention, so a prefix has no place", c->where);
}
