/* Data: files to rows, rows to packed batches, and the order in which steps see them.
 *
 * A row (an example) is a list of ids and, for each id, the id to be predicted there or -100
 * (labels unshifted, as transformers has them). rows.c is the one place where text becomes ids for
 * language models, in train, eval, generate and serve alike; the other tasks
 * have theirs in rows_text.c, rows_words.c and rows_spans.c. */
#ifndef KVF_DATA_INT_H
#define KVF_DATA_INT_H

#include <kvfold/train.h>

#include "batch.h"
#include "row_template.h"
#include "task.h"
#include "text_int.h"

#define KVF__NO_LABEL (-100)
#define KVF__NO_GOLD                                                                               \
    (-1) /* the head reads the position, but the file did not say what is right                    \
          */

/* ---- rows ------------------------------------------------------------------------------------ */

typedef enum kvf__row_kind {
    KVF__ROW_PROMPT,
    KVF__ROW_TEXT,
    KVF__ROW_MESSAGES,
    KVF__ROW_IDS
} kvf__row_kind;

/* Renames fields: "prompt=question,completion=answer" reads foreign fields under our names. {0}:
 * none. */
typedef struct kvf__field_map {
    char *text; /* owned, cut into pieces */
    const char *ours[8], *theirs[8];
    size_t n;
} kvf__field_map;
kvf_status kvf__field_map_init(kvf_ctx *ctx, const char *text,
                               kvf__field_map *out); /* NULL or "": empty. EUSAGE */
void kvf__field_map_done(kvf__field_map *map);

/* How text becomes ids. */
typedef struct kvf__render {
    const kvf__tokenizer *tokenizer;
    const kvf__chat *chat;     /* template that wraps every row, or that `messages` rows use */
    bool wrap_prompts;         /* the template was named: prompt and completion are one user and one
                                  assistant turn */
    const kvf__field_map *map; /* may be NULL */
    const kvf__row_template *pattern; /* virtual tokens and what else stands in rows; NULL: none */
} kvf__render;

/* Appends ids and labels of one JSON row: [bos] + ids(prompt) + ids(completion) + [eos], completion
 * and eos carrying loss;
 * {"text"}: all but the first token; {"messages"}: assistant turns;
 * {"input_ids","labels"[,"attention_mask"]}: as they are, masked ids dropped. prompt_only: stops
 * before the completion (or opens the assistant turn), labels then all -100. EDATA names `where`.
 *
 * Virtual tokens of render->pattern come as ids -1 - p, never labelled, and before a common prefix
 * of them nothing changes: the first token behind it is not predicted either, so that a prefix can
 * take their place. */
kvf_status kvf__render_row(kvf_ctx *ctx, const kvf__render *render, const char *where,
                           const kvf_json *row, bool prompt_only, kvf__ids *ids, kvf__ids *labels);
/* The same for a bare prompt. */
kvf_status kvf__render_prompt(kvf_ctx *ctx, const kvf__render *render, const char *prompt,
                              size_t bytes, kvf__ids *ids);
/* For one given as ids, as they are; where a template places virtual tokens among the row's texts,
 * in place of the prompt's own, a blank before it among them. */
kvf_status kvf__render_prompt_ids(kvf_ctx *ctx, const kvf__render *render, const int32_t *prompt,
                                  size_t n, kvf__ids *ids);
/* For a chat that the assistant goes on with. EUSAGE where such a template has no place for it. */
kvf_status kvf__render_chat(kvf_ctx *ctx, const kvf__render *render, const kvf__message *messages,
                            size_t n, kvf__ids *ids);

/* ---- what a task's rows came from ------------------------------------------------------------ */

/* Memory that lives as long as its data set; {0} is empty. */
typedef struct kvf__pool {
    struct kvf__pool_block *last;
} kvf__pool;

/* One group as its file had it: a text or pair of texts, a sentence, a question with its context, a
 * question with its choices; of lm rows a prompt. Texts are UTF-8 in the pool, a NUL behind each;
 * they may hold U+0000. */
