/* Reading a weight from its file: any element type and row order to f32 in Hugging Face order.
 *
 * A GGUF of architecture llama has the rows of q and k permuted inside each head, so that its
 * rope can rotate neighbours. Undone here: row h*D + t*D/2 + i of Hugging Face is row h*D + 2i +
 * t of the file. Rows of quantised types are independent, so order and type can be handled
 * separately. */
#include "slot.h"
#include "arch.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* GPT-NeoX's fused q, k and v: row (h*3 + part)*D + i of Hugging Face is row (part*H + h)*D + i in
 * all other code. Qwen3.5's q and its gate: the same with 2 parts. */

enum { TABLE_PART = 4096 }; /* in bytes: a row of 1024 columns in f32 */

int64_t kvf__slot_rows(const kvf__slot *slot)
{
    return slot->view.rank < 2 ? 1 : slot->view.dim[0];
}

int64_t kvf__slot_columns(const kvf__slot *slot)
{
    return slot->view.rank ? slot->view.dim[slot->view.rank - 1] : 1;
}

/* Maps row `at` of the order of parts to the order head by head. */
static int64_t by_head_index(const kvf__slot *slot, int64_t at, int64_t n)
{
    int64_t D = n / (slot->parts * slot->by_head), head = at / D;
    return (head % slot->by_head * slot->parts + head / slot->by_head) * D + at % D;
}

/* Returns the file's index of entry `at` of n permuted entries (rows, or elements of a bias). */
static int64_t file_index(const kvf__slot *slot, int64_t at, int64_t n)
{
    if (slot->file_by_head) return by_head_index(slot, at, n);
    if (!slot->permuted_heads) return at;
    int64_t D = n / slot->permuted_heads, half = D / 2;
    int64_t in_head = at % D;
    return at - in_head + 2 * (in_head % half) + in_head / half;
}

static const uint8_t *row_bytes(const kvf__slot *slot, int64_t row)
{
    int64_t blocks = kvf__slot_columns(slot) / kvf__dtype_block(slot->view.dtype);
    size_t bytes = (size_t)blocks * kvf__dtype_block_bytes(slot->view.dtype);
    return (const uint8_t *)slot->view.data + (size_t)row * bytes;
}

/* Adds the low-rank product to elements from .. from + n - 1 of a row, in Hugging Face order. The
 * sum over the rank is computed first, in order, so parts of a row have the bits of the whole. */
static void add_low_rank(const kvf__slot *slot, int64_t row, int64_t from, int64_t n, float *out)
{
    enum { STRIP = 64 };
    const int64_t r = slot->add ? slot->add->r : 0, columns = kvf__slot_columns(slot);

    if (r && slot->by_head) row = by_head_index(slot, row, kvf__slot_rows(slot));

    for (int64_t at = 0; r && at < n; at += STRIP) {
        const int64_t width = n - at < STRIP ? n - at : STRIP;
        float sum[STRIP] = {0};
        for (int64_t k = 0; k < r; k++) {
            const float left = slot->add->left[row * r + k];
            const float *right = slot->add->right + k * columns + from + at;
            for (int64_t i = 0; i < width; i++)
                sum[i] += left * right[i];
        }
        for (int64_t i = 0; i < width; i++)
            out[at + i] += sum[i];
    }
}

/* Reads a vector, which is one row. Permuted vectors are biases of q and k, always of plain
 * types. */
static void read_vector(const kvf__slot *slot, float *out)
{
    const uint8_t *bytes = slot->view.data;
    size_t size = kvf__dtype_block_bytes(slot->view.dtype);
    int64_t n = kvf__slot_columns(slot);

    if (!slot->permuted_heads && !slot->file_by_head) {
        kvf__to_f32(slot->view.dtype, bytes, out, n);
        for (int64_t i = 0; slot->one > 0 && i < n; i++)
            out[i] += 1;
        return;
    }
    assert(kvf__dtype_block(slot->view.dtype) == 1);
    for (int64_t i = 0; i < n; i++)
        kvf__to_f32(slot->view.dtype, bytes + (size_t)file_index(slot, i, n) * size, out + i, 1);
}

void kvf__slot_row(const kvf__slot *slot, int64_t row, float *out)
{
    int64_t rows = kvf__slot_rows(slot);

    assert(row >= 0 && row < rows);
    if (slot->view.rank < 2) {
        read_vector(slot, out);
        return;
    }
    kvf__to_f32(slot->view.dtype, row_bytes(slot, file_index(slot, row, rows)), out,
                kvf__slot_columns(slot));
    add_low_rank(slot, row, 0, kvf__slot_columns(slot), out);
}

