/* Post-processors: the special ids around a text and around two, and the type of every token.
 *
 * All are reduced to the two templates of post.c. Without a pair template the library's default
 * applies: the first text, then the second. */
#include "tok_files.h"

#include <string.h>

static kvf_status bad_part(kvf_ctx *ctx, const char *where, const char *what)
{
    return kvf__fail(ctx, KVF_EFORMAT, "%s: post_processor: %s", where, what);
}

static kvf_status read_id(kvf_ctx *ctx, const char *where, const kvf_json *id, int32_t *out)
{
    int64_t value = kvf_json_int(id, -1);

    if (value < 0 || value >= KVF__MAX_TOKEN_ID)
        return bad_part(ctx, where, "an id is not a token id");
    *out = (int32_t)value;
    return KVF_OK;
}

/* Reads the type of a template's item, 0 if absent. */
static kvf_status read_type(kvf_ctx *ctx, const char *where, const kvf_json *item, int32_t *out)
{
    int64_t type = kvf_json_int(kvf_json_get(item, "type_id"), 0);

    if (type < 0 || type > INT32_MAX) return bad_part(ctx, where, "a type_id is not 0 or more");
    *out = (int32_t)type;
    return KVF_OK;
}

static kvf_status add_special(kvf_ctx *ctx, const char *where, const kvf_json *table,
                              const char *name, int32_t type, kvf__post_template *out)
{
    const kvf_json *ids = kvf_json_get(kvf_json_get(table, name), "ids");

    if (kvf_json_typeof(ids) != KVF_JSON_ARRAY)
        return kvf__fail(ctx, KVF_EFORMAT,
                         "%s: post_processor: special_tokens has no ids for \"%s\"", where, name);
    for (size_t i = 0; i < kvf_json_size(ids); i++) {
        int32_t id = 0;
        KVF_TRY(read_id(ctx, where, kvf_json_at(ids, i), &id));
        KVF_TRY(kvf__template_add(ctx, out, id, type));
    }
    return KVF_OK;
}

static kvf_status read_items(kvf_ctx *ctx, const char *where, const kvf_json *json, const char *key,
                             kvf__post_template *out)
{
    const kvf_json *list = kvf_json_get(json, key);

    for (size_t i = 0; i < kvf_json_size(list); i++) {
        const kvf_json *special = kvf_json_get(kvf_json_at(list, i), "SpecialToken");
        const kvf_json *text = kvf_json_get(kvf_json_at(list, i), "Sequence");
        const char *name = kvf_json_str(kvf_json_get(special, "id"), NULL);
        const char *which = kvf_json_str(kvf_json_get(text, "id"), NULL);
        int32_t type = 0;

        KVF_TRY(read_type(ctx, where, name ? special : text, &type));
        if (name)
            KVF_TRY(add_special(ctx, where, kvf_json_get(json, "special_tokens"), name, type, out));
        else if (which && strcmp(which, "A") == 0)
            KVF_TRY(kvf__template_add(ctx, out, KVF__POST_TEXT, type));
        else if (which && strcmp(which, "B") == 0 && strcmp(key, "pair") == 0)
            KVF_TRY(kvf__template_add(ctx, out, KVF__POST_PAIR, type));
        else
            return kvf__fail(
                ctx, KVF_EFORMAT,
                "%s: post_processor: an item of \"%s\" is neither SpecialToken nor Sequence A%s",
                where, key, strcmp(key, "pair") == 0 ? " or B" : "");
    }
    return KVF_OK;
}

static kvf_status read_template(kvf_ctx *ctx, const char *where, const kvf_json *json,
                                kvf__tokenizer *t)
{
    if (kvf_json_typeof(kvf_json_get(json, "single")) != KVF_JSON_ARRAY)
        return bad_part(ctx, where, "\"single\" is not a list");
    KVF_TRY(read_items(ctx, where, json, "single", &t->post));
    KVF_TRY(read_items(ctx, where, json, "pair", &t->pair));
    if (t->pair.items.n > 0) return KVF_OK;
    KVF_TRY(kvf__template_add(ctx, &t->pair, KVF__POST_TEXT, 0));
    return kvf__template_add(ctx, &t->pair, KVF__POST_PAIR, 1);
}

