/* Byte mutations for the fuzz targets and for h5_contained. */
#ifndef KVF_FUZZ_MUTATE_H
#define KVF_FUZZ_MUTATE_H

#include "base_int.h"
#include "rng.h"

/* Makes one change in a buffer of `room` bytes; returns the length after it. n >= 1. */
size_t fuzz_mutate(kvf__rng *rng, uint8_t *bytes, size_t n, size_t room);

/* A checksummed block of an HDF5 file: bytes [at, at + n), then the checksum. */
typedef struct fuzz_h5_sum {
    size_t at, n;
} fuzz_h5_sum;
/* The blocks of a whole file, at most `room`. They are found without their layouts, as the shortest
 * range after a signature that is followed by its checksum. */
size_t fuzz_h5_sums(const uint8_t *bytes, size_t n, fuzz_h5_sum *sums, size_t room);
/* Corrects the checksums after changes in place, so that hostile bytes pass them. */
void fuzz_h5_repair(uint8_t *bytes, const fuzz_h5_sum *sums, size_t n);

#endif
