/* Shared by src/arch and src/model: reading weights from their file. */
#ifndef KVF_SLOT_H
#define KVF_SLOT_H

#include "bind.h"

int64_t kvf__slot_rows(const kvf__slot *slot); /* a vector is one row */
int64_t kvf__slot_columns(const kvf__slot *slot);
/* Reads row i of a slot as f32 [columns], with row order and type undone. */
void kvf__slot_row(const kvf__slot *slot, int64_t row, float *out);
/* Reads a row of a table with scattered access by copying. In place, the pages around each row
 * would soon hold the whole table in memory. read NULL: in place. */
void kvf__slot_table_row(const kvf__slot *table, int64_t row, kvf__read_fn *read, void *user,
                         float *out);
/* Reads a whole slot as f32 [rows, columns] in Hugging Face order ([out, in]; conv1d slots as
 * stored, [in, out]) into new memory. */
kvf_status kvf__slot_f32(kvf_ctx *ctx, const kvf__slot *slot, float **out);
void kvf__slot_read(const kvf__slot *slot, float *out); /* reads it into existing memory */
/* Reads outputs first + at[i] (at NULL: first + i) of a dense layer's weight, [n, inputs]. */
kvf_status kvf__slot_outputs(kvf_ctx *ctx, const kvf__slot *weight, int64_t first,
                             const int64_t *at, int64_t n, float *out);
/* Copies items and index; views are shared. */
kvf_status kvf__slots_copy(kvf_ctx *ctx, const kvf__slots *from, kvf__slots *to);
const kvf__slot *kvf__slots_find(const kvf__slots *slots, const char *name); /* NULL if absent */

/* Reads a whole slot as f32 with rows (or elements of a bias) as in Hugging Face, which differs
 * from kvf__slot_read for by_head and one. */
void kvf__slot_read_hf(const kvf__slot *slot, float *out);
/* Puts all values of a GGUF's weight, given as kvf__slot_plain reads them, into the form and order
 * of the file. */
void kvf__slot_to_file(const kvf__slot *slot, const float *plain, float *out);

/* Reads elements from .. from + n - 1 of a row. scratch: room for n + 2 blocks of the slot's type
 * (KVF__SLOT_SLACK covers all). */
#define KVF__SLOT_SLACK 512
void kvf__slot_row_part(const kvf__slot *slot, int64_t row, int64_t from, int64_t n, float *out,
                        float *scratch);

#endif
