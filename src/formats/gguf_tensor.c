/* The tensor section of a GGUF file: names, shapes, types, and offsets.
 *
 * Dimensions are stored fastest first and reversed for the table. As in the reference reader,
 * offsets must equal the sum of the previous sizes, each padded to the alignment. So tensors cannot
 * overlap, and a wrong size is detected. The padding after the last tensor may be missing. */
#include "gguf_int.h"

#include <string.h>

enum { MAX_DIMS = 4, MAX_NAME_BYTES = 63 };

typedef struct tensor_type {
    const char *name; /* NULL: no such id, or removed */
    int64_t block;
    size_t bytes; /* per block */
    kvf__dtype dtype;
} tensor_type;

/* Indexed by id. Types without arithmetic are listed for their sizes. */
static const tensor_type TYPES[] = {
    [0] = {"f32", 1, 4, KVF__F32},
    [1] = {"f16", 1, 2, KVF__F16},
    [2] = {"q4_0", 32, 18, KVF__Q4_0},
    [3] = {"q4_1", 32, 20, KVF__Q4_1},
    [6] = {"q5_0", 32, 22, KVF__Q5_0},
    [7] = {"q5_1", 32, 24, KVF__Q5_1},
    [8] = {"q8_0", 32, 34, KVF__Q8_0},
    [9] = {"q8_1", 32, 36, KVF__OTHER},
    [10] = {"q2_k", 256, 84, KVF__Q2_K},
    [11] = {"q3_k", 256, 110, KVF__Q3_K},
    [12] = {"q4_k", 256, 144, KVF__Q4_K},
    [13] = {"q5_k", 256, 176, KVF__Q5_K},
    [14] = {"q6_k", 256, 210, KVF__Q6_K},
    [15] = {"q8_k", 256, 292, KVF__OTHER},
    [16] = {"iq2_xxs", 256, 66, KVF__OTHER},
    [17] = {"iq2_xs", 256, 74, KVF__OTHER},
    [18] = {"iq3_xxs", 256, 98, KVF__OTHER},
    [19] = {"iq1_s", 256, 50, KVF__OTHER},
    [20] = {"iq4_nl", 32, 18, KVF__IQ4_NL},
    [21] = {"iq3_s", 256, 110, KVF__OTHER},
    [22] = {"iq2_s", 256, 82, KVF__OTHER},
    [23] = {"iq4_xs", 256, 136, KVF__IQ4_XS},
    [24] = {"i8", 1, 1, KVF__I8},
    [25] = {"i16", 1, 2, KVF__I16},
    [26] = {"i32", 1, 4, KVF__I32},
    [27] = {"i64", 1, 8, KVF__I64},
    [28] = {"f64", 1, 8, KVF__F64},
    [29] = {"iq1_m", 256, 56, KVF__OTHER},
    [30] = {"bf16", 1, 2, KVF__BF16},
    [34] = {"tq1_0", 256, 54, KVF__OTHER},
    [35] = {"tq2_0", 256, 66, KVF__OTHER},
    [39] = {"mxfp4", 32, 17, KVF__MXFP4},
    [40] = {"nvfp4", 64, 36, KVF__OTHER},
    [41] = {"q1_0", 128, 18, KVF__OTHER},
};

uint32_t kvf__gguf_type_id(const kvf__view *view)
{
    uint32_t id = 0;
    while (!TYPES[id].name || strcmp(TYPES[id].name, kvf__view_type_name(view)) != 0)
        id++;
    return id;
}

/* The current tensor. */
typedef struct info {
    kvf__gguf *g;
    char name[MAX_NAME_BYTES + 1];
    kvf__view view;
} info;

/* The following functions report errors without file and tensor, which read_info() adds. */
static kvf_status ends_here(const info *t)
{
    return kvf__fail(t->g->ctx, KVF_EFORMAT, "the file ends here");
}

static kvf_status read_name(info *t, uint64_t place)
{
    size_t n;
    const char *name = kvf__gguf_read_string(&t->g->r, &n);

    if (!name)
        return kvf__fail(t->g->ctx, KVF_EFORMAT, "%s: ends inside the name of tensor %llu of %llu",
                         t->g->where, (unsigned long long)place,
                         (unsigned long long)t->g->n_tensors);
    if (n > MAX_NAME_BYTES || memchr(name, '\0', n))
        return kvf__fail(t->g->ctx, KVF_EFORMAT,
                         "%s: tensor %llu: name of %zu bytes (at most %d), or with a NUL in it",
                         t->g->where, (unsigned long long)place, n, MAX_NAME_BYTES);
    memcpy(t->name, name, n);
    t->name[n] = '\0';
    return KVF_OK;
}

