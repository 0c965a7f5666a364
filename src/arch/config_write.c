/* From a description to config.json, for bases without one: those of a GGUF.
 *
 * The keys are those read by config_hf.c, so transformers reads them too, with one exception. A
 * GGUF has Llama 3's rope divisors as numbers, from which the original rule would not be restored
 * to the last bit. They are written as rope_type "divisors", which other programs reject. The text
 * is read again and compared; a description that a config.json cannot express is refused. */
#include "config_keys.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Returns the number near `about` with the fewest digits whose quotient by `by`, as read, is this
 * float. */
static double plain_of(float value, double about, double by)
{
    double number = about;
    char text[32];

    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, about);
        number = strtod(text, NULL);
        if ((float)(number / by) == value) break;
    }
    return number;
}

static double plain(float value)
{
    return plain_of(value, (double)value, 1);
}

static kvf_json *int_or_null(int64_t value, bool is_there)
{
    return is_there ? kvf_json_new_int(value) : kvf_json_new_null();
}

static void set_row(kvf_json *root, const kvf__desc *d, const kvf__config_row *row)
{
    const void *at = (const char *)d + row->field;
    const char *name = row->name ? row->name : kvf__hf_name(d, row->hf);
    const char *needs = row->needs ? kvf__hf_name(d, row->needs) : NULL;
    kvf_json *value = NULL;

    if (!name) return;
    if (row->kind == KVF__CONFIG_SIZE)
        value = int_or_null(*(const int64_t *)at, *(const int64_t *)at > 0);
    else if (row->kind == KVF__CONFIG_TOKEN)
        value = int_or_null(*(const int32_t *)at, *(const int32_t *)at >= 0);
    else
        value = kvf_json_new_bool(*(const bool *)at);
    if (needs) kvf_json_set(root, needs, kvf_json_new_bool(*(const int64_t *)at > 0));
    kvf_json_set(root, name, value);
}

static void set_rows(kvf_json *root, const kvf__desc *d, kvf__config_kind kind)
{
    for (int i = 0; i < KVF__CONFIG_ROWS; i++)
        if (kvf__config_rows[i].kind == kind) set_row(root, d, &kvf__config_rows[i]);
}

static kvf_json *divisors(const kvf__desc *d)
{
    kvf_json *scaling = kvf_json_object(), *list = kvf_json_array();

    for (int64_t i = 0; i < d->position.rotated / 2; i++)
        kvf_json_add(list, kvf_json_new_real(plain(d->position.divisors[i])));
    kvf_json_set(scaling, "rope_type", kvf_json_new_str("divisors"));
    kvf_json_set(scaling, "divisors", list);
    if (d->position.rope.kind == KVF__ROPE_LONG)
        kvf_json_set(scaling, "attention_factor",
                     kvf_json_new_real(d->position.rope.attention_factor));
    return scaling;
}

/* Writes the kinds of scaling that a GGUF can have. */
static kvf_json *scaling_of(const kvf__desc *d)
{
    const kvf__rope *rope = &d->position.rope;

    if (rope->kind == KVF__ROPE_DEFAULT || rope->kind == KVF__ROPE_LONG)
        return d->position.divisors ? divisors(d) : kvf_json_new_null();
    kvf_json *scaling = kvf_json_object();
    kvf_json_set(scaling, "rope_type",
                 kvf_json_new_str(rope->kind == KVF__ROPE_LINEAR ? "linear" : "yarn"));
    kvf_json_set(scaling, "factor", kvf_json_new_real(rope->factor));
    if (rope->kind != KVF__ROPE_YARN) return scaling;
    kvf_json_set(scaling, "original_max_position_embeddings", kvf_json_new_real(rope->original));
    kvf_json_set(scaling, "beta_fast", kvf_json_new_real(rope->beta_fast));
    kvf_json_set(scaling, "beta_slow", kvf_json_new_real(rope->beta_slow));
    kvf_json_set(scaling, "attention_factor", kvf_json_new_real(rope->attention_factor));
    if (d->arch->keys->query_growth)
        kvf_json_set(scaling, d->arch->keys->query_growth,
                     kvf_json_new_real(plain(d->position.query_growth)));
    kvf_json_set(scaling, "truncate", kvf_json_new_bool(rope->truncate));
    return scaling;
}

