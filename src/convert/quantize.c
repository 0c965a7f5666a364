/* Quantize: stores a prefix in a narrower type. The head stays f32: it is small, and rounding could
 * change answers. The writer (prefix_store.c) rounds the values, as for merge --dtype. */
#include "merge_int.h"

static kvf_status quantize(kvf_ctx *ctx, const kvf_quantize_options *options, kvf_prefix *prefix,
                           kvf__dtype dtype, kvf_quantize_result *r)
{
    KVF_TRY(kvf__rounding_diff(ctx, options->prefix, dtype, &prefix->file.prefix, &r->max_abs_diff,
                               &r->relative_diff));
    KVF_TRY(kvf__lineage_add_hash(ctx, &prefix->file.lineage, "quantized_hash", options->prefix));
    KVF_TRY(kvf__kv_prefix_store(ctx, prefix, options->out, options->force, dtype));
    r->bytes = kvf__file_bytes(options->out);
    kvf__kv_prefix_shape(prefix, r->shape);
    return KVF_OK;
}

static kvf_status quantize_file(kvf_ctx *ctx, const kvf_quantize_options *options,
                                kvf_quantize_result *result)
{
    const kvf__prefix_source source = KVF__PREFIX_SOURCE(options, options->prefix);
    kvf_prefix *prefix = NULL;
    const kvf__dtype dtype = kvf__prefix_dtype(options->dtype);
    kvf_quantize_result r = {0};

    KVF_TRY(KVF__NOT_INPUTS(ctx, options->out, options->prefix, options->base));
    KVF_TRY(kvf__prefix_source_read(ctx, &source, &prefix));
    kvf_status st = quantize(ctx, options, prefix, dtype, &r);
    if (!st) *result = r;
    kvf_prefix_free(prefix);
    return st;
}

kvf_status kvf_quantize(kvf_ctx *ctx, const kvf_quantize_options *options,
                        kvf_quantize_result *result)
{
    KVF_TRY(KVF__NEED(ctx, options, result));
    KVF_TRY(KVF__NEED(ctx, options->prefix, options->out));
    KVF_TRY(KVF__CHECK_ENUM(ctx, options->dtype, KVF_DTYPE_INT8));
    KVF_TRY(KVF__CHECK_ENUM(ctx, options->checkpoint, KVF_CHECKPOINT_LAST));
    KVF__RETURN(ctx, quantize_file(ctx, options, result));
}
