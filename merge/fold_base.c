/* Folding a run that trained every weight: they become a base file, with the config and the
 * tokenizer of the base that the run began from. */
#include "merge_int.h"

#include <math.h>
#include <string.h>

static kvf_status check_options(kvf_ctx *ctx, const kvf_merge_options *options,
                                const kvf_prefix *live)
{
    if (live->vectors.P)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: trained the base beside its virtual tokens (--unfreeze base), and no "
                         "file holds both: use the run itself",
                         options->run);
    if (options->probe)
        return kvf__fail(ctx, KVF_EUSAGE, "--probe: not for method %s, whose fold changes no bit",
                         live->id.method);
    if (options->dtype && strcmp(options->dtype, "f32"))
        return kvf__fail(ctx, KVF_EUSAGE, "--dtype %s: method %s is stored in f32", options->dtype,
                         live->id.method);
    if (live->head.params.params.n)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: a base file has no place for the head of task %s: use the run itself",
                         options->run, live->id.task);
    if (options->base) return KVF_OK;
    return kvf__fail(ctx, KVF_EUSAGE,
                     "%s: method %s folds to a base, which takes config and tokenizer from the one "
                     "it began from: name that with --base",
                     options->run, live->id.method);
}

/* Every trained weight reads back bit for bit. */
static kvf_status verify(kvf_ctx *ctx, const char *path, const kvf_prefix *live)
{
    const kvf__params *params = &live->block.params;
    kvf__weights weights = {0};
    kvf__base_file file = {0};

    KVF_TRY(kvf__base_file_open(ctx, path, &weights, &file));
    kvf_status st = KVF_OK;
    for (size_t i = 0; i < params->n && !st; i++) {
        const kvf__param *p = &params->item[i];
        const kvf__view *view = kvf__table_find(&weights.table, p->name);
        if (!view || view->dtype != KVF__F32 || kvf__view_count(view) != p->n ||
            memcmp(view->data, p->value, (size_t)p->n * sizeof(float)))
            st = kvf__fail(ctx, KVF_EINTERNAL, "%s: %s does not read back as it was written", path,
                           p->name);
    }
    kvf__weights_close(&weights);
    kvf__base_file_done(&file);
    return st;
}

kvf_status kvf__fold_base(kvf_ctx *ctx, const kvf_merge_options *options, const kvf_prefix *live,
                          kvf_merge_result *result)
{
    const kvf_base_options light = {.precision = KVF_PRECISION_F32};
    kvf_base *base = NULL;
    kvf_status st;

    KVF_TRY(check_options(ctx, options, live));
    st = kvf_base_open(ctx, options->base, &light, &base);
    if (st) goto out;
    st = kvf__prefix_fits(ctx, live, base, options->allow_other_base);
    if (st) goto out;
    st = kvf__base_from_values(ctx, base, &live->block.params, options->out, options->force);
    if (st) goto out;
    st = verify(ctx, options->out, live);
    if (st) goto out;
    result->max_abs_diff = 0;
    result->rank = 1;
    for (size_t i = 0; i < live->block.params.n; i++)
        result->shape[0] += live->block.params.item[i].n;
out:
    kvf_base_free(base);
    return st;
}
