/* The conditioning that precedes the tokens of a batch's rows, as passed from training, evaluation
 * and generation to the base. */
#ifndef KVF_CONDITION_H
#define KVF_CONDITION_H

#include "prefix.h"
#include "vectors.h"

/* All zero: the bare base with rows from position 0 on. */
typedef struct kvf__condition {
    const kvf__prefix *prefix;   /* keys and values before the row's own; NULL or P = 0: none */
    const kvf__vectors *vectors; /* vectors in place of the embeddings of ids below 0; NULL: none */
    int64_t position_start; /* position of the row's first token; with a cache, of the first cached
                               token */
} kvf__condition;

#endif