typedef struct kvf__source {
    int64_t line;     /* of the file, where it begins */
    const char *id;   /* the row's "id" or "idx" as text; NULL: none */
    const char *text; /* seq-cls, multiple-choice: first text; qa: the context; lm: the prompt, if
                         the row has one; else NULL */
    const char *pair; /* seq-cls: second text, NULL: none; qa: the question */
    size_t text_bytes, pair_bytes;
    int32_t gold; /* seq-cls: class; multiple-choice: right choice from 0; -1: not given */
    float value;  /* regression: the target; NaN: not given */

    int64_t n;                /* entries of the lists below */
    const char *const *items; /* token-cls: words; multiple-choice: choices; qa: gold answers, none
                                 if the question has none; lm: references */
    const size_t *item_bytes; /* [n]; NULL: they end at their first NUL */
    int32_t *tags;            /* [n] token-cls: gold tags, -1: not given; else NULL */
    const int32_t *label_of; /* [n] token-cls: which of its rows' labels is the word's, counted from
                                the first one's on; -1: none of its tokens is in a row
                                (normalisation left nothing of it, or the row was cut) */
    const int64_t *spans;    /* [n, 2] qa: bytes [from, to) of the context that an answer is */
    bool answered;           /* qa: gold answers, or their absence (is_impossible), are given */

    int64_t n_context;
    const int32_t *origins; /* [n_context, 2] qa: bytes of the context behind each of its tokens */
} kvf__source;

/* A group that was too long to take, and which group it would have stood before. */
typedef struct kvf__left_out {
    int64_t before;
    kvf__source source;
} kvf__left_out;

/* Where the context stands in a row (qa): row token at + i is context token first + i, i < n. */
typedef struct kvf__window {
    int64_t at, first, n;
} kvf__window;

size_t kvf__source_item_bytes(const kvf__source *source, int64_t i);

typedef struct kvf__sources {
    kvf__source *group;   /* [groups] */
    kvf__window *windows; /* [rows] qa; else NULL */
    int64_t *first_row;   /* [groups] token-cls in windows; NULL: group g is row g */
    int64_t n_left;       /* unlabeled: what --overlong skip left out, in file order */
    kvf__left_out *left;  /* [n_left] */
    bool labelled;        /* every group has its gold: losses and metrics mean something */
    kvf__pool pool;
} kvf__sources;

/* ---- data set -------------------------------------------------------------------------------- */

/* The option as files hold it, and back: the first versions wrote "truncate" where they cut the end
 * of every row, so "truncate" of today is "truncate-prompt" there. UNSET: NULL, or no such word. */
const char *kvf__overlong_to_file(kvf_overlong overlong);
kvf_overlong kvf__overlong_from_file(const char *stored);
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
/* "a,b,c", or "@FILE" with one name a line; `option` names the place. EUSAGE, EDATA: an empty name,
 * one that comes twice, less than two. */
kvf_status kvf__label_set_parse(kvf_ctx *ctx, const char *option, const char *text,
                                kvf__label_set *out);
bool kvf__label_set_same(const kvf__label_set *a, const kvf__label_set *b);
int32_t kvf__label_set_find(const kvf__label_set *set, const char *name); /* -1: not in it */

/* Rows of one task.
 *
 * lm: a row's labels are unshifted ids; its first token's is never predicted.
 * Other tasks: labels [row] holds, at the positions that the head reads, the batch's label_id of
 * batch.h, and -100 elsewhere. seq-cls and multiple-choice read the row's first token ([CLS]), on
 * causal bases its last one; token-cls the first sub-word of each word; qa the tokens of the
 * context and the position that stands for "no answer": the first token, on causal bases the last
 * one (the first has seen nothing there). Without gold (options.unlabeled) class, tag and span are
 * KVF__NO_GOLD, no choice is right, a regression's value is 0; sources->labelled is then false. */
typedef struct kvf__dataset {
    int64_t n;      /* rows */
    int64_t *start; /* [n + 1] into ids, labels, types */
    int32_t *ids, *labels;
    int64_t n_labels; /* of all rows */
    int64_t skipped, truncated;
    int64_t without_label; /* of the truncated: no label is left */
    char hash[33];         /* of the file's bytes */
    bool delimited;        /* the file is TSV or CSV */

    /* tasks other than lm */
    kvf__task task;
    kvf__label_set names; /* seq-cls, token-cls; n = 0 for a regression and the other tasks */
    bool regression;
    int32_t *types;        /* [start[n]]; NULL: all 0 */
    float *values;         /* [n] regression targets; NULL: none */
    int32_t *spans;        /* [n, 2] qa: first and last token of the answer within the row, both the
                              no-answer position where the window does not hold it; NULL: none */
    int64_t n_groups;      /* questions; with group NULL every row stands alone and n_groups = n */
    int64_t *group;        /* [n_groups + 1] rows that belong together */
    kvf__sources *sources; /* NULL: lm without options.references */

    int64_t *sharers; /* how many data sets have these lists; NULL: this one alone */
} kvf__dataset;