void kvf__slot_table_row(const kvf__slot *table, int64_t row, kvf__read_fn *read, void *user,
                         float *out)
{
    const int64_t C = kvf__slot_columns(table), block = kvf__dtype_block(table->view.dtype);
    const size_t block_bytes = kvf__dtype_block_bytes(table->view.dtype);
    uint8_t part[TABLE_PART];
    int64_t n = (int64_t)(sizeof part / block_bytes) * block;

    for (int64_t c = 0; c < C; c += n) {
        if (n > C - c) n = C - c;
        const uint8_t *at = row_bytes(table, row) + (size_t)(c / block) * block_bytes;
        const size_t bytes = (size_t)(n / block) * block_bytes;
        const bool copied = read && read(user, at, bytes, part);
        kvf__to_f32(table->view.dtype, copied ? part : at, out + c, n);
    }
    add_low_rank(table, row, 0, C, out);
}

void kvf__slot_row_part(const kvf__slot *slot, int64_t row, int64_t from, int64_t n, float *out,
                        float *scratch)
{
    const uint8_t *bytes = row_bytes(slot, file_index(slot, row, kvf__slot_rows(slot)));
    int64_t block = kvf__dtype_block(slot->view.dtype);
    int64_t first = from / block, last = (from + n + block - 1) / block;

    bytes += (size_t)first * kvf__dtype_block_bytes(slot->view.dtype);
    if (first * block == from && last * block == from + n) {
        kvf__to_f32(slot->view.dtype, bytes, out, n);
    } else {
        kvf__to_f32(slot->view.dtype, bytes, scratch, (last - first) * block);
        memcpy(out, scratch + (from - first * block), (size_t)n * sizeof *out);
    }
    add_low_rank(slot, row, from, n, out);
}

void kvf__slot_read(const kvf__slot *slot, float *out)
{
    int64_t rows = kvf__slot_rows(slot), columns = kvf__slot_columns(slot);

#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < rows; row++)
        kvf__slot_row(slot, row, out + row * columns);
}

void kvf__slot_read_hf(const kvf__slot *slot, float *out)
{
    kvf__slot as_it_lies = *slot;
    const int64_t columns = kvf__slot_columns(slot), H = slot->by_head;

    as_it_lies.file_by_head = false; /* Hugging Face's order, or q, k, v */
    as_it_lies.by_head = 0;
    as_it_lies.one = 0;
    kvf__slot_read(&as_it_lies, out);
    for (int64_t i = 0; slot->one < 0 && i < columns; i++)
        out[i] -= 1;
    if (!H || slot->file_by_head) return;
    const bool vector = slot->view.rank < 2;
    const int64_t rows = vector ? columns : kvf__slot_rows(slot), width = vector ? 1 : columns;
    const int64_t parts = slot->parts, D = rows / (parts * H), block = D * width;
    for (int64_t head = 0; head < parts * H; head++) {
        const int64_t from = head % parts * H + head / parts;
        for (int64_t row = 0; row < D && !vector; row++)
            kvf__slot_row(slot, from * D + row, out + head * block + row * width);
        for (int64_t i = 0; i < D && vector; i++)
            kvf__to_f32(slot->view.dtype,
                        (const uint8_t *)slot->view.data +
                            (size_t)(from * D + i) * kvf__dtype_block_bytes(slot->view.dtype),
                        out + head * D + i, 1);
    }
}

kvf_status kvf__slot_f32(kvf_ctx *ctx, const kvf__slot *slot, float **out)
{
    int64_t rows = kvf__slot_rows(slot), columns = kvf__slot_columns(slot);
    float *values = NULL;
    size_t n;

    if (!kvf__mul((size_t)rows, (size_t)columns, &n))
        return kvf__fail(ctx, KVF_ENOMEM, "%s: %lld x %lld", slot->name, (long long)rows,
                         (long long)columns);
    KVF_TRY(kvf__alloc_array(ctx, n, sizeof *values, &values));
    kvf__slot_read(slot, values);
    *out = values;
    return KVF_OK;
}

kvf_status kvf__slot_outputs(kvf_ctx *ctx, const kvf__slot *weight, int64_t first,
                             const int64_t *at, int64_t n, float *out)
{
    const int64_t inputs = weight->conv1d ? kvf__slot_rows(weight) : kvf__slot_columns(weight);
    const int64_t outputs = kvf__slot_columns(weight); /* of a weight stored by inputs */
    float *whole = NULL;

    if (weight->conv1d) KVF_TRY(kvf__slot_f32(ctx, weight, &whole));
    for (int64_t i = 0; i < n; i++) {
        const int64_t output = first + (at ? at[i] : i);
        if (!whole) kvf__slot_row(weight, output, out + i * inputs);
        for (int64_t c = 0; whole && c < inputs; c++)
            out[i * inputs + c] = whole[c * outputs + output];
    }
    kvf__free(whole);
    return KVF_OK;
}

