/* A hash map from byte strings to int64. */
#ifndef KVF_MAP_H
#define KVF_MAP_H

#include "base_int.h"

/* Hash map from byte strings to int64. Keys are copied. {0} is empty. */
typedef struct kvf__map {
    struct kvf__map_slot *slots;
    size_t n, cap;
    kvf__buf keys;
} kvf__map;
/* A second value for a key replaces the first. */
kvf_status kvf__map_put(kvf_ctx *ctx, kvf__map *map, const void *key, size_t n, int64_t value);
/* *value is unchanged if the key is absent. */
bool kvf__map_get(const kvf__map *map, const void *key, size_t n, int64_t *value);
void kvf__map_done(kvf__map *map);

#endif
