/* Shared declarations of the fuzz targets. A target passes bytes to a reader and uses the result as
 * commands do. Failures are reports of sanitizers, exceeded limits of memory or time, and failed
 * assertions. libFuzzer runs targets for long (./setup.sh fuzz), fuzz_replay.c runs them in the
 * normal tests. */
#ifndef KVF_FUZZ_H
#define KVF_FUZZ_H

#include "base_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* One context for the process, one thread. */
kvf_ctx *fuzz_context(void);
/* The bytes as a file in memory; the path is valid until the next call. */
const char *fuzz_file(const uint8_t *data, size_t n);
/* Reads every byte, so that the sanitizer checks them. */
void fuzz_touch(const void *data, size_t n);

#endif
