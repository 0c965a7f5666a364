/* An encoder as a run that no training has touched yet. */
#include "write_run.h"

#include "encoder_int.h"

#include <string.h>

kvf_status kvf__encoder_write_run(kvf_ctx *ctx, const char *path, bool force, kvf__encoder *encoder,
                                  kvf__artifact *run)
{
    if (!run->layer_mask) {
        KVF_TRY(kvf__alloc(ctx, (size_t)run->id.L, &run->layer_mask));
        memset(run->layer_mask, 1, (size_t)run->id.L);
    }
    run->state = kvf_json_object();
    if (!kvf_json_set(run->state, "step", kvf_json_new_int(0)))
        return kvf__fail(ctx, KVF_ENOMEM, "%s: out of memory", path);
    kvf_status st = kvf__log_weight_param(ctx, &run->prefix, NULL, &run->values.params);
    if (!st) st = kvf__params_append(ctx, &run->values.params, kvf__encoder_params(encoder));
    if (!st) st = kvf__artifact_write(ctx, path, force, run);
    kvf__params_done(&run->values.params); /* the values are the encoder's and the prefix's own */
    return st;
}
