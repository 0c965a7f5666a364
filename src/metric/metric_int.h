/* Metrics: how good predictions are. Plain arrays and strings in, doubles out; no model, no file.
 *
 * Each agrees with the library that the field quotes, in value, unit and odd cases: scikit-learn
 * (classes), scipy (correlations), seqeval (entities), the official SQuAD scripts (answers),
 * sacrebleu and rouge_score (texts). SQuAD and BLEU are therefore percentages, all others
 * fractions; a score that is undefined there is NaN here. What the reference refuses is EDATA, with
 * one line.
 *
 * Two ways in: the functions below, which report everything a metric knows, and the table of rows
 * at the end, one number each, which --json, the best checkpoint and early stopping go through. */
#ifndef KVF_METRIC_INT_H
#define KVF_METRIC_INT_H

#include "base_int.h"
#include "task.h"

/* Precision, recall, F1; 0 where a denominator is 0. support: of the gold side. */
typedef struct kvf__prf {
    double precision, recall, f1;
    int64_t support;
} kvf__prf;

/* ---- classes: scikit-learn ------------------------------------------------------------------- */

typedef struct kvf__class_scores {
    double accuracy;
    kvf__prf micro; /* of one label per example: all three equal the accuracy */
    kvf__prf macro; /* mean over the classes that occur in gold or predicted */
    double mcc;     /* Matthews; 0 where either side has one class only */
} kvf__class_scores;

/* gold, predicted [n] in 0..labels-1. per_class [labels] may be NULL. EDATA: n = 0. */
kvf_status kvf__classify(kvf_ctx *ctx, const int32_t *gold, const int32_t *predicted, int64_t n,
                         int32_t labels, kvf__prf *per_class, kvf__class_scores *out);

/* ---- numbers: scipy -------------------------------------------------------------------------- */

/* Correlation of gold and predicted [n]; NaN where one side is constant or not finite. Spearman
 * takes ties at their mean rank. EDATA: n < 2. */
kvf_status kvf__pearson(kvf_ctx *ctx, const double *gold, const double *predicted, int64_t n,
                        double *out);
kvf_status kvf__spearman(kvf_ctx *ctx, const double *gold, const double *predicted, int64_t n,
                         double *out);

/* ---- entities: seqeval ----------------------------------------------------------------------- */

/* MIXED: seqeval's default, the conlleval rules, which read any tags ("I-X" after "O" opens an
 * entity). The others are mode='strict' with that scheme; AUTO is strict with the scheme that the
 * gold tags show (IOB2, IOE2, IOBES, BILOU). */
typedef enum kvf__tag_scheme {
    KVF__TAGS_MIXED,
    KVF__TAGS_AUTO,
    KVF__TAGS_IOB1,
    KVF__TAGS_IOB2,
    KVF__TAGS_IOE1,
    KVF__TAGS_IOE2,
    KVF__TAGS_IOBES,
    KVF__TAGS_BILOU
} kvf__tag_scheme;

/* Words of all sentences in a row: sentence i has tags start[i] .. start[i + 1] - 1. Tags are "O",
 * "B-LOC", "B" (the type is then "_"), ... */
typedef struct kvf__tag_rows {
    int64_t n;            /* sentences */
    const int64_t *start; /* [n + 1] */
    const char *const *gold, *const *predicted;
} kvf__tag_rows;

typedef struct kvf__entity_type {
    char *name;
    kvf__prf scores;
    int64_t predicted, correct; /* entities; support counts the gold ones */
} kvf__entity_type;

typedef struct kvf__entity_scores {
    double accuracy; /* of tags */
    kvf__prf micro;
    kvf__prf macro;          /* mean over the types; NaN where there are none */
    size_t n_types;          /* found in gold or predicted */
    kvf__entity_type *types; /* sorted by name */
} kvf__entity_scores;

/* EDATA: no sentence; an empty tag; strict: a tag that the scheme does not have. */
kvf_status kvf__entities(kvf_ctx *ctx, const kvf__tag_rows *rows, kvf__tag_scheme scheme,
                         kvf__entity_scores *out);
void kvf__entity_scores_done(kvf__entity_scores *scores); /* {0} is fine */

/* "O", "B-LOC", "S": of such tags entities are made, unlike "NOUN". */
bool kvf__tag_has_scheme(const char *tag);

