/* Folding: runs the encoder of a run once and writes the emitted prefix. The file is then read back
 * and compared with the encoder's output: equal bit for bit in f32, equal up to rounding in other
 * types. */
#include "merge_int.h"
#include "method.h"

#include <math.h>
#include <string.h>

static kvf_status extend_lineage(kvf_ctx *ctx, kvf_prefix *live, const char *run, double diff)
{
    kvf_json **lineage = &live->file.lineage;
    KVF_TRY(kvf__lineage_add_hash(ctx, lineage, "run_hash", run));
    KVF_TRY(kvf__lineage_add(ctx, lineage, "run_step", kvf_json_new_int(live->step)));
    return kvf__lineage_add(ctx, lineage, "fold_max_abs_diff", kvf_json_new_real(diff));
}

/* EUSAGE: options about rounding with a method whose fold is exact. */
static kvf_status check_no_rounding(kvf_ctx *ctx, const kvf_merge_options *options,
                                    const kvf_prefix *live)
{
    if (options->probe)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "--probe is not for method %s, whose values are stored unchanged",
                         live->file.id.method);
    if (options->dtype != KVF_DTYPE_F32)
        return kvf__fail(ctx, KVF_EUSAGE, "--dtype %s: method %s is stored in f32",
                         kvf_dtype_name(options->dtype), live->file.id.method);
    return KVF_OK;
}

/* Returns whether the run is of method head, which folds to a base file with that head. */
static bool is_head(const kvf_prefix *live)
{
    const kvf__method *method = kvf__method_find(live->file.id.method);
    return method && method->port == KVF__PORT_NONE;
}

/* Writes the adapters and trained norms of a run unchanged to an adapter file for inference, and
 * reads it back. No encoder is involved. */
static kvf_status fold_adapter(kvf_ctx *ctx, const kvf_merge_options *options,
                               const kvf_prefix *live, kvf_merge_result *result)
{
    const kvf__adapter_shape *shape = &live->form.adapters;
    kvf__artifact file = kvf__prefix_view(live, KVF__KIND_ADAPTER);

    file.size = shape->size;
    file.activation = (char *)kvf__adapter_act_name(shape->act);
    file.placement = (char *)kvf__adapter_place_name(shape->place);
    KVF_TRY(kvf__artifact_write(ctx, options->out, options->force, &file));
    KVF_TRY(kvf__verify_adapter(ctx, options->out, live));
    result->max_abs_diff = 0;
    const int64_t dims[] = {live->file.id.L, kvf__adapter_halves(shape), shape->size,
                            live->file.values.params.item[0].dim[1]};
    memcpy(result->shape, dims, sizeof dims);
    result->rank = 4;
    return KVF_OK;
}

static kvf_status fold_changes(kvf_ctx *ctx, const kvf_merge_options *options, kvf_prefix *live,
                               kvf_merge_result *r)
{
    const bool whole = live->form.what != KVF__TRAIN_ADAPTERS;

    KVF_TRY(extend_lineage(ctx, live, options->run, 0));
    KVF_TRY(check_no_rounding(ctx, options, live));
    KVF_TRY(whole ? kvf__fold_base(ctx, options, live, r) : fold_adapter(ctx, options, live, r));
    r->bytes = kvf__file_bytes(options->out);
    return KVF_OK;
}

/* Writes the prefix file and verifies it. */
static kvf_status fold_prefix(kvf_ctx *ctx, const kvf_merge_options *options, kvf_prefix *live,
                              kvf_merge_result *r)
{
    const kvf__dtype dtype = kvf__prefix_dtype(options->dtype);
    kvf__fold_probe *probe = NULL;
    double expected = 0;

    kvf__kv_prefix_shape(live, r->shape);
    r->rank = 6;
    KVF_TRY(kvf__rounding_diff(ctx, options->out, dtype, &live->file.prefix, &expected, NULL));
    KVF_TRY(extend_lineage(ctx, live, options->run, expected));
    if (options->probe) KVF_TRY(kvf__fold_probe_create(ctx, options, live, &probe));
    kvf_status st = kvf__kv_prefix_store(ctx, live, options->out, options->force, dtype);
    if (!st) st = kvf__verify_prefix(ctx, options->out, live, expected, probe, r);
    kvf__fold_probe_free(probe);
    return st;
}

/* Folds virtual tokens at the input to a prefix, or to an embeddings file. */
static kvf_status fold_embed(kvf_ctx *ctx, const kvf_merge_options *options, kvf_prefix *live,
                             kvf_merge_result *r)
{
    bool captures = false;
    double diff = 0;

    KVF_TRY(kvf__captures(ctx, live, &captures));
    if (!captures) {
        KVF_TRY(extend_lineage(ctx, live, options->run, 0));
        return kvf__fold_embeddings(ctx, options, live, r);
    }
    KVF_TRY(kvf__capture(ctx, options, live, &diff));
    KVF_TRY(kvf__lineage_add(ctx, &live->file.lineage, "capture_relative_diff",
                             kvf_json_new_real(diff)));
    return fold_prefix(ctx, options, live, r);
}

static kvf_status fold(kvf_ctx *ctx, const kvf_merge_options *options, kvf_prefix *live,
                       kvf_merge_result *r)
{
    const bool changes = kvf_prefix_changes_base(live) || is_head(live);
    const bool both = changes && live->file.vectors.P;
    kvf_merge_options rest = *options;

    KVF_TRY(kvf__ctx_check_stop(ctx));
    if (!live->from_run)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "%s: is a prefix file already: there is no encoder to fold", options->run);
    if (options->out_base && !both)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "--out-base: not for %s, which did not train virtual tokens and base "
                         "together (p-tuning --unfreeze base)",
                         options->run);
    if (changes && !both) return fold_changes(ctx, options, live, r);
    if (both) {
        KVF_TRY(kvf__fold_trained_base(ctx, options, live));
        rest.base = options->out_base;
        rest.lora = NULL; /* the base file includes the LoRA */
    }
    return live->file.vectors.P ? fold_embed(ctx, &rest, live, r)
                                : fold_prefix(ctx, &rest, live, r);
}

static kvf_status merge(kvf_ctx *ctx, const kvf_merge_options *options, kvf_merge_result *result)
{
    kvf_merge_result r = {.probe_max_abs_diff = NAN};
    kvf_prefix *live = NULL;

    KVF_TRY(KVF__CHECK_RESERVED(ctx, kvf_merge_options, options));
    if (options->probe && !options->base) return kvf__fail(ctx, KVF_EUSAGE, "--probe needs --base");
    KVF_TRY(KVF__NOT_INPUTS(ctx, options->out, options->run, options->base, options->probe));
    const kvf__prefix_source source = KVF__PREFIX_SOURCE(options, options->run);
    KVF_TRY(kvf__prefix_source_open(ctx, &source, &live));
    r.step = live->step;
    kvf_status st = fold(ctx, options, live, &r);
    if (!st) *result = r;
    kvf_prefix_free(live);
    return st;
}

kvf_status kvf_merge(kvf_ctx *ctx, const kvf_merge_options *options, kvf_merge_result *result)
{
    KVF_TRY(KVF__NEED(ctx, options, result));
    KVF_TRY(KVF__NEED(ctx, options->run, options->out));
    KVF_TRY(KVF__CHECK_ENUM(ctx, options->dtype, KVF_DTYPE_INT8));
    KVF_TRY(KVF__CHECK_ENUM(ctx, options->checkpoint, KVF_CHECKPOINT_LAST));
    KVF__RETURN(ctx, merge(ctx, options, result));
}
