/* Writing and reading saved sequences of llama.cpp (see llama_state.h for the format). */
#include "llama_state.h"
#include "artifact.h"
#include "file_int.h"
#include "outfile.h"

#include <string.h>

enum { MAGIC = 0x67677371, CHECKPOINTS = 0x504b4353, OLDEST = 3, NEWEST = 4 };

/* ggml's type numbers. */
static const struct {
    kvf__dtype dtype;
    int32_t number;
} TYPES[] = {{KVF__F32, 0}, {KVF__F16, 1}, {KVF__BF16, 30}};
enum { N_TYPES = sizeof TYPES / sizeof TYPES[0] };

/* Returns whether layer l is in the cache of local layers. A model without local layers has one
 * cache. */
static bool is_local(const kvf__llama_base *base, int64_t l)
{
    return base->window && !(base->global[l / 64] >> l % 64 & 1);
}

static int64_t layers_of(const kvf__llama_base *base, bool local)
{
    int64_t n = 0;
    for (int64_t l = 0; l < base->L; l++)
        n += is_local(base, l) == local;
    return n;
}

/* Layout of the keys, or of the values, of one layer. */
typedef struct block {
    int64_t G, cells, D;
    bool transposed, interleaved;
} block;

/* Returns the index in a block of element (g, p, d) of a prefix, at cell `cell`. */
static size_t place(const block *b, int64_t g, int64_t cell, int64_t d)
{
    const int64_t half = b->D / 2, in_head = !b->interleaved ? d
                                             : d < half      ? 2 * d
                                                             : 2 * (d - half) + 1;
    const int64_t row = g * b->D + in_head;
    return (size_t)(b->transposed ? row * b->cells + cell : cell * b->G * b->D + row);
}

/* ---- writing --------------------------------------------------------------------------------- */

typedef struct state_writer {
    kvf_ctx *ctx;
    const kvf__llama_form *form;
    const kvf__prefix *prefix;
    const char *values; /* [L, 2, G, P, D] in the file's type */
    char *block;        /* [G * P * D] */
    kvf__buf out;
} state_writer;

static kvf_status put(state_writer *w, const void *bytes, size_t n)
{
    return kvf__buf_add(w->ctx, &w->out, bytes, n);
}

/* Little endian (see dtype.c on byte order). */
static kvf_status put_u32(state_writer *w, int64_t value)
{
    const uint32_t word = (uint32_t)value;
    return put(w, &word, sizeof word);
}

static kvf_status put_cells(state_writer *w, bool local)
{
    KVF_TRY(put_u32(w, w->prefix->P));
    for (int64_t p = 0; p < w->prefix->P; p++) {
        KVF_TRY(put_u32(w, p));
        KVF_TRY(put_u32(w, 1));
        KVF_TRY(put_u32(w, 0));
    }
    KVF_TRY(put_u32(w, w->form->transposed));
    KVF_TRY(put_u32(w, layers_of(&w->form->base, local)));
    for (int i = 0; i < 2 && w->form->version >= NEWEST; i++)
        KVF_TRY(put_u32(w, 0));
    return KVF_OK;
}

static kvf_status put_type(state_writer *w)
{
    int i = 0;
    while (TYPES[i].dtype != w->form->dtype)
        i++;
    return put_u32(w, TYPES[i].number);
}

static kvf_status put_block(state_writer *w, int64_t l, int half)
{
    const kvf__prefix *x = w->prefix;
    const size_t size = kvf__dtype_block_bytes(w->form->dtype);
    const block b = {x->G, x->P, x->D, half && w->form->transposed,
                     !half && w->form->base.interleaved};
    const char *from = w->values + (size_t)((2 * l + half) * x->G * x->P * x->D) * size;
    const uint64_t row = (uint64_t)(x->G * x->D) * size;

    KVF_TRY(put_type(w));
    if (b.transposed) {
        KVF_TRY(put_u32(w, (int64_t)size));
        KVF_TRY(put_u32(w, x->G * x->D));
    } else
        KVF_TRY(put(w, &row, sizeof row));
    for (int64_t g = 0; g < x->G; g++)
        for (int64_t p = 0; p < x->P; p++)
            for (int64_t d = 0; d < x->D; d++, from += size)
                memcpy(w->block + place(&b, g, p, d) * size, from, size);
    return put(w, w->block, row * (size_t)x->P);
}

