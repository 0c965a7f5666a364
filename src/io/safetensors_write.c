/* Writer of safetensors files: byte for byte what the reference library writes for the same
 * tensors.
 *
 * Tensors go by type, widest first, then by name; the header is compact JSON, padded with spaces to
 * a multiple of 8 bytes, and says {"format":"pt"}, without which transformers refuses the file. The
 * finished header passes through our own strict JSON reader before anything is written: that
 * refuses names given twice and names that are no UTF-8. */
#include "file_int.h"
#include "outfile.h"
#include "safetensors_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct entry {
    const kvf__tensor *tensor;
    size_t type; /* place in kvf__st_types */
} entry;

static int by_type_and_name(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->type != y->type) return x->type > y->type ? -1 : 1;
    return strcmp(x->tensor->name,
                  y->tensor->name); /* bytes, unsigned, as the reference compares */
}

static kvf_status make_entries(kvf_ctx *ctx, const char *path, const kvf__tensor *tensors, size_t n,
                               entry *entries)
{
    for (size_t i = 0; i < n; i++) {
        kvf__dtype dtype = tensors[i].view.dtype;
        size_t type = 0;
        while (type < KVF__ST_TYPES && kvf__st_types[type].dtype != dtype)
            type++;
        if (dtype == KVF__OTHER || type == KVF__ST_TYPES)
            return kvf__fail(ctx, KVF_EUNSUPPORTED,
                             "%s: tensor \"%.80s\": safetensors files hold no %s", path,
                             tensors[i].name, kvf__dtype_name(dtype));
        entries[i] = (entry){&tensors[i], type};
    }
    qsort(entries, n, sizeof *entries, by_type_and_name);
    return KVF_OK;
}

/* Escapes only what JSON demands, in the spelling of the reference. */
static kvf_status add_string(kvf_ctx *ctx, kvf__buf *buf, const char *text)
{
    static const char plain[] = "\"\\\b\f\n\r\t", escaped[] = "\"\\bfnrt";

    KVF_TRY(kvf__buf_addc(ctx, buf, '"'));
    for (const char *c = text; *c; c++) {
        const char *found = strchr(plain, *c);
        if (found)
            KVF_TRY(kvf__buf_printf(ctx, buf, "\\%c", escaped[found - plain]));
        else if ((unsigned char)*c < 0x20)
            KVF_TRY(kvf__buf_printf(ctx, buf, "\\u%04x", *c));
        else
            KVF_TRY(kvf__buf_addc(ctx, buf, *c));
    }
    return kvf__buf_addc(ctx, buf, '"');
}

static kvf_status add_tensor(kvf_ctx *ctx, kvf__buf *buf, const entry *e, size_t *at)
{
    const kvf__view *view = &e->tensor->view;
    size_t end;

    if (!kvf__add(*at, kvf__view_bytes(view), &end))
        return kvf__fail(ctx, KVF_ESHAPE, "tensor \"%.80s\": too many bytes", e->tensor->name);
    KVF_TRY(kvf__buf_addc(ctx, buf, ','));
    KVF_TRY(add_string(ctx, buf, e->tensor->name));
    KVF_TRY(
        kvf__buf_printf(ctx, buf, ":{\"dtype\":\"%s\",\"shape\":[", kvf__st_types[e->type].name));
    for (int i = 0; i < view->rank; i++)
        KVF_TRY(kvf__buf_printf(ctx, buf, "%s%lld", i ? "," : "", (long long)view->dim[i]));
    KVF_TRY(kvf__buf_printf(ctx, buf, "],\"data_offsets\":[%zu,%zu]}", *at, end));
    *at = end;
    return KVF_OK;
}

static kvf_status make_header(kvf_ctx *ctx, const char *path, const entry *entries, size_t n,
                              kvf__buf *buf)
{
    static const char start[] = "{\"__metadata__\":{\"format\":\"pt\"}";
    kvf_json *check = NULL;
    size_t at = 0;

    KVF_TRY(kvf__buf_add(ctx, buf, start, sizeof start - 1));
    for (size_t i = 0; i < n; i++)
        KVF_TRY(add_tensor(ctx, buf, &entries[i], &at));
    KVF_TRY(kvf__buf_addc(ctx, buf, '}'));
    while (buf->n % 8)
        KVF_TRY(kvf__buf_addc(ctx, buf, ' '));
    if (buf->n > KVF__ST_MAX_HEADER)
        return kvf__fail(ctx, KVF_EUNSUPPORTED, "%s: header of %zu bytes, at most %zu are allowed",
                         path, buf->n, KVF__ST_MAX_HEADER);
    KVF_TRY(kvf_json_parse(ctx, path, buf->data, buf->n, &check));
    kvf_json_free(check);
    return KVF_OK;
}

static bool put(FILE *file, const void *bytes, size_t n)
{
    return n == 0 || fwrite(bytes, 1, n, file) == n;
}

static bool put_all(FILE *file, const kvf__buf *header, const entry *entries, size_t n)
{
    uint64_t header_n = header->n; /* little endian: see dtype.c */

    if (!put(file, &header_n, sizeof header_n) || !put(file, header->data, header->n)) return false;
    for (size_t i = 0; i < n; i++) {
        const kvf__view *view = &entries[i].tensor->view;
        if (!put(file, view->data, kvf__view_bytes(view))) return false;
    }
    return true;
}

static kvf_status write_file(kvf_ctx *ctx, const char *path, bool force, const kvf__buf *header,
                             const entry *entries, size_t n)
{
    kvf__outfile out = {0};
    FILE *file = NULL;
    kvf_status st;

    st = kvf__outfile_begin(ctx, path, force, &out);
    if (st) goto out;
    file = fopen(out.temp, "wb");
    if (!file || !put_all(file, header, entries, n)) {
        st = kvf__fail(ctx, KVF_EIO, "%s: cannot write: %s", path, strerror(errno));
        goto out;
    }
    int closed = fclose(file);
    file = NULL;
    if (closed) {
        st = kvf__fail(ctx, KVF_EIO, "%s: cannot write: %s", path, strerror(errno));
        goto out;
    }
    st = kvf__outfile_commit(ctx, &out);
out:
    if (file) fclose(file);
    kvf__outfile_abort(&out);
    return st;
}

kvf_status kvf__safetensors_write(kvf_ctx *ctx, const char *path, bool force,
                                  const kvf__tensor *tensors, size_t n)
{
    entry *entries = NULL;
    kvf__buf header = {0};
    kvf_status st;

    st = kvf__alloc_array(ctx, n, sizeof *entries, &entries);
    if (st) goto out;
    st = make_entries(ctx, path, tensors, n, entries);
    if (st) goto out;
    st = make_header(ctx, path, entries, n, &header);
    if (st) goto out;
    st = write_file(ctx, path, force, &header, entries, n);
out:
    kvf__buf_done(&header);
    kvf__free(entries);
    return st;
}
