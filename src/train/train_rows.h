/* What a run is trained on: a list of tasks, each with its data, sampler, head and validation. Most
 * runs have one. Several (--data NAME=FILE) share the prefix, as in multi-task P-tuning v2 (Liu et
 * al. 2022, section 4); each step is one task's, drawn from seed and step alone, so nothing is
 * stored for --resume. */
#ifndef KVF_TRAIN_ROWS_H
#define KVF_TRAIN_ROWS_H

#include "evaluator.h"
#include "run.h"
#include "teacher.h"

typedef struct kvf__train_task {
    char *name;         /* NULL: the only one, unnamed; owned */
    const char *path;   /* of its data; NULL: they come from memory */
    const char *labels; /* --labels; NULL: learnt from the data */
    kvf__task kind;
    kvf__dataset data, valid;  /* valid.n = 0: no validation */
    kvf__evaluator *evaluator; /* of valid; NULL: none */
    const kvf__metric *metric; /* of its validation */
    kvf__sampler sampler;
    kvf__head *head;   /* the task's, or --train-head's; NULL: the base's own */
    char **words;      /* --verbalizer: by label; NULL: none; owned */
    char **names;      /* "NAME/parameter" of the head's, where the task has a name; owned */
    kvf__param low[2]; /* --task-prefix low-rank: u, v; owned; value NULL: none */
} kvf__train_task;

/* Data sets from a feed. The caller of open() owns them. */
typedef struct kvf__fed {
    kvf__dataset data, valid;
    kvf__teacher teacher; /* targets in place of labels; k = 0: none */
} kvf__fed;

struct kvf__train_rows;

/* Rows that no file holds, for the only task of a run. `user` outlives it. */
typedef struct kvf__feed {
    /* Fills *out, which is zeroed. Called once base and renderer are open; may set options that the
     * user left open. The run takes the content of *out, on failure too. */
    kvf_status (*open)(void *user, kvf__run *run, const struct kvf__train_rows *rows,
                       kvf__fed *out);
    void (*lineage)(void *user, kvf_json *lineage); /* adds the origin of the rows */
    /* --init match: fills the initial prefix, which is zeroed. NULL: match_rows.c fills it. */
    kvf_status (*start)(void *user, kvf__run *run, kvf__prefix *target);
    /* Replaces the rows of the next step and their targets in place, given the current prefix. A
     * new row is no longer than the old one. NULL: rows do not change. */
    kvf_status (*renew)(void *user, const kvf__run *run, struct kvf__train_rows *rows,
                        const kvf__prefix *prefix, const int64_t *examples, int64_t n);
    void *user;
} kvf__feed;

/* Rows that several runs on one base have in common (read_once.c): a file is read and made into ids
 * once for all options that make the same rows of it. */
typedef struct kvf__reads kvf__reads;
kvf_status kvf__reads_create(kvf_ctx *ctx, kvf__reads **out);
void kvf__reads_free(kvf__reads *reads);
/* Like kvf__dataset_load, with the result cached for later runs. */
kvf_status kvf__reads_load(kvf_ctx *ctx, kvf__reads *reads, const kvf_train_options *run,
                           const char *path, const kvf__dataset_options *options,
                           kvf__dataset *out);

/* Of all tasks together. */
typedef struct kvf__rows_total {
    int64_t rows, labels, valid_rows;
    char hash[33], valid_hash[33]; /* of one unnamed task its own, else of names and hashes */
} kvf__rows_total;

typedef struct kvf__train_rows {
    kvf__train_task *task; /* [n] owned */
    size_t n;
    kvf__train_task *now; /* the task of the step at hand */
    kvf__rows_total total;
    int64_t epoch_steps; /* of an epoch; of all tasks */
    bool epoch_end;      /* the step drawn last ends an epoch */
    kvf__renderer renderer;
    kvf__batcher batcher;
    kvf__teacher teacher;  /* targets in place of labels; k = 0: none */
    const kvf__feed *feed; /* NULL: data and valid come from the options' files */
    kvf__reads *reads;     /* shared with other runs; NULL: none */
} kvf__train_rows;

/* ---- the list of tasks (task_list.c) --------------------------------------------------------- */

/* The list, with names, paths and kinds; unnamed: one task. */
kvf_status kvf__tasks_create(kvf__run *run, kvf__train_rows *rows);
void kvf__tasks_done(kvf__train_rows *rows);
/* Their data, from files or a feed; metrics and evaluators. */
kvf_status kvf__tasks_open(kvf__run *run, kvf__train_rows *rows);
/* One data file of a task, with its checks; *out is task->data, task->valid or another set that has
 * the task's labels. */
kvf_status kvf__task_load(kvf__run *run, const kvf__train_rows *rows, const kvf__train_task *task,
                          const char *path, kvf__dataset *out);
/* Several tasks with names? */
bool kvf__tasks_are_named(const kvf__train_rows *rows);
/* Their heads as a run file lists them: *out views all but the array of tasks. */
kvf_status kvf__tasks_describe(kvf_ctx *ctx, const kvf__train_rows *rows, kvf__head_values *out);
/* EUSAGE: the file's tasks are others. */
kvf_status kvf__tasks_compare(const kvf__run *run, const kvf__train_rows *rows,
                              const kvf__head_values *stored);
/* task_heads.c: makes the heads of all tasks; lists their parameters, and low-rank vectors, after
 * those of *out; those of one, NULL where it has no head. */
kvf_status kvf__tasks_make_heads(kvf__run *run, kvf__train_rows *rows);
kvf_status kvf__tasks_list_params(kvf_ctx *ctx, const kvf__train_rows *rows, kvf__params *out);
kvf__params *kvf__task_head_params(const kvf__train_task *task);

/* ---- rows of steps (step_rows.c) ------------------------------------------------------------- */

/* The rows of one step on their way through the pass, in parts (--grad-accum). */
typedef struct kvf__step_rows {
    const int64_t *examples; /* [n] of rows.now's data */
    int64_t n, done, part;   /* of them, rows in parts so far; in the last part */
    int64_t terms;           /* what the loss is a mean of */
    float scale;             /* 1 / terms */
    double loss_sum;         /* over the parts so far */
} kvf__step_rows;

/* The task of step `step` becomes rows.now; its sampler moves on. Returns [*n] rows. Steps are
 * drawn in their order, from the first one after a rewind. */
const int64_t *kvf__rows_draw(const kvf__run *run, kvf__train_rows *rows, int64_t step, int64_t *n);
void kvf__rows_rewind(kvf__train_rows *rows);
/* To the step that comes next. */
void kvf__rows_seek(const kvf__run *run, kvf__train_rows *rows);
/* Counts the terms of the loss of the drawn rows, then keeps the rows of this process. */
void kvf__step_rows_count(kvf__run *run, kvf__train_rows *rows, kvf__step_rows *step);
/* Fills the batcher with the next part; false: there is none. peek: for a look ahead, nothing is
 * counted. */
bool kvf__step_rows_next(kvf__run *run, kvf__train_rows *rows, kvf__step_rows *step);
bool kvf__step_rows_peek(const kvf__run *run, kvf__train_rows *rows, kvf__step_rows *step);
/* Which rows the next part has, without a batch of them. */
bool kvf__step_rows_part(const kvf__run *run, const kvf__train_rows *rows, kvf__step_rows *step);

#endif
