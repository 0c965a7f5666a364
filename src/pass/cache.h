/* Keys and values of earlier tokens, for generation. */
#ifndef KVF_CACHE_H
#define KVF_CACHE_H

#include "packed_model.h"

/* Keys and values of earlier tokens of several rows, in the activation type: per slot and layer [2,
 * G, room, D]; of layers without attention their state after all tokens (desc.h), in f32. With
 * such states the last n tokens are copied, saved or dropped only all together. */
typedef struct kvf__cache kvf__cache;
kvf_status kvf__cache_create(kvf_ctx *ctx, const kvf__model *model, int64_t slots, int64_t capacity,
                             kvf__cache **out);
/* Creates slots without memory, each of which may get room for at most `capacity` tokens. */
kvf_status kvf__cache_create_empty(kvf_ctx *ctx, const kvf__model *model, int64_t slots,
                                   int64_t capacity, kvf__cache **out);
/* Allocates room for so many tokens in a slot (0: none) and discards its contents. Unchanged on
 * failure. */
kvf_status kvf__cache_reserve(kvf_ctx *ctx, kvf__cache *cache, int64_t slot, int64_t capacity);
void kvf__cache_free(kvf__cache *cache);
int64_t kvf__cache_length(const kvf__cache *cache, int64_t slot);
void kvf__cache_truncate(kvf__cache *cache, int64_t slot, int64_t length);
/* Returns the n floats of a slot's states, a view; 0: the base has none. */
const float *kvf__cache_states(const kvf__cache *cache, int64_t slot, int64_t *n);
/* Copies the first n tokens of slot `from` to slot `to`, which then holds no others. */
void kvf__cache_copy(kvf__cache *cache, int64_t from, int64_t to, int64_t n);
/* Copies keys and values of n tokens of a slot, from `first` on, as f32 to out [L, 2, G, n, D] (or
 * layer after layer, see prefix.h). */
void kvf__cache_read(const kvf__cache *cache, int64_t slot, int64_t first, int64_t n, float *out);
/* Copies n tokens of a slot, from `first` on, to memory of kvf__cache_bytes, in the activation
 * type; appends such a copy to a slot with room for it. */
size_t kvf__cache_bytes(const kvf__cache *cache, int64_t n); /* 0: more than memory can address */
void kvf__cache_save(const kvf__cache *cache, int64_t slot, int64_t first, int64_t n, void *out);
void kvf__cache_restore(kvf__cache *cache, int64_t slot, int64_t n, const void *saved);

#endif
