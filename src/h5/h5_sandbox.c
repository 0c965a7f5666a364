/* Checking a kvfold file before HDF5 opens it: another process, which a crash of HDF5 cannot harm,
 * reads the whole file (check_file.c). */
#include "h5.h"
#include "sandbox.h"

/* The sandbox skips the values of larger datasets, but walks their index and checks that each chunk
 * is complete. Only Fletcher32, shuffle and zlib remain unchecked. */
enum { MOST_TRIED = 1 << 20 };

bool kvf__h5_skips(const kvf__h5 *h5, const kvf__h5_data *data)
{
    return kvf__in_sandbox(h5->ctx) && data->bytes > MOST_TRIED;
}

/* Both processes check the bytes at the same time, and this one's result takes precedence. The
 * other repeats the check because invalid reads of HDF5 depend on earlier uses of memory. */
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
