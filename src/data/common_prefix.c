/* Common prefixes: tokens that several rows begin with (a system turn, an instruction, a document)
 * are computed once. Under causal attention their hidden states are equal in every row, so the
 * result is exact. Gradients are summed over the rows below. The rows of a step form a small tree.
 * It is built from the sorted rows, where rows with a common beginning are neighbours. Which rows
 * form a step never changes. */
#include "batcher_int.h"

#include <stdlib.h>

#define MAX_LEVELS                                                                                 \
    3 /* most common prefixes above a row: with the prefix, attention supports no more             \
         shared segments. With infix one of them is the row's own */
#define MIN_SAVED 8 /* tokens a common prefix must save: below that, the extra row costs more */

int64_t kvf__common_ids(const int32_t *a, int64_t a_n, const int32_t *b, int64_t b_n)
{
    int64_t n = a_n < b_n ? a_n : b_n, i = 0;
    while (i < n && a[i] == b[i])
        i++;
    return i;
}

int kvf__compare_ids(const int32_t *a, int64_t a_n, const int32_t *b, int64_t b_n)
{
    int64_t i = kvf__common_ids(a, a_n, b, b_n);
    if (i < a_n && i < b_n) return a[i] < b[i] ? -1 : 1;
    return (a_n > b_n) - (a_n < b_n);
}

/* Orders rows by the shareable tokens of their group's first row, shorter first, then by position.
 * Rows of a group stay together and in order. */
static int by_beginning(const void *x, const void *y)
{
    const kvf__batch_row *a = x, *b = y;
    if (a->key_index == b->key_index) return (a->index > b->index) - (a->index < b->index);
    int order = kvf__compare_ids(a->key_ids, a->key_shareable, b->key_ids, b->key_shareable);
    return order ? order : a->key_index < b->key_index ? -1 : 1;
}

static int by_place(const void *x, const void *y)
{
    const kvf__batch_row *a = x, *b = y;
    return (a->index > b->index) - (a->index < b->index);
}

/* A node of the tree while the rows below it are added. */
typedef struct tree_node {
    int64_t from;  /* first token that is not in the parents */
    int64_t probe; /* number of tokens in which the rows are known to agree */
    int32_t parent;
    int level;
} tree_node;

/* Returns the end of the rows from `first` on that agree beyond `probe`. *agree: the number of
 * tokens that they all share. */
static int64_t group_end(const kvf__batch_row *rows, int64_t first, int64_t end, int64_t probe,
                         int64_t *agree)
{
    int64_t next = first + 1;
    *agree = rows[first].shareable;
    while (next < end) {
        int64_t same = kvf__common_ids(rows[next - 1].ids, rows[next - 1].shareable, rows[next].ids,
                                       rows[next].shareable);
        if (same <= probe) break;
        if (same < *agree) *agree = same;
        next++;
    }
    return next;
}

/* Adds the common prefixes of rows first .. end - 1, and the rows themselves unless they are
 * grouped. Grouped rows follow all common prefixes. */
static void add_rows(kvf__batcher *batcher, int64_t first, int64_t end, bool grouped, tree_node at)
{
    kvf__batch_row *rows = batcher->rows;
    while (first < end) {
        int64_t agree, next = group_end(rows, first, end, at.probe, &agree);
        if (next == first + 1) {
            rows[first].from = at.from;
            rows[first].parent = at.parent;
            if (!grouped) kvf__batcher_add_leaf(batcher, &rows[first], at.from, at.parent);
        } else {
            tree_node below = at;
            below.probe = agree;
            int levels = MAX_LEVELS - batcher->rules.infix;
            if (at.level < levels && (agree - at.from) * (next - first - 1) >= MIN_SAVED) {
                below.parent = kvf__batcher_add(batcher, &rows[first], at.from, agree, at.parent);
                below.from = agree;
                below.level++;
                batcher->sizes.common_tokens += agree - at.from;
            }
            add_rows(batcher, first, next, grouped, below);
        }
        first = next;
    }
}

bool kvf__batcher_share(kvf__batcher *batcher, int64_t n, bool grouped)
{
    qsort(batcher->rows, (size_t)n, sizeof *batcher->rows, by_beginning);
    add_rows(batcher, 0, n, grouped, (tree_node){.parent = -1});
    for (int64_t r = 0; grouped && r < n; r++)
        kvf__batcher_add_leaf(batcher, &batcher->rows[r], batcher->rows[r].from,
                              batcher->rows[r].parent);
    if (batcher->sizes.common_tokens) {
        batcher->batch.parent = batcher->lists.parent;
        return true;
    }
    qsort(batcher->rows, (size_t)n, sizeof *batcher->rows, by_place);
    kvf__batcher_clear(batcher);
    return false;
}
