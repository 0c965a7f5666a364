/* Metrics of predictions: plain arrays and strings in, doubles out, without models or files.
 *
 * Each agrees in value, unit and special cases with the usual reference: scikit-learn (classes),
 * scipy (correlations), seqeval (entities), the official SQuAD scripts (answers), sacrebleu and
 * rouge_score (texts). So SQuAD and BLEU are percentages, all others fractions; a score that is
 * undefined there is NaN here. Input that the reference refuses is EDATA, with one line.
 *
 * There are two interfaces: the functions below, which report everything, and the table at the end
 * with one number per row, used by --json, the best checkpoint and early stopping. */
#ifndef KVF_METRIC_INT_H
#define KVF_METRIC_INT_H

#include "base_int.h"
#include "task.h"

/* Precision, recall, F1; 0 where a denominator is 0. support: number of gold items. */
typedef struct kvf__prf {
    double precision, recall, f1;
    int64_t support;
} kvf__prf;

/* ---- classes: scikit-learn ------------------------------------------------------------------- */

typedef struct kvf__class_scores {
    double accuracy;
    kvf__prf micro; /* with one label per example all three equal the accuracy */
    kvf__prf macro; /* mean over the classes that occur in gold or predicted */
    double mcc;     /* Matthews; 0 if either side has one class only */
} kvf__class_scores;

/* gold, predicted [n] in 0..labels-1. per_class [labels] may be NULL. EDATA: n = 0. */
kvf_status kvf__classify(kvf_ctx *ctx, const int32_t *gold, const int32_t *predicted, int64_t n,
                         int32_t labels, kvf__prf *per_class, kvf__class_scores *out);

/* ---- numbers: scipy -------------------------------------------------------------------------- */

/* Compute the correlation of gold and predicted [n]; NaN if one side is constant or not finite.
 * Spearman uses the mean rank for ties. EDATA: n < 2. */
kvf_status kvf__pearson(kvf_ctx *ctx, const double *gold, const double *predicted, int64_t n,
                        double *out);
kvf_status kvf__spearman(kvf_ctx *ctx, const double *gold, const double *predicted, int64_t n,
                         double *out);

/* ---- entities: seqeval ----------------------------------------------------------------------- */

/* MIXED: seqeval's default, the conlleval rules, which accept any tags ("I-X" after "O" begins an
 * entity). The others are mode='strict' with that scheme; AUTO is strict with the scheme of the
 * gold tags (IOB2, IOE2, IOBES, BILOU). */
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

/* Tags of all sentences: sentence i has tags start[i] .. start[i + 1] - 1. Tags are "O", "B-LOC",
 * "B" (of type "_"), ... */
typedef struct kvf__tag_rows {
    int64_t n;            /* sentences */
    const int64_t *start; /* [n + 1] */
    const char *const *gold, *const *predicted;
} kvf__tag_rows;

typedef struct kvf__entity_type {
    char *name;
    kvf__prf scores;
    int64_t predicted, correct; /* numbers of entities; support counts the gold ones */
} kvf__entity_type;

typedef struct kvf__entity_scores {
    double accuracy; /* accuracy of tags */
    kvf__prf micro;
    kvf__prf macro;          /* mean over the types; NaN without types */
    size_t n_types;          /* types found in gold or predicted */
    kvf__entity_type *types; /* sorted by name */
} kvf__entity_scores;

/* EDATA: no sentence; an empty tag; strict: a tag outside the scheme. */
kvf_status kvf__entities(kvf_ctx *ctx, const kvf__tag_rows *rows, kvf__tag_scheme scheme,
                         kvf__entity_scores *out);
void kvf__entity_scores_done(kvf__entity_scores *scores); /* {0} is allowed */

/* Returns whether a tag has a scheme, such as "O", "B-LOC" and "S", unlike "NOUN". */
bool kvf__tag_has_scheme(const char *tag);

