/* Reader of one safetensors file: u64 header length, JSON header, data (safetensors' README,
 * Format).
 *
 * Tensors sorted by offset must cover the file exactly, without gap or overlap, from the first data
 * byte to the last of the file. Each must have the bytes of its type and shape. Checks that the
 * reference parser gets from its JSON library (strictness, no duplicate keys, integers as integers)
 * are made here or in kvf_json_parse(). Tensors may start at any byte; nothing is copied. */
#include "file_int.h"
#include "safetensors_int.h"

#include <stdlib.h>
#include <string.h>

const kvf__st_type kvf__st_types[KVF__ST_TYPES] = {
    {"BOOL", 8, KVF__BOOL},
    {"F4", 4, KVF__OTHER},
    {"F6_E2M3", 6, KVF__OTHER},
    {"F6_E3M2", 6, KVF__OTHER},
    {"U8", 8, KVF__U8},
    {"I8", 8, KVF__I8},
    {"F8_E5M2", 8, KVF__OTHER},
    {"F8_E4M3", 8, KVF__OTHER},
    {"F8_E8M0", 8, KVF__OTHER},
    {"F8_E4M3FNUZ", 8, KVF__OTHER},
    {"F8_E5M2FNUZ", 8, KVF__OTHER},
    {"I16", 16, KVF__I16},
    {"U16", 16, KVF__U16},
    {"F16", 16, KVF__F16},
    {"BF16", 16, KVF__BF16},
    {"I32", 32, KVF__I32},
    {"U32", 32, KVF__U32},
    {"F32", 32, KVF__F32},
    {"C64", 64, KVF__OTHER},
    {"F64", 64, KVF__F64},
    {"I64", 64, KVF__I64},
    {"U64", 64, KVF__U64},
};

/* Byte range of a tensor in the data section. */
typedef struct span {
    const char *name;
    size_t begin, end;
} span;

typedef struct header_source {
    kvf_ctx *ctx;
    const char *where;
    const uint8_t *data; /* the data section */
    size_t n;
} header_source;

/* jansson reads -0 as the integer 0; the reference refuses it as a size. */
static bool has_negative_zero(const char *json, size_t n)
{
    bool in_string = false;

    for (size_t i = 0; i + 1 < n; i++) {
        if (json[i] == '"')
            in_string = !in_string;
        else if (in_string && json[i] == '\\')
            i++;
        else if (!in_string && json[i] == '-' && json[i + 1] == '0')
            return true;
    }
    return false;
}

/* The following functions report errors without file and tensor, which read_tensor() adds. */
static kvf_status read_size(kvf_ctx *ctx, const kvf_json *value, const char *field, int64_t *out)
{
    *out = kvf_json_int(value, -1);
    if (kvf_json_typeof(value) == KVF_JSON_INT && *out >= 0) return KVF_OK;
    return kvf__fail(ctx, KVF_EFORMAT, "%s contains something other than integers of at least 0",
                     field);
}

static kvf_status read_type(kvf_ctx *ctx, const kvf_json *info, const kvf__st_type **out)
{
    size_t n;
    const char *type = kvf_json_str(kvf_json_get(info, "dtype"), &n);

    if (!type) return kvf__fail(ctx, KVF_EFORMAT, "dtype is missing or not a string");
    for (size_t i = 0; i < KVF__ST_TYPES; i++) {
        if (strlen(kvf__st_types[i].name) != n || memcmp(kvf__st_types[i].name, type, n)) continue;
        *out = &kvf__st_types[i];
        return KVF_OK;
    }
    return kvf__fail(ctx, KVF_EFORMAT, "unknown dtype \"%.20s\"", type);
}

static kvf_status read_shape(kvf_ctx *ctx, const kvf_json *info, kvf__view *view)
{
    kvf_json *shape = kvf_json_get(info, "shape");
    size_t rank = kvf_json_size(shape);

    if (kvf_json_typeof(shape) != KVF_JSON_ARRAY)
        return kvf__fail(ctx, KVF_EFORMAT, "shape is missing or not a list");
    if (rank > KVF__MAX_RANK)
        return kvf__fail(ctx, KVF_EUNSUPPORTED, "%zu dimensions, at most %d are supported", rank,
                         KVF__MAX_RANK);
    view->rank = (int)rank;
    for (size_t i = 0; i < rank; i++)
        KVF_TRY(read_size(ctx, kvf_json_at(shape, i), "shape", &view->dim[i]));
    return KVF_OK;
}

