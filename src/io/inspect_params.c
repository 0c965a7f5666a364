/* Groups of parameters described: encoder, head, moments. Values are read only where their norm is
 * wanted: moments are a multiple of the encoder's size. */
#include "inspect_int.h"

#include <math.h>
#include <string.h>

/* The children of /head that are no parameters. */
static const char LABELS[] = "labels", WORDS[] = "words";

/* In several sums, of which none waits for another. */
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

static kvf_status norm_of(kvf__h5 *h5, const kvf__h5_data *data, double *out)
{
    float *values = NULL;
    kvf_status st;

    if (kvf__h5_skips(h5, data)) return KVF_OK;
    st = kvf__grow(h5->ctx, &values, 0, data->bytes); /* written whole */
    if (st) goto out;
    st = kvf__h5_data_read(h5, data, values);
    if (st) goto out;
    *out = sqrt(sum_of_squares(values, data->count));
out:
    kvf__free(values);
    return st;
}

/* One dataset of `group`, named by its whole path. */
static kvf_status list_one(kvf__h5 *h5, kvf__h5_id group, const char *path, const char *name,
                           bool with_norm, kvf_json *tensors)
{
    kvf__h5_data data = {.id = KVF__H5_NONE};
    kvf_json *entry = NULL;
    char *whole = NULL;
    double norm = 0;
    kvf_status st;

    st = kvf__h5_data_open(h5, group, name, &data);
    if (st) goto out;
    st = kvf__asprintf(h5->ctx, &whole, "%s/%s", path, name);
    if (st) goto out;
    st = kvf__dataset_entry(h5, whole, &data, &entry);
    if (st) goto out;
    if (with_norm && data.dtype == KVF__F32) {
        st = norm_of(h5, &data, &norm);
        if (st) goto out;
        kvf_json_set(entry, "norm", kvf_json_new_real(norm));
    }
    kvf_json_add(tensors, entry);
    entry = NULL;
out:
    kvf_json_free(entry);
    kvf__free(whole);
    kvf__h5_release(&data.id);
    return st;
}

static kvf_status list_group(kvf__h5 *h5, kvf__h5_id group, const char *path, bool with_norm,
                             kvf_json *tensors);

/* Is it one of several tasks, whose parameters have a group of their own? */
static kvf_status is_task(kvf__h5 *h5, const char *name, bool *out)
{
    kvf__h5_id heads = KVF__H5_NONE;
    kvf_status st;

    KVF_TRY(kvf__h5_has(h5, h5->file, "heads", out));
    if (!*out) return KVF_OK;
    st = kvf__h5_group_open(h5, h5->file, "heads", &heads);
    if (!st) st = kvf__h5_has(h5, heads, name, out);
    kvf__h5_release(&heads);
    return st;
}

static kvf_status list_task(kvf__h5 *h5, kvf__h5_id parent, const char *path, const char *name,
                            bool with_norm, kvf_json *tensors)
{
    kvf__h5_id group = KVF__H5_NONE;
    char *whole = NULL;
    kvf_status st;

    st = kvf__asprintf(h5->ctx, &whole, "%s/%s", path, name);
    if (!st) st = kvf__h5_group_open(h5, parent, name, &group);
    if (!st) st = list_group(h5, group, whole, with_norm, tensors);
    kvf__h5_release(&group);
    kvf__free(whole);
    return st;
}

static kvf_status list_group(kvf__h5 *h5, kvf__h5_id group, const char *path, bool with_norm,
                             kvf_json *tensors)
{
    size_t n = 0;

    KVF_TRY(kvf__h5_child_count(h5, group, &n));
    if (n > KVF__MOST_PARAMS)
        return kvf__h5_fail(h5, group, KVF_EFORMAT, "%zu datasets, want at most %d", n,
                            KVF__MOST_PARAMS);
    for (size_t i = 0; i < n; i++) {
        char *name = NULL;
        KVF_TRY(kvf__h5_child_name(h5, group, i, &name));
        bool task = false;
        kvf_status st = is_task(h5, name, &task);
        if (!st && task)
            st = list_task(h5, group, path, name, with_norm, tensors);
        else if (!st && strcmp(name, LABELS) != 0 && strcmp(name, WORDS) != 0)
            st = list_one(h5, group, path, name, with_norm, tensors);
        kvf__free(name);
        if (st) return st;
    }
    return KVF_OK;
}

