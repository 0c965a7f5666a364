/* Joining and leaving. The first run of a process in a group starts MPI; freeing the context ends
 * it. */
#include "dist_priv.h"
#include "launch.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Called when the context is freed, after the last message of this process. */
static void leave(void *user)
{
    kvf__dist *dist = user;
    if (dist->broken) dist->links->mpi->abort(); /* else the others would wait forever */
    dist->links->mpi->end();
    kvf__sums_done(&dist->links->sums);
    kvf__free(dist->links->peers);
    kvf__free(dist); /* frees the links too */
}

/* Opens the module, which stays open. Its name has no folder, so the run path of this program or
 * library applies. MPI's own plugins need its symbols. */
static kvf_status open_mpi(kvf_ctx *ctx, const kvf__launch *launch, const kvf__mpi **out)
{
    void *module = dlopen("kvfold-mpi.so", RTLD_NOW | RTLD_GLOBAL);
    *out = module ? dlsym(module, "kvf__mpi_table") : NULL;
    if (*out) return KVF_OK;
    return kvf__fail(ctx, KVF_EUNSUPPORTED,
                     "%s started %d processes, but this kvfold has no MPI (%s): install "
                     "kvfold-mpi.so, or build with MPI",
                     launch->by, launch->size, dlerror());
}

static kvf_status start_mpi(kvf_ctx *ctx, const kvf__launch *launch, const kvf__mpi *mpi)
{
    int rank = 0, size = 0;
    if (mpi->begun())
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "MPI was already started in this process: use the context of the first "
                         "run for all runs");
    if (mpi->begin(&rank, &size)) return kvf__fail(ctx, KVF_EIO, "MPI does not start");
    if (rank == launch->rank && size == launch->size) return KVF_OK;
    mpi->end();
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
    KVF_TRY(kvf__dist_check(ctx, dist, dist->links->mpi->connect(), "connect"));
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
        const kvf__mpi *mpi;
        KVF_TRY(open_mpi(ctx, &launch, &mpi));
        KVF_TRY(kvf__alloc(ctx, sizeof *joined, &joined));
        kvf_status st = start_mpi(ctx, &launch, mpi);
        if (st) {
            kvf__free(joined);
            return st;
        }
        dist = &joined->dist;
        dist->rank = launch.rank;
        dist->size = launch.size;
        dist->links = &joined->links;
        dist->links->ctx = ctx;
        dist->links->mpi = mpi;
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
