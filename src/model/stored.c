/* Frozen matrices as one copy in memory, in a chosen type: f32, bf16, or 8-bit integers with a
 * scale for every 32 of a row (GGUF's Q8_0).
 *
 * Readers of slots use these copies like any other: packing, and a step of generation, which
 * multiplies with them directly. Rows stay in the order of the file. The embedding's rows are
 * always read from the file; a tied head gets a copy of its own. */
#include "stored.h"
#include "names.h"
#include "products.h"
#include "slot.h"

#include <omp.h>
#include <string.h>

kvf__dtype kvf__stored_dtype(kvf__dtype wanted, int64_t columns)
{
    return columns % kvf__dtype_block(wanted) ? KVF__BF16 : wanted;
}

typedef struct storing {
    kvf_ctx *ctx;
    const kvf__model_options *options;
    kvf__stored *stored;
    int threads;
    float *scratch; /* [threads, widest row] */
    int64_t widest;
} storing;

static size_t row_bytes(kvf__dtype dtype, int64_t columns)
{
    return (size_t)(columns / kvf__dtype_block(dtype)) * kvf__dtype_block_bytes(dtype);
}

/* Converts rows in the order of the file, or, if something is added to them, of Hugging Face. */
static void convert(const storing *s, const kvf__slot *slot, kvf__dtype dtype, uint8_t *to)
{
    const kvf__view *from = &slot->view;
    const int64_t rows = from->dim[0], columns = from->dim[1];
    const size_t old = row_bytes(from->dtype, columns), new = row_bytes(dtype, columns);

    if (from->dtype == dtype && !slot->add) {
        memcpy(to, from->data, (size_t)rows * new);
        return;
    }
#pragma omp parallel for schedule(static) num_threads(s->threads)
    for (int64_t r = 0; r < rows; r++) {
        float *row = s->scratch + omp_get_thread_num() * s->widest;
        if (slot->add)
            kvf__slot_row(slot, r, row);
        else
            kvf__to_f32(from->dtype, (const uint8_t *)from->data + (size_t)r * old, row, columns);
        kvf__from_f32(dtype, row, to + (size_t)r * new, columns);
    }
}

/* Makes the slot a view of a copy. */
static kvf_status copy_matrix(storing *s, kvf__slot *slot)
{
    kvf__stored *stored = s->stored;
    const kvf__dtype dtype = kvf__stored_dtype(s->options->stored, slot->view.dim[1]);
    const size_t bytes = (size_t)slot->view.dim[0] * row_bytes(dtype, slot->view.dim[1]);
    uint8_t *to = NULL;

    KVF_TRY(kvf__alloc(s->ctx, bytes, &to));
    stored->memory[stored->n++] = to;
    stored->bytes += bytes;
    convert(s, slot, dtype, to);
    if (slot->add) { /* rows are then in Hugging Face order */
        slot->permuted_heads = 0;
        slot->file_by_head = false;
    }
    slot->add = NULL;
    slot->view.data = to;
    slot->view.dtype = dtype;
    if (s->options->packed) s->options->packed(s->options->user);
    return KVF_OK;
}

/* Visits every matrix of the layers, then the head. */
static kvf_status each_matrix(storing *s, const kvf__desc *desc,
                              kvf_status (*visit)(storing *s, kvf__slot *slot))
{
    const kvf__slots *slots = &s->stored->slots;
    const kvf__slot *slot;
    kvf__product p;

    for (int64_t l = 0; l < desc->L; l++)
        for (size_t i = 0; kvf__product_at(desc, l, i, &p) && !p.plane; i++)
            for (int part = 0; !p.n0 /* else the matrix of gate has it */ &&
                               (slot = kvf__product_slot(desc, slots, &p, part, NULL));
                 part++)
                if (!part ||
                    slot != kvf__product_slot(desc, slots, &p, 0, NULL)) /* not its gates */
                    KVF_TRY(visit(s, &slots->items[slot - slots->items]));
    return s->stored->head.view.data ? visit(s, &s->stored->head) : KVF_OK;
}

static kvf_status measure(storing *s, kvf__slot *slot)
{
    if (slot->view.dim[1] > s->widest) s->widest = slot->view.dim[1];
    s->stored->n++; /* counted first, then counted again as copies are made */
    return KVF_OK;
}

static kvf_status copy_matrices(storing *s, const kvf__desc *desc)
{
    s->threads = omp_get_max_threads();
    KVF_TRY(each_matrix(s, desc, measure));
    size_t n = s->stored->n;
    s->stored->n = 0;
    KVF_TRY(kvf__alloc_array(s->ctx, n, sizeof *s->stored->memory, &s->stored->memory));
    KVF_TRY(kvf__alloc_array(s->ctx, (size_t)s->threads * (size_t)s->widest, sizeof *s->scratch,
                             &s->scratch));
    return each_matrix(s, desc, copy_matrix);
}

kvf_status kvf__stored_create(kvf_ctx *ctx, const kvf__desc *desc, const kvf__slots *slots,
                              const kvf__model_options *options, kvf__stored **out)
{
    storing s = {.ctx = ctx, .options = options};

    KVF_TRY(kvf__alloc(ctx, sizeof *s.stored, &s.stored));
    kvf_status st = kvf__slots_copy(ctx, slots, &s.stored->slots);
    if (st) goto out;
    if (kvf__weight_by_role(desc, KVF__W_HEAD)) {
        const kvf__slot *head = kvf__slot_of(desc, &s.stored->slots, KVF__W_HEAD, 0);
        if (!head) head = kvf__slot_of(desc, &s.stored->slots, KVF__W_TOKENS, 0);
        s.stored->head = *head;
    }
    if (options->keep == KVF__KEEP_STORED) st = copy_matrices(&s, desc);
    if (st) goto out;

    *out = s.stored;
    s.stored = NULL;
out:
    kvf__free(s.scratch);
    kvf__stored_free(s.stored);
    return st;
}

void kvf__stored_free(kvf__stored *stored)
{
    if (!stored) return;
    for (size_t i = 0; i < stored->n; i++)
        kvf__free(stored->memory[i]);
    kvf__free(stored->memory);
    kvf__slots_done(&stored->slots);
    kvf__free(stored);
}
