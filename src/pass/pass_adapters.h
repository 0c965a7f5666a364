/* Private to src/pass: adapters on the output of a layer's halves (pass_adapters.c). */
#ifndef KVF_PASS_ADAPTERS_H
#define KVF_PASS_ADAPTERS_H

#include "bottleneck.h"
#include "model_priv.h"

struct kvf__pass;

/* Carved from the pass's arena; NULL: the model has none. */
typedef struct kvf__pass_adapters {
    float *part; /* [Rx, C] output of one product; serial adapters only */
    float *d;    /* [Rx, C] gradient of a half's output, or of its input, through its adapter */
    void *d_act; /* in the activation type; the same memory for f32 */
    float *dh;   /* [Rx, adapter size] */
} kvf__pass_adapters;

/* Returns whether this half has an adapter in any layer (pass_adapters.c). */
bool kvf__pass_adapts(const struct kvf__pass *pass, kvf__half half);
/* Adds the output of one of a half's products: x [M, C] += src w. first: the first product of this
 * half and pass. */
kvf_status kvf__pass_out(kvf_ctx *ctx, struct kvf__pass *pass, int64_t l, kvf__half half,
                         const kvf__packed *w, const void *src, float *x, int64_t M, bool first);
/* flags of this product */
unsigned kvf__pass_out_flags(const struct kvf__pass *pass, kvf__half half, bool first);
/* Adds fwd.half to x [M, C] if it holds the half's output, which a serial adapter reads next. */
void kvf__pass_add_half(struct kvf__pass *pass, int64_t l, kvf__half half, float *x, int64_t M);
/* Then adds the half's adapter to x [M, C]; src: input of the products. */
kvf_status kvf__pass_adapt_fwd(kvf_ctx *ctx, struct kvf__pass *pass, int64_t l, kvf__half half,
                               float *x, const void *src, int64_t M);
/* Backward: *dy [M, C] in the activation type is the gradient of the products' output. A parallel
 * adapter's gradient of src is kept until kvf__pass_adapt_add adds it to dxhat; `scatter` spreads
 * that of labelled rows over the batch. */
kvf_status kvf__pass_adapt_bwd(kvf_ctx *ctx, struct kvf__pass *pass, int64_t l, kvf__half half,
                               const float *dx, const void *dx_act, int64_t M, const void **dy);
/* Returns *dy in f32, given that of a half without an adapter. */
const float *kvf__pass_adapt_grad(const struct kvf__pass *pass, int64_t l, kvf__half half,
                                  const float *dx);
void kvf__pass_adapt_scatter(struct kvf__pass *pass);
/* Adds n rows [n, C] in f32 to rows first .. of an array of the activation type. */
void kvf__pass_add_rows(const struct kvf__pass *pass, void *to, int64_t first, int64_t n,
                        const float *rows);
void kvf__pass_adapt_add(struct kvf__pass *pass, int64_t l, kvf__half half, int64_t M);

#endif
