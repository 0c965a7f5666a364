/* kvfold's own files, format 1: the prefix file (what inference loads) and the run file (what
 * training resumes). docs/format.md is the contract; h5*.c are the only files that know HDF5.
 *
 * Writers view everything they are given and write whole files (temporary, fsync, rename). Readers
 * own what they return until *_done. Readers trust nothing: superblock version 2 or 3, known names
 * only, hard links only, no external or virtual storage, known filters, ranks, types and sizes as
 * the schema says, checked before any allocation. Files end in a seal, a hash of all bytes before
 * it; it is checked where it is there (h5_priv.h). */
#ifndef KVF_H5_INT_H
#define KVF_H5_INT_H

#include "file_int.h"
#include "prefix.h"
#include "vectors.h"
#include "view.h"

/* What every file but a base says about itself: attributes of the root, and of the dataset
 * /prefix/past_key_values or the group /encoder. */
typedef struct kvf__identity {
    char *base_name;         /* "SmolLM2-135M-Instruct"; informative */
    char *base_architecture; /* "llama" */
    char *base_hash;         /* 32 hex digits, or "" if not known */
    char *method;            /* "mlp", "direct" */
    char *task;              /* "lm" */
    char *chat_template;     /* "none", "chatml", ... as rows were rendered in training */
    int64_t position_start;
    bool infix;    /* placement "infix": the prefix stands inside rows, see batch.h */
    bool raw_keys; /* key_space "pre-rope": its keys are not rotated yet */
    int64_t L, G, P, D;
} kvf__identity;
kvf_status kvf__identity_copy(kvf_ctx *ctx, const kvf__identity *from, kvf__identity *out);
void kvf__identity_done(kvf__identity *id);

/* Owned copies of parameters, as read from a file, in the order in which they were written. grad is
 * NULL, lr_scale 1. The list, names and values are owned. */
typedef struct kvf__params_owned {
    kvf__params params;
} kvf__params_owned;
/* Appends a parameter of this name (taken over, freed on failure too) with room for its values. */
kvf_status kvf__params_owned_add(kvf_ctx *ctx, kvf__params_owned *params, char *name, int rank,
                                 const int64_t *dim, kvf__param **out);
void kvf__params_owned_done(kvf__params_owned *params);

/* The head of a task, with what its outputs mean. A file of task lm has none, or lm_head.weight
 * where that was trained; one of another task must have it. */
typedef struct kvf__head_task {
    char *name, *task; /* "sst2", "seq-cls" */
    size_t n_labels;
    char **labels;
    bool regression;
} kvf__head_task;
typedef struct kvf__head_values {
    kvf__params_owned params; /* Hugging Face names; n = 0: no head */
    size_t n_labels;          /* 0: outputs without names (qa, multiple-choice, regression) */
    char **labels;            /* [n_labels] names by id */
    char **words; /* [n_labels] seq-cls without parameters: the word that stands for each
                     label (--verbalizer); NULL: none */
    bool regression;
    /* A run of several tasks (task KVF__MULTI_TASK): parameters are "NAME/weight", one task's after
     * the other's, and what they mean stands here; the three fields above are empty. A task of lm
     * has no parameters. */
    size_t n_tasks;
    kvf__head_task *tasks;
} kvf__head_values;
#define KVF__MULTI_TASK "multi-task"
/* The head of one of several tasks as that of a run of its own; *task: a view. EUSAGE names those
 * there are. */
kvf_status kvf__head_values_pick(kvf_ctx *ctx, const char *where, const kvf__head_values *from,
                                 const char *name, const char **task, kvf__head_values *out);
/* "a, b" into buf; returns buf. */
const char *kvf__head_names(const kvf__head_values *head, char *buf, size_t cap);
bool kvf__task_has_head(const char *task); /* must have one */
bool kvf__head_fits_task(const char *task, const kvf__head_values *head);
kvf_status kvf__head_values_copy(kvf_ctx *ctx, const kvf__params *params, char *const *labels,
                                 size_t n_labels, bool regression, kvf__head_values *out);
/* Adds copies of words, one for each label; NULL: nothing. */
kvf_status kvf__head_words_copy(kvf_ctx *ctx, char *const *words, kvf__head_values *head);
void kvf__head_values_done(kvf__head_values *head);

/* ---- prefix file ----------------------------------------------------------------------------- */

