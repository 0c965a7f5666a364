/* Metadata of a GGUF -> description. The string "llama" covers Llama, SmolLM2, TinyLlama and
 * Mistral.
 *
 * Keys are those of ggml's docs/gguf.md. What the metadata does not say is read off the tensors:
 * biases and an own head exist where their tensors do, and Llama 3's rope scaling is the tensor
 * rope_freqs.weight. Keys of relatives that share the architecture string but compute something
 * else (experts, multipliers) are refused. Integers come in any width and sign. */
#include "arch.h"
#include "config_value.h"

#include <math.h>
#include <string.h>

typedef struct meta {
    kvf_ctx *ctx;
    const char *where, *arch;
    const kvf_json *root;
    kvf__config config; /* the same, for messages */
} meta;

/* ---- values ---------------------------------------------------------------------------------- */

/* "llama.block_count" for "block_count". */
static const kvf_json *find(const meta *m, const char *key, char full[KVF__NAME_BYTES])
{
    snprintf(full, KVF__NAME_BYTES, "%s.%s", m->arch, key);
    return kvf_json_get(m->root, full);
}

/* otherwise 0: the key must be there. A list per layer is refused by name. */
static kvf_status get_count(const meta *m, const char *key, int64_t otherwise, int64_t *out)
{
    char full[KVF__NAME_BYTES];
    const kvf_json *value = find(m, key, full);
    kvf_json_type type = kvf_json_typeof(value);

    if (type == KVF_JSON_NONE) {
        if (!otherwise) return kvf__fail(m->ctx, KVF_EFORMAT, "%s: %s is missing", m->where, full);
        *out = otherwise;
        return KVF_OK;
    }
    if (type == KVF_JSON_ARRAY || type == KVF_JSON_OBJECT)
        return kvf__fail(m->ctx, KVF_EUNSUPPORTED,
                         "%s: %s is a list, one value per layer is not supported", m->where, full);
    *out = kvf_json_int(value, 0);
    if (*out < 1 || *out > INT32_MAX)
        return kvf__config_bad(&m->config, KVF_EFORMAT, full, value, "a positive integer");
    return KVF_OK;
}

static kvf_status get_real(const meta *m, const char *key, double otherwise, double *out)
{
    char full[KVF__NAME_BYTES];
    const kvf_json *value = find(m, key, full);

    if (!value && isnan(otherwise))
        return kvf__fail(m->ctx, KVF_EFORMAT, "%s: %s is missing", m->where, full);
    *out = value ? kvf_json_real(value, NAN) : otherwise;
    if (!isfinite(*out)) return kvf__config_bad(&m->config, KVF_EFORMAT, full, value, "a number");
    return KVF_OK;
}

static int32_t token_id(const meta *m, const char *key)
{
    int64_t id = kvf_json_int(kvf_json_get(m->root, key), -1);
    return id < 0 || id > INT32_MAX ? -1 : (int32_t)id;
}

/* ---- parts ----------------------------------------------------------------------------------- */

static kvf_status refuse_unsupported(const meta *m)
{
    static const struct {
        const char *key;
        double neutral;
    } rows[] = {
        {"expert_count", 0},        {"expert_used_count", 0}, {"embedding_scale", 1},
        {"residual_scale", 1},      {"logit_scale", 1},       {"attention.scale", 0},
        {"attention.clamp_kqv", 0},
    };
    char full[KVF__NAME_BYTES];

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const kvf_json *value = find(m, rows[i].key, full);
        if (value && kvf_json_real(value, NAN) != rows[i].neutral)
            return kvf__config_bad(&m->config, KVF_EUNSUPPORTED, full, value,
                                   "none (it is not supported)");
    }
    const kvf_json *causal = find(m, "attention.causal", full);
    if (!kvf_json_bool(causal, true))
        return kvf__config_bad(&m->config, KVF_EUNSUPPORTED, full, causal, "true");
    return KVF_OK;
}

