/* From config.json of a Hugging Face folder to a description.
 *
 * Both generations of the file are read: rope_theta and rope_scaling of transformers 4,
 * rope_parameters of 5, with the precedence of transformers 5 (modeling_rope_utils.py). Unsupported
 * settings that would change results are refused by key and value, never skipped. Dropouts and
 * initializer_range are read for trained heads and adapters; the base itself does not use them. */
#include "config_keys.h"

#include <math.h>
#include <string.h>

/* ---- token ids ------------------------------------------------------------------------------ */

/* Absent, null, -1 and an empty list mean none; the first of a list (several end tokens) counts. */
static kvf_status get_id(const kvf__config *c, const char *key, int32_t *out)
{
    const kvf_json *value = kvf_json_get(c->root, key), *one = value;
    kvf_json_type type = kvf_json_typeof(value);

    *out = -1;
    if (type == KVF_JSON_ARRAY) one = kvf_json_at(value, 0);
    type = kvf_json_typeof(one);
    if (type == KVF_JSON_NONE || type == KVF_JSON_NULL) return KVF_OK;
    int64_t id = kvf_json_int(one, INT64_MIN);
    if (id < -1 || id > INT32_MAX) return kvf__config_bad(c, KVF_EFORMAT, key, value, "a token id");
    *out = (int32_t)id;
    return KVF_OK;
}

/* Reads one id or a list, of limited length so that ids of tokenizer and chat template have
 * room. */
static kvf_status read_ends(const kvf__config *c, const kvf_json *value, kvf__ends *out)
{
    const size_t n = kvf_json_typeof(value) == KVF_JSON_ARRAY ? kvf_json_size(value) : 1;
    kvf__ends ends = {0};

    for (size_t i = 0; i < n; i++) {
        const kvf_json *one = kvf_json_typeof(value) == KVF_JSON_ARRAY ? kvf_json_at(value, i)
                                                                       : value;
        const int64_t id = kvf_json_int(one, INT64_MIN);
        if (id < -1 || id > INT32_MAX || ends.n + 2 >= KVF__MOST_ENDS)
            return kvf__config_bad(c, KVF_EFORMAT, "eos_token_id", value,
                                   "a token id or a list of at most 30");
        kvf__ends_add(&ends, (int32_t)id);
    }
    *out = ends;
    return KVF_OK;
}

kvf_status kvf__desc_set_ends(kvf_ctx *ctx, const char *where, const kvf_json *root,
                              kvf__desc *desc)
{
    const kvf__config c = {.ctx = ctx, .where = where, .root = root};
    const kvf_json *value = kvf_json_get(root, "eos_token_id");
    const kvf_json_type type = kvf_json_typeof(value);
    int32_t forced;

    KVF_TRY(get_id(&c, "forced_bos_token_id", &forced));
    if (forced >= 0) desc->ids.forced = forced;
    if (type == KVF_JSON_NONE || type == KVF_JSON_NULL) return KVF_OK;
    return read_ends(&c, value, &desc->ids.ends);
}

/* ---- parts ----------------------------------------------------------------------------------- */

static kvf_status find_arch(const kvf__config *c, const kvf__arch **out)
{
    const kvf_json *model_type = kvf_json_get(c->root, "model_type");
    const char *name = kvf_json_str(model_type, NULL);
    char list[KVF__ARCH_LIST_BYTES];

    if (kvf_json_typeof(c->root) != KVF_JSON_OBJECT)
        return kvf__fail(c->ctx, KVF_EFORMAT, "%s: not a JSON object", c->where);
    if (name) {
        *out = kvf__arch_by_model_type(name);
    } else {
        name = kvf_json_str(kvf_json_at(kvf_json_get(c->root, "architectures"), 0), NULL);
        if (!name) return kvf__fail(c->ctx, KVF_EFORMAT, "%s: model_type is missing", c->where);
        *out = kvf__arch_by_class(name);
    }
    if (*out) return KVF_OK;
    return kvf__fail(c->ctx, KVF_EUNSUPPORTED,
                     "%s: architecture \"%.60s\" is not supported (%s are)", c->where, name,
                     kvf__arch_list(list, false));
}

