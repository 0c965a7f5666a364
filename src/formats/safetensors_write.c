/* Writer of safetensors files, with the same bytes as the reference library for the same tensors.
 *
 * Tensors are ordered by type, widest first, then by name. The header is compact JSON, padded with
 * spaces to a multiple of 8 bytes. It has {"format":"pt"}, without which transformers refuses the
 * file, or the caller's metadata. Duplicate names and invalid UTF-8 are refused before anything is
 * written. */
#include "file_int.h"
#include "json_pack.h"
#include "outfile.h"
#include "safetensors_int.h"

#include <stdlib.h>
#include <string.h>

typedef struct tensor_entry {
    const kvf__tensor *tensor;
    size_t type; /* index in kvf__st_types */
} tensor_entry;

static int by_type_and_name(const void *a, const void *b)
{
    const tensor_entry *x = a, *y = b;
    if (x->type != y->type) return x->type > y->type ? -1 : 1;
    return strcmp(x->tensor->name, y->tensor->name); /* unsigned bytes, as in the reference */
}

static kvf_status make_entries(kvf_ctx *ctx, const char *path, const kvf__tensor *tensors, size_t n,
                               tensor_entry *entries)
{
    for (size_t i = 0; i < n; i++) {
        kvf__dtype dtype = tensors[i].view.dtype;
        size_t type = 0;
        while (type < KVF__ST_TYPES && kvf__st_types[type].dtype != dtype)
            type++;
        if (dtype == KVF__OTHER || type == KVF__ST_TYPES)
            return kvf__fail(ctx, KVF_EUNSUPPORTED,
                             "%s: tensor \"%.80s\": safetensors files do not support %s", path,
                             tensors[i].name, kvf__dtype_name(dtype));
        entries[i] = (tensor_entry){&tensors[i], type};
    }
    qsort(entries, n, sizeof *entries, by_type_and_name);
    return KVF_OK;
}

/* at: offset of its bytes in the data section, advanced past them. */
static kvf_status add_tensor(kvf_ctx *ctx, kvf_json *header, const tensor_entry *e, size_t *at)
{
    const kvf__view *view = &e->tensor->view;
    const char *name = e->tensor->name;
    kvf_json *shape = kvf_json_array();
    size_t begin = *at;
    bool added = kvf__add(begin, kvf__view_bytes(view), at) && !kvf_json_get(header, name);

    for (int i = 0; i < view->rank; i++)
        kvf_json_add(shape, kvf_json_new_int(view->dim[i]));
    kvf_json *info = kvf__json_pack("{s:s, s:o, s:[I, I]}", "dtype", kvf__st_types[e->type].name,
                                    "shape", shape, "data_offsets", (long long)begin,
                                    (long long)*at);
    if (added && kvf_json_set(header, name, info)) return KVF_OK;
    if (!added) kvf_json_free(info);
    return kvf__fail(ctx, KVF_EFORMAT,
                     "tensor \"%.80s\": occurs twice, is not UTF-8 or has too many bytes", name);
}

/* Pads the header with spaces to a multiple of 8 bytes. */
static kvf_status add_text(kvf_ctx *ctx, const char *path, const kvf_json *header, kvf__buf *out)
{
    char *text = kvf_json_text(header, KVF_JSON_COMPACT);

    if (!text) return kvf__fail(ctx, KVF_ENOMEM, "%s: out of memory", path);
    kvf_status st = kvf__buf_printf(ctx, out, "%-*s", (int)((strlen(text) + 7) / 8 * 8), text);
    kvf_json_text_free(text);
    return st;
}

static kvf_status make_header(kvf_ctx *ctx, const char *path, const tensor_entry *entries, size_t n,
                              kvf_json *metadata, kvf__buf *out)
{
    kvf_json *header = kvf_json_object();
    size_t at = 0;

    kvf_status st = kvf_json_set(header, "__metadata__", metadata)
                        ? KVF_OK
                        : kvf__fail(ctx, KVF_ENOMEM, "%s: out of memory", path);
    for (size_t i = 0; i < n && !st; i++)
        st = add_tensor(ctx, header, &entries[i], &at);
    if (!st) st = add_text(ctx, path, header, out);
    kvf_json_free(header);
    if (st || out->n <= KVF__ST_MAX_HEADER) return st;
    return kvf__fail(ctx, KVF_EUNSUPPORTED, "%s: header of %zu bytes, at most %zu are allowed",
                     path, out->n, KVF__ST_MAX_HEADER);
}

/* Writes the length of the header, little endian (see dtype.c on byte order), the header, and the
 * data. */
static kvf_status write_pieces(kvf_ctx *ctx, const char *path, bool force, const kvf__buf *header,
                               const tensor_entry *entries, size_t n)
{
    const uint64_t header_n = header->n;
    kvf__bytes *pieces = NULL;

    KVF_TRY(kvf__alloc_array(ctx, n + 2, sizeof *pieces, &pieces));
    pieces[0] = (kvf__bytes){&header_n, sizeof header_n};
    pieces[1] = (kvf__bytes){header->data, header->n};
    for (size_t i = 0; i < n; i++) {
        const kvf__view *view = &entries[i].tensor->view;
        pieces[2 + i] = (kvf__bytes){view->data, kvf__view_bytes(view)};
    }
    kvf_status st = kvf__write_pieces(ctx, path, force, pieces, n + 2);
    kvf__free(pieces);
    return st;
}

kvf_status kvf__safetensors_write_with(kvf_ctx *ctx, const char *path, bool force,
                                       const kvf__tensor *tensors, size_t n, kvf_json *metadata)
{
    tensor_entry *entries = NULL;
    kvf__buf header = {0};

    kvf_status st = kvf__alloc_array(ctx, n, sizeof *entries, &entries);
    if (!st) st = make_entries(ctx, path, tensors, n, entries);
    if (st)
        kvf_json_free(metadata);
    else
        st = make_header(ctx, path, entries, n, metadata, &header);
    if (!st) st = write_pieces(ctx, path, force, &header, entries, n);
    kvf__buf_done(&header);
    kvf__free(entries);
    return st;
}

kvf_status kvf__safetensors_write(kvf_ctx *ctx, const char *path, bool force,
                                  const kvf__tensor *tensors, size_t n)
{
    return kvf__safetensors_write_with(ctx, path, force, tensors, n,
                                       kvf__json_pack("{s:s}", "format", "pt"));
}