static kvf_status read_sizes(const meta *m, const kvf__table *table, kvf__desc *desc)
{
    const kvf__view *tokens = kvf__table_find(table, "token_embd.weight");
    int64_t value_size, rotated;
    double eps;

    KVF_TRY(get_count(m, "embedding_length", 0, &desc->C));
    KVF_TRY(get_count(m, "block_count", 0, &desc->L));
    KVF_TRY(get_count(m, "feed_forward_length", 0, &desc->F));
    KVF_TRY(get_count(m, "context_length", 0, &desc->max_positions));
    KVF_TRY(get_count(m, "attention.head_count", 0, &desc->H));
    KVF_TRY(get_count(m, "attention.head_count_kv", desc->H, &desc->G));
    KVF_TRY(get_count(m, "vocab_size", tokens && tokens->rank == 2 ? tokens->dim[0] : 0, &desc->V));
    KVF_TRY(get_count(m, "attention.sliding_window", -1, &desc->sliding_window));
    if (desc->sliding_window < 0) desc->sliding_window = 0;
    KVF_TRY(get_real(m, "attention.layer_norm_rms_epsilon", NAN, &eps));
    desc->norm_eps = (float)eps;

    KVF_TRY(
        get_count(m, "attention.key_length", desc->C % desc->H ? 0 : desc->C / desc->H, &desc->D));
    KVF_TRY(get_count(m, "attention.value_length", desc->D, &value_size));
    KVF_TRY(get_count(m, "rope.dimension_count", desc->D, &rotated));
    if (value_size != desc->D || rotated != desc->D)
        return kvf__fail(m->ctx, KVF_EUNSUPPORTED,
                         "%s: head sizes differ: keys %lld, values %lld, rotated %lld", m->where,
                         (long long)desc->D, (long long)value_size, (long long)rotated);
    return KVF_OK;
}

static void read_tensors(const kvf__table *table, kvf__desc *desc)
{
    desc->tied = !kvf__table_find(table, "output.weight");
    desc->qkv_bias = kvf__table_find(table, "blk.0.attn_q.bias") != NULL;
    desc->out_bias = kvf__table_find(table, "blk.0.attn_output.bias") != NULL;
    desc->mlp_bias = kvf__table_find(table, "blk.0.ffn_up.bias") != NULL;
    desc->score_scale = (float)(1 / sqrt((double)desc->D));
}

static kvf_status read_divisors(const meta *m, const kvf__table *table, kvf__desc *desc)
{
    const kvf__view *view = kvf__table_find(table, "rope_freqs.weight");
    char shape[128];

    if (!view) return KVF_OK;
    if (view->rank != 1 || view->dim[0] != desc->D / 2)
        return kvf__fail(m->ctx, KVF_ESHAPE, "%s: rope_freqs.weight is %s, expected [%lld]",
                         m->where, kvf__shape_text(shape, view->rank, view->dim),
                         (long long)desc->D / 2);
    if (view->dtype != KVF__F32)
        return kvf__fail(m->ctx, KVF_EFORMAT, "%s: rope_freqs.weight is %s, expected f32", m->where,
                         kvf__dtype_name(view->dtype));
    KVF_TRY(kvf__alloc_array(m->ctx, (size_t)desc->D / 2, sizeof(float), &desc->rope_divisors));
    memcpy(desc->rope_divisors, view->data, (size_t)desc->D / 2 * sizeof(float));
    for (int64_t i = 0; i < desc->D / 2; i++)
        if (!(desc->rope_divisors[i] > 0) || !isfinite(desc->rope_divisors[i]))
            return kvf__fail(m->ctx, KVF_EFORMAT,
                             "%s: rope_freqs.weight[%lld] is %g, expected a positive number",
                             m->where, (long long)i, (double)desc->rope_divisors[i]);
    return KVF_OK;
}

