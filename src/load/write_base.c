/* Base files written from weights that are there: those of a Hugging Face folder or a GGUF
 * (import), and those that a run trained (merge).
 *
 * A GGUF's weights are written in the order and by the names of Hugging Face, integers as the f32
 * that they represent: one at a time, so that only the largest is in memory. */
#include "open_base.h"

#include <string.h>

/* ---- from a base as it is -------------------------------------------------------------------- */

/* All tensors of types that HDF5 takes: also those that no base of ours reads, such as a masked
 * model's head. */
static kvf_status choose_tensors(kvf_ctx *ctx, const kvf__table *table, kvf__tensor **out,
                                 size_t *n)
{
    kvf__tensor *tensors = NULL;

    KVF_TRY(kvf__alloc_array(ctx, table->n, sizeof *tensors, &tensors));
    *n = 0;
    for (size_t i = 0; i < table->n; i++)
        if (kvf__base_file_takes(&table->items[i].view)) tensors[(*n)++] = table->items[i];
    *out = tensors;
    return KVF_OK;
}

/* Slots, some of which have values in place of the file's. */
typedef struct writing {
    kvf_ctx *ctx;
    const kvf__slots *slots;
    const kvf__params *values; /* NULL: none */
    void *memory;              /* of the tensor at hand */
} writing;

static kvf_status load_slot(void *user, size_t i, kvf__view *view)
{
    writing *w = user;
    const kvf__slot *slot = &w->slots->items[i];
    const kvf__param *value = w->values ? kvf__params_find(w->values, slot->name) : NULL;

    if (!value) return kvf__slot_plain(w->ctx, slot, &w->memory, view);
    *view = (kvf__view){.data = value->value, .dtype = KVF__F32, .rank = value->rank};
    memcpy(view->dim, value->dim, (size_t)value->rank * sizeof *value->dim);
    return KVF_OK;
}

/* By the names of the slots: copies of tied weights, and other surplus, are left out. */
static kvf_status write_slots(kvf_ctx *ctx, const kvf__slots *slots, const kvf__params *values,
                              const char *out, bool force, kvf__base_file *file)
{
    writing w = {.ctx = ctx, .slots = slots, .values = values};
    kvf__tensor *tensors = NULL;

    KVF_TRY(kvf__alloc_array(ctx, slots->n, sizeof *tensors, &tensors));
    for (size_t i = 0; i < slots->n; i++)
        tensors[i] = (kvf__tensor){.name = slots->items[i].name, .view = slots->items[i].view};
    file->tensors = tensors;
    file->n = slots->n;
    file->load = load_slot;
    file->user = &w;
    kvf_status st = kvf__base_file_write(ctx, out, force, file);
    kvf__free(w.memory);
    kvf__free(tensors);
    return st;
}

/* What an import holds while it reads. */
typedef struct source {
    bool gguf;
    kvf__base_file file;
    kvf__weights weights;
    kvf__slots slots;
    kvf__tokenizer *tokenizer;
    kvf__desc desc;
    kvf__tensor *tensors;
} source;

static void source_done(source *s)
{
    kvf__free(s->tensors);
    kvf__desc_done(&s->desc);
    kvf__tokenizer_free(s->tokenizer);
    kvf__slots_done(&s->slots);
    kvf__weights_close(&s->weights);
    kvf__base_file_done(&s->file);
}

/* A base that could not be opened must not become a base file: its texts are used, its weights
 * bound. */
static kvf_status open_source(kvf_ctx *ctx, const char *path, source *s)
{
    KVF_TRY(kvf__base_texts(ctx, path, &s->file));
    KVF_TRY(kvf__base_tokenizer(ctx, path, &s->file, &s->tokenizer));
    KVF_TRY(s->gguf ? kvf__gguf_open(ctx, path, &s->weights)
                    : kvf__safetensors_open_dir(ctx, path, &s->weights));
    KVF_TRY(s->gguf ? kvf__desc_from_gguf(ctx, path, s->weights.meta, &s->weights.table, &s->desc)
                    : kvf__base_desc(ctx, path, &s->file, &s->desc));
    return kvf__bind(ctx, path, &s->desc, &s->weights.table, &s->slots);
}