typedef struct kvf__dataset_options {
    kvf__render render; /* tokenizer and field map for every task, chat templates for lm only */
    int64_t max_length; /* tokens of a row, virtual ones not counted */
    kvf_overlong overlong; /* UNSET: STOP */
    bool prompt_only; /* lm, for generation */
    int32_t vocab;    /* ids must lie below (rows that give ids themselves) */

    /* How the file is read; all zero: told by its name and content. */
    const char *format; /* --format: a name of formats.c; NULL, "" or "auto" */
    int64_t
        split_text; /* lm: the file is plain text, cut into rows of so many tokens; 0: it is not */
    int64_t limit;  /* rows of the file that are read; 0: all */
    bool no_header; /* --no-header: the first line of TSV or CSV is a row */
    const char *columns; /* --columns: names of the columns, "-" for one that is not read; with a
                            header they replace it. NULL or "": the header's; without one
                            text[,text_pair],label, for lm text or prompt,completion */

    /* tasks other than lm */
    kvf__task task;
    bool causal;                     /* of the base: which tokens the head reads */
    bool regression;                 /* seq-cls: labels are numbers */
    const kvf__label_set *label_set; /* NULL: learn; given, any other label is EDATA */
    bool learnt;    /* the set is what the training data showed: an error names --labels */
    bool unlabeled; /* predict: rows may lack label, tags or answers; those left out are listed */
    bool windows;   /* token-cls: long sentences come in windows, as contexts of qa do */
    int64_t doc_stride; /* tokens that two windows share, as transformers' stride; 0: 128. At most
                           half of a window's text */

    /* lm: keep each row's "references" (else its completion) as sources. With prompt_only, rows
     * that follow each other with equal prompts become one with all their references (E2E's test
     * set). */
    bool references;
} kvf__dataset_options;

/* Any format, any task, packed by gzip or not; hash is of the bytes of the file. EDATA, EFORMAT:
 * one line "file:line: ...". An empty data set, or one without any label (unless prompt_only), is
 * EDATA too. Two texts are joined as the tokenizer's post-processor joins a pair; where that puts
 * nothing between them, with a line feed. Overlong rows, if cut: the longer of two texts first
 * (seq-cls, multiple-choice), whole words (token-cls); qa rows are never overlong, contexts get
 * more windows, only a question longer than half a row is. With options.windows a sentence of
 * token-cls is not either, only a word longer than a row: each of its words has its label in one
 * window, where it sees most. Skipping leaves out whole groups; truncated counts groups. */
kvf_status kvf__dataset_load(kvf_ctx *ctx, const char *path, const kvf__dataset_options *options,
                             kvf__dataset *out);
void kvf__dataset_done(kvf__dataset *dataset);
/* A share of the groups, drawn by the seed, becomes *out; *set keeps the others. *out may not
 * outlive *set. EDATA where a part would be empty. */
kvf_status kvf__dataset_split(kvf_ctx *ctx, const char *path, kvf__dataset *set, double share,
                              uint64_t seed, kvf__dataset *out);
/* *out: the same lists, which last until both are done. Nobody may write to them. */
kvf_status kvf__dataset_share(kvf_ctx *ctx, kvf__dataset *dataset, kvf__dataset *out);
int64_t kvf__example_length(const kvf__dataset *dataset, int64_t example);
/* Labels that a head reads or predicts: of lm rows those past the first token. */
int64_t kvf__example_labels(const kvf__dataset *dataset, int64_t example);

/* Groups, and the one a row is in (the row itself where every row stands alone). */
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

/* ---- batches --------------------------------------------------------------------------------- */

/* What a causal base allows to leave out, with equal results: nothing behind a row's last label is
 * computed, and (share) tokens with which several rows begin are computed once, as leads. */
