/* The generation cache: keys and values of earlier tokens, one slot per row.
 *
 * The layout is that of a shared segment of attention, [G, room, D] per slot, layer and key/value,
 * keys after RoPE. Every slot has its own memory, for as many tokens as its row may need. The
 * prefix is separate, segment 0 of every pass, so the layout does not depend on the prefix length.
 * A pass appends layer by layer, and increases the lengths after the last. */
#include "arena.h"
#include "pass_priv.h"

#include <assert.h>
#include <string.h>

static size_t state_bytes(const kvf__cache *cache)
{
    return (size_t)cache->states * sizeof(float);
}

float *kvf__cache_state(const kvf__cache *cache, int64_t slot)
{
    return cache->data[slot];
}

const float *kvf__cache_states(const kvf__cache *cache, int64_t slot, int64_t *n)
{
    *n = cache->states;
    return *n ? cache->data[slot] : NULL;
}

/* Computes the bytes of one slot: states, then [L, 2, G, room, D]; false on overflow. */
static bool slot_bytes(const kvf__cache *cache, int64_t reserved, size_t *out)
{
    const int64_t dims[] = {kvf__kv_at(&cache->shape, cache->shape.L).width, 2, reserved};
    *out = kvf__act_size(cache->act);
    for (size_t i = 0; i < sizeof dims / sizeof dims[0]; i++)
        if (!kvf__mul(*out, (size_t)dims[i], out)) return false;
    *out += state_bytes(cache);
    return *out >= state_bytes(cache);
}

static void lay_out(void *object, kvf__carver *carve)
{
    kvf__cache *cache = object;

    cache->data = kvf__carve(carve, cache->slots, 1, sizeof *cache->data);
    cache->reserved = kvf__carve(carve, cache->slots, 1, sizeof *cache->reserved);
    cache->length = kvf__carve(carve, cache->slots, 1, sizeof *cache->length);
    cache->source = kvf__carve(carve, cache->slots, 1, sizeof *cache->source);
}

kvf_status kvf__cache_create_empty(kvf_ctx *ctx, const kvf__model *model, int64_t slots,
                                   int64_t capacity, kvf__cache **out)
{
    kvf__cache made = {.desc = &model->desc,
                       .shape = kvf__desc_kv(&model->desc),
                       .states = kvf__mixer_state_at(&model->desc, model->desc.L),
                       .slots = slots,
                       .capacity = capacity,
                       .act = model->act};

    if (slots < 1 || capacity < 1)
        return kvf__fail(ctx, KVF_ESHAPE,
                         "cache: %lld slots of %lld tokens, expected at least 1 of 1",
                         (long long)slots, (long long)capacity);
    return kvf__carve_object(ctx, lay_out, &made, sizeof made, out);
}

kvf_status kvf__cache_create(kvf_ctx *ctx, const kvf__model *model, int64_t slots, int64_t capacity,
                             kvf__cache **out)
{
    kvf__cache *cache = NULL;
    KVF_TRY(kvf__cache_create_empty(ctx, model, slots, capacity, &cache));
    for (int64_t slot = 0; slot < slots; slot++) {
        kvf_status st = kvf__cache_reserve(ctx, cache, slot, capacity);
        if (st) {
            kvf__cache_free(cache);
            return st;
        }
    }
    *out = cache;
    return KVF_OK;
}

kvf_status kvf__cache_reserve(kvf_ctx *ctx, kvf__cache *cache, int64_t slot, int64_t reserved)
{
    void *block = NULL;
    size_t bytes;

    assert(slot >= 0 && slot < cache->slots && reserved >= 0 && reserved <= cache->capacity);
    if (!slot_bytes(cache, reserved, &bytes))
        return kvf__fail(ctx, KVF_ENOMEM, "cache: %lld tokens are more than memory can address",
                         (long long)reserved);
    if (reserved) KVF_TRY(kvf__alloc(ctx, bytes, &block));
    kvf__free(cache->data[slot]);
    cache->data[slot] = block;
    cache->reserved[slot] = reserved;
    cache->length[slot] = cache->source[slot] = 0;
    return KVF_OK;
}

void kvf__cache_free(kvf__cache *cache)
{
    if (!cache) return;
    for (int64_t slot = 0; slot < cache->slots; slot++)
        kvf__free(cache->data[slot]);
    kvf__free(cache);
}

