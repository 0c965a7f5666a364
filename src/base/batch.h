/* The batch: what data hands to the model. Rows back to back, no padding, and the targets of the
 * task. */
#ifndef KVF_BATCH_H
#define KVF_BATCH_H

#include <stdint.h>

/* R rows of together N tokens, row r being tokens start[r] .. start[r+1]-1 of the packed list.
 * Label j: the hidden state of packed token label_at[j] should predict id label_id[j] (already
 * shifted: label_at is the position before the labelled token). Labels ascend in label_at; a row
 * without labels is legal. `example[r]` is the row's index in the data set. All arrays belong to
 * whoever filled them.
 *
 * The tasks other than lm use labels for the positions that the head reads (label_at is then the
 * position itself): seq-cls one per row with its class; token-cls one per word; qa every token the
 * answer may begin or end at, id 0; multiple-choice one per row, id 1 for the right choice, else 0.
 * Rows with equal `example`, then the index of their group, follow each other and belong together:
 * the choices of one question, the windows of one context; common prefixes come before all of them.
 *
 * Rows may share how they begin: a row with parent[r] = p >= 0 continues row p (p < r), which holds
 * the tokens they have in common and is computed once: a common prefix. Such a row's first token
 * follows all tokens of its parents, and sees them.
 *
 * The prefix precedes every row, unless infix_at puts it inside: a row with infix_at[r] >= 0 has so
 * many tokens before the prefix (those of its common prefixes, or of its cache); its own tokens
 * come after it, P positions further on, and see it. A row with -1 ends before it and does not see
 * it. */
typedef struct kvf__batch {
    int64_t n_rows, n_tokens, n_labels;
    const int64_t *start;    /* [R + 1], start[0] = 0 */
    const int32_t *ids;      /* [N] */
    const int32_t *label_at; /* [n_labels] */
    const int32_t *label_id; /* [n_labels] */
    const int64_t *example;  /* [R]; -1 for common prefixes */
    const int32_t *parent;   /* [R], -1: none; NULL: no row has one */
    const int32_t *types;    /* [N] token types (segments A, B); NULL: all 0 */
    const int32_t *infix_at; /* [R]; NULL: the prefix leads */
    const float *values;     /* [R] targets of a regression; NULL: there are none */
    const struct kvf__batch
        *source;          /* of an encoder-decoder, whose decoder has this batch: what its
                             encoder reads, the same rows, without labels; NULL: none */
    const int32_t *spans; /* [R, 2] first and last token of the answer, counted from start[r]
                             (common    prefixes not counted), -1: not given; NULL: none */
} kvf__batch;

#endif
