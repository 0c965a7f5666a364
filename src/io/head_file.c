/* The head of a task in a file: /head/<Hugging Face name>, one dataset per parameter, /head/labels
 * with the names of classes or tags in the order of their ids, and the attribute `regression`
 * (docs/format.md).
 *
 * Classes that are read as words of a masked model (--verbalizer) have no parameters: /head/words
 * says which word stands for each of /head/labels.
 *
 * A file of another task than lm must have one: read without its head it would be of no use. One of
 * task lm has the base's, or its own where that was trained (--train-head): the matrix
 * lm_head.weight and nothing else. */
#include "h5_priv.h"
#include "utf8.h"

#include <string.h>

static const char GROUP[] = "head", LABELS[] = "labels", WORDS[] = "words";

bool kvf__task_has_head(const char *task)
{
    return task && *task && strcmp(task, "lm") != 0;
}

bool kvf__head_fits_task(const char *task, const kvf__head_values *head)
{
    const kvf__params *params = &head->params.params;

    if (task && !strcmp(task, KVF__MULTI_TASK)) return head->n_tasks > 0;
    if (head->n_tasks) return false;
    if (head->words)
        return task && !strcmp(task, "seq-cls") && !params->n && head->n_labels &&
               !head->regression;
    if (kvf__task_has_head(task)) return params->n > 0;
    return !params->n || (params->n == 1 && params->item[0].rank == 2 && !head->n_labels &&
                          !head->regression && !strcmp(params->item[0].name, "lm_head.weight"));
}

/* Named, in UTF-8, and no two alike. */
kvf_status kvf__labels_check(kvf__h5 *h5, kvf__h5_id at, char *const *labels, size_t n,
                             kvf_status status)
{
    kvf__map seen = {0};
    int64_t before = 0;
    kvf_status st = KVF_OK;

    for (size_t i = 0; i < n && !st; i++) {
        size_t bytes = strlen(labels[i]);
        if (bytes == 0)
            st = kvf__h5_fail(h5, at, status, "label %zu has no name", i);
        else if (kvf__utf8_valid(labels[i], bytes) != bytes)
            st = kvf__h5_fail(h5, at, status, "the name of label %zu is not UTF-8", i);
        else if (kvf__map_get(&seen, labels[i], bytes, &before))
            st = kvf__h5_fail(h5, at, status, "labels %lld and %zu are both \"%s\"",
                              (long long)before, i, labels[i]);
        else
            st = kvf__map_put(h5->ctx, &seen, labels[i], bytes, (int64_t)i);
    }
    kvf__map_done(&seen);
    return st;
}

kvf_status kvf__head_write(kvf__h5 *h5, const char *task, const kvf__head_values *head)
{
    kvf__h5_id group = KVF__H5_NONE;
    kvf_status st;

    if (!kvf__head_fits_task(task, head))
        return kvf__h5_fail(h5, h5->file, KVF_EUSAGE, "task \"%s\" with %zu parameters of a head",
                            task ? task : "", head->params.params.n);
    if (head->n_tasks) return kvf__heads_write(h5, head);
    if (!head->params.params.n && !head->words) return KVF_OK;
    st = kvf__run_params_write(h5, h5->file, GROUP, &head->params.params, &group);
    if (st) goto out;
    st = kvf__h5_put_bool(h5, group, "regression", head->regression);
    if (st) goto out;
    st = kvf__labels_check(h5, group, head->labels, head->n_labels, KVF_EUSAGE);
    if (st) goto out;
    if (head->n_labels) st = kvf__h5_texts_write(h5, group, LABELS, head->labels, head->n_labels);
    if (st || !head->words) goto out;
    st = kvf__labels_check(h5, group, head->words, head->n_labels, KVF_EUSAGE);
    if (!st) st = kvf__h5_texts_write(h5, group, WORDS, head->words, head->n_labels);
out:
    kvf__h5_release(&group);
    return st;
}

static kvf_status read_labels(kvf__h5 *h5, kvf__h5_id group, kvf__head_values *head)
{
    bool there = false;

    KVF_TRY(kvf__h5_has(h5, group, LABELS, &there));
    if (!there) return KVF_OK;
    KVF_TRY(kvf__h5_texts_read(h5, group, LABELS, &head->labels, &head->n_labels));
    return kvf__labels_check(h5, group, head->labels, head->n_labels, KVF_EFORMAT);
}

