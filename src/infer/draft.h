/* Drafts: guessed next tokens, from a row's own text (draft.c). */
#ifndef KVF_DRAFT_H
#define KVF_DRAFT_H

#include "row.h"

/* Writes up to `most` tokens that followed an earlier occurrence of the row's last ones; returns
 * their number. */
int64_t kvf__draft(const kvf__live_row *row, int64_t most, int32_t *out);

#endif
