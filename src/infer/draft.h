/* Drafts: tokens that may follow a row, guessed from its own text (draft.c). */
#ifndef KVF_DRAFT_H
#define KVF_DRAFT_H

#include "row.h"

/* Up to `most` tokens that followed the row's last ones when they came before; returns how many. */
int64_t kvf__draft(const kvf__live_row *row, int64_t most, int32_t *out);

#endif
