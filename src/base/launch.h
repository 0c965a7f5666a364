/* Which launcher of parallel programs started this process, and with how many others. */
#ifndef KVF_LAUNCH_H
#define KVF_LAUNCH_H

#include "base_int.h"

/* One of several processes that mpirun or srun started together. */
typedef struct kvf__launch {
    const char *by; /* who started it; NULL: nobody, and the rest is that of a process alone */
    int rank, size;
    int local; /* of them on this machine, 0: not known */
} kvf__launch;
kvf__launch kvf__launch_look(void);

#endif