int64_t kvf__cache_length(const kvf__cache *cache, int64_t slot)
{
    assert(slot >= 0 && slot < cache->slots);
    return cache->length[slot];
}

void kvf__cache_truncate(kvf__cache *cache, int64_t slot, int64_t length)
{
    assert(slot >= 0 && slot < cache->slots && length >= 0);
    assert(!cache->states || !length || length >= cache->length[slot]);
    if (length < cache->length[slot]) cache->length[slot] = length;
    if (!length) cache->source[slot] = 0;
}

void *kvf__cache_at(const kvf__cache *cache, int64_t l, int64_t slot, int kv)
{
    const kvf__kv_heads at = kvf__kv_at(&cache->shape, l);
    const int64_t widths = 2 * at.width + kv * at.G * at.D;
    return (char *)cache->data[slot] + state_bytes(cache) +
           (size_t)(widths * cache->reserved[slot]) * kvf__act_size(cache->act);
}

void kvf__cache_copy(kvf__cache *cache, int64_t from, int64_t to, int64_t n)
{
    const size_t size = kvf__act_size(cache->act);

    assert(from != to && n >= 0 && n <= cache->length[from] && n <= cache->reserved[to]);
    assert(!cache->states || n == cache->length[from]);
    for (int64_t l = 0; l < cache->shape.L; l++)
        for (int kv = 0; kv < 2; kv++) {
            const kvf__kv_heads heads = kvf__kv_at(&cache->shape, l);
            char *into = kvf__cache_at(cache, l, to, kv);
            const char *out_of = kvf__cache_at(cache, l, from, kv);
            const kvf__place place = kvf__layer_place(cache->desc, l);
            const bool source = place == KVF__PLACE_ENCODER || place == KVF__PLACE_CROSS;
            const int64_t tokens = source ? cache->source[from] : n;
            for (int64_t g = 0; g < heads.G; g++)
                memcpy(into + (size_t)(g * cache->reserved[to] * heads.D) * size,
                       out_of + (size_t)(g * cache->reserved[from] * heads.D) * size,
                       (size_t)(tokens * heads.D) * size);
        }
    if (cache->states) memcpy(cache->data[to], cache->data[from], state_bytes(cache));
    cache->length[to] = n;
    cache->source[to] = cache->source[from];
}

void kvf__cache_read(const kvf__cache *cache, int64_t slot, int64_t first, int64_t n, float *out)
{
    size_t size = kvf__act_size(cache->act);

    assert(slot >= 0 && slot < cache->slots && first >= 0 && n >= 0);
    assert(first + n <= cache->length[slot]);
    for (int64_t l = 0; l < cache->shape.L; l++)
        for (int kv = 0; kv < 2; kv++) {
            const kvf__kv_heads at = kvf__kv_at(&cache->shape, l);
            const char *from = kvf__cache_at(cache, l, slot, kv);
            float *to = out + (2 * at.width + kv * at.G * at.D) * n;
            for (int64_t g = 0; g < at.G; g++)
                kvf__to_f32(cache->act,
                            from + (size_t)((g * cache->reserved[slot] + first) * at.D) * size,
                            to + g * n * at.D, n * at.D);
        }
}

size_t kvf__cache_bytes(const kvf__cache *cache, int64_t n)
{
    size_t bytes;

    return slot_bytes(cache, n, &bytes) ? bytes : 0;
}

/* Copies n tokens of a slot, from `first` on, to or from `block` [L, 2, G, n, D]. */
static void move_tokens(const kvf__cache *cache, int64_t slot, int64_t first, int64_t n, bool save,
                        char *block)
{
    const size_t size = kvf__act_size(cache->act);

    for (int64_t l = 0; l < cache->shape.L; l++)
        for (int kv = 0; kv < 2; kv++) {
            const kvf__kv_heads at = kvf__kv_at(&cache->shape, l);
            const size_t head = (size_t)(n * at.D) * size;
            char *tokens = kvf__cache_at(cache, l, slot, kv);
            for (int64_t g = 0; g < at.G; g++, block += head) {
                char *own = tokens + (size_t)((g * cache->reserved[slot] + first) * at.D) * size;
                memcpy(save ? block : own, save ? own : block, head);
            }
        }
}

