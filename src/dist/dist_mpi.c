/* Processes by MPI. MPI is started by the first run of a process that is one of several, and
 * ended with the context. Every wait is a loop of our own around MPI_Test: MPI's spin at full speed
 * on a core that another rank may need, and would never notice a rank that has gone. */
#include "dist_priv.h"
#include "launch.h"

#include <sched.h>
#include <time.h>

/* Seconds of a wait in which this process only looks, and then gives its core away between looks;
 * after that it sleeps, for as long as a tenth of a megabyte takes. */
#define SPIN_SECONDS  20e-6
#define YIELD_SECONDS 1e-3
#define SLEEP_NANOS   50000
#define LOOK_SECONDS  0.1               /* between two looks at the other ranks */
#define PIECE         ((size_t)1 << 28) /* bytes of one broadcast: MPI counts by int */

kvf_status kvf__dist_check(kvf_ctx *ctx, kvf__dist *dist, int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    if (code == MPI_SUCCESS) return KVF_OK;
    dist->broken = true;
    MPI_Error_string(code, text, &n);
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
    return kvf__fail(ctx, KVF_EIO, "rank %d of %d has gone (process %lld on %s)", r, dist->size,
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

static kvf_status wait_for(kvf_ctx *ctx, kvf__dist *dist, MPI_Request *request, const char *what)
{
    kvf_status st = KVF_OK;
    kvf__wait wait = kvf__dist_wait_begin();
    for (int there = 0; !st && !there;) {
        st = kvf__dist_check(ctx, dist, MPI_Test(request, &there, MPI_STATUS_IGNORE), what);
        if (!st && !there) st = kvf__dist_pause(ctx, dist, &wait);
    }
    dist->waited += kvf__clock() - wait.begin;
    return st;
}

kvf_status kvf__dist_broadcast(kvf_ctx *ctx, kvf__dist *dist, void *data, size_t bytes)
{
    MPI_Request request;
    char *at = data;
    KVF_TRY(usable(ctx, dist));
    for (size_t n; bytes; bytes -= n, at += n) {
        n = bytes < PIECE ? bytes : PIECE;
        int code = MPI_Ibcast(at, (int)n, MPI_BYTE, 0, dist->links->comm, &request);
        KVF_TRY(kvf__dist_check(ctx, dist, code, "broadcast"));
        KVF_TRY(wait_for(ctx, dist, &request, "broadcast"));
    }
    return KVF_OK;
}

kvf_status kvf__dist_gather(kvf_ctx *ctx, kvf__dist *dist, const void *mine, size_t bytes,
                            void *all)
{
    MPI_Request request;
    int n = (int)bytes;
    KVF_TRY(usable(ctx, dist));
    int code = MPI_Igather(mine, n, MPI_BYTE, all, n, MPI_BYTE, 0, dist->links->comm, &request);
    KVF_TRY(kvf__dist_check(ctx, dist, code, "gather"));
    return wait_for(ctx, dist, &request, "gather");
}

/* ---- joining and leaving --------------------------------------------------------------------- */

/* At the end of the context, when this process has printed all it has to. */
static void leave(void *user)
{
    kvf__dist *dist = user;
    if (dist->broken) MPI_Abort(MPI_COMM_WORLD, 1); /* the others would wait forever */
    MPI_Comm_free(&dist->links->comm);
    MPI_Finalize();
    kvf__sums_done(&dist->links->sums);
    kvf__free(dist->links->peers);
    kvf__free(dist); /* links too */
}

static kvf_status start_mpi(kvf_ctx *ctx, const kvf__launch *launch)
{
    int begun = 0, level = 0, rank = 0, size = 0;
    MPI_Initialized(&begun);
    if (begun)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "MPI has begun in this process: all runs need the first one's context");
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS)
        return kvf__fail(ctx, KVF_EIO, "MPI does not start");
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == launch->rank && size == launch->size) return KVF_OK;
    MPI_Finalize();
    return kvf__fail(ctx, KVF_EUNSUPPORTED,
                     "%s started %d processes, but MPI connects %d of them: it is not the MPI that "
                     "this kvfold was built with, or srun lacks --mpi=pmix",
                     launch->by, launch->size, size);
}

static kvf_status connect_ranks(kvf_ctx *ctx, kvf__dist *dist)
{
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int code = MPI_Comm_dup(MPI_COMM_WORLD, &dist->links->comm);
    KVF_TRY(kvf__dist_check(ctx, dist, code, "MPI_Comm_dup"));
    MPI_Comm_rank(dist->links->comm, &dist->rank);
    MPI_Comm_size(dist->links->comm, &dist->size);
    KVF_TRY(kvf__dist_meet(ctx, dist));
    return kvf__sums_init(ctx, dist);
}

kvf_status kvf__dist_join(kvf_ctx *ctx, kvf__dist **out)
{
    struct joined {
        kvf__dist dist;
        kvf__links links;
    } *joined = NULL;
    kvf__launch launch = kvf__launch_look();
    kvf__dist *dist = kvf__ctx_held(ctx);
    if (!launch.by) return KVF_OK;
    if (!dist) {
        KVF_TRY(kvf__alloc(ctx, sizeof *joined, &joined));
        kvf_status st = start_mpi(ctx, &launch);
        if (st) {
            kvf__free(joined);
            return st;
        }
        dist = &joined->dist;
        dist->links = &joined->links;
        dist->links->ctx = ctx;
        kvf__ctx_hold(ctx, dist, leave);
        st = connect_ranks(ctx, dist);
        dist->broken = st != KVF_OK;
        KVF_TRY(st);
    }
    *out = dist;
    return KVF_OK;
}

const kvf__dist *kvf__dist_joined(const kvf_ctx *ctx)
{
    return kvf__ctx_held(ctx);
}
