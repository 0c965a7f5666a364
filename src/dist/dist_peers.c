/* Detection of lost ranks. MPI does not report a process killed on the same machine and waits until
 * the launcher ends all. A check of its process id detects it at once. */
#include "dist_priv.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

/* Compares more than host names, because two machines may share a name, and a process id that is
 * free here might be in use there. */
static bool on_this_machine(const kvf__peer *me, const kvf__peer *other)
{
    return me->space && me->space == other->space && !strcmp(me->host, other->host);
}

int kvf__dist_lost(const kvf__dist *dist)
{
    const kvf__peer *me = dist->links->peers ? &dist->links->peers[dist->rank] : NULL;
    for (int r = 0; me && r < dist->size; r++)
        if (on_this_machine(me, &dist->links->peers[r]) &&
            kill((pid_t)dist->links->peers[r].pid, 0) && errno == ESRCH)
            return r;
    return -1;
}

const char *kvf__dist_host(const kvf__dist *dist, int rank)
{
    return dist->links->peers[rank].host;
}
