/* Texts and small lists that live as long as their data set. Blocks are filled front to back and
 * never move, so pointers into them stay valid. */
#include "loader.h"

#include <string.h>

enum { BLOCK = 1 << 16, ALIGN = 16 };

typedef struct kvf__pool_block {
    struct kvf__pool_block *before;
    size_t used, cap;
} kvf__pool_block;

/* Offset of the first data byte of a block. */
#define HEAD ((sizeof(kvf__pool_block) + ALIGN - 1) / ALIGN * ALIGN)

kvf_status kvf__pool_alloc(kvf_ctx *ctx, kvf__pool *pool, size_t n, size_t size, void *out)
{
    size_t bytes = 0;
    kvf__pool_block *block = pool->last;
    if (!kvf__mul(n, size, &bytes) || bytes > SIZE_MAX / 2)
        return kvf__fail(ctx, KVF_ENOMEM, "out of memory");
    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (!block || block->cap - block->used < bytes) {
        size_t cap = HEAD + (bytes > BLOCK ? bytes : BLOCK);
        block = NULL;
        KVF_TRY(kvf__alloc(ctx, cap, &block));
        *block = (kvf__pool_block){.before = pool->last, .used = HEAD, .cap = cap};
        pool->last = block;
    }
    void *taken = (char *)block + block->used;
    block->used += bytes;
    memcpy(out, &taken, sizeof taken);
    return KVF_OK;
}

kvf_status kvf__pool_text(kvf_ctx *ctx, kvf__pool *pool, const char *text, size_t bytes,
                          const char **out)
{
    char *copy = NULL;
    KVF_TRY(kvf__pool_alloc(ctx, pool, bytes + 1, 1, &copy));
    if (bytes) memcpy(copy, text, bytes);
    *out = copy; /* the memory is zeroed, so the NUL is set */
    return KVF_OK;
}

void kvf__pool_done(kvf__pool *pool)
{
    for (kvf__pool_block *block = pool->last, *before; block; block = before) {
        before = block->before;
        kvf__free(block);
    }
    *pool = (kvf__pool){0};
}
