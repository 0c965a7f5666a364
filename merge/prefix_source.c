/* Reading prefixes from any file, and writing them as prefix files, for the file tools. merge folds
 * a run once and verifies it; the tools fold on demand. */
#include "merge_int.h"
#include "method.h"

#include <math.h>
#include <string.h>

/* Checks that a named base matches the prefix even if nothing is read from it. Methods that run the
 * base check it there. */
static kvf_status check_named(kvf_ctx *ctx, const kvf__prefix_source *s, kvf_prefix *prefix)
{
    const kvf_base_options light = {
        .precision = KVF_PRECISION_F32, .stream_layers = true, .lora = s->lora};
    const kvf__method *method = kvf__method_find(prefix->file.id.method);
    kvf_base *base = NULL;

    if (method && method->port != KVF__PORT_KV) return KVF_OK;
    KVF_TRY(kvf_base_open(ctx, s->base, &light, &base));
    kvf_status st = kvf__identity_check(ctx, s->path, &prefix->file.id, base, s->allow_other_base);
    kvf_base_free(base);
    return st;
}

kvf_status kvf__prefix_source_open(kvf_ctx *ctx, const kvf__prefix_source *s, kvf_prefix **out)
{
    kvf_prefix *prefix = NULL;
    kvf_base *base = NULL;
    bool needed = false;

    KVF_TRY(kvf__prefix_needs_base(ctx, s->path, &needed));
    if (needed && s->base) KVF_TRY(kvf__base_open_exact(ctx, s->base, s->lora, &base));
    kvf_status st = kvf_prefix_open_on(ctx, s->path, base, s->checkpoint, &prefix);
    if (!st && s->head) st = kvf_prefix_use_head(ctx, prefix, s->head);
    if (!st && base) st = kvf_prefix_check(ctx, prefix, base, s->allow_other_base);
    if (!st && s->base && !base) st = check_named(ctx, s, prefix);
    kvf_base_free(base);
    KVF__GIVE(st, out, prefix, kvf_prefix_free(prefix));
    return st;
}

/* Folds virtual tokens to keys and values, if possible. */
static kvf_status capture(kvf_ctx *ctx, const kvf__prefix_source *s, kvf_prefix *prefix)
{
    const kvf_merge_options options = {
        .run = s->path, .base = s->base, .lora = s->lora, .allow_other_base = s->allow_other_base};
    bool captures = false;
    double diff;

    if (!prefix->file.vectors.P) return KVF_OK;
    KVF_TRY(kvf__captures(ctx, prefix, &captures));
    if (!captures)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: its virtual tokens cannot become a prefix, because they do not lead "
                         "the rows of a causal base",
                         s->path);
    return kvf__capture(ctx, &options, prefix, &diff);
}

kvf_status kvf__prefix_source_read(kvf_ctx *ctx, const kvf__prefix_source *source, kvf_prefix **out)
{
    kvf_prefix *prefix = NULL;

    KVF_TRY(kvf__prefix_source_open(ctx, source, &prefix));
    kvf_status st = !kvf_prefix_changes_base(prefix)
                        ? capture(ctx, source, prefix)
                        : kvf__fail(ctx, KVF_EUNSUPPORTED,
                                    "%s: method %s changes the base and has no prefix",
                                    source->path, prefix->file.id.method);
    KVF__GIVE(st, out, prefix, kvf_prefix_free(prefix));
    return st;
}

void kvf__kv_prefix_shape(const kvf_prefix *prefix, int64_t shape[6])
{
    const kvf__prefix *p = &prefix->file.prefix;
    const int64_t dims[6] = {p->L, 2, 1, p->heads ? 0 : p->G, p->P, p->heads ? 0 : p->D};
    memcpy(shape, dims, sizeof dims);
}

kvf_status kvf__rounding_diff(kvf_ctx *ctx, const char *where, kvf__dtype dtype,
                              const kvf__prefix *prefix, double *diff, double *relative)
{
    kvf__prefix stored = {0};
    double error = 0, norm = 0;

    KVF_TRY(kvf__prefix_rounded(ctx, where, dtype, prefix, &stored));
    *diff = kvf__prefix_max_diff(&stored, prefix);
    for (size_t i = 0; relative && i < kvf__prefix_count(prefix); i++) {
        double x = (double)prefix->kv[i], off = (double)stored.kv[i] - x;
        error += off * off;
        norm += x * x;
    }
    if (relative) *relative = norm > 0 ? sqrt(error / norm) : 0;
    kvf__prefix_done(&stored);
    return KVF_OK;
}

kvf_status kvf__kv_prefix_store(kvf_ctx *ctx, const kvf_prefix *prefix, const char *path,
                                bool force, kvf__dtype dtype)
{
    kvf__artifact file = kvf__prefix_view(prefix, KVF__KIND_PREFIX);

    file.dtype = dtype;
    return kvf__artifact_write(ctx, path, force, &file);
}

kvf_status kvf__kv_prefix_write(kvf_ctx *ctx, const kvf_prefix *prefix, const char *path,
                                bool force, kvf__dtype dtype, int64_t *bytes, double *diff)
{
    KVF_TRY(kvf__rounding_diff(ctx, path, dtype, &prefix->file.prefix, diff, NULL));
    KVF_TRY(kvf__kv_prefix_store(ctx, prefix, path, force, dtype));
    *bytes = kvf__file_bytes(path);
    return KVF_OK;
}
