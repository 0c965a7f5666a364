/* The key table of config.json and GGUF metadata, and reading sizes with it. Defaults of a
 * config.json belong to the family (kvf__config_keys in its row); GGUF keys are those of ggml's
 * docs/gguf.md. */
#include "config_keys.h"

#include <math.h>
#include <stddef.h>

#define FIELD(name) offsetof(kvf__desc, name)
#define HF(name)    offsetof(kvf__config_keys, name)
#define NULLABLE    KVF__CONFIG_NULLABLE
#define DERIVED     KVF__CONFIG_DERIVED

#define SIZE(field, key, gguf, flags)                                                              \
    {                                                                                              \
        KVF__CONFIG_SIZE, FIELD(field), HF(key), NULL, gguf, flags, 0                              \
    }
#define SWITCH(field, key, tensor)                                                                 \
    {                                                                                              \
        KVF__CONFIG_SWITCH, FIELD(field), HF(key), NULL, tensor, 0, 0                              \
    }
#define TOKEN(field, name, gguf)                                                                   \
    {                                                                                              \
        KVF__CONFIG_TOKEN, FIELD(field), 0, name, gguf, 0, 0                                       \
    }

const kvf__config_row kvf__config_rows[KVF__CONFIG_ROWS] = {
    SIZE(C, width, "embedding_length", 0),
    SIZE(F, ffn, "feed_forward_length", NULLABLE),
    SIZE(L, layers, "block_count", 0),
    SIZE(H, heads, "attention.head_count", 0),
    SIZE(G, kv_heads, "attention.head_count_kv", NULLABLE | DERIVED),
    SIZE(D, head_dim, "attention.key_length", NULLABLE | DERIVED),
    SIZE(position.max, positions, "context_length", 0),
    {KVF__CONFIG_SIZE, FIELD(position.window), HF(sliding_window), NULL, "attention.sliding_window",
     NULLABLE | DERIVED, HF(sliding_window_switch)},
    SIZE(types, types, NULL, 0),
    SIZE(E, embed_width, NULL, 0),
    SIZE(V, vocab, "vocab_size", DERIVED),
    SWITCH(block.qkv_bias, attention_bias, "blk.0.attn_q.bias"),
    SWITCH(block.out_bias, attention_bias, "blk.0.attn_output.bias"),
    SWITCH(block.mlp_bias, mlp_bias, "blk.0.ffn_up.bias"),
    SWITCH(head_bias, head_bias, NULL),
    {KVF__CONFIG_FLAG, FIELD(block.parallel), HF(parallel), NULL, "use_parallel_residual", 0, 0},
    TOKEN(ids.bos, "bos_token_id", "tokenizer.ggml.bos_token_id"),
    TOKEN(ids.eos, "eos_token_id", "tokenizer.ggml.eos_token_id"),
    TOKEN(ids.pad, "pad_token_id", "tokenizer.ggml.padding_token_id"),
};

const kvf__act_name kvf__act_names[KVF__ACT_NAMES] = {
    {"silu", KVF__SILU},
    {"swish", KVF__SILU},
    {"gelu", KVF__GELU_ERF},
    {"gelu_python", KVF__GELU_ERF},
    {"gelu_new", KVF__GELU_TANH},
    {"gelu_fast", KVF__GELU_TANH},
    {"gelu_pytorch_tanh", KVF__GELU_TANH},
    {"relu", KVF__RELU},
    {"quick_gelu", KVF__QUICK_GELU},
};

const char *kvf__hf_name(const kvf__desc *desc, size_t offset)
{
    return *(const char *const *)((const char *)desc->arch->keys + offset);
}

/* ---- values ---------------------------------------------------------------------------------- */

kvf_status kvf__config_bad(const kvf__config *c, kvf_status status, const char *key,
                           const kvf_json *value, const char *expected)
{
    char *text = kvf_json_text(value, KVF_JSON_COMPACT);

    kvf__fail(c->ctx, status, "%s: %s is %.60s, expected %s", c->where, key, text ? text : "?",
              expected);
    kvf_json_text_free(text);
    return status;
}

const char *kvf__config_name(const kvf__config *c, const char *key, char full[KVF__NAME_BYTES])
{
    if (!c->gguf) return key;
    snprintf(full, KVF__NAME_BYTES, "%s.%s", c->gguf, key);
    return full;
}

kvf_status kvf__config_missing(const kvf__config *c, const char *key)
{
    char full[KVF__NAME_BYTES];

    return kvf__fail(c->ctx, KVF_EFORMAT, "%s: %s is missing", c->where,
                     kvf__config_name(c, key, full));
}

