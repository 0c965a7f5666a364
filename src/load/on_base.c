/* The encoder of a method on a base: the only place that hands a part of the base to an encoder,
 * which never sees the model. */
#include "encoder_int.h"
#include "load_int.h"

kvf_status kvf__encoder_on_base(kvf_ctx *ctx, const kvf_base *base, const char *method,
                                const kvf__encoder_shape *shape, kvf__encoder **out)
{
    const kvf__desc *d = kvf__model_desc(base->model);
    kvf__kv_projections projections = {0};
    kvf__encoder_shape whole = *shape;

    whole.L = d->L;
    whole.G = d->G;
    whole.D = d->D;
    whole.C = d->C;
    if (kvf__encoder_needs_projections(method) && shape->P > 0) {
        KVF_TRY(kvf__model_kv_projections(ctx, base->model, &base->slots, shape->P, &projections));
        whole.projections = &projections;
    }
    return kvf__encoder_create(ctx, method, &whole, out);
}
