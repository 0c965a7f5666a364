/* A barrier that counts arrivals and publishes the number of its round: the centralised barrier of
 * Mellor-Crummey and Scott 1991, with a counter instead of the sense flag. */
#include "team.h"

#include <sched.h>

enum { LOOKS = 4096 }; /* spins that cost about as much as sleeping and waking up */

void kvf__team_init(kvf__team *team)
{
    atomic_init(&team->arrived, 0);
    atomic_init(&team->round, 0);
}

void kvf__team_wait(kvf__team *team, int n)
{
    /* No thread can pass before this one arrives, so this is the current round. */
    const int round = atomic_load_explicit(&team->round, memory_order_relaxed);

    if (atomic_fetch_add_explicit(&team->arrived, 1, memory_order_acq_rel) + 1 == n) {
        atomic_store_explicit(&team->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&team->round, (int)((unsigned)round + 1), memory_order_release);
        return;
    }
    for (int looks = 0; atomic_load_explicit(&team->round, memory_order_acquire) == round; looks++)
        if (looks >= LOOKS) {
            sched_yield();
            looks = LOOKS - 1;
        }
}

void kvf__team_part(int64_t total, int64_t unit, int t, int n, int64_t *from, int64_t *to)
{
    const int64_t units = (total + unit - 1) / unit;
    *from = units * t / n * unit;
    *to = units * (t + 1) / n * unit;
    if (*from > total) *from = total;
    if (*to > total) *to = total;
}
