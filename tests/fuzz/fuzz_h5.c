/* kvfold's own HDF5 files, every kind: read as commands read them, and described. Inputs carry no
 * seal, or hardly any mutation would get past it; checksums of HDF5's metadata still turn most
 * away. Mutations that pass those are made by a mutator of its own, which renews the checksums. */
#include "fuzz.h"
#include "h5_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    kvf__h5_rehearse(fuzz_context(), fuzz_file(data, n));
    return 0;
}
