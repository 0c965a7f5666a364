/* Heads of several tasks that share a prefix (multi-task P-tuning v2): /heads/<name>/<parameter>,
 * with the labels and attributes of that task beside them. In memory they are one list of
 * parameters named "NAME/parameter", so that best checkpoints and moments need nothing of their
 * own: theirs lie in groups of the same names. */
#include "h5_priv.h"

#include <string.h>

static const char GROUP[] = "heads", LABELS[] = "labels";

enum { MOST_TASKS = 64, MOST_NAME = 64 };

/* Parameters of task i: from .. to - 1. */
static void range(const kvf__head_values *head, const char *task, size_t *from, size_t *to)
{
    const kvf__params *params = &head->params.params;
    size_t n = strlen(task);

    *from = 0;
    while (*from < params->n &&
           (strncmp(params->item[*from].name, task, n) != 0 || params->item[*from].name[n] != '/'))
        (*from)++;
    *to = *from;
    while (*to < params->n && !strncmp(params->item[*to].name, task, n) &&
           params->item[*to].name[n] == '/')
        (*to)++;
}

static bool good_name(const char *name)
{
    size_t n = strlen(name);
    return n && n <= MOST_NAME &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == n;
}

/* ---- writing --------------------------------------------------------------------------------- */

static kvf_status write_task(kvf__h5 *h5, kvf__h5_id heads, const kvf__head_values *head,
                             const kvf__head_task *task)
{
    kvf__h5_id group = KVF__H5_NONE;
    kvf__params own = {0};
    size_t from, to;
    kvf_status st = KVF_OK;

    if (!good_name(task->name))
        return kvf__h5_fail(h5, heads, KVF_EUSAGE, "\"%s\" cannot name a task", task->name);
    range(head, task->name, &from, &to);
    for (size_t i = from; i < to && !st; i++) {
        kvf__param param = head->params.params.item[i];
        param.name = strchr(param.name, '/') + 1;
        st = kvf__params_add(h5->ctx, &own, &param);
    }
    if (!st) st = kvf__run_params_write(h5, heads, task->name, &own, &group);
    if (!st) st = kvf__h5_put_text(h5, group, "task", task->task);
    if (!st) st = kvf__h5_put_bool(h5, group, "regression", task->regression);
    if (!st) st = kvf__labels_check(h5, group, task->labels, task->n_labels, KVF_EUSAGE);
    if (!st && task->n_labels)
        st = kvf__h5_texts_write(h5, group, LABELS, task->labels, task->n_labels);
    kvf__h5_release(&group);
    kvf__params_done(&own);
    return st;
}

