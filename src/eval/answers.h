/* From what a head computes to scores: probabilities (scores.c), decisions (answers.c,
 * answers_span.c), metrics (measure.c). */
#ifndef KVF_ANSWERS_H
#define KVF_ANSWERS_H

#include "evaluator.h"
#include "metric_int.h"
#include <kvfold/train.h>

/* Probabilities of a data set's labels by a head, or their mean over several heads. Classes and
 * tags share 1 at each label (classes of several tokens, of which every row has one, share it at
 * one label for their group); choices share it over their question; starts and ends of answers each
 * over all windows of their question. Of a regression: the numbers themselves. */
typedef struct kvf__scores {
    const kvf__dataset *set;
    int64_t width;   /* outputs of the head; of classes of several tokens these */
    int64_t outputs; /* of the head in all: floats of `logits` below */
    int64_t *first;  /* [rows + 1] first label of each row; of such classes [groups + 1] */
    double *p;       /* [n_labels, width] */
    float *sums;     /* scratch [width] of such classes */
} kvf__scores;
kvf_status kvf__scores_init(kvf_ctx *ctx, kvf__scores *scores, const kvf__dataset *set,
                            int64_t width);
void kvf__scores_done(kvf__scores *scores);
/* Adds share times the probabilities of the logits [n_labels, width]. */
void kvf__scores_add(kvf__scores *scores, const float *logits, double share);
/* Adds share to the likeliest of what competes, the first of equal ones. Not of qa or regression.
 */
void kvf__scores_vote(kvf__scores *scores, const float *logits, double share);
/* The task's loss of the probabilities. */
double kvf__scores_loss(const kvf__scores *scores);

/* How answers are found in scores: qa. */
enum { KVF__MOST_BEST = 64 }; /* n_best */
typedef struct kvf__answer_rules {
    bool no_answer;         /* a question may have none */
    double no_answer_above; /* none, if its log odds against the best span are above */
    int64_t n_best,
        max_tokens; /* starts and ends that are paired; tokens of an answer; 0: 20, 30 */
} kvf__answer_rules;

/* What a head decided, by groups of the data set; texts are views into it, or `owned`. */
typedef struct kvf__answers {
    const kvf__dataset *set;
    int64_t n;                /* groups */
    int32_t *gold, *best;     /* seq-cls, multiple-choice [n]; token-cls by words [start[n]] */
    double *numbers, *wanted; /* regression [n] */
    double *p;                /* of what was decided: [n], token-cls [start[n]] */
    double *p_none;           /* qa [n]: of no answer */
    int64_t *start;           /* [n + 1] token-cls: words; qa: references */
    const char **gold_tags, **tags;       /* [start[n]] token-cls */
    const char **texts, **references;     /* qa [n], [start[n]] */
    int64_t *spans;                       /* qa [n, 2]: bytes of the context; -1: no answer */
    size_t *text_bytes, *reference_bytes; /* of them, as they may hold U+0000 */
    char *owned;                          /* memory of texts */
} kvf__answers;
/* ENUMERIC: the scores hold numbers that are not finite. */
kvf_status kvf__answers_init(kvf_ctx *ctx, kvf__answers *answers, const kvf__scores *scores,
                             const kvf__answer_rules *rules);
void kvf__answers_done(kvf__answers *answers);
/* The part of qa (answers_span.c). */
kvf_status kvf__answers_spans(kvf_ctx *ctx, kvf__answers *answers, const kvf__scores *scores,
                              const kvf__answer_rules *rules);

/* Every metric of the task; one that does not apply is NaN. *n of at most KVF_MAX_SCORES. */
kvf_status kvf__measure(kvf_ctx *ctx, const kvf__answers *answers, double loss, kvf_metric *out,
                        size_t *n);
/* Of seq-cls and token-cls each class, tag and entity type. On failure *out is still to be freed.
 */
kvf_status kvf__measure_each(kvf_ctx *ctx, const kvf__answers *answers, kvf_eval_result *out);
/* Evaluates and measures. */
kvf_status kvf__measure_subject(kvf_ctx *ctx, kvf__evaluator *evaluator, const kvf__dataset *set,
                                const kvf__subject *subject, const kvf__metric *metric,
                                double *loss, double *value);
/* What always giving one class, or one tag, scores; of seq-cls and token-cls. */
kvf_status kvf__measure_constant(kvf_ctx *ctx, const kvf__dataset *set, int32_t answer,
                                 const kvf__metric *metric, double *value);
bool kvf__has_impossible(const kvf__dataset *set); /* qa: a question without an answer */

#endif
