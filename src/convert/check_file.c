/* Reads a whole kvfold file and discards it: makes every HDF5 call that a command will make, in a
 * process where a crash of HDF5 does no harm. */
#include "base_file.h"
#include "sandbox.h"

#include <kvfold/io.h>

static kvf_status try_base(kvf_ctx *ctx, const char *path)
{
    kvf__base_file file = {0};
    kvf_status st = kvf__base_file_open(ctx, path, true, &file);

    kvf__base_file_done(&file);
    return st;
}

/* Moments of a run are described like all tensors; only the trainer reads their values. */
kvf_status kvf__check_file(kvf_ctx *ctx, const char *path)
{
    kvf__kind kind = KVF__KIND_ANY;
    kvf__artifact artifact = {0};
    kvf_json *description = NULL;

    kvf__sandbox_begin(ctx);
    KVF_TRY(kvf__kind_of(ctx, path, &kind));
    if (kind == KVF__KIND_BASE) KVF_TRY(try_base(ctx, path));
    KVF_TRY(kvf__artifact_read(ctx, path, kind, &artifact));
    kvf__artifact_done(&artifact);
    kvf_status st = kvf_inspect(ctx, path, &description);
    if (!st) kvf_json_free(description);
    return st == KVF_EUNSUPPORTED ? KVF_OK : st; /* readable, but not described */
}
