/* An arena: one block carved front to back, so that a training step allocates nothing.
 *
 * The planner adds up kvf__arena_round() of every piece before allocation. Under AddressSanitizer
 * each piece is followed by a red zone of 64 bytes, and unused memory is poisoned, so writes past a
 * piece are detected. Both sides use kvf__arena_round() and therefore agree. */
#include "arena.h"

#include <assert.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#define ARENA_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ARENA_ASAN 1
#endif
#endif

#ifdef ARENA_ASAN
#include <sanitizer/asan_interface.h>
enum { RED_ZONE = 64 };
#else
enum { RED_ZONE = 0 };
#define ASAN_POISON_MEMORY_REGION(data, n)   ((void)(data), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(data, n) ((void)(data), (void)(n))
#endif

enum { PIECE = 64 };

/* Saturates on overflow. The later allocation then fails and reports the error. */
size_t kvf__arena_round(size_t bytes)
{
    if (bytes > SIZE_MAX - PIECE - RED_ZONE) return SIZE_MAX;
    return (bytes + PIECE - 1) / PIECE * PIECE + RED_ZONE;
}

kvf_status kvf__arena_init(kvf_ctx *ctx, kvf__arena *arena, size_t bytes)
{
    char *data;

    KVF_TRY(kvf__alloc(ctx, bytes, &data));
    ASAN_POISON_MEMORY_REGION(data, bytes);
    *arena = (kvf__arena){.data = data, .cap = bytes};
    return KVF_OK;
}

void *kvf__arena_alloc(kvf__arena *arena, size_t bytes)
{
    char *piece = arena->data + arena->used;
    size_t size = kvf__arena_round(bytes);

    assert(size <= arena->cap - arena->used);
    /* first, because a second pass through the arena may use other pieces */
    ASAN_POISON_MEMORY_REGION(piece, size);
    ASAN_UNPOISON_MEMORY_REGION(piece, bytes);
    arena->used += size;
    return piece;
}

void kvf__arena_done(kvf__arena *arena)
{
    ASAN_UNPOISON_MEMORY_REGION(arena->data, arena->cap);
    kvf__free(arena->data);
    *arena = (kvf__arena){0};
}

void *kvf__carve(kvf__carver *carver, int64_t rows, int64_t width, size_t size)
{
    size_t n;
    if (!kvf__mul((size_t)rows, (size_t)width, &n) || !kvf__mul(n, size, &n) || n > SIZE_MAX / 4 ||
        !kvf__add(carver->bytes, kvf__arena_round(n), &carver->bytes)) {
        carver->overflow = true;
        return NULL;
    }
    return carver->arena ? kvf__arena_alloc(carver->arena, n) : NULL;
}

/* Plans a block with `first` bytes and then the pieces of lay(object). The caller runs the second
 * pass. */
static kvf_status plan_block(kvf_ctx *ctx, kvf__lay_fn lay, void *object, size_t first,
                             kvf__arena *arena)
{
    kvf__carver carver = {.bytes = kvf__arena_round(first)};

    lay(object, &carver);
    if (carver.overflow)
        return kvf__fail(ctx, KVF_ENOMEM, "out of memory: more than memory can address");
    return kvf__arena_init(ctx, arena, carver.bytes);
}

kvf_status kvf__carve_block(kvf_ctx *ctx, kvf__lay_fn lay, void *object, void **memory)
{
    kvf__arena arena;

    KVF_TRY(plan_block(ctx, lay, object, 0, &arena));
    lay(object, &(kvf__carver){.arena = &arena});
    *memory = arena.data;
    return KVF_OK;
}

kvf_status kvf__carve_object(kvf_ctx *ctx, kvf__lay_fn lay, void *made, size_t size, void *out)
{
    kvf__arena arena;

    KVF_TRY(plan_block(ctx, lay, made, size, &arena));
    void *object = kvf__arena_alloc(&arena, size);
    memcpy(object, made, size);
    lay(object, &(kvf__carver){.arena = &arena});
    memcpy(out, &object,
           sizeof object); /* the caller's T **: a void ** would break strict aliasing */
    return KVF_OK;
}