static kvf_status put_cache(state_writer *w, bool local)
{
    KVF_TRY(put_u32(w, w->form->streams));
    KVF_TRY(put_cells(w, local));
    for (int half = 0; half < 2; half++)
        for (int64_t l = 0; l < w->prefix->L; l++)
            if (is_local(&w->form->base, l) == local) KVF_TRY(put_block(w, l, half));
    for (int64_t s = 1; s < w->form->streams; s++)
        KVF_TRY(put_u32(w, 0));
    return KVF_OK;
}

static kvf_status put_state(state_writer *w, const int32_t *ids)
{
    KVF_TRY(put_u32(w, MAGIC));
    KVF_TRY(put_u32(w, w->form->version));
    KVF_TRY(put_u32(w, w->prefix->P));
    KVF_TRY(put(w, ids, (size_t)w->prefix->P * sizeof *ids));
    KVF_TRY(put_cache(w, false));
    return w->form->base.window ? put_cache(w, true) : KVF_OK;
}

kvf_status kvf__llama_state_write(kvf_ctx *ctx, const char *path, bool force,
                                  const kvf__llama_form *form, const kvf__prefix *prefix,
                                  const int32_t *ids)
{
    const size_t n = kvf__prefix_count(prefix), size = kvf__dtype_block_bytes(form->dtype);
    state_writer w = {ctx, form, prefix, .out = {0}};
    void *values = NULL;

    kvf_status st = kvf__alloc_array(ctx, n, size, &values);
    if (!st) st = kvf__prefix_encode(ctx, path, form->dtype, prefix, values, NULL);
    if (!st) st = kvf__alloc_array(ctx, n / (size_t)(2 * prefix->L), size, &w.block);
    w.values = values;
    if (!st) st = put_state(&w, ids);
    if (!st) st = kvf__write_file(ctx, path, force, w.out.data, w.out.n);
    kvf__buf_done(&w.out);
    kvf__free(w.block);
    kvf__free(values);
    return st;
}

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct state_reader {
    kvf_ctx *ctx;
    const char *where;
    const kvf__llama_base *base;
    kvf__reader in;
    uint32_t version;
    bool local, transposed; /* properties of the current cache */
    uint32_t n;             /* number of its cells */
    int32_t *cells;         /* [n] position of each */
    kvf__prefix prefix;
} state_reader;

static kvf_status cut_short(const state_reader *r)
{
    return kvf__fail(r->ctx, KVF_EFORMAT, "%s: ends within its data, after %zu bytes", r->where,
                     r->in.n);
}

static kvf_status read_head(state_reader *r)
{
    const uint32_t magic = kvf__read_u32(&r->in);
    r->version = kvf__read_u32(&r->in);
    const uint32_t tokens = kvf__read_u32(&r->in);
    if (r->in.failed || magic != MAGIC)
        return kvf__fail(r->ctx, KVF_EFORMAT, "%s: is not a saved sequence of llama.cpp", r->where);
    if (r->version < OLDEST || r->version > NEWEST)
        return kvf__fail(r->ctx, KVF_EUNSUPPORTED,
                         "%s: state version %u is not supported, want %d or %d", r->where,
                         r->version, OLDEST, NEWEST);
    kvf__read_bytes(&r->in, (size_t)tokens * sizeof(int32_t));
    return r->in.failed ? cut_short(r) : KVF_OK;
}

/* True if the bytes left can hold the cells, with keys and values in the smallest type. The prefix
 * is then at most 2 L / (layers of the cache) times as large as the file. */
static bool cells_fit(const state_reader *r)
{
    const kvf__llama_base *b = r->base;
    const int64_t layers = layers_of(b, r->local);
    const size_t row[] = {(size_t)(layers ? layers : b->L), (size_t)b->G, (size_t)b->D,
                          2 * sizeof(uint16_t)};
    size_t bytes = r->n;
    for (int i = 0; i < 4; i++)
        if (!kvf__mul(bytes, row[i], &bytes)) return false;
    return bytes <= r->in.n - r->in.at;
}

