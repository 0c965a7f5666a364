/* Joining and leaving. The first run of a process in a group starts MPI; freeing the context ends
 * it. */
#include "dist_priv.h"
#include "launch.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Called when the context is freed, after the last message of this process. */
static void leave(void *user)
{
    kvf__dist *dist = user;
    if (dist->broken) MPI_Abort(MPI_COMM_WORLD, 1); /* else the others would wait forever */
    MPI_Comm_free(&dist->links->comm);
    MPI_Finalize();
    kvf__sums_done(&dist->links->sums);
    kvf__free(dist->links->peers);
    kvf__free(dist); /* frees the links too */
}

static kvf_status start_mpi(kvf_ctx *ctx, const kvf__launch *launch)
{
    int begun = 0, level = 0, rank = 0, size = 0;
    MPI_Initialized(&begun);
    if (begun)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "MPI was already started in this process: use the context of the first "
                         "run for all runs");
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

static void describe(kvf__peer *me)
{
    struct stat space;
    *me = (kvf__peer){.pid = getpid()};
    if (gethostname(me->host, sizeof me->host - 1)) strcpy(me->host, "?");
    if (stat("/proc/self/ns/pid", &space) == 0) me->space = space.st_ino;
}

/* Exchanges the data of all peers. */
static kvf_status meet(kvf_ctx *ctx, kvf__dist *dist)
{
    kvf__peer me;
    size_t n = (size_t)dist->size;
    describe(&me);
    KVF_TRY(kvf__alloc_array(ctx, n, sizeof *dist->links->peers, &dist->links->peers));
    KVF_TRY(kvf__dist_gather(ctx, dist, &me, sizeof me, dist->rank ? NULL : dist->links->peers));
    return kvf__dist_broadcast(ctx, dist, dist->links->peers, n * sizeof *dist->links->peers);
}

static kvf_status connect_ranks(kvf_ctx *ctx, kvf__dist *dist)
{
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int code = MPI_Comm_dup(MPI_COMM_WORLD, &dist->links->comm);
    KVF_TRY(kvf__dist_check(ctx, dist, code, "MPI_Comm_dup"));
    MPI_Comm_rank(dist->links->comm, &dist->rank);
    MPI_Comm_size(dist->links->comm, &dist->size);
    KVF_TRY(meet(ctx, dist));
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