kvf_status kvf__config_real(const kvf__config *c, const kvf_json *object, const char *key,
                            double otherwise, double *out)
{
    char full[KVF__NAME_BYTES];
    const char *name = kvf__config_name(c, key, full);
    const kvf_json *value = kvf_json_get(object, name);
    kvf_json_type type = kvf_json_typeof(value);

    *out = otherwise;
    if (type == KVF_JSON_NONE || (type == KVF_JSON_NULL && !c->gguf))
        return isnan(otherwise) ? kvf__config_missing(c, key) : KVF_OK;
    *out = kvf_json_real(value, NAN);
    if (!isfinite(*out)) return kvf__config_bad(c, KVF_EFORMAT, name, value, "a number");
    return KVF_OK;
}

kvf_status kvf__config_switch(const kvf__config *c, const char *key, bool otherwise, bool *out)
{
    const kvf_json *value = kvf_json_get(c->root, key);
    kvf_json_type type = kvf_json_typeof(value);

    *out = kvf_json_bool(value, otherwise);
    if (type != KVF_JSON_NONE && type != KVF_JSON_NULL && type != KVF_JSON_BOOL)
        return kvf__config_bad(c, KVF_EFORMAT, key, value, "true or false");
    return KVF_OK;
}

kvf_status kvf__config_multipliers(const kvf__config *c, kvf__desc *desc)
{
    static const char *const NAMES[][2] = {{"embedding_multiplier", "embedding_scale"},
                                           {"residual_multiplier", "residual_scale"},
                                           {"logits_scaling", "logit_scale"},
                                           {"attention_multiplier", "attention.scale"}};
    double by[4];
    char full[KVF__NAME_BYTES];

    if (!desc->arch->keys->multipliers) return KVF_OK;
    for (int i = 0; i < 4; i++) {
        const char *name = NAMES[i][c->gguf != NULL];
        KVF_TRY(kvf__config_real(c, c->root, name, c->gguf && i == 3 ? 0 : 1, &by[i]));
        if (c->gguf && i == 3 && by[i] == 0) by[i] = (double)desc->score_scale;
        if (!(by[i] > 1e-6) || !(by[i] < 1e6)) {
            name = kvf__config_name(c, name, full);
            return kvf__config_bad(c, KVF_EFORMAT, name, kvf_json_get(c->root, name),
                                   "a positive number");
        }
    }
    desc->factors.residual = (float)by[1];
    desc->factors.embed = (float)(by[0] / by[1]);
    desc->factors.head = (float)(1 / by[2]);
    desc->score_scale = (float)by[3];
    desc->norm_eps = (float)((double)desc->norm_eps / by[1] / by[1]);
    return KVF_OK;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

kvf_status kvf__config_count(const kvf__config *c, const char *name, const kvf_json *value,
                             int64_t *out)
{
    kvf_json_type type = kvf_json_typeof(value);

    if (c->gguf && (type == KVF_JSON_ARRAY || type == KVF_JSON_OBJECT))
        return kvf__fail(c->ctx, KVF_EUNSUPPORTED,
                         "%s: %s is a list, one value per layer is not supported", c->where, name);
    *out = kvf_json_int(value, 0);
    if (*out < 1 || *out > INT32_MAX)
        return kvf__config_bad(c, KVF_EFORMAT, name, value, "a positive integer");
    return KVF_OK;
}

static kvf_status read_gguf_size(const kvf__config *c, const kvf__desc *desc,
                                 const kvf__config_row *row, int64_t *out)
{
    char full[KVF__NAME_BYTES];

    if (!row->gguf) return KVF_OK;
    const char *name = kvf__config_name(c, row->gguf, full);
    const kvf_json *value = kvf_json_get(c->root, name);
    /* kvf__config_mixer reads the heads of hybrids */
    const bool listed = desc->arch->keys->mixer && kvf_json_typeof(value) == KVF_JSON_ARRAY;
    const bool none = listed || (row->flags & DERIVED && kvf_json_int(value, -1) == 0);
    if (value && !none) return kvf__config_count(c, name, value, out);
    *out = KVF__DERIVED;
    return row->flags & DERIVED ? KVF_OK : kvf__config_missing(c, row->gguf);
}

static kvf_status read_hf_size(const kvf__config *c, const kvf__config_key *key, bool nullable,
                               int64_t *out)
{
    *out = key->otherwise;
    for (int i = 0; i < 3 && key->names[i]; i++) {
        const kvf_json *value = kvf_json_get(c->root, key->names[i]);
        if (!value) continue;
        if (!nullable || kvf_json_typeof(value) != KVF_JSON_NULL)
            return kvf__config_count(c, key->names[i], value, out);
        *out = KVF__DERIVED;
        return KVF_OK;
    }
    return *out || !key->names[0] ? KVF_OK : kvf__config_missing(c, key->names[0]);
}

kvf_status kvf__config_size(const kvf__config *c, const kvf__desc *desc, const kvf__config_row *row,
                            int64_t *out)
{
    const void *key = (const char *)desc->arch->keys + row->hf;
    const char *needs = row->needs ? kvf__hf_name(desc, row->needs) : NULL;
    bool on = true;

    if (c->gguf) return read_gguf_size(c, desc, row, out);
    if (needs) KVF_TRY(kvf__config_switch(c, needs, false, &on));
    return on ? read_hf_size(c, key, row->flags & NULLABLE, out) : KVF_OK;
}

void kvf__config_local(kvf__desc *desc, int64_t every, int64_t first)
{
    const bool from_0 = desc->arch->keys->local.from_0;

    for (int64_t l = 0; l < KVF__MOST_LAYERS; l++)
        if (l < first || (every && (l + !from_0) % every == 0))
            kvf__layers_mark(desc->position.global, l);
}

kvf_status kvf__config_covers(const kvf__config *c, const char *name, const kvf_json *list,
                              const kvf__desc *desc)
{
    if ((int64_t)kvf_json_size(list) >= desc->L) return KVF_OK;
    return kvf__fail(c->ctx, KVF_EFORMAT, "%s: %s has %zu layers, expected %lld", c->where, name,
                     kvf_json_size(list), (long long)desc->L);
}

void kvf__config_no_rope(kvf__desc *desc, int64_t every)
{
    for (int64_t l = every; every > 0 && l <= KVF__MOST_LAYERS; l += every)
        kvf__layers_mark(desc->position.no_rope, l - 1);
}

kvf_status kvf__config_stacks(const kvf__config *c, kvf__desc *desc, int64_t blocks)
{
    if (desc->L > KVF__MOST_LAYERS || blocks > KVF__MOST_LAYERS)
        return kvf__fail(c->ctx, KVF_EFORMAT, "%s: %lld and %lld layers, expected at most %d",
                         c->where, (long long)desc->L, (long long)blocks, KVF__MOST_LAYERS);
    desc->encoder = desc->L;
    desc->L += 2 * blocks;
    if (desc->ids.start < 0)
        desc->ids.start = desc->arch->keys->starts_with_eos ? desc->ids.eos : desc->ids.pad;
    if (desc->ids.start >= 0 && desc->ids.start < desc->V) return KVF_OK;
    return kvf__fail(c->ctx, KVF_EFORMAT,
                     "%s: decoder_start_token_id is %ld, expected a token of the vocabulary",
                     c->where, (long)desc->ids.start);
}

static kvf_status derive_head(const kvf__config *c, kvf__desc *desc)
{
    const kvf__config_keys *keys = desc->arch->keys;

    if (desc->D > 0) return KVF_OK;
    desc->D = desc->C / desc->H;
    if (desc->C % desc->H == 0) return KVF_OK;
    if (c->gguf) return kvf__config_missing(c, "attention.key_length");
    return kvf__fail(c->ctx, KVF_EFORMAT, "%s: %s %lld is not a multiple of %s %lld", c->where,
                     keys->width.names[0], (long long)desc->C, keys->heads.names[0],
                     (long long)desc->H);
}

kvf_status kvf__config_derive(const kvf__config *c, kvf__desc *desc)
{
    const kvf__config_keys *keys = desc->arch->keys;

    if (desc->G < 1) desc->G = desc->H;
    if (!desc->E) desc->E = desc->C;
    if (desc->position.window == KVF__DERIVED) desc->position.window = 0;
    if (desc->F == KVF__DERIVED) {
        /* Only gpt2's n_inner may be null, which means 4 C. */
        if (keys->ffn.otherwise != KVF__DERIVED)
            return kvf__fail(c->ctx, KVF_EFORMAT, "%s: %s is null, expected a positive integer",
                             c->where, keys->ffn.names[0]);
        desc->F = 4 * desc->C;
    }
    KVF_TRY(derive_head(c, desc));
    if (desc->position.kind == KVF__POS_ROPE)
        desc->position.rotated = desc->position.local_rotated = desc->D;
    return KVF_OK;
}