/* Checks positions: a global cache has each from 0 to P - 1 once, a local one those visible to a
 * later token, and possibly earlier ones. */
static kvf_status read_positions(state_reader *r)
{
    const uint32_t P = r->local ? (uint32_t)r->prefix.P : r->n;
    const int64_t unseen = r->local ? P - r->base->window + 1 : 0, first = unseen > 0 ? unseen : 0;
    int64_t missing = P - first;
    uint8_t *seen = NULL;
    kvf_status st = KVF_OK;

    kvf__free(r->cells);
    KVF_TRY(kvf__alloc_array(r->ctx, r->n, sizeof *r->cells, &r->cells));
    KVF_TRY(kvf__alloc(r->ctx, P, &seen));
    for (uint32_t i = 0; i < r->n && !st; i++) {
        const uint32_t at = kvf__read_u32(&r->in), sequences = kvf__read_u32(&r->in);
        kvf__read_u32(&r->in);
        if (r->in.failed)
            st = cut_short(r);
        else if (sequences != 1)
            st = kvf__fail(r->ctx, KVF_EFORMAT, "%s: cell %u belongs to %u sequences, want 1",
                           r->where, i, sequences);
        else if (at >= P || seen[at]++)
            st = kvf__fail(r->ctx, KVF_EUNSUPPORTED,
                           "%s: cell %u is at position %d, want each of 0 to %u once", r->where, i,
                           (int)(int32_t)at, P - 1);
        r->cells[i] = (int32_t)at;
        missing -= at >= first;
    }
    kvf__free(seen);
    if (st || !missing) return st;
    return kvf__fail(r->ctx, KVF_EUNSUPPORTED,
                     "%s: layers with a window lack %lld of positions %lld to %u", r->where,
                     (long long)missing, (long long)first, P - 1);
}

static kvf_status read_form(state_reader *r)
{
    const uint32_t transposed = kvf__read_u32(&r->in), layers = kvf__read_u32(&r->in);
    bool rotated = false;

    for (int i = 0; i < 2 && r->version >= NEWEST; i++)
        rotated |= kvf__read_u32(&r->in) != 0;
    if (r->in.failed) return cut_short(r);
    if (layers != layers_of(r->base, r->local))
        return kvf__fail(r->ctx, KVF_ESHAPE, "%s: has %u layers%s, but the base has %lld", r->where,
                         layers,
                         !r->base->window ? ""
                         : r->local       ? " with a window"
                                          : " without a window",
                         (long long)layers_of(r->base, r->local));
    if (rotated || transposed > 1)
        return kvf__fail(
            r->ctx, KVF_EUNSUPPORTED,
            "%s: its keys or values are rotated, as in a quantised cache: save one in f16 or f32",
            r->where);
    r->transposed = transposed;
    return KVF_OK;
}

static kvf_status read_type(state_reader *r, kvf__dtype *out)
{
    const int32_t number = (int32_t)kvf__read_u32(&r->in);
    int i = 0;

    if (r->in.failed) return cut_short(r);
    while (i < N_TYPES && TYPES[i].number != number)
        i++;
    if (i == N_TYPES)
        return kvf__fail(r->ctx, KVF_EUNSUPPORTED,
                         "%s: the cache has ggml type %d, want f32, f16 or bf16", r->where, number);
    *out = TYPES[i].dtype;
    return KVF_OK;
}

/* Checks that the file's width is the base's. */
static kvf_status read_width(state_reader *r, bool transposed, size_t size)
{
    const size_t want = (size_t)(r->base->G * r->base->D);
    size_t found;

    if (transposed) {
        const uint32_t element = kvf__read_u32(&r->in);
        found = kvf__read_u32(&r->in);
        if (!r->in.failed && element != size)
            return kvf__fail(r->ctx, KVF_EFORMAT, "%s: elements have %u bytes, want %zu", r->where,
                             element, size);
    } else {
        const uint64_t bytes = kvf__read_u64(&r->in);
        found = bytes % size ? 0 : (size_t)(bytes / size);
    }
    if (r->in.failed) return cut_short(r);
    if (found == want) return KVF_OK;
    return kvf__fail(r->ctx, KVF_ESHAPE,
                     "%s: keys or values have %zu elements per token, but the base has G * D = %zu",
                     r->where, found, want);
}