/* One entity of a sentence: words first..last; its type lies in a tag. */
typedef struct kvf__tag_span {
    const char *type;
    size_t type_bytes;
    int64_t first, last;
} kvf__tag_span;
/* Where the reading of a sentence is, by the mixed rule; {0} at first. */
typedef struct kvf__tag_scan {
    int64_t at, first; /* next word; where the present entity started */
    const char *type;
    size_t type_bytes;
    char prefix;
} kvf__tag_scan;
/* The next entity of a sentence of n tags, of which NULL is outside; false: there is none. */
bool kvf__tag_span_next(kvf__tag_scan *scan, const char *const *tags, int64_t n,
                        kvf__tag_span *out);

/* ---- answers and texts ----------------------------------------------------------------------- */

/* One predicted text per example, any number of references: those of example i are
 * references[start[i]] .. references[start[i + 1] - 1]. UTF-8. */
typedef struct kvf__text_rows {
    int64_t n;
    const char *const *predicted; /* [n] */
    const int64_t *start;         /* [n + 1] into references */
    const char *const *references;
    /* Of the texts, which may then hold U+0000; NULL: they end at their first. */
    const size_t *predicted_bytes, *reference_bytes;
} kvf__text_rows;

/* Percentages. The part over questions with (without) an answer is NaN where there are none. */
typedef struct kvf__squad_scores {
    double exact, f1;
    double has_exact, has_f1, none_exact, none_f1;
    int64_t has, none; /* questions */
} kvf__squad_scores;

/* no_answers: the rules of SQuAD 2.0, where a question without references is answered by "" and two
 * empty answers have F1 1. Without: those of 1.1, where such a question is EDATA and F1 of empty
 * answers is 0. EDATA: n = 0. */
kvf_status kvf__squad(kvf_ctx *ctx, const kvf__text_rows *rows, bool no_answers,
                      kvf__squad_scores *out);

/* sacrebleu's default: 13a tokenizer, case kept, orders 1 to 4, exponential smoothing. */
typedef struct kvf__bleu_scores {
    double score; /* 0..100 */
    double precisions[4], brevity_penalty;
    int64_t correct[4], total[4], predicted_length, reference_length;
} kvf__bleu_scores;

/* Of the corpus, not a mean over examples. EDATA: n = 0, an example without reference. */
kvf_status kvf__bleu(kvf_ctx *ctx, const kvf__text_rows *rows, kvf__bleu_scores *out);

/* rouge_score's "rougeL" without stemmer, fractions: for each example the reference of the best F1,
 * then the mean over examples. support is n. EDATA: n = 0, an example without reference. */
kvf_status kvf__rouge_l(kvf_ctx *ctx, const kvf__text_rows *rows, kvf__prf *out);

/* ---- the table ------------------------------------------------------------------------------- */

/* What a row reads; the caller fills what belongs to its task. */
typedef struct kvf__metric_input {
    double loss; /* mean per label */
    struct {     /* seq-cls with classes, multiple-choice */
        const int32_t *gold, *predicted;
        int64_t n;
        int32_t labels;
    } classes;
    struct { /* seq-cls as regression */
        const double *gold, *predicted;
        int64_t n;
    } numbers;
    kvf__tag_rows tags;     /* token-cls */
    kvf__tag_scheme scheme; /* of f1_strict, which is NaN where tags are not of it; MIXED: AUTO */
    kvf__text_rows texts;   /* qa, lm */
    bool no_answers;        /* qa: the data has questions without an answer */
} kvf__metric_input;

union kvf__metric_family;
typedef struct kvf__metric {
    const char *name; /* as in --json: "accuracy", "f1", "exact_match", ... */
    kvf__task task;
    bool regression; /* seq-cls: the row is for numbers, not for classes */
    bool larger;     /* is better */
    /* Scores that are computed together, and which of them this is. */
    kvf_status (*family)(kvf_ctx *ctx, const kvf__metric_input *input,
                         union kvf__metric_family *out);
    size_t number;
} kvf__metric;

kvf_status kvf__metric_score(kvf_ctx *ctx, const kvf__metric *metric,
                             const kvf__metric_input *input, double *out);

/* All rows, grouped by task. The first row of a task (and kind) is what a run selects its best
 * checkpoint by unless another is asked for. */
const kvf__metric *kvf__metric_table(size_t *n);
/* NULL: the task has no metric of that name. name NULL: the task's first row. */
const kvf__metric *kvf__metric_find(kvf__task task, bool regression, const char *name);

#endif
