/* Inside src/data: packing rows (batch_rows.c) by the common prefixes they share (common_prefix.c).
 */
#ifndef KVF_BATCHER_INT_H
#define KVF_BATCHER_INT_H

#include "batcher.h"

typedef struct kvf__batch_row {
    const int32_t *ids, *labels;
    int64_t n;         /* tokens to compute */
    int64_t n_labels;  /* entries of labels */
    int64_t shareable; /* tokens before the first position that predicts a label: these may go into
                          a common prefix */
    int64_t example;   /* the group, where rows come in groups */
    int64_t index;     /* position in the step, so that sorting is a total order */
    int64_t shift;     /* label i is predicted at token i - shift: 1 for lm, 0 for other tasks */
    const int32_t *types; /* NULL: all 0 */
    int32_t label;        /* of every token; KVF__NO_LABEL: labels has it */
    float value;
    int32_t span[2];

    /* Rows are sorted by the first row of their group. */
    const int32_t *key_ids;
    int64_t key_shareable, key_index;

    int64_t from; /* while the tree is made: tokens in common prefixes, and the last of
                     these */
    int32_t parent;
} kvf__batch_row;

/* How many ids two lists begin with alike; their order, a list before those that go on. */
int64_t kvf__common_ids(const int32_t *a, int64_t a_n, const int32_t *b, int64_t b_n);
int kvf__compare_ids(const int32_t *a, int64_t a_n, const int32_t *b, int64_t b_n);

void kvf__batcher_clear(kvf__batcher *batcher);
int32_t kvf__batcher_add(kvf__batcher *batcher, const kvf__batch_row *row, int64_t from, int64_t to,
                         int32_t parent);
void kvf__batcher_add_leaf(kvf__batcher *batcher, const kvf__batch_row *row, int64_t from,
                           int32_t parent);

/* Fills the batch with batcher->rows [n] as a tree of common prefixes; false, with rows in their
 * old order and the batch empty, where no common prefix is worth it. grouped: rows of a group stay
 * next to each other, after all common prefixes. */
bool kvf__batcher_share(kvf__batcher *batcher, int64_t n, bool grouped);

#endif
