/* Private to src/model: from slots to packed weights, one f32 matrix at a time. */
#ifndef KVF_PACK_H
#define KVF_PACK_H

#include "products.h"

/* The workspace of packing, allocated once for the largest piece, so peak memory is the packed
 * model plus one piece. */
typedef struct kvf__packer {
    kvf_ctx *ctx;
    kvf__mm *mm;
    kvf__dtype type;        /* type of the current product: that of its input, or I8 */
    bool forward, backward; /* forms of a piece to pack */
    size_t packed_bytes;    /* total so far */
    float *matrix;          /* [cap] */
    float *bias;            /* [cap_out] */
    float *scratch;         /* [threads, scratch_row] */
    size_t scratch_row;
    int threads;
} kvf__packer;

/* matrix: maximum elements, out: maximum outputs, in: maximum inputs of a piece. */
kvf_status kvf__packer_init(kvf_ctx *ctx, kvf__packer *packer, size_t matrix, size_t out,
                            size_t in);
void kvf__packer_done(kvf__packer *packer);

/* A dense layer y = x W + b as stored: up to four weights stacked along the outputs, and the
 * preceding norm. */
typedef struct kvf__dense {
    int n_parts;
    const kvf__slot *weight[4]; /* [out, in], or [in, out] if conv1d (then one part) */
    const kvf__slot *bias[4];   /* [out] or NULL */
    int64_t first[4], rows[4];  /* of several parts: the rows used */
    const float *gamma, *beta;  /* [in] of the preceding norm, NULL: none */
} kvf__dense;

/* Folds the norm, and packs the product's weights and their transpose, as far as the packer's flags
 * ask for them. Stacked parts are packed together. An existing packed weight receives the new
 * values. */
kvf_status kvf__pack_product(kvf__packer *packer, const kvf__dense *dense,
                             const kvf__product *product, kvf__packed_pair *to);

#endif
