/* The list of trainable tensors, see param.h. */
#include "param.h"

#include <string.h>

static kvf_status reserve(kvf_ctx *ctx, kvf__params *params, size_t more)
{
    return kvf__reserve(ctx, &params->item, &params->capacity, params->n + more,
                        sizeof *params->item);
}

kvf_status kvf__params_add(kvf_ctx *ctx, kvf__params *params, const kvf__param *param)
{
    KVF_TRY(reserve(ctx, params, 1));
    params->item[params->n++] = *param;
    return KVF_OK;
}

kvf_status kvf__params_append(kvf_ctx *ctx, kvf__params *params, const kvf__params *more)
{
    KVF_TRY(reserve(ctx, params, more->n));
    for (size_t i = 0; i < more->n; i++)
        params->item[params->n++] = more->item[i];
    return KVF_OK;
}

void kvf__params_done(kvf__params *params)
{
    kvf__free(params->item);
    *params = (kvf__params){0};
}

int64_t kvf__params_values(const kvf__params *params)
{
    int64_t n = 0;
    for (size_t i = 0; i < params->n; i++)
        n += params->item[i].n;
    return n;
}

const kvf__param *kvf__params_find(const kvf__params *params, const char *name)
{
    for (size_t i = 0; i < params->n; i++)
        if (!strcmp(params->item[i].name, name)) return &params->item[i];
    return NULL;
}