static kvf_status write_source(kvf_ctx *ctx, source *s, const char *out, bool force)
{
    if (s->gguf) return write_slots(ctx, &s->slots, NULL, out, force, &s->file);
    KVF_TRY(choose_tensors(ctx, &s->weights.table, &s->tensors, &s->file.n));
    s->file.tensors = s->tensors;
    return kvf__base_file_write(ctx, out, force, &s->file);
}

kvf_status kvf__base_import(kvf_ctx *ctx, const char *path, const char *out, bool force)
{
    kvf__file_kind kind = KVF__FILE_UNKNOWN;

    KVF_TRY(kvf__file_kind_of(ctx, path, &kind));
    source s = {.gguf = kind == KVF__FILE_GGUF};
    kvf_status st = open_source(ctx, path, &s);
    if (!st) st = write_source(ctx, &s, out, force);
    source_done(&s);
    return st;
}

/* ---- from a run ------------------------------------------------------------------------------ */

/* The hash that the base file will have: of the same slots with the values in place. */
static kvf_status hash_of(kvf_ctx *ctx, const kvf_base *base, const kvf__params *values,
                          const kvf__base_file *file, char hex[33])
{
    kvf__table table = {0};
    kvf__slots slots = {0};
    writing w = {.ctx = ctx, .slots = &base->slots, .values = values};
    kvf__desc desc = {0};
    kvf_status st = KVF_OK;

    for (size_t i = 0; i < base->slots.n && !st; i++) {
        kvf__view view = base->slots.items[i].view;
        st = load_slot(&w, i, &view); /* of a GGUF, whose weights are all trained: the values */
        if (!st) st = kvf__table_add(ctx, &table, base->slots.items[i].name, view);
    }
    if (!st) st = kvf__base_desc(ctx, base->path, file, &desc);
    if (!st) st = kvf__bind(ctx, base->path, &desc, &table, &slots);
    if (!st) st = kvf__slots_hash(ctx, &desc, &slots, NULL, NULL, hex);
    if (!st) st = kvf__base_hash_ids(ctx, base->tokenizer, hex);
    kvf__desc_done(&desc);
    kvf__slots_done(&slots);
    kvf__table_done(&table);
    kvf__free(w.memory);
    return st;
}

static kvf_status stamp(kvf_ctx *ctx, const kvf_base *base, const kvf__params *values,
                        kvf__base_file *file, kvf__artifact *task)
{
    char hex[33], *copy = NULL;

    if (!task) return KVF_OK;
    KVF_TRY(hash_of(ctx, base, values, file, hex));
    KVF_TRY(kvf__strdup(ctx, hex, &copy));
    kvf__free(task->id.base_hash);
    task->id.base_hash = copy;
    file->task = task;
    return KVF_OK;
}

kvf_status kvf__base_from_values(kvf_ctx *ctx, const kvf_base *base, const kvf__params *values,
                                 kvf__artifact *task, const char *out, bool force)
{
    kvf__base_file file = {0};
    size_t used = 0;

    for (size_t i = 0; i < base->slots.n; i++)
        used += kvf__params_find(values, base->slots.items[i].name) != NULL;
    if (used != values->n)
        return kvf__fail(ctx, KVF_EMISMATCH, "%s: has %zu of the %zu weights that were trained",
                         base->path, used, values->n);
    KVF_TRY(kvf__base_texts(ctx, base->path, &file));
    kvf_status st = stamp(ctx, base, values, &file, task);
    if (!st) st = write_slots(ctx, &base->slots, values, out, force, &file);
    kvf__base_file_done(&file);
    return st;
}
