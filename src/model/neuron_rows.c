/* The block's own neurons, from which virtual ones start: rows of its first matrix, or matrices. */
#include "products.h"
#include "slot.h"

/* Reads outputs at[i] of a product: weights [n, C], and biases [n] if wanted. */
static kvf_status read_outputs(kvf_ctx *ctx, const kvf__desc *desc, const kvf__slots *slots,
                               const kvf__product *p, const int64_t *at, int64_t n, float *out,
                               float *bias)
{
    const kvf__slot *of_bias = NULL, *weight = kvf__product_slot(desc, slots, p, 0, &of_bias);
    float *whole = NULL;

    KVF_TRY(kvf__slot_outputs(ctx, weight, p->n0, at, n, out));
    if (!bias || !of_bias) return KVF_OK;
    KVF_TRY(kvf__slot_f32(ctx, of_bias, &whole));
    for (int64_t i = 0; i < n; i++)
        bias[i] = whole[p->n0 + at[i]];
    kvf__free(whole);
    return KVF_OK;
}

kvf_status kvf__model_neurons(kvf_ctx *ctx, const kvf__model *model, const kvf__slots *slots,
                              int64_t l, const int64_t *rows, int64_t n,
                              const kvf__neurons_layer *out)
{
    const kvf__desc *d = &model->desc;
    const kvf__product up = kvf__product_of(d, l, KVF__PRODUCT_UP, 0),
                       gate = kvf__product_of(d, l, KVF__PRODUCT_GATE, 0);

    KVF_TRY(read_outputs(ctx, d, slots, out->up ? &gate : &up, rows, n, out->key, out->bias));
    return out->up ? read_outputs(ctx, d, slots, &up, rows, n, out->up, NULL) : KVF_OK;
}
