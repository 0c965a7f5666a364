/* Gradients of trained weights: dW = dY^T X and sums of dY, added to the masters' gradients.
 *
 * Products run in f32 for any activation type: bf16 factors are converted first, one matrix at a
 * time. Padding rows are excluded. */
#include "names.h"
#include "pass_grads.h"
#include "pass_priv.h"

#include <string.h>

/* The factors of a product's gradient: its input, and the gradient of its output. */
typedef struct factors {
    int64_t M;      /* rows */
    const void *x;  /* act [M, k] */
    const void *dy; /* [M, ldy], from the product's first output on */
    bool dy_f32;    /* else of the activation type */
    int64_t ldy;
} factors;

/* Converts rows of `columns` elements of the activation type, ld apart, to f32; *ld changes with
 * the memory. */
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

/* Adds the sums over rows to out [n]. */
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

/* Adds the gradient of a product's part of a weight and its bias. */
static kvf_status add_gradient(kvf_ctx *ctx, kvf__pass *pass, const kvf__product *p, int role,
                               int bias, const factors *f)
{
    const kvf__model *m = pass->model;
    float *dw = kvf__masters_grad(m->train.masters, role,
                                  p->kind == KVF__PRODUCT_HEAD ? 0 : p->unit);
    float *db = kvf__masters_grad(m->train.masters, bias,
                                  p->kind == KVF__PRODUCT_HEAD ? 0 : p->unit);
    int64_t ldx = p->k, ldy = f->ldy;

    if (!dw || !f->M) return KVF_OK;
    const float *x = widen(pass, f->x, f->M, p->k, &ldx, pass->weights.wide_x);
    const float *dy = f->dy_f32 ? f->dy
                                : widen(pass, f->dy, f->M, p->n, &ldy, pass->weights.wide_dy);
    if (by_input(&m->desc, role))
        KVF_TRY(kvf__sgemm(ctx, true, false, p->k, p->n, f->M, x, ldx, dy, ldy, 1,
                           dw + p->k0 * p->all_n + p->n0, p->all_n));
    else
        KVF_TRY(kvf__sgemm(ctx, true, false, p->n, p->k, f->M, dy, ldy, x, ldx, 1,
                           dw + p->n0 * p->all_k + p->k0, p->all_k));
    if (db && !p->k0) add_rows(pass, db + p->n0, dy, ldy, f->M, p->n);
    kvf__pass_lap(pass, KVF__PART_WEIGHT_GRAD);
    return KVF_OK;
}

/* Adds the gradient of one weight with its rows head by head. */
static kvf_status by_head_gradient(kvf_ctx *ctx, kvf__pass *pass, const kvf__product *all,
                                   const factors *f)
{
    const kvf__desc *d = &pass->model->desc;

    for (int64_t head = 0; head < 3 * d->H; head++) {
        const int64_t at = (head % 3 * d->H + head / 3) * d->D;
        kvf__product part = *all;
        factors own = *f;
        part.n0 = head * d->D;
        part.n = d->D;
        own.dy = (const char *)f->dy + (size_t)at * kvf__act_size(pass->model->act);
        KVF_TRY(add_gradient(ctx, pass, &part, KVF__W_QKV, KVF__W_QKV_BIAS, &own));
    }
    return KVF_OK;
}

/* Adds the gradient of qkv: one weight, or three with adjacent columns of dy. */
static kvf_status qkv_gradient(kvf_ctx *ctx, kvf__pass *pass, const kvf__product *all,
                               const factors *f)
{
    const kvf__product_weights *of = kvf__product_weights_of(all->kind);
    const kvf__desc *d = &pass->model->desc;
    const int64_t kv = d->G * d->D, widths[] = {all->n, d->H * d->D, kv, kv};
    const kvf__weight *fused = kvf__weight_by_role(d, KVF__W_QKV);
    size_t at = 0;

    if (fused && (fused->flags & KVF__W_BY_HEAD)) return by_head_gradient(ctx, pass, all, f);
    for (size_t i = 0; i < KVF__COUNT(widths); i++) { /* bases with further parts do not train */
        kvf__product part = *all;
        factors own = *f;
        part.n = part.all_n = widths[i];
        own.dy = (const char *)f->dy + at * kvf__act_size(pass->model->act);
        if (i) at += (size_t)widths[i];
        KVF_TRY(add_gradient(ctx, pass, &part, of->weight[i], of->bias[i], &own));
    }
    return KVF_OK;
}

/* Returns the current factors of the backward pass: dx is the gradient of the half's output. */
static factors factors_of(const kvf__pass *pass, const kvf__product *p, const float *dx)
{
    const kvf__model *m = pass->model;
    const kvf__kept *keep = &pass->kept[p->unit];
    const bool last = p->unit == m->desc.L - 1;
    factors f = {.M = kvf__pass_real(pass, p->unit), .dy = dx, .dy_f32 = p->adds, .ldy = p->n};

    switch (p->kind) {
    case KVF__PRODUCT_QKV:
        f.M = pass->batch->n_tokens;
        f.x = keep->in1;
        f.dy = pass->bwd.dqkv;
        break;
    case KVF__PRODUCT_OUT:
        f.x = last ? pass->fwd.att_lab : keep->att;
        break;
    case KVF__PRODUCT_DOWN:
        f.x = kvf__act_row(m->act, keep->g, p->k0, last ? pass->ML : pass->M);
        break;
    default:
        f.x = keep->in2;
        f.dy = p->kind == KVF__PRODUCT_GATE ? pass->bwd.dg
               : m->desc.block.gated        ? pass->bwd.du
                                            : pass->bwd.da;
    }
    return f;
}

kvf_status kvf__weight_grad(kvf_ctx *ctx, kvf__pass *pass, int64_t l, kvf__product_kind kind,
                            int64_t plane, const float *dx)
{
    const kvf__product p = kvf__product_of(&pass->model->desc, l, kind, plane);

    if (!pass->model->train.weights) return KVF_OK;
    const factors f = factors_of(pass, &p, dx);
    if (kind == KVF__PRODUCT_QKV) return qkv_gradient(ctx, pass, &p, &f);
    const kvf__product_weights *of = kvf__product_weights_of(kind);
    for (int i = 0; i < of->n; i++) /* the family has one of these */
        KVF_TRY(add_gradient(ctx, pass, &p, of->weight[i], of->bias[i], &f));
    return KVF_OK;
}

/* A tied head is the embedding. */
kvf_status kvf__head_grad(kvf_ctx *ctx, kvf__pass *pass, int64_t plane, int64_t first, int64_t rows)
{
    const kvf__model *m = pass->model;
    const kvf__product p = kvf__product_of(&m->desc, m->desc.L + plane, KVF__PRODUCT_HEAD, plane);
    const bool tied = !kvf__masters_grad(m->train.masters, KVF__W_HEAD, 0);
    const factors f = {.M = rows,
                       .x = kvf__act_row(m->act, pass->head.in, first, m->desc.C),
                       .dy = pass->head.sums.logits,
                       .dy_f32 = true,
                       .ldy = KVF__VOCAB_PLANE};

    return add_gradient(ctx, pass, &p, tied ? KVF__W_TOKENS : KVF__W_HEAD, KVF__W_HEAD_BIAS, &f);
}
