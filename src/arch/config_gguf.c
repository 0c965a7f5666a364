/* From GGUF metadata to a description. The string "llama" covers Llama, SmolLM2, TinyLlama and
 * Mistral, "bert" models with BERT's blocks and learned positions, "t5" also Flan-T5.
 *
 * Keys are those of ggml's docs/gguf.md. Facts missing from the metadata are derived from the
 * tensors: biases and an untied head exist if their tensors do, and Llama 3's rope scaling is the
 * tensor rope_freqs.weight. Keys of related models that compute something else under the same
 * architecture string (experts, multipliers) are refused. Integers may have any width and sign. */
#include "config_keys.h"

#include <math.h>
#include <string.h>

/* Finds a key; NULL if absent. full becomes its complete name. */
static const kvf_json *find(const kvf__config *c, const char *key, char full[KVF__NAME_BYTES])
{
    return kvf_json_get(c->root, kvf__config_name(c, key, full));
}

static kvf_status refuse_unsupported(const kvf__config *c, const kvf__desc *desc)
{
    const bool is_causal = desc->block.causal, multiplied = desc->arch->keys->multipliers;
    static const struct {
        const char *key;
        double neutral;
    } rows[] = {
        {"expert_count", 0},    {"expert_used_count", 0}, {"attention.clamp_kqv", 0},
        {"embedding_scale", 1}, {"residual_scale", 1},    {"logit_scale", 1},
        {"attention.scale", 0},
    };
    enum { MULTIPLIERS = 4 }; /* the last rows */
    char full[KVF__NAME_BYTES];

    for (size_t i = 0; i < sizeof rows / sizeof *rows - (multiplied ? MULTIPLIERS : 0); i++) {
        const kvf_json *value = find(c, rows[i].key, full);
        if (value && kvf_json_real(value, NAN) != rows[i].neutral)
            return kvf__config_bad(c, KVF_EUNSUPPORTED, full, value, "none (it is not supported)");
    }
    const kvf_json *causal = find(c, "attention.causal", full);
    if (kvf_json_bool(causal, is_causal) != is_causal)
        return kvf__config_bad(c, KVF_EUNSUPPORTED, full, causal, is_causal ? "true" : "false");
    return KVF_OK;
}

/* Checks head sizes: if present, all equal D, and the rotated size may be less. */
static kvf_status check_head_sizes(const kvf__config *c, kvf__desc *desc)
{
    static const char *const KEYS[] = {"attention.value_length", "rope.dimension_count"};
    int64_t size[] = {desc->D, desc->D};
    char full[KVF__NAME_BYTES];

    for (int i = 0; i < 2; i++) {
        const kvf_json *value = find(c, KEYS[i], full);
        if (value) KVF_TRY(kvf__config_count(c, full, value, &size[i]));
    }
    desc->position.rotated = desc->position.local_rotated = size[1];
    const bool partial = desc->arch->keys->rotary.name && size[1] < desc->D;
    if (size[0] == desc->D && (size[1] == desc->D || partial)) return KVF_OK;
    return kvf__fail(c->ctx, KVF_EUNSUPPORTED,
                     "%s: head sizes differ: keys %lld, values %lld, rotated %lld", c->where,
                     (long long)desc->D, (long long)size[0], (long long)size[1]);
}

static kvf_status read_divisors(const kvf__config *c, const kvf__table *table, const char *name,
                                kvf__desc *desc)
{
    const kvf__view *view = kvf__table_find(table, name);
    const int64_t n = desc->position.rotated / 2;
    char shape[128];

    if (!view) return KVF_OK;
    if (view->rank != 1 || view->dim[0] != n)
        return kvf__fail(c->ctx, KVF_ESHAPE, "%s: %s is %s, expected [%lld]", c->where, name,
                         kvf__shape_text(shape, view->rank, view->dim), (long long)n);
    if (view->dtype != KVF__F32)
        return kvf__fail(c->ctx, KVF_EFORMAT, "%s: %s is %s, expected f32", c->where, name,
                         kvf__dtype_name(view->dtype));
    KVF_TRY(kvf__alloc_array(c->ctx, (size_t)n, sizeof(float), &desc->position.divisors));
    memcpy(desc->position.divisors, view->data, (size_t)n * sizeof(float));
    for (int64_t i = 0; i < n; i++)
        if (!(desc->position.divisors[i] > 0) || !isfinite(desc->position.divisors[i]))
            return kvf__fail(c->ctx, KVF_EFORMAT, "%s: %s[%lld] is %g, expected a positive number",
                             c->where, name, (long long)i, (double)desc->position.divisors[i]);
    return KVF_OK;
}

