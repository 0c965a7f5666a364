/* Writing all bytes to a descriptor. */
#include "ctx_int.h"
#include "outfile.h"

#include <errno.h>
#include <unistd.h>

kvf_status kvf__write_all(kvf_ctx *ctx, const char *path, int fd, const void *bytes, size_t n)
{
    const char *at = bytes;

    while (n > 0) { /* on an almost full disk a part is written, and the next call fails */
        ssize_t written = write(fd, at, n);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return kvf__fail_errno(ctx, path, "write");
        at += written;
        n -= (size_t)written;
    }
    return KVF_OK;
}
