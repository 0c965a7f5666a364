/* A kvfold file read whole and forgotten: everything that any command will ask HDF5 for, asked once
 * where a crash of HDF5 harms nothing. */
#include "file_int.h"
#include "h5_priv.h"
#include "sandbox.h"

#include <kvfold/io.h>
#include <string.h>

/* On trial the values of larger datasets are not read: their index is walked and each chunk found
 * to be whole all the same, and what is left to go wrong is Fletcher32, shuffle and zlib. */
enum { MOST_TRIED = 1 << 20 };

bool kvf__h5_skips(const kvf__h5 *h5, const kvf__h5_data *data)
{
    return kvf__in_sandbox(h5->ctx) && data->bytes > MOST_TRIED;
}

/* Both check the bytes at the same time, and the word of the one that asked comes first. The other
 * could leave that out, but where HDF5 reads past its memory, what comes of it hangs on what else
 * was done with memory before: so it does the same. */
kvf_status kvf__h5_sandbox(kvf_ctx *ctx, const kvf__mapfile *map)
{
    kvf__check check;

    if (kvf__sandbox_passed(ctx, map)) return KVF_OK;
    KVF_TRY(kvf__check_begin(ctx, map, &check));
    kvf_status st = kvf__h5_check_bytes(ctx, map);
    if (!st) return kvf__check_end(ctx, &check);
    kvf__check_drop(&check);
    return st;
}

/* Moments are described below, like all others, and only the trainer reads their values. */
static kvf_status try_run(kvf_ctx *ctx, const char *path)
{
    kvf__run_file *file = NULL; /* too big for the stack */
    KVF_TRY(kvf__alloc(ctx, sizeof *file, &file));
    kvf_status st = kvf__run_file_read(ctx, path, false, file);
    if (!st) kvf__run_file_done(file);
    kvf__free(file);
    return st;
}

static kvf_status try_prefix(kvf_ctx *ctx, const char *path)
{
    kvf__prefix_file file = {0};
    KVF_TRY(kvf__prefix_file_read(ctx, path, &file));
    kvf__prefix_file_done(&file);
    return KVF_OK;
}

static kvf_status try_embeddings(kvf_ctx *ctx, const char *path)
{
    kvf__embeddings_file file = {0};
    KVF_TRY(kvf__embeddings_file_read(ctx, path, &file));
    kvf__embeddings_file_done(&file);
    return KVF_OK;
}

static kvf_status try_adapter(kvf_ctx *ctx, const char *path)
{
    kvf__adapter_file *file = NULL; /* a list of parameters with their names */
    KVF_TRY(kvf__alloc(ctx, sizeof *file, &file));
    kvf_status st = kvf__adapter_file_read(ctx, path, file);
    if (!st) kvf__adapter_file_done(file);
    kvf__free(file);
    return st;
}

static kvf_status try_base(kvf_ctx *ctx, const char *path)
{
    kvf__weights weights = {0};
    kvf__base_file file = {0};
    kvf__base_task task = {0};
    bool found = false;
    kvf_status st = kvf__base_file_open(ctx, path, &weights, &file);
    if (!st) st = kvf__base_task_read(ctx, path, &found, &task);
    kvf__base_task_done(&task);
    kvf__base_file_done(&file);
    kvf__weights_close(&weights);
    return st;
}

static const struct reader {
    const char *kind;
    kvf_status (*read)(kvf_ctx *ctx, const char *path);
} READERS[] = {
    {"run", try_run},         {"prefix", try_prefix}, {"embeddings", try_embeddings},
    {"adapter", try_adapter}, {"base", try_base},
};

kvf_status kvf_check_file(kvf_ctx *ctx, const char *path)
{
    char kind[16];
    kvf_json *description = NULL;
    kvf__sandbox_begin(ctx);
    KVF_TRY(kvf__h5_kind(ctx, path, kind));
    for (size_t i = 0; i < sizeof READERS / sizeof READERS[0]; i++)
        if (!strcmp(kind, READERS[i].kind)) KVF_TRY(READERS[i].read(ctx, path));
    kvf_status st = kvf_inspect(ctx, path, &description);
    if (!st) kvf_json_free(description);
    return st == KVF_EUNSUPPORTED ? KVF_OK : st; /* a kind that is read, but not described */
}
