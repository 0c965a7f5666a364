/* A kvfold file read whole and forgotten: every HDF5 call that a command will make on it, made
 * once where a crash of HDF5 does no harm. */
#include "base_file.h"
#include "h5.h"
#include "sandbox.h"

#include <kvfold/io.h>
#include <string.h>

/* On trial the values of larger datasets are not read: their index is walked and each chunk found
 * to be whole all the same, and what is left to go wrong is Fletcher32, shuffle and zlib. */
enum { MOST_TRIED = 1 << 20 };

bool kvf__h5_skips(const kvf__h5 *h5, const kvf__h5_data *data)
{
    return kvf__in_sandbox(h5->ctx) && data->bytes > MOST_TRIED;
}

/* Both processes check the bytes at the same time, and the result of this one comes first. The
 * other could leave that out, but where HDF5 reads past its memory, the outcome depends on earlier
 * uses of memory: so it does the same. */
kvf_status kvf__h5_sandbox(kvf_ctx *ctx, const kvf__mapfile *map)
{
    kvf__check check;

    if (kvf__sandbox_passed(ctx, map)) return KVF_OK;
    KVF_TRY(kvf__check_begin(ctx, map, &check));
    kvf_status st = kvf__h5_check_bytes(ctx, map);
    if (!st) return kvf__check_end(ctx, &check);
    kvf__check_drop(&check);
    return st;
}

static kvf_status try_base(kvf_ctx *ctx, const char *path)
{
    kvf__weights weights = {0};
    kvf__base_file file = {0};
    kvf_status st = kvf__base_file_open(ctx, path, &weights, &file);

    kvf__base_file_done(&file);
    kvf__weights_close(&weights);
    return st;
}

/* Moments of a run are described, like all tensors, and only the trainer reads their values. */
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
    return st == KVF_EUNSUPPORTED ? KVF_OK : st; /* a kind that is read, but not described */
}
