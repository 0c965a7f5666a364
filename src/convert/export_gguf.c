/* Writes a GGUF with the virtual neurons of a prefix folded into its feed-forward matrices
 * (docs/maths.md): new rows of the first matrices and new columns of the last. Rows of blocks are
 * independent, and a column is appended in whole blocks. So the bytes of every old row stay as they
 * are, and N grows with neurons of zeros to the largest block of a last matrix. */
#include "arch.h"
#include "export.h"
#include "names.h"
#include "slot.h"

#include <math.h>
#include <string.h>

/* A file while it is made. */
typedef struct wide {
    const kvf_export_options *options;
    const kvf_base *base;
    const kvf__neurons *neurons;
    int64_t N;               /* grown */
    const kvf__slot **slots; /* [tensors] of the feed-forward blocks; NULL: another tensor */
    kvf__view *views;        /* [tensors] */
} wide;

/* A tensor while it is made. */
typedef struct tensor {
    kvf_ctx *ctx;
    const wide *w;
    const kvf__slot *slot;
    kvf__dtype dtype;
    uint8_t *to;
    float *row; /* of the new tensor */
} tensor;

static bool is_widened(int role)
{
    return role == KVF__W_GATE || role == KVF__W_GATE_BIAS || role == KVF__W_UP ||
           role == KVF__W_UP_BIAS || role == KVF__W_GATE_UP || role == KVF__W_DOWN;
}

/* Whether neurons are columns of it; else they are rows. A bias is one row. */
static bool by_column(const kvf__slot *slot)
{
    return slot->role == KVF__W_DOWN || slot->view.rank < 2;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

kvf_status kvf__gguf_store_as(kvf_ctx *ctx, const char *where, const char *name, const char *asked,
                              kvf__view *view)
{
    const long long row = view->dim[view->rank - 1];

    if (asked && view->rank == 2)
        view->dtype = !strcmp(asked, "q8_0")  ? KVF__Q8_0
                      : !strcmp(asked, "f16") ? KVF__F16
                                              : KVF__F32;
    const char *type = kvf__dtype_name(view->dtype);
    if (!kvf__dtype_is_written(view->dtype))
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: tensor \"%s\" has type %s, which is not written: --ffn-type q8_0 "
                         "stores all matrices of the feed-forward blocks in that type",
                         where, name, type);
    if (row % kvf__dtype_block(view->dtype) == 0) return KVF_OK;
    return kvf__fail(ctx, KVF_EUNSUPPORTED,
                     "%s: tensor \"%s\" has rows of %lld values, which are no whole blocks of %s: "
                     "use --ffn-type f16",
                     where, name, row, type);
}

/* Finds the slots of the file's tensors and their types, and grows N to whole blocks. */
static kvf_status find_slots(kvf_ctx *ctx, wide *w)
{
    const kvf__slots *slots = &w->base->slots;

    for (size_t i = 0; i < w->base->weights.table.n; i++) {
        w->views[i] = w->base->weights.table.items[i].view;
        for (size_t s = 0; s < slots->n && !w->slots[i]; s++)
            if (slots->items[s].view.data == w->views[i].data && is_widened(slots->items[s].role))
                w->slots[i] = &slots->items[s];
        if (!w->slots[i]) continue;
        KVF_TRY(kvf__gguf_store_as(ctx, w->base->path, w->base->weights.table.items[i].name,
                                   w->options->ffn_type, &w->views[i]));
        const int64_t block = by_column(w->slots[i]) ? kvf__dtype_block(w->views[i].dtype) : 1;
        w->N = (w->N + block - 1) / block * block;
    }
    return KVF_OK;
}

static void widen_views(const wide *w)
{
    for (size_t i = 0; i < w->base->weights.table.n; i++) {
        const kvf__slot *slot = w->slots[i];
        if (!slot) continue;
        kvf__view *view = &w->views[i];
        view->data = NULL;
        view->dim[by_column(slot) ? view->rank - 1 : 0] += slot->role == KVF__W_GATE_UP ? 2 * w->N
                                                                                        : w->N;
    }
}

/* ---- values ---------------------------------------------------------------------------------- */

kvf_status kvf__gguf_encode(kvf_ctx *ctx, const char *name, kvf__dtype dtype, const float *values,
                            int64_t n, uint8_t *out)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(values[i]) < kvf__dtype_limit(dtype)))
            return kvf__fail(ctx, KVF_ENUMERIC, "%s holds %g, which type %s cannot store", name,
                             (double)values[i], kvf__dtype_name(dtype));
    kvf__from_f32(dtype, values, out, n);
    return KVF_OK;
}

/* Appends n values of the row. */
static kvf_status encode(tensor *t, int64_t n)
{
    KVF_TRY(kvf__gguf_encode(t->ctx, t->slot->name, t->dtype, t->row, n, t->to));
    t->to += (size_t)(n / kvf__dtype_block(t->dtype)) * kvf__dtype_block_bytes(t->dtype);
    return KVF_OK;
}

