/* The block's own neurons, from which virtual ones start: rows of its first matrix, or matrices. */
#include "products.h"
#include "slot.h"

/* Reads output `row` of a product: weights [C], and *bias if wanted. */
static kvf_status read_output(kvf_ctx *ctx, const kvf__desc *desc, const kvf__slots *slots,
                              const kvf__product *p, int64_t row, float *out, float *bias)
{
    const kvf__slot *of_bias = NULL, *weight = kvf__product_slot(desc, slots, p, 0, &of_bias);
    float *whole = NULL;

    row += p->n0;
    if (!weight->conv1d) {
        kvf__slot_row(weight, row, out);
    } else {
        KVF_TRY(kvf__slot_f32(ctx, weight, &whole));
        for (int64_t c = 0; c < desc->C; c++)
            out[c] = whole[c * kvf__slot_columns(weight) + row];
        kvf__free(whole);
    }
    if (!bias || !of_bias) return KVF_OK;
    KVF_TRY(kvf__slot_f32(ctx, of_bias, &whole));
    *bias = whole[row];
    kvf__free(whole);
    return KVF_OK;
}

kvf_status kvf__model_neuron(kvf_ctx *ctx, const kvf__model *model, const kvf__slots *slots,
                             int64_t l, int64_t row, float *key, float *up, float *bias)
{
    const kvf__desc *d = &model->desc;
    kvf__product p = kvf__product_of(d, l, up ? KVF__PRODUCT_GATE : KVF__PRODUCT_UP, 0);

    KVF_TRY(read_output(ctx, d, slots, &p, row, key, bias));
    if (!up) return KVF_OK;
    p = kvf__product_of(d, l, KVF__PRODUCT_UP, 0);
    return read_output(ctx, d, slots, &p, row, up, NULL);
}
