/* The parameters of a group of a file, one dataset each, with PEFT's names ("transform.0.weight").
 * Those of several tasks, "TASK/name" in memory, have a group per task. */
#include "artifact_priv.h"

#include <string.h>

enum { MAX_PARAM_RANK = 4 };

/* ---- writing --------------------------------------------------------------------------------- */

static void write_one(kvf__h5 *h5, kvf__h5_id group, const kvf__param *param)
{
    const kvf__h5_spec spec = {
        .name = param->name, .dtype = KVF__F32, .rank = param->rank, .dim = param->dim};
    int64_t count = 1;

    for (int i = 0; i < param->rank; i++)
        count *= param->dim[i];
    if (param->rank < 1 || param->rank > MAX_PARAM_RANK || count < 1 || count != param->n)
        kvf__h5_fail(h5, group, KVF_ESHAPE,
                     "\"%s\" has rank %d and %lld elements, want rank 1 to %d, not empty",
                     param->name, param->rank, (long long)param->n, MAX_PARAM_RANK);
    if (!*param->name || strchr(param->name, '/') || strcmp(param->name, ".") == 0)
        kvf__h5_fail(h5, group, KVF_EUSAGE, "\"%s\" cannot name a dataset", param->name);
    kvf__h5_data_write(h5, group, &spec, param->value, NULL);
}

/* Writes parameters "TASK/name" from `first` on as a group; returns the index after them. */
static size_t write_task(kvf__h5 *h5, kvf__h5_id parent, const kvf__params *params, size_t first)
{
    const char *name = params->item[first].name;
    int n = (int)strcspn(name, "/");
    char task[128];
    size_t next = first;

    snprintf(task, sizeof task, "%.*s", n, name);
    kvf__h5_id group = kvf__h5_group_create(h5, parent, task);
    for (; next < params->n && !strncmp(params->item[next].name, name, (size_t)n + 1); next++) {
        kvf__param param = params->item[next];
        param.name += n + 1;
        write_one(h5, group, &param);
    }
    kvf__h5_release(&group);
    return next;
}

kvf__h5_id kvf__param_group_write(kvf__h5 *h5, kvf__h5_id parent, const char *name,
                                  const kvf__params *params)
{
    kvf__h5_id group = kvf__h5_group_create(h5, parent, name);

    for (size_t i = 0; i < params->n;)
        if (strchr(params->item[i].name, '/'))
            i = write_task(h5, group, params, i);
        else
            write_one(h5, group, &params->item[i++]);
    return group;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Reads one dataset; task NULL: the parameter has the same name. */
static void read_one(kvf__h5 *h5, kvf__h5_id group, const char *task, const char *name,
                     kvf__params_owned *params)
{
    kvf__h5_data data = kvf__h5_data_open(h5, group, name);
    kvf__param *param = NULL;
    char whole[2 * KVF__H5_NAME], text[128];

    if (data.dtype != KVF__F32 || data.rank > MAX_PARAM_RANK || data.count == 0)
        kvf__h5_fail(h5, data.id, KVF_ESHAPE, "%s of %s, want f32, rank 1 to %d, not empty",
                     kvf__shape_text(text, data.rank, data.dim), kvf__dtype_name(data.dtype),
                     MAX_PARAM_RANK);
    snprintf(whole, sizeof whole, "%s%s%s", task ? task : "", task ? "/" : "", name);
    KVF__H5_TRY(h5, kvf__params_owned_add(h5->ctx, params, whole, data.rank, data.dim, &param));
    if (param) kvf__h5_data_read(h5, &data, param->value, (size_t)param->n * sizeof *param->value);
    kvf__h5_release(&data.id);
}

static void check_count(kvf__h5 *h5, kvf__h5_id group, size_t n)
{
    if (n < 1 || n > KVF__MOST_PARAMS)
        kvf__h5_fail(h5, group, KVF_EFORMAT, "%zu parameters, want 1 to %d", n, KVF__MOST_PARAMS);
}

static void read_group(kvf__h5 *h5, kvf__h5_id group, const char *task, const char *except,
                       kvf__params_owned *out)
{
    size_t n = kvf__h5_child_count(h5, group), before = out->params.n;

    check_count(h5, group, n);
    char **names = kvf__h5_child_names(h5, group, n);
    for (size_t i = 0; i < n && !h5->status; i++)
        if (!except || strcmp(names[i], except)) read_one(h5, group, task, names[i], out);
    check_count(h5, group, out->params.n - before);
    kvf__strings_free(names, n);
}

void kvf__param_group_read(kvf__h5 *h5, kvf__h5_id group, const char *except,
                           kvf__params_owned *out)
{
    read_group(h5, group, NULL, except, out);
}

void kvf__param_group_read_task(kvf__h5 *h5, kvf__h5_id group, const char *task, const char *except,
                                kvf__params_owned *out)
{
    size_t n = kvf__h5_child_count(h5, group), others = kvf__h5_has(h5, group, except);

    if (n > others) read_group(h5, group, task, except, out);
}

static bool is_task(const kvf__head_values *heads, const char *name)
{
    for (size_t i = 0; i < heads->n_tasks; i++)
        if (!strcmp(heads->tasks[i].name, name)) return true;
    return false;
}

void kvf__param_group_read_tasks(kvf__h5 *h5, kvf__h5_id group, const kvf__head_values *heads,
                                 kvf__params_owned *out)
{
    size_t n = kvf__h5_child_count(h5, group);

    if (!heads->n_tasks) {
        kvf__param_group_read(h5, group, NULL, out);
        return;
    }
    if (n > KVF__MOST_PARAMS)
        kvf__h5_fail(h5, group, KVF_EFORMAT, "%zu parameters, want at most %d", n,
                     KVF__MOST_PARAMS);
    char **names = kvf__h5_child_names(h5, group, n);
    for (size_t i = 0; i < n && !h5->status; i++) {
        kvf__h5_id inner = KVF__H5_NONE;
        if (!is_task(heads, names[i])) {
            read_one(h5, group, NULL, names[i], out);
            continue;
        }
        inner = kvf__h5_group_open(h5, group, names[i]);
        kvf__param_group_read_task(h5, inner, names[i], "labels", out);
        kvf__h5_release(&inner);
    }
    kvf__strings_free(names, n);
}

void kvf__param_group_same(kvf__h5 *h5, kvf__h5_id group, const kvf__params *got,
                           const kvf__params *want, const char *whose)
{
    char found[128], expected[128];

    if (got->n != want->n)
        kvf__h5_fail(h5, group, KVF_EFORMAT, "%zu parameters, but the %s has %zu", got->n, whose,
                     want->n);
    for (size_t i = 0; i < got->n && !h5->status; i++) {
        const kvf__param *g = &got->item[i], *w = &want->item[i];
        if (strcmp(g->name, w->name) != 0)
            kvf__h5_fail(h5, group, KVF_EFORMAT, "parameter %zu is \"%s\", but the %s's is \"%s\"",
                         i, g->name, whose, w->name);
        if (g->rank != w->rank || memcmp(g->dim, w->dim, (size_t)w->rank * sizeof *w->dim) != 0)
            kvf__h5_fail(h5, group, KVF_ESHAPE, "\"%s\" is %s, but the %s's is %s", g->name,
                         kvf__shape_text(found, g->rank, g->dim), whose,
                         kvf__shape_text(expected, w->rank, w->dim));
    }
}
