/* From the output of a head to scores: probabilities (scores.c), decisions (answers.c,
 * answers_span.c), metrics (measure.c). */
#ifndef KVF_ANSWERS_H
#define KVF_ANSWERS_H

#include "evaluator.h"
#include "metric_int.h"
#include <kvfold/train.h>

/* Probabilities of a data set's labels from a head, or their mean over several heads. Classes and
 * tags sum to 1 at each label. Choices sum to 1 over their question, and starts and ends of answers
 * each over all windows of their question. Classes of several tokens, with one row each, sum to 1
 * at one label of their group. For a regression these are the numbers themselves. */
typedef struct kvf__scores {
    const kvf__dataset *set;
    int64_t width;   /* outputs of the head; for classes of several tokens their number */
    int64_t outputs; /* total outputs of the head: floats in `logits` below */
    int64_t *first;  /* [rows + 1] first label of each row; for classes of several tokens [groups +
                      * 1] */
    double *p;       /* [n_labels, width] */
    float *sums;     /* [width] scratch for classes of several tokens */
} kvf__scores;
kvf_status kvf__scores_init(kvf_ctx *ctx, kvf__scores *scores, const kvf__dataset *set,
                            int64_t width);
void kvf__scores_done(kvf__scores *scores);
/* Adds share times the probabilities of the logits [n_labels, width]. */
void kvf__scores_add(kvf__scores *scores, const float *logits, double share);
/* Adds share to the likeliest alternative, the first one if equal. Not for qa or regression. */
void kvf__scores_vote(kvf__scores *scores, const float *logits, double share);
/* Returns the task's loss for the probabilities. */
double kvf__scores_loss(const kvf__scores *scores);

/* Rules for finding answers in scores (qa). */
enum { KVF__MOST_BEST = 64 }; /* largest n_best */
typedef struct kvf__answer_rules {
    bool no_answer;         /* questions without an answer are possible */
    double no_answer_above; /* threshold of the log odds of no answer against the best span */
    /* starts and ends to pair; longest answer in tokens; 0: defaults 20, 30 */
    int64_t n_best, max_tokens;
} kvf__answer_rules;

/* Decisions for the groups of a data set; texts are views into it, or in `owned`. */
typedef struct kvf__answers {
    const kvf__dataset *set;
    int64_t n;                /* number of groups */
    int32_t *gold, *best;     /* seq-cls, multiple-choice [n]; token-cls by words [start[n]] */
    double *numbers, *wanted; /* regression [n] */
    double *p;                /* probability of the decision: [n], token-cls [start[n]] */
    double *p_none;           /* qa [n]: probability of no answer */
    int64_t *start;           /* [n + 1] token-cls: words; qa: references */
    const char **gold_tags, **tags;       /* [start[n]] token-cls */
    const char **texts, **references;     /* qa [n], [start[n]] */
    int64_t *spans;                       /* qa [n, 2]: byte range in the context; -1: no answer */
    size_t *text_bytes, *reference_bytes; /* lengths of the texts, which may contain U+0000 */
    char *owned;                          /* memory of texts */
} kvf__answers;
/* Decides every group. ENUMERIC: the scores are not finite. */
kvf_status kvf__answers_init(kvf_ctx *ctx, kvf__answers *answers, const kvf__scores *scores,
                             const kvf__answer_rules *rules);
void kvf__answers_done(kvf__answers *answers);
/* Decides the spans of qa (answers_span.c). */
kvf_status kvf__answers_spans(kvf_ctx *ctx, kvf__answers *answers, const kvf__scores *scores,
                              const kvf__answer_rules *rules);

/* Computes every metric of the task; NaN if one does not apply. *n is at most KVF_MAX_SCORES. */
kvf_status kvf__measure(kvf_ctx *ctx, const kvf__answers *answers, double loss, kvf_metric *out,
                        size_t *n);
/* seq-cls and token-cls: measures each class, tag and entity type. The caller frees *out, even on
 * failure. */
kvf_status kvf__measure_each(kvf_ctx *ctx, const kvf__answers *answers, kvf_eval_result *out);
/* Evaluates and measures. */
kvf_status kvf__measure_subject(kvf_ctx *ctx, kvf__evaluator *evaluator, const kvf__dataset *set,
                                const kvf__subject *subject, const kvf__metric *metric,
                                double *loss, double *value);
/* Measures the score of always predicting one class or tag; for seq-cls and token-cls. */
kvf_status kvf__measure_constant(kvf_ctx *ctx, const kvf__dataset *set, int32_t answer,
                                 const kvf__metric *metric, double *value);
bool kvf__has_impossible(const kvf__dataset *set); /* qa: true if a question has no answer */

#endif
