/* Rotary positions of a config.json: the kind of scaling and its numbers.
 *
 * Transformers 4 writes rope_theta and rope_scaling, 5 writes rope_parameters; the rules for both
 * are those of transformers 5 (modeling_rope_utils.py). Scalings that depend on the current text
 * length would change the keys of a stored prefix. So dynamic is refused, and longrope (arXiv
 * 2402.13753) uses the divisors for its original length, with no positions beyond it. */
#include "config_keys.h"

#include <math.h>
#include <string.h>

static kvf_status read_llama3(const kvf__config *c, const kvf_json *dict, kvf__rope *rope)
{
    KVF_TRY(kvf__config_real(c, dict, "factor", NAN, &rope->factor));
    KVF_TRY(kvf__config_real(c, dict, "low_freq_factor", NAN, &rope->low_freq_factor));
    KVF_TRY(kvf__config_real(c, dict, "high_freq_factor", NAN, &rope->high_freq_factor));
    if (!(rope->low_freq_factor > 0) || !(rope->high_freq_factor > rope->low_freq_factor))
        return kvf__fail(c->ctx, KVF_EFORMAT,
                         "%s: rope low_freq_factor %g and high_freq_factor %g, expected "
                         "0 < low < high",
                         c->where, rope->low_freq_factor, rope->high_freq_factor);
    return KVF_OK;
}

static kvf_status read_yarn(const kvf__config *c, const kvf_json *dict, kvf__desc *desc)
{
    kvf__rope *rope = &desc->position.rope;
    double ratio = (double)desc->position.max / rope->original, mscale, mscale_all;
    const kvf_json *truncate = kvf_json_get(dict, "truncate");

    KVF_TRY(kvf__config_real(c, dict, "factor", ratio, &rope->factor));
    KVF_TRY(kvf__config_real(c, dict, "beta_fast", 32, &rope->beta_fast));
    KVF_TRY(kvf__config_real(c, dict, "beta_slow", 1, &rope->beta_slow));
    KVF_TRY(kvf__config_real(c, dict, "mscale", 0, &mscale));
    KVF_TRY(kvf__config_real(c, dict, "mscale_all_dim", 0, &mscale_all));
    /* Zero counts as absent, as in the reference. */
    if (rope->beta_fast == 0) rope->beta_fast = 32;
    if (rope->beta_slow == 0) rope->beta_slow = 1;
    if (rope->beta_fast < 0 || rope->beta_slow < 0)
        return kvf__fail(c->ctx, KVF_EFORMAT,
                         "%s: rope beta_fast %g and beta_slow %g, expected "
                         "positive numbers",
                         c->where, rope->beta_fast, rope->beta_slow);
    rope->truncate = kvf_json_bool(truncate, true);
    /* transformers 4 replaced the factor by the ratio, 5 keeps it. If they differ, a model trained
     * with one version is wrong under the other, so the user is told which rule applies. */
    if (ratio != rope->factor && ratio != 1)
        kvf__log(c->ctx, KVF_LOG_WARN,
                 "%s: rope factor %g differs from max_position_embeddings / "
                 "original_max_position_embeddings = %g; the factor is used",
                 c->where, rope->factor, ratio);
    double recommended = kvf__yarn_mscale(rope->factor, 1);
    if (mscale != 0 && mscale_all != 0)
        recommended = kvf__yarn_mscale(rope->factor, mscale) /
                      kvf__yarn_mscale(rope->factor, mscale_all);
    KVF_TRY(kvf__config_real(c, dict, "attention_factor", recommended, &rope->attention_factor));
    return KVF_OK;
}

/* Reads a divisor for each frequency. */
static kvf_status read_list(const kvf__config *c, const kvf_json *dict, const char *key,
                            kvf__desc *desc)
{
    const kvf_json *list = kvf_json_get(dict, key);
    const int64_t n = desc->position.rotated / 2;

    if (kvf_json_typeof(list) != KVF_JSON_ARRAY || (int64_t)kvf_json_size(list) != n || n < 1)
        return kvf__fail(c->ctx, KVF_EFORMAT, "%s: rope %s: want a list of %lld numbers", c->where,
                         key, (long long)n);
    KVF_TRY(kvf__alloc_array(c->ctx, (size_t)n, sizeof(float), &desc->position.divisors));
    for (int64_t i = 0; i < n; i++) {
        double value = kvf_json_real(kvf_json_at(list, (size_t)i), 0);
        desc->position.divisors[i] = (float)value;
        if (!(desc->position.divisors[i] > 0) || !isfinite(desc->position.divisors[i]))
            return kvf__fail(c->ctx, KVF_EFORMAT,
                             "%s: rope divisor %lld is %g, expected a positive number", c->where,
                             (long long)i, value);
    }
    return KVF_OK;
}

