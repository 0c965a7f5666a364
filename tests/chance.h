/* Random instants for kill_runs and storm: draws repeatable by seed, the clock, and waiting. */
#ifndef CHANCE_H
#define CHANCE_H

#include <stdint.h>
#include <time.h>

static uint64_t random_state; /* not 0 */

/* [0, 1); xorshift64*: Marsaglia, Xorshift RNGs, 2003. */
static inline double uniform(void)
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (double)((random_state * UINT64_C(2685821657736338717)) >> 11) / 9007199254740992.0;
}

static inline double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline void wait_seconds(double seconds)
{
    struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&t, NULL);
}

#endif