/* Refuses keys that change the computation in unsupported ways. */
static kvf_status refuse_unsupported(const kvf__config *c, const kvf__desc *desc)
{
    const bool causal = desc->block.causal, two = desc->arch->keys->decoder_layers != NULL;
    /* is_decoder makes an encoder causal; decoders store it without effect. */
    static const char *const must_be_false[] = {"is_encoder_decoder", "add_cross_attention",
                                                "use_bidirectional_attention", "is_decoder"};
    static const char *const must_be_absent[] = {"quantization_config", "compression_config"};

    for (size_t i = two; i < sizeof must_be_false / sizeof *must_be_false - causal; i++) {
        bool on;
        const char *word = kvf_json_str(kvf_json_get(c->root, must_be_false[i]), NULL);
        if (word && !strcmp(word, "vision")) continue; /* for image tokens only */
        KVF_TRY(kvf__config_switch(c, must_be_false[i], false, &on));
        if (on)
            return kvf__fail(c->ctx, KVF_EUNSUPPORTED, "%s: %s is true, which is not supported",
                             c->where, must_be_false[i]);
    }
    for (size_t i = 0; i < sizeof must_be_absent / sizeof *must_be_absent; i++) {
        const kvf_json *value = kvf_json_get(c->root, must_be_absent[i]);
        if (kvf_json_typeof(value) != KVF_JSON_NONE && kvf_json_typeof(value) != KVF_JSON_NULL)
            return kvf__config_bad(c, KVF_EUNSUPPORTED, must_be_absent[i], value,
                                   "no quantised weights (use a GGUF or the float original)");
    }
    const kvf_json *positions = kvf_json_get(c->root, "position_embedding_type");
    if (desc->arch->keys->no_rope.type) return KVF_OK; /* another meaning */
    const char *kind = positions ? kvf_json_str(positions, NULL) : "absolute";
    if (!kind || strcmp(kind, "absolute"))
        return kvf__config_bad(c, KVF_EUNSUPPORTED, "position_embedding_type", positions,
                               "\"absolute\"");
    return KVF_OK;
}

/* Reads the list of local layers. */
static kvf_status read_layer_types(const kvf__config *c, const kvf_json *types, kvf__desc *desc)
{
    for (size_t i = 0; i < kvf_json_size(types); i++) {
        const char *type = kvf_json_str(kvf_json_at(types, i), NULL);
        const bool full = type && (!strcmp(type, "full_attention") || !strcmp(type, "attention"));
        if (!full && !desc->arch->keys->sliding_window.names[0])
            return kvf__config_bad(c, KVF_EUNSUPPORTED, "layer_types", kvf_json_at(types, i),
                                   "\"full_attention\" in every layer");
        if (!full && (!type || strcmp(type, "sliding_attention") || !desc->position.window))
            return kvf__config_bad(c, KVF_EUNSUPPORTED, "layer_types", kvf_json_at(types, i),
                                   "\"full_attention\", or with a window \"sliding_attention\"");
        if (full && i < KVF__MOST_LAYERS) kvf__layers_mark(desc->position.global, (int64_t)i);
    }
    const bool needed = desc->position.window || desc->arch->keys->no_defaults;
    return needed ? kvf__config_covers(c, "layer_types", types, desc) : KVF_OK;
}

