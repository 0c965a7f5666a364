/* Inside src/pass: one bottleneck, x += up(act(down(in))), forward and backward. */
#ifndef KVF_BOTTLENECK_H
#define KVF_BOTTLENECK_H

#include "adapter.h"

/* What it leaves for its backward pass. */
typedef struct kvf__bottleneck_kept {
    float *in;    /* [M, C] what it read; filled by the caller */
    float *h;     /* [M, m] act(down(in)) */
    float *slope; /* [M, m] act' there */
} kvf__bottleneck_kept;

/* x [M, C] += up(act(down(in))). */
kvf_status kvf__bottleneck_fwd(kvf_ctx *ctx, const kvf__kernels *kernels, const kvf__bottleneck *b,
                               const kvf__bottleneck_kept *kept, float *x, int64_t M);
/* dx [M, C], the gradient of x, to din [M, C] += that of in, and to the parameters' gradients. dh:
 * room for [M, m]. */
kvf_status kvf__bottleneck_bwd(kvf_ctx *ctx, const kvf__kernels *kernels, const kvf__bottleneck *b,
                               const kvf__bottleneck_kept *kept, float *din, const float *dx,
                               float *dh, int64_t M);

#endif
