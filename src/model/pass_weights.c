/* Gradients of trained weights: dW = dY^T X and sums of dY, added to the masters' gradients.
 *
 * Products run in f32 whatever the act type: factors that are bf16 are widened
 * first, one matrix at a time. Rows of padding are left out. */
#include "arch.h"
#include "pass_grads.h"
#include "pass_priv.h"

#include <string.h>

/* A dense layer, or the part of it that outputs out0 .. out0 + out - 1 and inputs in0 .. in0 + in -
 * 1 are: y = x W + b on M rows. */
typedef struct dense {
    int weight, bias; /* roles */
    int64_t layer, M;
    const void *x; /* act [M, in] */
    int64_t in0, in, all_in;
    const void *dy; /* [M, ldy], from the part's first column on */
    bool dy_f32;    /* else act */
    int64_t ldy, out0, out, all_out;
} dense;

/* Rows of `columns` elements of the act type, ld apart, as f32; *ld changes with the memory. */
static const float *widen(const kvf__pass *pass, const void *from, int64_t rows, int64_t columns,
                          int64_t *ld, float *to)
{
    kvf__dtype act = pass->model->act;

    if (act == KVF__F32) return from;
#pragma omp parallel for schedule(static) num_threads(pass->threads)
    for (int64_t i = 0; i < rows; i++)
        kvf__to_f32(act, (const char *)from + (size_t)(i * *ld) * kvf__act_size(act),
                    to + i * columns, columns);
    *ld = columns;
    return to;
}

/* out [n] += sums over the rows. */
static void add_rows(const kvf__pass *pass, float *out, const float *dy, int64_t ld, int64_t rows,
                     int64_t n)
{
    enum { STRIP = 64 };

#pragma omp parallel for schedule(static) num_threads(pass->threads)
    for (int64_t from = 0; from < n; from += STRIP) {
        int64_t width = n - from < STRIP ? n - from : STRIP;
        double sum[STRIP] = {0};
        for (int64_t i = 0; i < rows; i++)
            for (int64_t c = 0; c < width; c++)
                sum[c] += (double)dy[i * ld + from + c];
        for (int64_t c = 0; c < width; c++)
            out[from + c] += (float)sum[c];
    }
}

static bool by_input(const kvf__desc *desc, int role)
{
    const kvf__weight *weight = kvf__weight_by_role(desc, (kvf__role)role);
    return weight && !desc->gguf && (weight->flags & KVF__W_CONV1D);
}

static kvf_status dense_grad(kvf_ctx *ctx, kvf__pass *pass, const dense *d)
{
    const kvf__model *m = pass->model;
    float *dw = kvf__masters_grad(m->train.masters, d->weight, d->layer);
    float *db = d->in0 == 0 ? kvf__masters_grad(m->train.masters, d->bias, d->layer) : NULL;
    int64_t ldx = d->in, ldy = d->ldy;

    if (!dw || !d->M) return KVF_OK;
    const float *x = widen(pass, d->x, d->M, d->in, &ldx, pass->weights.wide_x);
    const float *dy = d->dy_f32 ? d->dy
                                : widen(pass, d->dy, d->M, d->out, &ldy, pass->weights.wide_dy);
    if (by_input(&m->desc, d->weight))
        KVF_TRY(kvf__sgemm(ctx, true, false, d->in, d->out, d->M, x, ldx, dy, ldy, 1,
                           dw + d->in0 * d->all_out + d->out0, d->all_out));
    else
        KVF_TRY(kvf__sgemm(ctx, true, false, d->out, d->in, d->M, dy, ldy, x, ldx, 1,
                           dw + d->out0 * d->all_in + d->in0, d->all_in));
    if (db) add_rows(pass, db + d->out0, dy, ldy, d->M, d->out);
    kvf__pass_lap(pass, KVF__PART_WEIGHT_GRAD);
    return KVF_OK;
}

kvf_status kvf__down_grad(kvf_ctx *ctx, kvf__pass *pass, int64_t l, int p, const float *dx)
{
    const kvf__model *m = pass->model;
    int64_t start = m->ffn.start[p], padded = l == m->desc.L - 1 ? pass->ML : pass->M;

    if (!m->train.weights) return KVF_OK;
    const dense down = {.weight = KVF__W_DOWN,
                        .bias = KVF__W_DOWN_BIAS,
                        .layer = l,
                        .M = kvf__pass_real(pass, l),
                        .x = kvf__act_row(m->act, pass->kept[l].g, start, padded),
                        .in0 = start,
                        .in = m->ffn.width[p],
                        .all_in = m->desc.F,
                        .dy = dx,
                        .dy_f32 = true,
                        .ldy = m->desc.C,
                        .out = m->desc.C,
                        .all_out = m->desc.C};
    return dense_grad(ctx, pass, &down);
}

