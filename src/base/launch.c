/* The parallel launcher of this process and its number of processes, from the environment. MPI is
 * started only in a process of a group.
 *
 * Slurm's variables count only in a step started by srun: a batch script has a task count too, but
 * runs alone. */
#include "launch.h"

#include <stdlib.h>

typedef struct launcher {
    const char *name, *rank, *size, *local; /* names of variables */
} launcher;

static const launcher LAUNCHERS[] = {
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"},
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE"},
};

/* Reads a number; "4(x2)", four on each of two machines, is 4. -1: not set. */
static int number_of(const char *variable)
{
    const char *text = getenv(variable);
    return text && *text >= '0' && *text <= '9' ? atoi(text) : -1;
}

kvf__launch kvf__launch_look(void)
{
    kvf__launch alone = {.size = 1};
    for (size_t i = 0; i < sizeof LAUNCHERS / sizeof LAUNCHERS[0]; i++) {
        int rank = number_of(LAUNCHERS[i].rank), size = number_of(LAUNCHERS[i].size);
        int local = number_of(LAUNCHERS[i].local);
        if (rank < 0 || rank >= size) continue;
        if (size == 1) return alone;
        return (kvf__launch){
            .by = LAUNCHERS[i].name, .rank = rank, .size = size, .local = local > 0 ? local : 0};
    }
    return alone;
}

kvf_status kvf__check_alone(kvf_ctx *ctx, const char *what)
{
    const kvf__launch launch = kvf__launch_look();
    if (launch.size == 1) return KVF_OK;
    return kvf__fail(ctx, KVF_EUSAGE, "%s runs in one process, but %s started %d", what, launch.by,
                     launch.size);
}
