/* Writes a GGUF again with other tensors. The bytes of its metadata are kept but for one number,
 * those of its tensors where the caller has no others. One changed tensor at a time is in memory.
 */
#include "gguf_int.h"
#include "outfile.h"

#include <string.h>

/* A file while it is written. */
typedef struct rewriting {
    kvf_ctx *ctx;
    const kvf__weights *old;
    const kvf__gguf_change *change;
    kvf__outfile file;
} rewriting;

static kvf_status put(const rewriting *w, const void *bytes, size_t n)
{
    return kvf__write_all(w->ctx, w->file.path, w->file.fd, bytes, n);
}

static size_t padding(const rewriting *w, size_t at)
{
    return (w->old->alignment - at % w->old->alignment) % w->old->alignment;
}

static kvf_status pad(const rewriting *w, size_t at)
{
    static const uint8_t ZEROS[64];

    for (size_t n = padding(w, at); n;) {
        const size_t part = n < sizeof ZEROS ? n : sizeof ZEROS;
        KVF_TRY(put(w, ZEROS, part));
        n -= part;
    }
    return KVF_OK;
}

/* Appends the section of tensors. */
static kvf_status make_infos(const rewriting *w, kvf__buf *out)
{
    uint64_t at = 0;

    for (size_t i = 0; i < w->old->table.n; i++) {
        const kvf__view *view = &w->change->views[i];
        const char *name = w->old->table.items[i].name;
        const uint64_t n = strlen(name);
        const uint32_t rank = (uint32_t)view->rank, type = kvf__gguf_type_id(view);
        KVF_TRY(kvf__buf_add(w->ctx, out, &n, 8));
        KVF_TRY(kvf__buf_add(w->ctx, out, name, n));
        KVF_TRY(kvf__buf_add(w->ctx, out, &rank, 4));
        for (uint32_t d = rank; d-- > 0;)
            KVF_TRY(kvf__buf_add(w->ctx, out, &view->dim[d], 8));
        KVF_TRY(kvf__buf_add(w->ctx, out, &type, 4));
        KVF_TRY(kvf__buf_add(w->ctx, out, &at, 8));
        at += kvf__view_bytes(view);
        at += padding(w, at);
    }
    return KVF_OK;
}

/* Writes the metadata, with the number after the only place of its key if there is one. */
static kvf_status put_metadata(const rewriting *w, kvf__buf *key)
{
    const uint8_t *bytes = w->old->maps[0].data, *end = bytes + w->old->metadata_bytes;
    const uint64_t n = w->change->key ? strlen(w->change->key) : 0;

    if (!n) return put(w, bytes, w->old->metadata_bytes);
    KVF_TRY(kvf__buf_add(w->ctx, key, &n, 8));
    KVF_TRY(kvf__buf_add(w->ctx, key, w->change->key, n));
    const uint8_t *at = memmem(bytes, w->old->metadata_bytes, key->data, key->n);
    at = at ? at + key->n : end;
    kvf__reader r = {.data = at, .n = (size_t)(end - at)};
    const uint32_t type = kvf__read_u32(&r) % KVF__GGUF_TYPES;
    const size_t size = kvf__gguf_types[type].bytes;
    if (r.failed || size > r.n - r.at || !strchr("ui", kvf__gguf_types[type].form) ||
        memmem(at, r.n, key->data, key->n))
        return kvf__fail(w->ctx, KVF_EUNSUPPORTED, "metadata \"%s\" is not one whole number",
                         w->change->key);
    at += r.at;
    KVF_TRY(put(w, bytes, (size_t)(at - bytes)));
    KVF_TRY(put(w, &w->change->value, size));
    return put(w, at + size, (size_t)(end - at) - size);
}

/* Writes the metadata and the tensors' section. */
static kvf_status put_head(const rewriting *w, kvf__buf *key, kvf__buf *infos)
{
    KVF_TRY(put_metadata(w, key));
    KVF_TRY(make_infos(w, infos));
    KVF_TRY(put(w, infos->data, infos->n));
    return pad(w, w->old->metadata_bytes + infos->n);
}

static kvf_status put_tensor(const rewriting *w, size_t i)
{
    const kvf__view *view = &w->change->views[i], *before = &w->old->table.items[i].view;
    const size_t bytes = kvf__view_bytes(view);
    uint8_t *made = NULL;

    kvf_status st = KVF_OK;
    if (!view->data) st = kvf__alloc_array(w->ctx, bytes, 1, &made);
    if (!st && made) st = w->change->make(w->ctx, w->change->user, i, made);
    if (!st) st = put(w, made ? made : view->data, bytes);
    if (!st) st = pad(w, bytes);
    kvf__free(made);
    kvf__mapfile_advise(&w->old->maps[0], before->data, kvf__view_bytes(before), false);
    return st;
}

kvf_status kvf__gguf_rewrite(kvf_ctx *ctx, const char *path, bool force, const kvf__weights *old,
                             const kvf__gguf_change *change)
{
    rewriting w = {.ctx = ctx, .old = old, .change = change};
    kvf__buf key = {0}, infos = {0};

    KVF_TRY(kvf__outfile_begin(ctx, path, force, &w.file));
    kvf_status st = put_head(&w, &key, &infos);
    for (size_t i = 0; i < old->table.n && !st; i++)
        st = put_tensor(&w, i);
    if (!st) st = kvf__outfile_commit(ctx, &w.file);
    kvf__outfile_abort(&w.file);
    kvf__buf_done(&key);
    kvf__buf_done(&infos);
    return st;
}
