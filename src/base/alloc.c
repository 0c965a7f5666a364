/* Memory: zeroed, aligned for the widest vector loads, counted, and failing on demand.
 *
 * Blocks come from posix_memalign, because aligned_alloc needs a size that is a multiple of the
 * alignment. With the exact size AddressSanitizer detects the first byte past the end. Before each
 * block is a header with its allocator, so kvf__free() needs no context. */
#include "ctx_int.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ALIGNMENT = 64 };

bool kvf__mul(size_t a, size_t b, size_t *out)
{
    if (b != 0 && a > SIZE_MAX / b) return false;
    *out = a * b;
    return true;
}

bool kvf__add(size_t a, size_t b, size_t *out)
{
    if (a > SIZE_MAX - b) return false;
    *out = a + b;
    return true;
}

/* Returns whether the test hook makes this allocation fail. */
static bool fails_now(kvf_ctx *ctx)
{
    if (!ctx || ctx->fail_in < 0) return false;
    return ctx->fail_in-- == 0;
}

/* Requests 2 MB pages for large blocks, which are read and written end to end many times. Only
 * whole pages inside the block are requested, so no memory is added. */
static void ask_for_large_pages(void *block, size_t size)
{
    enum { LARGE_PAGE = 2 << 20 };
    uintptr_t from = ((uintptr_t)block + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE;
    uintptr_t to = ((uintptr_t)block + size) / LARGE_PAGE * LARGE_PAGE;

    if (size >= 2 * (size_t)LARGE_PAGE && from < to)
        madvise((void *)from, to - from, MADV_HUGEPAGE);
}

typedef struct header {
    void *start;                               /* of the allocated memory */
    void (*release)(void *user, void *memory); /* NULL: free */
    void *user;
} header;

/* Allocates a block behind its header; NULL: no memory. */
static void *alloc_behind_header(kvf_ctx *ctx, size_t size)
{
    header made = {0};
    char *block;

    if (ctx && ctx->alloc) {
        made = (header){ctx->alloc(ctx->memory_user, size + 2 * ALIGNMENT), ctx->release,
                        ctx->memory_user};
        if (!made.start) return NULL;
        block = (char *)made.start + ALIGNMENT;
        block += (ALIGNMENT - (uintptr_t)block % ALIGNMENT) % ALIGNMENT;
    } else {
        if (posix_memalign(&made.start, ALIGNMENT, size + ALIGNMENT)) return NULL;
        block = (char *)made.start + ALIGNMENT;
        ask_for_large_pages(block, size);
    }
    memcpy(block - sizeof made, &made, sizeof made);
    return block;
}

/* Allocates a block with undefined contents; NULL after reporting. */
static void *alloc_block(kvf_ctx *ctx, size_t bytes)
{
    void *block = NULL;
    size_t size = bytes ? bytes : ALIGNMENT;
    int64_t capacity;
    const char *whose;

    if (!kvf__memory_left(ctx, bytes, &capacity, &whose)) {
        kvf__fail(ctx, KVF_ENOMEM, "out of memory: cannot get %zu bytes, %s leaves %lld", bytes,
                  whose, (long long)capacity);
        return NULL;
    }
    if (!fails_now(ctx) && size <= PTRDIFF_MAX - 2 * ALIGNMENT)
        block = alloc_behind_header(ctx, size);
    if (!block) {
        kvf__fail(ctx, KVF_ENOMEM, "out of memory: cannot get %zu bytes", bytes);
        return NULL;
    }
    if (ctx) ctx->allocations++;
    return block;
}

/* Copies the pointer as bytes: writing the caller's T ** through a void ** breaks strict
 * aliasing. */
static void store_pointer(void *out, void *block)
{
    memcpy(out, &block, sizeof block);
}

kvf_status kvf__alloc(kvf_ctx *ctx, size_t bytes, void *out)
{
    void *block = alloc_block(ctx, bytes);
    if (!block) return KVF_ENOMEM;
    memset(block, 0, bytes ? bytes : ALIGNMENT);
    store_pointer(out, block);
    return KVF_OK;
}

kvf_status kvf__alloc_array(kvf_ctx *ctx, size_t n, size_t size, void *out)
{
    size_t bytes;
    if (!kvf__mul(n, size, &bytes))
        return kvf__fail(ctx, KVF_ENOMEM, "out of memory: cannot get %zu times %zu bytes", n, size);
    return kvf__alloc(ctx, bytes, out);
}

kvf_status kvf__grow(kvf_ctx *ctx, void *inout, size_t old_bytes, size_t new_bytes)
{
    void *old;

    memcpy(&old, inout, sizeof old);
    if (old && new_bytes <= old_bytes) return KVF_OK;
    void *block = alloc_block(ctx, new_bytes);
    if (!block) return KVF_ENOMEM;
    if (old && old_bytes) memcpy(block, old, old_bytes);
    kvf__free(old);
    store_pointer(inout, block);
    return KVF_OK;
}

void kvf__free(void *memory)
{
    header of;

    if (!memory) return;
    memcpy(&of, (char *)memory - sizeof of, sizeof of);
    if (of.release)
        of.release(of.user, of.start);
    else
        free(of.start);
}

void kvf__free_kept(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

kvf_status kvf__strndup(kvf_ctx *ctx, const char *text, size_t bytes, char **out)
{
    char *copy;
    size_t size;

    if (!kvf__add(bytes, 1, &size))
        return kvf__fail(ctx, KVF_ENOMEM, "out of memory: cannot get %zu bytes and one", bytes);
    KVF_TRY(kvf__alloc(ctx, size, &copy));
    if (bytes) memcpy(copy, text, bytes);
    *out = copy;
    return KVF_OK;
}

kvf_status kvf__strdup(kvf_ctx *ctx, const char *text, char **out)
{
    return kvf__strndup(ctx, text, strlen(text), out);
}

kvf_status kvf__asprintf(kvf_ctx *ctx, char **out, const char *fmt, ...)
{
    va_list args;
    char *text;

    va_start(args, fmt);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0) return kvf__fail(ctx, KVF_EINTERNAL, "cannot format \"%s\"", fmt);

    kvf_status st = kvf__alloc(ctx, (size_t)n + 1, &text);
    if (st) return st;
    va_start(args, fmt);
    vsnprintf(text, (size_t)n + 1, fmt, args);
    va_end(args);
    *out = text;
    return KVF_OK;
}
