/* Heads of the tasks: for classes, tags, choices and spans, or words of a masked model
 * (--verbalizer), and a trained copy of the language-model head (--train-head, head.h). All follow
 * the encoder's parameters in the list that AdamW updates, so run files, best checkpoint and
 * --resume treat them alike. */
#include "folder_head.h"
#include "infile.h"
#include "train_rows.h"
#include "verbalizer.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

kvf__params *kvf__task_head_params(const kvf__train_task *task)
{
    return task->head ? kvf__head_params(task->head) : NULL;
}

static double mib(int64_t floats)
{
    return (double)floats * sizeof(float) / (1 << 20);
}

/* Reports the size before anything is computed: for most bases it is many times that of the prefix.
 */
static void note_size(kvf__run *run, const kvf__train_rows *rows, const kvf__param *head)
{
    bool tied = kvf__model_desc(run->base->model)->tied;
    bool best = rows->total.valid_rows || kvf__run_has_best(&run->output.resumed);
    kvf__run_note(
        run,
        "%s [%lld, %lld] is trained too: %.1f MiB in the prefix file, %.1f MiB during training%s",
        head->name, (long long)head->dim[0], (long long)head->dim[1], mib(head->n),
        mib((best ? 5 : 4) * head->n),
        tied ? "; it is no longer tied to the input embedding, which stays frozen" : "");
}

static kvf_status make_lm_head(kvf__run *run, const kvf__train_rows *rows, kvf__train_task *task)
{
    KVF_TRY(kvf__head_create_lm(run->ctx, run->base->model, true, &task->head));
    note_size(run, rows, &kvf__head_params(task->head)->item[0]);
    return KVF_OK;
}

static kvf_status make_verbalizer(const kvf__run *run, kvf__train_task *task)
{
    const kvf__label_set *names = &task->data.names;
    KVF_TRY(kvf__verbalizer_words(run->ctx, run->options.verbalizer, names->names, names->n,
                                  &task->words));
    return kvf__verbalizer_head(run->ctx, run->base, task->words, names->n, &task->head);
}

/* ---- --class-weights ------------------------------------------------------------------------- */

/* Sets weights to rows / (classes that occur * rows of the class), like "balanced" in scikit-learn.
 */
static void balance(const kvf__dataset *set, float *weights)
{
    const size_t n = set->names.n;
    double all = 0, present = 0;
    for (int64_t i = 0; i < set->start[set->n]; i++)
        if (set->labels[i] >= 0) weights[set->labels[i]]++;
    for (size_t c = 0; c < n; c++) {
        all += (double)weights[c];
        present += weights[c] > 0;
    }
    for (size_t c = 0; c < n; c++)
        if (weights[c] > 0) weights[c] = (float)(all / (present * (double)weights[c]));
}

/* Parses a line "NAME WEIGHT". */
static kvf_status read_weight(const kvf__run *run, const kvf__label_set *names, long long line,
                              const char *text, size_t n, float *weights)
{
    char name[512], *end = NULL;
    const char *path = run->options.class_weights;
    kvf__trim_space(&text, &n);
    snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), text);
    size_t at = strlen(name);
    while (at && name[at - 1] != ' ' && name[at - 1] != '\t')
        at--;
    const double weight = strtod(name + at, &end);
    if (!at || !name[at] || *end || !(weight >= 0 && weight <= FLT_MAX))
        return kvf__fail(run->ctx, KVF_EDATA, "%s:%lld: want NAME WEIGHT, found \"%s\"", path, line,
                         name);
    while (at && (name[at - 1] == ' ' || name[at - 1] == '\t'))
        at--;
    name[at] = 0;
    const int32_t id = kvf__label_set_find(names, name);
    if (id < 0)
        return kvf__fail(run->ctx, KVF_EDATA, "%s:%lld: the training data has no class \"%s\"",
                         path, line, name);
    if (weights[id] >= 0)
        return kvf__fail(run->ctx, KVF_EDATA, "%s:%lld: class \"%s\" is given twice", path, line,
                         name);
    weights[id] = (float)weight;
    return KVF_OK;
}

static kvf_status read_weights(const kvf__run *run, const kvf__label_set *names, float *weights)
{
    const char *path = run->options.class_weights, *line = NULL;
    kvf__buf text = {0};
    size_t at = 0, n = 0;
    for (size_t c = 0; c < names->n; c++)
        weights[c] = -1;
    kvf_status st = kvf__read_file(run->ctx, path, (size_t)1 << 24, &text);
    if (!st) st = kvf__utf8_check(run->ctx, path, text.data, text.n, true);
    for (long long i = 1; !st && kvf__next_line(text.data, text.n, &at, &line, &n); i++)
        if (!kvf__is_blank_line(line, n)) st = read_weight(run, names, i, line, n, weights);
    for (size_t c = 0; !st && c < names->n; c++)
        if (weights[c] < 0)
            st = kvf__fail(run->ctx, KVF_EDATA, "%s: no weight for class \"%s\"", path,
                           names->names[c]);
    kvf__buf_done(&text);
    return st;
}