typedef struct kvf__batch_rules {
    bool causal, share;
    bool infix; /* the prefix stands before the first position that predicts a label: what is before
                   it becomes a common prefix of its row, and the batch has infix_at; causal lm only
                 */
} kvf__batch_rules;

/* Sizes of batches, or their maxima over several. */
typedef struct kvf__batch_sizes {
    int64_t rows, tokens, labels;
    int64_t row_len;       /* longest row, as far as it is its own */
    int64_t common_len;    /* longest path of common prefixes before a row */
    int64_t common_tokens; /* in all common prefixes of a batch */
} kvf__batch_sizes;

/* Reusable memory for one packed batch; fill allocates nothing. */
typedef struct kvf__batcher {
    kvf__batch batch;
    kvf__batch_sizes sizes; /* of the batch */
    kvf__batch_rules rules;
    int64_t *start, *example;
    int32_t *ids, *label_at, *label_id, *parent, *types, *spans, *infix_at;
    float *values;
    struct kvf__batch_row *rows; /* [most rows] the examples while they are packed */
    kvf__batch_sizes most;
} kvf__batcher;
/* Room for batches of at most so many examples, tokens and labels. */
kvf_status kvf__batcher_init(kvf_ctx *ctx, kvf__batcher *batcher, kvf__batch_rules rules,
                             int64_t examples, int64_t tokens, int64_t labels);
void kvf__batcher_done(kvf__batcher *batcher);
/* Packs the listed rows into batcher->batch: in order, or by common beginnings where sharing saves
 * tokens. On causal bases rows without a label are left out. Rows of a group must be listed one
 * after the other, and stay so (leads may stand between them); batch.example is then the group. */
void kvf__batcher_fill(kvf__batcher *batcher, const kvf__dataset *dataset, const int64_t *examples,
                       int64_t n);
/* Raises each of *sizes to that of the batch. */
void kvf__batch_sizes_raise(kvf__batch_sizes *sizes, const kvf__batch_sizes *by);

/* Batches of several runs back to back, as one; nothing is allocated after init. */
typedef struct kvf__joined {
    kvf__batch batch; /* without values, spans and infix_at */
    kvf__batch_sizes most;
    int64_t *start, *example;
    int32_t *parent, *ids, *types, *label_at, *label_id;
} kvf__joined;
kvf_status kvf__joined_init(kvf_ctx *ctx, kvf__joined *out, int64_t rows, int64_t tokens,
                            int64_t labels);
void kvf__joined_done(kvf__joined *joined);
void kvf__joined_clear(kvf__joined *joined);
void kvf__joined_add(kvf__joined *joined, const kvf__batch *part);

/* ---- order of steps -------------------------------------------------------------------------- */

/* Which rows form step s (0-based): epochs of the data set, each in an order of its groups that
 * depends on (seed, epoch) alone, cut into steps of batch_size groups (rows, where every row stands
 * alone), or of at most batch_tokens tokens. The last step of an epoch may be shorter. */
typedef struct kvf__sampler {
    const kvf__dataset *dataset;
    bool shuffle;
    uint64_t seed;
    int64_t batch_size, batch_tokens; /* one of them is 0 */
    int64_t epoch, at;                /* next group within the epoch's order */
    int64_t n, *order;                /* [n] groups */
    int64_t *rows;                    /* [dataset rows] of the step; NULL: groups are rows */
    struct kvf__clusters *clusters;   /* --group-by prefix; NULL: off */
} kvf__sampler;
kvf_status kvf__sampler_init(kvf_ctx *ctx, kvf__sampler *sampler, const kvf__dataset *dataset,
                             bool shuffle, uint64_t seed, int64_t batch_size, int64_t batch_tokens);
/* --group-by prefix, to be called after init: groups whose first rows begin alike (at least half of
 * the shorter) come into the same steps, as far as these hold them. Every epoch still sees every
 * group once, in an order that depends on (seed, epoch) alone. */
kvf_status kvf__sampler_group_by_common(kvf_ctx *ctx, kvf__sampler *sampler);
void kvf__sampler_done(kvf__sampler *sampler);
void kvf__sampler_rewind(kvf__sampler *sampler); /* to step 0 */
/* Rows of the next step, those of a group in order: a view, valid until the next call. *last: this
 * step ends its epoch. */
const int64_t *kvf__sampler_next(kvf__sampler *sampler, int64_t *n, bool *last);

#endif