kvf_status kvf__config_long(const kvf__config *c, kvf__desc *desc)
{
    kvf__rope *rope = &desc->position.rope;

    if (!(rope->attention_factor > 0) || rope->original < 1)
        return kvf__fail(c->ctx, KVF_EFORMAT,
                         "%s: longrope with attention factor %g and original length %g, expected "
                         "positive numbers",
                         c->where, rope->attention_factor, rope->original);
    if ((double)desc->position.max > rope->original) desc->position.max = (int64_t)rope->original;
    rope->kind = KVF__ROPE_LONG;
    rope->factor = 1; /* the divisors include it */
    rope->original = 0;
    return KVF_OK;
}

/* Reads the divisors of a GGUF, which replace a rule; with an attention factor that of longrope. */
static kvf_status read_divisors(const kvf__config *c, const kvf_json *dict, kvf__desc *desc)
{
    kvf__rope *rope = &desc->position.rope;

    KVF_TRY(read_list(c, dict, "divisors", desc));
    KVF_TRY(kvf__config_real(c, dict, "attention_factor", 1, &rope->attention_factor));
    rope->original = (double)desc->position.max;
    if (kvf_json_get(dict, "attention_factor")) return kvf__config_long(c, desc);
    rope->original = 0;
    return KVF_OK;
}

/* Without a factor the ratio of the lengths counts. */
static kvf_status read_long(const kvf__config *c, const kvf_json *dict, kvf__desc *desc)
{
    kvf__rope *rope = &desc->position.rope;
    double factor, recommended = 1;

    KVF_TRY(
        kvf__config_real(c, dict, "factor", (double)desc->position.max / rope->original, &factor));
    if (factor > 1) recommended = sqrt(1 + log(factor) / log(rope->original));
    KVF_TRY(kvf__config_real(c, dict, "attention_factor", recommended, &rope->attention_factor));
    KVF_TRY(read_list(c, dict, "short_factor", desc));
    return kvf__config_long(c, desc);
}

static kvf_status check_object(const kvf__config *c, const char *key)
{
    const kvf_json *value = kvf_json_get(c->root, key);
    kvf_json_type type = kvf_json_typeof(value);

    if (type == KVF_JSON_NONE || type == KVF_JSON_NULL || type == KVF_JSON_OBJECT) return KVF_OK;
    return kvf__config_bad(c, KVF_EFORMAT, key, value, "an object or null");
}

/* Returns whether rope is proportional: by name, or by default in some families. */
static bool is_proportional(const kvf_json *dict, const kvf__desc *desc)
{
    const char *type = kvf_json_str(kvf_json_get(dict, "rope_type"), NULL);

    if (!desc->arch->keys->proportional.name) return false;
    return !type || !strcmp(type, "proportional");
}

/* Reads the rotated fraction of a head, in families that support it. */
static kvf_status check_rope_dict(const kvf__config *c, const kvf_json *dict, kvf__desc *desc)
{
    const kvf__config_keys *keys = desc->arch->keys;
    static const char *const nested[] = {"full_attention", "sliding_attention"};
    double partial;

    if (is_proportional(dict, desc)) return KVF_OK;
    for (size_t i = 0; !kvf__config_local_rope(desc) && i < sizeof nested / sizeof *nested; i++)
        if (kvf_json_get(dict, nested[i]))
            return kvf__fail(c->ctx, KVF_EUNSUPPORTED,
                             "%s: rope_parameters.%s: rotary positions by "
                             "layer type are not supported",
                             c->where, nested[i]);
    KVF_TRY(kvf__config_real(c, c->root,
                             keys->rotary.name ? keys->rotary.name : "partial_rotary_factor",
                             keys->rotary.name ? keys->rotary.otherwise : 1, &partial));
    KVF_TRY(kvf__config_real(c, dict, "partial_rotary_factor", partial, &partial));
    if (partial != 1 && (!keys->rotary.name || !(partial > 0) || partial > 1))
        return kvf__fail(c->ctx, KVF_EUNSUPPORTED, "%s: partial_rotary_factor is %g, %s", c->where,
                         partial, keys->rotary.name ? "expected 0 to 1" : "only 1 is supported");
    if (!keys->by_layer) /* else it is given by layer, for whole heads */
        desc->position.rotated = desc->position.local_rotated = (int64_t)((double)desc->D *
                                                                          partial);
    return KVF_OK;
}

/* Reads rope of local layers, from its own dictionary or the family's key. Needs theta of the
 * others. */
static kvf_status read_local(const kvf__config *c, kvf__desc *desc)
{
    const kvf_json *all = kvf_json_get(c->root, "rope_parameters");
    const kvf_json *dict = kvf_json_get(all, "sliding_attention");
    const kvf_json *type = kvf_json_get(dict, "rope_type");
    const char *name = kvf_json_str(type, NULL);
    const char *key = desc->arch->keys->local.theta;
    double theta = desc->position.rope.theta;

    if (type && (!name || strcmp(name, "default")))
        return kvf__config_bad(c, KVF_EUNSUPPORTED, "rope_parameters.sliding_attention.rope_type",
                               type, "\"default\"");
    if (key) KVF_TRY(kvf__config_real(c, c->root, key, 10000, &theta));
    KVF_TRY(kvf__config_real(c, dict, "rope_theta", theta, &desc->position.local_theta));
    if (desc->position.local_theta > 1) return KVF_OK;
    return kvf__fail(c->ctx, KVF_EFORMAT,
                     "%s: rope theta of local layers is %g, expected more than 1", c->where,
                     desc->position.local_theta);
}

