/* Parameters and heads as stored in files: owned copies. */
#ifndef KVF_HEAD_VALUES_H
#define KVF_HEAD_VALUES_H

#include "param.h"

/* Owned copies of a file's parameters, in the order of writing. grad is NULL, lr_scale 1. */
typedef struct kvf__params_owned {
    kvf__params params;
} kvf__params_owned;
/* Appends a parameter with memory for its values. */
kvf_status kvf__params_owned_add(kvf_ctx *ctx, kvf__params_owned *params, const char *name,
                                 int rank, const int64_t *dim, kvf__param **out);
void kvf__params_owned_done(kvf__params_owned *params);
void kvf__strings_free(char **strings, size_t n); /* frees the list too; strings may be NULL */

/* The head of a task, with the meaning of its outputs. A file of task lm has none, or a trained
 * lm_head.weight; files of other tasks must have one. */
typedef struct kvf__head_task {
    char *name, *task; /* "sst2", "seq-cls" */
    size_t n_labels;
    char **labels;
    bool regression;
} kvf__head_task;
typedef struct kvf__head_values {
    kvf__params_owned params; /* Hugging Face names; n = 0: no head */
    size_t n_labels;          /* 0: unnamed outputs (qa, multiple-choice, regression) */
    char **labels;            /* [n_labels] names by id */
    char **words; /* [n_labels] seq-cls without parameters: the word of each label (--verbalizer);
                     NULL: none */
    bool regression;
    /* A run of several tasks (task KVF__MULTI_TASK): parameters are "NAME/weight", task after task,
     * with their meaning here; the three fields above are empty. A task of lm has no parameters. */
    size_t n_tasks;
    kvf__head_task *tasks;
} kvf__head_values;
#define KVF__MULTI_TASK "multi-task"
/* Extracts the head of one of several tasks as a single head; *task: a view. EUSAGE lists the
 * names. */
kvf_status kvf__head_values_pick(kvf_ctx *ctx, const char *where, const kvf__head_values *from,
                                 const char *name, const char **task, kvf__head_values *out);
/* Writes "a, b" to buf; returns buf. */
const char *kvf__head_names(const kvf__head_values *head, char *buf, size_t cap);
bool kvf__task_has_head(const char *task); /* whether files of the task must have one */
bool kvf__head_fits_task(const char *task, const kvf__head_values *head);
kvf_status kvf__head_values_copy(kvf_ctx *ctx, const kvf__params *params, char *const *labels,
                                 size_t n_labels, bool regression, kvf__head_values *out);
/* Adds copies of words, one for each label; NULL: none. */
kvf_status kvf__head_words_copy(kvf_ctx *ctx, char *const *words, kvf__head_values *head);
void kvf__head_values_done(kvf__head_values *head);

#endif
