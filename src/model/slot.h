/* Inside src/model: reads of slots that only packing needs. */
#ifndef KVF_SLOT_H
#define KVF_SLOT_H

#include "model_priv.h"

int64_t kvf__slot_rows(const kvf__slot *slot); /* a vector is one row */
int64_t kvf__slot_columns(const kvf__slot *slot);
/* The whole slot as f32 with its rows (or elements of a bias) as Hugging Face has them, which
 * differs from kvf__slot_read for by_head and one. */
void kvf__slot_read_hf(const kvf__slot *slot, float *out);

/* Elements from .. from + n - 1 of a row. scratch: room for n + 2 blocks of the slot's type
 * (KVF__SLOT_SLACK covers all). */
#define KVF__SLOT_SLACK 512
void kvf__slot_row_part(const kvf__slot *slot, int64_t row, int64_t from, int64_t n, float *out,
                        float *scratch);

#endif
