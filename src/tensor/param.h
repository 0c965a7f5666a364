/* A flat list of trainable tensors. Encoder, head and (port `block`) the model publish one each;
 * optimizer, file code and gradient check loop over it. The creator of a list owns its array. The
 * creator also owns the data of the items if its comment states this. */
#ifndef KVF_PARAMS_H
#define KVF_PARAMS_H

#include "base_int.h"

/* A trainable tensor. Values and gradients are borrowed. */
typedef struct kvf__param {
    const char *name;    /* PEFT's name, e.g. "transform.2.weight" */
    float *value, *grad; /* grad may be NULL if only values are read or written */
    int rank;
    int64_t dim[4];
    int64_t n;
    double lr_scale; /* factor on the learning rate of this tensor */
    /* The gradient of a large matrix [dim 0, dim 1] may stay factored (wide.h). Then outer > 0,
     * grad is NULL, and gradient = left^T right with left [outer, dim 0], right [outer, dim 1]. */
    int64_t outer;
    const float *left, *right;
    /* Muon (muon.c) updates the last muon_heads * muon_width of every muon_unit columns: the values
     * of a layer, head by head. AdamW updates the others. muon_heads 0: AdamW for all. */
    int64_t muon_heads, muon_width, muon_unit;
} kvf__param;

/* {0} is empty. Appending within the capacity does not allocate. */
typedef struct kvf__params {
    size_t n, capacity;
    kvf__param *item;
} kvf__params;
kvf_status kvf__params_add(kvf_ctx *ctx, kvf__params *params, const kvf__param *param);
kvf_status kvf__params_append(kvf_ctx *ctx, kvf__params *params, const kvf__params *more);
void kvf__params_done(kvf__params *params); /* frees the array only */
int64_t kvf__params_values(const kvf__params *params);
/* Returns NULL if there is no such parameter. */
const kvf__param *kvf__params_find(const kvf__params *params, const char *name);

#endif