kvf_status kvf__heads_write(kvf__h5 *h5, const kvf__head_values *head)
{
    kvf__h5_id group = KVF__H5_NONE;
    kvf_status st = kvf__h5_group_create(h5, h5->file, GROUP, &group);

    for (size_t i = 0; i < head->n_tasks && !st; i++)
        st = write_task(h5, group, head, &head->tasks[i]);
    kvf__h5_release(&group);
    return st;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* The parameters of a group behind those of `out`, their names behind "TASK/". */
static kvf_status append(kvf__h5 *h5, kvf__h5_id group, const char *task, kvf__params_owned *out)
{
    kvf__params_owned own = {0};
    kvf_status st;
    size_t children = 0;
    bool labels = false;

    KVF_TRY(kvf__h5_child_count(h5, group, &children));
    KVF_TRY(kvf__h5_has(h5, group, LABELS, &labels));
    if (children == labels) return KVF_OK; /* lm */
    st = kvf__run_params_read(h5, group, LABELS, &own);
    for (size_t i = 0; i < own.params.n && !st; i++) {
        const kvf__param *from = &own.params.item[i];
        kvf__param *to = NULL;
        char *name = NULL;
        st = kvf__asprintf(h5->ctx, &name, "%s/%s", task, from->name);
        if (!st) st = kvf__params_owned_add(h5->ctx, out, name, from->rank, from->dim, &to);
        if (!st) memcpy(to->value, from->value, (size_t)from->n * sizeof(float));
    }
    kvf__params_owned_done(&own);
    return st;
}

static kvf_status read_task(kvf__h5 *h5, kvf__h5_id heads, kvf__head_task *task,
                            kvf__head_values *out)
{
    kvf__h5_id group = KVF__H5_NONE;
    bool labels = false;
    kvf_status st;

    if (!good_name(task->name))
        return kvf__h5_fail(h5, heads, KVF_EFORMAT, "\"%s\" cannot name a task", task->name);
    st = kvf__h5_group_open(h5, heads, task->name, &group);
    if (!st) st = kvf__h5_get_text(h5, group, "task", &task->task);
    if (!st) st = kvf__h5_get_bool(h5, group, "regression", &task->regression);
    if (!st) st = kvf__h5_has(h5, group, LABELS, &labels);
    if (!st && labels) st = kvf__h5_texts_read(h5, group, LABELS, &task->labels, &task->n_labels);
    if (!st) st = kvf__labels_check(h5, group, task->labels, task->n_labels, KVF_EFORMAT);
    if (!st) st = append(h5, group, task->name, &out->params);
    kvf__h5_release(&group);
    return st;
}

kvf_status kvf__heads_read(kvf__h5 *h5, kvf__head_values *out)
{
    kvf__h5_id group = KVF__H5_NONE;
    size_t n = 0;
    kvf_status st;

    st = kvf__h5_group_open(h5, h5->file, GROUP, &group);
    if (!st) st = kvf__h5_child_count(h5, group, &n);
    if (!st && (n < 1 || n > MOST_TASKS))
        st = kvf__h5_fail(h5, group, KVF_EFORMAT, "%zu tasks, want 1 to %d", n, MOST_TASKS);
    if (!st) st = kvf__alloc_array(h5->ctx, n, sizeof *out->tasks, &out->tasks);
    for (size_t i = 0; i < n && !st; i++) {
        out->n_tasks = i + 1;
        st = kvf__h5_child_name(h5, group, i, &out->tasks[i].name);
        if (!st) st = read_task(h5, group, &out->tasks[i], out);
    }
    kvf__h5_release(&group);
    return st;
}

static bool is_task(const kvf__head_values *heads, const char *name)
{
    for (size_t i = 0; i < heads->n_tasks; i++)
        if (!strcmp(heads->tasks[i].name, name)) return true;
    return false;
}

kvf_status kvf__run_params_read_tasks(kvf__h5 *h5, kvf__h5_id group, const kvf__head_values *heads,
                                      kvf__params_owned *out)
{
    size_t n = 0;
    kvf_status st = KVF_OK;

    if (!heads->n_tasks) return kvf__run_params_read(h5, group, NULL, out);
    KVF_TRY(kvf__h5_child_count(h5, group, &n));
    if (n > KVF__MOST_PARAMS)
        return kvf__h5_fail(h5, group, KVF_EFORMAT, "%zu parameters, want at most %d", n,
                            KVF__MOST_PARAMS);
    for (size_t i = 0; i < n && !st; i++) {
        char *name = NULL;
        kvf__h5_id inner = KVF__H5_NONE;
        st = kvf__h5_child_name(h5, group, i, &name);
        if (!st && is_task(heads, name)) {
            st = kvf__h5_group_open(h5, group, name, &inner);
            if (!st) st = append(h5, inner, name, out);
            kvf__h5_release(&inner);
            kvf__free(name);
        } else if (!st) {
            st = kvf__run_params_read_one(h5, group, name, out);
        }
    }
    return st;
}

/* ---- one of them ----------------------------------------------------------------------------- */

const char *kvf__head_names(const kvf__head_values *head, char *buf, size_t cap)
{
    size_t at = 0;

    buf[0] = 0;
    for (size_t i = 0; i < head->n_tasks && at < cap; i++)
        at += (size_t)snprintf(buf + at, cap - at, "%s%s", i ? ", " : "", head->tasks[i].name);
    return buf;
}

kvf_status kvf__head_values_pick(kvf_ctx *ctx, const char *where, const kvf__head_values *from,
                                 const char *name, const char **task, kvf__head_values *out)
{
    char names[512];

    for (size_t i = 0; i < from->n_tasks; i++) {
        const kvf__head_task *one = &from->tasks[i];
        kvf__params own = {0};
        size_t first, end;
        kvf_status st = KVF_OK;
        if (strcmp(one->name, name)) continue;
        range(from, name, &first, &end);
        for (size_t k = first; k < end && !st; k++) {
            kvf__param param = from->params.params.item[k];
            param.name = strchr(param.name, '/') + 1;
            st = kvf__params_add(ctx, &own, &param);
        }
        if (!st)
            st = kvf__head_values_copy(ctx, &own, one->labels, one->n_labels, one->regression, out);
        kvf__params_done(&own);
        *task = one->task;
        return st;
    }
    if (!from->n_tasks)
        return kvf__fail(ctx, KVF_EUSAGE, "%s: holds one head: --head %s is for several", where,
                         name);
    return kvf__fail(ctx, KVF_EUSAGE, "%s: no head \"%s\"; there are %s", where, name,
                     kvf__head_names(from, names, sizeof names));
}
