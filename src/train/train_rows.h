/* Training data of a run: a list of tasks, each with data, sampler, head and validation. Most runs
 * have one task. Several tasks (--data NAME=FILE) share the prefix, as in multi-task P-tuning v2
 * (Liu et al. 2022, section 4). Each step trains one task, drawn from seed and step only, so
 * --resume needs no stored state. */
#ifndef KVF_TRAIN_ROWS_H
#define KVF_TRAIN_ROWS_H

#include "evaluator.h"
#include "run.h"
#include "teacher.h"

typedef struct kvf__train_task {
    char *name;         /* NULL: the only task, unnamed; owned */
    const char *path;   /* data file; NULL: rows in memory */
    const char *labels; /* --labels; NULL: learnt from the data */
    kvf__task kind;
    kvf__dataset data, valid;  /* valid.n = 0: no validation */
    kvf__evaluator *evaluator; /* evaluator of valid; NULL: none */
    const kvf__metric *metric; /* metric of its validation */
    kvf__sampler sampler;
    kvf__head *head;   /* head of the task or of --train-head; NULL: the base's own */
    char **words;      /* --verbalizer: word of each label; NULL: none; owned */
    char **names;      /* "NAME/parameter" of the head, for a named task; owned */
    kvf__param low[2]; /* --task-prefix low-rank: u, v; owned; value NULL: none */
} kvf__train_task;

/* Data sets from a feed. The caller of open() owns them. */
typedef struct kvf__fed {
    kvf__dataset data, valid;
    kvf__teacher teacher; /* targets instead of labels; k = 0: none */
    /* Prefix of n_beside parts that rows read beside the trained one in every other step;
     * borrowed; NULL: none. */
    const kvf__prefix *beside;
    size_t n_beside;
} kvf__fed;

struct kvf__train_rows;

/* Generated rows for the only task of a run. `user` outlives it. */
typedef struct kvf__feed {
    /* Fills *out, which is zeroed. Called once, after base and renderer are open. May set options
     * that were not given. The run owns the content of *out, even on failure. */
    kvf_status (*open)(void *user, kvf__run *run, const struct kvf__train_rows *rows,
                       kvf__fed *out);
    void (*lineage)(void *user, kvf_json *lineage); /* adds the origin of the rows */
    /* --init match: fills the initial prefix, which is zeroed. NULL: match_rows.c fills it. */
    kvf_status (*start)(void *user, kvf__run *run, kvf__prefix *target);
    /* Returns the prefix whose state rows begin with (prefix.h). NULL: that of --init. */
    const kvf__prefix *(*state)(void *user);
    /* Replaces the rows of the next step and their targets in place, given the current prefix. A
     * new row is no longer than the old one. NULL: rows do not change. */
    kvf_status (*renew)(void *user, const kvf__run *run, struct kvf__train_rows *rows,
                        const kvf__prefix *prefix, const int64_t *examples, int64_t n);
    void *user;
} kvf__feed;

/* Data sets shared by several runs on one base (read_once.c): a file is loaded and tokenized once
 * for all options that give the same rows. */
typedef struct kvf__reads kvf__reads;
kvf_status kvf__reads_create(kvf_ctx *ctx, kvf__reads **out);
void kvf__reads_free(kvf__reads *reads);
/* Like kvf__dataset_load, with the result cached for later runs. */
kvf_status kvf__reads_load(kvf_ctx *ctx, kvf__reads *reads, const kvf_train_options *run,
                           const char *path, const kvf__dataset_options *options,
                           kvf__dataset *out);

/* Totals over all tasks. */
typedef struct kvf__rows_total {
    int64_t rows, labels, truncated, valid_rows;
    char hash[33], valid_hash[33]; /* hash of the only task, or of all names and hashes */
} kvf__rows_total;

