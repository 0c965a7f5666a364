/* Quantize: a prefix in a narrower type. The head stays f32: it is small, and a rounded classifier
 * would change answers for nothing. How the values are rounded is the writer's business
 * (prefix_store.c), the same for merge --dtype. */
#include "merge_int.h"

#include <math.h>

/* Root of the squared error over the root of the squares. */
static kvf_status relative_diff(kvf_ctx *ctx, const char *path, const kvf__prefix *prefix,
                                kvf__dtype dtype, double *out)
{
    kvf__prefix stored = {0};
    double error = 0, norm = 0;

    KVF_TRY(kvf__prefix_rounded(ctx, path, dtype, prefix, &stored));
    for (size_t i = 0; i < kvf__prefix_count(prefix); i++) {
        double x = (double)prefix->kv[i], diff = (double)stored.kv[i] - x;
        error += diff * diff;
        norm += x * x;
    }
    kvf__prefix_done(&stored);
    *out = norm > 0 ? sqrt(error / norm) : 0;
    return KVF_OK;
}

static kvf_status extend_lineage(kvf_ctx *ctx, kvf_prefix *prefix, const char *path)
{
    char hex[33];

    KVF_TRY(kvf__hash_file(ctx, path, hex));
    if (!prefix->lineage) prefix->lineage = kvf_json_object();
    if (kvf_json_set(prefix->lineage, "quantized_hash", kvf_json_new_str(hex))) return KVF_OK;
    return kvf__fail(ctx, KVF_ENOMEM, "out of memory");
}

kvf_status kvf_quantize(kvf_ctx *ctx, const kvf_quantize_options *options,
                        kvf_quantize_result *result)
{
    const kvf__prefix_source source = {
        .path = options->prefix,
        .base = options->base,
        .head = options->head,
        .checkpoint = options->checkpoint,
        .allow_other_base = options->allow_other_base,
    };
    kvf_prefix *prefix = NULL;
    const kvf__dtype dtype = kvf__prefix_dtype(options->dtype);
    kvf_quantize_result r = {0};
    kvf_status st;

    st = kvf_check_not_input(ctx, options->out, options->prefix);
    if (st) goto out;
    st = kvf_check_not_input(ctx, options->out, options->base);
    if (st) goto out;
    st = kvf__prefix_source_read(ctx, &source, &prefix);
    if (st) goto out;
    st = relative_diff(ctx, options->prefix, &prefix->prefix, dtype, &r.relative_diff);
    if (st) goto out;
    st = extend_lineage(ctx, prefix, options->prefix);
    if (st) goto out;
    st = kvf__kv_prefix_write(ctx, prefix, options->out, options->force, dtype, &r.bytes,
                              &r.max_abs_diff);
    if (st) goto out;
    kvf__kv_prefix_shape(prefix, r.shape);
    *result = r;
out:
    kvf_prefix_free(prefix);
    return st;
}
