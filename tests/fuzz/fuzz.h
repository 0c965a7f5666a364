/* What the fuzz targets share. A target feeds bytes to one of our readers and does with the result
 * what commands do; the only wrong outcomes are those that sanitizers, limits of memory and time,
 * or an assertion catch. libFuzzer calls it in the long form (./setup.sh fuzz), fuzz_replay.c in
 * the normal tests. */
#ifndef KVF_FUZZ_H
#define KVF_FUZZ_H

#include "base_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* One context for the process, one thread. */
kvf_ctx *fuzz_context(void);
/* The bytes as a file in memory; the path is valid until the next call. */
const char *fuzz_file(const uint8_t *data, size_t n);
/* Reads every byte, so that the sanitizer sees them. */
void fuzz_touch(const void *data, size_t n);

#endif