/* False if the shape overflows or its bits do not fill whole bytes. */
static bool shape_bytes(const kvf__view *view, size_t bits, size_t *out)
{
    size_t count, total;
    bool empty;

    if (!kvf__shape_count(view, &count, &empty) || !kvf__mul(count, bits, &total)) return false;
    if (empty) total = 0;
    *out = total / 8;
    return total % 8 == 0;
}

static kvf_status read_span(const header_source *src, const char *name, const kvf_json *info,
                            span *out)
{
    kvf_json *offsets = kvf_json_get(info, "data_offsets");
    int64_t begin = 0, end = 0;

    if (kvf_json_typeof(offsets) != KVF_JSON_ARRAY || kvf_json_size(offsets) != 2)
        return kvf__fail(src->ctx, KVF_EFORMAT, "data_offsets is not a list of two integers");
    KVF_TRY(read_size(src->ctx, kvf_json_at(offsets, 0), "data_offsets", &begin));
    KVF_TRY(read_size(src->ctx, kvf_json_at(offsets, 1), "data_offsets", &end));
    if (end < begin) return kvf__fail(src->ctx, KVF_EFORMAT, "data_offsets end before they begin");
    if ((uint64_t)end > src->n)
        return kvf__fail(src->ctx, KVF_EFORMAT,
                         "ends at byte %lld of the data, which has %zu (truncated?)",
                         (long long)end, src->n);
    *out = (span){name, (size_t)begin, (size_t)end};
    return KVF_OK;
}

static kvf_status read_view(const header_source *src, const char *name, const kvf_json *info,
                            kvf__view *view, span *out)
{
    const kvf__st_type *type = NULL;
    char shape_text[128];
    size_t bytes;

    if (kvf_json_typeof(info) != KVF_JSON_OBJECT)
        return kvf__fail(src->ctx, KVF_EFORMAT, "not an object");
    KVF_TRY(read_type(src->ctx, info, &type));
    KVF_TRY(read_shape(src->ctx, info, view));
    KVF_TRY(read_span(src, name, info, out));
    if (!shape_bytes(view, type->bits, &bytes) || bytes != out->end - out->begin)
        return kvf__fail(src->ctx, KVF_EFORMAT, "%zu bytes of data do not match %s of shape %s",
                         out->end - out->begin, type->name,
                         kvf__shape_text(shape_text, view->rank, view->dim));
    view->data = src->data + out->begin;
    view->dtype = type->dtype;
    if (view->dtype == KVF__OTHER) {
        view->other_bytes = bytes;
        view->other_name = type->name;
    }
    return KVF_OK;
}

static kvf_status read_tensor(const header_source *src, const char *name, const kvf_json *info,
                              kvf__table *table, span *out)
{
    kvf__view view = {0};
    kvf_status st = read_view(src, name, info, &view, out);

    if (st) return kvf__fail_prefix(src->ctx, st, "%s: tensor \"%.80s\"", src->where, name);
    st = kvf__table_add(src->ctx, table, name, view);
    return st == KVF_EFORMAT ? kvf__fail_prefix(src->ctx, st, "%s", src->where) : st;
}

/* Copies the metadata, because the header is freed; by way of text, which keeps every string
 * unchanged. */
static kvf_status read_metadata(const header_source *src, kvf_json *value, kvf_json **out)
{
    if (kvf_json_typeof(value) == KVF_JSON_NULL) return KVF_OK;
    if (kvf_json_typeof(value) != KVF_JSON_OBJECT)
        return kvf__fail(src->ctx, KVF_EFORMAT, "%s: __metadata__ is not an object", src->where);
    for (void *it = kvf_json_iter(value); it; it = kvf_json_next(value, it)) {
        if (kvf_json_typeof(kvf_json_iter_value(it)) != KVF_JSON_STRING)
            return kvf__fail(src->ctx, KVF_EFORMAT,
                             "%s: __metadata__ contains something other than strings", src->where);
    }
    if (*out) return KVF_OK; /* only the first shard's metadata count */
    char *text = kvf_json_text(value, KVF_JSON_COMPACT);
    if (!text) return kvf__fail(src->ctx, KVF_ENOMEM, "%s: out of memory", src->where);
    kvf_status st = kvf_json_parse(src->ctx, src->where, text, strlen(text), out);
    kvf_json_text_free(text);
    return st;
}

