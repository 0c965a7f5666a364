/* The cache of prompts: a list of parts, each with the hash of all tokens up to its end. Later
 * parts of a row are dropped before earlier ones, without which they could not be found. The hash
 * does not resist deliberate collisions, but these only meet parts of the same owner. */
#include "prompt_cache.h"
#include "hash.h"

#include <string.h>

typedef struct kept_part {
    kvf__part_key key;
    int64_t row, depth; /* last row that used it; parts before it */
    void *values;
} kept_part;

struct kvf__prompt_cache {
    size_t part_bytes, most, n;
    size_t capacity;
    kept_part *parts; /* [n] */
};

kvf__part_key kvf__part_after(const kvf__part_key *before, const int32_t *ids)
{
    struct {
        uint64_t before[2];
        int32_t ids[KVF__PROMPT_PART];
    } text;
    memcpy(text.before, before->hash, sizeof text.before);
    memcpy(text.ids, ids, sizeof text.ids);
    kvf__part_key key = {.owner = before->owner};
    kvf__hash_of(&text, sizeof text, key.hash);
    return key;
}

kvf_status kvf__prompt_cache_create(kvf_ctx *ctx, size_t part_bytes, size_t bytes,
                                    kvf__prompt_cache **out)
{
    kvf__prompt_cache *cache = NULL;
    const size_t each = part_bytes + sizeof(kept_part);
    if (bytes < each)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "cache-memory %zu: %d tokens of this base need %zu bytes, and text is "
                         "kept in parts of so many tokens",
                         bytes, KVF__PROMPT_PART, each);
    KVF_TRY(kvf__alloc(ctx, sizeof *cache, &cache));
    *cache = (kvf__prompt_cache){.part_bytes = part_bytes, .most = bytes / each};
    *out = cache;
    return KVF_OK;
}

void kvf__prompt_cache_free(kvf__prompt_cache *cache)
{
    if (!cache) return;
    for (size_t i = 0; i < cache->n; i++)
        kvf__free(cache->parts[i].values);
    kvf__free(cache->parts);
    kvf__free(cache);
}

size_t kvf__prompt_cache_bytes(const kvf__prompt_cache *cache)
{
    return cache->n * (cache->part_bytes + sizeof(kept_part));
}

const void *kvf__prompt_cache_find(kvf__prompt_cache *cache, const kvf__part_key *key, int64_t row)
{
    for (size_t i = 0; i < cache->n; i++) {
        kept_part *part = &cache->parts[i];
        if (part->key.hash[0] != key->hash[0] || part->key.hash[1] != key->hash[1] ||
            part->key.owner != key->owner)
            continue;
        if (part->row < row) part->row = row;
        return part->values;
    }
    return NULL;
}

/* Appends a part with memory; NULL: there is none. */
static kept_part *append(kvf__prompt_cache *cache)
{
    void *values = NULL;
    if (cache->n == cache->most ||
        kvf__reserve(NULL, &cache->parts, &cache->capacity, cache->n + 1, sizeof *cache->parts) ||
        kvf__alloc(NULL, cache->part_bytes, &values))
        return NULL;
    cache->parts[cache->n] = (kept_part){.values = values};
    return &cache->parts[cache->n++];
}

/* Returns the part to drop, of a row before this one; NULL: none. */
static kept_part *oldest(kvf__prompt_cache *cache, int64_t row)
{
    kept_part *found = NULL;
    for (size_t i = 0; i < cache->n; i++) {
        kept_part *part = &cache->parts[i];
        if (part->row < row && (!found || part->row < found->row ||
                                (part->row == found->row && part->depth > found->depth)))
            found = part;
    }
    return found;
}

void *kvf__prompt_cache_add(kvf__prompt_cache *cache, const kvf__part_key *key, int64_t row,
                            int64_t depth)
{
    kept_part *part = append(cache);
    if (!part) part = oldest(cache, row);
    if (!part) return NULL;
    *part = (kept_part){*key, row, depth, part->values};
    return part->values;
}
