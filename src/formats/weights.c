/* Common functions of the readers of foreign model files: maps of an open model, and closing it.
 *
 * The table views the maps, so they are closed last. */
#include "file_int.h"

#include <math.h>

kvf_status kvf__weights_map(kvf_ctx *ctx, const char *path, kvf__weights *weights)
{
    kvf__mapfile map = {0};

    KVF_TRY(kvf__mapfile_open(ctx, path, &map));
    weights->maps[weights->n_maps++] = map;
    return KVF_OK;
}

kvf_status kvf__weights_open_with(kvf_ctx *ctx, const char *path, kvf__parse parse,
                                  kvf__weights *out)
{
    kvf__weights weights = {0};

    KVF_TRY(kvf__alloc_array(ctx, 1, sizeof *weights.maps, &weights.maps));
    kvf_status st = kvf__weights_map(ctx, path, &weights);
    if (!st) st = parse(ctx, path, weights.maps[0].data, weights.maps[0].n, &weights);
    KVF__GIVE(st, out, weights, kvf__weights_close(&weights));
    return st;
}

bool kvf__shape_count(const kvf__view *view, size_t *count, bool *empty)
{
    *count = 1;
    *empty = false;
    for (int i = 0; i < view->rank; i++) {
        if (view->dim[i] == 0)
            *empty = true;
        else if (!kvf__mul(*count, (size_t)view->dim[i], count))
            return false;
        if (*count > INT64_MAX) return false;
    }
    return true;
}

const char *kvf__view_type_name(const kvf__view *view)
{
    return view->dtype == KVF__OTHER ? view->other_name : kvf__dtype_name(view->dtype);
}

kvf_status kvf__check_finite(kvf_ctx *ctx, const char *where, const char *name, const float *values,
                             int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(values[i]))
            return kvf__fail(ctx, KVF_ENUMERIC, "%s: \"%s\" holds %g, want finite values", where,
                             name, (double)values[i]);
    return KVF_OK;
}

void kvf__weights_close(kvf__weights *weights)
{
    kvf__table_done(&weights->table);
    kvf_json_free(weights->meta);
    kvf__free(weights->arrays);
    for (size_t i = 0; i < weights->n_maps; i++)
        kvf__mapfile_close(&weights->maps[i]);
    kvf__free(weights->maps);
    *weights = (kvf__weights){0};
}

void kvf__weights_advise(void *weights, const void *at, size_t bytes, bool soon)
{
    const kvf__weights *w = weights;
    for (size_t i = 0; i < w->n_maps; i++)
        if (kvf__mapfile_advise(&w->maps[i], at, bytes, soon)) return;
}

bool kvf__weights_read(void *weights, const void *at, size_t bytes, void *out)
{
    const kvf__weights *w = weights;
    for (size_t i = 0; i < w->n_maps; i++)
        if (kvf__mapfile_read(&w->maps[i], at, bytes, out)) return true;
    return false;
}

void kvf__weights_forget(void *weights)
{
    const kvf__weights *w = weights;
    for (size_t i = 0; i < w->n_maps; i++)
        kvf__mapfile_forget(&w->maps[i]);
}
