/* Keys and values of prompts that were read before, by their text (prompt_cache.c). A prompt is
 * read in parts of KVF__PROMPT_PART tokens, and the cache has whole parts. A row that takes them
 * has the bits of one that reads them. */
#ifndef KVF_PROMPT_CACHE_H
#define KVF_PROMPT_CACHE_H

#include "session.h"

/* Identifies a part and all that comes before it in a row. That of a row's start identifies the
 * values of its prefix. Parts are never shared between owners. */
typedef struct kvf__part_key {
    uint64_t owner, hash[2];
} kvf__part_key;
/* Returns the key of the part with these ids [KVF__PROMPT_PART] after `before`. */
kvf__part_key kvf__part_after(const kvf__part_key *before, const int32_t *ids);

typedef struct kvf__prompt_cache kvf__prompt_cache;
/* Creates a cache of at most `bytes`, for parts of `part_bytes` each; EUSAGE: less than one. */
kvf_status kvf__prompt_cache_create(kvf_ctx *ctx, size_t part_bytes, size_t bytes,
                                    kvf__prompt_cache **out);
void kvf__prompt_cache_free(kvf__prompt_cache *cache);
size_t kvf__prompt_cache_bytes(const kvf__prompt_cache *cache); /* memory in use */
/* Returns a part, valid until the next call of add; NULL: the cache does not have it. row: number
 * of the row that uses it, increasing. */
const void *kvf__prompt_cache_find(kvf__prompt_cache *cache, const kvf__part_key *key, int64_t row);
/* Returns memory for part number `depth` of a row, to be filled, in place of a part that was used
 * least recently. NULL: there is no memory, or the row itself has used all. */
void *kvf__prompt_cache_add(kvf__prompt_cache *cache, const kvf__part_key *key, int64_t row,
                            int64_t depth);

#endif
