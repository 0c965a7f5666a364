/* The batch that data passes to the model: rows back to back without padding, and the targets of
 * the task. */
#ifndef KVF_BATCH_H
#define KVF_BATCH_H

#include <stdint.h>

/* R rows with N tokens in total; row r is tokens start[r] .. start[r+1]-1 of the packed list. Label
 * j: the hidden state of packed token label_at[j] should predict id label_id[j]. Labels are already
 * shifted: label_at is the position before the labelled token. label_at ascends, and a row may have
 * no labels. `example[r]` is the row's index in the data set. All arrays are owned by the code that
 * filled them.
 *
 * Tasks other than lm use labels for the positions that the head reads, and label_at is then the
 * position itself. seq-cls: one per row, with its class. token-cls: one per word. qa: every token
 * that may begin or end the answer, id 0. multiple-choice: one per row, id 1 for the right choice,
 * else 0. Rows with equal `example`, then the index of their group, are adjacent and belong
 * together: choices of a question, or windows of a context. Common prefixes come before all of
 * them.
 *
 * Rows may share their beginning. A row with parent[r] = p >= 0 continues row p (p < r), a common
 * prefix that holds the shared tokens and is computed once. The first token of such a row follows
 * all tokens of its parents, and attends to them.
 *
 * The prefix precedes every row, unless infix_at puts it inside. A row with infix_at[r] >= 0 has
 * that many tokens before the prefix (those of its common prefixes, or of its cache). Its own
 * tokens come after the prefix, P positions later, and attend to it. A row with -1 ends before the
 * prefix and does not attend to it. */
typedef struct kvf__batch {
    int64_t n_rows, n_tokens, n_labels;
    const int64_t *start;    /* [R + 1], start[0] = 0 */
    const int32_t *ids;      /* [N] */
    const int32_t *label_at; /* [n_labels] */
    const int32_t *label_id; /* [n_labels] */
    const int64_t *example;  /* [R] index in the data set; -1 for common prefixes */
    const int32_t *parent;   /* [R] row of the common prefix, -1: none; NULL: no row has one */
    const int32_t *types;    /* [N] token types (segments A, B); NULL: all 0 */
    const int32_t *infix_at; /* [R]; NULL: the prefix leads */
    const float *values;     /* [R] targets of a regression; NULL: none */
    const struct kvf__batch *source; /* encoder-decoder: the encoder's input for these rows, without
                                        labels; NULL: none */
    const int32_t *spans; /* [R, 2] first and last token of the answer, counted from start[r]
                             (without common prefixes), -1: not given; NULL: none */
} kvf__batch;

/* Returns the common prefix of row r, -1: none. */
static inline int32_t kvf__batch_parent(const kvf__batch *batch, int64_t r)
{
    return batch->parent ? batch->parent[r] : -1;
}

#endif
