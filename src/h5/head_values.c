/* The head of a task in memory: parameters, and the meaning of its outputs. Heads of several tasks
 * with a shared prefix (multi-task P-tuning v2) are one list of parameters named "TASK/parameter",
 * so that best checkpoints and moments need no special case. */
#include "artifact_priv.h"

#include <string.h>

/* ---- owned lists ----------------------------------------------------------------------------- */

void kvf__strings_free(char **strings, size_t n)
{
    for (size_t i = 0; strings && i < n; i++)
        kvf__free(strings[i]);
    kvf__free(strings);
}

kvf_status kvf__params_owned_add(kvf_ctx *ctx, kvf__params_owned *params, const char *name,
                                 int rank, const int64_t *dim, kvf__param **out)
{
    kvf__param param = {.rank = rank, .n = 1, .lr_scale = 1};
    char *copy = NULL;
    kvf_status st = kvf__strdup(ctx, name, &copy);

    param.name = copy;
    for (int i = 0; i < rank; i++) {
        param.dim[i] = dim[i];
        param.n *= dim[i];
    }
    if (!st) st = kvf__alloc_array(ctx, (size_t)param.n, sizeof(float), &param.value);
    if (!st) st = kvf__params_add(ctx, &params->params, &param);
    if (st) {
        kvf__free(param.value);
        kvf__free(copy);
        return st;
    }
    *out = &params->params.item[params->params.n - 1];
    return KVF_OK;
}

void kvf__params_owned_done(kvf__params_owned *params)
{
    for (size_t i = 0; i < params->params.n; i++) {
        kvf__free(params->params.item[i].value);
        kvf__free((char *)params->params.item[i].name);
    }
    kvf__params_done(&params->params);
}

/* ---- one head -------------------------------------------------------------------------------- */

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

kvf_status kvf__head_values_copy(kvf_ctx *ctx, const kvf__params *params, char *const *labels,
                                 size_t n_labels, bool regression, kvf__head_values *out)
{
    kvf__head_values head = {.regression = regression};
    kvf_status st = KVF_OK;

    for (size_t i = 0; !st && i < params->n; i++) {
        const kvf__param *from = &params->item[i];
        kvf__param *to = NULL;
        st = kvf__params_owned_add(ctx, &head.params, from->name, from->rank, from->dim, &to);
        if (!st) memcpy(to->value, from->value, (size_t)from->n * sizeof *to->value);
    }
    if (!st && n_labels) st = kvf__alloc_array(ctx, n_labels, sizeof *head.labels, &head.labels);
    for (size_t i = 0; !st && i < n_labels; i++) {
        st = kvf__strdup(ctx, labels[i], &head.labels[i]);
        head.n_labels = i + 1;
    }
    KVF__GIVE(st, out, head, kvf__head_values_done(&head));
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

void kvf__head_values_done(kvf__head_values *head)
{
    kvf__params_owned_done(&head->params);
    kvf__strings_free(head->labels, head->n_labels);
    kvf__strings_free(head->words, head->n_labels);
    for (size_t i = 0; head->tasks && i < head->n_tasks; i++) {
        kvf__head_task *task = &head->tasks[i];
        kvf__free(task->name);
        kvf__free(task->task);
        kvf__strings_free(task->labels, task->n_labels);
    }
    kvf__free(head->tasks);
    *head = (kvf__head_values){0};
}

/* ---- one of several -------------------------------------------------------------------------- */

kvf_status kvf__head_task_params(kvf_ctx *ctx, const kvf__head_values *head, const char *task,
                                 kvf__params *out)
{
    const kvf__params *params = &head->params.params;
    size_t n = strlen(task);
    kvf_status st = KVF_OK;

    for (size_t i = 0; i < params->n && !st; i++) {
        kvf__param param = params->item[i];
        if (strncmp(param.name, task, n) || param.name[n] != '/') continue;
        param.name += n + 1;
        st = kvf__params_add(ctx, out, &param);
    }
    return st;
}

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
    const kvf__head_task *one = NULL;
    kvf__params own = {0};
    char names[512];

    if (!from->n_tasks)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "%s: has only one head; --head %s is for files with several", where, name);
    for (size_t i = 0; i < from->n_tasks && !one; i++)
        if (!strcmp(from->tasks[i].name, name)) one = &from->tasks[i];
    if (!one)
        return kvf__fail(ctx, KVF_EUSAGE, "%s: no head \"%s\"; there are %s", where, name,
                         kvf__head_names(from, names, sizeof names));
    kvf_status st = kvf__head_task_params(ctx, from, name, &own);
    if (!st)
        st = kvf__head_values_copy(ctx, &own, one->labels, one->n_labels, one->regression, out);
    kvf__params_done(&own);
    *task = one->task;
    return st;
}
