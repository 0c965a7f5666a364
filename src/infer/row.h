/* Rows that generate (row.c): the request of each, its running completion, and the batch in which
 * rows are fed and sampled. kvf_generate and the engine share them, so that both give the same
 * results. */
#ifndef KVF_ROW_H
#define KVF_ROW_H

#include "completion.h"
#include "prompt_cache.h"
#include "score.h"

/* Request of a row. Pointers are borrowed until the row ends. */
typedef struct kvf__row_request {
    const kvf_prefix *prefix; /* NULL: none */
    kvf__head *head;          /* head of the prefix (kvf__prefix_head); NULL: none */
    const int32_t *prompt;    /* [n] token ids; below 0: virtual tokens of the prefix */
    int64_t n;
    int64_t max_tokens;
    kvf__sampling sampling;
    uint64_t seed, stream; /* the random numbers are those of prompt `stream` of kvf_generate with
                            * this seed */
    const char *const *stop;
    size_t n_stop;
    const kvf__ends *ends;
    kvf__part_key origin; /* identifies prefix and owner for a cache of prompts */
    int64_t *cached; /* receives the number of prompt tokens taken from the cache; NULL: unknown */
    kvf__token_scores *scores; /* receives scores of the new tokens and of the end token, from the
                                * logits before penalties; NULL: not wanted */
    /* Called after every new token with n more bytes of text, possibly none, never cut inside a
     * character. new_tokens: total so far. A call with a finish is the last. NULL: not called. */
    void (*text)(void *user, const char *text, size_t n, int64_t new_tokens, kvf__finish finish);
    void *user;
} kvf__row_request;

typedef struct kvf__live_row {
    kvf__row_request request;
    kvf__rng rng;
    int32_t token;     /* last sampled token */
    kvf_status scored; /* ENOMEM if there was no memory for its score */
    kvf__completion completion;
} kvf__live_row;
/* Begins a row. Prompt and completion may have `longest` tokens, at least one more than the prompt.
 */
kvf__live_row kvf__row_begin(const kvf__row_request *request, int64_t longest);
/* Ends a row as KVF__FINISH_FAILED, and calls its callback. */
void kvf__row_fail(kvf__live_row *row);

/* Tokens that are fed together, with the row of each run of tokens. */
typedef struct kvf__row_batch {
    const kvf_base *base;
    int threads;
    kvf__tokens tokens; /* tokens.n = 0 empties the batch */
    kvf__live_row **rows;
    kvf__candidate *scratch; /* [threads, V] */
    int32_t *counts;         /* [threads, V] zeros, for penalties */
    float *penalized;        /* [threads, V] */
    int64_t most_rows, most_ids;
    void *memory; /* owner of the arrays */
} kvf__row_batch;
/* Allocates memory for this many rows and ids. The caller frees it, even after a failure. */
kvf_status kvf__row_batch_init(kvf_ctx *ctx, const kvf_base *base, int64_t rows, int64_t ids,
                               kvf__row_batch *out);
void kvf__row_batch_done(kvf__row_batch *batch);
void kvf__row_batch_add(kvf__row_batch *batch, kvf__live_row *row, int64_t slot, const int32_t *ids,
                        int64_t n);
/* Samples every row's next token from the logits of the fed tokens, and updates text and end. A row
 * without memory for its text, or with logits that are not finite (ENUMERIC), fails alone; the
 * status is that of the last failure. */
kvf_status kvf__row_batch_advance(kvf_ctx *ctx, const kvf__row_batch *batch, const float *logits);
/* Does the same for rows that were fed a token and a draft, with logits after each. Accepts tokens
 * as long as the sampled one equals the next fed one. kept [rows]: fed tokens to keep in the cache;
 * the rest was rejected. */
kvf_status kvf__row_batch_follow(kvf_ctx *ctx, const kvf__row_batch *batch, const float *logits,
                                 int64_t *kept);

/* Fails with ENUMERIC for the logits after this many tokens of an answer. */
kvf_status kvf__fail_logits(kvf_ctx *ctx, int64_t tokens);

#endif
