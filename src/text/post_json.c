/* Post-processors: which special ids stand before and after a text (INTEROP 6.7). One text only, no
 * pairs.
 *
 * In the end they all come to one list of ids with a hole for the text. */
#include "tok_int.h"

#include <string.h>

static kvf_status bad_part(kvf_ctx *ctx, const char *where, const char *what)
{
    return kvf__fail(ctx, KVF_EFORMAT, "%s: post_processor: %s", where, what);
}

static kvf_status add_id(kvf_ctx *ctx, const char *where, kvf__tokenizer *t, const kvf_json *id)
{
    int64_t value = kvf_json_int(id, -1);

    if (value < 0 || value >= KVF__MAX_TOKEN_ID)
        return bad_part(ctx, where, "an id is not a token id");
    return kvf__ids_add(ctx, &t->post, (int32_t)value);
}

static kvf_status add_special(kvf_ctx *ctx, const char *where, kvf__tokenizer *t,
                              const kvf_json *table, const char *name)
{
    const kvf_json *ids = kvf_json_get(kvf_json_get(table, name), "ids");

    if (kvf_json_typeof(ids) != KVF_JSON_ARRAY)
        return kvf__fail(ctx, KVF_EFORMAT,
                         "%s: post_processor: special_tokens has no ids for \"%s\"", where, name);
    for (size_t i = 0; i < kvf_json_size(ids); i++)
        KVF_TRY(add_id(ctx, where, t, kvf_json_at(ids, i)));
    return KVF_OK;
}

static kvf_status read_template(kvf_ctx *ctx, const char *where, const kvf_json *json,
                                kvf__tokenizer *t)
{
    const kvf_json *single = kvf_json_get(json, "single");

    if (kvf_json_typeof(single) != KVF_JSON_ARRAY)
        return bad_part(ctx, where, "\"single\" is not a list");
    for (size_t i = 0; i < kvf_json_size(single); i++) {
        const kvf_json *item = kvf_json_at(single, i);
        const char *special = kvf_json_str(kvf_json_get(kvf_json_get(item, "SpecialToken"), "id"),
                                           NULL);
        const char *text = kvf_json_str(kvf_json_get(kvf_json_get(item, "Sequence"), "id"), NULL);
        if (special)
            KVF_TRY(add_special(ctx, where, t, kvf_json_get(json, "special_tokens"), special));
        else if (text && strcmp(text, "A") == 0)
            KVF_TRY(kvf__ids_add(ctx, &t->post, KVF__POST_TEXT));
        else
            return bad_part(ctx, where,
                            "an item of \"single\" is neither SpecialToken nor Sequence A");
    }
    return KVF_OK;
}

/* cls text sep */
static kvf_status read_roberta(kvf_ctx *ctx, const char *where, const kvf_json *json,
                               kvf__tokenizer *t)
{
    KVF_TRY(add_id(ctx, where, t, kvf_json_at(kvf_json_get(json, "cls"), 1)));
    KVF_TRY(kvf__ids_add(ctx, &t->post, KVF__POST_TEXT));
    return add_id(ctx, where, t, kvf_json_at(kvf_json_get(json, "sep"), 1));
}

/* Puts what the next processor adds around what the ones before it gave. */
static kvf_status read_sequence(kvf_ctx *ctx, const char *where, const kvf_json *list,
                                kvf__tokenizer *t)
{
    kvf__ids inner = {0}, outer;
    kvf_status st = kvf__ids_add(ctx, &inner, KVF__POST_TEXT);

    for (size_t i = 0; i < kvf_json_size(list) && !st; i++) {
        kvf__ids joined = {0};
        t->post.n = 0;
        st = kvf__read_post(ctx, where, kvf_json_at(list, i), t);
        for (size_t k = 0; k < t->post.n && !st; k++)
            st = t->post.data[k] == KVF__POST_TEXT
                     ? kvf__ids_append(ctx, &joined, inner.data, inner.n)
                     : kvf__ids_add(ctx, &joined, t->post.data[k]);
        kvf__ids_done(&inner);
        inner = joined;
    }
    outer = t->post;
    t->post = inner;
    kvf__ids_done(&outer);
    return st;
}

kvf_status kvf__read_post(kvf_ctx *ctx, const char *where, const kvf_json *json, kvf__tokenizer *t)
{
    const char *type;

    if (kvf_json_typeof(json) <= KVF_JSON_NULL) return kvf__ids_add(ctx, &t->post, KVF__POST_TEXT);
    KVF_TRY(kvf__want_str(ctx, where, json, "type", &type, NULL));
    if (!type) return bad_part(ctx, where, "no \"type\"");
    if (strcmp(type, "TemplateProcessing") == 0) return read_template(ctx, where, json, t);
    if (strcmp(type, "RobertaProcessing") == 0) return read_roberta(ctx, where, json, t);
    if (strcmp(type, "Sequence") == 0)
        return read_sequence(ctx, where, kvf_json_get(json, "processors"), t);
    if (strcmp(type, "ByteLevel") == 0)
        return kvf__ids_add(ctx, &t->post, KVF__POST_TEXT); /* offsets only */
    return kvf__fail(ctx, KVF_EUNSUPPORTED, "%s: post_processor of type \"%s\" is not supported",
                     where, type);
}
