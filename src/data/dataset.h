/* A data set: the rows of one file, for one task (dataset.c). */
#ifndef KVF_DATASET_H
#define KVF_DATASET_H

#include "render.h"
#include "sources.h"
#include "task.h"

#include <kvfold/train.h>

/* Parses a task name: "lm", "seq-cls", ... EUSAGE lists the known names. */
kvf_status kvf__task_parse(kvf_ctx *ctx, const char *name, kvf__task *out);

/* Names of classes or tags by id. Names learnt from the training file are sorted: by value if all
 * are numbers, else by bytes. Given names keep the caller's order. */
typedef struct kvf__label_set {
    size_t n;
    char **names; /* [n], each owned */
} kvf__label_set;
kvf_status kvf__label_set_copy(kvf_ctx *ctx, const kvf__label_set *from, kvf__label_set *out);
void kvf__label_set_done(kvf__label_set *set);
/* Parses "a,b,c", or "@FILE" with one name per line. `option` names the option in errors. EUSAGE,
 * EDATA: an empty name, a duplicate, fewer than two names. */
kvf_status kvf__label_set_parse(kvf_ctx *ctx, const char *option, const char *text,
                                kvf__label_set *out);
bool kvf__label_set_same(const kvf__label_set *a, const kvf__label_set *b);
/* Sorts the names in the order of learnt labels. */
kvf_status kvf__label_set_sort(kvf_ctx *ctx, kvf__label_set *set);
int32_t kvf__label_set_find(const kvf__label_set *set, const char *name); /* -1: not in the set */

/* Classes of seq-cls as vocabulary tokens: class i is ids[start[i]] .. ids[start[i + 1] - 1]. Every
 * row of the file becomes a group with one row per class, in class order. On a bidirectional base
 * [MASK] becomes as many masks as the class has tokens. On a causal base it becomes the class's
 * tokens without the last, at the end of the row. Labels are the class's tokens, at the positions
 * that predict them. The row's value is 1 for the right class, else 0. */
typedef struct kvf__phrases {
    int64_t n; /* number of classes; 0: no phrases */
    int64_t *start;
    int32_t *ids; /* start and ids are owned */
} kvf__phrases;
void kvf__phrases_done(kvf__phrases *phrases);

/* Rows of one task.
 *
 * lm: labels are unshifted ids; the first token of a row is never predicted.
 *
 * Other tasks: labels hold the label_id of batch.h at the positions that the head reads, and -100
 * elsewhere. seq-cls and multiple-choice read the first token of a row ([CLS]), or the last one on
 * causal bases. token-cls reads the first sub-word of each word. qa reads all tokens but virtual
 * ones. Its "no answer" position is the first token, or the last one on causal bases, where the
 * first attends to nothing else.
 *
 * Without gold (options.unlabeled) a class, tag or span is KVF__NO_GOLD, no choice is right, and a
 * regression's value is 0. sources->labelled is then false. */
typedef struct kvf__dataset {
    int64_t n;      /* rows */
    int64_t *start; /* [n + 1] into ids, labels, types */
    int32_t *ids, *labels;
    int64_t n_labels; /* labels of all rows */
    int64_t skipped, truncated;
    int64_t without_label; /* truncated rows that lost all labels */
    int64_t unlabelled;    /* groups left out because they have no label */
    char said[448];        /* note on left-out groups and numeric labels; "": none */
    char hash[33];         /* hash of the file's bytes */
    bool delimited;        /* the file has columns: TSV, CSV, CoNLL */
    kvf__row_form form;    /* lm; of the whole file */

    /* tasks other than lm */
    kvf__task task;
    kvf__label_set names; /* seq-cls, token-cls; n = 0 for a regression and the other tasks */
    bool regression;
    bool pooled;      /* seq-cls, multiple-choice: the head pools all tokens of a row */
    bool phrases;     /* seq-cls: a group has a row per class, labelled with the class's tokens */
    int32_t *types;   /* [start[n]]; NULL: all 0 */
    float *values;    /* [n] regression targets, or 1 for the right phrase; NULL: none */
    int32_t *spans;   /* [n, 2] qa: first and last token of the answer within the row; twice the "no
                         answer" position if the window lacks it; NULL: none */
    int64_t n_groups; /* groups: questions, sentences in windows, or single rows */
    int64_t *group;   /* [n_groups + 1] first row of each group; NULL: each row is batched alone */
    kvf__sources *sources; /* NULL: lm without options.references or unlabeled */

    void *memory; /* the block of the lists above, except ids, labels, types and texts of sources */
    int64_t *sharers; /* [1] number of data sets that share these lists; NULL: only this one */
} kvf__dataset;

