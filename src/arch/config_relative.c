/* Relative positions of a config.json. For DeBERTa (configuration_deberta_v2.py) only the settings
 * of the published v2 and v3 models are supported; others are refused. For T5 (configuration_t5.py)
 * the buckets of its bias. */
#include "config_keys.h"

#include <math.h>
#include <string.h>

/* Checks that a key has the supported value; absent: transformers' default. */
static kvf_status want_switch(const kvf__config *c, const char *key, bool otherwise, bool want)
{
    bool on;

    KVF_TRY(kvf__config_switch(c, key, otherwise, &on));
    if (on == want) return KVF_OK;
    return kvf__fail(c->ctx, KVF_EUNSUPPORTED, "%s: %s is %s, only %s is supported", c->where, key,
                     on ? "true" : "false", want ? "true" : "false");
}

/* Searches a list of names, or one text with bars between them. */
static bool has_name(const kvf_json *value, const char *name)
{
    const char *text = kvf_json_str(value, NULL);
    bool found = text && strstr(text, name);

    for (size_t i = 0; i < kvf_json_size(value); i++) {
        const char *one = kvf_json_str(kvf_json_at(value, i), NULL);
        found = found || (one && !strcmp(one, name));
    }
    return found;
}

static kvf_status want_names(const kvf__config *c, const char *key, const char *first,
                             const char *second, const char *expected)
{
    const kvf_json *value = kvf_json_get(c->root, key);

    if (has_name(value, first) && (!second || has_name(value, second))) return KVF_OK;
    if (!value)
        return kvf__fail(c->ctx, KVF_EUNSUPPORTED, "%s: %s is missing, expected %s", c->where, key,
                         expected);
    return kvf__config_bad(c, KVF_EUNSUPPORTED, key, value, expected);
}

/* Reads a number that means none below 1. */
static kvf_status read_size(const kvf__config *c, const char *key, int64_t *out)
{
    double value;

    KVF_TRY(kvf__config_real(c, c->root, key, -1, &value));
    *out = value >= 1 && value <= INT32_MAX / 2 ? (int64_t)value : 0;
    return KVF_OK;
}

static kvf_status want_none(const kvf__config *c, const char *key, int64_t allowed)
{
    int64_t size;

    KVF_TRY(read_size(c, key, &size));
    if (!size || size == allowed) return KVF_OK;
    return kvf__fail(c->ctx, KVF_EUNSUPPORTED, "%s: %s is %lld, which is not supported", c->where,
                     key, (long long)size);
}

kvf_status kvf__config_relative(const kvf__config *c, kvf__desc *desc)
{
    kvf__relative *relative = &desc->position.relative;
    int64_t buckets;

    KVF_TRY(want_switch(c, "relative_attention", false, true));
    KVF_TRY(want_switch(c, "position_biased_input", true, false));
    KVF_TRY(want_switch(c, "share_att_key", false, true));
    KVF_TRY(want_names(c, "pos_att_type", "c2p", "p2c", "c2p and p2c"));
    KVF_TRY(want_names(c, "norm_rel_ebd", "layer_norm", NULL, "\"layer_norm\""));
    KVF_TRY(want_none(c, "conv_kernel_size", 0));
    KVF_TRY(want_none(c, "type_vocab_size", 0));
    KVF_TRY(want_none(c, "embedding_size", desc->C));
    KVF_TRY(want_none(c, "attention_head_size", desc->D));
    KVF_TRY(read_size(c, "max_relative_positions", &relative->farthest));
    KVF_TRY(read_size(c, "position_buckets", &buckets));
    if (!relative->farthest) relative->farthest = desc->position.max;
    relative->logarithmic = buckets > 0;
    relative->span = buckets ? buckets : relative->farthest;
    if (buckets && (buckets < 4 || relative->farthest - 1 <= buckets / 2))
        return kvf__fail(c->ctx, KVF_EFORMAT,
                         "%s: position_buckets is %lld for distances up to %lld, expected at least "
                         "4 and less than twice the distance",
                         c->where, (long long)buckets, (long long)relative->farthest);
    desc->score_scale = (float)(1 / sqrt(3 * (double)desc->D));
    return KVF_OK;
}

kvf_status kvf__config_bias(const kvf__config *c, kvf__desc *desc)
{
    double buckets, farthest;
    bool tied, scales;

    const char *count = c->gguf ? "attention.relative_buckets_count"
                                : "relative_attention_num_buckets";

    KVF_TRY(kvf__config_real(c, c->root, count, 32, &buckets));
    /* not a key of a GGUF */
    KVF_TRY(kvf__config_real(c, c->root, "relative_attention_max_distance", 128, &farthest));
    const int64_t span = buckets >= 4 && buckets <= 1 << 16 ? (int64_t)buckets / 2 : 0;
    if (!span || buckets != (double)(2 * span) || !(farthest > (double)span) ||
        !(farthest <= 1 << 20))
        return kvf__fail(c->ctx, KVF_EFORMAT,
                         "%s: relative_attention_num_buckets is %g for distances up to %g, "
                         "expected an even number, at least 4 and less than twice the distance",
                         c->where, buckets, farthest);
    desc->position.relative = (kvf__relative){
        .span = span, .farthest = (int64_t)farthest, .logarithmic = true};
    KVF_TRY(kvf__config_switch(c, "tie_word_embeddings", !c->gguf || desc->tied, &tied));
    KVF_TRY(kvf__config_switch(c, "scale_decoder_outputs", tied, &scales));
    if (scales) desc->factors.head = (float)(1 / sqrt((double)desc->C));
    return KVF_OK;
}
