/* The head of a task in a file (docs/format.md). /head/<Hugging Face name> is a dataset per
 * parameter. /head/labels has the names of classes or tags in the order of their ids. The attribute
 * `regression` marks a regression.
 *
 * Classes read as words of a masked model (--verbalizer) have no parameters: /head/words has the
 * word of each of /head/labels.
 *
 * Several tasks have /heads/<name>/..., each with the attribute `task` and the contents of /head;
 * one of task lm has no parameters.
 *
 * A file of a task other than lm must have a head, without which it would be useless. For task lm
 * the head is the base's, or a trained one (--train-head) with only the matrix lm_head.weight. */
#include "artifact_priv.h"
#include "utf8.h"

#include <string.h>

static const char HEAD[] = "head", HEADS[] = "heads", LABELS[] = "labels", WORDS[] = "words";

enum { MOST_TASKS = 64, MOST_NAME = 64 };

/* Checks names of labels: non-empty, UTF-8, distinct. */
static void check_labels(kvf__h5 *h5, kvf__h5_id at, char *const *labels, size_t n,
                         kvf_status status)
{
    kvf__map seen = {0};
    int64_t before = 0;

    for (size_t i = 0; i < n && !h5->status; i++) {
        size_t bytes = strlen(labels[i]);
        if (bytes == 0)
            kvf__h5_fail(h5, at, status, "label %zu has no name", i);
        else if (kvf__utf8_valid(labels[i], bytes) != bytes)
            kvf__h5_fail(h5, at, status, "the name of label %zu is not UTF-8", i);
        else if (kvf__map_get(&seen, labels[i], bytes, &before))
            kvf__h5_fail(h5, at, status, "labels %lld and %zu are both \"%s\"", (long long)before,
                         i, labels[i]);
        KVF__H5_TRY(h5, kvf__map_put(h5->ctx, &seen, labels[i], bytes, (int64_t)i));
    }
    kvf__map_done(&seen);
}

static void check_name(kvf__h5 *h5, kvf__h5_id heads, const char *name, kvf_status status)
{
    size_t n = strlen(name);

    if (!n || n > MOST_NAME ||
        strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != n)
        kvf__h5_fail(h5, heads, status, "\"%s\" cannot name a task", name);
}

/* ---- writing --------------------------------------------------------------------------------- */

static void write_labels(kvf__h5 *h5, kvf__h5_id group, const char *name, char *const *labels,
                         size_t n)
{
    check_labels(h5, group, labels, n, KVF_EUSAGE);
    if (n) kvf__h5_texts_write(h5, group, name, labels, n);
}

static void write_task(kvf__h5 *h5, kvf__h5_id heads, const kvf__head_values *head,
                       const kvf__head_task *task)
{
    kvf__params own = {0};

    check_name(h5, heads, task->name, KVF_EUSAGE);
    KVF__H5_TRY(h5, kvf__head_task_params(h5->ctx, head, task->name, &own));
    kvf__h5_id group = kvf__param_group_write(h5, heads, task->name, &own);
    kvf__h5_put_text(h5, group, "task", task->task);
    kvf__h5_put_bool(h5, group, "regression", task->regression);
    write_labels(h5, group, LABELS, task->labels, task->n_labels);
    kvf__h5_release(&group);
    kvf__params_done(&own);
}

static void write_tasks(kvf__h5 *h5, const kvf__head_values *head)
{
    kvf__h5_id heads = kvf__h5_group_create(h5, h5->file, HEADS);

    for (size_t i = 0; i < head->n_tasks; i++)
        write_task(h5, heads, head, &head->tasks[i]);
    kvf__h5_release(&heads);
}

static void write_one(kvf__h5 *h5, const kvf__head_values *head)
{
    kvf__h5_id group = kvf__param_group_write(h5, h5->file, HEAD, &head->params.params);

    kvf__h5_put_bool(h5, group, "regression", head->regression);
    write_labels(h5, group, LABELS, head->labels, head->n_labels);
    if (head->words) write_labels(h5, group, WORDS, head->words, head->n_labels);
    kvf__h5_release(&group);
}

void kvf__head_write(kvf__h5 *h5, const char *task, const kvf__head_values *head)
{
    if (!kvf__head_fits_task(task, head))
        kvf__h5_fail(h5, h5->file, KVF_EUSAGE, "task \"%s\" with %zu parameters of a head",
                     task ? task : "", head->params.params.n);
    else if (head->n_tasks)
        write_tasks(h5, head);
    else if (head->params.params.n || head->words)
        write_one(h5, head);
}

