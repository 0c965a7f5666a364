/* What rows of a batch see before their own tokens: what training, evaluation, generation and the
 * pass through the base hand to each other. */
#ifndef KVF_CONDITION_H
#define KVF_CONDITION_H

#include "prefix.h"
#include "vectors.h"

/* All zero: the bare base, rows from position 0 on. */
typedef struct kvf__condition {
    const kvf__prefix *prefix;   /* keys and values before the row's own; NULL or P = 0: none */
    const kvf__vectors *vectors; /* what ids below 0 stand for: row p in place of an embedding; NULL:
                                    there are none */
    int64_t position_start;      /* position of the row's first token; with a cache, of its first
                                    cached one */
} kvf__condition;

#endif
