/* Examples to packed batches (batcher.c, common_prefix.c), and batches of several runs as one
 * (stacked_batch.c). */
#ifndef KVF_BATCHER_H
#define KVF_BATCHER_H

#include "batch.h"
#include "dataset.h"

/* What a causal base allows to leave out, with equal results: nothing after a row's last label is
 * computed, and (share) tokens with which several rows begin are computed once, as common prefixes.
 */
typedef struct kvf__batch_rules {
    bool causal, share;
    bool source; /* an encoder-decoder: tokens before the first position that predicts a label are
                    the encoder's, in batch.source, of a row to classify its first half; nothing is
                    shared */
    bool infix;  /* the prefix comes before the first position that predicts a label: the tokens in
                    front become a common prefix of their row, and the batch has infix_at; causal lm
                    only */
} kvf__batch_rules;

/* Sizes of batches, or their maxima over several. */
typedef struct kvf__batch_sizes {
    int64_t rows, tokens, labels;
    int64_t row_len;                   /* longest row, without what it shares */
    int64_t common_len;                /* longest path of common prefixes before a row */
    int64_t common_tokens;             /* in all common prefixes of a batch */
    int64_t source_tokens, source_len; /* of the encoder, and the longest row */
} kvf__batch_sizes;
/* Raises each of *sizes to that of the batch. */
void kvf__batch_sizes_raise(kvf__batch_sizes *sizes, const kvf__batch_sizes *by);

/* The lists of a batch, to be written: those of kvf__batch for so many rows, tokens and labels. */
typedef struct kvf__batch_lists {
    kvf__batch_sizes most;
    int64_t *start, *example;
    int32_t *ids, *label_at, *label_id, *parent, *types, *spans, *infix_at;
    float *values;
    void *memory; /* all of them */
} kvf__batch_lists;
kvf_status kvf__batch_lists_init(kvf_ctx *ctx, kvf__batch_lists *lists, int64_t rows,
                                 int64_t tokens, int64_t labels);
/* An empty batch over them, without the lists that only some batches have. */
kvf__batch kvf__batch_begin(kvf__batch_lists *lists);

/* Reusable memory for one packed batch; fill allocates nothing. */
typedef struct kvf__batcher {
    kvf__batch batch;
    kvf__batch_sizes sizes; /* of the batch */
    kvf__batch_rules rules;
    kvf__batch_lists lists;
    kvf__batch source; /* of the batch, where the rules ask for it */
    kvf__batch_lists source_lists;
    struct kvf__batch_row *rows; /* [most rows] the examples while they are packed */
} kvf__batcher;
/* For batches of at most so many examples, tokens and labels. */
kvf_status kvf__batcher_init(kvf_ctx *ctx, kvf__batcher *batcher, kvf__batch_rules rules,
                             int64_t examples, int64_t tokens, int64_t labels);
void kvf__batcher_done(kvf__batcher *batcher);
/* Packs the listed rows into batcher->batch: in order, or by common beginnings where sharing saves
 * tokens. On causal bases rows without a label are left out. Rows of a group must be listed one
 * after the other, and stay so (common prefixes may come between them); batch.example is then the
 * group. */
void kvf__batcher_fill(kvf__batcher *batcher, const kvf__dataset *dataset, const int64_t *examples,
                       int64_t n);

/* Batches of several runs back to back, as one; nothing is allocated after init. */
typedef struct kvf__stacked_batch {
    kvf__batch batch; /* without values, spans and infix_at */
    kvf__batch_lists lists;
    kvf__batch source; /* where the first part has one */
    kvf__batch_lists source_lists;
} kvf__stacked_batch;
kvf_status kvf__stacked_init(kvf_ctx *ctx, kvf__stacked_batch *out, int64_t rows, int64_t tokens,
                             int64_t labels, int64_t source_tokens);
void kvf__stacked_done(kvf__stacked_batch *stacked);
void kvf__stacked_clear(kvf__stacked_batch *stacked);
void kvf__stacked_add(kvf__stacked_batch *stacked, const kvf__batch *part);

#endif
