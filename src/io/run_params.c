/* The parameters of one group of a run file, one dataset each, named as PEFT names them
 * ("transform.0.weight"). */
#include "h5_priv.h"

#include <string.h>

enum { MAX_PARAM_RANK = 4 };

static kvf_status write_one(kvf__h5 *h5, kvf__h5_id group, const kvf__param *param)
{
    const kvf__h5_spec spec = {
        .name = param->name, .dtype = KVF__F32, .rank = param->rank, .dim = param->dim};
    int64_t count = 1;

    for (int i = 0; i < param->rank; i++)
        count *= param->dim[i];
    if (param->rank < 1 || param->rank > MAX_PARAM_RANK || count < 1 || count != param->n)
        return kvf__h5_fail(h5, group, KVF_ESHAPE,
                            "\"%s\" has rank %d and %lld elements, want rank 1 to %d, not empty",
                            param->name, param->rank, (long long)param->n, MAX_PARAM_RANK);
    if (!*param->name || strchr(param->name, '/') || strcmp(param->name, ".") == 0)
        return kvf__h5_fail(h5, group, KVF_EUSAGE, "\"%s\" cannot name a dataset", param->name);
    return kvf__h5_data_write(h5, group, &spec, param->value, NULL);
}

/* Parameters "TASK/name" from the first on, as a group of their own; *next: the one behind them. */
static kvf_status write_task(kvf__h5 *h5, kvf__h5_id parent, const kvf__params *params,
                             size_t first, size_t *next)
{
    kvf__h5_id group = KVF__H5_NONE;
    const char *name = params->item[first].name;
    int n = (int)strcspn(name, "/");
    char task[128];
    kvf_status st;

    snprintf(task, sizeof task, "%.*s", n, name);
    st = kvf__h5_group_create(h5, parent, task, &group);
    for (*next = first; *next < params->n && !st; (*next)++) {
        kvf__param param = params->item[*next];
        if (strncmp(param.name, name, (size_t)n + 1)) break;
        param.name += n + 1;
        st = write_one(h5, group, &param);
    }
    kvf__h5_release(&group);
    return st;
}

kvf_status kvf__run_params_write(kvf__h5 *h5, kvf__h5_id parent, const char *name,
                                 const kvf__params *params, kvf__h5_id *out)
{
    kvf__h5_id group = KVF__H5_NONE;
    kvf_status st;

    st = kvf__h5_group_create(h5, parent, name, &group);
    for (size_t i = 0, next; i < params->n && !st; i = next) {
        next = i + 1;
        if (strchr(params->item[i].name, '/'))
            st = write_task(h5, group, params, i, &next);
        else
            st = write_one(h5, group, &params->item[i]);
    }
    if (st || !out) goto out;
    *out = group;
    group = KVF__H5_NONE;
out:
    kvf__h5_release(&group);
    return st;
}

kvf_status kvf__params_owned_add(kvf_ctx *ctx, kvf__params_owned *params, char *name, int rank,
                                 const int64_t *dim, kvf__param **out)
{
    kvf__param param = {.name = name, .rank = rank, .n = 1, .lr_scale = 1};
    kvf_status st;

    for (int i = 0; i < rank; i++) {
        param.dim[i] = dim[i];
        param.n *= dim[i];
    }
    st = kvf__alloc_array(ctx, (size_t)param.n, sizeof(float), &param.value);
    if (st) goto out;
    st = kvf__params_add(ctx, &params->params, &param);
    if (st) goto out;
    *out = &params->params.item[params->params.n - 1];
    return KVF_OK;
out:
    kvf__free(param.value);
    kvf__free(name);
    return st;
}

kvf_status kvf__run_params_read_one(kvf__h5 *h5, kvf__h5_id group, char *name,
                                    kvf__params_owned *params)
{
    kvf__h5_data data = {.id = KVF__H5_NONE};
    kvf__param *param = NULL;
    char text[128];
    kvf_status st;

    st = kvf__h5_data_open(h5, group, name, &data);
    if (st) goto out;
    if (data.dtype != KVF__F32 || data.rank > MAX_PARAM_RANK || data.count == 0) {
        st = kvf__h5_fail(h5, data.id, KVF_ESHAPE, "%s of %s, want f32, rank 1 to %d, not empty",
                          kvf__shape_text(text, data.rank, data.dim), kvf__dtype_name(data.dtype),
                          MAX_PARAM_RANK);
        goto out;
    }
    st = kvf__params_owned_add(h5->ctx, params, name, data.rank, data.dim, &param);
    name = NULL;
    if (st) goto out;
    st = kvf__h5_data_read(h5, &data, param->value);
out:
    kvf__free(name);
    kvf__h5_release(&data.id);
    return st;
}

static kvf_status bad_count(kvf__h5 *h5, kvf__h5_id group, size_t n)
{
    return kvf__h5_fail(h5, group, KVF_EFORMAT, "%zu parameters, want 1 to %d", n,
                        KVF__MOST_PARAMS);
}

kvf_status kvf__run_params_read(kvf__h5 *h5, kvf__h5_id group, const char *except,
                                kvf__params_owned *out)
{
    size_t n = 0;

    KVF_TRY(kvf__h5_child_count(h5, group, &n));
    if (n > KVF__MOST_PARAMS) return bad_count(h5, group, n);
    for (size_t i = 0; i < n; i++) {
        char *name = NULL;
        KVF_TRY(kvf__h5_child_name(h5, group, i, &name));
        if (except && strcmp(name, except) == 0)
            kvf__free(name);
        else
            KVF_TRY(kvf__run_params_read_one(h5, group, name, out));
    }
    return out->params.n ? KVF_OK : bad_count(h5, group, 0);
}

kvf_status kvf__run_params_same(kvf__h5 *h5, kvf__h5_id group, const kvf__params *got,
                                const kvf__params *want, const char *whose)
{
    char found[128], expected[128];

    if (got->n != want->n)
        return kvf__h5_fail(h5, group, KVF_EFORMAT, "%zu parameters, but the %s has %zu", got->n,
                            whose, want->n);
    for (size_t i = 0; i < got->n; i++) {
        const kvf__param *g = &got->item[i], *w = &want->item[i];
        if (strcmp(g->name, w->name) != 0)
            return kvf__h5_fail(h5, group, KVF_EFORMAT,
                                "parameter %zu is \"%s\", but the %s's is \"%s\"", i, g->name,
                                whose, w->name);
        if (g->rank != w->rank || memcmp(g->dim, w->dim, (size_t)w->rank * sizeof *w->dim) != 0)
            return kvf__h5_fail(h5, group, KVF_ESHAPE, "\"%s\" is %s, but the %s's is %s", g->name,
                                kvf__shape_text(found, g->rank, g->dim), whose,
                                kvf__shape_text(expected, w->rank, w->dim));
    }
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
