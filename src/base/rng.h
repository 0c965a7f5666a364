/* Random numbers. */
#ifndef KVF_RNG_H
#define KVF_RNG_H

#include "base_int.h"

/* Counter-based generator: value i of a stream depends only on (seed, stream, i). The state is
 * these three numbers, which may be read and set. rng.c defines the values, which never change. */
typedef struct kvf__rng {
    uint64_t seed, stream, counter;
} kvf__rng;
kvf__rng kvf__rng_make(uint64_t seed, uint64_t stream);
uint64_t kvf__rng_u64(kvf__rng *rng);
void kvf__rng_u128(kvf__rng *rng, uint64_t out[2]); /* consumes one value; out[0] is that of u64 */
double kvf__rng_uniform(kvf__rng *rng);             /* [0, 1) */
double kvf__rng_normal(kvf__rng *rng);              /* mean 0, variance 1; consumes two values */
uint64_t kvf__rng_below(kvf__rng *rng, uint64_t n); /* [0, n), unbiased */
void kvf__rng_shuffle(kvf__rng *rng, int64_t *items, size_t n);
void kvf__rng_order(kvf__rng *rng, int64_t *order, int64_t n); /* 0 ... n - 1, shuffled */

#endif
