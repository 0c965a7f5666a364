/* Heads of what is imported.
 *
 * PEFT keeps a head's parameters, but what its outputs mean is in the model's config. So names come
 * from the caller or from labels.json, which our own exports have, or are transformers' own
 * LABEL_0, LABEL_1, ... Of other programs the class of the model gives the task; which parameters
 * that task's head has on the base is head_task.c's table; a name that is another's is a row here.
 * P-tuning v2 classifies on RoBERTa by the (frozen) pooler and a linear layer, which is the two
 * layers of RoBERTa's own head. */
#include "data_int.h"
#include "head.h"
#include "import.h"

#include <string.h>

/* ---- PEFT ------------------------------------------------------------------------------------ */

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
        return kvf__fail(ctx, KVF_EUSAGE, "--labels names %lld labels, the head has %lld outputs",
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
                         "%s: labels.json names %zu labels, the head has %lld outputs", path,
                         head->n_labels, (long long)n);
    }
    head->regression = n == 1 && !strcmp(task, "seq-cls") && !names;
    return head->regression ? KVF_OK : set_names(ctx, names, n, head);
}

/* ---- other programs -------------------------------------------------------------------------- */

/* Part of the model's class -> task. */
static const struct {
    const char *part, *task;
} CLASSES[] = {
    {"ForSequenceClassification", "seq-cls"},
    {"ForTokenClassification", "token-cls"},
    {"ForQuestionAnswering", "qa"},
    {"ForMultipleChoice", "multiple-choice"},
};

/* Our name -> the one that is read where ours is missing. */
static const struct {
    const char *ours, *theirs;
} NAMES[] = {
    {"classifier.dense.weight", "roberta.pooler.dense.weight"},
    {"classifier.dense.bias", "roberta.pooler.dense.bias"},
    {"classifier.out_proj.weight", "classifier.weight"},
    {"classifier.out_proj.bias", "classifier.bias"},
};

/* Where the layer that answers may be. */
static const char *const OUTPUTS[] = {"classifier.out_proj.weight", "classifier.weight",
                                      "score.weight"};

kvf_status kvf__foreign_task(kvf_ctx *ctx, const kvf_import_options *options, const kvf__foreign *f,
                             const char **task)
{
    kvf__task parsed;
    *task = "lm";
    if (options->task) {
        KVF_TRY(kvf__task_parse(ctx, options->task, &parsed));
        *task = kvf__task_name(parsed);
        return KVF_OK;
    }
    for (size_t i = 0; f->model_class && i < sizeof CLASSES / sizeof CLASSES[0]; i++)
        if (strstr(f->model_class, CLASSES[i].part)) *task = CLASSES[i].task;
    if (!strcmp(*task, "lm") && kvf__table_find(&f->weights.table, "qa_outputs.weight"))
        *task = "qa";
    if (strcmp(*task, "lm") || !kvf__table_find(&f->weights.table, "classifier.weight"))
        return KVF_OK;
    return kvf__fail(
        ctx, KVF_EUSAGE,
        "%s: has a classifier, but does not say for what: --task seq-cls, token-cls or "
        "multiple-choice, or lm to leave it out",
        options->path);
}

static const kvf__table *table_of(const kvf__foreign *f)
{
    return f->head.table.n ? &f->head.table : &f->weights.table;
}

static const kvf__view *find_param(const kvf__table *table, const char *name)
{
    const kvf__view *view = kvf__table_find(table, name);
    for (size_t i = 0; !view && i < sizeof NAMES / sizeof NAMES[0]; i++)
        if (!strcmp(NAMES[i].ours, name)) view = kvf__table_find(table, NAMES[i].theirs);
    return view;
}

static int64_t count_outputs(const kvf__table *table)
{
    for (size_t i = 0; i < sizeof OUTPUTS / sizeof OUTPUTS[0]; i++) {
        const kvf__view *view = kvf__table_find(table, OUTPUTS[i]);
        if (view && view->rank == 2) return view->dim[0];
    }
    return 0;
}