/* Reads whether offsets omit the spaces around a token; true by default. */
static kvf_status read_trim(kvf_ctx *ctx, const char *where, const kvf_json *json,
                            kvf__tokenizer *t)
{
    bool trim, prefix_space;

    KVF_TRY(kvf__want_bool(ctx, where, json, "trim_offsets", true, &trim));
    KVF_TRY(kvf__want_bool(ctx, where, json, "add_prefix_space", true, &prefix_space));
    if (!trim) return KVF_OK;
    t->trim_offsets = true;
    t->trim_prefix_space = prefix_space;
    return KVF_OK;
}

static kvf_status read_cls_sep(kvf_ctx *ctx, const char *where, const kvf_json *json, bool roberta,
                               kvf__tokenizer *t)
{
    int32_t cls = 0, sep = 0;

    KVF_TRY(read_id(ctx, where, kvf_json_at(kvf_json_get(json, "cls"), 1), &cls));
    KVF_TRY(read_id(ctx, where, kvf_json_at(kvf_json_get(json, "sep"), 1), &sep));
    if (roberta) KVF_TRY(read_trim(ctx, where, json, t));
    t->cls = cls;
    return kvf__post_cls_sep(ctx, t, cls, sep, roberta);
}

/* Inserts an inner template into an outer one; the outer one sets the type of a text. */
static kvf_status nest(kvf_ctx *ctx, const kvf__post_template *inner,
                       const kvf__post_template *outer, kvf__post_template *out)
{
    for (size_t k = 0; k < outer->items.n; k++) {
        int32_t item = outer->items.data[k], type = outer->types.data[k];
        if (item != KVF__POST_TEXT) {
            KVF_TRY(kvf__template_add(ctx, out, item, type));
            continue;
        }
        for (size_t i = 0; i < inner->items.n; i++)
            KVF_TRY(kvf__template_add(ctx, out, inner->items.data[i], type));
    }
    return KVF_OK;
}

/* Applies a sequence: each template encloses the result of the previous ones. For pairs the last
 * one that adds anything decides, since `tokenizers` has no rule for two. */
static kvf_status read_sequence(kvf_ctx *ctx, const char *where, const kvf_json *list,
                                kvf__tokenizer *t)
{
    kvf__post_template single = {0}, pair = {0};
    kvf_status st = kvf__template_add(ctx, &single, KVF__POST_TEXT, 0);

    for (size_t i = 0; i < kvf_json_size(list) && !st; i++) {
        kvf__post_template nested = {0}, was = t->pair;
        t->post.items.n = t->post.types.n = 0;
        t->pair = (kvf__post_template){0};
        st = kvf__read_post(ctx, where, kvf_json_at(list, i), t);
        if (!st) st = nest(ctx, &single, &t->post, &nested);
        kvf__template_done(&single);
        single = nested;
        if (t->pair.items.n == 2 && pair.items.n > 0) {
            kvf__template_done(&t->pair);
        } else {
            kvf__template_done(&pair);
            pair = t->pair;
        }
        t->pair = was;
    }
    kvf__template_done(&t->post);
    kvf__template_done(&t->pair);
    t->post = single;
    t->pair = pair;
    return st;
}

kvf_status kvf__read_post(kvf_ctx *ctx, const char *where, const kvf_json *json, kvf__tokenizer *t)
{
    const char *type;

    if (kvf_json_typeof(json) <= KVF_JSON_NULL) return kvf__post_bare(ctx, t);
    KVF_TRY(kvf__want_str(ctx, where, json, "type", &type, NULL));
    if (!type) return bad_part(ctx, where, "no \"type\"");
    if (strcmp(type, "TemplateProcessing") == 0) return read_template(ctx, where, json, t);
    if (strcmp(type, "RobertaProcessing") == 0) return read_cls_sep(ctx, where, json, true, t);
    if (strcmp(type, "BertProcessing") == 0) return read_cls_sep(ctx, where, json, false, t);
    if (strcmp(type, "Sequence") == 0)
        return read_sequence(ctx, where, kvf_json_get(json, "processors"), t);
    if (strcmp(type, "ByteLevel") == 0) {
        KVF_TRY(read_trim(ctx, where, json, t));
        return kvf__post_bare(ctx, t);
    }
    return kvf__fail(ctx, KVF_EUNSUPPORTED, "%s: post_processor of type \"%s\" is not supported",
                     where, type);
}
