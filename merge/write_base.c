/* Writing base files from the slots of a base, some of them trained. Tensors have the order and
 * names of Hugging Face; quantized weights of a GGUF become f32. One tensor at a time is in
 * memory. */
#include "merge_int.h"

#include <string.h>

/* Slots, some of which are replaced by trained values. */
typedef struct writing {
    kvf_ctx *ctx;
    const kvf__slots *slots;
    const kvf__params *values; /* NULL: none */
    void *memory;              /* memory of the current tensor */
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

kvf_status kvf__base_write_slots(kvf_ctx *ctx, const kvf__slots *slots, const kvf__params *values,
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

/* Computes the hash of the base file: of its slots with the values in place. */
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
        st = load_slot(&w, i, &view); /* a GGUF whose weights are all trained: the values */
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
    if (!st) st = kvf__base_write_slots(ctx, &base->slots, values, out, force, &file);
    kvf__base_file_done(&file);
    return st;
}
