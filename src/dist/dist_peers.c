/* Who the other ranks are. MPI does not report a process that was killed on the same machine: it
 * waits forever, until the launcher ends all. Its process id shows it at once. */
#include "dist_priv.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

/* Two machines may have one name: then a number that is free here might be meant for there. */
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