typedef struct kvf__dataset_options {
    kvf__render render;    /* tokenizer and field map for every task, chat templates for lm only */
    int64_t max_length;    /* tokens per row, without virtual ones */
    kvf_overlong overlong; /* UNSET: STOP */
    bool prompt_only;      /* lm: rows end before the completion, for generation */
    int32_t vocab;         /* upper limit of ids, for rows that contain ids */

    /* File format and limits. All zero: the file name and content decide. */
    const char *format;    /* --format: a name in formats.c; NULL, "" or "auto": detect */
    int64_t split_text;    /* lm: cut plain text into rows of so many tokens; 0: off */
    int64_t limit;         /* rows of the file to read; 0: all */
    int64_t most_tokens;   /* limit of tokens in all rows together, else EDATA; 0: none */
    int64_t most_grouped;  /* limit of tokens in the rows of one question, else EDATA; 0: none */
    bool no_header;        /* --no-header: the first line of TSV, CSV or CoNLL is data */
    const char *columns;   /* --columns: column names, "-" for one to skip; they replace a header.
                              NULL or "": the header's names, or without a header
                              text[,text_pair],label; for lm text or prompt,completion */
    const char *delimiter; /* --delimiter for TSV and CSV; NULL or "": a tab, a comma */

    /* tasks other than lm */
    kvf__task task;
    bool causal;                     /* the base is causal; decides which token the head reads */
    bool pooled;                     /* heads of the base pool all tokens of a row */
    bool regression;                 /* seq-cls: labels are numbers */
    const kvf__label_set *label_set; /* NULL: learn the labels; else any other label is EDATA */
    bool learnt; /* label_set was learnt from the training data: errors point to --labels */
    const kvf__phrases *phrases; /* seq-cls with render.pattern and label_set; NULL: none */
    bool unlabeled; /* rows may lack a label, tags or answers; skipped groups are listed in sources,
                       for lm too */
    bool windows;   /* token-cls: split long sentences into windows, like contexts of qa */
    int64_t doc_stride; /* tokens shared by two windows, like transformers' stride; 0: 128. At most
                           half of a window's text */

    /* lm: keep each row's "references" (else its completion) as sources. With prompt_only,
     * consecutive rows with equal prompts become one row with all their references (E2E's test
     * set). */
    bool references;
} kvf__dataset_options;

/* Returns the name of a given option that applies only to files with columns; NULL: none is
 * given. */
const char *kvf__table_option(const kvf__dataset_options *options);
/* Loads a file of any format for any task, also gzip-compressed. The hash covers the bytes of the
 * file. EDATA, EFORMAT: one line "file:line: ...". An empty data set is EDATA, and so is one
 * without any label unless prompt_only.
 *
 * Two texts are joined as the tokenizer's post-processor joins a pair. If it puts nothing between
 * them, a line feed is added.
 *
 * Overlong rows, if cut: seq-cls and multiple-choice shorten the longer of two texts first, and
 * token-cls cuts between words. qa splits contexts into windows, so only a question longer than
 * half a row is overlong. With options.windows, token-cls splits sentences, so only a word longer
 * than a row is overlong. Each word then has its label in one window, the one with most context for
 * it. Skipping leaves out whole groups; truncated counts groups. */
kvf_status kvf__dataset_load(kvf_ctx *ctx, const char *path, const kvf__dataset_options *options,
                             kvf__dataset *out);
/* Allocates start, ids and labels, all zero, for rows that are not read from a file. */
kvf_status kvf__dataset_alloc_rows(kvf_ctx *ctx, kvf__dataset *set, int64_t rows, int64_t tokens);
void kvf__dataset_done(kvf__dataset *dataset);
/* Moves a share of the groups, drawn by the seed, to *out; *set keeps the others. *out must not
 * outlive *set. EDATA if a part would have no rows or no label. */
kvf_status kvf__dataset_split(kvf_ctx *ctx, const char *path, kvf__dataset *set, double share,
                              uint64_t seed, kvf__dataset *out);
/* Keeps so many of the groups, drawn by the seed. For seq-cls each class keeps its share, and at
 * least one group. EUSAGE: more than there are, or fewer than classes; EDATA: without any label. */
kvf_status kvf__dataset_choose(kvf_ctx *ctx, const char *path, kvf__dataset *set, int64_t rows,
                               uint64_t seed);
/* Marks the groups that kvf__dataset_choose() keeps in chosen [groups], all false before. */
kvf_status kvf__choose_groups(kvf_ctx *ctx, const char *path, const kvf__dataset *set, int64_t rows,
                              uint64_t seed, bool *chosen);
/* Makes *out share the lists of a data set until both are done. Shared lists are read-only. */
kvf_status kvf__dataset_share(kvf_ctx *ctx, kvf__dataset *dataset, kvf__dataset *out);
/* Appends a readable form of a row: its text with special tokens and, for lm, brackets around
 * tokens that carry loss. For other tasks the class or the tags follow. Long rows are shortened,
 * control characters escaped. */
kvf_status kvf__row_marked(kvf_ctx *ctx, const kvf__tokenizer *tokenizer,
                           const kvf__dataset *dataset, int64_t row, kvf__buf *out);
int64_t kvf__example_length(const kvf__dataset *dataset, int64_t example);
int64_t kvf__longest_example(const kvf__dataset *dataset);
/* Returns the first rows of a data set: whole groups of at most so many rows and tokens, but at
 * least one group. The result borrows the lists. */
kvf__dataset kvf__dataset_first(const kvf__dataset *dataset, int64_t rows, int64_t tokens);
/* Returns the number of labels that a head reads or predicts; lm rows count from the second
 * token. */
int64_t kvf__example_labels(const kvf__dataset *dataset, int64_t example);

/* Returns the number of groups; and the group of a row, which is the row itself if every row is a
 * group. */
int64_t kvf__group_count(const kvf__dataset *dataset);
int64_t kvf__group_of(const kvf__dataset *dataset, int64_t row);
/* Returns how many of the first n rows to compute together: whole groups of at most `most` rows,
 * but at least one group. rows: a view of the sampler, or rows in file order. */
int64_t kvf__whole_groups(const kvf__dataset *dataset, const int64_t *rows, int64_t n,
                          int64_t most);
/* qa: finds the bytes [from, to) of the context under tokens first to last of a row, without blanks
 * at the ends. Returns false if a token lies outside the context (the "no answer" position). */
bool kvf__context_bytes(const kvf__dataset *dataset, int64_t row, int64_t first, int64_t last,
                        int64_t *from, int64_t *to);

#endif
