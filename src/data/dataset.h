/* A data set: the rows of one file, for one task (dataset.c). */
#ifndef KVF_DATASET_H
#define KVF_DATASET_H

#include "render.h"
#include "sources.h"
#include "task.h"

#include <kvfold/train.h>

/* "lm", "seq-cls", ...; EUSAGE lists the known ones. */
kvf_status kvf__task_parse(kvf_ctx *ctx, const char *name, kvf__task *out);

/* Classes or tags by id: the training file's names in sorted order, by value where all are numbers,
 * else by bytes. Given instead of learnt, the order is the caller's. */
typedef struct kvf__label_set {
    size_t n;
    char **names; /* each owned */
} kvf__label_set;
kvf_status kvf__label_set_copy(kvf_ctx *ctx, const kvf__label_set *from, kvf__label_set *out);
void kvf__label_set_done(kvf__label_set *set);
/* "a,b,c", or "@FILE" with one name a line; `option` names it in errors. EUSAGE, EDATA: an empty
 * name, one that comes twice, less than two. */
kvf_status kvf__label_set_parse(kvf_ctx *ctx, const char *option, const char *text,
                                kvf__label_set *out);
bool kvf__label_set_same(const kvf__label_set *a, const kvf__label_set *b);
/* Into the order of labels that are learnt. */
kvf_status kvf__label_set_sort(kvf_ctx *ctx, kvf__label_set *set);
int32_t kvf__label_set_find(const kvf__label_set *set, const char *name); /* -1: not in it */

/* Classes of seq-cls as tokens of the vocabulary: class i is ids[start[i]] .. ids[start[i + 1] -
 * 1]. Every row of the file becomes a group of rows, one for each class in their order: on bases
 * that read both ways with as many masks in place of [MASK] as the class has tokens, on causal ones
 * with all but the last of its tokens there, at the end. Labels are the class's tokens, where they
 * are predicted, and the row's value is 1 for the right class, else 0. */
typedef struct kvf__phrases {
    int64_t n; /* 0: classes are classes */
    int64_t *start;
    int32_t *ids; /* both owned */
} kvf__phrases;
void kvf__phrases_done(kvf__phrases *phrases);

/* Rows of one task.
 *
 * lm: a row's labels are unshifted ids; its first token's is never predicted.
 * Other tasks: labels [row] holds, at the positions that the head reads, the batch's label_id of
 * batch.h, and -100 elsewhere. seq-cls and multiple-choice read the row's first token ([CLS]), on
 * causal bases its last one; token-cls the first sub-word of each word; qa the tokens of the
 * context and the position that means "no answer": the first token, on causal bases the last
 * one (the first has seen nothing there). Without gold (options.unlabeled) class, tag and span are
 * KVF__NO_GOLD, no choice is right, a regression's value is 0; sources->labelled is then false. */
typedef struct kvf__dataset {
    int64_t n;      /* rows */
    int64_t *start; /* [n + 1] into ids, labels, types */
    int32_t *ids, *labels;
    int64_t n_labels; /* of all rows */
    int64_t skipped, truncated;
    int64_t without_label; /* of the truncated: no label is left */
    int64_t unlabelled;    /* groups left out for want of a label */
    char said[448];        /* of them, and of labels that are numbers; "": nothing to say */
    char hash[33];         /* of the file's bytes */
    bool delimited;        /* the file has columns: TSV, CSV, CoNLL */

    /* tasks other than lm */
    kvf__task task;
    kvf__label_set names; /* seq-cls, token-cls; n = 0 for a regression and the other tasks */
    bool regression;
    bool pooled;      /* seq-cls, multiple-choice: a row's label is read at all of its tokens */
    bool phrases;     /* seq-cls: rows of a group are its classes, labels their tokens */
    int32_t *types;   /* [start[n]]; NULL: all 0 */
    float *values;    /* [n] regression targets; NULL: none */
    int32_t *spans;   /* [n, 2] qa: first and last token of the answer within the row, both the
                         no-answer position where the window does not hold it; NULL: none */
    int64_t n_groups; /* questions; with group NULL every row is a group and n_groups = n */
    int64_t *group;   /* [n_groups + 1] rows that belong together */
    kvf__sources *sources; /* NULL: lm without options.references or unlabeled */

    void *memory;     /* of the lists above, but ids, labels, types and the texts of sources */
    int64_t *sharers; /* how many data sets have these lists; NULL: this one alone */
} kvf__dataset;