/* The form of transformers 5 with positions by layer type: in the older one transformers 5.24 gives
 * local layers a theta of its own. */
static kvf_json *rope_by_type(const kvf__desc *d)
{
    kvf_json *all = kvf_json_object(), *full = scaling_of(d), *local = kvf_json_object();

    if (!kvf_json_size(full)) {
        kvf_json_free(full);
        full = kvf_json_object();
        kvf_json_set(full, "rope_type", kvf_json_new_str("default"));
    }
    kvf_json_set(full, "rope_theta", kvf_json_new_real(d->position.rope.theta));
    kvf_json_set(local, "rope_type", kvf_json_new_str("default"));
    kvf_json_set(local, "rope_theta", kvf_json_new_real(d->position.local_theta));
    kvf_json_set(all, "full_attention", full);
    kvf_json_set(all, "sliding_attention", local);
    return all;
}

static void set_rope(kvf_json *root, const kvf__desc *d)
{
    const kvf__config_keys *keys = d->arch->keys;

    if (keys->local.unscaled) {
        kvf_json_set(root, "rope_parameters", rope_by_type(d));
        return;
    }
    kvf_json_set(root, keys->rope_theta ? keys->rope_theta : "rope_theta",
                 kvf_json_new_real(d->position.rope.theta));
    if (keys->local.theta)
        kvf_json_set(root, keys->local.theta, kvf_json_new_real(d->position.local_theta));
    if (keys->rotary.name)
        kvf_json_set(root, keys->rotary.name,
                     kvf_json_new_real((double)d->position.rotated / (double)d->D));
    kvf_json_set(root, "rope_scaling", scaling_of(d));
}

static const char *act_name(kvf__act_fn act)
{
    int i = 0;
    while (kvf__act_names[i].fn != act)
        i++;
    return kvf__act_names[i].name;
}

static kvf_json *list_ends(const kvf__ends *ends)
{
    kvf_json *list = kvf_json_array();
    for (int i = 0; i < ends->n; i++)
        kvf_json_add(list, kvf_json_new_int(ends->id[i]));
    return list;
}

static kvf_json *layer_types(const kvf__desc *d)
{
    kvf_json *list = kvf_json_array();

    for (int64_t l = 0; l < d->L; l++)
        kvf_json_add(list,
                     kvf_json_new_str(kvf__layer_mixes(d, l) ? d->arch->keys->mixer->type
                                      : kvf__positions_window(&d->position, l) ? "sliding_attention"
                                                                               : "full_attention"));
    return list;
}

static kvf_json *no_rope_layers(const kvf__desc *d)
{
    kvf_json *list = kvf_json_array();

    for (int64_t l = 0; l < d->L; l++)
        kvf_json_add(list, kvf_json_new_int(!kvf__layers_has(d->position.no_rope, l)));
    return list;
}

static kvf_json *real_or_null(double value)
{
    return value > 0 ? kvf_json_new_real(value) : kvf_json_new_null();
}

static void set_factors(kvf_json *root, const kvf__desc *d)
{
    const kvf__config_keys *keys = d->arch->keys;
    const double scale = (double)d->score_scale;

    const double r = plain(d->factors.residual), embed = (double)d->factors.embed;

    if (keys->eps)
        kvf_json_set(root, keys->eps,
                     kvf_json_new_real(plain_of(d->norm_eps, (double)d->norm_eps * r * r, r * r)));
    if (keys->multipliers) {
        kvf_json_set(root, "residual_multiplier", kvf_json_new_real(r));
        kvf_json_set(root, "embedding_multiplier",
                     kvf_json_new_real(plain_of(d->factors.embed, embed * r, r)));
        kvf_json_set(root, "logits_scaling",
                     kvf_json_new_real(plain((float)(1 / (double)d->factors.head))));
        kvf_json_set(root, "attention_multiplier", kvf_json_new_real(plain(d->score_scale)));
    }
    if (keys->score_cap.name)
        kvf_json_set(root, keys->score_cap.name, real_or_null(plain(d->factors.score_cap)));
    if (keys->logit_cap.name)
        kvf_json_set(root, keys->logit_cap.name, real_or_null(plain(d->factors.logit_cap)));
    if (keys->query_scalar.name) /* an integer in every model */
        kvf_json_set(root, keys->query_scalar.name,
                     kvf_json_new_int((int64_t)(1 / scale / scale + 0.5)));
}

