/* The memory of an object in one block, carved front to back. */
#ifndef KVF_ARENA_H
#define KVF_ARENA_H

#include "base_int.h"

/* A block carved front to back into 64-byte aligned pieces. Under AddressSanitizer the gaps are
 * poisoned. */
typedef struct kvf__arena {
    char *data;
    size_t cap, used;
} kvf__arena;
kvf_status kvf__arena_init(kvf_ctx *ctx, kvf__arena *arena, size_t bytes);
void *kvf__arena_alloc(kvf__arena *arena, size_t bytes); /* asserts that the piece fits */
size_t kvf__arena_round(size_t bytes);                   /* space that a piece of this size uses */
void kvf__arena_done(kvf__arena *arena);

/* Lays out pieces in two passes with the same calls: counts while arena is NULL, carves
 * afterwards. */
typedef struct kvf__carver {
    kvf__arena *arena;
    size_t bytes;
    bool overflow;
} kvf__carver;
void *kvf__carve(kvf__carver *carver, int64_t rows, int64_t width, size_t size);

/* An object's arrays in one allocation: `lay` sets every pointer by kvf__carve() and is called
 * twice. In between nothing may be read through these pointers: the first round gives NULL.
 *
 *     static void lay(void *object, kvf__carver *carver)
 *     {
 *         table *t = object;
 *         t->x = kvf__carve(carver, t->n, 1, sizeof *t->x);
 *         t->label = kvf__carve(carver, t->n, t->width, sizeof *t->label);
 *     }
 *
 * kvf__carve_block: *memory is the block, for kvf__free(); the object is the caller's.
 * kvf__carve_object: the block begins with a copy of *made [size], so that kvf__free(*out) frees
 * object and arrays. */
typedef void (*kvf__lay_fn)(void *object, kvf__carver *carver);
kvf_status kvf__carve_block(kvf_ctx *ctx, kvf__lay_fn lay, void *object, void **memory);
kvf_status kvf__carve_object(kvf_ctx *ctx, kvf__lay_fn lay, void *made, size_t size,
                             void *out /* T ** */);

#endif
