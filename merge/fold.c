/* Folding: the encoder of a run is run once, and what it emits becomes the static prefix. The file
 * is read back and compared with the encoder's output before merge reports success: equal bit for
 * bit in f32, off by the rounding of the type otherwise. */
#include "merge_int.h"

#include <math.h>
#include <string.h>
#include <sys/stat.h>

double kvf__prefix_max_diff(const kvf__prefix *a, const kvf__prefix *b)
{
    double worst = 0;
    for (size_t i = 0; i < kvf__prefix_count(a); i++) {
        double diff = fabs((double)a->kv[i] - (double)b->kv[i]);
        if (!(diff <= worst)) worst = diff;
    }
    return worst;
}

static kvf_status extend_lineage(kvf_ctx *ctx, kvf_prefix *live, const char *run, double diff)
{
    kvf_json **lineage = &live->lineage;
    KVF_TRY(kvf__lineage_add_hash(ctx, lineage, "run_hash", run));
    KVF_TRY(kvf__lineage_add(ctx, lineage, "run_step", kvf_json_new_int(live->step)));
    return kvf__lineage_add(ctx, lineage, "fold_max_abs_diff", kvf_json_new_real(diff));
}

/* The head is stored in f32 and must come back bit for bit. */
bool kvf__same_head(const kvf__head_values *a, const kvf__head_values *b)
{
    const kvf__params *x = &a->params.params, *y = &b->params.params;
    if (x->n != y->n || a->n_labels != b->n_labels || a->regression != b->regression) return false;
    for (size_t i = 0; i < x->n; i++)
        if (strcmp(x->item[i].name, y->item[i].name) || x->item[i].n != y->item[i].n ||
            memcmp(x->item[i].value, y->item[i].value, (size_t)x->item[i].n * sizeof(float)))
            return false;
    for (size_t i = 0; i < a->n_labels; i++)
        if (strcmp(a->labels[i], b->labels[i])) return false;
    if (!a->words != !b->words) return false;
    for (size_t i = 0; a->words && i < a->n_labels; i++)
        if (strcmp(a->words[i], b->words[i])) return false;
    return true;
}

kvf_status kvf__check_head(kvf_ctx *ctx, const char *path, const kvf__head_values *want,
                           const kvf__head_values *got)
{
    if (kvf__same_head(want, got)) return KVF_OK;
    return kvf__fail(ctx, KVF_EINTERNAL, "%s: the head does not read back as it was written", path);
}

kvf_status kvf__check_no_rounding(kvf_ctx *ctx, const kvf_merge_options *options,
                                  const kvf_prefix *live)
{
    if (options->probe)
        return kvf__fail(ctx, KVF_EUSAGE, "--probe: not for method %s, whose fold changes no bit",
                         live->id.method);
    if (options->dtype != KVF_DTYPE_F32)
        return kvf__fail(ctx, KVF_EUSAGE, "--dtype %s: method %s is stored in f32",
                         kvf_dtype_name(options->dtype), live->id.method);
    return KVF_OK;
}

int64_t kvf__file_bytes(const char *path)
{
    struct stat info;
    return stat(path, &info) ? 0 : info.st_size;
}

/* Reads the new file and holds it against the encoder's output. */
static kvf_status verify(kvf_ctx *ctx, const kvf_merge_options *options, const kvf_prefix *live,
                         double expected, kvf__fold_probe *probe, kvf_merge_result *result)
{
    kvf__artifact back = {0};
    KVF_TRY(kvf__artifact_read(ctx, options->out, KVF__KIND_PREFIX, &back));
    result->max_abs_diff = kvf__prefix_max_diff(&live->prefix, &back.prefix);
    kvf_status st = KVF_OK;
    if (result->max_abs_diff != expected)
        st = kvf__fail(ctx, KVF_EINTERNAL,
                       "%s: reads back %g away from the encoder's output, expected %g",
                       options->out, result->max_abs_diff, expected);
    if (!st) st = kvf__check_head(ctx, options->out, &live->head, &back.head);
    if (!st && probe)
        st = kvf__fold_probe_compare(probe, &live->prefix, &back.prefix,
                                     &result->probe_max_abs_diff);
    result->bytes = kvf__file_bytes(options->out);
    kvf__artifact_done(&back);
    return st;
}

