/* Dropout masks, drawn when applied (Srivastava et al., JMLR 15, 2014). Inverted dropout: kept
 * elements are scaled up in training, so inference needs no scale.
 *
 * Eight elements share one 128-bit random value, since drawing costs more than using it. */
#include "dropout.h"

#include <assert.h>

enum { STEPS = 1 << 16, PER_VALUE = 8 };

kvf__dropout kvf__dropout_make(double p)
{
    assert(p >= 0 && p < 1);
    uint32_t drop = (uint32_t)(p * STEPS + 0.5);
    if (drop == STEPS) drop--; /* p just below 1 */
    return (kvf__dropout){.drop = drop, .scale = (float)STEPS / (float)(STEPS - drop)};
}

/* Draws the factors of elements PER_VALUE * at .. of the mask. */
static void draw(kvf__dropout dropout, kvf__rng stream, int64_t at, float factor[PER_VALUE])
{
    stream.counter = (uint64_t)at;
    uint64_t value[2];
    kvf__rng_u128(&stream, value);
    for (int i = 0; i < PER_VALUE; i++)
        factor[i] = (value[i / 4] >> 16 * (i % 4) & (STEPS - 1)) < dropout.drop ? 0 : dropout.scale;
}

/* Returns the number of mask elements, at most n, that one random value gives from `first` on. */
static int64_t span(int64_t first, int64_t n)
{
    int64_t rest = PER_VALUE - first % PER_VALUE;
    return rest < n ? rest : n;
}

void kvf__dropout_set(kvf__dropout dropout, kvf__rng stream, int64_t first, float *dst,
                      const float *src, int64_t n)
{
    float factor[PER_VALUE];
    for (int64_t at = 0, count; at < n; at += count, first += count) {
        count = span(first, n - at);
        draw(dropout, stream, first / PER_VALUE, factor);
        for (int64_t i = 0; i < count; i++)
            dst[at + i] = src[at + i] * factor[(size_t)(first + i) % PER_VALUE];
    }
}

void kvf__dropout_add(kvf__dropout dropout, kvf__rng stream, int64_t first, float *dst,
                      const float *src, int64_t n)
{
    float factor[PER_VALUE];
    for (int64_t at = 0, count; at < n; at += count, first += count) {
        count = span(first, n - at);
        draw(dropout, stream, first / PER_VALUE, factor);
        for (int64_t i = 0; i < count; i++)
            dst[at + i] += src[at + i] * factor[(size_t)(first + i) % PER_VALUE];
    }
}

kvf__rng kvf__dropout_row(kvf__rng stream, const kvf__batch *batch, int64_t r)
{
    int64_t example = batch->example ? batch->example[r] : r, before = 0;
    while (batch->example && before < r && batch->example[r - before - 1] == example)
        before++;
    stream.counter = (uint64_t)example << 20 | (uint64_t)before;
    return kvf__rng_make(kvf__rng_u64(&stream), stream.stream);
}