/* Applies the family's rule for local layers. */
static kvf_status read_local_layers(const kvf__config *c, kvf__desc *desc)
{
    const kvf__config_keys *keys = desc->arch->keys;
    const kvf_json *types = kvf_json_get(c->root, "layer_types");
    double every = (double)keys->local.global_every, first = 0;

    if (keys->local.two_sided) desc->position.window = desc->position.window / 2 + 1;
    if (kvf_json_typeof(types) == KVF_JSON_ARRAY) return read_layer_types(c, types, desc);
    if (keys->no_defaults) return kvf__config_missing(c, "layer_types");
    if (keys->local.pattern)
        KVF_TRY(kvf__config_real(c, c->root, keys->local.pattern, every, &every));
    if (keys->local.first) KVF_TRY(kvf__config_real(c, c->root, keys->local.first, 28, &first));
    if (every < 0 || every > KVF__MOST_LAYERS || first < 0 || first > KVF__MOST_LAYERS)
        return kvf__fail(
            c->ctx, KVF_EFORMAT,
            "%s: every %gth layer is global and local layers start at %g, which is not supported",
            c->where, every, first);
    kvf__config_local(desc, (int64_t)every, (int64_t)first);
    return KVF_OK;
}

/* Reads the layers without rope. */
static kvf_status read_no_rope(const kvf__config *c, kvf__desc *desc)
{
    const kvf__config_keys *keys = desc->arch->keys;
    const kvf_json *list = keys->no_rope.list ? kvf_json_get(c->root, keys->no_rope.list) : NULL;
    double every;

    if (keys->no_rope.type) {
        const char *type = kvf_json_str(kvf_json_get(c->root, keys->no_rope.type), NULL);
        if (!type || strcmp(type, "rope") != 0) kvf__config_no_rope(desc, 1);
    }
    if (!keys->no_rope.list) return KVF_OK;
    if (kvf_json_typeof(list) != KVF_JSON_ARRAY) {
        KVF_TRY(kvf__config_real(c, c->root, keys->no_rope.every, (double)keys->no_rope.n, &every));
        if (every < 1 || every > INT32_MAX)
            return kvf__config_bad(c, KVF_EFORMAT, keys->no_rope.every,
                                   kvf_json_get(c->root, keys->no_rope.every),
                                   "a positive integer");
        kvf__config_no_rope(desc, (int64_t)every);
        return KVF_OK;
    }
    KVF_TRY(kvf__config_covers(c, keys->no_rope.list, list, desc));
    for (int64_t l = 0; l < desc->L && l < KVF__MOST_LAYERS; l++)
        if (!kvf_json_int(kvf_json_at(list, (size_t)l), 1))
            kvf__layers_mark(desc->position.no_rope, l);
    return KVF_OK;
}

/* Absent: the family's default; null: none. */
static kvf_status read_cap(const kvf__config *c, const kvf__config_number *key, float *out)
{
    const kvf_json *value = key->name ? kvf_json_get(c->root, key->name) : NULL;
    double cap = 0;

    if (!key->name) return KVF_OK;
    if (kvf_json_typeof(value) != KVF_JSON_NULL)
        KVF_TRY(kvf__config_real(c, c->root, key->name, key->otherwise, &cap));
    if (cap < 0) return kvf__config_bad(c, KVF_EFORMAT, key->name, value, "a positive number");
    *out = (float)cap;
    return KVF_OK;
}

/* Checks sizes that could differ between the stacks of a family, but must not here. */
static kvf_status check_alike(const kvf__config *c, const kvf__pair *pair)
{
    for (; pair && pair->first; pair++) {
        const kvf_json *a = kvf_json_get(c->root, pair->first);
        const kvf_json *b = kvf_json_get(c->root, pair->second);
        if (a && b && kvf_json_int(a, -1) != kvf_json_int(b, -2))
            return kvf__fail(c->ctx, KVF_EUNSUPPORTED,
                             "%s: %s is %lld and %s is %lld: stacks of different sizes are not "
                             "supported",
                             c->where, pair->first, (long long)kvf_json_int(a, -1), pair->second,
                             (long long)kvf_json_int(b, -2));
    }
    return KVF_OK;
}

