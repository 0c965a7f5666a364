/* A flat list of trainable tensors: encoder, head and (port `block`) the model publish one each;
 * optimizer, io and the gradient check loop over it. Whoever made a list owns it: the array always,
 * and what its items point to where its comment states it. */
#ifndef KVF_PARAMS_H
#define KVF_PARAMS_H

#include "base_int.h"

/* Values and gradients are viewed. */
typedef struct kvf__param {
    const char *name;    /* PEFT's name, e.g. "transform.2.weight" */
    float *value, *grad; /* grad may be NULL where only values are read or written */
    int rank;
    int64_t dim[4];
    int64_t n;
    double lr_scale; /* this tensor steps with lr * lr_scale */
    /* The gradient of a large matrix [dim 0, dim 1] may stay unformed (wide.h): outer > 0, grad
     * NULL, and the gradient is left^T right with left [outer, dim 0], right [outer, dim 1]. */
    int64_t outer;
    const float *left, *right;
    /* Of a prefix [P, L * 2 * kv_heads * head_width], keys before values, whose values step by Muon
     * (muon.c); 0: AdamW steps all. */
    int64_t kv_heads, head_width;
} kvf__param;

/* {0} is empty. A list with room for what is added allocates nothing. */
typedef struct kvf__params {
    size_t n, capacity;
    kvf__param *item;
} kvf__params;
kvf_status kvf__params_add(kvf_ctx *ctx, kvf__params *params, const kvf__param *param);
kvf_status kvf__params_append(kvf_ctx *ctx, kvf__params *params, const kvf__params *more);
void kvf__params_done(kvf__params *params); /* the array alone */
int64_t kvf__params_values(const kvf__params *params);
const kvf__param *kvf__params_find(const kvf__params *params, const char *name); /* NULL: none */

#endif
