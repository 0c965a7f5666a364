/* Stubs of a build without MPI. Every process is alone. A process that was started with others
 * fails, because each would train the same run. */
#include "dist_int.h"
#include "launch.h"

#include <assert.h>

kvf_status kvf__dist_join(kvf_ctx *ctx, kvf__dist **out)
{
    kvf__launch launch = kvf__launch_look();
    (void)out;
    if (!launch.by) return KVF_OK;
    return kvf__fail(ctx, KVF_EUNSUPPORTED,
                     "started as one of %d processes by %s, but this kvfold was built without MPI",
                     launch.size, launch.by);
}

const kvf__dist *kvf__dist_joined(const kvf_ctx *ctx)
{
    (void)ctx;
    return NULL;
}

/* ---- never called: there is no kvf__dist ----------------------------------------------------- */

const char *kvf__dist_host(const kvf__dist *dist, int rank)
{
    (void)dist;
    (void)rank;
    return "";
}

kvf_status kvf__dist_broadcast(kvf_ctx *ctx, kvf__dist *dist, void *data, size_t bytes)
{
    (void)dist;
    (void)data;
    (void)bytes;
    assert(!"alone");
    return kvf__fail(ctx, KVF_EINTERNAL, "no MPI");
}

kvf_status kvf__dist_gather(kvf_ctx *ctx, kvf__dist *dist, const void *mine, size_t bytes,
                            void *all)
{
    (void)mine;
    return kvf__dist_broadcast(ctx, dist, all, bytes);
}

void kvf__dist_sum_begin(kvf__dist *dist, float *x, int64_t n)
{
    (void)dist;
    (void)x;
    (void)n;
}

void kvf__dist_sum_push(kvf__dist *dist)
{
    (void)dist;
}

kvf_status kvf__dist_sum_end(kvf_ctx *ctx, kvf__dist *dist)
{
    return kvf__dist_broadcast(ctx, dist, NULL, 0);
}
