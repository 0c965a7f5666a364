/* Random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as
 * 1, 2, 3", SC 2011). Counter-based: value i of a stream depends only on (seed, stream, i). So the
 * state is three numbers, values can be computed in any order, and streams never overlap.
 *
 * Runs are repeated from stored seeds, so these definitions are part of the file format and never
 * change:
 *
 *   u64(i)   key = (seed low, seed high), counter = (i low, i high, stream low, stream high), each
 *            of 32 bits; of the output words x0..x3 the value is x0 + 2^32 x1
 *
 *   u128(i)  the same, and x2 + 2^32 x3
 *
 *   uniform  (u64 >> 11) 2^-53
 *
 *   normal   u = 1 - uniform, v = the next uniform; sqrt(-2 ln u) cos(2 pi v) (Box, Muller 1958).
 *            ln and cos are libm's, so the last bit may differ from one libm to another
 *
 *   below n  the first u64 that is >= 2^64 mod n, modulo n
 *
 *   shuffle  Fisher-Yates from the end: for i = n-1 down to 1, swap items i and below(i + 1) */
#include "rng.h"

#include <assert.h>
#include <math.h>

/* Multipliers and key increments of the paper's table. */
#define PHILOX_M0 0xD2511F53u
#define PHILOX_M1 0xCD9E8D57u
#define PHILOX_W0 0x9E3779B9u
#define PHILOX_W1 0xBB67AE85u

enum { PHILOX_ROUNDS = 10 };

/* out: x0 + 2^32 x1, x2 + 2^32 x3 */
static void philox(uint64_t key, uint64_t low, uint64_t high, uint64_t out[2])
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = (uint32_t)low, c1 = (uint32_t)(low >> 32);
    uint32_t c2 = (uint32_t)high, c3 = (uint32_t)(high >> 32);

    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        uint64_t p0 = (uint64_t)PHILOX_M0 * c0;
        uint64_t p1 = (uint64_t)PHILOX_M1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += PHILOX_W0;
        k1 += PHILOX_W1;
    }
    out[0] = (uint64_t)c1 << 32 | c0;
    out[1] = (uint64_t)c3 << 32 | c2;
}

kvf__rng kvf__rng_make(uint64_t seed, uint64_t stream)
{
    return (kvf__rng){.seed = seed, .stream = stream};
}

uint64_t kvf__rng_u64(kvf__rng *rng)
{
    uint64_t out[2];
    kvf__rng_u128(rng, out);
    return out[0];
}

void kvf__rng_u128(kvf__rng *rng, uint64_t out[2])
{
    philox(rng->seed, rng->counter++, rng->stream, out);
}

double kvf__rng_uniform(kvf__rng *rng)
{
    return (double)(kvf__rng_u64(rng) >> 11) * 0x1p-53;
}

double kvf__rng_normal(kvf__rng *rng)
{
    const double two_pi = 6.283185307179586476925;
    double u = 1.0 - kvf__rng_uniform(rng); /* in (0, 1], so that the logarithm is finite */
    double v = kvf__rng_uniform(rng);
    return sqrt(-2.0 * log(u)) * cos(two_pi * v);
}

uint64_t kvf__rng_below(kvf__rng *rng, uint64_t n)
{
    uint64_t value;

    assert(n > 0);
    /* 2^64 mod n: accepting values below it would favour small results */
    uint64_t rest = (0 - n) % n;
    do {
        value = kvf__rng_u64(rng);
    } while (value < rest);
    return value % n;
}

void kvf__rng_shuffle(kvf__rng *rng, int64_t *items, size_t n)
{
    for (size_t i = n; i-- > 1;) {
        size_t j = (size_t)kvf__rng_below(rng, i + 1);
        int64_t item = items[i];
        items[i] = items[j];
        items[j] = item;
    }
}

void kvf__rng_order(kvf__rng *rng, int64_t *order, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        order[i] = i;
    kvf__rng_shuffle(rng, order, (size_t)n);
}