/* Of a head that is words; parameters beside them would be left out without a word. */
static kvf_status read_words(kvf__h5 *h5, kvf__h5_id group, kvf__head_values *head)
{
    size_t children = 0, n = 0;
    char **words = NULL;
    kvf_status st;

    KVF_TRY(kvf__h5_child_count(h5, group, &children));
    if (children != 2)
        return kvf__h5_fail(h5, group, KVF_EFORMAT, "%zu datasets, want labels and words",
                            children);
    KVF_TRY(read_labels(h5, group, head));
    KVF_TRY(kvf__h5_texts_read(h5, group, WORDS, &words, &n));
    if (n != head->n_labels)
        st = kvf__h5_fail(h5, group, KVF_EFORMAT, "%zu words for %zu labels", n, head->n_labels);
    else
        st = kvf__labels_check(h5, group, words, n, KVF_EFORMAT);
    if (!st) {
        head->words = words;
        return KVF_OK;
    }
    for (size_t i = 0; i < n; i++)
        kvf__free(words[i]);
    kvf__free(words);
    return st;
}

static kvf_status read_params(kvf__h5 *h5, kvf__h5_id group, kvf__head_values *head)
{
    KVF_TRY(kvf__run_params_read(h5, group, LABELS, &head->params));
    return read_labels(h5, group, head);
}

kvf_status kvf__head_read(kvf__h5 *h5, const char *task, kvf__head_values *out)
{
    kvf__h5_id group = KVF__H5_NONE;
    bool there = false, words = false;
    kvf_status st;

    if (!strcmp(task, KVF__MULTI_TASK)) return kvf__heads_read(h5, out);
    KVF_TRY(kvf__h5_has(h5, h5->file, GROUP, &there));
    if (!there && kvf__task_has_head(task))
        return kvf__h5_fail(h5, h5->file, KVF_EFORMAT, "task is \"%s\", but there is no /head",
                            task);
    if (!there) return KVF_OK;
    st = kvf__h5_group_open(h5, h5->file, GROUP, &group);
    if (st) goto out;
    st = kvf__h5_get_bool(h5, group, "regression", &out->regression);
    if (st) goto out;
    st = kvf__h5_has(h5, group, WORDS, &words);
    if (st) goto out;
    st = words ? read_words(h5, group, out) : read_params(h5, group, out);
    if (st) goto out;
    if (!kvf__head_fits_task(task, out))
        st = kvf__h5_fail(h5, group, KVF_EFORMAT,
                          words ? "task is \"%s\", which has no words"
                                : "task is \"%s\", which has a head of lm_head.weight alone",
                          task);
out:
    kvf__h5_release(&group);
    return st;
}

kvf_status kvf__head_values_copy(kvf_ctx *ctx, const kvf__params *params, char *const *labels,
                                 size_t n_labels, bool regression, kvf__head_values *out)
{
    kvf__head_values head = {.regression = regression};
    kvf_status st = KVF_OK;

    for (size_t i = 0; !st && i < params->n; i++) {
        const kvf__param *from = &params->item[i];
        kvf__param *to = NULL;
        char *name = NULL;
        st = kvf__strdup(ctx, from->name, &name);
        if (!st) st = kvf__params_owned_add(ctx, &head.params, name, from->rank, from->dim, &to);
        if (!st) memcpy(to->value, from->value, (size_t)from->n * sizeof *to->value);
    }
    if (!st && n_labels) st = kvf__alloc_array(ctx, n_labels, sizeof *head.labels, &head.labels);
    for (size_t i = 0; !st && i < n_labels; i++) {
        st = kvf__strdup(ctx, labels[i], &head.labels[i]);
        head.n_labels = i + 1;
    }
    if (st)
        kvf__head_values_done(&head);
    else
        *out = head;
    return st;
}

kvf_status kvf__head_words_copy(kvf_ctx *ctx, char *const *words, kvf__head_values *head)
{
    if (!words) return KVF_OK;
    KVF_TRY(kvf__alloc_array(ctx, head->n_labels, sizeof *head->words, &head->words));
    for (size_t i = 0; i < head->n_labels; i++)
        KVF_TRY(kvf__strdup(ctx, words[i], &head->words[i]));
    return KVF_OK;
}

static void task_done(kvf__head_task *task)
{
    kvf__free(task->name);
    kvf__free(task->task);
    for (size_t i = 0; task->labels && i < task->n_labels; i++)
        kvf__free(task->labels[i]);
    kvf__free(task->labels);
}

void kvf__head_values_done(kvf__head_values *head)
{
    kvf__params_owned_done(&head->params);
    for (size_t i = 0; head->labels && i < head->n_labels; i++)
        kvf__free(head->labels[i]);
    kvf__free(head->labels);
    for (size_t i = 0; head->words && i < head->n_labels; i++)
        kvf__free(head->words[i]);
    kvf__free(head->words);
    for (size_t i = 0; head->tasks && i < head->n_tasks; i++)
        task_done(&head->tasks[i]);
    kvf__free(head->tasks);
    *head = (kvf__head_values){0};
}