typedef struct kvf__prefix_file {
    kvf__identity id;
    kvf__prefix prefix;    /* values in f32 whatever the file's dtype; layer_mask inside */
    kvf__dtype dtype;      /* type of the stored values: F32, F16, BF16 or I8 */
    kvf__head_values head; /* f32 always */
    kvf_json *options;     /* object of scalars, or NULL: the training options */
    kvf_json *lineage;     /* object of scalars, or NULL: data hashes, run hash, fold check */
} kvf__prefix_file;
kvf_status kvf__prefix_file_write(kvf_ctx *ctx, const char *path, bool force,
                                  const kvf__prefix_file *file);
kvf_status kvf__prefix_file_read(kvf_ctx *ctx, const char *path, kvf__prefix_file *out);
void kvf__prefix_file_done(kvf__prefix_file *file);
/* The types by their words, "f32", "f16", "bf16", "int8". EUSAGE; NULL: no type of a prefix. */
kvf_status kvf__prefix_dtype_parse(kvf_ctx *ctx, const char *name, kvf__dtype *out);
const char *kvf__prefix_dtype_name(kvf__dtype dtype);
/* What a file of that type will read back as. ENUMERIC: it cannot hold a value; `where` names the
 * prefix. */
kvf_status kvf__prefix_rounded(kvf_ctx *ctx, const char *where, kvf__dtype dtype,
                               const kvf__prefix *from, kvf__prefix *out);

/* ---- embeddings file ------------------------------------------------------------------------- */

typedef struct kvf__embeddings_file {
    kvf__identity id;
    kvf__vectors vectors; /* [P, C] */
    char *pattern;        /* --p-template; NULL or "": they lead the row */
    kvf__head_values head;
    kvf_json *options, *lineage; /* as of a prefix file */
} kvf__embeddings_file;
kvf_status kvf__embeddings_file_write(kvf_ctx *ctx, const char *path, bool force,
                                      const kvf__embeddings_file *file);
kvf_status kvf__embeddings_file_read(kvf_ctx *ctx, const char *path, kvf__embeddings_file *out);
void kvf__embeddings_file_done(kvf__embeddings_file *file);

/* ---- adapter file ---------------------------------------------------------------------------- */

typedef struct kvf__adapter_file {
    kvf__identity id;             /* P = 0 */
    int64_t size;                 /* of the bottleneck */
    char *activation, *placement; /* words of --adapter-activation and --adapter-placement */
    kvf__params_owned params;     /* adapters, then the norms trained with them */
    kvf__head_values head;
    kvf_json *options, *lineage; /* as of a prefix file */
} kvf__adapter_file;
kvf_status kvf__adapter_file_write(kvf_ctx *ctx, const char *path, bool force,
                                   const kvf__adapter_file *file);
kvf_status kvf__adapter_file_read(kvf_ctx *ctx, const char *path, kvf__adapter_file *out);
void kvf__adapter_file_done(kvf__adapter_file *file);

/* ---- run file -------------------------------------------------------------------------------- */

/* The columns of a run's history, in the file's order: the only list of them. Whatever keeps,
 * stores, reads, resumes, logs, compares or draws columns goes over it.
 *
 *   X(name, type, of, units, curve, title, mean)
 *
 *   name   of the member, of the dataset in /history and of the key of --log
 *   of     what measures it; a run without that has no such column (NULL; no dataset)
 *   units  NULL: a plain number
 *   curve  its tag in TensorBoard; NULL: none, or one of its own (the metric's)
 *   title  in the report; NULL: not shown there, or by its own name (the metric's)
 *   mean   a point that stands for several steps is their mean; else the last of them */
#define KVF__HISTORY(X)                                                                            \
    X(step, int64_t, STEP, "steps", NULL, "step", false)                                           \
    X(train_loss, double, STEP, "nats per token", "train/loss", "train loss", true)                \
    X(valid_loss, double, EVAL, "nats per token", "valid/loss", "valid loss", false)               \
    X(valid_metric, double, EVAL, NULL, NULL, NULL, false)                                         \
    X(lr, double, STEP, NULL, "train/lr", "learning rate", false)                                  \
    X(grad_norm, double, STEP, "L2 norm", "train/grad_norm", "gradient norm", true)                \
    X(prefix_norm, double, STEP, "L2 norm", "train/prefix_norm", "prefix norm", false)             \
    X(tokens, int64_t, STEP, "tokens", NULL, NULL, false)                                          \
    X(meter_loss, double, RETENTION, "nats per token", "meter/loss", "meter", false)               \
    X(kl_to_base, double, ANCHOR, "nats per token", "train/kl_to_base", "KL to base", true)

typedef enum kvf__measured {
    KVF__OF_STEP,
    KVF__OF_EVAL,      /* NaN where a step had no validation */
    KVF__OF_RETENTION, /* --retention set */
    KVF__OF_ANCHOR     /* --kl-to-base */
} kvf__measured;