static kvf_status read_stacks(const kvf__config *c, kvf__desc *desc)
{
    const char *key = desc->arch->keys->decoder_layers;
    const kvf_json *value = key ? kvf_json_get(c->root, key) : NULL;
    int64_t blocks = desc->L;

    if (!key) return KVF_OK;
    KVF_TRY(check_alike(c, desc->arch->keys->alike));
    if (kvf_json_typeof(value) > KVF_JSON_NULL) KVF_TRY(kvf__config_count(c, key, value, &blocks));
    KVF_TRY(get_id(c, "decoder_start_token_id", &desc->ids.start));
    KVF_TRY(kvf__config_stacks(c, desc, blocks));
    if (desc->ids.forced < desc->V) return KVF_OK;
    return kvf__fail(c->ctx, KVF_EFORMAT,
                     "%s: forced_bos_token_id is %ld, but the vocabulary has %lld tokens", c->where,
                     (long)desc->ids.forced, (long long)desc->V);
}

static kvf_status read_factors(const kvf__config *c, kvf__desc *desc)
{
    const kvf__config_keys *keys = desc->arch->keys;
    double scalar = (double)desc->D;

    bool scaled = desc->arch->scaled_embed;
    if (keys->embed_scaled) KVF_TRY(kvf__config_switch(c, keys->embed_scaled, scaled, &scaled));
    if (scaled) desc->factors.embed = (float)sqrt((double)desc->C);
    KVF_TRY(read_cap(c, &keys->score_cap, &desc->factors.score_cap));
    KVF_TRY(read_cap(c, &keys->logit_cap, &desc->factors.logit_cap));
    if (!keys->query_scalar.name) return KVF_OK;
    KVF_TRY(kvf__config_real(c, c->root, keys->query_scalar.name, keys->query_scalar.otherwise,
                             &scalar));
    if (!(scalar > 0))
        return kvf__config_bad(c, KVF_EFORMAT, keys->query_scalar.name,
                               kvf_json_get(c->root, keys->query_scalar.name), "a positive number");
    desc->score_scale = (float)(1 / sqrt(scalar));
    return KVF_OK;
}

static kvf_status check_fixed(const kvf__config *c, const kvf__config_keys *keys)
{
    const kvf__pair *pair = keys->fixed;
    kvf_status st = KVF_OK;

    for (; !st && pair && pair->first; pair++) {
        const kvf_json *value = kvf_json_get(c->root, pair->first);
        char *text = value ? kvf_json_text(value, KVF_JSON_COMPACT) : NULL;
        if (!value && keys->no_defaults) st = kvf__config_missing(c, pair->first);
        if (text && strcmp(text, pair->second) != 0)
            st = kvf__config_bad(c, KVF_EUNSUPPORTED, pair->first, value, pair->second);
        kvf_json_text_free(text);
    }
    return st;
}

static kvf_status read_activation(const kvf__config *c, kvf__desc *desc)
{
    const char *key = desc->arch->keys->act;
    const kvf_json *value = kvf_json_get(c->root, key);
    const char *name = value ? kvf_json_str(value, NULL) : desc->arch->act_name;

    const bool gated = desc->arch->act_says_gated && name && !strncmp(name, "gated-", 6);
    if (gated) {
        desc->block.gated = true;
        name += 6;
    }
    for (size_t i = 0; name && i < KVF__ACT_NAMES; i++) {
        if (strcmp(kvf__act_names[i].name, name)) continue;
        desc->block.act = kvf__act_names[i].fn;
        if ((desc->arch->gelu_is_new || gated) && !strcmp(name, "gelu"))
            desc->block.act = KVF__GELU_TANH;
        return KVF_OK;
    }
    return kvf__config_bad(c, KVF_EUNSUPPORTED, key, value,
                           "silu, gelu, gelu_new, gelu_pytorch_tanh, relu or quick_gelu");
}

