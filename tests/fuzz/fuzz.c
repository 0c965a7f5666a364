/* The context and the in-memory file of the fuzz targets. */
#include "fuzz.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

kvf_ctx *fuzz_context(void)
{
    static kvf_ctx *ctx;
    const kvf_ctx_options options = {.threads = 1};
    if (!ctx && kvf_ctx_create(&options, &ctx)) abort();
    return ctx;
}

const char *fuzz_file(const uint8_t *data, size_t n)
{
    static char path[64];
    static int fd = -1;
    if (fd < 0) {
        fd = memfd_create("input", MFD_CLOEXEC);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    if (fd < 0 || ftruncate(fd, 0)) abort();
    for (size_t at = 0; at < n;) {
        ssize_t put = pwrite(fd, data + at, n - at, (off_t)at);
        if (put <= 0) abort();
        at += (size_t)put;
    }
    return path;
}

void fuzz_touch(const void *data, size_t n)
{
    const volatile uint8_t *bytes = data; /* so that every read takes place */
    for (size_t i = 0; i < n; i++)
        (void)bytes[i];
}