void kvf__cache_save(const kvf__cache *cache, int64_t slot, int64_t first, int64_t n, void *out)
{
    assert(first >= 0 && n >= 0 && first + n <= cache->length[slot]);
    assert(!cache->states || first + n == cache->length[slot]);
    if (cache->states) memcpy(out, cache->data[slot], state_bytes(cache));
    move_tokens(cache, slot, first, n, true, (char *)out + state_bytes(cache));
}

void kvf__cache_restore(kvf__cache *cache, int64_t slot, int64_t n, const void *saved)
{
    const int64_t length = cache->length[slot];

    assert(n >= 0 && length + n <= cache->reserved[slot]);
    if (cache->states) memcpy(cache->data[slot], saved, state_bytes(cache));
    move_tokens(cache, slot, length, n, false, (char *)(uintptr_t)saved + state_bytes(cache));
    cache->length[slot] = length + n;
}

/* Appends keys and values of each row's tokens to its slot. In rows of kv_of [tokens, ld] they
 * follow `first` other heads. */
static void put_tokens(kvf__cache *cache, int64_t l, const kvf__batch *batch, const int32_t *slot,
                       const char *kv_of, int64_t ld, int64_t first, bool behind)
{
    const kvf__kv_heads heads = kvf__kv_at(&cache->shape, l);
    const size_t head = (size_t)heads.D * kvf__act_size(cache->act);
    const size_t width = (size_t)ld * kvf__act_size(cache->act);

    for (int64_t r = 0; r < batch->n_rows; r++) {
        int64_t s = kvf__row_slot(slot, r), at = behind ? cache->length[s] : 0;
        for (int kv = 0; kv < 2; kv++)
            for (int64_t t = batch->start[r]; t < batch->start[r + 1]; t++) {
                const char *from = kv_of + (size_t)t * width +
                                   (size_t)(first + kv * heads.G) * head;
                char *to = (char *)kvf__cache_at(cache, l, s, kv) +
                           (size_t)(at + t - batch->start[r]) * head;
                for (int64_t g = 0; g < heads.G; g++)
                    memcpy(to + (size_t)(g * cache->reserved[s]) * head, from + (size_t)g * head,
                           head);
            }
    }
}

void kvf__cache_append(kvf__cache *cache, int64_t l, const kvf__batch *batch, const int32_t *slot,
                       const void *qkv, int64_t H)
{
    const bool behind = kvf__layer_place(cache->desc, l) != KVF__PLACE_ENCODER;

    put_tokens(cache, l, batch, slot, qkv, kvf__qkv_width(cache->desc, l), H, behind);
}

void kvf__cache_put_source(kvf__cache *cache, int64_t l, const kvf__batch *source,
                           const int32_t *slot, const void *kv)
{
    const kvf__kv_heads heads = kvf__kv_at(&cache->shape, l);

    put_tokens(cache, l, source, slot, kv, 2 * heads.G * heads.D, 0, false);
    for (int64_t r = 0; r < source->n_rows; r++)
        cache->source[kvf__row_slot(slot, r)] = source->start[r + 1] - source->start[r];
}

int64_t kvf__cache_source(const kvf__cache *cache, int64_t slot)
{
    return cache->source[slot];
}

kvf__kvseg kvf__cache_segment(const kvf__cache *cache, int64_t l, int64_t slot)
{
    const int64_t D = kvf__kv_at(&cache->shape, l).D;

    return (kvf__kvseg){.k = kvf__cache_at(cache, l, slot, 0),
                        .v = kvf__cache_at(cache, l, slot, 1),
                        .dtype = cache->act,
                        .len = cache->length[slot],
                        .token_stride = D,
                        .head_stride = cache->reserved[slot] * D,
                        .near = true};
}

kvf__kvseg kvf__cache_source_segment(const kvf__cache *cache, int64_t l, int64_t slot)
{
    kvf__kvseg seg = kvf__cache_segment(cache, l, slot);

    seg.len = cache->source[slot];
    seg.near = false;
    return seg;
}

void kvf__cache_advance(kvf__cache *cache, const kvf__batch *batch, const int32_t *slot)
{
    for (int64_t r = 0; r < batch->n_rows; r++)
        cache->length[kvf__row_slot(slot, r)] += batch->start[r + 1] - batch->start[r];
}