/* Appends a row of the file, in its bytes if the type is the same. */
static kvf_status old_row(tensor *t, int64_t row)
{
    const kvf__view *view = &t->slot->view;
    const int64_t columns = kvf__slot_columns(t->slot);

    if (t->dtype != view->dtype) {
        kvf__slot_row(t->slot, row, t->row);
        return encode(t, columns);
    }
    const size_t bytes = (size_t)(columns / kvf__dtype_block(t->dtype)) *
                         kvf__dtype_block_bytes(t->dtype);
    memcpy(t->to, (const uint8_t *)view->data + (size_t)row * bytes, bytes);
    t->to += bytes;
    return KVF_OK;
}

/* Sets n of the row to a neuron's values, `stride` apart; NULL: zeros. */
static void set_row(tensor *t, const float *values, int64_t stride, int64_t n, int64_t have)
{
    for (int64_t i = 0; i < n; i++)
        t->row[i] = values && i < have ? values[i * stride] : 0;
}

/* Appends rows `from` to `to` of the file, and the neurons' values: columns of each row [N, rows],
 * or rows after them [N, columns]. */
static kvf_status part(tensor *t, int64_t from, int64_t to, const float *values)
{
    const int64_t N = t->w->N, have = t->w->neurons->shape.N, rows = kvf__slot_rows(t->slot),
                  C = kvf__slot_columns(t->slot);
    const bool beside = by_column(t->slot);

    for (; from < to; from++) {
        KVF_TRY(old_row(t, from));
        if (!beside) continue;
        set_row(t, values ? values + from : NULL, rows, N, have);
        KVF_TRY(encode(t, N));
    }
    for (int64_t n = 0; n < N && !beside; n++) {
        set_row(t, values + n * C, 1, C, n < have ? C : 0);
        KVF_TRY(encode(t, C));
    }
    return KVF_OK;
}

static kvf_status fill(tensor *t)
{
    const kvf__neurons_layer at = kvf__neurons_at(t->w->neurons, t->slot->layer);
    const int64_t rows = kvf__slot_rows(t->slot);

    switch (t->slot->role) {
    case KVF__W_DOWN:
        return part(t, 0, rows, at.value);
    case KVF__W_UP_BIAS:
        return part(t, 0, rows, at.bias);
    case KVF__W_GATE_BIAS:
        return part(t, 0, rows, NULL);
    case KVF__W_GATE_UP:
        KVF_TRY(part(t, 0, rows / 2, at.key));
        return part(t, rows / 2, rows, at.up);
    case KVF__W_UP:
        return part(t, 0, rows, at.up ? at.up : at.key);
    default:
        return part(t, 0, rows, at.key);
    }
}

static kvf_status make(kvf_ctx *ctx, const void *user, size_t i, uint8_t *out)
{
    const wide *w = user;
    tensor t = {.ctx = ctx, .w = w, .slot = w->slots[i], .dtype = w->views[i].dtype, .to = out};
    const int64_t most = kvf__slot_columns(t.slot) + w->N;

    KVF_TRY(kvf__alloc_array(ctx, (size_t)most, sizeof(float), &t.row));
    const kvf_status st = fill(&t);
    kvf__free(t.row);
    return st;
}

/* ---- the file -------------------------------------------------------------------------------- */

static kvf_status rewrite(kvf_ctx *ctx, const char *path, bool force, const wide *w)
{
    const kvf__weights *old = &w->base->weights;
    const char *arch = kvf_json_str(kvf_json_get(old->meta, "general.architecture"), NULL);
    char key[KVF__NAME_BYTES];

    snprintf(key, sizeof key, "%s.feed_forward_length", arch);
    const kvf__gguf_change change = {
        .key = key,
        .value = (uint64_t)(kvf__model_desc(w->base->model)->F + w->N),
        .views = w->views,
        .make = make,
        .user = w,
    };
    return kvf__gguf_rewrite(ctx, path, force, old, &change);
}

kvf_status kvf__write_wide_gguf(kvf_ctx *ctx, const char *path, bool force, const void *content)
{
    const kvf__llama_export *e = content;
    wide w = {.options = e->options,
              .base = e->base,
              .neurons = &e->prefix->file.prefix.neurons,
              .N = e->prefix->file.prefix.neurons.shape.N};
    const size_t n = w.base->weights.table.n;

    kvf_status st = kvf__alloc_array(ctx, n, sizeof *w.slots, &w.slots);
    if (!st) st = kvf__alloc_array(ctx, n, sizeof *w.views, &w.views);
    if (!st) st = find_slots(ctx, &w);
    if (!st) widen_views(&w);
    if (!st) st = rewrite(ctx, path, force, &w);
    kvf__free(w.slots);
    kvf__free(w.views);
    return st;
}
