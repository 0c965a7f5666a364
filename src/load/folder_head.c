/* The head in a folder of transformers' ...ForSequenceClassification and the like, as initial
 * values of a new head for that task, as in from_pretrained. Its tensors have the names of our
 * parameters. Several tasks share some names, so the class in the config decides. */
#include "folder_head.h"
#include "file_int.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

static const char *const CLASSES[] = {[KVF__TASK_SEQ_CLS] = "ForSequenceClassification",
                                      [KVF__TASK_TOKEN_CLS] = "ForTokenClassification",
                                      [KVF__TASK_QA] = "ForQuestionAnswering",
                                      [KVF__TASK_CHOICE] = "ForMultipleChoice"};

typedef struct folder_head {
    kvf_ctx *ctx;
    const char *path;
    const kvf__table *table;
    const kvf_json *by_id; /* id2label */
    const kvf__head_labels *labels;
    kvf__params *to;
    int64_t *row; /* [outputs] index of the folder's output for each of ours */
} folder_head;

static bool is_of_task(const kvf_json *config, kvf__task task)
{
    const kvf_json *list = kvf_json_get(config, "architectures");
    const char *name = kvf_json_str(kvf_json_at(list, 0), NULL);
    const size_t n = name ? strlen(name) : 0, tail = strlen(CLASSES[task]);
    return n > tail && !strcmp(name + n - tail, CLASSES[task]);
}

/* Returns whether the folder has all parameters' tensors, not only some. */
static bool has_all(const folder_head *f)
{
    for (size_t i = 0; i < f->to->n; i++)
        if (!kvf__table_find(f->table, f->to->item[i].name)) return false;
    return f->to->n > 0;
}

/* Returns whether the parameter has a row for each output, as in the last layer. */
static bool by_output(const folder_head *f, const kvf__param *p)
{
    const char *last = f->to->item[f->to->n - 1].name;
    const size_t n = (size_t)(strrchr(last, '.') - last);
    return !strncmp(p->name, last, n) && p->name[n] == '.' && !strchr(p->name + n + 1, '.');
}

static bool shapes_fit(const folder_head *f, char *why, size_t bytes)
{
    char found[128], want[128];
    for (size_t i = 0; i < f->to->n; i++) {
        const kvf__param *p = &f->to->item[i];
        const kvf__view *view = kvf__table_find(f->table, p->name);
        if (view->rank == p->rank && kvf__dtype_is_float(view->dtype) &&
            !memcmp(view->dim, p->dim, (size_t)p->rank * sizeof *p->dim))
            continue;
        snprintf(why, bytes, "its %s is %s, want %s", p->name,
                 kvf__shape_text(found, view->rank, view->dim),
                 kvf__shape_text(want, p->rank, p->dim));
        return false;
    }
    return true;
}

/* Returns the name of an output; NULL: none, or a default of transformers. */
static const char *name_of(const folder_head *f, int64_t output)
{
    char key[24], made_up[32];
    snprintf(key, sizeof key, "%" PRId64, output);
    snprintf(made_up, sizeof made_up, "LABEL_%s", key);
    const char *name = kvf_json_str(kvf_json_get(f->by_id, key), NULL);
    return name && strcmp(name, made_up) != 0 ? name : NULL;
}

static int64_t output_of(const folder_head *f, const char *label, int64_t n)
{
    char number[24];
    for (int64_t i = 0; i < n; i++)
        if (name_of(f, i) && !strcasecmp(name_of(f, i), label)) return i;
    for (int64_t i = 0; i < n; i++) {
        snprintf(number, sizeof number, "%" PRId64, i);
        if (!strcmp(number, label)) return i;
    }
    return -1;
}

static bool labels_fit(folder_head *f, int64_t n, char *why, size_t bytes)
{
    bool named = false;
    for (int64_t i = 0; i < n; i++)
        named = named || name_of(f, i);
    for (int64_t i = 0; i < n; i++) {
        const bool go_by_name = named && f->labels->n;
        f->row[i] = go_by_name ? output_of(f, f->labels->names[i], n) : i;
        if (f->row[i] >= 0) continue;
        snprintf(why, bytes, "none of its labels is \"%s\", the first is \"%s\"",
                 f->labels->names[i], name_of(f, 0) ? name_of(f, 0) : "");
        return false;
    }
    return true;
}

static kvf_status read_param(const folder_head *f, kvf__param *p)
{
    const kvf__view *view = kvf__table_find(f->table, p->name);
    const int64_t width = p->n / p->dim[0];
    const size_t row_bytes = kvf__view_bytes(view) / (size_t)p->dim[0];
    const bool moved = by_output(f, p);

    for (int64_t r = 0; r < p->dim[0]; r++)
        kvf__to_f32(view->dtype,
                    (const char *)view->data + (size_t)(moved ? f->row[r] : r) * row_bytes,
                    p->value + r * width, width);
    return kvf__check_finite(f->ctx, f->path, p->name, p->value, p->n);
}

static kvf_status take(folder_head *f, char *why, size_t bytes, bool *taken)
{
    const int64_t n = f->to->item[f->to->n - 1].dim[0];
    if (!shapes_fit(f, why, bytes)) return KVF_OK;
    KVF_TRY(kvf__alloc_array(f->ctx, (size_t)n, sizeof *f->row, &f->row));
    *taken = labels_fit(f, n, why, bytes);
    kvf_status st = KVF_OK;
    for (size_t i = 0; !st && *taken && i < f->to->n; i++)
        st = read_param(f, &f->to->item[i]);
    kvf__free(f->row);
    return st;
}

kvf_status kvf__folder_head(kvf_ctx *ctx, const kvf_base *base, kvf__task task,
                            const kvf__head_labels *labels, kvf__params *head, char *why,
                            size_t bytes, bool *taken)
{
    folder_head f = {ctx, base->path, &base->weights.table, NULL, labels, head, NULL};
    kvf_json *config = NULL;

    *why = 0;
    *taken = false;
    if (!CLASSES[task] || !kvf__is_dir(base->path) || !has_all(&f)) return KVF_OK;
    KVF_TRY(kvf__json_load_in(ctx, base->path, "config.json", &config));
    f.by_id = kvf_json_get(config, "id2label");
    kvf_status st = is_of_task(config, task) ? take(&f, why, bytes, taken) : KVF_OK;
    kvf_json_free(config);
    return st;
}
