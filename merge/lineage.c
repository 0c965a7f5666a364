/* Lineage of files made from other files: hashes of the sources, and the options and attributes
 * that all sources share. */
#include "hash.h"
#include "merge_int.h"

#include <string.h>

/* Computes the XXH3-128 of a file. */
static kvf_status hash_file(kvf_ctx *ctx, const char *path, char hex[33])
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

kvf_status kvf__lineage_add(kvf_ctx *ctx, kvf_json **lineage, const char *name, kvf_json *value)
{
    if (!*lineage) *lineage = kvf_json_object();
    return kvf_json_set(*lineage, name, value) ? KVF_OK
                                               : kvf__fail(ctx, KVF_ENOMEM, "out of memory");
}

kvf_status kvf__lineage_add_hash(kvf_ctx *ctx, kvf_json **lineage, const char *name,
                                 const char *path)
{
    char hex[33];

    KVF_TRY(hash_file(ctx, path, hex));
    return kvf__lineage_add(ctx, lineage, name, kvf_json_new_str(hex));
}

bool kvf__json_same(const kvf_json *a, const kvf_json *b)
{
    char *x = kvf_json_text(a, KVF_JSON_COMPACT), *y = kvf_json_text(b, KVF_JSON_COMPACT);
    bool same = x && y && !strcmp(x, y);
    kvf_json_text_free(x);
    kvf_json_text_free(y);
    return same;
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
        if (same) good = kvf_json_set(common, key, kvf__json_copy(kvf_json_iter_value(it))) && good;
    }
    if (!good) {
        kvf_json_free(common);
        return kvf__fail(ctx, KVF_ENOMEM, "out of memory");
    }
    *out = common;
    return KVF_OK;
}
