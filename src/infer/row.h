/* Rows that generate (row.c): what each is asked for, its completion on its way, and the batch in
 * which rows are fed and draw their next tokens. kvf_generate and the engine share them, so that
 * both draw, end and cut alike. */
#ifndef KVF_ROW_H
#define KVF_ROW_H

#include "completion.h"
#include "score.h"

/* What a row is asked for. Pointers are borrowed until the row ends. */
typedef struct kvf__row_request {
    const kvf_prefix *prefix; /* NULL: none */
    kvf__head *head;          /* of the prefix (kvf__prefix_head), NULL: it has none */
    const int32_t *prompt;    /* [n]; ids below 0: the prefix's virtual tokens */
    int64_t n;
    int64_t max_tokens;
    kvf__sampling sampling;
    uint64_t seed, stream; /* the row's random numbers are those of prompt `stream` of a
                              kvf_generate with this seed */
    const char *const *stop;
    size_t n_stop;
    const kvf__ends *ends;
    kvf__token_scores *scores; /* get those of the row's new tokens and of the end token that it was
                                  ended by, from the logits before penalties; NULL: not wanted */
    /* Called after every new token with n more bytes of text, perhaps none, never cut inside a
     * character. new_tokens: so far. A call with a finish is the last. NULL: not called. */
    void (*text)(void *user, const char *text, size_t n, int64_t new_tokens, kvf__finish finish);
    void *user;
} kvf__row_request;

typedef struct kvf__live_row {
    kvf__row_request request;
    kvf__rng rng;
    int32_t token;     /* drawn last */
    kvf_status scored; /* no memory for its score */
    kvf__completion completion;
} kvf__live_row;
/* Prompt and completion may have `longest` tokens, at least one more than the prompt. */
kvf__live_row kvf__row_begin(const kvf__row_request *request, int64_t longest);
/* The row ends as KVF__FINISH_FAILED, and its callback hears so. */
void kvf__row_fail(kvf__live_row *row);

/* Tokens that are fed at once, and the row of each run of them. */
typedef struct kvf__row_batch {
    const kvf_base *base;
    int threads;
    kvf__tokens tokens; /* tokens.n = 0 empties the batch */
    kvf__live_row **rows;
    kvf__candidate *scratch; /* [threads, V] */
    int32_t *counts;         /* [threads, V] zeros, for penalties */
    float *penalized;        /* [threads, V] */
    int64_t most_rows, most_ids;
    void *memory; /* of the arrays */
} kvf__row_batch;
/* Memory for so many rows and ids; done after a failure too. */
kvf_status kvf__row_batch_init(kvf_ctx *ctx, const kvf_base *base, int64_t rows, int64_t ids,
                               kvf__row_batch *out);
void kvf__row_batch_done(kvf__row_batch *batch);
void kvf__row_batch_add(kvf__row_batch *batch, kvf__live_row *row, int64_t slot, const int32_t *ids,
                        int64_t n);
/* From the logits of what was fed: every row's next token, its text, whether it ends. A row without
 * memory for its text, or with logits that are not finite (ENUMERIC), fails alone, and the status
 * is that of the last one that did. */
kvf_status kvf__row_batch_advance(kvf_ctx *ctx, const kvf__row_batch *batch, const float *logits);
/* The same where each row was fed its token and a draft of what may follow, from logits after each
 * of these: draws for as long as what is drawn is what was fed next. kept [rows]: how many of its
 * tokens the row goes on from; the rest was no part of it. */
kvf_status kvf__row_batch_follow(kvf_ctx *ctx, const kvf__row_batch *batch, const float *logits,
                                 int64_t *kept);

/* ENUMERIC about the logits after so many tokens of an answer. */
kvf_status kvf__fail_logits(kvf_ctx *ctx, int64_t tokens);

#endif
