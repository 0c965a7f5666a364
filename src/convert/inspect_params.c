/* Describes groups of parameters: encoder, head, moments. Values are read only for norms, because
 * moments are several times larger than the encoder. */
#include "artifact_priv.h"
#include "inspect_int.h"

#include <math.h>
#include <string.h>

/* Children of /head that are not parameters. */
static const char LABELS[] = "labels", WORDS[] = "words";

/* Uses several independent partial sums. */
static double sum_of_squares(const float *values, int64_t n)
{
    enum { SUMS = 8 };
    double sums[SUMS] = {0}, all = 0;
    int64_t i = 0;

    for (; i + SUMS <= n; i += SUMS)
        for (int j = 0; j < SUMS; j++)
            sums[j] += (double)values[i + j] * (double)values[i + j];
    for (; i < n; i++)
        all += (double)values[i] * (double)values[i];
    for (int j = 0; j < SUMS; j++)
        all += sums[j];
    return all;
}

static double norm_of(kvf__h5 *h5, const kvf__h5_data *data)
{
    float *values = NULL;
    double norm = 0;

    if (kvf__h5_skips(h5, data)) return 0;
    KVF__H5_TRY(h5, kvf__grow(h5->ctx, &values, 0, data->bytes)); /* every element is written */
    kvf__h5_data_read(h5, data, values, (size_t)data->count * sizeof *values);
    if (!h5->status) norm = sqrt(sum_of_squares(values, data->count));
    kvf__free(values);
    return norm;
}

/* Returns "HEAD/TAIL", freed by the caller. */
static char *join(kvf__h5 *h5, const char *head, const char *tail)
{
    char *path = NULL;
    KVF__H5_TRY(h5, kvf__asprintf(h5->ctx, &path, "%s/%s", head, tail));
    return path;
}

/* Adds a dataset of `group` under its full path. */
static void list_one(kvf__h5 *h5, kvf__h5_id group, const char *path, const char *name,
                     bool with_norm, kvf_json *tensors)
{
    kvf__h5_data data = kvf__h5_data_open(h5, group, name);
    char *whole = join(h5, path, name);

    if (whole) {
        kvf_json *entry = kvf__dataset_entry(h5, whole, &data);
        if (with_norm && data.dtype == KVF__F32)
            kvf_json_set(entry, "norm", kvf_json_new_real(norm_of(h5, &data)));
        kvf_json_add(tensors, entry);
    }
    kvf__free(whole);
    kvf__h5_release(&data.id);
}

/* True for a group of one of several tasks. */
static bool is_task(kvf__h5 *h5, const char *name)
{
    kvf__h5_id heads;

    if (!kvf__h5_has(h5, h5->file, "heads")) return false;
    heads = kvf__h5_group_open(h5, h5->file, "heads");
    bool there = kvf__h5_has(h5, heads, name);
    kvf__h5_release(&heads);
    return there;
}

/* Lists the datasets of a group, except the names of a head's outputs. tasks: also descend into
 * groups of tasks; a task's group contains no tasks. */
static void list_group(kvf__h5 *h5, kvf__h5_id group, const char *path, bool tasks, bool with_norm,
                       kvf_json *tensors);

static void list_task(kvf__h5 *h5, kvf__h5_id parent, const char *path, const char *name,
                      bool with_norm, kvf_json *tensors)
{
    char *whole = join(h5, path, name);
    kvf__h5_id group = kvf__h5_group_open(h5, parent, name);

    list_group(h5, group, whole, false, with_norm, tensors);
    kvf__h5_release(&group);
    kvf__free(whole);
}

static void list_group(kvf__h5 *h5, kvf__h5_id group, const char *path, bool tasks, bool with_norm,
                       kvf_json *tensors)
{
    size_t n = kvf__h5_child_count(h5, group);

    if (n > KVF__MOST_PARAMS)
        kvf__h5_fail(h5, group, KVF_EFORMAT, "%zu datasets, want at most %d", n, KVF__MOST_PARAMS);
    char **names = kvf__h5_child_names(h5, group, n);
    for (size_t i = 0; i < n && !h5->status; i++)
        if (tasks && is_task(h5, names[i]))
            list_task(h5, group, path, names[i], with_norm, tensors);
        else if (strcmp(names[i], LABELS) != 0 && strcmp(names[i], WORDS) != 0)
            list_one(h5, group, path, names[i], with_norm, tensors);
    kvf__strings_free(names, n);
}

