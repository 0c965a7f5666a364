/* Private to src/pass: gradients of trained weights (pass_grads.c: norms; pass_weights.c:
 * products). */
#ifndef KVF_PASS_GRADS_H
#define KVF_PASS_GRADS_H

#include "pass_norms.h"
#include "products.h"

/* Gradients of trained weights (pass_grads.c); no effect if a weight is not trained. Norms: dy is
 * the sum of dx and plus, of which one may be NULL. */
void kvf__norm_grad(const kvf__pass *pass, const kvf__norm_at *at, const float *dx,
                    const void *plus);
void kvf__head_norm_grad(const kvf__pass *pass, int64_t l);
/* Weights (pass_weights.c): adds the gradient of a product's weight in layer l, called when the
 * backward pass has its factors. dx, for products that add to the stream: the gradient of the
 * half's output. */
kvf_status kvf__weight_grad(kvf_ctx *ctx, kvf__pass *pass, int64_t l, kvf__product_kind kind,
                            int64_t plane, const float *dx);
/* Adds the gradient of plane p of the language-model head, whose gradient on labelled rows first ..
 * first + rows - 1 is in logits. */
kvf_status kvf__head_grad(kvf_ctx *ctx, kvf__pass *pass, int64_t plane, int64_t first,
                          int64_t rows);

#endif
