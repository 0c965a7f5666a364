/* kvfold's own HDF5 files, every kind: read as commands read them, and described. Inputs carry no
 * seal, or hardly any mutation would get past it; checksums of HDF5's metadata still turn most
 * away. */
#include "fuzz.h"

#include <kvfold/io.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    kvf_check_file(fuzz_context(), fuzz_file(data, n));
    return 0;
}