kvf_status kvf__up_grad(kvf_ctx *ctx, kvf__pass *pass, int64_t l, int p)
{
    const kvf__model *m = pass->model;

    if (!m->train.weights) return KVF_OK;
    dense up = {.weight = KVF__W_UP,
                .bias = KVF__W_UP_BIAS,
                .layer = l,
                .M = kvf__pass_real(pass, l),
                .x = pass->kept[l].in2,
                .in = m->desc.C,
                .all_in = m->desc.C,
                .dy = m->desc.gated ? pass->bwd.du : pass->bwd.da,
                .ldy = m->ffn.width[p],
                .out0 = m->ffn.start[p],
                .out = m->ffn.width[p],
                .all_out = m->desc.F};
    KVF_TRY(dense_grad(ctx, pass, &up));
    if (!m->desc.gated) return KVF_OK;
    up.weight = KVF__W_GATE;
    up.bias = KVF__W_GATE_BIAS;
    up.dy = pass->bwd.dg;
    return dense_grad(ctx, pass, &up);
}

kvf_status kvf__out_grad(kvf_ctx *ctx, kvf__pass *pass, int64_t l, const float *dx)
{
    const kvf__model *m = pass->model;
    int64_t heads = m->desc.H * m->desc.D;

    if (!m->train.weights) return KVF_OK;
    const dense out = {.weight = KVF__W_OUT,
                       .bias = KVF__W_OUT_BIAS,
                       .layer = l,
                       .M = kvf__pass_real(pass, l),
                       .x = l == m->desc.L - 1 ? pass->fwd.att_lab : pass->kept[l].att,
                       .in = heads,
                       .all_in = heads,
                       .dy = dx,
                       .dy_f32 = true,
                       .ldy = m->desc.C,
                       .out = m->desc.C,
                       .all_out = m->desc.C};
    return dense_grad(ctx, pass, &out);
}

/* One weight, or three side by side. */
kvf_status kvf__qkv_grad(kvf_ctx *ctx, kvf__pass *pass, int64_t l)
{
    const kvf__model *m = pass->model;
    const kvf__desc *d = &m->desc;
    int64_t q = d->H * d->D, kv = d->G * d->D, all = q + 2 * kv;
    const struct {
        int weight, bias;
        int64_t at, n;
    } parts[] = {{KVF__W_QKV, KVF__W_QKV_BIAS, 0, all},
                 {KVF__W_Q, KVF__W_Q_BIAS, 0, q},
                 {KVF__W_K, KVF__W_K_BIAS, q, kv},
                 {KVF__W_V, KVF__W_V_BIAS, q + kv, kv}};

    if (!m->train.weights) return KVF_OK;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const dense part = {.weight = parts[i].weight,
                            .bias = parts[i].bias,
                            .layer = l,
                            .M = pass->batch->n_tokens,
                            .x = pass->kept[l].in1,
                            .in = d->C,
                            .all_in = d->C,
                            .dy = (char *)pass->bwd.dqkv +
                                  (size_t)parts[i].at * kvf__act_size(m->act),
                            .ldy = all,
                            .out = parts[i].n,
                            .all_out = parts[i].n};
        KVF_TRY(dense_grad(ctx, pass, &part));
    }
    return KVF_OK;
}

/* A tied head is the embedding. */
kvf_status kvf__head_grad(kvf_ctx *ctx, kvf__pass *pass, int64_t p, int64_t first, int64_t rows)
{
    const kvf__model *m = pass->model;
    int64_t C = m->desc.C, start = p * KVF__VOCAB_PLANE, left = m->desc.V - start;
    const dense head = {
        .weight = kvf__masters_grad(m->train.masters, KVF__W_HEAD, 0) ? KVF__W_HEAD : KVF__W_TOKENS,
        .bias = KVF__W_HEAD_BIAS,
        .M = rows,
        .x = kvf__act_row(m->act, pass->head.in, first, C),
        .in = C,
        .all_in = C,
        .dy = pass->head.logits,
        .dy_f32 = true,
        .ldy = KVF__VOCAB_PLANE,
        .out0 = start,
        .out = left < KVF__VOCAB_PLANE ? left : KVF__VOCAB_PLANE,
        .all_out = m->desc.V};
    return dense_grad(ctx, pass, &head);
}
