/* What a run is trained on: a list of tasks, each with its data, sampler, head and validation. Most
 * runs have one. Several (--data NAME=FILE) share the prefix, as in multi-task P-tuning v2 (Liu et
 * al. 2022, section 4); each step is one task's, drawn from seed and step alone, so nothing is
 * stored for --resume. */
#ifndef KVF_TRAIN_ROWS_H
#define KVF_TRAIN_ROWS_H

#include "evaluator.h"
#include "metric_int.h"
#include "options.h"

struct kvf__trainer;

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

/* Rows that no file holds: fills data and valid of the only task of a trainer whose base and
 * renderer are open, and its teacher where there is one. `user` outlives
 * the trainer. */
typedef struct kvf__feed {
    kvf_status (*open)(void *user, struct kvf__trainer *trainer);
    void (*lineage)(void *user, kvf_json *lineage); /* adds what the rows came from */
    /* --init match: what a prefix is to start from, zeros so far. NULL: rows (match_rows.c). */
    kvf_status (*start)(void *user, struct kvf__trainer *trainer, kvf__prefix *target);
    /* Before a step: makes its rows anew, in their places and no longer. NULL: they stay. */
    kvf_status (*renew)(void *user, struct kvf__trainer *trainer, const int64_t *rows, int64_t n);
    void *user;
} kvf__feed;

/* Rows that several runs on one base have in common (read_once.c): a file is read and made into ids
 * once for all options that make the same rows of it. */
typedef struct kvf__reads kvf__reads;
kvf_status kvf__reads_create(kvf_ctx *ctx, kvf__reads **out);
void kvf__reads_free(kvf__reads *reads);
/* As kvf__dataset_load, for the trainer's run. */
kvf_status kvf__reads_load(struct kvf__trainer *trainer, const char *path,
                           const kvf__dataset_options *options, kvf__dataset *out);

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
    const kvf__feed *feed; /* NULL: data and valid come from the options' files */
    kvf__reads *reads;     /* shared with other runs; NULL: none */
} kvf__train_rows;

/* ---- the list of tasks (task_list.c) --------------------------------------------------------- */

/* The list, with names, paths and kinds; unnamed: one task. */
kvf_status kvf__tasks_create(struct kvf__trainer *trainer);
void kvf__tasks_done(struct kvf__trainer *trainer);
/* Their data, metrics and evaluators. */
kvf_status kvf__tasks_open(struct kvf__trainer *trainer);
/* One data file of a task, with its checks; *out is task->data, task->valid or another set that has
 * the task's labels. */
kvf_status kvf__task_load(struct kvf__trainer *trainer, const kvf__train_task *task,
                          const char *path, kvf__dataset *out);
/* Several tasks with names? */
bool kvf__tasks_are_named(const struct kvf__trainer *trainer);
/* Their heads as a run file lists them: *out views all but the array of tasks. */
kvf_status kvf__tasks_describe(struct kvf__trainer *trainer, kvf__head_values *out);
/* EUSAGE: the file's tasks are others. */
kvf_status kvf__tasks_compare(struct kvf__trainer *trainer, const kvf__head_values *stored);
/* Every task's validation under what is emitted; the means are the run's. */
kvf_status kvf__tasks_validate(struct kvf__trainer *trainer);

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
const int64_t *kvf__rows_draw(struct kvf__trainer *trainer, int64_t step, int64_t *n);
void kvf__rows_rewind(struct kvf__trainer *trainer);
/* Moves the samplers to the step that comes next, of KL to the base too. */
void kvf__rows_seek(struct kvf__trainer *trainer);
/* The rows of the step at hand: drawn, their terms counted, and of several processes this one's. */
kvf_status kvf__step_rows_begin(struct kvf__trainer *trainer, kvf__step_rows *rows);
/* Fills the batcher with the next part; false: there is none. peek: for a look ahead, nothing is
 * counted. */
bool kvf__step_rows_next(struct kvf__trainer *trainer, kvf__step_rows *rows);
bool kvf__step_rows_peek(struct kvf__trainer *trainer, kvf__step_rows *rows);
/* Which rows the next part has, without a batch of them. */
bool kvf__step_rows_part(const struct kvf__trainer *trainer, kvf__step_rows *rows);

/* ---- rows of a whole run (lengths.c) --------------------------------------------------------- */

/* How many steps, and the schedule over them. */
kvf_status kvf__trainer_lengths(struct kvf__trainer *trainer);
/* Makes what only steps need, by the sizes of those to come: batcher, pass, its primitives, what
 * the heads need. */
kvf_status kvf__trainer_prepare(struct kvf__trainer *trainer);
/* Of these the part that several runs with one pass in common have each. *limits: of a pass for the
 * run alone. */
kvf_status kvf__trainer_prepare_batches(struct kvf__trainer *trainer, kvf__pass_limits *limits);

#endif