kvf_status kvf__inspect_params(kvf__h5 *h5, const char *parent, const char *child, bool with_norm,
                               kvf_json *tensors)
{
    kvf__h5_id above = KVF__H5_NONE, group = KVF__H5_NONE;
    char *path = NULL;
    bool there = false;
    kvf_status st;

    st = kvf__h5_has(h5, h5->file, parent ? parent : child, &there);
    if (st || !there) goto out;
    st = kvf__asprintf(h5->ctx, &path, "%s%s%s", parent ? parent : "", parent ? "/" : "", child);
    if (st) goto out;
    if (parent) st = kvf__h5_group_open(h5, h5->file, parent, &above);
    if (st) goto out;
    if (parent) st = kvf__h5_has(h5, above, child, &there);
    if (st || !there) goto out;
    st = kvf__h5_group_open(h5, parent ? above : h5->file, child, &group);
    if (st) goto out;
    st = list_group(h5, group, path, with_norm, tensors);
out:
    kvf__h5_release(&group);
    kvf__h5_release(&above);
    kvf__free(path);
    return st;
}

/* where: the group, in the list of tensors. */
static kvf_status describe_texts(kvf__h5 *h5, kvf__h5_id group, const char *where, const char *name,
                                 kvf_json *attributes, kvf_json *tensors)
{
    char **texts = NULL;
    size_t n = 0;
    bool there = false;
    char *path = NULL;

    KVF_TRY(kvf__h5_has(h5, group, name, &there));
    if (!there) return KVF_OK;
    KVF_TRY(kvf__h5_texts_read(h5, group, name, &texts, &n));
    kvf_json *names = kvf_json_array();
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        kvf_json_add(names, kvf_json_new_str(texts[i]));
        bytes += strlen(texts[i]);
        kvf__free(texts[i]);
    }
    kvf__free(texts);
    kvf_json_set(attributes, name, names);
    KVF_TRY(kvf__asprintf(h5->ctx, &path, "%s/%s", where, name));
    kvf_json_add(tensors, kvf__tensor_entry(path, 1, &(int64_t){(int64_t)n}, "text", bytes));
    kvf__free(path);
    return KVF_OK;
}

/* What a head says of itself. */
static kvf_status describe_group(kvf__h5 *h5, kvf__h5_id group, const char *path,
                                 kvf_json *attributes, kvf_json *tensors)
{
    bool regression = false;

    KVF_TRY(kvf__h5_get_bool(h5, group, "regression", &regression));
    kvf_json_set(attributes, "regression", kvf_json_new_bool(regression));
    KVF_TRY(describe_texts(h5, group, path, LABELS, attributes, tensors));
    return describe_texts(h5, group, path, WORDS, attributes, tensors);
}

/* One of the heads of several tasks, by its name. */
static kvf_status describe_task(kvf__h5 *h5, kvf__h5_id heads, size_t i, kvf_json *all,
                                kvf_json *tensors)
{
    kvf_json *object = kvf_json_object();
    kvf__h5_id group = KVF__H5_NONE;
    char *name = NULL, *task = NULL, *path = NULL;
    kvf_status st;

    st = kvf__h5_child_name(h5, heads, i, &name);
    if (!st) st = kvf__asprintf(h5->ctx, &path, "heads/%s", name);
    if (!st) st = kvf__h5_group_open(h5, heads, name, &group);
    if (!st) st = kvf__h5_get_text(h5, group, "task", &task);
    if (!st) {
        kvf_json_set(object, "task", kvf_json_new_str(task));
        st = describe_group(h5, group, path, object, tensors);
    }
    if (!st) kvf__set_taken(all, name, &object);
    kvf_json_free(object);
    kvf__free(path);
    kvf__free(task);
    kvf__free(name);
    kvf__h5_release(&group);
    return st;
}

static kvf_status describe_heads(kvf__h5 *h5, kvf_json *attributes, kvf_json *tensors)
{
    kvf_json *all = kvf_json_object();
    kvf__h5_id heads = KVF__H5_NONE;
    size_t n = 0;
    kvf_status st;

    kvf_json_set(attributes, "heads", all);
    st = kvf__h5_group_open(h5, h5->file, "heads", &heads);
    if (!st) st = kvf__h5_child_count(h5, heads, &n);
    for (size_t i = 0; i < n && !st; i++)
        st = describe_task(h5, heads, i, all, tensors);
    kvf__h5_release(&heads);
    return st;
}

kvf_status kvf__inspect_head(kvf__h5 *h5, kvf_json *root, kvf_json *tensors)
{
    kvf_json *attributes = kvf_json_get(root, "attributes");
    kvf__h5_id group = KVF__H5_NONE;
    bool there = false;
    kvf_status st;

    KVF_TRY(kvf__inspect_params(h5, NULL, "heads", true, tensors));
    KVF_TRY(kvf__h5_has(h5, h5->file, "heads", &there));
    if (there) KVF_TRY(describe_heads(h5, attributes, tensors));
    KVF_TRY(kvf__h5_has(h5, h5->file, "head", &there));
    if (!there) return KVF_OK;
    KVF_TRY(kvf__inspect_params(h5, NULL, "head", true, tensors));
    st = kvf__h5_group_open(h5, h5->file, "head", &group);
    if (!st) st = describe_group(h5, group, "head", attributes, tensors);
    kvf__h5_release(&group);
    return st;
}