static kvf_status fold_block(kvf_ctx *ctx, const kvf_merge_options *options, kvf_prefix *live,
                             kvf_merge_result *result)
{
    kvf_merge_result r = {.probe_max_abs_diff = NAN, .step = live->step};
    KVF_TRY(extend_lineage(ctx, live, options->run, 0));
    bool whole = live->form.what == KVF__TRAIN_EVERYTHING;
    KVF_TRY(whole ? kvf__fold_base(ctx, options, live, &r)
                  : kvf__fold_block(ctx, options, live, &r));
    r.bytes = kvf__file_bytes(options->out);
    *result = r;
    return KVF_OK;
}

/* Virtual tokens at the input: they become a prefix, or a file of their own (*written). */
static kvf_status fold_embed(kvf_ctx *ctx, const kvf_merge_options *options, kvf_prefix *live,
                             bool *written, kvf_merge_result *result)
{
    kvf_merge_result r = {.probe_max_abs_diff = NAN, .step = live->step};
    bool captures = false;
    double diff = 0;
    KVF_TRY(kvf__captures(ctx, live, &captures));
    if (captures) {
        KVF_TRY(kvf__capture(ctx, options, live, &diff));
        return kvf__lineage_add(ctx, &live->lineage, "capture_relative_diff",
                                kvf_json_new_real(diff));
    }
    KVF_TRY(extend_lineage(ctx, live, options->run, 0));
    KVF_TRY(kvf__fold_embeddings(ctx, options, live, &r));
    *written = true;
    *result = r;
    return KVF_OK;
}

/* Writes the prefix file, verifies it and fills the result. */
static kvf_status fold_prefix(kvf_ctx *ctx, const kvf_merge_options *options, kvf_prefix *live,
                              kvf__dtype dtype, kvf_merge_result *result)
{
    const kvf__identity *id = &live->id;
    kvf__fold_probe *probe = NULL;
    kvf_merge_result r = {.shape = {id->L, 2, 1, id->G, id->P, id->D},
                          .rank = 6,
                          .step = live->step,
                          .probe_max_abs_diff = NAN};
    double expected = 0;
    kvf_status st;

    KVF_TRY(kvf__rounding_diff(ctx, options->out, dtype, &live->prefix, &expected));
    KVF_TRY(extend_lineage(ctx, live, options->run, expected));
    if (options->probe) KVF_TRY(kvf__fold_probe_create(ctx, options, live, &probe));
    st = kvf__kv_prefix_store(ctx, live, options->out, options->force, dtype);
    if (!st) st = verify(ctx, options, live, expected, probe, &r);
    if (!st) *result = r;
    kvf__fold_probe_free(probe);
    return st;
}

static kvf_status fold(kvf_ctx *ctx, const kvf_merge_options *options, kvf_prefix *live,
                       kvf__dtype dtype, kvf_merge_result *result)
{
    const bool changes = kvf_prefix_changes_base(live), both = changes && live->vectors.P;
    kvf_merge_options rest = *options;
    bool written = false;

    if (!live->from_run)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "%s: is a prefix file already: there is no encoder to fold", options->run);
    if (options->out_base && !both)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "--out-base: not for %s, which did not train virtual tokens and base "
                         "together (p-tuning --unfreeze base)",
                         options->run);
    if (changes && !both) return fold_block(ctx, options, live, result);
    if (both) {
        KVF_TRY(kvf__fold_trained_base(ctx, options, live));
        rest.base = options->out_base;
    }
    if (live->vectors.P) KVF_TRY(fold_embed(ctx, &rest, live, &written, result));
    return written ? KVF_OK : fold_prefix(ctx, &rest, live, dtype, result);
}

kvf_status kvf_merge(kvf_ctx *ctx, const kvf_merge_options *options, kvf_merge_result *result)
{
    const kvf__dtype dtype = kvf__prefix_dtype(options->dtype);
    kvf_prefix *live = NULL;

    if (options->probe && !options->base) return kvf__fail(ctx, KVF_EUSAGE, "--probe needs --base");
    KVF_TRY(kvf_check_not_input(ctx, options->out, options->run));
    KVF_TRY(kvf_check_not_input(ctx, options->out, options->base));
    KVF_TRY(kvf_check_not_input(ctx, options->out, options->probe));
    const kvf__prefix_source source = {.path = options->run,
                                       .base = options->base,
                                       .head = options->head,
                                       .checkpoint = options->checkpoint,
                                       .allow_other_base = options->allow_other_base};
    KVF_TRY(kvf__prefix_source_open(ctx, &source, &live));
    kvf_status st = fold(ctx, options, live, dtype, result);
    kvf_prefix_free(live);
    return st;
}