/* Reads longrope, which a GGUF shows by its tensors of divisors: those for rows within the original
 * length. */
static kvf_status read_long(const kvf__config *c, const kvf__table *table, kvf__desc *desc)
{
    kvf__rope *rope = &desc->position.rope;

    if (!kvf__table_find(table, "rope_factors_short.weight")) return KVF_OK;
    KVF_TRY(read_divisors(c, table, "rope_factors_short.weight", desc));
    KVF_TRY(kvf__config_real(c, c->root, "rope.scaling.original_context_length",
                             (double)desc->position.max, &rope->original));
    KVF_TRY(kvf__config_real(c, c->root, "rope.scaling.attn_factor", 1, &rope->attention_factor));
    return kvf__config_long(c, desc);
}

/* llama.cpp applies YaRN's recommended factor in addition to the file's attn_factor. */
static kvf_status read_yarn(const kvf__config *c, kvf__desc *desc)
{
    kvf__rope *rope = &desc->position.rope;
    double attn_factor, divided, beta = 0;

    KVF_TRY(kvf__config_real(c, c->root, "rope.scaling.original_context_length",
                             (double)desc->position.max, &rope->original));
    KVF_TRY(kvf__config_real(c, c->root, "rope.scaling.attn_factor", 1, &attn_factor));
    KVF_TRY(kvf__config_real(c, c->root, "rope.scaling.yarn_log_multiplier", 0, &divided));
    if (desc->arch->keys->query_growth)
        KVF_TRY(kvf__config_real(c, c->root, "attention.temperature_scale", 0, &beta));
    KVF_TRY(kvf__config_real(c, c->root, "rope.scaling.yarn_beta_fast", 32, &rope->beta_fast));
    KVF_TRY(kvf__config_real(c, c->root, "rope.scaling.yarn_beta_slow", 1, &rope->beta_slow));
    if (rope->original < 1 || !(rope->beta_fast > 0) || !(rope->beta_slow > 0) || divided < 0 ||
        beta < 0)
        return kvf__fail(c->ctx, KVF_EFORMAT,
                         "%s: yarn with original_context_length %g, beta_fast %g, beta_slow %g, "
                         "log_multiplier %g, temperature_scale %g, expected positive numbers",
                         c->where, rope->original, rope->beta_fast, rope->beta_slow, divided, beta);
    desc->position.query_growth = (float)beta;
    rope->kind = KVF__ROPE_YARN;
    rope->truncate = true;
    rope->attention_factor = attn_factor * kvf__yarn_mscale(rope->factor, 1) /
                             kvf__yarn_mscale(rope->factor, divided);
    return KVF_OK;
}

static kvf_status read_rope(const kvf__config *c, kvf__desc *desc)
{
    char full[KVF__NAME_BYTES];
    const kvf_json *value = find(c, "rope.scaling.type", full);
    kvf__rope *rope = &desc->position.rope;
    double legacy;

    const kvf__config_keys *keys = desc->arch->keys;

    rope->attention_factor = 1;
    KVF_TRY(kvf__config_real(c, c->root, "rope.freq_base",
                             keys->theta_otherwise > 0 ? keys->theta_otherwise : 10000,
                             &rope->theta));
    if (kvf__config_local_rope(desc))
        KVF_TRY(kvf__config_real(c, c->root, "rope.freq_base_swa",
                                 keys->local.theta ? 10000 : rope->theta,
                                 &desc->position.local_theta));
    KVF_TRY(kvf__config_real(c, c->root, "rope.scale_linear", 1, &legacy));
    KVF_TRY(kvf__config_real(c, c->root, "rope.scaling.factor", legacy, &rope->factor));
    const char *type = value ? kvf_json_str(value, NULL) : rope->factor != 1 ? "linear" : "none";
    if (type && !strcmp(type, "yarn")) return read_yarn(c, desc);
    if (type && !strcmp(type, "linear"))
        rope->kind = KVF__ROPE_LINEAR;
    else if (type && !strcmp(type, "none"))
        rope->factor = 0;
    else
        return kvf__config_bad(c, KVF_EUNSUPPORTED, full, value, "none, linear or yarn");
    return KVF_OK;
}

