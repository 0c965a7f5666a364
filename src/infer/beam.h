/* Beam search (beam.c): the best completion that several rows find together. */
#ifndef KVF_BEAM_H
#define KVF_BEAM_H

#include "ensemble.h"
#include "row.h"

/* All but stats are borrowed. */
typedef struct kvf__beam_search {
    const kvf_base *base;
    kvf__ensemble *session; /* of `beams` slots, which it takes all */
    kvf__row_batch *batch;  /* of `beams` rows */
    int64_t beams;
    double length_penalty;
    bool infix; /* a prefix is inside rows */
    kvf_generate_stats stats;
} kvf__beam_search;

/* The row's completion, whole: its text and tokens. What the row says of drawing is not used,
 * except the penalties, which are of log-probabilities here, as in transformers. */
kvf_status kvf__beam_complete(kvf_ctx *ctx, kvf__beam_search *search, kvf__live_row *row);

#endif