enum {
#define X(name, type, of, units, curve, title, mean) KVF__COLUMN_##name,
    KVF__HISTORY(X)
#undef X
        KVF__COLUMNS
};

typedef struct kvf__column {
    const char *name, *units, *curve, *title;
    kvf__measured of;
    kvf__dtype dtype; /* I64 or F64 */
    bool mean;
} kvf__column;
extern const kvf__column kvf__columns[KVF__COLUMNS];

/* One row per finished step: arrays of n, by name or in the list's order. valid_metric: of what
 * /best is best in; files from before it was kept read as NaN. */
typedef struct kvf__history {
    int64_t n;
    union {
        struct {
#define X(name, type, of, units, curve, title, mean) type *name;
            KVF__HISTORY(X)
#undef X
        };
        void *column[KVF__COLUMNS];
    };
} kvf__history;
double kvf__history_at(const kvf__history *history, int column, int64_t row); /* NaN: no column */
void kvf__history_done(kvf__history *history);

typedef struct kvf__run_file {
    kvf__identity id;
    uint8_t *layer_mask;       /* [L] */
    kvf__params_owned encoder; /* the last step */
    kvf__head_values head;     /* the last step */
    kvf__params_owned best;    /* n = 0: no validation ran yet */
    kvf__params_owned best_head;
    int64_t best_step;
    double best_value;
    char *best_metric; /* "valid_loss", "accuracy", ...; NULL if none */
    kvf__params_owned m,
        v;           /* AdamW moments of encoder, then head; n = 0: an imported encoder, step 0 */
    kvf_json *state; /* object of integers and reals: step, tokens, rng_*, data position ... */
    kvf__history history;
    kvf_json *options, *lineage; /* objects of scalars (i64, f64, text) */
} kvf__run_file;
kvf_status kvf__run_file_write(kvf_ctx *ctx, const char *path, bool force,
                               const kvf__run_file *file);
/* with_optimizer: false leaves m, v, history empty (merge, eval). */
kvf_status kvf__run_file_read(kvf_ctx *ctx, const char *path, bool with_optimizer,
                              kvf__run_file *out);
void kvf__run_file_done(kvf__run_file *file);
/* What the file says about itself, and nothing else of it. */
kvf_status kvf__run_file_identity(kvf_ctx *ctx, const char *path, kvf__identity *out);
/* Its history, and nothing else of it. */
kvf_status kvf__run_file_history(kvf_ctx *ctx, const char *path, kvf__history *out);

/* ---- base file ------------------------------------------------------------------------------- */

typedef struct kvf__base_text {
    char *name, *text; /* "tokenizer.json" */
} kvf__base_text;
/* The task that its weights were trained for, where that has a head. */
typedef struct kvf__base_task {
    kvf__identity id; /* P = 0; base_hash: of these weights */
    kvf__head_values head;
    kvf_json *options, *lineage; /* as of a prefix file */
} kvf__base_task;
typedef struct kvf__base_file {
    char *config;          /* config.json */
    kvf__base_text *texts; /* [n_texts] files of the tokenizer */
    size_t n_texts;
    const kvf__tensor *tensors; /* [n] writing only; viewed */
    size_t n;
    /* Writing: gives the i-th tensor its bytes when its turn comes, until the next call; NULL: they
     * are there. */
    kvf_status (*load)(void *user, size_t i, kvf__view *view);
    void *user;
    const kvf__base_task *task; /* writing; NULL: none */
} kvf__base_file;
bool kvf__base_file_takes(const kvf__view *view); /* a tensor of a type it can hold */
kvf_status kvf__base_file_write(kvf_ctx *ctx, const char *path, bool force,
                                const kvf__base_file *file);
/* weights: views of the mapped file; NULL: only the texts are wanted. */
kvf_status kvf__base_file_open(kvf_ctx *ctx, const char *path, kvf__weights *weights,
                               kvf__base_file *file);
/* *found: it has one; else *out stays empty. */
kvf_status kvf__base_task_read(kvf_ctx *ctx, const char *path, bool *found, kvf__base_task *out);
void kvf__base_task_done(kvf__base_task *task);
/* Copies a text in. */
kvf_status kvf__base_text_add(kvf_ctx *ctx, kvf__base_file *file, const char *name,
                              const char *text, size_t n);
void kvf__base_file_done(kvf__base_file *file); /* config and texts */

/* "run", "prefix", ...: kvfold_kind of an HDF5 file, checked for format 1; out holds at least 16
 * bytes. */
kvf_status kvf__h5_kind(kvf_ctx *ctx, const char *path, char out[16]);

/* HDF5's version as "1.10.8". */
const char *kvf__h5_version(char buf[32]);

#endif