typedef struct kvf__train_rows {
    kvf__train_task *task; /* [n] owned */
    size_t n;
    kvf__train_task *now; /* task of the current step */
    kvf__rows_total total;
    int64_t epoch_steps; /* steps of an epoch over all tasks */
    bool epoch_end;      /* the last drawn step ends an epoch */
    kvf__renderer renderer;
    kvf__batcher batcher;
    kvf__teacher teacher;      /* targets instead of labels; k = 0: none */
    const kvf__prefix *beside; /* as in kvf__fed */
    size_t n_beside;
    const kvf__feed *feed; /* NULL: data and valid come from the options' files */
    kvf__reads *reads;     /* shared with other runs; NULL: none */
} kvf__train_rows;

/* ---- the list of tasks (task_list.c) --------------------------------------------------------- */

/* Creates the list with names, paths and kinds; one unnamed task by default. */
kvf_status kvf__tasks_create(kvf__run *run, kvf__train_rows *rows);
void kvf__tasks_done(kvf__train_rows *rows);
/* Loads the data from files or a feed, and creates metrics and evaluators. */
kvf_status kvf__tasks_open(kvf__run *run, kvf__train_rows *rows);
/* Loads and checks one data file of a task. *out is task->data, task->valid or another set with the
 * task's labels. */
kvf_status kvf__task_load(kvf__run *run, const kvf__train_rows *rows, const kvf__train_task *task,
                          const char *path, kvf__dataset *out);
/* True for several named tasks. */
bool kvf__tasks_are_named(const kvf__train_rows *rows);
/* Describes the heads for a run file. *out owns only the array of tasks. */
kvf_status kvf__tasks_describe(kvf_ctx *ctx, const kvf__train_rows *rows, kvf__head_values *out);
/* Compares with the tasks of a run file. EUSAGE: they differ. */
kvf_status kvf__tasks_compare(const kvf__run *run, const kvf__train_rows *rows,
                              const kvf__head_values *stored);
/* task_heads.c: creates the heads of all tasks; appends their parameters, and low-rank vectors, to
 * *out; returns the parameters of one head, NULL if there is none. */
kvf_status kvf__tasks_make_heads(kvf__run *run, kvf__train_rows *rows);
kvf_status kvf__tasks_list_params(kvf_ctx *ctx, const kvf__train_rows *rows, kvf__params *out);
kvf__params *kvf__task_head_params(const kvf__train_task *task);

/* ---- rows of steps (step_rows.c) ------------------------------------------------------------- */

/* The rows of a step, processed in parts (--grad-accum). */
typedef struct kvf__step_rows {
    const int64_t *examples; /* [n] rows of rows.now's data */
    int64_t n, done, part;   /* their number; rows in earlier parts; in the current part */
    int64_t terms;           /* number of terms in the mean loss */
    float scale;             /* 1 / terms */
    double loss_sum;         /* loss of the parts so far */
} kvf__step_rows;

/* Draws the rows of step `step`, sets rows.now to its task and advances the sampler. Returns [*n]
 * rows. Steps must be drawn in order, from the first one after a rewind. */
const int64_t *kvf__rows_draw(const kvf__run *run, kvf__train_rows *rows, int64_t step, int64_t *n);
void kvf__rows_rewind(kvf__train_rows *rows);
/* Moves the samplers to the next step. */
void kvf__rows_seek(const kvf__run *run, kvf__train_rows *rows);
/* Counts the terms of the loss of the drawn rows, then keeps the rows of this process. */
void kvf__step_rows_count(kvf__run *run, kvf__train_rows *rows, kvf__step_rows *step);
/* Fills the batcher with the next part; false: there is none. peek: looks ahead without counting.
 */
bool kvf__step_rows_next(kvf__run *run, kvf__train_rows *rows, kvf__step_rows *step);
bool kvf__step_rows_peek(const kvf__run *run, kvf__train_rows *rows, kvf__step_rows *step);
/* Selects the rows of the next part without filling the batcher. */
bool kvf__step_rows_part(const kvf__run *run, const kvf__train_rows *rows, kvf__step_rows *step);

#endif