/* ---- whole ----------------------------------------------------------------------------------- */

/* Returns -1 if absent or none. */
static int32_t token_id(const kvf__config *c, const char *key)
{
    int64_t id = kvf_json_int(kvf_json_get(c->root, key), -1);
    return id < 0 || id > INT32_MAX ? -1 : (int32_t)id;
}

static kvf_status read_row(const kvf__config *c, const kvf__config_row *row,
                           const kvf__table *table, kvf__desc *desc)
{
    void *out = (char *)desc + row->field;
    char full[KVF__NAME_BYTES];

    if (row->kind == KVF__CONFIG_SIZE) return kvf__config_size(c, desc, row, out);
    if (row->kind == KVF__CONFIG_TOKEN)
        *(int32_t *)out = token_id(c, row->gguf);
    else if (row->kind == KVF__CONFIG_FLAG && kvf__hf_name(desc, row->hf))
        *(bool *)out = kvf_json_bool(find(c, row->gguf, full), *(bool *)out);
    else if (row->kind == KVF__CONFIG_SWITCH && row->gguf && kvf__table_find(table, row->gguf))
        *(bool *)out = true;
    return KVF_OK;
}

static kvf_status read_rows(const kvf__config *c, const kvf__table *table, kvf__desc *desc)
{
    const kvf__view *tokens = kvf__table_find(table, "token_embd.weight"),
                    *types = kvf__table_find(table, "token_types.weight");

    for (int i = 0; i < KVF__CONFIG_ROWS; i++)
        KVF_TRY(read_row(c, &kvf__config_rows[i], table, desc));
    KVF_TRY(kvf__config_derive(c, desc));
    if (types && types->rank == 2) desc->types = types->dim[0];
    if (desc->V == KVF__DERIVED) desc->V = tokens && tokens->rank == 2 ? tokens->dim[0] : 0;
    return desc->V ? check_head_sizes(c, desc) : kvf__config_missing(c, "vocab_size");
}

/* Adds the ends of a text, of a turn and of a message. */
static void add_ends(const kvf__config *c, kvf__desc *desc)
{
    kvf__ends_add(&desc->ids.ends, desc->ids.eos);
    kvf__ends_add(&desc->ids.ends, token_id(c, "tokenizer.ggml.eot_token_id"));
    kvf__ends_add(&desc->ids.ends, token_id(c, "tokenizer.ggml.eom_token_id"));
    desc->ids.eos = desc->ids.ends.n ? desc->ids.ends.id[0] : -1;
}

static kvf_status read_factors(const kvf__config *c, kvf__desc *desc)
{
    const kvf__config_keys *keys = desc->arch->keys;
    const bool wide = desc->arch->gguf_wide && desc->L == desc->arch->gguf_wide;
    double cap = 0;

    desc->score_scale = (float)(1 / sqrt(wide ? (double)(desc->C / desc->H) : (double)desc->D));
    if (desc->arch->scaled_embed) desc->factors.embed = (float)sqrt((double)desc->C);
    if (keys->score_cap.name)
        KVF_TRY(kvf__config_real(c, c->root, "attn_logit_softcapping", keys->score_cap.otherwise,
                                 &cap));
    desc->factors.score_cap = (float)cap;
    cap = 0;
    if (keys->logit_cap.name)
        KVF_TRY(kvf__config_real(c, c->root, "final_logit_softcapping", keys->logit_cap.otherwise,
                                 &cap));
    desc->factors.logit_cap = (float)cap;
    KVF_TRY(kvf__config_multipliers(c, desc));
    if (desc->factors.score_cap >= 0 && desc->factors.logit_cap >= 0) return KVF_OK;
    return kvf__fail(c->ctx, KVF_EFORMAT, "%s: caps %g and %g, expected positive numbers", c->where,
                     (double)desc->factors.score_cap, (double)desc->factors.logit_cap);
}

/* Reads whether each layer is local. */
static kvf_status read_pattern(const kvf__config *c, const char *name, const kvf_json *list,
                               kvf__desc *desc)
{
    KVF_TRY(kvf__config_covers(c, name, list, desc));
    for (int64_t l = 0; l < desc->L && l < KVF__MOST_LAYERS; l++)
        if (!kvf_json_bool(kvf_json_at(list, (size_t)l), true))
            kvf__layers_mark(desc->position.global, l);
    return KVF_OK;
}

