/* Export as one safetensors file with the raw past key values, and what other programs than kvfold
 * can hold. */
#include "arch.h"
#include "export.h"

#include <string.h>

kvf_status kvf__check_block_user(kvf_ctx *ctx, const kvf_export_options *options,
                                 const kvf_prefix *prefix, kvf__block_user user)
{
    const kvf__arch *arch = kvf__arch_by_model_type(prefix->file.id.base_architecture);
    const char *why = arch ? kvf__block_refused(&arch->block, user) : NULL;

    return why ? kvf__fail(ctx, KVF_EUNSUPPORTED, "%s: %s", options->path, why) : KVF_OK;
}

kvf_status kvf__check_tokens_scale(kvf_ctx *ctx, const char *path, const kvf__arch *arch)
{
    if (!arch || !arch->keys->multipliers) return KVF_OK;
    return kvf__fail(ctx, KVF_EUNSUPPORTED,
                     "%s: transformers multiplies virtual tokens at the input of a %s model by its "
                     "embedding_multiplier, kvfold does not: they cannot be exchanged",
                     path, arch->name);
}

kvf_status kvf__check_foreign(kvf_ctx *ctx, const kvf_export_options *options,
                              const kvf_prefix *prefix)
{
    if (prefix->file.prefix.log_weight)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: its virtual tokens have log-weights (--log-weight), which other "
                         "programs do not support",
                         options->path);
    const kvf__arch *arch = kvf__arch_by_model_type(prefix->file.id.base_architecture);
    if (prefix->file.vectors.P) KVF_TRY(kvf__check_tokens_scale(ctx, options->path, arch));
    const bool folds = options->format == KVF_EXPORT_GGUF;
    if (prefix->file.id.neurons.N && !folds)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: has virtual neurons (--ffn-length), which no cache or adapter of "
                         "another program holds: --format gguf or transformers folds them into the "
                         "base",
                         options->path);
    if (prefix->file.id.encoder_layers && !folds && options->format != KVF_EXPORT_SAFETENSORS &&
        options->format != KVF_EXPORT_PEFT && options->format != KVF_EXPORT_HUB_REPO)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: a prefix of an encoder-decoder needs --format safetensors or peft",
                         options->path);
    return KVF_OK;
}

/* Returns a self-contained description of the file. */
static kvf_json *safetensors_metadata(const kvf__identity *id, const char *layout)
{
    const kvf__kv_shape kv = kvf__identity_kv(id);
    char start[24], heads[KVF__KV_TEXT];

    snprintf(start, sizeof start, "%lld", (long long)id->position_start);
    if (id->heads)
        kvf__kv_text(heads, &kv, id->P);
    else
        snprintf(heads, sizeof heads, "L=%lld G=%lld P=%lld D=%lld", (long long)id->L,
                 (long long)id->G, (long long)id->P, (long long)id->D);
    kvf_json *meta = kvf__json_of("format:s made_by:s layout:s shape:s position_start:s", "pt",
                                  "kvfold " KVF_VERSION, layout, heads, start);
    kvf__json_put(meta, "base_name:s base_architecture:s base_hash:s method:s task:s",
                  kvf__or_empty(id->base_name), kvf__or_empty(id->base_architecture),
                  kvf__or_empty(id->base_hash), kvf__or_empty(id->method), kvf__or_empty(id->task));
    if (id->relative_bias) kvf_json_set(meta, "relative_bias", kvf_json_new_str("decoder"));
    return meta;
}

static const char CACHE_LAYOUT[] =
    "past_key_values [L, 2, 1, G, P, D]: layer, key or value, batch, head, position, head size; "
    "keys as in a Hugging Face cache, rotated";
static const char LAYERS_LAYOUT[] = "past_key_values.LAYER [2, 1, G, P, D]: key or value, batch, "
                                    "head, position, head size; keys as "
                                    "in a Hugging Face cache, rotated";
static const char TOKENS_LAYOUT[] = "prompt_embeddings [P, C]: virtual tokens at the input";

/* Writes one tensor per layer, if heads differ by layer. */
static kvf_status export_layers(kvf_ctx *ctx, const kvf_export_options *options,
                                const kvf_prefix *prefix)
{
    enum { NAME = 40 };
    const kvf__prefix *p = &prefix->file.prefix;
    kvf__tensor *tensors = NULL;
    char *names = NULL;
    size_t n = 0;

    kvf_status st = kvf__alloc_array(ctx, (size_t)p->L, sizeof *tensors, &tensors);
    if (!st) st = kvf__alloc_array(ctx, (size_t)p->L, NAME, &names);
    for (int64_t l = 0; !st && l < p->L; l++) {
        const kvf__prefix_layer at = kvf__prefix_at(p, l);
        if (!at.G) continue; /* without attention */
        tensors[n].name = names + l * NAME;
        snprintf(tensors[n].name, NAME, "past_key_values.%lld", (long long)l);
        tensors[n++].view = (kvf__view){
            .data = at.k, .dtype = KVF__F32, .rank = 5, .dim = {2, 1, at.G, p->P, at.D}};
    }
    if (!st)
        st = kvf__safetensors_write_with(ctx, options->out, options->force, tensors, n,
                                         safetensors_metadata(&prefix->file.id, LAYERS_LAYOUT));
    kvf__free(tensors);
    kvf__free(names);
    return st;
}

kvf_status kvf__export_safetensors(kvf_ctx *ctx, const kvf_export_options *options,
                                   const kvf_prefix *prefix)
{
    const kvf__identity *id = &prefix->file.id;
    const kvf__vectors *v = &prefix->file.vectors;
    kvf__tensor tokens = {
        .name = "prompt_embeddings",
        .view = {.data = v->x, .dtype = KVF__F32, .rank = 2, .dim = {v->P, v->C}},
    };
    kvf__tensor cache = {
        .name = "past_key_values",
        .view = {.data = prefix->file.prefix.kv,
                 .dtype = KVF__F32,
                 .rank = 6,
                 .dim = {id->L, 2, 1, id->G, id->P, id->D}},
    };
    KVF_TRY(kvf__check_block_user(ctx, options, prefix, KVF__BLOCK_PAST));
    if (id->pre_rope && !v->P)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: a prefix inside rows (--infix) has no past_key_values, because its "
                         "keys are not rotated",
                         options->out);
    if (prefix->file.prefix.state)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: the prefix has a state for layers without attention, which "
                         "past_key_values cannot hold",
                         options->out);
    if (prefix->file.prefix.heads) return export_layers(ctx, options, prefix);
    return kvf__safetensors_write_with(
        ctx, options->out, options->force, v->P ? &tokens : &cache, 1,
        safetensors_metadata(id, v->P ? TOKENS_LAYOUT : CACHE_LAYOUT));
}