static kvf_status read_block(state_reader *r, int64_t l, int half)
{
    const kvf__prefix *x = &r->prefix;
    const block b = {x->G, r->n, x->D, half && r->transposed, !half && r->base->interleaved};
    float *to = x->kv + (2 * l + half) * x->G * x->P * x->D;
    kvf__dtype dtype = KVF__F32;

    KVF_TRY(read_type(r, &dtype));
    const size_t size = kvf__dtype_block_bytes(dtype);
    KVF_TRY(read_width(r, b.transposed, size));
    const uint8_t *from = kvf__read_bytes(&r->in, (size_t)(x->G * b.cells * x->D) * size);
    if (!from) return cut_short(r);
    for (int64_t g = 0; g < x->G; g++)
        for (int64_t i = 0; i < b.cells; i++)
            for (int64_t d = 0; d < x->D; d++)
                kvf__to_f32(dtype, from + place(&b, g, i, d) * size,
                            to + (g * x->P + r->cells[i]) * x->D + d, 1);
    return KVF_OK;
}

static kvf_status read_stream(state_reader *r)
{
    const kvf__llama_base *b = r->base;

    if (!cells_fit(r)) return cut_short(r);
    KVF_TRY(read_positions(r));
    KVF_TRY(read_form(r));
    if (!r->local) KVF_TRY(kvf__prefix_init(r->ctx, &r->prefix, b->L, b->G, r->n, b->D));
    for (int half = 0; half < 2; half++)
        for (int64_t l = 0; l < b->L; l++)
            if (is_local(b, l) == r->local) KVF_TRY(read_block(r, l, half));
    return KVF_OK;
}

static kvf_status read_cache(state_reader *r, bool local)
{
    const uint32_t streams = kvf__read_u32(&r->in);

    r->local = local;
    r->n = 0;
    for (uint32_t s = 0; s < streams && !r->in.failed; s++) {
        const uint32_t cells = kvf__read_u32(&r->in);
        if (cells && r->n)
            return kvf__fail(r->ctx, KVF_EUNSUPPORTED, "%s: contains cells of several streams",
                             r->where);
        if (!cells) continue;
        r->n = cells;
        KVF_TRY(read_stream(r));
    }
    if (r->in.failed) return cut_short(r);
    return r->n ? KVF_OK : kvf__fail(r->ctx, KVF_EFORMAT, "%s: the sequence is empty", r->where);
}

static kvf_status read_state(state_reader *r)
{
    KVF_TRY(read_head(r));
    KVF_TRY(read_cache(r, false));
    if (r->base->window) KVF_TRY(read_cache(r, true));
    const size_t more = r->in.n - r->in.at;
    if (!more || kvf__read_u32(&r->in) == CHECKPOINTS)
        return kvf__check_finite(r->ctx, r->where, "keys and values", r->prefix.kv,
                                 (int64_t)kvf__prefix_count(&r->prefix));
    return kvf__fail(r->ctx, KVF_EUNSUPPORTED,
                     "%s: has %zu bytes more than the keys and values of a sequence", r->where,
                     more);
}

kvf_status kvf__llama_state_parse(kvf_ctx *ctx, const char *where, const void *bytes, size_t n,
                                  const kvf__llama_base *base, kvf__prefix *out)
{
    state_reader r = {.ctx = ctx, .where = where, .base = base, .in = {.data = bytes, .n = n}};
    const kvf_status st = read_state(&r);

    kvf__free(r.cells);
    if (st)
        kvf__prefix_done(&r.prefix);
    else
        *out = r.prefix;
    return st;
}

kvf_status kvf__llama_state_read(kvf_ctx *ctx, const char *path, const kvf__llama_base *base,
                                 kvf__prefix *out)
{
    kvf__mapfile file = {0};

    KVF_TRY(kvf__mapfile_open(ctx, path, &file));
    const kvf_status st = kvf__llama_state_parse(ctx, path, file.data, file.n, base, out);
    kvf__mapfile_close(&file);
    return st;
}