/* Applies the family's rules; a file may override the period of global layers, or list them. */
static kvf_status read_local_layers(const kvf__config *c, kvf__desc *desc)
{
    char full[KVF__NAME_BYTES];
    const kvf_json *value = find(c, "attention.sliding_window_pattern", full);
    int64_t every = desc->arch->keys->local.global_every;

    const bool listed = every && kvf_json_typeof(value) == KVF_JSON_ARRAY;
    if (listed) KVF_TRY(read_pattern(c, full, value, desc));
    if (value && every && !listed) KVF_TRY(kvf__config_count(c, full, value, &every));
    if (!listed) kvf__config_local(desc, every, 0);
    kvf__config_no_rope(desc, desc->arch->keys->no_rope.n); /* llama.cpp has no key for it */
    /* Granite's switch of rope */
    value = find(c, "rope.scaling.finetuned", full);
    if (desc->arch->keys->multipliers && !kvf_json_bool(value, true)) kvf__config_no_rope(desc, 1);
    return KVF_OK;
}

/* Reads T5, an encoder-decoder with a relative bias. Rows may be longer than in pretraining. */
static kvf_status read_encoder_decoder(const kvf__config *c, const kvf__table *table,
                                       kvf__desc *desc)
{
    char full[KVF__NAME_BYTES];
    const kvf_json *value = find(c, "decoder_block_count", full);
    int64_t blocks = desc->L;

    if (!desc->arch->keys->decoder_layers) return KVF_OK;
    if (value) KVF_TRY(kvf__config_count(c, full, value, &blocks));
    desc->ids.start = token_id(c, kvf__config_name(c, "decoder_start_token_id", full));
    KVF_TRY(kvf__config_stacks(c, desc, blocks));
    desc->block.gated = kvf__table_find(table, "enc.blk.0.ffn_gate.weight");
    if (desc->block.gated) desc->block.act = KVF__GELU_TANH;
    desc->position.max = desc->arch->keys->positions.otherwise;
    desc->score_scale = 1;
    return kvf__config_bias(c, desc);
}

static kvf_status read_all(const kvf__config *c, const kvf__table *table, kvf__desc *desc)
{
    double eps;

    const bool rms = desc->block.norm == KVF__RMSNORM, rope = desc->position.kind == KVF__POS_ROPE;

    KVF_TRY(refuse_unsupported(c, desc));
    KVF_TRY(read_rows(c, table, desc));
    KVF_TRY(kvf__config_real(
        c, c->root, rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon", NAN,
        &eps));
    desc->norm_eps = (float)eps;
    desc->tied = !kvf__table_find(table, "output.weight");
    KVF_TRY(read_factors(c, desc));
    KVF_TRY(read_encoder_decoder(c, table, desc));
    KVF_TRY(desc->arch->keys->mixer ? kvf__config_mixer(c, desc) : read_local_layers(c, desc));
    KVF_TRY(kvf__desc_finish_layers(c->ctx, c->where, desc));
    add_ends(c, desc);
    if (rope) KVF_TRY(read_rope(c, desc));
    KVF_TRY(kvf__desc_check(c->ctx, c->where, desc));
    if (rope) KVF_TRY(read_divisors(c, table, "rope_freqs.weight", desc));
    if (rope) KVF_TRY(read_long(c, table, desc));
    return rope ? kvf__rope_init(c->ctx, desc) : KVF_OK;
}

kvf_status kvf__desc_from_gguf(kvf_ctx *ctx, const char *where, const kvf_json *root,
                               const kvf__table *table, kvf__desc *out)
{
    const char *name = kvf_json_str(kvf_json_get(root, "general.architecture"), NULL);
    const kvf__config c = {ctx, where, root, name};
    char key[KVF__NAME_BYTES];
    const bool local = name && find(&c, "attention.sliding_window", key);
    const kvf__arch *arch = name ? kvf__arch_by_gguf(name, local) : NULL;
    kvf__desc desc = {.gguf = true};
    char list[KVF__ARCH_LIST_BYTES];

    if (!name) return kvf__fail(ctx, KVF_EFORMAT, "%s: general.architecture is missing", where);
    if (!arch)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: general.architecture \"%.60s\" is not supported in a GGUF (%s are)",
                         where, name, kvf__arch_list(list, true));
    kvf__desc_from_arch(arch, &desc);
    kvf_status st = read_all(&c, table, &desc);
    KVF__GIVE(st, out, desc, kvf__desc_done(&desc));
    return st;
}
