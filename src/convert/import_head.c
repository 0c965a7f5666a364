/* Heads of imported adapters. PEFT stores a head's parameters, but the names of its outputs are in
 * the model's config. So names come from the caller, or from labels.json, which kvfold's exports
 * contain, or are transformers' default LABEL_0, LABEL_1, ... */
#include "import.h"

#include <string.h>

static bool ends_in(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

static bool has_classes(const char *task)
{
    return !strcmp(task, "seq-cls") || !strcmp(task, "token-cls");
}

/* Rows of the layer that answers; 0: there is none. */
static int64_t outputs_of(const kvf__params *params)
{
    static const char *const LAST[] = {"out_proj.weight", "classifier.weight", "score.weight"};
    for (size_t k = 0; k < 3; k++)
        for (size_t i = 0; i < params->n; i++)
            if (ends_in(params->item[i].name, LAST[k]) && params->item[i].rank == 2)
                return params->item[i].dim[0];
    return 0;
}

/* One name of "a,b,c"; *names moves past it. */
static kvf_status next_name(kvf_ctx *ctx, const char **names, char **out)
{
    size_t n = strcspn(*names, ",");
    KVF_TRY(kvf__strndup(ctx, *names, n, out));
    *names += n + ((*names)[n] == ',');
    return KVF_OK;
}

static int64_t count_names(const char *names)
{
    int64_t n = 1;
    for (; *names; names++)
        n += *names == ',';
    return n;
}

static kvf_status set_names(kvf_ctx *ctx, const char *names, int64_t n, kvf__head_values *head)
{
    if (names && count_names(names) != n)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "--labels names %lld labels, but the head has %lld outputs",
                         (long long)count_names(names), (long long)n);
    if (names) KVF_TRY(kvf__utf8_check(ctx, "--labels", names, strlen(names), false));
    KVF_TRY(kvf__alloc_array(ctx, (size_t)n, sizeof *head->labels, &head->labels));
    head->n_labels = (size_t)n;
    for (int64_t i = 0; i < n; i++)
        KVF_TRY(names ? next_name(ctx, &names, &head->labels[i])
                      : kvf__asprintf(ctx, &head->labels[i], "LABEL_%lld", (long long)i));
    return KVF_OK;
}

static void drop_labels(kvf__head_values *head)
{
    while (head->n_labels)
        kvf__free(head->labels[--head->n_labels]);
    kvf__free(head->labels);
    head->labels = NULL;
}

kvf_status kvf__import_head(kvf_ctx *ctx, const char *path, const char *names, const char *task,
                            kvf__head_values *head)
{
    int64_t n = outputs_of(&head->params.params);
    const bool classes = has_classes(task);
    if (names && !classes)
        return kvf__fail(ctx, KVF_EUSAGE, "--labels: the outputs of task %s have no names", task);
    if (names || !classes) drop_labels(head);
    if (!classes) return KVF_OK;
    if (n < 1)
        return kvf__fail(ctx, KVF_EFORMAT, "%s: no classifier.weight or score.weight for task %s",
                         path, task);
    if (head->n_labels) {
        if (head->n_labels == (size_t)n) return KVF_OK;
        return kvf__fail(ctx, KVF_EFORMAT,
                         "%s: labels.json names %zu labels, but the head has %lld outputs", path,
                         head->n_labels, (long long)n);
    }
    head->regression = n == 1 && !strcmp(task, "seq-cls") && !names;
    return head->regression ? KVF_OK : set_names(ctx, names, n, head);
}
