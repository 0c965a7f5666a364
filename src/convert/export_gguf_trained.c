/* Writes a GGUF again with the weights of a trained base: its own with a LoRA folded in, or those
 * of a base file (method full, merged) of a run on it. Unchanged tensors keep their bytes. Changed
 * vectors and matrices keep their type if it is a float type; quantized matrices are stored in f16,
 * or as --ffn-type says, because few bits per value would round the training away. */
#include "arch.h"
#include "export.h"
#include "slot.h"

#include <string.h>

/* A file while it is made. */
typedef struct trained {
    const kvf_export_options *options;
    const kvf_base *gguf;      /* the file to write again */
    const kvf_base *base;      /* the same with a LoRA, or the base file */
    const kvf__slot **changed; /* [tensors] slot of the GGUF; NULL: the tensor keeps its bytes */
    kvf__view *views;          /* [tensors] */
} trained;

/* ---- what changed ---------------------------------------------------------------------------- */

/* Reads a weight in Hugging Face's form as f32; the caller frees *out. */
static kvf_status plain_f32(kvf_ctx *ctx, const kvf__slot *slot, float **out)
{
    void *memory = NULL;
    kvf__view view;

    KVF_TRY(kvf__slot_plain(ctx, slot, &memory, &view));
    const int64_t n = kvf__view_count(&view);
    kvf_status st = kvf__alloc_array(ctx, (size_t)n, sizeof **out, out);
    if (!st) kvf__to_f32(view.dtype, view.data, *out, n);
    kvf__free(memory);
    return st;
}

/* Finds the trained weight of a slot. */
static kvf_status find_values(kvf_ctx *ctx, const trained *t, const kvf__slot *slot,
                              const kvf__slot **out)
{
    char found[128], wanted[128];
    const kvf__slot *values = kvf__slots_find(&t->base->slots, slot->name);

    if (!values)
        return kvf__fail(ctx, KVF_EMISMATCH, "%s: has no weight %s: it was not trained on %s",
                         t->base->path, slot->name, t->gguf->path);
    if (kvf__slot_rows(values) != kvf__slot_rows(slot) ||
        kvf__slot_columns(values) != kvf__slot_columns(slot))
        return kvf__fail(
            ctx, KVF_EMISMATCH, "%s: %s has shape %s, but %s has %s: it was not trained on that",
            t->base->path, slot->name, kvf__shape_text(found, values->view.rank, values->view.dim),
            t->gguf->path, kvf__shape_text(wanted, slot->view.rank, slot->view.dim));
    *out = values;
    return KVF_OK;
}

static kvf_status is_changed(kvf_ctx *ctx, const trained *t, const kvf__slot *slot, bool *out)
{
    const kvf__slot *values = NULL;
    float *before = NULL, *after = NULL;

    KVF_TRY(find_values(ctx, t, slot, &values));
    *out = values->add;
    if (t->base->lora) return KVF_OK;
    kvf_status st = plain_f32(ctx, slot, &before);
    if (!st) st = plain_f32(ctx, values, &after);
    const size_t n = (size_t)(kvf__slot_rows(slot) * kvf__slot_columns(slot));
    if (!st) *out = memcmp(before, after, n * sizeof *before);
    kvf__free(before);
    kvf__free(after);
    return st;
}

/* Marks a slot's tensor if training changed it, and sets the type in which it is stored. */
static kvf_status mark(kvf_ctx *ctx, trained *t, const kvf__slot *slot)
{
    const kvf__table *table = &t->gguf->weights.table;
    bool changed = false;
    size_t i = 0;

    KVF_TRY(is_changed(ctx, t, slot, &changed));
    if (!changed) return KVF_OK;
    while (i < table->n && table->items[i].view.data != slot->view.data)
        i++;
    if (i == table->n || kvf__view_count(&table->items[i].view) != kvf__view_count(&slot->view))
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: %s is part of a tensor, which is not written from trained weights: "
                         "use --format transformers",
                         t->gguf->path, slot->name);
    kvf__view *view = &t->views[i];
    view->data = NULL;
    t->changed[i] = slot;
    if (view->rank < 2) return KVF_OK;
    if (kvf__dtype_block(view->dtype) > 1 && !t->options->ffn_type) view->dtype = KVF__F16;
    return kvf__gguf_store_as(ctx, t->gguf->path, table->items[i].name, t->options->ffn_type, view);
}

