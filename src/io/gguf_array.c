/* Arrays of a GGUF's metadata for the tokenizer: vocabularies, scores, token types, merges.
 *
 * They were checked when the file was opened, so reading them again cannot run out of bytes.
 * Integers are accepted in every width: writers disagree about it. */
#include "gguf_int.h"

#include <assert.h>
#include <string.h>

static const struct kvf__gguf_kv *find(const kvf__weights *weights, const char *key)
{
    size_t n = strlen(key);

    for (size_t i = 0; i < weights->n_arrays; i++) {
        const struct kvf__gguf_kv *array = &weights->arrays[i];
        if (array->key_n == n && !memcmp(array->key, key, n)) return array;
    }
    return NULL;
}

static kvf__reader elements_of(const struct kvf__gguf_kv *array)
{
    return (kvf__reader){.data = array->data, .n = array->bytes};
}

kvf_status kvf__gguf_strings(kvf_ctx *ctx, const kvf__weights *weights, const char *key,
                             const char *const **texts, const size_t **bytes, int64_t *count)
{
    const struct kvf__gguf_kv *array = find(weights, key);
    const char **text = NULL;
    size_t *length = NULL;
    kvf_status st;

    if (!array || array->type != KVF__GGUF_STRING) {
        *count = -1;
        return KVF_OK;
    }
    st = kvf__alloc_array(ctx, (size_t)array->count, sizeof *text, &text);
    if (st) goto out;
    st = kvf__alloc_array(ctx, (size_t)array->count, sizeof *length, &length);
    if (st) goto out;
    kvf__reader r = elements_of(array);
    for (uint64_t i = 0; i < array->count; i++)
        text[i] = kvf__gguf_read_string(&r, &length[i]);
    assert(!r.failed);

    *texts = (const char *const *)text;
    *bytes = length;
    *count = (int64_t)array->count;
    text = NULL;
    length = NULL;
out:
    kvf__free(text);
    kvf__free(length);
    return st;
}

kvf_status kvf__gguf_floats(kvf_ctx *ctx, const kvf__weights *weights, const char *key,
                            float **values, int64_t *count)
{
    const struct kvf__gguf_kv *array = find(weights, key);
    float *value = NULL;

    if (!array || (array->type != KVF__GGUF_F32 && array->type != KVF__GGUF_F64)) {
        *count = -1;
        return KVF_OK;
    }
    KVF_TRY(kvf__alloc_array(ctx, (size_t)array->count, sizeof *value, &value));
    kvf__reader r = elements_of(array);
    for (uint64_t i = 0; i < array->count; i++)
        value[i] = (float)kvf__gguf_read_number(&r, array->type).real;
    assert(!r.failed);
    *values = value;
    *count = (int64_t)array->count;
    return KVF_OK;
}

static bool is_integer(uint32_t type)
{
    return type != KVF__GGUF_F32 && type != KVF__GGUF_F64 && type != KVF__GGUF_STRING;
}

kvf_status kvf__gguf_ints(kvf_ctx *ctx, const kvf__weights *weights, const char *key,
                          int32_t **values, int64_t *count)
{
    const struct kvf__gguf_kv *array = find(weights, key);
    int32_t *value = NULL;

    if (!array || !is_integer(array->type)) {
        *count = -1;
        return KVF_OK;
    }
    KVF_TRY(kvf__alloc_array(ctx, (size_t)array->count, sizeof *value, &value));
    kvf__reader r = elements_of(array);
    for (uint64_t i = 0; i < array->count; i++) {
        kvf__gguf_number number = kvf__gguf_read_number(&r, array->type);
        if (number.is_big || number.integer < INT32_MIN || number.integer > INT32_MAX) {
            kvf__free(value);
            return kvf__fail(ctx, KVF_EFORMAT,
                             "GGUF metadata \"%.80s\": element %llu exceeds 32 bits", key,
                             (unsigned long long)i);
        }
        value[i] = (int32_t)number.integer;
    }
    assert(!r.failed);
    *values = value;
    *count = (int64_t)array->count;
    return KVF_OK;
}
