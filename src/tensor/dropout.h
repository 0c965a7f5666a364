/* Inverted dropout whose masks are never stored: element i of a mask depends on (seed, stream, i)
 * and nothing else, so the backward pass draws the same mask again, any part of it, on any number
 * of threads. */
#ifndef KVF_DROPOUT_H
#define KVF_DROPOUT_H

#include "batch.h"
#include "rng.h"
#include "view.h"

/* An element is dropped with probability drop / 65536 and else scaled so that its mean stays. */
typedef struct kvf__dropout {
    uint32_t drop;
    float scale; /* 65536 / (65536 - drop) */
} kvf__dropout;

/* p in [0, 1), rounded to 65536ths. */
kvf__dropout kvf__dropout_make(double p);
/* dst = src * mask, or dst += src * mask: elements first .. first + n - 1 of the mask that belongs
 * to the stream (its counter is ignored). set may work in place. Element i reads bits 16 (i mod 8)
 * and up of the 128-bit value i / 8; this is part of what a stored seed means, and stays. */
void kvf__dropout_set(kvf__dropout dropout, kvf__rng stream, int64_t first, float *dst,
                      const float *src, int64_t n);
void kvf__dropout_add(kvf__dropout dropout, kvf__rng stream, int64_t first, float *dst,
                      const float *src, int64_t n);

/* The stream of row r of a batch within `stream`: the same at any place in any
 * batch, because it is drawn by (example, how many rows of that example precede it). */
kvf__rng kvf__dropout_row(kvf__rng stream, const kvf__batch *batch, int64_t r);

#endif
