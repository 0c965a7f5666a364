/* Data: files to examples, examples to packed batches, and the order in which steps see them.
 *
 * An example is a row of ids and, for each id, the id to be predicted there or -100 (labels
 * unshifted, as transformers has them). rows.c is the one place where text becomes ids, for train,
 * eval, generate and serve alike (DESIGN.md section 4). */
#ifndef KVF_DATA_INT_H
#define KVF_DATA_INT_H

#include "batch.h"
#include "task.h"
#include "text_int.h"

#define KVF__NO_LABEL (-100)

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
} kvf__render;

/* Appends ids and labels of one JSON row: [bos] + ids(prompt) + ids(completion) + [eos], completion
 * and eos carrying loss;
 * {"text"}: all but the first token; {"messages"}: assistant turns;
 * {"input_ids","labels"[,"attention_mask"]}: as they are, masked ids dropped. prompt_only: stops
 * before the completion (or opens the assistant turn), labels then all -100. EDATA names `where`.
 */
kvf_status kvf__render_row(kvf_ctx *ctx, const kvf__render *render, const char *where,
                           const kvf_json *row, bool prompt_only, kvf__ids *ids, kvf__ids *labels);
/* The same for a bare prompt. */
kvf_status kvf__render_prompt(kvf_ctx *ctx, const kvf__render *render, const char *prompt,
                              kvf__ids *ids);

/* ---- data set -------------------------------------------------------------------------------- */

typedef enum kvf__overlong {
    KVF__OVERLONG_STOP,
    KVF__OVERLONG_TRUNCATE,
    KVF__OVERLONG_SKIP
} kvf__overlong;
kvf_status kvf__overlong_parse(kvf_ctx *ctx, const char *name, kvf__overlong *out);

/* Classes or tags by id, in the order of the training file's sorted names. */
typedef struct kvf__label_set {
    size_t n;
    char **names;
} kvf__label_set;

/* What a task's rows came from, kept for predictions and metrics (task_rows.c); NULL for lm. */
struct kvf__sources;

typedef struct kvf__dataset {
    int64_t n;      /* rows */
    int64_t *start; /* [n + 1] into ids, labels, types */
    int32_t *ids, *labels;
    int64_t n_labels; /* of all rows */
    int64_t skipped, truncated;
    char hash[33]; /* of the file's bytes */

    /* tasks other than lm */
    kvf__task task;
    kvf__label_set names;
    bool regression;
    int32_t *types;   /* [start[n]]; NULL: all 0 */
    float *values;    /* [n] regression targets; NULL: none */
    int32_t *spans;   /* [n, 2] qa; NULL: none */
    int64_t n_groups; /* questions; with group NULL every row stands alone and n_groups = n */
    int64_t *group;   /* [n_groups + 1] rows that belong together */
    struct kvf__sources *sources;
} kvf__dataset;

typedef struct kvf__dataset_options {
    kvf__render render;
    int64_t max_length; /* tokens of a row */
    kvf__overlong overlong;
    bool prompt_only; /* for generation */
    int32_t vocab;    /* ids must lie below (rows that give ids themselves) */
} kvf__dataset_options;

/* JSONL, one object a line, blank lines allowed. EDATA: one line "file:line: ...". An empty data
 * set, or one without any label (unless prompt_only), is EDATA too. */
kvf_status kvf__dataset_load(kvf_ctx *ctx, const char *path, const kvf__dataset_options *options,
                             kvf__dataset *out);
void kvf__dataset_done(kvf__dataset *dataset);
int64_t kvf__example_length(const kvf__dataset *dataset, int64_t example);
/* Labels that can be predicted: those past a row's first token. */
int64_t kvf__example_labels(const kvf__dataset *dataset, int64_t example);

/* ---- batches --------------------------------------------------------------------------------- */

/* What a causal base allows to leave out, with equal results: nothing behind a row's last label is
 * computed, and (share) tokens with which several rows begin are computed once, as leads. */
typedef struct kvf__batch_rules {
    bool causal, share;
} kvf__batch_rules;

/* Sizes of batches, or their maxima over several. */
typedef struct kvf__batch_sizes {
    int64_t rows, tokens, labels;
    int64_t row_len;     /* longest row, as far as it is its own */
    int64_t lead_len;    /* longest path of leads before a row */
    int64_t lead_tokens; /* in all leads of a batch */
} kvf__batch_sizes;

/* Reusable memory for one packed batch; fill allocates nothing. */
typedef struct kvf__batcher {
    kvf__batch batch;
    kvf__batch_sizes sizes; /* of the batch */
    kvf__batch_rules rules;
    int64_t *start, *example;
    int32_t *ids, *label_at, *label_id, *parent;
    struct kvf__batch_row *rows; /* [most rows] the examples while they are packed */
    kvf__batch_sizes most;
} kvf__batcher;
/* Room for batches of at most so many examples, tokens and labels. */
kvf_status kvf__batcher_init(kvf_ctx *ctx, kvf__batcher *batcher, kvf__batch_rules rules,
                             int64_t examples, int64_t tokens, int64_t labels);
void kvf__batcher_done(kvf__batcher *batcher);
/* Packs the listed examples into batcher->batch: in order, or by common beginnings where sharing
 * saves tokens. On causal bases examples without a label are left out. */
void kvf__batcher_fill(kvf__batcher *batcher, const kvf__dataset *dataset, const int64_t *examples,
                       int64_t n);
/* Raises each of *sizes to that of the batch. */
void kvf__batch_sizes_raise(kvf__batch_sizes *sizes, const kvf__batch_sizes *by);

/* ---- order of steps -------------------------------------------------------------------------- */

/* Which examples form step s (0-based): epochs of the data set, each in an order that depends on
 * (seed, epoch) alone, cut into steps of batch_size rows, or of at most batch_tokens tokens. The
 * last step of an epoch may be shorter. */
typedef struct kvf__sampler {
    const kvf__dataset *dataset;
    bool shuffle;
    uint64_t seed;
    int64_t batch_size, batch_tokens; /* one of them is 0 */
    int64_t epoch, at;                /* next example within the epoch's order */
    int64_t *order;                   /* [n] */
} kvf__sampler;
kvf_status kvf__sampler_init(kvf_ctx *ctx, kvf__sampler *sampler, const kvf__dataset *dataset,
                             bool shuffle, uint64_t seed, int64_t batch_size, int64_t batch_tokens);
void kvf__sampler_done(kvf__sampler *sampler);
void kvf__sampler_rewind(kvf__sampler *sampler); /* to step 0 */
/* Examples of the next step: a view into the order, valid until the next call. *last: this step
 * ends its epoch. */
const int64_t *kvf__sampler_next(kvf__sampler *sampler, int64_t *n, bool *last);

#endif