typedef struct kvf__dataset_options {
    kvf__render render;    /* tokenizer and field map for every task, chat templates for lm only */
    int64_t max_length;    /* tokens of a row, virtual ones not counted */
    kvf_overlong overlong; /* UNSET: STOP */
    bool prompt_only;      /* lm, for generation */
    int32_t vocab;         /* ids must lie below (rows that give ids themselves) */

    /* How the file is read; all zero: told by its name and content. */
    const char *format; /* --format: a name of formats.c; NULL, "" or "auto" */
    int64_t
        split_text; /* lm: the file is plain text, cut into rows of so many tokens; 0: it is not */
    int64_t limit;  /* rows of the file that are read; 0: all */
    int64_t most_tokens;  /* of all rows together, else EDATA; 0: any number */
    int64_t most_grouped; /* of the rows of one question together, else EDATA; 0: any number */
    bool no_header;       /* --no-header: the first line of TSV, CSV or CoNLL is no header */
    const char *columns;  /* --columns: names of the columns, "-" for one that is not read; with a
                             header they replace it. NULL or "": the header's; without one
                             text[,text_pair],label, for lm text or prompt,completion */
    const char *delimiter; /* --delimiter, of TSV and CSV; NULL or "": a tab, a comma */

    /* tasks other than lm */
    kvf__task task;
    bool causal;                     /* of the base: which tokens the head reads */
    bool pooled;                     /* of the base: heads of whole rows read every token */
    bool regression;                 /* seq-cls: labels are numbers */
    const kvf__label_set *label_set; /* NULL: learn; given, any other label is EDATA */
    bool learnt; /* the set is what the training data showed: an error names --labels */
    const kvf__phrases *phrases; /* seq-cls with render.pattern and label_set; NULL: none */
    bool unlabeled; /* rows may lack label, tags or answers; those left out are listed, of lm too */
    bool windows;   /* token-cls: long sentences come in windows, as contexts of qa do */
    int64_t doc_stride; /* tokens that two windows share, as transformers' stride; 0: 128. At most
                           half of a window's text */

    /* lm: keep each row's "references" (else its completion) as sources. With prompt_only, rows
     * that follow each other with equal prompts become one with all their references (E2E's test
     * set). */
    bool references;
} kvf__dataset_options;

/* Of these the one, by name, that only files with columns have; NULL: none is given. */
const char *kvf__table_option(const kvf__dataset_options *options);
/* Any format, any task, packed by gzip or not; hash is of the bytes of the file. EDATA, EFORMAT:
 * one line "file:line: ...". An empty data set, or one without any label (unless prompt_only), is
 * EDATA too. Two texts become one row as the tokenizer's post-processor makes one of a pair; where
 * that puts nothing between them, with a line feed. Overlong rows, if cut: the longer of two texts
 * first (seq-cls, multiple-choice), whole words (token-cls); qa rows are never overlong, contexts
 * get more windows, only a question longer than half a row is. With options.windows a sentence of
 * token-cls is not either, only a word longer than a row: each of its words has its label in one
 * window, where it sees most. Skipping leaves out whole groups; truncated counts groups. */
kvf_status kvf__dataset_load(kvf_ctx *ctx, const char *path, const kvf__dataset_options *options,
                             kvf__dataset *out);
/* Memory for rows that are not read from a file: start, ids, labels, all zero. */
kvf_status kvf__dataset_alloc_rows(kvf_ctx *ctx, kvf__dataset *set, int64_t rows, int64_t tokens);
void kvf__dataset_done(kvf__dataset *dataset);
/* A share of the groups, drawn by the seed, becomes *out; *set keeps the others. *out may not
 * outlive *set. EDATA where a part would be empty. */
kvf_status kvf__dataset_split(kvf_ctx *ctx, const char *path, kvf__dataset *set, double share,
                              uint64_t seed, kvf__dataset *out);
/* *out: the same lists, which last until both are done. Nobody may write to them. */
kvf_status kvf__dataset_share(kvf_ctx *ctx, kvf__dataset *dataset, kvf__dataset *out);
/* Appends a row as a person reads it: its text, special tokens among it, lm's tokens that carry
 * loss in brackets, behind rows of other tasks the class or the tags. Long rows are shortened,
 * control characters escaped. */
kvf_status kvf__row_marked(kvf_ctx *ctx, const kvf__tokenizer *tokenizer,
                           const kvf__dataset *dataset, int64_t row, kvf__buf *out);
int64_t kvf__example_length(const kvf__dataset *dataset, int64_t example);
int64_t kvf__longest_example(const kvf__dataset *dataset);
/* The first rows of a data set: whole groups of at most so many rows and tokens, but at least one
 * group. The result borrows the lists. */
kvf__dataset kvf__dataset_first(const kvf__dataset *dataset, int64_t rows, int64_t tokens);
/* Labels that a head reads or predicts: of lm rows those past the first token. */
int64_t kvf__example_labels(const kvf__dataset *dataset, int64_t example);

/* Groups, and the one a row is in (the row itself where every row is a group). */
int64_t kvf__group_count(const kvf__dataset *dataset);
int64_t kvf__group_of(const kvf__dataset *dataset, int64_t row);
/* How many of the first of n rows (a view of the sampler, or rows in file order) to compute
 * together: whole groups of at most `most` rows, but at least one group. */
int64_t kvf__whole_groups(const kvf__dataset *dataset, const int64_t *rows, int64_t n,
                          int64_t most);
/* qa: bytes [from, to) of the context under tokens first..last of a row, without blanks at the
 * ends; false if one of them is not of the context (the no-answer position). */
bool kvf__context_bytes(const kvf__dataset *dataset, int64_t row, int64_t first, int64_t last,
                        int64_t *from, int64_t *to);

#endif
