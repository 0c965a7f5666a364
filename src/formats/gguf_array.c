/* Arrays of a GGUF's metadata for the tokenizer: vocabularies, scores, token types, merges.
 *
 * They were checked when the file was opened, so reading them again stays in bounds. Integers of
 * every width are accepted, because writers differ. */
#include "gguf_int.h"

#include <assert.h>
#include <string.h>

/* Finds an array with elements of one of these forms (gguf_int.h); NULL: *count becomes -1. */
static const struct kvf__gguf_kv *find(const kvf__weights *weights, const char *key,
                                       const char *forms, int64_t *count)
{
    const size_t n = strlen(key);

    for (size_t i = 0; i < weights->n_arrays; i++) {
        const struct kvf__gguf_kv *array = &weights->arrays[i];
        bool named = array->key_n == n && !memcmp(array->key, key, n);
        if (named && strchr(forms, kvf__gguf_types[array->type].form)) return array;
    }
    *count = -1;
    return NULL;
}

static kvf__reader elements_of(const struct kvf__gguf_kv *array)
{
    return (kvf__reader){.data = array->data, .n = array->bytes};
}

kvf_status kvf__gguf_strings(kvf_ctx *ctx, const kvf__weights *weights, const char *key,
                             const char *const **texts, const size_t **bytes, int64_t *count)
{
    const struct kvf__gguf_kv *array = find(weights, key, "s", count);
    const char **text = NULL;
    size_t *length = NULL;

    if (!array) return KVF_OK;
    KVF_TRY(kvf__alloc_array(ctx, (size_t)array->count, sizeof *text, &text));
    kvf_status st = kvf__alloc_array(ctx, (size_t)array->count, sizeof *length, &length);
    if (st) {
        kvf__free(text);
        return st;
    }
    kvf__reader r = elements_of(array);
    for (uint64_t i = 0; i < array->count; i++)
        text[i] = kvf__gguf_read_string(&r, &length[i]);
    assert(!r.failed);
    *texts = (const char *const *)text;
    *bytes = length;
    *count = (int64_t)array->count;
    return KVF_OK;
}

kvf_status kvf__gguf_floats(kvf_ctx *ctx, const kvf__weights *weights, const char *key,
                            float **values, int64_t *count)
{
    const struct kvf__gguf_kv *array = find(weights, key, "f", count);

    if (!array) return KVF_OK;
    KVF_TRY(kvf__alloc_array(ctx, (size_t)array->count, sizeof **values, values));
    kvf__reader r = elements_of(array);
    for (uint64_t i = 0; i < array->count; i++)
        (*values)[i] = (float)kvf__gguf_read_number(&r, array->type).real;
    assert(!r.failed);
    *count = (int64_t)array->count;
    return KVF_OK;
}

kvf_status kvf__gguf_ints(kvf_ctx *ctx, const kvf__weights *weights, const char *key,
                          int32_t **values, int64_t *count)
{
    const struct kvf__gguf_kv *array = find(weights, key, "uib", count);
    int32_t *value = NULL;

    if (!array) return KVF_OK;
    KVF_TRY(kvf__alloc_array(ctx, (size_t)array->count, sizeof *value, &value));
    kvf__reader r = elements_of(array);
    for (uint64_t i = 0; i < array->count; i++) {
        kvf__gguf_number number = kvf__gguf_read_number(&r, array->type);
        value[i] = (int32_t)number.integer;
        if (!number.is_big && value[i] == number.integer) continue;
        kvf__free(value);
        return kvf__fail(ctx, KVF_EFORMAT, "GGUF metadata \"%.80s\": element %llu exceeds 32 bits",
                         key, (unsigned long long)i);
    }
    assert(!r.failed);
    *values = value;
    *count = (int64_t)array->count;
    return KVF_OK;
}
