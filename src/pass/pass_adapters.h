/* Inside src/pass: adapters on the output of a layer's halves (pass_adapters.c). */
#ifndef KVF_PASS_ADAPTERS_H
#define KVF_PASS_ADAPTERS_H

#include "bottleneck.h"
#include "model_priv.h"

struct kvf__pass;

/* Carved from the pass's arena; NULL: the model has none. */
typedef struct kvf__pass_adapters {
    float *part;   /* [Rx, C] output of one product; serial adapters only */
    float *d;      /* [Rx, C] gradient of a half's output through its adapter, or of its input */
    void *d_act;   /* the same in the act type; the same memory where that is f32 */
    float *dh;     /* [Rx, adapter size] */
    double *sizes; /* of the input, see kvf__input; NULL: not wanted */
} kvf__pass_adapters;

/* Adapters of a layer's halves (pass_adapters.c): has this half one at all, in some layer? */
bool kvf__pass_adapts(const struct kvf__pass *pass, kvf__half half);
/* The output of one of a half's products: x [M, C] += src w. first: of those of this half and pass.
 */
kvf_status kvf__pass_out(kvf_ctx *ctx, struct kvf__pass *pass, int64_t l, kvf__half half,
                         const kvf__packed *w, const void *src, float *x, int64_t M, bool first);
unsigned kvf__pass_out_flags(const struct kvf__pass *pass, kvf__half half, bool first); /* of it */
/* x [M, C] += fwd.half, where the half's output is that, which a serial adapter then reads. */
void kvf__pass_add_half(struct kvf__pass *pass, int64_t l, kvf__half half, float *x, int64_t M);
/* Then x [M, C] += the half's adapter; src: what the products read. */
kvf_status kvf__pass_adapt_fwd(kvf_ctx *ctx, struct kvf__pass *pass, int64_t l, kvf__half half,
                               float *x, const void *src, int64_t M);
/* Undoes it: *dy [M, C] in the act type is the gradient of what the products left. What a parallel
 * adapter says of src is kept until kvf__pass_adapt_add adds it to dxhat; `scatter` spreads that of
 * labelled rows over the batch. */
kvf_status kvf__pass_adapt_bwd(kvf_ctx *ctx, struct kvf__pass *pass, int64_t l, kvf__half half,
                               const float *dx, const void *dx_act, int64_t M, const void **dy);
/* The f32 form of *dy, given that of a half without an adapter. */
const float *kvf__pass_adapt_grad(const struct kvf__pass *pass, int64_t l, kvf__half half,
                                  const float *dx);
void kvf__pass_adapt_scatter(struct kvf__pass *pass);
void kvf__pass_adapt_add(struct kvf__pass *pass, int64_t l, kvf__half half, int64_t M);

#endif
