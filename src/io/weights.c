/* What the readers of foreign model files share: the maps behind an open model, and its end.
 *
 * The table views the maps, so they go last. */
#include "file_int.h"

kvf_status kvf__weights_map(kvf_ctx *ctx, const char *path, kvf__weights *weights)
{
    kvf__mapfile map = {0};

    KVF_TRY(kvf__mapfile_open(ctx, path, &map));
    weights->maps[weights->n_maps++] = map;
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

void kvf__weights_advise(const kvf__weights *weights, const void *at, size_t bytes, bool soon)
{
    for (size_t i = 0; i < weights->n_maps; i++)
        if (kvf__mapfile_advise(&weights->maps[i], at, bytes, soon)) return;
}

bool kvf__weights_read(const kvf__weights *weights, const void *at, size_t bytes, void *out)
{
    for (size_t i = 0; i < weights->n_maps; i++)
        if (kvf__mapfile_read(&weights->maps[i], at, bytes, out)) return true;
    return false;
}

void kvf__weights_forget(const kvf__weights *weights)
{
    for (size_t i = 0; i < weights->n_maps; i++)
        kvf__mapfile_forget(&weights->maps[i]);
}