void kvf__inspect_params(kvf__h5 *h5, const char *parent, const char *child, bool with_norm,
                         kvf_json *tensors)
{
    kvf__h5_id above = h5->file;
    char path[64];

    if (!kvf__h5_has(h5, h5->file, parent ? parent : child)) return;
    if (parent) above = kvf__h5_group_open(h5, h5->file, parent);
    snprintf(path, sizeof path, "%s%s%s", parent ? parent : "", parent ? "/" : "", child);
    if (kvf__h5_has(h5, above, child)) {
        kvf__h5_id group = kvf__h5_group_open(h5, above, child);
        list_group(h5, group, path, true, with_norm, tensors);
        kvf__h5_release(&group);
    }
    if (parent) kvf__h5_release(&above);
}

/* where: the group, in the list of tensors. */
static void describe_texts(kvf__h5 *h5, kvf__h5_id group, const char *where, const char *name,
                           kvf_json *attributes, kvf_json *tensors)
{
    size_t n = 0, bytes = 0;

    if (!kvf__h5_has(h5, group, name)) return;
    char **texts = kvf__h5_texts_read(h5, group, name, &n);
    char *path = join(h5, where, name);
    kvf_json *names = kvf_json_array();
    for (size_t i = 0; i < n; i++) {
        kvf_json_add(names, kvf_json_new_str(texts[i]));
        bytes += strlen(texts[i]);
    }
    kvf_json_set(attributes, name, names);
    if (path)
        kvf_json_add(tensors, kvf__tensor_entry(path, 1, &(int64_t){(int64_t)n}, "text", bytes));
    kvf__strings_free(texts, n);
    kvf__free(path);
}

/* Describes kind and names of a head's outputs. */
static void describe_group(kvf__h5 *h5, kvf__h5_id group, const char *path, kvf_json *attributes,
                           kvf_json *tensors)
{
    kvf_json_set(attributes, "regression",
                 kvf_json_new_bool(kvf__h5_get_bool(h5, group, "regression")));
    describe_texts(h5, group, path, LABELS, attributes, tensors);
    describe_texts(h5, group, path, WORDS, attributes, tensors);
}

/* Describes one of several heads by its name. */
static void describe_task(kvf__h5 *h5, kvf__h5_id heads, const char *name, kvf_json *all,
                          kvf_json *tensors)
{
    kvf_json *object = kvf_json_object();
    kvf__h5_id group = kvf__h5_group_open(h5, heads, name);
    char *path = join(h5, "heads", name), *task = kvf__h5_get_text(h5, group, "task");

    if (task) kvf_json_set(object, "task", kvf_json_new_str(task));
    describe_group(h5, group, path, object, tensors);
    kvf__set_taken(all, name, &object);
    kvf__free(path);
    kvf__free(task);
    kvf__h5_release(&group);
}

static void describe_heads(kvf__h5 *h5, kvf_json *attributes, kvf_json *tensors)
{
    kvf_json *all = kvf_json_object();
    kvf__h5_id heads = kvf__h5_group_open(h5, h5->file, "heads");
    size_t n = kvf__h5_child_count(h5, heads);
    char **names = kvf__h5_child_names(h5, heads, n);

    kvf_json_set(attributes, "heads", all);
    for (size_t i = 0; i < n && !h5->status; i++)
        describe_task(h5, heads, names[i], all, tensors);
    kvf__strings_free(names, n);
    kvf__h5_release(&heads);
}

void kvf__inspect_head(kvf__h5 *h5, kvf_json *root, kvf_json *tensors)
{
    kvf_json *attributes = kvf_json_get(root, "attributes");

    kvf__inspect_params(h5, NULL, "heads", true, tensors);
    if (kvf__h5_has(h5, h5->file, "heads")) describe_heads(h5, attributes, tensors);
    kvf__inspect_params(h5, NULL, "head", true, tensors);
    if (kvf__h5_has(h5, h5->file, "head")) {
        kvf__h5_id group = kvf__h5_group_open(h5, h5->file, "head");
        describe_group(h5, group, "head", attributes, tensors);
        kvf__h5_release(&group);
    }
}
