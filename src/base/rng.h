/* Random numbers. */
#ifndef KVF_RNG_H
#define KVF_RNG_H

#include "base_int.h"

/* Counter-based: value i of a stream depends on (seed, stream, i) only; the whole state is 3
 * numbers, which may be set as well as read. rng.c defines the values, and they stay. */
typedef struct kvf__rng {
    uint64_t seed, stream, counter;
} kvf__rng;
kvf__rng kvf__rng_make(uint64_t seed, uint64_t stream);
uint64_t kvf__rng_u64(kvf__rng *rng);
void kvf__rng_u128(kvf__rng *rng, uint64_t out[2]); /* one value too; out[0] is what u64 gives */
double kvf__rng_uniform(kvf__rng *rng);             /* [0, 1) */
double kvf__rng_normal(kvf__rng *rng);              /* mean 0, variance 1; consumes two values */
uint64_t kvf__rng_below(kvf__rng *rng, uint64_t n); /* [0, n), unbiased */
void kvf__rng_shuffle(kvf__rng *rng, int64_t *items, size_t n);

#endif
