/* Beam search (beam.c): the best completion among several beams. */
#ifndef KVF_BEAM_H
#define KVF_BEAM_H

#include "ensemble.h"
#include "row.h"

/* All members but stats are borrowed. */
typedef struct kvf__beam_search {
    const kvf_base *base;
    kvf__ensemble *session; /* session of `beams` slots, all used by the search */
    kvf__row_batch *batch;  /* batch of `beams` rows */
    int64_t beams;
    double length_penalty;
    bool infix; /* the prefix is inside rows */
    kvf_generate_stats stats;
} kvf__beam_search;

/* Computes the row's whole completion, text and tokens. Of the row's sampling only the penalties
 * apply, to log-probabilities, as in transformers. */
kvf_status kvf__beam_complete(kvf_ctx *ctx, kvf__beam_search *search, kvf__live_row *row);

#endif
