/* Threads of one parallel region that wait for each other hundreds of times within milliseconds.
 *
 * OpenMP's own barrier puts a waiting thread to sleep at once (OMP_WAIT_POLICY=passive, see the
 * command's main), which costs more than the work between two of ours. Here a thread looks a few
 * thousand times, then gives its core away between looks, so that a machine with other work on it
 * goes on. */
#ifndef KVF_TEAM_H
#define KVF_TEAM_H

#include <stdatomic.h>
#include <stdint.h>

typedef struct kvf__team {
    atomic_int arrived;
    atomic_int round; /* barriers passed */
} kvf__team;

void kvf__team_init(kvf__team *team);
/* Returns when all n threads have called it; what they wrote before is seen by all. */
void kvf__team_wait(kvf__team *team, int n);

/* Thread t's part of `total` items that go in units: [*from, *to). */
void kvf__team_part(int64_t total, int64_t unit, int t, int n, int64_t *from, int64_t *to);

#endif