/* An entity in a sentence: words first..last; its type is a part of a tag. */
typedef struct kvf__tag_span {
    const char *type;
    size_t type_bytes;
    int64_t first, last;
} kvf__tag_span;
/* State of reading a sentence by the mixed rule; initially {0}. */
typedef struct kvf__tag_scan {
    int64_t at, first; /* next word; start of the current entity */
    const char *type;
    size_t type_bytes;
    char prefix;
} kvf__tag_scan;
/* Finds the next entity in a sentence of n tags, where NULL means outside; false: none. */
bool kvf__tag_span_next(kvf__tag_scan *scan, const char *const *tags, int64_t n,
                        kvf__tag_span *out);

/* ---- answers and texts ----------------------------------------------------------------------- */

/* One predicted text per example and any number of references: those of example i are
 * references[start[i]] .. references[start[i + 1] - 1]. UTF-8. */
typedef struct kvf__text_rows {
    int64_t n;
    const char *const *predicted; /* [n] */
    const int64_t *start;         /* [n + 1] into references */
    const char *const *references;
    /* Lengths of the texts, which may then contain U+0000; NULL: texts end at the first. */
    const size_t *predicted_bytes, *reference_bytes;
} kvf__text_rows;

/* Percentages. The part over questions with (without) an answer is NaN if there are none. */
typedef struct kvf__squad_scores {
    double exact, f1;
    double has_exact, has_f1, none_exact, none_f1;
    int64_t has, none; /* numbers of questions */
} kvf__squad_scores;

/* Scores answers. no_answers: the rules of SQuAD 2.0, where "" answers a question without
 * references and two empty answers have F1 1. Otherwise those of 1.1, where such a question is
 * EDATA and F1 of empty answers is 0. EDATA: n = 0. */
kvf_status kvf__squad(kvf_ctx *ctx, const kvf__text_rows *rows, bool no_answers,
                      kvf__squad_scores *out);

/* sacrebleu's default: 13a tokenizer, case-sensitive, orders 1 to 4, exponential smoothing. */
typedef struct kvf__bleu_scores {
    double score; /* 0..100 */
    double precisions[4], brevity_penalty;
    int64_t correct[4], total[4], predicted_length, reference_length;
} kvf__bleu_scores;

/* Scores the corpus as a whole, not a mean over examples. EDATA: n = 0, an example without a
 * reference. */
kvf_status kvf__bleu(kvf_ctx *ctx, const kvf__text_rows *rows, kvf__bleu_scores *out);

/* Computes rouge_score's "rougeL" without stemmer, as fractions: the reference of the best F1 for
 * each example, then the mean over examples. support is n. EDATA: n = 0, an example without a
 * reference. */
kvf_status kvf__rouge_l(kvf_ctx *ctx, const kvf__text_rows *rows, kvf__prf *out);

/* ---- the table ------------------------------------------------------------------------------- */

/* Input of a row; the caller fills the part of its task. */
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
    kvf__tag_rows tags; /* token-cls */
    /* scheme of f1_strict, which is NaN if tags do not follow it; MIXED: AUTO */
    kvf__tag_scheme scheme;
    kvf__text_rows texts; /* qa, lm */
    bool no_answers;      /* qa: the data has unanswerable questions */
} kvf__metric_input;

union kvf__metric_family;
typedef struct kvf__metric {
    const char *name; /* as in --json: "accuracy", "f1", "exact_match", ... */
    kvf__task task;
    bool regression; /* seq-cls: the row is for regression */
    bool larger;     /* larger values are better */
    /* Scores that are computed together, and the row's part of them. */
    kvf_status (*family)(kvf_ctx *ctx, const kvf__metric_input *input,
                         union kvf__metric_family *out);
    size_t number;
} kvf__metric;

kvf_status kvf__metric_score(kvf_ctx *ctx, const kvf__metric *metric,
                             const kvf__metric_input *input, double *out);

/* Returns all rows, grouped by task. The first row of a task (and kind) selects the best checkpoint
 * by default. */
const kvf__metric *kvf__metric_table(size_t *n);
/* Finds a metric by name; NULL: the task has none of that name. name NULL: the task's first row. */
const kvf__metric *kvf__metric_find(kvf__task task, bool regression, const char *name);

#endif
