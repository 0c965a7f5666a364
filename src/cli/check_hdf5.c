/* kvfold --check-hdf5 FILE: reads a file in a sandboxed process before the command reads it itself
 * (src/base/sandbox.c). Internal, so no help mentions it. The process dumps no core and writes no
 * file. It ends after a minute of work, or above a memory limit of 16 times the file and 64 MiB. */
#include "cli_int.h"

#include <kvfold/io.h>
#include <malloc.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* The address and thread sanitizers need their own memory and write reports. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif

enum { MOST_SECONDS = 60, LEAST_MEMORY = 64 << 20, TIMES_FILE = 16 };

static void limit(__rlimit_resource_t what, rlim_t most)
{
    struct rlimit limits;
    if (getrlimit(what, &limits)) return;
    if (limits.rlim_max < most) most = limits.rlim_max;
    limits = (struct rlimit){most, most};
    setrlimit(what, &limits);
}

static void limit_all(const char *path)
{
    struct stat info;
    rlim_t bytes = stat(path, &info) ? 0 : (rlim_t)info.st_size;
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_CPU, MOST_SECONDS);
#ifndef SANITIZED
    limit(RLIMIT_FSIZE, 0);
    limit(RLIMIT_DATA, LEAST_MEMORY + TIMES_FILE * bytes);
#else
    (void)bytes;
#endif
}

/* Limits memory, so that a read past an allocation fails here rather than in the main process,
 * whose heap may extend further. */
static void tighten_memory(void)
{
#ifdef __GLIBC__
    mallopt(M_TOP_PAD, 0);
    mallopt(M_TRIM_THRESHOLD, 0);
#endif
}

int cli_check_hdf5(const char *path)
{
    const kvf_ctx_options options = {.threads = 1};
    kvf_ctx *ctx = NULL;

    tighten_memory();
    /* before the file is read, because LLVM's OpenMP writes a file when it starts */
    if (kvf_ctx_create(&options, &ctx)) return CLI_FAILED;
    limit_all(path);
    kvf_status st = kvf__check_file(ctx, path);
    if (st)
        printf("%d %s\n", (int)st, kvf_ctx_error(ctx));
    else
        puts("ok");
    kvf_ctx_free(ctx);
    return CLI_OK;
}
