/* A hash map from byte strings to int64: vocabularies, merge ranks, tensor names.
 *
 * Open addressing with linear probing, at most 3/4 full. A slot keeps the whole hash, so a probe
 * compares keys only if they are very likely equal. Keys lie back to back in one buffer and may
 * contain any byte. A failed put leaves the map unchanged. */
#include "map.h"

#include <string.h>
#include <xxhash.h>

struct kvf__map_slot {
    uint64_t hash; /* 0: the slot is free */
    size_t key_at, key_n;
    int64_t value;
};

enum { FIRST_SLOTS = 16 };

static uint64_t key_hash(const void *key, size_t n)
{
    uint64_t hash = XXH3_64bits(n ? key : "", n);
    return hash ? hash : 1;
}

/* Returns the slot of the key, or the free slot for it. cap is a power of two, and the map is never
 * full. */
static struct kvf__map_slot *find_slot(const kvf__map *map, uint64_t hash, const void *key,
                                       size_t n)
{
    for (size_t i = hash & (map->cap - 1);; i = (i + 1) & (map->cap - 1)) {
        struct kvf__map_slot *slot = &map->slots[i];
        if (!slot->hash) return slot;
        if (slot->hash != hash || slot->key_n != n) continue;
        if (n == 0 || memcmp(map->keys.data + slot->key_at, key, n) == 0) return slot;
    }
}

static kvf_status reserve(kvf_ctx *ctx, kvf__map *map)
{
    kvf__map bigger = *map;

    if (map->n + 1 <= map->cap / 4 * 3) return KVF_OK;
    bigger.cap = map->cap ? map->cap * 2 : FIRST_SLOTS;
    KVF_TRY(kvf__alloc_array(ctx, bigger.cap, sizeof *bigger.slots, &bigger.slots));
    for (size_t i = 0; i < map->cap; i++) {
        const struct kvf__map_slot *old = &map->slots[i];
        if (!old->hash) continue;
        *find_slot(&bigger, old->hash, bigger.keys.data + old->key_at, old->key_n) = *old;
    }
    kvf__free(map->slots);
    *map = bigger;
    return KVF_OK;
}

kvf_status kvf__map_put(kvf_ctx *ctx, kvf__map *map, const void *key, size_t n, int64_t value)
{
    uint64_t hash = key_hash(key, n);

    KVF_TRY(reserve(ctx, map));
    struct kvf__map_slot *slot = find_slot(map, hash, key, n);
    if (slot->hash) {
        slot->value = value;
        return KVF_OK;
    }
    size_t key_at = map->keys.n;
    KVF_TRY(kvf__buf_add(ctx, &map->keys, key, n));
    *slot = (struct kvf__map_slot){.hash = hash, .key_at = key_at, .key_n = n, .value = value};
    map->n++;
    return KVF_OK;
}

bool kvf__map_get(const kvf__map *map, const void *key, size_t n, int64_t *value)
{
    if (map->cap == 0) return false;
    const struct kvf__map_slot *slot = find_slot(map, key_hash(key, n), key, n);
    if (!slot->hash) return false;
    *value = slot->value;
    return true;
}

void kvf__map_done(kvf__map *map)
{
    kvf__free(map->slots);
    kvf__buf_done(&map->keys);
    *map = (kvf__map){0};
}
