/* Threads of one parallel region that wait for each other hundreds of times within milliseconds.
 *
 * OpenMP's own barrier puts a waiting thread to sleep at once (OMP_WAIT_POLICY=passive, set in
 * the command's main), which costs more than the work between two barriers. Here a thread spins
 * a few thousand times, then yields its core between tests, so that other work on the machine
 * continues. */
#ifndef KVF_TEAM_H
#define KVF_TEAM_H

#include <stdatomic.h>
#include <stdint.h>

typedef struct kvf__team {
    atomic_int arrived;
    atomic_int round; /* number of completed barriers */
} kvf__team;

void kvf__team_init(kvf__team *team);
/* Returns after all n threads have called it; earlier writes are then visible to all. */
void kvf__team_wait(kvf__team *team, int n);

/* Computes thread t's part [*from, *to) of `total` items, divided in units. */
void kvf__team_part(int64_t total, int64_t unit, int t, int n, int64_t *from, int64_t *to);

#endif
