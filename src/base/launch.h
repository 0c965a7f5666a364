/* The parallel launcher of this process, and its number of processes. */
#ifndef KVF_LAUNCH_H
#define KVF_LAUNCH_H

#include "base_int.h"

/* One of several processes started together by mpirun or srun. */
typedef struct kvf__launch {
    const char *by; /* name of the launcher; NULL: none, and the rest describes a single process */
    int rank, size;
    int local; /* processes on this machine, 0: unknown */
} kvf__launch;
kvf__launch kvf__launch_look(void);

#endif