/* llama.cpp applies yarn's recommended factor on top of the file's attn_factor. */
static kvf_status read_yarn(const meta *m, kvf__desc *desc)
{
    kvf__rope *rope = &desc->rope;
    double attn_factor;

    KVF_TRY(get_real(m, "rope.scaling.original_context_length", (double)desc->max_positions,
                     &rope->original));
    KVF_TRY(get_real(m, "rope.scaling.attn_factor", 1, &attn_factor));
    KVF_TRY(get_real(m, "rope.scaling.yarn_beta_fast", 32, &rope->beta_fast));
    KVF_TRY(get_real(m, "rope.scaling.yarn_beta_slow", 1, &rope->beta_slow));
    if (rope->original < 1 || !(rope->beta_fast > 0) || !(rope->beta_slow > 0))
        return kvf__fail(m->ctx, KVF_EFORMAT,
                         "%s: yarn with original_context_length %g, beta_fast %g, "
                         "beta_slow %g, expected positive numbers",
                         m->where, rope->original, rope->beta_fast, rope->beta_slow);
    rope->truncate = true;
    rope->attention_factor = attn_factor * kvf__yarn_mscale(rope->factor, 1);
    return KVF_OK;
}

static kvf_status read_rope(const meta *m, kvf__desc *desc)
{
    char full[KVF__NAME_BYTES];
    const kvf_json *type_value = find(m, "rope.scaling.type", full);
    const char *type = type_value ? kvf_json_str(type_value, NULL) : NULL;
    kvf__rope *rope = &desc->rope;
    double legacy;

    rope->attention_factor = 1;
    KVF_TRY(get_real(m, "rope.freq_base", 10000, &rope->theta));
    KVF_TRY(get_real(m, "rope.scale_linear", 1, &legacy));
    KVF_TRY(get_real(m, "rope.scaling.factor", legacy, &rope->factor));
    if (!type_value) type = rope->factor != 1 ? "linear" : "none";
    if (type && !strcmp(type, "none")) {
        rope->factor = 0;
        return KVF_OK;
    }
    if (type && !strcmp(type, "linear")) {
        rope->kind = KVF__ROPE_LINEAR;
        return KVF_OK;
    }
    if (type && !strcmp(type, "yarn")) {
        rope->kind = KVF__ROPE_YARN;
        return read_yarn(m, desc);
    }
    return kvf__config_bad(&m->config, KVF_EUNSUPPORTED, full, type_value, "none, linear or yarn");
}

/* ---- whole ----------------------------------------------------------------------------------- */

/* Of text, of a turn, of a message. */
static void read_ends(const meta *m, kvf__desc *desc)
{
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        kvf__ends_add(&desc->ends, token_id(m, keys[i]));
    desc->eos = desc->ends.n ? desc->ends.id[0] : -1;
}

static kvf_status read_all(const meta *m, const kvf__table *table, kvf__desc *desc)
{
    KVF_TRY(refuse_unsupported(m));
    KVF_TRY(read_sizes(m, table, desc));
    read_tensors(table, desc);
    desc->bos = token_id(m, "tokenizer.ggml.bos_token_id");
    read_ends(m, desc);
    desc->pad = token_id(m, "tokenizer.ggml.padding_token_id");
    KVF_TRY(read_rope(m, desc));
    KVF_TRY(kvf__desc_check(m->ctx, m->where, desc));
    KVF_TRY(read_divisors(m, table, desc));
    return kvf__rope_init(m->ctx, desc);
}

kvf_status kvf__desc_from_gguf(kvf_ctx *ctx, const char *where, const kvf_json *root,
                               const kvf__table *table, kvf__desc *out)
{
    const char *name = kvf_json_str(kvf_json_get(root, "general.architecture"), NULL);
    const kvf__arch *arch = NULL;
    kvf__desc desc = {0};
    char list[128];
    kvf_status st;

    if (!name) return kvf__fail(ctx, KVF_EFORMAT, "%s: general.architecture is missing", where);
    arch = kvf__arch_by_gguf(name);
    if (!arch)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: general.architecture \"%.60s\" is not supported in a GGUF (%s are)",
                         where, name, kvf__arch_list(list, true));

    const meta m = {ctx, where, name, root, {ctx, where, root}};
    kvf__desc_from_arch(arch, &desc);
    desc.gguf = true;
    st = read_all(&m, table, &desc);
    if (st) goto out;
    *out = desc;
    desc = (kvf__desc){0};
out:
    kvf__desc_done(&desc);
    return st;
}