static kvf_status read_proportional(const kvf__config *c, const kvf_json *dict, kvf__desc *desc)
{
    const kvf__config_number *key = &desc->arch->keys->proportional;
    kvf__rope *rope = &desc->position.rope;

    rope->kind = KVF__ROPE_PROPORTIONAL;
    rope->original = 0;
    KVF_TRY(kvf__config_real(c, dict, key->name, key->otherwise, &rope->partial));
    if (!(rope->partial > 0) || rope->partial > 1)
        return kvf__fail(c->ctx, KVF_EFORMAT, "%s: %s is %g, expected more than 0, at most 1",
                         c->where, key->name, rope->partial);
    return kvf__config_real(c, dict, "factor", 1, &rope->factor);
}

/* Reads the kind of rope and its numbers. */
static kvf_status read_kind(const kvf__config *c, const kvf_json *dict, kvf__desc *desc)
{
    const kvf_json *type_value = kvf_json_get(dict, "rope_type");
    kvf__rope *rope = &desc->position.rope;

    if (!type_value) type_value = kvf_json_get(dict, "type");
    const char *type = type_value ? kvf_json_str(type_value, NULL) : "default";
    rope->attention_factor = 1;
    if (is_proportional(dict, desc)) return read_proportional(c, dict, desc);
    if (type && !strcmp(type, "default")) {
        rope->kind = KVF__ROPE_DEFAULT;
        rope->original = 0;
        return KVF_OK;
    }
    if (type && !strcmp(type, "linear")) {
        rope->kind = KVF__ROPE_LINEAR;
        rope->original = 0;
        return kvf__config_real(c, dict, "factor", NAN, &rope->factor);
    }
    if (type && !strcmp(type, "llama3")) {
        rope->kind = KVF__ROPE_LLAMA3;
        return read_llama3(c, dict, rope);
    }
    if (type && !strcmp(type, "yarn")) {
        rope->kind = KVF__ROPE_YARN;
        return read_yarn(c, dict, desc);
    }
    if (type && !strcmp(type, "divisors")) return read_divisors(c, dict, desc);
    if (type && (!strcmp(type, "longrope") || !strcmp(type, "su"))) return read_long(c, dict, desc);
    return kvf__config_bad(c, KVF_EUNSUPPORTED, "rope_type", type_value,
                           "default, linear, llama3, yarn or longrope");
}

/* Reads the factor on queries, which counts original lengths. */
static kvf_status read_query_growth(const kvf__config *c, const kvf_json *dict, kvf__desc *desc)
{
    const char *key = desc->arch->keys->query_growth;
    double beta;

    KVF_TRY(kvf__config_real(c, dict, key, NAN, &beta));
    if (beta < 0 || beta > 100 || (beta > 0 && desc->position.rope.kind != KVF__ROPE_YARN))
        return kvf__config_bad(c, KVF_EUNSUPPORTED, key, kvf_json_get(dict, key),
                               "0, or a positive number with rope_type yarn");
    desc->position.query_growth = (float)beta;
    return KVF_OK;
}

/* A non-empty rope_scaling precedes rope_parameters, and theta inside the dictionary precedes theta
 * outside. */
kvf_status kvf__config_rope(const kvf__config *c, kvf__desc *desc)
{
    const kvf_json *dict = kvf_json_get(c->root, "rope_scaling");
    kvf__rope *rope = &desc->position.rope;
    double theta;

    KVF_TRY(check_object(c, "rope_scaling"));
    KVF_TRY(check_object(c, "rope_parameters"));
    if (!kvf_json_size(dict)) dict = kvf_json_get(c->root, "rope_parameters");
    const kvf__config_keys *keys = desc->arch->keys;
    if (kvf__config_local_rope(desc) && kvf_json_get(dict, "full_attention"))
        dict = kvf_json_get(dict, "full_attention");
    KVF_TRY(check_rope_dict(c, dict, desc));
    const char *outside = desc->arch->keys->rope_theta;
    KVF_TRY(kvf__config_real(c, c->root, outside ? outside : "rope_theta",
                             keys->theta_otherwise > 0 ? keys->theta_otherwise : 10000, &theta));
    KVF_TRY(kvf__config_real(c, dict, "rope_theta", theta, &rope->theta));
    if (kvf__config_local_rope(desc)) KVF_TRY(read_local(c, desc));
    KVF_TRY(kvf__config_real(c, dict, "original_max_position_embeddings",
                             (double)desc->position.max, &rope->original));
    KVF_TRY(kvf__config_real(c, c->root, "original_max_position_embeddings", rope->original,
                             &rope->original));
    if (rope->original < 1)
        return kvf__fail(c->ctx, KVF_EFORMAT,
                         "%s: original_max_position_embeddings is %g, "
                         "expected a positive number",
                         c->where, rope->original);
    KVF_TRY(read_kind(c, dict, desc));
    return keys->query_growth ? read_query_growth(c, dict, desc) : KVF_OK;
}
