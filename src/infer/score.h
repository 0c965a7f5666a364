/* Log-likelihoods of the tokens of rows with a base and a prefix (score.c), for kvf_score and the
 * server. Every row has a separate pass, so its bits do not depend on other rows. */
#ifndef KVF_SCORE_H
#define KVF_SCORE_H

#include "sample.h"
#include "session.h"

#include <kvfold/train.h>

typedef struct kvf__scorer_limits {
    int64_t tokens;  /* most tokens in a row, including virtual ones */
    int64_t P;       /* longest prefix */
    int64_t neurons; /* most virtual neurons */
    bool infix;      /* prefixes may be inside rows */
} kvf__scorer_limits;

/* Allocates memory for the passes; the base must outlive it. EUSAGE: the base does not predict the
 * next token. */
typedef struct kvf__scorer kvf__scorer;
kvf_status kvf__scorer_create(kvf_ctx *ctx, kvf_base *base, const kvf__scorer_limits *limits,
                              kvf__scorer **out);
void kvf__scorer_free(kvf__scorer *scorer);

/* A row of a causal language model. */
typedef struct kvf__score_row {
    const kvf_prefix *prefix; /* NULL: none */
    kvf__head *head;          /* head of the prefix (kvf__prefix_head); NULL: none */
    const int32_t *ids;       /* [n] token ids; below 0: virtual tokens of the prefix */
    const int32_t *labels;    /* [n] ids to score, KVF__NO_LABEL: none. The label of the first token
                               * is ignored: nothing predicts it */
    int64_t n;
    int64_t n_top; /* number of likeliest items at each label, at most V; 0: none */
} kvf__score_row;

/* Computes scores [labels of the row], in order, and top [labels, n_top] (NULL if n_top is 0): the
 * likeliest items at each label, descending, the lower id first if equal. Their `logit` is the
 * log-probability, equal to the score of a label among them. A prefix inside rows needs a prompt of
 * two tokens. ESHAPE: over the limits, or an id outside the vocabulary; ENUMERIC: a logit is not
 * finite. */
kvf_status kvf__score_row_run(kvf_ctx *ctx, kvf__scorer *scorer, const kvf__score_row *row,
                              kvf_token_score *scores, kvf__candidate *top);

/* Computes the same for one label from its logits [V]; false: they have no finite sum. */
bool kvf__score_logits(const float *logits, int64_t V, int32_t id, kvf_token_score *score,
                       kvf__candidate *top, int64_t n_top);
/* Collects scores of tokens; {.n_top = ...} is empty. A failed score has the log-probability NaN.
 */
typedef struct kvf__token_scores {
    int64_t n, cap, n_top;
    kvf_token_score *token; /* [n] */
    kvf__candidate *top;    /* [n, n_top] */
} kvf__token_scores;
kvf_status kvf__token_scores_reserve(kvf_ctx *ctx, kvf__token_scores *scores,
                                     int64_t n); /* total of n */
kvf_status kvf__token_scores_add(kvf_ctx *ctx, kvf__token_scores *scores, const float *logits,
                                 int64_t V, int32_t id);
void kvf__token_scores_done(kvf__token_scores *scores);

#endif
