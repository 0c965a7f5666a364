/* Folding what has no encoder: adapters and the norms trained with them leave the run as they are,
 * bit for bit, for the adapter file that inference loads. */
#include "merge_int.h"

#include <math.h>
#include <string.h>

static kvf_status check_options(kvf_ctx *ctx, const kvf_merge_options *options,
                                const kvf_prefix *live)
{
    if (live->form.what != KVF__TRAIN_ADAPTERS)
        return kvf__fail(ctx, KVF_EUNSUPPORTED, "%s: method %s folds to no adapter file",
                         options->run, live->id.method);
    return kvf__check_no_rounding(ctx, options, live);
}

/* Of two lists with the same names in the same order; infinite where they are not. */
static double list_max_diff(const kvf__params *a, const kvf__params *b)
{
    double worst = 0;

    if (a->n != b->n) return INFINITY;
    for (size_t i = 0; i < a->n; i++) {
        const kvf__param *x = &a->item[i], *y = &b->item[i];
        if (strcmp(x->name, y->name) || x->n != y->n) return INFINITY;
        for (int64_t j = 0; j < x->n; j++) {
            double diff = fabs((double)x->value[j] - (double)y->value[j]);
            if (!(diff <= worst)) worst = diff;
        }
    }
    return worst;
}

static kvf_status verify(kvf_ctx *ctx, const kvf_merge_options *options, const kvf_prefix *live,
                         kvf_merge_result *result)
{
    kvf__artifact back = {0};
    kvf_status st = KVF_OK;

    KVF_TRY(kvf__artifact_read(ctx, options->out, KVF__KIND_ADAPTER, &back));
    result->max_abs_diff = list_max_diff(&live->block.params, &back.values.params);
    if (result->max_abs_diff != 0)
        st = kvf__fail(ctx, KVF_EINTERNAL, "%s: reads back %g away from the run, expected 0",
                       options->out, result->max_abs_diff);
    else
        st = kvf__check_head(ctx, options->out, &live->head, &back.head);
    kvf__artifact_done(&back);
    return st;
}

kvf_status kvf__fold_block(kvf_ctx *ctx, const kvf_merge_options *options, const kvf_prefix *live,
                           kvf_merge_result *result)
{
    const kvf__adapter_shape *shape = &live->form.adapters;
    kvf__artifact file = kvf__prefix_view(live, KVF__KIND_ADAPTER);

    file.size = shape->size;
    file.activation = (char *)kvf__adapter_act_name(shape->act);
    file.placement = (char *)kvf__adapter_place_name(shape->place);
    KVF_TRY(check_options(ctx, options, live));
    KVF_TRY(kvf__artifact_write(ctx, options->out, options->force, &file));
    KVF_TRY(verify(ctx, options, live, result));
    const int64_t dims[] = {live->id.L, kvf__adapter_halves(shape), shape->size,
                            live->block.params.item[0].dim[1]};
    memcpy(result->shape, dims, sizeof dims);
    result->rank = 4;
    return KVF_OK;
}
