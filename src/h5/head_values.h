/* Parameters and heads as files hold them: owned copies. */
#ifndef KVF_HEAD_VALUES_H
#define KVF_HEAD_VALUES_H

#include "param.h"

/* Owned copies of parameters, as read from a file, in the order in which they were written. grad is
 * NULL, lr_scale 1. The list, names and values are owned. */
typedef struct kvf__params_owned {
    kvf__params params;
} kvf__params_owned;
/* Appends a parameter of this name with room for its values. */
kvf_status kvf__params_owned_add(kvf_ctx *ctx, kvf__params_owned *params, const char *name,
                                 int rank, const int64_t *dim, kvf__param **out);
void kvf__params_owned_done(kvf__params_owned *params);
void kvf__strings_free(char **strings, size_t n); /* and the list; NULL is fine */

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
    char **words; /* [n_labels] seq-cls without parameters: the word of each label (--verbalizer);
                     NULL: none */
    bool regression;
    /* A run of several tasks (task KVF__MULTI_TASK): parameters are "NAME/weight", one task's after
     * the other's, and their meaning is here; the three fields above are empty. A task of lm
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

#endif
