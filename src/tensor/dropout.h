/* Inverted dropout without stored masks. Element i of a mask depends only on (seed, stream, i), so
 * the backward pass draws any part of the same mask again, on any number of threads. */
#ifndef KVF_DROPOUT_H
#define KVF_DROPOUT_H

#include "batch.h"
#include "rng.h"
#include "view.h"

/* An element is dropped with probability drop / 65536, else scaled to keep its mean. */
typedef struct kvf__dropout {
    uint32_t drop;
    float scale; /* 65536 / (65536 - drop) */
} kvf__dropout;

/* Makes dropout with p in [0, 1), rounded to 65536ths. */
kvf__dropout kvf__dropout_make(double p);
/* Sets dst = src * mask, or adds: elements first .. first + n - 1 of the stream's mask (its counter
 * is ignored). set may work in place. Element i uses bits 16 (i mod 8) and up of the 128-bit value
 * i / 8. This defines the meaning of stored seeds and never changes. */
void kvf__dropout_set(kvf__dropout dropout, kvf__rng stream, int64_t first, float *dst,
                      const float *src, int64_t n);
void kvf__dropout_add(kvf__dropout dropout, kvf__rng stream, int64_t first, float *dst,
                      const float *src, int64_t n);

/* Returns the stream of row r of a batch within `stream`. It depends only on the example and the
 * row's rank within it, not on the batch. */
kvf__rng kvf__dropout_row(kvf__rng stream, const kvf__batch *batch, int64_t r);

#endif
