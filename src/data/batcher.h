/* Packs examples into batches (batcher.c, common_prefix.c), and joins batches of several runs into
 * one (stacked_batch.c). */
#ifndef KVF_BATCHER_H
#define KVF_BATCHER_H

#include "batch.h"
#include "dataset.h"

/* Rules for packing rows. On a causal base, tokens after a row's last label are left out, with
 * equal results. With `share`, tokens that begin several rows are computed once, as common
 * prefixes. */
typedef struct kvf__batch_rules {
    bool causal, share;
    bool source; /* encoder-decoder: the tokens before the first predicting position go to
                    batch.source; of a row to classify, its first half. Nothing is shared */
    bool infix;  /* causal lm only: the prefix lies before the first predicting position. The tokens
                    in front become a common prefix of their row, and the batch has infix_at */
} kvf__batch_rules;

/* Sizes of a batch, or maxima over several batches. */
typedef struct kvf__batch_sizes {
    int64_t rows, tokens, labels;
    int64_t row_len;                   /* longest row, without its shared tokens */
    int64_t common_len;                /* longest path of common prefixes before a row */
    int64_t common_tokens;             /* tokens in all common prefixes of a batch */
    int64_t source_tokens, source_len; /* tokens of the encoder, and its longest row */
} kvf__batch_sizes;
/* Raises every field of *sizes to at least that of *by. */
void kvf__batch_sizes_raise(kvf__batch_sizes *sizes, const kvf__batch_sizes *by);

/* Writable memory for the lists of one kvf__batch. */
typedef struct kvf__batch_lists {
    kvf__batch_sizes most;
    int64_t *start, *example;
    int32_t *ids, *label_at, *label_id, *parent, *types, *spans, *infix_at;
    float *values;
    void *memory; /* the block that holds all lists */
} kvf__batch_lists;
kvf_status kvf__batch_lists_init(kvf_ctx *ctx, kvf__batch_lists *lists, int64_t rows,
                                 int64_t tokens, int64_t labels);
/* Returns an empty batch over the lists, without those that only some batches have. */
kvf__batch kvf__batch_begin(kvf__batch_lists *lists);

/* Reusable memory for one packed batch; fill allocates nothing. */
typedef struct kvf__batcher {
    kvf__batch batch;
    kvf__batch_sizes sizes; /* of the batch */
    kvf__batch_rules rules;
    kvf__batch_lists lists;
    kvf__batch source; /* encoder side of the batch, with rules.source */
    kvf__batch_lists source_lists;
    struct kvf__batch_row *rows; /* [examples] rows of the step while they are packed */
} kvf__batcher;
/* Allocates memory for batches of at most so many examples, tokens and labels. */
kvf_status kvf__batcher_init(kvf_ctx *ctx, kvf__batcher *batcher, kvf__batch_rules rules,
                             int64_t examples, int64_t tokens, int64_t labels);
void kvf__batcher_done(kvf__batcher *batcher);
/* Packs the listed rows into batcher->batch: in order, or sorted by common prefix if sharing saves
 * tokens. On causal bases rows without a label are left out. Rows of a group must be listed one
 * after the other, and keep this order; common prefixes may come between them. batch.example is
 * then the index of the group. */
void kvf__batcher_fill(kvf__batcher *batcher, const kvf__dataset *dataset, const int64_t *examples,
                       int64_t n);

/* Batches of several runs, concatenated into one. Only kvf__stacked_init() allocates memory. */
typedef struct kvf__stacked_batch {
    kvf__batch batch; /* without values, spans and infix_at */
    kvf__batch_lists lists;
    kvf__batch source; /* encoder side, if the parts have one */
    kvf__batch_lists source_lists;
} kvf__stacked_batch;
kvf_status kvf__stacked_init(kvf_ctx *ctx, kvf__stacked_batch *out, int64_t rows, int64_t tokens,
                             int64_t labels, int64_t source_tokens);
void kvf__stacked_done(kvf__stacked_batch *stacked);
void kvf__stacked_clear(kvf__stacked_batch *stacked);
void kvf__stacked_add(kvf__stacked_batch *stacked, const kvf__batch *part);

#endif