static kvf_status read_switches(const kvf__config *c, kvf__desc *desc)
{
    bool scale = true;

    KVF_TRY(kvf__config_switch(c, "tie_word_embeddings", desc->arch->tied, &desc->tied));
    if (desc->arch->score_flags) {
        KVF_TRY(kvf__config_switch(c, "scale_attn_weights", true, &scale));
        KVF_TRY(
            kvf__config_switch(c, "scale_attn_by_inverse_layer_idx", false, &desc->score_by_layer));
    }
    if (desc->position.kind == KVF__POS_BIAS) scale = false;
    desc->score_scale = scale ? (float)(1 / sqrt((double)desc->D)) : 1;
    return KVF_OK;
}

/* Reads positions of a table whose first rows belong to the padding. */
static kvf_status read_pad_positions(const kvf__config *c, kvf__desc *desc)
{
    if (!desc->arch->pad_positions) return KVF_OK;
    if (!kvf_json_get(c->root, "pad_token_id")) desc->ids.pad = desc->arch->pad;
    if (desc->ids.pad < 0 || desc->ids.pad + 1 >= desc->position.max)
        return kvf__fail(
            c->ctx, KVF_EFORMAT,
            "%s: pad_token_id is %ld, expected 0 to %lld, because positions start after it",
            c->where, (long)desc->ids.pad, (long long)desc->position.max - 2);
    desc->position.pad = desc->ids.pad;
    desc->position.first = desc->ids.pad + 1;
    desc->position.max -= desc->position.first;
    return KVF_OK;
}

/* ---- whole ----------------------------------------------------------------------------------- */

static kvf_status read_rate(const kvf__config *c, const kvf__config_number *key, double *out)
{
    return key->name ? kvf__config_real(c, c->root, key->name, key->otherwise, out) : KVF_OK;
}

/* Reads keys for heads trained on this base. BERT's key for the hidden dropout ends in _prob; token
 * heads of GPT-2 and Llama use the other name. */
static kvf_status read_head_keys(const kvf__config *c, kvf__desc *desc)
{
    double prob;

    const kvf__config_keys *keys = desc->arch->keys;
    kvf__dropouts *to = &desc->dropout;

    KVF_TRY(kvf__config_real(c, c->root, "classifier_dropout", keys->decoder_layers ? 0 : -1,
                             &to->classifier));
    KVF_TRY(kvf__config_real(c, c->root, "hidden_dropout_prob", -1, &prob));
    KVF_TRY(kvf__config_real(c, c->root,
                             keys->hidden_dropout ? keys->hidden_dropout : "hidden_dropout", prob,
                             &to->hidden));
    KVF_TRY(read_rate(c, &keys->pooled, &to->pooled));
    KVF_TRY(read_rate(c, &keys->qa, &to->qa));
    KVF_TRY(read_rate(c, &keys->attention_dropout, &to->attention));
    const char *pooling = kvf_json_str(kvf_json_get(c->root, "classifier_pooling"), NULL);
    desc->mean_pooled = pooling && !strcmp(pooling, "mean");
    return kvf__config_real(c, c->root, keys->init_std ? keys->init_std : "initializer_range", 0,
                            &desc->initializer_range);
}

static kvf_status read_row(const kvf__config *c, const kvf__config_row *row, kvf__desc *desc)
{
    void *out = (char *)desc + row->field;

    if (row->kind == KVF__CONFIG_SIZE) return kvf__config_size(c, desc, row, out);
    if (row->kind == KVF__CONFIG_TOKEN) return get_id(c, row->name, out);
    const char *name = kvf__hf_name(desc, row->hf);
    return name ? kvf__config_switch(c, name, *(bool *)out, out) : KVF_OK;
}

/* A ...ForSequenceClassification, or a model saved by AutoModel, has no language-model head matrix
 * unless it is the embedding. */
