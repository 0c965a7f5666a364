/* Common functions of encoder kinds: adding parameters, and the two implementations of shift. */
#include "encoder_priv.h"

#include <stdio.h>

kvf__kv_shape kvf__encoder_kv(const kvf__encoder_shape *shape)
{
    return (kvf__kv_shape){shape->L, shape->G, shape->D, shape->heads};
}

/* Replaces a name by "neurons.<name>", in memory of the encoder. */
static kvf_status name_of_neurons(kvf_ctx *ctx, kvf__encoder *encoder, const char **name)
{
    enum { ROOM = 40, NAMES = 8 };
    if (!encoder->names) KVF_TRY(kvf__alloc_array(ctx, NAMES, ROOM, &encoder->names));
    char *at = encoder->names + encoder->params.n * ROOM;
    snprintf(at, ROOM, "neurons.%s", *name);
    *name = at;
    return KVF_OK;
}

kvf_status kvf__encoder_add(kvf_ctx *ctx, kvf__encoder *encoder, const char *name, int64_t rows,
                            int64_t columns)
{
    if (encoder->emits_neurons) KVF_TRY(name_of_neurons(ctx, encoder, &name));
    const kvf__param param = {.name = name,
                              .rank = columns ? 2 : 1,
                              .dim = {rows, columns},
                              .n = columns ? rows * columns : rows,
                              .lr_scale = 1};
    return kvf__params_add(ctx, &encoder->params, &param);
}

kvf_status kvf__encoder_shift_values(kvf_ctx *ctx, kvf__encoder *encoder, const double *change)
{
    const kvf__param *param = encoder->params.item;
    (void)ctx;
    for (int64_t i = 0; i < param->n; i++)
        param->value[i] = (float)((double)param->value[i] + change[i]);
    return KVF_OK;
}

kvf_status kvf__encoder_shift_last_layer(kvf_ctx *ctx, kvf__encoder *encoder, const double *change)
{
    const kvf__param *param = encoder->params.item;
    const kvf__encoder_linear *l = &encoder->linears[encoder->n_linears - 1];
    /* l->x: from the fwd that measured the change */
    return kvf__last_layer_shift(ctx, param[l->weight].value, param[l->weight + 1].value, l->x,
                                 change, encoder->shape.P, l->in, l->out);
}
