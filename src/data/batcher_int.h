/* Internal to src/data: packs rows (batch_rows.c) under the common prefixes that they share
 * (common_prefix.c). */
#ifndef KVF_BATCHER_INT_H
#define KVF_BATCHER_INT_H

#include "batcher.h"

typedef struct kvf__batch_row {
    const int32_t *ids, *labels;
    int64_t n;            /* tokens to compute */
    int64_t n_labels;     /* entries of labels */
    int64_t shareable;    /* tokens before the first predicting position, which may go into a common
                             prefix */
    int64_t example;      /* index of the row, or of its group */
    int64_t index;        /* position in the step; makes sorting a total order */
    int64_t shift;        /* label i is predicted at token i - shift: 1 for lm, 0 for other tasks */
    const int32_t *types; /* NULL: all 0 */
    int32_t label;        /* one label for all tokens; KVF__NO_LABEL: see labels */
    float value;
    int32_t span[2];

    /* Sort key: the first row of the group. */
    const int32_t *key_ids;
    int64_t key_shareable, key_index;

    int64_t from; /* while the tree is built: number of tokens in common prefixes, and the last of
                     these prefixes */
    int32_t parent;
} kvf__batch_row;

/* kvf__common_ids returns the length of the common beginning of two lists. kvf__compare_ids returns
 * their lexicographic order. */
int64_t kvf__common_ids(const int32_t *a, int64_t a_n, const int32_t *b, int64_t b_n);
int kvf__compare_ids(const int32_t *a, int64_t a_n, const int32_t *b, int64_t b_n);

void kvf__batcher_clear(kvf__batcher *batcher);
int32_t kvf__batcher_add(kvf__batcher *batcher, const kvf__batch_row *row, int64_t from, int64_t to,
                         int32_t parent);
void kvf__batcher_add_leaf(kvf__batcher *batcher, const kvf__batch_row *row, int64_t from,
                           int32_t parent);

/* Fills the batch with batcher->rows [n] as a tree of common prefixes. Returns false if no common
 * prefix saves enough; the batch is then empty and the rows have their old order. grouped: rows of
 * a group stay adjacent, after all common prefixes. */
bool kvf__batcher_share(kvf__batcher *batcher, int64_t n, bool grouped);

#endif
