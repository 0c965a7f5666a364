/* A run that no training has touched yet: an encoder at step 0, without moments. What import and
 * unmerge make; train --init-from starts from it. */
#include "encoder_int.h"
#include "load_int.h"

#include <string.h>

kvf_status kvf__first_run_write(kvf_ctx *ctx, const char *path, bool force, kvf__encoder *encoder,
                                kvf__artifact *run)
{
    if (!run->layer_mask) {
        KVF_TRY(kvf__alloc(ctx, (size_t)run->id.L, &run->layer_mask));
        memset(run->layer_mask, 1, (size_t)run->id.L);
    }
    run->state = kvf_json_object();
    if (!kvf_json_set(run->state, "step", kvf_json_new_int(0)))
        return kvf__fail(ctx, KVF_ENOMEM, "%s: out of memory", path);
    run->values.params = *kvf__encoder_params(encoder);
    kvf_status st = kvf__artifact_write(ctx, path, force, run);
    run->values.params = (kvf__params){0}; /* the encoder's own memory */
    return st;
}
