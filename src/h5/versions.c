/* Versions of the libraries that affect results and files, for --version and bug reports. */
#include "h5.h"
#include "matmul.h"

#include <kvfold/io.h>

kvf_status kvf_library_versions(char *buf, size_t n)
{
    char dnnl[32], h5[32], text[96];
    int used = snprintf(text, sizeof text, "oneDNN %s, HDF5 %s", kvf__mm_version(dnnl),
                        kvf__h5_version(h5));
    if (!buf || used < 0 || (size_t)used >= n) return KVF_EUSAGE;
    snprintf(buf, n, "%s", text);
    return KVF_OK;
}
