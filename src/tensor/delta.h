/* The gated delta rule (Yang et al. 2025, arXiv 2412.06464): a recurrence over the tokens of a row,
 * with one matrix S [K, V] per head.
 *
 *   d_t = beta_t (v_t - a_t S_{t-1}^T k_t)      S_t = a_t S_{t-1} + k_t d_t^T      out_t = S_t^T
 * q_t
 *
 * Columns of S are independent, so a thread runs through a row in blocks of them, which stay in its
 * first-level cache. The backward pass keeps S of every 16th token and computes the others again.
 * Rows can be continued at any token with the same bits. One table per instruction set, see
 * kernels.h; runs on the calling thread. */
#ifndef KVF_DELTA_H
#define KVF_DELTA_H

#include <stdint.h>

typedef struct kvf__delta {
    int64_t n, K, V;           /* tokens; sizes of a key and of a value */
    const float *q, *k, *v;    /* [n, K], [n, K], [n, V] */
    const float *decay, *beta; /* [n] a and beta */
    float *state;              /* [K, V] S before the first token; forward makes it the last S */
    float *out;                /* forward: [n, V] */
    const float *dout;         /* backward: [n, V] */
    float *dstate;             /* [K, V] gradient of the last S, which becomes that of `state` */
    float *dq, *dk, *dv;       /* [n, K], [n, K], [n, V]; the first two are added to */
    float *dlog_decay, *dbeta; /* [n] gradients of log a and of beta, added to */
    float *scratch;            /* kvf__delta_scratch() floats */
} kvf__delta;

enum { KVF__DELTA_BLOCK = 64, KVF__DELTA_CHUNK = 16 }; /* most columns; tokens between kept S */
/* Returns the floats of scratch memory for n tokens. */
static inline int64_t kvf__delta_scratch(int64_t n, int64_t K)
{
    const int64_t states = 4 + KVF__DELTA_CHUNK + n / KVF__DELTA_CHUNK;
    return KVF__DELTA_BLOCK * (K * states + 2 * KVF__DELTA_CHUNK);
}

#endif