/* Returns the place in Hugging Face's order of element i of a GGUF's n values. */
static int64_t untiled(const kvf__slot *slot, int64_t i, int64_t n)
{
    const struct kvf__tiles *t = &slot->tiles;

    if (!t->keys || i < t->before) return i;
    const int64_t inner = (n - t->before) / (t->outer * t->heads), each = t->heads / t->keys;
    const int64_t unit = (i - t->before) / inner, head = unit % t->heads;
    const int64_t of_key = head / t->keys, key = head % t->keys;
    return i + (key * each + of_key - head) * inner;
}

/* Puts value heads into Hugging Face's order. */
static kvf_status untile(kvf_ctx *ctx, const kvf__slot *slot, int64_t n, float *values)
{
    float *tiled = NULL;

    KVF_TRY(kvf__alloc_array(ctx, (size_t)n, sizeof *tiled, &tiled));
    memcpy(tiled, values, (size_t)n * sizeof *tiled);
    for (int64_t i = 0; i < n; i++)
        values[untiled(slot, i, n)] = tiled[i];
    kvf__free(tiled);
    return KVF_OK;
}

void kvf__slot_to_file(const kvf__slot *slot, const float *plain, float *out)
{
    const bool vector = slot->view.rank < 2;
    const int64_t columns = kvf__slot_columns(slot), n = kvf__slot_rows(slot) * columns;
    const int64_t rows = vector ? n : kvf__slot_rows(slot), width = vector ? 1 : columns;

    for (int64_t row = 0; row < rows; row++) {
        int64_t from = row, to = row;
        if (slot->by_head && !slot->file_by_head) from = by_head_index(slot, row, rows);
        if (slot->permuted_heads) to = file_index(slot, row, rows);
        memcpy(out + to * width, plain + from * width, (size_t)width * sizeof *out);
    }
    for (int64_t i = 0; slot->tiles.keys && i < n; i++)
        out[i] = plain[untiled(slot, i, n)];
    for (int64_t i = 0; slot->one < 0 && i < n; i++)
        out[i] += 1;
    for (int64_t i = 0; slot->minus_exp && i < n; i++)
        out[i] = -expf(out[i]);
}

kvf_status kvf__slot_plain(kvf_ctx *ctx, const kvf__slot *slot, void **memory, kvf__view *out)
{
    const bool whole = kvf__dtype_block(slot->view.dtype) == 1 && !slot->add && !slot->minus_exp;
    const kvf__dtype dtype = whole ? slot->view.dtype : KVF__F32;
    const int64_t n = kvf__slot_rows(slot) * kvf__slot_columns(slot);
    float *values = NULL;
    void *narrow = NULL;

    *out = slot->view;
    if (slot->role == KVF__W_MIXER_CONV && out->rank == 2) { /* llama.cpp squeezes it */
        out->dim[2] = out->dim[1];
        out->dim[1] = 1;
        out->rank = 3;
    }
    if (whole && !slot->permuted_heads && (!slot->by_head || slot->file_by_head) &&
        slot->one >= 0 && !slot->tiles.keys)
        return KVF_OK;
    KVF_TRY(kvf__slot_f32(ctx, slot, &values));
    kvf__slot_read_hf(slot, values);
    for (int64_t i = 0; slot->minus_exp && i < n; i++)
        values[i] = logf(-values[i]);
    kvf_status st = slot->tiles.keys ? untile(ctx, slot, n, values) : KVF_OK;
    if (st) {
        kvf__free(values);
        return st;
    }
    if (dtype != KVF__F32) {
        st = kvf__alloc_array(ctx, (size_t)n, kvf__dtype_block_bytes(dtype), &narrow);
        /* exact, because the values had that type */
        if (!st) kvf__from_f32(dtype, values, narrow, n);
        kvf__free(values);
        if (st) return st;
    }
    kvf__free(*memory);
    *memory = narrow ? narrow : values;
    out->data = *memory;
    out->dtype = dtype;
    return KVF_OK;
}

kvf_status kvf__slots_copy(kvf_ctx *ctx, const kvf__slots *from, kvf__slots *to)
{
    KVF_TRY(kvf__alloc_array(ctx, from->n, sizeof *to->items, &to->items));
    for (size_t i = 0; i < from->n; i++) {
        const char *name = from->items[i].name;
        KVF_TRY(kvf__map_put(ctx, &to->index, name, strlen(name), (int64_t)i));
        to->items[i] = from->items[i];
        to->n++;
    }
    return KVF_OK;
}

void kvf__slots_done(kvf__slots *slots)
{
    kvf__free(slots->items);
    kvf__map_done(&slots->index);
    *slots = (kvf__slots){0};
}
