/* Growing byte buffers and id lists. Both double, so n additions cost O(n) copies.
 *
 * A buffer ends with an extra NUL byte, so that its data can be used as a C string. */
#include "base_int.h"

#include <string.h>

enum { FIRST_CAP = 64 };

/* Returns the next capacity that holds `need`; 0 on overflow. */
static size_t next_cap(size_t cap, size_t need)
{
    size_t next = cap ? cap : FIRST_CAP;
    while (next < need) {
        if (next > SIZE_MAX / 2) return 0;
        next *= 2;
    }
    return next;
}

kvf_status kvf__reserve(kvf_ctx *ctx, void *inout, size_t *cap, size_t need, size_t size)
{
    size_t bytes;

    if (*cap && need <= *cap) return KVF_OK; /* the common case, taken for every token */
    size_t next = next_cap(*cap, need);
    if (next == 0 || !kvf__mul(next, size, &bytes))
        return kvf__fail(ctx, KVF_ENOMEM, "out of memory: cannot hold %zu items", need);
    KVF_TRY(kvf__grow(ctx, inout, *cap * size, bytes));
    *cap = next;
    return KVF_OK;
}

/* Reserves room for n more bytes and the NUL. */
static kvf_status buf_reserve(kvf_ctx *ctx, kvf__buf *buf, size_t n)
{
    size_t need, cap;

    if (!kvf__add(buf->n, n, &need) || !kvf__add(need, 1, &need) ||
        !(cap = next_cap(buf->cap, need)))
        return kvf__fail(ctx, KVF_ENOMEM, "out of memory: cannot add %zu bytes to %zu", n, buf->n);
    if (cap == buf->cap) return KVF_OK;
    KVF_TRY(kvf__grow(ctx, &buf->data, buf->cap, cap));
    buf->cap = cap;
    return KVF_OK;
}

kvf_status kvf__buf_add(kvf_ctx *ctx, kvf__buf *buf, const void *bytes, size_t n)
{
    KVF_TRY(buf_reserve(ctx, buf, n));
    if (n) memcpy(buf->data + buf->n, bytes, n);
    buf->n += n;
    buf->data[buf->n] = '\0';
    return KVF_OK;
}

kvf_status kvf__buf_addc(kvf_ctx *ctx, kvf__buf *buf, char c)
{
    return kvf__buf_add(ctx, buf, &c, 1);
}

kvf_status kvf__buf_printf(kvf_ctx *ctx, kvf__buf *buf, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0) return kvf__fail(ctx, KVF_EINTERNAL, "cannot format \"%s\"", fmt);
    KVF_TRY(buf_reserve(ctx, buf, (size_t)n));

    va_start(args, fmt);
    vsnprintf(buf->data + buf->n, (size_t)n + 1, fmt, args);
    va_end(args);
    buf->n += (size_t)n;
    return KVF_OK;
}

void kvf__buf_done(kvf__buf *buf)
{
    kvf__free(buf->data);
    *buf = (kvf__buf){0};
}

kvf_status kvf__ids_allow(kvf_ctx *ctx, const kvf__ids *ids, size_t more)
{
    if (!ids->most || (ids->n <= ids->most && more <= ids->most - ids->n)) return KVF_OK;
    return kvf__fail(ctx, KVF_EDATA, "the text has more than %zu tokens", ids->most);
}

kvf_status kvf__ids_append(kvf_ctx *ctx, kvf__ids *ids, const int32_t *from, size_t n)
{
    size_t need;

    KVF_TRY(kvf__ids_allow(ctx, ids, n));
    if (!kvf__add(ids->n, n, &need)) need = SIZE_MAX; /* overflow of the capacity */
    KVF_TRY(kvf__reserve(ctx, &ids->data, &ids->cap, need, sizeof *ids->data));
    if (n) memcpy(ids->data + ids->n, from, n * sizeof *ids->data);
    ids->n += n;
    return KVF_OK;
}

kvf_status kvf__ids_add(kvf_ctx *ctx, kvf__ids *ids, int32_t id)
{
    return kvf__ids_append(ctx, ids, &id, 1);
}

void kvf__ids_done(kvf__ids *ids)
{
    kvf__free(ids->data);
    *ids = (kvf__ids){0};
}
