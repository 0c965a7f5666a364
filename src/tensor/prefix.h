/* The waist: the prefix tensor, the only thing that passes between encoder and base, in both
 * directions.
 *
 * Value and gradient have the same type: kv [L, 2, G, P, D], f32, key before value, keys as they
 * sit in a Hugging Face cache (half-split head order, after RoPE, never rotated again). No batch
 * axis: every row reads the same memory, and a gradient is already summed over the rows. P = 0 is
 * legal and means "no prefix".
 *
 * The flat view of PEFT and P-tuning v2 is [P, 2*L*G*D]: flat[p][((2*l + kv)*G + g)*D + d]. */
#ifndef KVF_PREFIX_H
#define KVF_PREFIX_H

#include "base_int.h"

typedef struct kvf__prefix {
    int64_t L, G, P, D;
    float *kv; /* [L, 2, G, P, D], owned */
    uint8_t
        *layer_mask; /* [L], owned: 0 = this layer has no prefix segment (its values are zeros) */
} kvf__prefix;

/* Zeros, every layer on. */
kvf_status kvf__prefix_init(kvf_ctx *ctx, kvf__prefix *out, int64_t L, int64_t G, int64_t P,
                            int64_t D);
void kvf__prefix_done(kvf__prefix *prefix);
size_t kvf__prefix_count(const kvf__prefix *prefix); /* L * 2 * G * P * D */
void kvf__prefix_from_flat(kvf__prefix *prefix, const float *flat /* [P, 2LGD] */);
void kvf__prefix_to_flat(const kvf__prefix *prefix, float *flat);
/* flat += prefix, for gradients. */
void kvf__prefix_add_to_flat(const kvf__prefix *prefix, float *flat);

/* A flat list of trainable tensors: encoder (and later head, port `block`) publish it; optimizer,
 * io and the gradient check loop over it. Values and gradients are viewed. */
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
} kvf__param;

/* The gradient of a parameter, formed if need be: out [n]. */
void kvf__param_grad(const kvf__param *param, float *out);

#define KVF__MAX_PARAMS 64
typedef struct kvf__params {
    size_t n;
    kvf__param item[KVF__MAX_PARAMS];
} kvf__params;

#endif