/* ---- the file -------------------------------------------------------------------------------- */

static kvf_status make(kvf_ctx *ctx, const void *user, size_t i, uint8_t *out)
{
    const trained *t = user;
    const kvf__view *view = &t->views[i];
    const int64_t n = kvf__view_count(view);
    const kvf__slot *values = NULL;
    float *plain = NULL, *in_file = NULL;

    KVF_TRY(find_values(ctx, t, t->changed[i], &values));
    kvf_status st = plain_f32(ctx, values, &plain);
    if (!st) st = kvf__alloc_array(ctx, (size_t)n, sizeof *in_file, &in_file);
    if (!st) kvf__slot_to_file(t->changed[i], plain, in_file);
    if (!st) st = kvf__gguf_encode(ctx, t->changed[i]->name, view->dtype, in_file, n, out);
    kvf__free(plain);
    kvf__free(in_file);
    return st;
}

static kvf_status write(kvf_ctx *ctx, trained *t)
{
    const kvf__table *table = &t->gguf->weights.table;

    KVF_TRY(kvf__alloc_array(ctx, table->n, sizeof *t->changed, &t->changed));
    KVF_TRY(kvf__alloc_array(ctx, table->n, sizeof *t->views, &t->views));
    for (size_t i = 0; i < table->n; i++)
        t->views[i] = table->items[i].view;
    for (size_t s = 0; s < t->gguf->slots.n; s++)
        KVF_TRY(mark(ctx, t, &t->gguf->slots.items[s]));
    const kvf__gguf_change change = {.views = t->views, .make = make, .user = t};
    return kvf__gguf_rewrite(ctx, t->options->out, t->options->force, &t->gguf->weights, &change);
}

/* A GGUF needs a LoRA; a base file the GGUF. */
static kvf_status check_options(kvf_ctx *ctx, const kvf_export_options *o)
{
    kvf__file_kind form = KVF__FILE_UNKNOWN;

    KVF_TRY(kvf__file_kind_of(ctx, o->path, &form));
    if (form == KVF__FILE_GGUF && (!o->lora || o->base))
        return kvf__fail(ctx, KVF_EUSAGE,
                         "%s: is a GGUF: give --lora to fold one in, and no --base", o->path);
    if (form != KVF__FILE_GGUF && (o->lora || !o->base))
        return kvf__fail(ctx, KVF_EUSAGE,
                         "%s: is a base: give --base MODEL.gguf, the file on which it was trained, "
                         "and no --lora",
                         o->path);
    if (o->checkpoint)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "%s: is a base, which has one state: give no --checkpoint", o->path);
    return kvf__check_no_state(ctx, o, "is a base");
}

kvf_status kvf__export_gguf_trained(kvf_ctx *ctx, const kvf_export_options *options)
{
    const char *gguf = options->base ? options->base : options->path;
    trained t = {.options = options};
    kvf_base *base = NULL, *own = NULL;

    KVF_TRY(check_options(ctx, options));
    kvf_status st = kvf__open_mapped(ctx, options->path, options->lora, &base);
    if (!st && options->base) st = kvf__open_mapped(ctx, gguf, NULL, &own);
    t.base = base;
    t.gguf = own ? own : base;
    if (!st && !kvf__model_desc(t.gguf->model)->gguf)
        st = kvf__fail(ctx, KVF_EUSAGE, "--base %s: want the GGUF that the base was trained on",
                       gguf);
    if (!st) st = write(ctx, &t);
    kvf__free(t.changed);
    kvf__free(t.views);
    kvf_base_free(own);
    kvf_base_free(base);
    return st;
}
