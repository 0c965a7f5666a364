/* A kvfold file read whole and forgotten: everything that any command will ask HDF5 for, asked once
 * where a crash of HDF5 harms nothing (INTEROP 9.4). */
#include "h5_priv.h"

#include <kvfold/io.h>
#include <string.h>

static kvf_status rehearse_run(kvf_ctx *ctx, const char *path)
{
    kvf__run_file *file = NULL; /* too big for the stack */
    KVF_TRY(kvf__alloc(ctx, sizeof *file, &file));
    kvf_status st = kvf__run_file_read(ctx, path, true, file);
    if (!st) kvf__run_file_done(file);
    kvf__free(file);
    return st;
}

static kvf_status rehearse_prefix(kvf_ctx *ctx, const char *path)
{
    kvf__prefix_file file = {0};
    KVF_TRY(kvf__prefix_file_read(ctx, path, &file));
    kvf__prefix_file_done(&file);
    return KVF_OK;
}

static const struct reader {
    const char *kind;
    kvf_status (*read)(kvf_ctx *ctx, const char *path);
} READERS[] = {
    {"run", rehearse_run},
    {"prefix", rehearse_prefix},
};

kvf_status kvf__h5_rehearse(kvf_ctx *ctx, const char *path)
{
    char kind[16];
    kvf_json *description = NULL;
    KVF_TRY(kvf__h5_kind(ctx, path, kind));
    for (size_t i = 0; i < sizeof READERS / sizeof READERS[0]; i++)
        if (!strcmp(kind, READERS[i].kind)) KVF_TRY(READERS[i].read(ctx, path));
    kvf_status st = kvf_inspect(ctx, path, &description);
    if (!st) kvf_json_free(description);
    return st;
}
