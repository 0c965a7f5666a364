/* Inside src/model: from slots to packed weights, one f32 matrix at a time. */
#ifndef KVF_PACK_H
#define KVF_PACK_H

#include "products.h"

/* The workspace of packing: allocated once for the largest piece, so that peak memory is the packed
 * model plus one piece. */
typedef struct kvf__packer {
    kvf_ctx *ctx;
    kvf__mm *mm;
    kvf__dtype type;        /* of the product at hand: that of what it reads, or I8 */
    bool forward, backward; /* which of a piece's two forms to pack */
    size_t packed_bytes;    /* so far */
    float *matrix;          /* [cap] */
    float *bias;            /* [cap_out] */
    float *scratch;         /* [threads, scratch_row] */
    size_t scratch_row;
    int threads;
} kvf__packer;

/* matrix: most elements, out: most outputs, in: most inputs of a piece. */
kvf_status kvf__packer_init(kvf_ctx *ctx, kvf__packer *packer, size_t matrix, size_t out,
                            size_t in);
void kvf__packer_done(kvf__packer *packer);

/* A dense layer y = x W + b as its file has it: up to three weights stacked along the outputs, and
 * what precedes it. */
typedef struct kvf__dense {
    int n_parts;
    const kvf__slot *weight[3]; /* [out, in], or [in, out] where conv1d (then one part) */
    const kvf__slot *bias[3];   /* [out] or NULL */
    const float *gamma, *beta;  /* [in] of the norm in front, NULL: none */
} kvf__dense;

/* Folds the norm, packs the product's weights and their transpose, of both what the packer wants.
 * Stacked parts are packed whole. What is packed already takes the new values. */
kvf_status kvf__pack_product(kvf__packer *packer, const kvf__dense *dense,
                             const kvf__product *product, kvf__packed_pair *to);

#endif