/* The label of an output by {"0": "a"} or {"a": 0}; NULL: neither names it. */
static const char *label_of(const kvf_json *by_id, kvf_json *by_name, int64_t output)
{
    char key[32];

    snprintf(key, sizeof key, "%lld", (long long)output);
    const char *name = kvf_json_str(kvf_json_get(by_id, key), NULL);
    for (void *it = by_name ? kvf_json_iter(by_name) : NULL; !name && it;
         it = kvf_json_next(by_name, it))
        if (kvf_json_int(kvf_json_iter_value(it), -1) == output) name = kvf_json_iter_key(it);
    return name && *name && !strchr(name, ',') ? name : NULL;
}

/* All n labels of the configs, or none. */
static kvf_status read_labels(kvf_ctx *ctx, const kvf__foreign *f, int64_t n,
                              kvf__head_values *head)
{
    const kvf_json *by_id = kvf_json_get(f->config, "id2label");
    kvf_json *by_name = kvf_json_get(f->head_config, "label2id");

    for (int64_t i = 0; i < n; i++)
        if (!label_of(by_id, by_name, i)) return KVF_OK;
    KVF_TRY(kvf__alloc_array(ctx, (size_t)n, sizeof *head->labels, &head->labels));
    head->n_labels = (size_t)n;
    for (int64_t i = 0; i < n; i++)
        KVF_TRY(kvf__strdup(ctx, label_of(by_id, by_name, i), &head->labels[i]));
    return KVF_OK;
}

static kvf_status read_value(kvf_ctx *ctx, const char *path, const kvf__table *table,
                             kvf__param *param)
{
    char found[128], want[128];
    const kvf__view *view = find_param(table, param->name);

    if (!view)
        return kvf__fail(
            ctx, KVF_EFORMAT,
            "%s: its head has no \"%s\", which the base's has for this task; --task lm "
            "imports the prefix alone",
            path, param->name);
    if (view->rank != param->rank || !kvf__dtype_is_float(view->dtype) ||
        memcmp(view->dim, param->dim, (size_t)param->rank * sizeof *param->dim))
        return kvf__fail(ctx, KVF_ESHAPE, "%s: \"%s\" is %s %s, want floats %s", path, param->name,
                         kvf__dtype_name(view->dtype),
                         kvf__shape_text(found, view->rank, view->dim),
                         kvf__shape_text(want, param->rank, param->dim));
    kvf__to_f32(view->dtype, view->data, param->value, param->n);
    return kvf__check_finite(ctx, path, param->name, param->value, param->n);
}

/* The head that the base has for the task, with their values and names. */
static kvf_status read_head(kvf_ctx *ctx, const kvf_import_options *options, const kvf__foreign *f,
                            const char *task, kvf__head *head, kvf__head_values *out)
{
    const kvf__table *table = table_of(f);
    kvf__params *params = kvf__head_params(head);

    for (size_t i = 0; i < params->n; i++)
        KVF_TRY(read_value(ctx, options->path, table, &params->item[i]));
    KVF_TRY(kvf__head_values_copy(ctx, params, NULL, 0, false, out));
    const int64_t n = count_outputs(table);
    if (!options->labels && n > 1 && has_classes(task)) KVF_TRY(read_labels(ctx, f, n, out));
    return kvf__import_head(ctx, options->path, options->labels, task, out);
}

kvf_status kvf__foreign_head(kvf_ctx *ctx, const kvf_import_options *options, const kvf_base *base,
                             const kvf__foreign *f, const char *task, kvf__head_values *out)
{
    kvf__head_options how = {.labels = count_outputs(table_of(f))};
    kvf__head *head = NULL;

    if (!kvf__task_has_head(task))
        return options->labels ? kvf__import_head(ctx, options->path, options->labels, task, out)
                               : KVF_OK;
    if (f->head_pickle) return kvf__fail_pickle(ctx, f->head_pickle);
    KVF_TRY(kvf__task_parse(ctx, task, &how.task));
    if (!base ||
        (!how.labels && (how.task == KVF__TASK_SEQ_CLS || how.task == KVF__TASK_TOKEN_CLS)))
        return kvf__fail(ctx, KVF_EFORMAT,
                         "%s: no head for task %s; --task lm imports the prefix "
                         "alone",
                         options->path, task);
    how.regression = how.task == KVF__TASK_SEQ_CLS && how.labels == 1 && !options->labels;
    KVF_TRY(kvf__head_create(ctx, base->model, &how, &head));
    kvf_status st = read_head(ctx, options, f, task, head, out);
    kvf__head_free(head);
    return st;
}
