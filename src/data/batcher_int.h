/* Inside src/data: packing rows (batcher.c) by the leads they share (leads.c). */
#ifndef KVF_BATCHER_INT_H
#define KVF_BATCHER_INT_H

#include "data_int.h"

typedef struct kvf__batch_row {
    const int32_t *ids, *labels;
    int64_t n;         /* tokens to compute */
    int64_t n_labels;  /* entries of labels */
    int64_t shareable; /* tokens before the first position that predicts a label: these may stand in
                          a lead */
    int64_t example;
    int64_t index; /* place in the step, so that sorting is a total order */
} kvf__batch_row;

void kvf__batcher_clear(kvf__batcher *batcher);
int32_t kvf__batcher_add(kvf__batcher *batcher, const kvf__batch_row *row, int64_t from, int64_t to,
                         int32_t parent);
void kvf__batcher_add_leaf(kvf__batcher *batcher, const kvf__batch_row *row, int64_t from,
                           int32_t parent);

/* Fills the batch with batcher->rows [n] as a tree of leads; false, with rows in their old order
 * and the batch empty, where no lead is worth it. */
bool kvf__batcher_share(kvf__batcher *batcher, int64_t n);

#endif
