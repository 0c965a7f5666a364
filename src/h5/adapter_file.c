/* The adapter file: the folded form of a run with bottleneck adapters (docs/format.md).
 *
 *   /adapter/<layer>.<attn|ffn>.<down|up>.<weight|bias>    down.weight [m, C], up.weight [C, m]
 *   /adapter/<Hugging Face name>                           norms trained with them
 *
 * all f32; attributes size (m), activation and placement of /adapter. The values equal those of
 * the run bit for bit, because no encoder is involved. */
#include "artifact_priv.h"

#include <math.h>

static const char GROUP[] = "adapter";

static kvf_status check(kvf_ctx *ctx, const char *path, const kvf__artifact *a)
{
    const kvf__params *params = &a->values.params;

    for (size_t i = 0; i < params->n; i++)
        for (int64_t j = 0; j < params->item[i].n; j++)
            if (!isfinite(params->item[i].value[j]))
                return kvf__fail(
                    ctx, KVF_ENUMERIC, "%s: /%s/%s: element %lld is %g, want finite values", path,
                    GROUP, params->item[i].name, (long long)j, (double)params->item[i].value[j]);
    return KVF_OK;
}

static kvf__h5_id write_params(kvf__h5 *h5, const kvf__artifact *a)
{
    return kvf__param_group_write(h5, h5->file, GROUP, &a->values.params);
}

static void write_attrs(kvf__h5 *h5, kvf__h5_id group, const kvf__artifact *a)
{
    kvf__h5_put_i64(h5, group, "size", a->size);
    kvf__h5_put_text(h5, group, "activation", a->activation);
    kvf__h5_put_text(h5, group, "placement", a->placement);
}

static void read_params(kvf__h5 *h5, const kvf__h5_data *group, kvf__artifact *a)
{
    a->size = kvf__h5_get_i64(h5, group->id, "size");
    if (a->size < 1 || a->size > INT32_MAX)
        kvf__h5_fail(h5, group->id, KVF_EFORMAT, "size is %lld, want 1 to 2^31 - 1",
                     (long long)a->size);
    a->activation = kvf__h5_get_text(h5, group->id, "activation");
    a->placement = kvf__h5_get_text(h5, group->id, "placement");
    kvf__param_group_read(h5, group->id, NULL, &a->values);
    KVF__H5_TRY(h5, check(h5->ctx, h5->path, a));
}

const kvf__kind_row kvf__adapter_row = {
    .name = "adapter",
    .object = GROUP,
    .check = check,
    .write = write_params,
    .write_attrs = write_attrs,
    .read = read_params,
};
