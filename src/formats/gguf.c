/* Reader of GGUF files, version 2 and 3, little endian (ggml's docs/gguf.md): the structure around
 * metadata and tensors.
 *
 * Counts and lengths that exceed the remaining bytes are refused before any allocation. Big-endian
 * files, version 1 (32-bit lengths) and parts of split files are refused by name. */
#include "gguf_int.h"

#include <string.h>

/* Minimum sizes of a key and a tensor: length, a byte of text, type, value; length, rank, type,
 * offset. */
enum { MIN_KV_BYTES = 8 + 1 + 4 + 1, MIN_TENSOR_BYTES = 8 + 4 + 4 + 8, MOST_TENSORS = 1 << 16 };

static kvf_status check_version(const kvf__gguf *g, uint32_t version)
{
    if (version != 0 && (version & 0xffff) == 0)
        return kvf__fail(g->ctx, KVF_EUNSUPPORTED,
                         "%s: is a big-endian GGUF file, want little endian", g->where);
    if (version == 1)
        return kvf__fail(g->ctx, KVF_EUNSUPPORTED,
                         "%s: GGUF version 1, want 2 or 3: convert the model again", g->where);
    if (version != 2 && version != 3)
        return kvf__fail(g->ctx, KVF_EUNSUPPORTED, "%s: GGUF version %u, want 2 or 3", g->where,
                         version);
    return KVF_OK;
}

static kvf_status read_frame(kvf__gguf *g)
{
    const uint8_t *magic = kvf__read_bytes(&g->r, 4);
    uint32_t version = kvf__read_u32(&g->r);

    if (!magic || memcmp(magic, "GGUF", 4))
        return kvf__fail(g->ctx, KVF_EFORMAT, "%s: does not begin with \"GGUF\"", g->where);
    if (!g->r.failed) KVF_TRY(check_version(g, version));
    g->n_tensors = kvf__read_u64(&g->r);
    g->n_kv = kvf__read_u64(&g->r);
    if (g->r.failed)
        return kvf__fail(g->ctx, KVF_EFORMAT, "%s: ends inside its first 24 bytes", g->where);
    size_t left = g->r.n - g->r.at;
    if (g->n_kv > left / MIN_KV_BYTES)
        return kvf__fail(g->ctx, KVF_EFORMAT,
                         "%s: claims %llu metadata keys, but has only %zu bytes", g->where,
                         (unsigned long long)g->n_kv, left);
    if (g->n_tensors > left / MIN_TENSOR_BYTES)
        return kvf__fail(g->ctx, KVF_EFORMAT, "%s: claims %llu tensors, but has only %zu bytes",
                         g->where, (unsigned long long)g->n_tensors, left);
    if (g->n_tensors > MOST_TENSORS)
        return kvf__fail(g->ctx, KVF_EFORMAT, "%s: %llu tensors, want at most %d", g->where,
                         (unsigned long long)g->n_tensors, MOST_TENSORS);
    return KVF_OK;
}

static kvf_status check_whole(const kvf__gguf *g)
{
    int64_t count = kvf_json_int(kvf_json_get(g->weights->meta, "split.count"), 1);
    int64_t number = kvf_json_int(kvf_json_get(g->weights->meta, "split.no"), 0);

    if (count <= 1) return KVF_OK;
    return kvf__fail(g->ctx, KVF_EUNSUPPORTED,
                     "%s: part %lld of %lld of a split model: join it with gguf-split --merge",
                     g->where, (long long)number + 1, (long long)count);
}

kvf_status kvf__gguf_parse(kvf_ctx *ctx, const char *where, const void *bytes, size_t n,
                           kvf__weights *weights)
{
    kvf__gguf g = {.ctx = ctx,
                   .where = where,
                   .r = {.data = bytes, .n = n},
                   .weights = weights,
                   .alignment = 32};

    KVF_TRY(read_frame(&g));
    KVF_TRY(kvf__gguf_read_meta(&g));
    weights->metadata_bytes = g.r.at;
    weights->alignment = g.alignment;
    KVF_TRY(check_whole(&g));
    return kvf__gguf_read_tensors(&g);
}

kvf_status kvf__gguf_open(kvf_ctx *ctx, const char *path, kvf__weights *out)
{
    return kvf__weights_open_with(ctx, path, kvf__gguf_parse, out);
}
