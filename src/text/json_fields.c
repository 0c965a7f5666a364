/* Typed fields of a tokenizer's JSON files, and the added-token object of tokenizer.json and its
 * config. */
#include "tok_files.h"

static kvf_status wrong_type(kvf_ctx *ctx, const char *where, const char *key, const char *want)
{
    return kvf__fail(ctx, KVF_EFORMAT, "%s: field \"%s\" is not %s", where, key, want);
}

static bool absent(const kvf_json *value)
{
    return kvf_json_typeof(value) == KVF_JSON_NONE || kvf_json_typeof(value) == KVF_JSON_NULL;
}

bool kvf__has_bool(const kvf_json *config, const char *key)
{
    return kvf_json_typeof(kvf_json_get(config, key)) == KVF_JSON_BOOL;
}

kvf_status kvf__want_bool(kvf_ctx *ctx, const char *where, const kvf_json *object, const char *key,
                          bool otherwise, bool *out)
{
    const kvf_json *value = kvf_json_get(object, key);

    if (!absent(value) && kvf_json_typeof(value) != KVF_JSON_BOOL)
        return wrong_type(ctx, where, key, "true or false");
    *out = kvf_json_bool(value, otherwise);
    return KVF_OK;
}

kvf_status kvf__want_str(kvf_ctx *ctx, const char *where, const kvf_json *object, const char *key,
                         const char **out, size_t *n)
{
    const kvf_json *value = kvf_json_get(object, key);
    size_t bytes = 0;

    if (!absent(value) && kvf_json_typeof(value) != KVF_JSON_STRING)
        return wrong_type(ctx, where, key, "a string");
    *out = kvf_json_str(value, &bytes);
    if (n) *n = *out ? bytes : 0;
    return KVF_OK;
}

kvf_status kvf__read_added_token(kvf_ctx *ctx, const char *where, const kvf_json *json,
                                 kvf__added *out)
{
    const char *text;

    if (kvf_json_typeof(json) != KVF_JSON_OBJECT)
        return kvf__fail(ctx, KVF_EFORMAT, "%s: an added token is not an object", where);
    KVF_TRY(kvf__want_str(ctx, where, json, "content", &text, &out->n));
    if (!text) return kvf__fail(ctx, KVF_EFORMAT, "%s: an added token has no \"content\"", where);
    out->text = (char *)text;
    KVF_TRY(kvf__want_bool(ctx, where, json, "special", false, &out->special));
    KVF_TRY(kvf__want_bool(ctx, where, json, "single_word", false, &out->single_word));
    KVF_TRY(kvf__want_bool(ctx, where, json, "lstrip", false, &out->lstrip));
    KVF_TRY(kvf__want_bool(ctx, where, json, "rstrip", false, &out->rstrip));
    return kvf__want_bool(ctx, where, json, "normalized", !out->special, &out->normalized);
}