static int by_offset(const void *a, const void *b)
{
    const span *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end); /* empty ones first */
}

/* Checks that spans cover all data bytes without gap or overlap. */
static kvf_status check_cover(const header_source *src, span *spans, size_t n)
{
    size_t at = 0;

    qsort(spans, n, sizeof *spans, by_offset);
    for (size_t i = 0; i < n; i++) {
        if (spans[i].begin != at)
            return kvf__fail(
                src->ctx, KVF_EFORMAT,
                "%s: tensor \"%.80s\": begins at byte %zu of the data, expected %zu (%s)",
                src->where, spans[i].name, spans[i].begin, at,
                spans[i].begin < at ? "overlap" : "hole");
        at = spans[i].end;
    }
    if (at != src->n)
        return kvf__fail(src->ctx, KVF_EFORMAT, "%s: %zu bytes of data, but its tensors have %zu",
                         src->where, src->n, at);
    return KVF_OK;
}

/* spans: room for one per member. */
static kvf_status read_members(const header_source *src, kvf_json *header, kvf__weights *weights,
                               span *spans)
{
    size_t n = 0;

    for (void *it = kvf_json_iter(header); it; it = kvf_json_next(header, it)) {
        const char *name = kvf_json_iter_key(it);
        kvf_json *value = kvf_json_iter_value(it);
        KVF_TRY(!strcmp(name, "__metadata__")
                    ? read_metadata(src, value, &weights->meta)
                    : read_tensor(src, name, value, &weights->table, &spans[n++]));
    }
    return check_cover(src, spans, n);
}

static kvf_status read_header(const header_source *src, kvf_json *header, kvf__weights *weights)
{
    span *spans = NULL;

    if (kvf_json_typeof(header) != KVF_JSON_OBJECT)
        return kvf__fail(src->ctx, KVF_EFORMAT, "%s: the header is not a JSON object", src->where);
    KVF_TRY(kvf__alloc_array(src->ctx, kvf_json_size(header), sizeof *spans, &spans));
    kvf_status st = read_members(src, header, weights, spans);
    kvf__free(spans);
    return st;
}

kvf_status kvf__safetensors_parse(kvf_ctx *ctx, const char *where, const void *bytes, size_t n,
                                  kvf__weights *weights)
{
    kvf__reader r = {.data = bytes, .n = n};
    uint64_t header_n = kvf__read_u64(&r);
    kvf_json *header = NULL;

    if (r.failed)
        return kvf__fail(ctx, KVF_EFORMAT, "%s: %zu bytes, a safetensors file has at least 8",
                         where, n);
    if (header_n > KVF__ST_MAX_HEADER || header_n > n - 8)
        return kvf__fail(
            ctx, KVF_EFORMAT,
            "%s: header of %llu bytes in a file of %zu (truncated, or no safetensors file)", where,
            (unsigned long long)header_n, n);
    const char *json = (const char *)kvf__read_bytes(&r, (size_t)header_n);
    if (has_negative_zero(json, (size_t)header_n))
        return kvf__fail(ctx, KVF_EFORMAT, "%s: negative number in the header", where);
    kvf_status st = kvf_json_parse(ctx, where, json, (size_t)header_n, &header);
    if (st) return st;

    header_source src = {ctx, where, (const uint8_t *)bytes + r.at, n - r.at};
    st = read_header(&src, header, weights);
    kvf_json_free(header);
    return st;
}

kvf_status kvf__safetensors_open(kvf_ctx *ctx, const char *path, kvf__weights *out)
{
    return kvf__weights_open_with(ctx, path, kvf__safetensors_parse, out);
}
