/* Folding what has no encoder: adapters and the norms trained with them leave the run as they are,
 * bit for bit, for the adapter file that inference loads. */
#include "merge_int.h"

#include <math.h>
#include <string.h>

kvf_status kvf__fold_adapter(kvf_ctx *ctx, const kvf_merge_options *options, const kvf_prefix *live,
                             kvf_merge_result *result)
{
    const kvf__adapter_shape *shape = &live->form.adapters;
    kvf__artifact file = kvf__prefix_view(live, KVF__KIND_ADAPTER);

    file.size = shape->size;
    file.activation = (char *)kvf__adapter_act_name(shape->act);
    file.placement = (char *)kvf__adapter_place_name(shape->place);
    KVF_TRY(kvf__artifact_write(ctx, options->out, options->force, &file));
    KVF_TRY(kvf__verify_adapter(ctx, options->out, live));
    result->max_abs_diff = 0;
    const int64_t dims[] = {live->file.id.L, kvf__adapter_halves(shape), shape->size,
                            live->file.values.params.item[0].dim[1]};
    memcpy(result->shape, dims, sizeof dims);
    result->rank = 4;
    return KVF_OK;
}