static kvf_status read_shape(info *t)
{
    uint32_t rank = kvf__read_u32(&t->g->r);

    if (t->g->r.failed) return ends_here(t);
    if (rank > MAX_DIMS)
        return kvf__fail(t->g->ctx, KVF_EFORMAT, "%u dimensions, at most %d", rank, MAX_DIMS);
    t->view.rank = (int)rank;
    for (uint32_t i = rank; i-- > 0;) {
        uint64_t dim = kvf__read_u64(&t->g->r);
        if (dim > INT64_MAX) return kvf__fail(t->g->ctx, KVF_EFORMAT, "a dimension is negative");
        t->view.dim[i] = (int64_t)dim;
    }
    return KVF_OK;
}

static bool shape_bytes(const kvf__view *view, const tensor_type *type, size_t *out)
{
    size_t count, total;
    bool empty;

    if (!kvf__shape_count(view, &count, &empty)) return false;
    if (!kvf__mul(count / (size_t)type->block, type->bytes, &total)) return false;
    *out = empty ? 0 : total;
    return true;
}

static kvf_status read_type(info *t, size_t *bytes)
{
    uint32_t id = kvf__read_u32(&t->g->r);
    const tensor_type *type = id < sizeof TYPES / sizeof TYPES[0] ? &TYPES[id] : NULL;
    kvf__view *view = &t->view;
    int64_t row = view->rank ? view->dim[view->rank - 1] : 1;
    char shape[128];

    if (t->g->r.failed) return ends_here(t);
    if (!type || !type->name) return kvf__fail(t->g->ctx, KVF_EFORMAT, "unknown type %u", id);
    if (row % type->block || !shape_bytes(view, type, bytes))
        return kvf__fail(t->g->ctx, KVF_EFORMAT,
                         "%s of shape %s: too large, or rows are not whole blocks of %lld",
                         type->name, kvf__shape_text(shape, view->rank, view->dim),
                         (long long)type->block);
    view->dtype = type->dtype;
    if (view->dtype == KVF__OTHER) {
        view->other_bytes = *bytes;
        view->other_name = type->name;
    }
    return KVF_OK;
}

/* *end: end of the tensors so far, with padding. */
static kvf_status check_offset(info *t, size_t bytes, size_t *end)
{
    uint64_t offset = kvf__read_u64(&t->g->r);
    size_t pad = t->g->alignment - 1, next;

    if (t->g->r.failed) return ends_here(t);
    if (offset != *end)
        return kvf__fail(t->g->ctx, KVF_EFORMAT, "begins at byte %llu of the data, expected %zu",
                         (unsigned long long)offset, *end);
    if (!kvf__add(*end, bytes, &next) || next > t->g->r.n || !kvf__add(next, pad, &next))
        return kvf__fail(
            t->g->ctx, KVF_EFORMAT,
            "needs %zu bytes from byte %zu of the data, but the file has %zu (truncated?)", bytes,
            *end, t->g->r.n);
    *end = next & ~pad;
    return KVF_OK;
}

static kvf_status read_info(kvf__gguf *g, uint64_t place, size_t *end)
{
    info t = {.g = g};
    size_t bytes = 0;

    KVF_TRY(read_name(&t, place));
    kvf_status st = read_shape(&t);
    if (!st) st = read_type(&t, &bytes);
    if (!st) st = check_offset(&t, bytes, end);
    if (st) return kvf__fail_prefix(g->ctx, st, "%s: tensor \"%s\"", g->where, t.name);
    st = kvf__table_add(g->ctx, &g->weights->table, t.name, t.view);
    return st == KVF_EFORMAT ? kvf__fail_prefix(g->ctx, st, "%s", g->where) : st;
}

/* Locates the data section at the next aligned byte; offsets are known to be the running sum. */
static kvf_status place_data(kvf__gguf *g)
{
    kvf__table *table = &g->weights->table;
    size_t pad = g->alignment - 1, at;

    if (!kvf__add(g->r.at, pad, &at))
        return kvf__fail(g->ctx, KVF_EFORMAT, "%s: alignment is too large", g->where);
    at &= ~pad;
    for (size_t i = 0; i < table->n; i++) {
        kvf__tensor *t = &table->items[i];
        size_t bytes = kvf__view_bytes(&t->view);
        if (bytes == 0) {
            t->view.data = g->r.data;
            continue;
        }
        if (at > g->r.n || bytes > g->r.n - at)
            return kvf__fail(
                g->ctx, KVF_EFORMAT,
                "%s: tensor \"%s\": is at bytes %zu to %zu, but the file has %zu (truncated?)",
                g->where, t->name, at, at + bytes, g->r.n);
        t->view.data = g->r.data + at;
        at = (at + bytes + pad) & ~pad;
    }
    return KVF_OK;
}

kvf_status kvf__gguf_read_tensors(kvf__gguf *g)
{
    size_t end = 0;

    for (uint64_t i = 0; i < g->n_tensors; i++)
        KVF_TRY(read_info(g, i + 1, &end));
    return place_data(g);
}
