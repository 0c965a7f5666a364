/* Log-likelihoods of the tokens of rows under a base and a prefix (score.c): what kvf_score writes,
 * and the server for a row of its own. Every row takes a pass of its own, so its bits do not depend
 * on other rows. */
#ifndef KVF_SCORE_H
#define KVF_SCORE_H

#include "sample.h"
#include "session.h"

#include <kvfold/train.h>

typedef struct kvf__scorer_limits {
    int64_t tokens; /* most in a row, virtual ones counted */
    int64_t P;      /* longest prefix */
    bool infix;     /* prefixes may be inside rows */
} kvf__scorer_limits;

/* Memory for the passes; base must outlive it. EUSAGE: the base predicts no next token. */
typedef struct kvf__scorer kvf__scorer;
kvf_status kvf__scorer_create(kvf_ctx *ctx, kvf_base *base, const kvf__scorer_limits *limits,
                              kvf__scorer **out);
void kvf__scorer_free(kvf__scorer *scorer);

/* A row, of a causal language model. */
typedef struct kvf__score_row {
    const kvf_prefix *prefix; /* NULL: none */
    kvf__head *head;          /* of the prefix (kvf__prefix_head), NULL: it has none */
    const int32_t *ids;       /* [n]; below 0: the prefix's virtual tokens */
    const int32_t *labels;    /* [n] ids to score, KVF__NO_LABEL: none. That of the first token is
                                 not read: nothing predicts it */
    int64_t n;
    int64_t n_top; /* likeliest items wanted at each label, at most V; 0: none */
} kvf__score_row;

/* scores [labels of the row], in order; top [labels, n_top] (NULL where n_top is 0): the likeliest
 * items at each, descending, of equal ones the lower id first, `logit` being the log-probability:
 * that of a label among them is equal to its score. A prefix inside rows needs a prompt of two
 * tokens. ESHAPE: over the limits, or an id outside the vocabulary; ENUMERIC: a logit is not
 * finite.
 */
kvf_status kvf__score_row_run(kvf_ctx *ctx, kvf__scorer *scorer, const kvf__score_row *row,
                              kvf_token_score *scores, kvf__candidate *top);

/* The same of one label from its logits [V]; false: they have no finite sum. */
bool kvf__score_logits(const float *logits, int64_t V, int32_t id, kvf_token_score *score,
                       kvf__candidate *top, int64_t n_top);
/* Scores of tokens as they come; {.n_top = ...} is empty. What could not be scored has the
 * log-probability NaN. */
typedef struct kvf__token_scores {
    int64_t n, cap, n_top;
    kvf_token_score *token; /* [n] */
    kvf__candidate *top;    /* [n, n_top] */
} kvf__token_scores;
kvf_status kvf__token_scores_reserve(kvf_ctx *ctx, kvf__token_scores *scores,
                                     int64_t n); /* n in all */
kvf_status kvf__token_scores_add(kvf_ctx *ctx, kvf__token_scores *scores, const float *logits,
                                 int64_t V, int32_t id);
void kvf__token_scores_done(kvf__token_scores *scores);

#endif
