/* Keys and values that a base's own frozen projections make of P inputs of width C: what method
 * `projected` trains its inputs through.
 *
 *   K = rope(norm_k(x W_k^T + b_k))    V = norm_v(x W_v^T + b_v)
 *
 * Weights are raw, never norm-folded; biases, the norms of keys (Qwen3) and values
 * (Gemma 4) and rope apply where the
 * family has them, rope at the prefix's own positions 0 .. P-1, whatever position_start is. x is
 * used as it is, without a norm in front of it. */
#ifndef KVF_KV_PROJECTION_H
#define KVF_KV_PROJECTION_H

#include "base_int.h"

/* One layer. Everything is viewed. */
typedef struct kvf__kv_projection {
    int64_t C, G, D;
    const float *wk, *wv;    /* [G*D, C] */
    const float *bk, *bv;    /* [G*D]; NULL: none */
    const float *k_norm;     /* [G, D] RMSNorm of each head's keys; NULL: none */
    const float *v_norm;     /* the same of values, by heads */
    bool k_norm_whole;       /* of all heads' keys together */
    float eps;               /* of the norms */
    int64_t R;               /* elements of a head that rope rotates */
    const float *cos, *sin;  /* [P, R/2]; NULL: no rope */
    const int32_t *position; /* [P] 0, 1, ... */
} kvf__kv_projection;

/* Those of all layers, with the memory that they view. {0} is empty. */
typedef struct kvf__kv_projections {
    int64_t L, P;
    kvf__kv_projection *layer; /* [L] */
    float *weights, *tables;   /* tables: cos, sin, then positions */
} kvf__kv_projections;
void kvf__kv_projections_done(kvf__kv_projections *projections);

/* floats that a call needs as scratch. */
size_t kvf__kv_projection_work(const kvf__kv_projection *of, int64_t P);
/* Row p of K at k + p * stride, [G, D]; V the same. */
kvf_status kvf__kv_projection_fwd(kvf_ctx *ctx, const kvf__kv_projection *of, float *k, float *v,
                                  int64_t stride, const float *x, int64_t P, float *work);
/* dx [P, C] is set. */
kvf_status kvf__kv_projection_bwd(kvf_ctx *ctx, const kvf__kv_projection *of, float *dx,
                                  const float *dk, const float *dv, int64_t stride, const float *x,
                                  int64_t P, float *work);
/* How far one step of +-1 in every input moves a key or value, about: the root of the mean square
 * of W_v's rows' (and, without a norm of keys, W_k's) L2 norms. */
double kvf__kv_projection_gain(const kvf__kv_projection *of);

#endif
