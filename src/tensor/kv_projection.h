/* Keys and values that a base's frozen projections compute from P inputs of width C, for training
 * the inputs (method `projected`).
 *
 *     K = rope(norm_k(x W_k^T + b_k))    V = norm_v(x W_v^T + b_v)
 *
 * Weights are raw, never norm-folded. Biases, the norms of keys (Qwen3) and values (Gemma 4) and
 * rope apply as in the family, rope at the prefix's own positions 0 .. P-1 independently of
 * position_start. x is not normalised first. */
#ifndef KVF_KV_PROJECTION_H
#define KVF_KV_PROJECTION_H

#include "base_int.h"

/* One layer, with borrowed arrays. */
typedef struct kvf__kv_projection {
    int64_t C, G, D;
    const float *wk, *wv;    /* [G*D, C] */
    const float *bk, *bv;    /* [G*D]; NULL: none */
    const float *k_norm;     /* [G, D] RMSNorm of each head's keys; NULL: none */
    const float *v_norm;     /* the same for values, per head */
    bool k_norm_whole;       /* one norm over the keys of all heads */
    float eps;               /* eps of the norms */
    int64_t R;               /* elements of a head rotated by rope */
    const float *cos, *sin;  /* [P, R/2]; NULL: no rope */
    const int32_t *position; /* [P] 0, 1, ... */
} kvf__kv_projection;

/* Projections of all layers with their memory. {0} is empty. */
typedef struct kvf__kv_projections {
    int64_t L, P;
    kvf__kv_projection *layer; /* [L] */
    float *weights, *tables;   /* tables: cos, sin, then positions */
} kvf__kv_projections;
void kvf__kv_projections_done(kvf__kv_projections *projections);

/* Returns the floats of scratch that a call needs. */
size_t kvf__kv_projection_work(const kvf__kv_projection *of, int64_t P);
/* Computes K and V; row p of K is at k + p * stride, [G, D], likewise V. */
kvf_status kvf__kv_projection_fwd(kvf_ctx *ctx, const kvf__kv_projection *of, float *k, float *v,
                                  int64_t stride, const float *x, int64_t P, float *work);
/* Sets dx [P, C]. */
kvf_status kvf__kv_projection_bwd(kvf_ctx *ctx, const kvf__kv_projection *of, float *dx,
                                  const float *dk, const float *dv, int64_t stride, const float *x,
                                  int64_t P, float *work);
/* Returns an estimate of how far a step of +-1 in every input moves a key or value. It is the root
 * mean square of the L2 norms of W_v's rows and, without a norm of keys, W_k's. */
double kvf__kv_projection_gain(const kvf__kv_projection *of);

#endif
