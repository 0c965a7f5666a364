/* Inside src/model: gradients of weights that are trained (pass_grads.c: norms; pass_weights.c:
 * products). */
#ifndef KVF_PASS_GRADS_H
#define KVF_PASS_GRADS_H

#include "pass_priv.h"

/* Gradients of trained weights (pass_grads.c); each does nothing where its weight is not trained.
 * M: rows that count. Norms: dy is the sum of dx and plus, of which one may be NULL. */
void kvf__norm_grad(const kvf__pass *pass, int gamma, int beta, int64_t l, const float *dx,
                    const void *plus, const void *xhat, int64_t M);
void kvf__head_norm_grad(const kvf__pass *pass, int64_t l);
/* Weights (pass_weights.c). Those of a layer, where the backward pass has what they need at hand:
 * dx is the gradient of what the half added to the stream. Plane p of down: dx; of up and gate: da
 * or du and dg. */
kvf_status kvf__down_grad(kvf_ctx *ctx, kvf__pass *pass, int64_t l, int p, const float *dx);
kvf_status kvf__up_grad(kvf_ctx *ctx, kvf__pass *pass, int64_t l, int p);
kvf_status kvf__out_grad(kvf_ctx *ctx, kvf__pass *pass, int64_t l, const float *dx);
kvf_status kvf__qkv_grad(kvf_ctx *ctx, kvf__pass *pass, int64_t l);
/* Of the language-model head: plane p of the vocabulary, whose gradient on labelled rows first ..
 * first + rows - 1 stands in logits. */
kvf_status kvf__head_grad(kvf_ctx *ctx, kvf__pass *pass, int64_t p, int64_t first, int64_t rows);

#endif
