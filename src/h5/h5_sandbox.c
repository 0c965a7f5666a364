/* A kvfold file tried before HDF5 opens it: where a crash of HDF5 does no harm, another process
 * reads it whole (check_file.c). */
#include "h5.h"
#include "sandbox.h"

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
