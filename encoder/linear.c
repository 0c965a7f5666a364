/* Linear layers at the end of an encoder, y = x W^T + b with tanh or ReLU between them. Weights are
 * [out, in] as in torch.
 *
 * The gradient of a large weight stays factored (wide.h). The layer keeps the factors until the end
 * of the optimizer's step. */
#include "encoder_priv.h"
#include "matmul.h"
#include "wide.h"

#include <math.h>
#include <string.h>

kvf_status kvf__encoder_add_linear(kvf_ctx *ctx, kvf__encoder *encoder, const char *weight,
                                   const char *bias, int64_t in, int64_t out, bool outer)
{
    kvf__encoder_linear *l = &encoder->linears[encoder->n_linears++];
    *l = (kvf__encoder_linear){.weight = encoder->params.n, .in = in, .out = out};
    KVF_TRY(kvf__encoder_add(ctx, encoder, weight, out, in));
    if (outer) encoder->params.item[l->weight].outer = encoder->shape.P;
    return kvf__encoder_add(ctx, encoder, bias, out, 0);
}

/* ---- forward --------------------------------------------------------------------------------- */

static void linear_fwd(const kvf__encoder *encoder, const kvf__encoder_linear *l, float *y)
{
    const kvf__param *w = &encoder->params.item[l->weight];
    kvf__wide_get()->fwd(y, l->x, w[0].value, w[1].value, encoder->shape.P, l->out, l->in);
}

void kvf__encoder_linears_hidden(kvf__encoder *encoder)
{
    for (int i = 0; i + 1 < encoder->n_linears; i++) {
        const kvf__encoder_linear *l = &encoder->linears[i];
        float *y = encoder->linears[i + 1].x;
        linear_fwd(encoder, l, y);
        for (int64_t j = 0; j < encoder->shape.P * l->out; j++)
            y[j] = encoder->kind->tanh ? tanhf(y[j]) : y[j] > 0 ? y[j] : 0;
    }
}

void kvf__encoder_linears_fwd(kvf__encoder *encoder, float *flat)
{
    kvf__encoder_linears_hidden(encoder);
    linear_fwd(encoder, &encoder->linears[encoder->n_linears - 1], flat);
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Sets sums [n] to the column sums of rows [P, n]. */
static void column_sums(float *sums, const float *rows, int64_t P, int64_t n)
{
    memcpy(sums, rows, (size_t)n * sizeof *sums);
    for (int64_t p = 1; p < P; p++)
        for (int64_t i = 0; i < n; i++)
            sums[i] += rows[p * n + i];
}

/* Returns whether a natural step updates this layer, so that its own gradients are not needed. */
static bool steps_output(const kvf__encoder *encoder, const kvf__encoder_linear *l)
{
    return encoder->natural.list.n && l == &encoder->linears[encoder->n_linears - 1];
}

static kvf_status linear_bwd(kvf_ctx *ctx, kvf__encoder *encoder, const kvf__encoder_linear *l,
                             float *dx)
{
    const int64_t P = encoder->shape.P;
    kvf__param *w = &encoder->params.item[l->weight];
    if (w->outer) {
        w->left = l->dy;
        w->right = l->x;
    } else {
        KVF_TRY(kvf__sgemm(ctx, true, false, l->out, l->in, P, l->dy, l->out, l->x, l->in, 0,
                           w->grad, l->in));
    }
    if (!steps_output(encoder, l)) column_sums(w[1].grad, l->dy, P, l->out);
    kvf__wide_get()->bwd(dx, l->dy, w->value, P, l->out, l->in);
    return KVF_OK;
}

kvf_status kvf__encoder_linears_bwd(kvf_ctx *ctx, kvf__encoder *encoder, float *dx)
{
    for (int i = encoder->n_linears - 1; i > 0; i--) {
        const kvf__encoder_linear *l = &encoder->linears[i];
        float *d = encoder->linears[i - 1].dy;
        KVF_TRY(linear_bwd(ctx, encoder, l, d));
        for (int64_t j = 0; j < encoder->shape.P * l->in; j++) /* x = tanh(...) or relu(...) */
            if (encoder->kind->tanh)
                d[j] *= 1 - l->x[j] * l->x[j];
            else if (!(l->x[j] > 0))
                d[j] = 0;
    }
    return linear_bwd(ctx, encoder, &encoder->linears[0], dx);
}