/* Sets *out to the class weights; NULL: all are 1. */
static kvf_status class_weights(const kvf__run *run, const kvf__train_task *task, float **out)
{
    const char *how = run->options.class_weights;
    if (!how || !*how || !task->data.names.n) return KVF_OK;
    KVF_TRY(kvf__alloc_array(run->ctx, task->data.names.n, sizeof **out, out));
    if (strcmp(how, "balanced")) return read_weights(run, &task->data.names, *out);
    balance(&task->data, *out);
    return KVF_OK;
}

static kvf_status make_head(kvf__run *run, const kvf__train_rows *rows, kvf__train_task *task)
{
    const kvf_train_options *o = &run->options;
    kvf__head_options options = {
        .task = task->kind,
        .labels = task->data.names.n ? (int64_t)task->data.names.n : 1,
        .regression = task->data.regression,
        .dropout = o->head_dropout,
        .seed = o->seed,
    };
    if (task->kind == KVF__TASK_LM) return o->train_head ? make_lm_head(run, rows, task) : KVF_OK;
    if (o->verbalizer && *o->verbalizer) return make_verbalizer(run, task);
    float *weights = NULL;
    kvf_status st = class_weights(run, task, &weights);
    options.weights = weights;
    if (!st) st = kvf__head_create(run->ctx, run->base->model, &options, &task->head);
    kvf__free(weights);
    return st;
}

/* Copies the head of the base's folder, unless --init-from gives one. */
static kvf_status begin_as_folder(kvf__run *run, kvf__train_task *task)
{
    const kvf__label_set *names = &task->data.names;
    const kvf__head_labels labels = {names->names, names->n};
    char why[320];
    bool taken = false;

    if (task->kind == KVF__TASK_LM || task->words || run->output.is_resumed ||
        run->options.init_from)
        return KVF_OK;
    KVF_TRY(kvf__folder_head(run->ctx, run->base, task->kind, &labels, kvf__head_params(task->head),
                             why, sizeof why, &taken));
    if (taken) kvf__run_note(run, "initial head: that of %s", run->base->path);
    if (*why) kvf__run_note(run, "the head of %s is not used: %s", run->base->path, why);
    return KVF_OK;
}

/* With several tasks the parameters of a head are named "NAME/parameter". */
static kvf_status name_params(kvf_ctx *ctx, kvf__train_task *task)
{
    const kvf__params *params = kvf__task_head_params(task);
    if (!task->name || !params) return KVF_OK;
    KVF_TRY(kvf__alloc_array(ctx, params->n, sizeof *task->names, &task->names));
    for (size_t k = 0; k < params->n; k++)
        KVF_TRY(kvf__asprintf(ctx, &task->names[k], "%s/%s", task->name, params->item[k].name));
    return KVF_OK;
}

/* Returns the default rate for a softmax over this many classes. More classes mean fewer rows for
 * each (docs/methods.md). */
static double rate_of_classes(size_t classes)
{
    static const double STEP = 0.01, MOST = 0.05;
    return classes > 2 ? fmin(MOST, STEP * (double)(classes - 1)) : STEP;
}

kvf_status kvf__tasks_make_heads(kvf__run *run, kvf__train_rows *rows)
{
    if (run->options.head_lr == 0)
        run->options.head_lr = rate_of_classes(rows->task[0].data.names.n);
    for (size_t i = 0; i < rows->n; i++) {
        kvf__train_task *task = &rows->task[i];
        KVF_TRY(make_head(run, rows, task));
        KVF_TRY(begin_as_folder(run, task));
        KVF_TRY(name_params(run->ctx, task));
        kvf__params *params = kvf__task_head_params(task);
        for (size_t k = 0; params && k < params->n; k++)
            params->item[k].lr_scale = run->options.head_lr /
                                       run->options.lr; /* the schedule multiplies by lr */
    }
    return KVF_OK;
}

kvf_status kvf__tasks_list_params(kvf_ctx *ctx, const kvf__train_rows *rows, kvf__params *out)
{
    for (size_t i = 0; i < rows->n; i++) {
        kvf__train_task *task = &rows->task[i];
        const kvf__params *params = kvf__task_head_params(task);
        for (size_t k = 0; params && k < params->n; k++) {
            kvf__param param = params->item[k];
            if (task->names) param.name = task->names[k];
            KVF_TRY(kvf__params_add(ctx, out, &param));
        }
        for (int k = 0; k < 2 && task->low[k].value; k++)
            KVF_TRY(kvf__params_add(ctx, out, &task->low[k]));
    }
    return KVF_OK;
}