/* ---- reading --------------------------------------------------------------------------------- */

static void read_labels(kvf__h5 *h5, kvf__h5_id group, char ***labels, size_t *n)
{
    if (!kvf__h5_has(h5, group, LABELS)) return;
    *labels = kvf__h5_texts_read(h5, group, LABELS, n);
    check_labels(h5, group, *labels, *n, KVF_EFORMAT);
}

static void read_task(kvf__h5 *h5, kvf__h5_id heads, kvf__head_task *task,
                      kvf__params_owned *params)
{
    check_name(h5, heads, task->name, KVF_EFORMAT);
    kvf__h5_id group = kvf__h5_group_open(h5, heads, task->name);
    task->task = kvf__h5_get_text(h5, group, "task");
    task->regression = kvf__h5_get_bool(h5, group, "regression");
    read_labels(h5, group, &task->labels, &task->n_labels);
    kvf__param_group_read_task(h5, group, task->name, LABELS, params);
    kvf__h5_release(&group);
}

static void read_tasks(kvf__h5 *h5, kvf__head_values *out)
{
    kvf__h5_id heads = kvf__h5_group_open(h5, h5->file, HEADS);
    size_t n = kvf__h5_child_count(h5, heads);

    if (n < 1 || n > MOST_TASKS)
        kvf__h5_fail(h5, heads, KVF_EFORMAT, "%zu tasks, want 1 to %d", n, MOST_TASKS);
    KVF__H5_TRY(h5, kvf__alloc_array(h5->ctx, n, sizeof *out->tasks, &out->tasks));
    char **names = kvf__h5_child_names(h5, heads, n);
    for (size_t i = 0; i < n && !h5->status; i++) {
        kvf__head_task *task = &out->tasks[out->n_tasks++];
        task->name = names[i]; /* ownership passes */
        names[i] = NULL;
        read_task(h5, heads, task, &out->params);
    }
    kvf__strings_free(names, n);
    kvf__h5_release(&heads);
}

/* Reads the words of a head. Additional parameters are refused, because they would be lost. */
static void read_words(kvf__h5 *h5, kvf__h5_id group, kvf__head_values *head)
{
    size_t children = kvf__h5_child_count(h5, group), n = 0;

    if (children != 2)
        kvf__h5_fail(h5, group, KVF_EFORMAT, "%zu datasets, want labels and words", children);
    read_labels(h5, group, &head->labels, &head->n_labels);
    char **words = kvf__h5_texts_read(h5, group, WORDS, &n);
    if (n != head->n_labels)
        kvf__h5_fail(h5, group, KVF_EFORMAT, "%zu words for %zu labels", n, head->n_labels);
    check_labels(h5, group, words, n, KVF_EFORMAT);
    if (n == head->n_labels)
        head->words = words;
    else
        kvf__strings_free(words, n);
}

static void read_one(kvf__h5 *h5, const char *task, kvf__head_values *out)
{
    kvf__h5_id group = kvf__h5_group_open(h5, h5->file, HEAD);

    out->regression = kvf__h5_get_bool(h5, group, "regression");
    bool words = kvf__h5_has(h5, group, WORDS);
    if (words) {
        read_words(h5, group, out);
    } else {
        kvf__param_group_read(h5, group, LABELS, &out->params);
        read_labels(h5, group, &out->labels, &out->n_labels);
    }
    if (!h5->status && !kvf__head_fits_task(task, out))
        kvf__h5_fail(h5, group, KVF_EFORMAT,
                     words ? "task is \"%s\", which has no words"
                           : "task is \"%s\", whose head has only lm_head.weight",
                     task);
    kvf__h5_release(&group);
}

void kvf__head_read(kvf__h5 *h5, const char *task, kvf__head_values *out)
{
    if (h5->status) return;
    if (!strcmp(task, KVF__MULTI_TASK))
        read_tasks(h5, out);
    else if (kvf__h5_has(h5, h5->file, HEAD))
        read_one(h5, task, out);
    else if (kvf__task_has_head(task))
        kvf__h5_fail(h5, h5->file, KVF_EFORMAT, "task is \"%s\", but there is no /head", task);
}
