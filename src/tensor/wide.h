/* Few rows times a wide trainable matrix: the last layer of an encoder, which holds nearly all of
 * its parameters. For GPT-2 with P = 20 rows, M = 512 and N = 2*L*G*D = 18432, it has 38 MB of
 * weights.
 *
 * The time is bound by reading that matrix, so each function reads it once. The gradient dW =
 * left^T right of rank P is never stored. AdamW computes its pieces in registers, and its norm
 * follows from two P x P matrices of dot products. That saves a third of the traffic and a quarter
 * of the encoder's memory. For general matrix products see matmul.h.
 *
 * One table per instruction set, as in kernels.h. Results depend on neither threads nor timing. */
#ifndef KVF_WIDE_H
#define KVF_WIDE_H

#include "base_int.h"

/* Constants of one parameter in a step of AdamW; see optim_int.h. */
typedef struct kvf__adamw_rates {
    float decay, beta1_rest, beta2, beta2_rest, step_size, root_correction, eps, grad_scale;
} kvf__adamw_rates;

typedef struct kvf__wide {
    const char *name;
    /* Computes y [P, N] = x [P, M] W^T + b, W [N, M], b [N]. */
    void (*fwd)(float *y, const float *x, const float *w, const float *b, int64_t P, int64_t N,
                int64_t M);
    /* Computes dx [P, M] = dy [P, N] W. */
    void (*bwd)(float *dx, const float *dy, const float *w, int64_t P, int64_t N, int64_t M);
    /* Updates w and its moments m and v with the gradient g, all [n]. */
    void (*adamw)(const kvf__adamw_rates *rates, float *w, float *m, float *v, const float *g,
                  int64_t n);
    /* Updates with the gradient g [N, M] = left^T right, left [P, N], right [P, M]. */
    void (*adamw_outer)(const kvf__adamw_rates *rates, float *w, float *m, float *v,
                        const float *left, const float *right, int64_t P, int64_t N, int64_t M);
    /* Returns the sum of a[i] * b[i], accumulated in double; runs on the calling thread. */
    double (*dot)(const float *a, const float *b, int64_t n);
} kvf__wide;

/* Returns the table for this machine and cap, never NULL. */
const kvf__wide *kvf__wide_get(void);
/* Returns the table of a level ("ref", "avx2", "avx512"), NULL if this machine lacks it or the cap
 * forbids it. */
const kvf__wide *kvf__wide_level(const char *name);

#endif
