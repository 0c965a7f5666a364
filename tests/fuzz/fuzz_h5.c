/* kvfold's own HDF5 files of every kind, read and inspected as commands do. Inputs have no seal,
 * because hardly any mutation would pass it. Most of libFuzzer's mutations keep the length, and the
 * checksums of HDF5's metadata are corrected afterwards. */
#include "fuzz.h"
#include "fuzz_mutate.h"

#include <kvfold/io.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    kvf__check_file(fuzz_context(), fuzz_file(data, n));
    return 0;
}

#ifdef FUZZ_LIBFUZZER
enum { MAX_SUMS = 256 };

size_t LLVMFuzzerMutate(uint8_t *data, size_t n, size_t most);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t most, unsigned seed);

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t most, unsigned seed)
{
    fuzz_h5_sum sums[MAX_SUMS];
    size_t n_sums;

    if (seed % 4 == 0) return LLVMFuzzerMutate(data, n, most);
    n_sums = fuzz_h5_sums(data, n, sums, MAX_SUMS);
    if (n_sums == 0) return LLVMFuzzerMutate(data, n, most);
    kvf__rng rng = kvf__rng_make(seed, 0);
    for (uint64_t changes = 1 + kvf__rng_below(&rng, 4); changes; changes--) {
        const fuzz_h5_sum *block = &sums[kvf__rng_below(&rng, n_sums)];
        fuzz_mutate(&rng, data + block->at, block->n, block->n);
    }
    fuzz_h5_repair(data, sums, n_sums);
    return n;
}
#endif
