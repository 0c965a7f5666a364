/* Private to src/pass: one bottleneck, x += up(act(down(in))), forward and backward. */
#ifndef KVF_BOTTLENECK_H
#define KVF_BOTTLENECK_H

#include "adapter.h"

/* Values kept for the backward pass. */
typedef struct kvf__bottleneck_kept {
    float *in;    /* [M, C] input; filled by the caller */
    float *h;     /* [M, m] act(down(in)) */
    float *slope; /* [M, m] act' there */
} kvf__bottleneck_kept;

/* Computes x [M, C] += up(act(down(in))). */
kvf_status kvf__bottleneck_fwd(kvf_ctx *ctx, const kvf__kernels *kernels, const kvf__bottleneck *b,
                               const kvf__bottleneck_kept *kept, float *x, int64_t M);
/* From dx [M, C], the gradient of x, adds to din [M, C] and to the parameters' gradients. dh: room
 * for [M, m]. */
kvf_status kvf__bottleneck_bwd(kvf_ctx *ctx, const kvf__kernels *kernels, const kvf__bottleneck *b,
                               const kvf__bottleneck_kept *kept, float *din, const float *dx,
                               float *dh, int64_t M);

#endif
