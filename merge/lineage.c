/* What files made of other files say about them: hashes of their bytes, and the options and facts
 * in which they agree. */
#include "hash.h"
#include "merge_int.h"

#include <string.h>

kvf_status kvf__hash_file(kvf_ctx *ctx, const char *path, char hex[33])
{
    kvf__mapfile file = {0};
    kvf__hash *hash = NULL;
    KVF_TRY(kvf__mapfile_open(ctx, path, &file));
    kvf_status st = kvf__hash_create(ctx, &hash);
    if (!st) {
        kvf__hash_add(hash, file.data, file.n);
        kvf__hash_hex(hash, hex);
    }
    kvf__hash_free(hash);
    kvf__mapfile_close(&file);
    return st;
}

bool kvf__json_same(const kvf_json *a, const kvf_json *b)
{
    char *x = kvf_json_text(a, KVF_JSON_COMPACT), *y = kvf_json_text(b, KVF_JSON_COMPACT);
    bool same = x && y && !strcmp(x, y);
    kvf_json_text_free(x);
    kvf_json_text_free(y);
    return same;
}

/* A scalar again. */
static kvf_json *copy_of(const kvf_json *value)
{
    switch (kvf_json_typeof(value)) {
    case KVF_JSON_BOOL:
        return kvf_json_new_bool(kvf_json_bool(value, false));
    case KVF_JSON_INT:
        return kvf_json_new_int(kvf_json_int(value, 0));
    case KVF_JSON_REAL:
        return kvf_json_new_real(kvf_json_real(value, 0));
    case KVF_JSON_STRING:
        return kvf_json_new_str(kvf_json_str(value, NULL));
    default:
        return kvf_json_new_null();
    }
}

kvf_status kvf__json_common(kvf_ctx *ctx, const kvf_json *const *objects, size_t n,
                            const char *except, kvf_json **out)
{
    kvf_json *common = kvf_json_object(), *first = (kvf_json *)objects[0];
    bool good = common != NULL;

    for (void *it = first ? kvf_json_iter(first) : NULL; it; it = kvf_json_next(first, it)) {
        const char *key = kvf_json_iter_key(it);
        bool same = !except || strcmp(key, except);
        for (size_t i = 1; i < n && same; i++) {
            const kvf_json *other = kvf_json_get(objects[i], key);
            same = other && kvf__json_same(kvf_json_iter_value(it), other);
        }
        if (same) good = kvf_json_set(common, key, copy_of(kvf_json_iter_value(it))) && good;
    }
    if (!good) {
        kvf_json_free(common);
        return kvf__fail(ctx, KVF_ENOMEM, "out of memory");
    }
    *out = common;
    return KVF_OK;
}