static void set_mixer(kvf_json *root, const kvf__desc *d)
{
    const kvf__mixer_keys *keys = d->arch->keys->mixer;
    const struct {
        const kvf__config_key *key;
        int64_t value;
    } rows[] = {{&keys->kernel, d->mixer.kernel},
                {&keys->key_heads, d->mixer.key_heads},
                {&keys->value_heads, d->mixer.value_heads},
                {&keys->key_dim, d->mixer.key_dim},
                {&keys->value_dim, d->mixer.value_dim}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].key->names[0])
            kvf_json_set(root, rows[i].key->names[0], kvf_json_new_int(rows[i].value));
    if (keys->ffn[0]) kvf_json_set(root, keys->ffn[0], kvf_json_new_bool(false));
}

/* The result is checked as a whole, by its text. */
static kvf_json *build(const kvf__desc *d)
{
    const kvf__config_keys *keys = d->arch->keys;
    kvf_json *root = kvf_json_object(), *classes = kvf_json_array();
    char name[64];

    snprintf(name, sizeof name, "%s%s", d->arch->class_stem,
             d->block.causal ? "ForCausalLM" : "Model");
    kvf_json_add(classes, kvf_json_new_str(name));
    kvf_json_set(root, "architectures", classes);
    kvf_json_set(root, "model_type", kvf_json_new_str(d->arch->name));
    kvf_json_set(root, keys->vocab.names[0], kvf_json_new_null()); /* the first of the sizes */
    set_rows(root, d, KVF__CONFIG_SIZE);
    kvf_json_set(root, keys->act, kvf_json_new_str(act_name(d->block.act)));
    kvf_json_set(root, "tie_word_embeddings", kvf_json_new_bool(d->tied));
    set_rows(root, d, KVF__CONFIG_SWITCH);
    set_rows(root, d, KVF__CONFIG_FLAG);
    if (d->position.kind == KVF__POS_ROPE) set_rope(root, d);
    set_factors(root, d);
    if ((d->position.window && keys->sliding_window.names[0]) || keys->mixer)
        kvf_json_set(root, "layer_types", layer_types(d));
    if (keys->mixer) set_mixer(root, d);
    if (keys->no_rope.list) kvf_json_set(root, keys->no_rope.list, no_rope_layers(d));
    set_rows(root, d, KVF__CONFIG_TOKEN);
    if (d->ids.ends.n > 1) kvf_json_set(root, "eos_token_id", list_ends(&d->ids.ends));
    return root;
}

static kvf_status check(kvf_ctx *ctx, const char *where, const kvf__desc *desc,
                        const kvf_json *config)
{
    kvf__desc back = {0};
    bool same = false;

    kvf_status st = kvf__desc_from_hf(ctx, where, config, &back);
    if (!st) st = kvf__desc_same(ctx, desc, &back, &same);
    kvf__desc_done(&back);
    if (st || same) return st;
    return kvf__fail(ctx, KVF_EUNSUPPORTED,
                     "%s: cannot write a base file, because a config.json of architecture %s "
                     "cannot express all settings of this file",
                     where, desc->arch_name);
}

kvf_status kvf__desc_to_hf(kvf_ctx *ctx, const char *where, const kvf__desc *desc, char **out)
{
    kvf_json *config = build(desc);
    char *text = kvf_json_text(config, KVF_JSON_INDENT);

    kvf_status st = text ? check(ctx, where, desc, config)
                         : kvf__fail(ctx, KVF_ENOMEM, "out of memory");
    if (!st) st = kvf__strdup(ctx, text, out);
    kvf_json_text_free(text);
    kvf_json_free(config);
    return st;
}
