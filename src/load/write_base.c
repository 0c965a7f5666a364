/* Base files written from weights that are there: those of a Hugging Face folder or a GGUF
 * (import), and those that a run trained (merge).
 *
 * A GGUF's weights are written in the order and by the names of Hugging Face, integers as the f32
 * that they stand for: one at a time, so that only the largest is in memory. */
#include "load_int.h"

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

static const kvf__param *value_of(const kvf__params *values, const char *name)
{
    for (size_t i = 0; values && i < values->n; i++)
        if (!strcmp(values->item[i].name, name)) return &values->item[i];
    return NULL;
}

static kvf_status load_slot(void *user, size_t i, kvf__view *view)
{
    writing *w = user;
    const kvf__slot *slot = &w->slots->items[i];
    const kvf__param *value = value_of(w->values, slot->name);

    if (!value) return kvf__slot_plain(w->ctx, slot, &w->memory, view);
    *view = (kvf__view){.data = value->value, .dtype = KVF__F32, .rank = value->rank};
    memcpy(view->dim, value->dim, (size_t)value->rank * sizeof *value->dim);
    return KVF_OK;
}

/* By the names of the slots: copies of tied weights, and other surplus, stay behind. */
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

/* A base that could not be opened must not become a base file. */
static kvf_status bind_as(kvf_ctx *ctx, const char *path, const kvf__base_file *file, bool gguf,
                          const kvf__weights *weights, kvf__slots *slots)
{
    kvf_json *config = NULL;
    kvf__desc desc = {0};
    kvf_status st;

    if (gguf)
        st = kvf__desc_from_gguf(ctx, path, weights->meta, &weights->table, &desc);
    else {
        st = kvf_json_parse(ctx, path, file->config, strlen(file->config), &config);
        if (!st) st = kvf__desc_from_hf(ctx, path, config, &desc);
    }
    if (!st) st = kvf__bind(ctx, path, &desc, &weights->table, slots);
    kvf__desc_done(&desc);
    kvf_json_free(config);
    return st;
}

kvf_status kvf__base_import(kvf_ctx *ctx, const char *path, const char *out, bool force)
{
    kvf__file_kind kind = KVF__FILE_UNKNOWN;
    kvf__base_file file = {0};
    kvf__weights weights = {0};
    kvf__slots slots = {0};
    kvf__tokenizer *tokenizer = NULL;
    kvf__tensor *tensors = NULL;
    kvf_status st;

    KVF_TRY(kvf__file_kind_of(ctx, path, &kind));
    const bool gguf = kind == KVF__FILE_GGUF;
    st = kvf__base_texts(ctx, path, &file);
    if (st) goto out;
    st = kvf__base_tokenizer(ctx, path, &file, &tokenizer);
    if (st) goto out;
    st = gguf ? kvf__gguf_open(ctx, path, &weights)
              : kvf__safetensors_open_dir(ctx, path, &weights);
    if (st) goto out;
    st = bind_as(ctx, path, &file, gguf, &weights, &slots);
    if (st) goto out;
    if (gguf) {
        st = write_slots(ctx, &slots, NULL, out, force, &file);
        goto out;
    }
    st = choose_tensors(ctx, &weights.table, &tensors, &file.n);
    if (st) goto out;
    file.tensors = tensors;
    st = kvf__base_file_write(ctx, out, force, &file);
out:
    kvf__free(tensors);
    kvf__tokenizer_free(tokenizer);
    kvf__slots_done(&slots);
    kvf__weights_close(&weights);
    kvf__base_file_done(&file);
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
    kvf_json *config = NULL;
    kvf__desc desc = {0};
    kvf_status st = KVF_OK;

    for (size_t i = 0; i < base->slots.n && !st; i++) {
        kvf__view view = base->slots.items[i].view;
        st = load_slot(&w, i, &view); /* of a GGUF, whose weights are all trained: the values */
        if (!st) st = kvf__table_add(ctx, &table, base->slots.items[i].name, view);
    }
    if (!st) st = kvf_json_parse(ctx, base->path, file->config, strlen(file->config), &config);
    if (!st) st = kvf__desc_from_hf(ctx, base->path, config, &desc);
    if (!st) st = kvf__bind(ctx, base->path, &desc, &table, &slots);
    if (!st) st = kvf__slots_hash(ctx, &desc, &slots, hex);
    kvf_json_free(config);
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
        used += value_of(values, base->slots.items[i].name) != NULL;
    if (used != values->n)
        return kvf__fail(ctx, KVF_EMISMATCH, "%s: has %zu of the %zu weights that were trained",
                         base->path, used, values->n);
    KVF_TRY(kvf__base_texts(ctx, base->path, &file));
    kvf_status st = stamp(ctx, base, values, &file, task);
    if (!st) st = write_slots(ctx, &base->slots, values, out, force, &file);
    kvf__base_file_done(&file);
    return st;
}
