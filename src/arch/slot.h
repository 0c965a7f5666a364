/* Inside src/arch and src/model: weights read out of their file. */
#ifndef KVF_SLOT_H
#define KVF_SLOT_H

#include "bind.h"

int64_t kvf__slot_rows(const kvf__slot *slot); /* a vector is one row */
int64_t kvf__slot_columns(const kvf__slot *slot);
/* Row i of a slot in f32, row order and type undone: out [columns]. */
void kvf__slot_row(const kvf__slot *slot, int64_t row, float *out);
/* The same of a table of which a pass needs rows here and there: pages of the file around each
 * would soon be the whole table, in memory besides its packed form. read: NULL: in place. */
void kvf__slot_table_row(const kvf__slot *table, int64_t row, kvf__read_fn *read, void *user,
                         float *out);
/* The whole slot as f32 [rows, columns] in Hugging Face order ([out, in]; conv1d slots as stored,
 * [in, out]); kvf__alloc'ed. */
kvf_status kvf__slot_f32(kvf_ctx *ctx, const kvf__slot *slot, float **out);
void kvf__slot_read(const kvf__slot *slot, float *out); /* the same into memory that is there */
/* Items and index of its own; views are shared. */
kvf_status kvf__slots_copy(kvf_ctx *ctx, const kvf__slots *from, kvf__slots *to);
const kvf__slot *kvf__slots_find(const kvf__slots *slots, const char *name); /* NULL if absent */

/* The whole slot as f32 with its rows (or elements of a bias) as Hugging Face has them, which
 * differs from kvf__slot_read for by_head and one. */
void kvf__slot_read_hf(const kvf__slot *slot, float *out);

/* Elements from .. from + n - 1 of a row. scratch: room for n + 2 blocks of the slot's type
 * (KVF__SLOT_SLACK covers all). */
#define KVF__SLOT_SLACK 512
void kvf__slot_row_part(const kvf__slot *slot, int64_t row, int64_t from, int64_t n, float *out,
                        float *scratch);

#endif
