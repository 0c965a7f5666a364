/* Transfer of bytes between processes by MPI. Waits are loops around its test, because MPI's own
 * waits spin at full speed on a core that another rank may need, and never notice a dead rank. */
#include "dist_priv.h"

#include <sched.h>
#include <time.h>

/* Phases of a wait, in seconds from its begin: spinning; yielding the core between tests; sleeping,
 * each time as long as the transfer of a tenth of a megabyte takes. */
#define SPIN_SECONDS  20e-6
#define YIELD_SECONDS 1e-3
#define SLEEP_NANOS   50000
#define LOOK_SECONDS  0.1               /* interval between checks of the other ranks */
#define PIECE         ((size_t)1 << 28) /* bytes of one broadcast: MPI counts by int */

kvf_status kvf__dist_check(kvf_ctx *ctx, kvf__dist *dist, int code, const char *what)
{
    char text[KVF__MPI_TEXT] = "";
    if (!code) return KVF_OK;
    dist->broken = true;
    dist->links->mpi->describe(code, text);
    return kvf__fail(ctx, KVF_EIO, "MPI: %s: %s", what, text);
}

static kvf_status usable(kvf_ctx *ctx, const kvf__dist *dist)
{
    return dist->broken ? kvf__fail(ctx, KVF_EIO, "the other ranks cannot be reached") : KVF_OK;
}

static kvf_status look_for_lost(kvf_ctx *ctx, kvf__dist *dist)
{
    int r = kvf__dist_lost(dist);
    if (r < 0) return KVF_OK;
    dist->broken = true;
    return kvf__fail(ctx, KVF_EIO, "rank %d of %d has ended (process %lld on %s)", r, dist->size,
                     (long long)dist->links->peers[r].pid, dist->links->peers[r].host);
}

kvf__wait kvf__dist_wait_begin(void)
{
    double now = kvf__clock();
    return (kvf__wait){now, now};
}

kvf_status kvf__dist_pause(kvf_ctx *ctx, kvf__dist *dist, kvf__wait *wait)
{
    const struct timespec nap = {.tv_nsec = SLEEP_NANOS};
    double now = kvf__clock();
    if (now - wait->begin < SPIN_SECONDS) return KVF_OK;
    if (now - wait->begin < YIELD_SECONDS)
        sched_yield();
    else
        nanosleep(&nap, NULL);
    if (now - wait->looked < LOOK_SECONDS) return KVF_OK;
    wait->looked = now;
    return look_for_lost(ctx, dist);
}

static kvf_status wait_for(kvf_ctx *ctx, kvf__dist *dist, kvf__request *request, const char *what)
{
    kvf_status st = KVF_OK;
    kvf__wait wait = kvf__dist_wait_begin();
    for (int there = 0; !st && !there;) {
        st = kvf__dist_check(ctx, dist, dist->links->mpi->test(1, request, &there), what);
        if (!st && !there) st = kvf__dist_pause(ctx, dist, &wait);
    }
    dist->waited += kvf__clock() - wait.begin;
    return st;
}

kvf_status kvf__dist_broadcast(kvf_ctx *ctx, kvf__dist *dist, void *data, size_t bytes)
{
    kvf__request request;
    char *at = data;
    KVF_TRY(usable(ctx, dist));
    for (size_t n; bytes; bytes -= n, at += n) {
        n = bytes < PIECE ? bytes : PIECE;
        int code = dist->links->mpi->broadcast(at, (int)n, &request);
        KVF_TRY(kvf__dist_check(ctx, dist, code, "broadcast"));
        KVF_TRY(wait_for(ctx, dist, &request, "broadcast"));
    }
    return KVF_OK;
}

kvf_status kvf__dist_gather(kvf_ctx *ctx, kvf__dist *dist, const void *mine, size_t bytes,
                            void *all)
{
    kvf__request request;
    KVF_TRY(usable(ctx, dist));
    int code = dist->links->mpi->gather(mine, (int)bytes, all, &request);
    KVF_TRY(kvf__dist_check(ctx, dist, code, "gather"));
    return wait_for(ctx, dist, &request, "gather");
}