static bool is_headless(const kvf__config *c, const kvf__desc *desc)
{
    static const char *const TASKS[] = {"ForSequenceClassification", "ForTokenClassification",
                                        "ForQuestionAnswering", "Model"};
    const kvf_json *classes = kvf_json_get(c->root, "architectures");
    const char *name = kvf_json_str(kvf_json_at(classes, 0), NULL);

    for (size_t i = 0; name && !desc->tied && i < sizeof TASKS / sizeof *TASKS; i++) {
        const size_t n = strlen(name), tail = strlen(TASKS[i]);
        if (n > tail && !strcmp(name + n - tail, TASKS[i])) return !strstr(name, "LMHead");
    }
    return false;
}

static kvf_status read_all(const kvf__config *c, kvf__desc *desc)
{
    KVF_TRY(refuse_unsupported(c, desc));
    KVF_TRY(check_fixed(c, desc->arch->keys));
    for (int i = 0; i < KVF__CONFIG_ROWS; i++)
        KVF_TRY(read_row(c, &kvf__config_rows[i], desc));
    KVF_TRY(kvf__desc_set_ends(c->ctx, c->where, c->root, desc));
    KVF_TRY(kvf__config_derive(c, desc));
    KVF_TRY(read_stacks(c, desc));
    KVF_TRY(read_activation(c, desc));
    KVF_TRY(read_switches(c, desc));
    desc->headless = is_headless(c, desc);
    const kvf__config_keys *keys = desc->arch->keys;
    double eps = keys->eps_otherwise;
    if (keys->eps) KVF_TRY(kvf__config_real(c, c->root, keys->eps, eps, &eps));
    KVF_TRY(keys->mixer ? kvf__config_mixer(c, desc) : read_local_layers(c, desc));
    KVF_TRY(read_no_rope(c, desc));
    KVF_TRY(kvf__config_layers(c, desc));
    KVF_TRY(read_factors(c, desc));
    desc->norm_eps = (float)eps;
    KVF_TRY(kvf__config_multipliers(c, desc));
    KVF_TRY(read_head_keys(c, desc));
    KVF_TRY(read_pad_positions(c, desc));
    if (desc->position.kind == KVF__POS_RELATIVE) KVF_TRY(kvf__config_relative(c, desc));
    if (desc->position.kind == KVF__POS_BIAS) KVF_TRY(kvf__config_bias(c, desc));
    if (desc->position.kind == KVF__POS_ROPE) KVF_TRY(kvf__config_rope(c, desc));
    KVF_TRY(kvf__desc_finish_layers(c->ctx, c->where, desc));
    KVF_TRY(kvf__desc_check(c->ctx, c->where, desc));
    if (desc->position.kind == KVF__POS_ROPE) KVF_TRY(kvf__rope_init(c->ctx, desc));
    return KVF_OK;
}

/* Returns the config of the text model inside a multimodal one, whose towers are ignored. */
static const kvf_json *text_config(const kvf_json *root)
{
    const char *name = kvf_json_str(kvf_json_get(root, "model_type"), NULL);
    const kvf_json *text = kvf_json_get(root, "text_config");
    const bool inside = name && kvf__arch_inside(name);

    return inside && kvf_json_typeof(text) == KVF_JSON_OBJECT ? text : root;
}

kvf_status kvf__desc_from_hf(kvf_ctx *ctx, const char *where, const kvf_json *root, kvf__desc *out)
{
    const kvf__config c = {.ctx = ctx, .where = where, .root = text_config(root)};
    const kvf__arch *arch = NULL;
    kvf__desc desc = {0};

    kvf_status st = find_arch(&c, &arch);
    if (st) goto out;
    kvf__desc_from_arch(arch, &desc);
    st = read_all(&c, &desc);
    if (!st && c.root != root) st = kvf__desc_set_ends(ctx, where, root, &desc);
    if (st) goto out;
    *out = desc;
    desc = (kvf__desc){0};
out:
    kvf__desc_done(&desc);
    return st;
}
