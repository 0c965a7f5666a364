/* The adapter file: what a run of bottleneck adapters folds to (docs/format.md).
 *
 *   /adapter/<layer>.<attn|ffn>.<down|up>.<weight|bias>    down.weight [m, C], up.weight [C, m]
 *   /adapter/<Hugging Face name>                           the norms that were trained with them
 *
 * all f32, with attributes size (m), activation and placement beside those that every file has of
 * its training on /adapter; /head, /options and /lineage as in a prefix file. There is nothing to
 * emit, so the values are the run's own, bit for bit. */
#include "h5_priv.h"

#include <math.h>
#include <string.h>

static const char GROUP[] = "adapter";

/* ---- writing --------------------------------------------------------------------------------- */

static kvf_status check_values(kvf_ctx *ctx, const char *path, const kvf__params *params)
{
    for (size_t i = 0; i < params->n; i++)
        for (int64_t j = 0; j < params->item[i].n; j++)
            if (!isfinite(params->item[i].value[j]))
                return kvf__fail(
                    ctx, KVF_ENUMERIC, "%s: /%s/%s: element %lld is %g, want finite values", path,
                    GROUP, params->item[i].name, (long long)j, (double)params->item[i].value[j]);
    return KVF_OK;
}

kvf_status kvf__adapter_file_write(kvf_ctx *ctx, const char *path, bool force,
                                   const kvf__adapter_file *file)
{
    kvf__h5 h5;
    kvf__h5_id group;

    KVF_TRY(check_values(ctx, path, &file->params.params));
    h5 = kvf__h5_create(ctx, path, force, GROUP);
    group = kvf__param_group_write(&h5, h5.file, GROUP, &file->params.params);
    kvf__identity_write(&h5, group, true, &file->id);
    kvf__h5_put_i64(&h5, group, "size", file->size);
    kvf__h5_put_text(&h5, group, "activation", file->activation);
    kvf__h5_put_text(&h5, group, "placement", file->placement);
    kvf__file_end_write(&h5, file->id.task, &file->head, file->options, file->lineage);
    kvf__h5_release(&group); /* not before: the order decides where HDF5 puts what */
    return kvf__h5_close(&h5);
}

/* ---- reading --------------------------------------------------------------------------------- */

kvf_status kvf__adapter_file_read(kvf_ctx *ctx, const char *path, kvf__adapter_file *out)
{
    kvf__h5 h5 = kvf__h5_open(ctx, path, GROUP);
    kvf__h5_id group = kvf__h5_group_open(&h5, h5.file, GROUP);
    kvf__adapter_file file = {0};
    kvf_status st;

    kvf__identity_read(&h5, group, true, &file.id);
    file.size = kvf__h5_get_i64(&h5, group, "size");
    if (file.size < 1 || file.size > INT32_MAX)
        kvf__h5_fail(&h5, group, KVF_EFORMAT, "size is %lld, want 1 to 2^31 - 1",
                     (long long)file.size);
    file.activation = kvf__h5_get_text(&h5, group, "activation");
    file.placement = kvf__h5_get_text(&h5, group, "placement");
    kvf__param_group_read(&h5, group, NULL, &file.params);
    KVF__H5_TRY(&h5, check_values(ctx, path, &file.params.params));
    kvf__h5_release(&group);
    kvf__file_end_read(&h5, file.id.task, &file.head, &file.options, &file.lineage);
    st = kvf__h5_close(&h5);
    if (st)
        kvf__adapter_file_done(&file);
    else
        *out = file;
    return st;
}

void kvf__adapter_file_done(kvf__adapter_file *file)
{
    kvf__identity_done(&file->id);
    kvf__free(file->activation);
    kvf__free(file->placement);
    kvf__params_owned_done(&file->params);
    kvf__head_values_done(&file->head);
    kvf_json_free(file->options);
    kvf_json_free(file->lineage);
    *file = (kvf__adapter_file){0};
}
