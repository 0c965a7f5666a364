/* The language-model head on the labelled rows: loss, its gradient, or logits. The full logits
 * never exist for a loss.
 *
 * Per pass of at most KVF__HEAD_ROWS rows the vocabulary goes by in planes, keeping the running
 * maximum m and the sum s of exp(logit - m), as in flash attention (Dao et al. 2022):
 *
 *   loss  = log s + m - logit[target]
 *   dxhat = (sum_v exp(logit_v - m) head[v]) / s - head[target]
 *
 * The sum over v accumulates plane by plane in f32 and is rescaled by the kernel whenever m moves;
 * the target's row comes unpacked from the file, times the final norm's gamma where the packed
 * head has that folded in. A head that is trained goes by a second time, once m and s are final,
 * for the gradient of its own weights. */
#include "head_lm.h"
#include "pass_grads.h"
#include "pass_norms.h"
#include "pass_priv.h"
#include "products.h"

#include <math.h>
#include <string.h>

typedef kvf__head_chunk chunk;

kvf__head_chunk kvf__head_chunk_at(const kvf__pass *pass, int64_t first)
{
    int64_t rows = pass->ML - first, real = pass->batch->n_labels - first;

    if (rows > KVF__HEAD_ROWS) rows = KVF__HEAD_ROWS;
    return (chunk){.first = first, .rows = rows, .real = real < rows ? real : rows};
}

kvf_status kvf__head_plane_logits(kvf_ctx *ctx, kvf__pass *pass, const chunk *c, int64_t p)
{
    const kvf__model *m = pass->model;
    const void *x = kvf__act_row(m->act, pass->head.in, c->first, m->desc.C);

    KVF_TRY(kvf__model_ensure_packed(ctx, pass->model, m->desc.L + p, pass->head.reach));
    if (m->store.late) kvf__pass_lap(pass, KVF__PART_PACK);
    KVF_TRY(kvf__mm_run(ctx, m->mm, kvf__vocab_plane(m, p)->fwd, c->rows, x, pass->head.logits,
                        KVF__F32, 0));
    kvf__pass_lap(pass, KVF__PART_HEAD);
    return KVF_OK;
}

void kvf__head_chunk_begin(kvf__pass *pass, const chunk *c, bool gradient)
{
    for (int64_t j = 0; j < c->rows; j++) {
        pass->head.max[j] = -INFINITY;
        pass->head.sum[j] = 0;
        pass->head.target_logit[j] = 0;
    }
    pass->head.reach = KVF__PACK_FORWARD | (gradient ? KVF__PACK_BACKWARD : 0);
    if (gradient)
        memset(pass->head.acc, 0, (size_t)(c->rows * pass->model->desc.C) * sizeof(float));
}

kvf_status kvf__head_plane_sum(kvf_ctx *ctx, kvf__pass *pass, const chunk *c, int64_t p,
                               bool gradient)
{
    const kvf__model *m = pass->model;

    for (int64_t j = 0; j < c->rows; j++)
        pass->head.target[j] = j < c->real ? (int32_t)(pass->batch->label_id[c->first + j] -
                                                       p * KVF__VOCAB_PLANE)
                                           : -1;
    const kvf__ce_chunk ce = {.rows = c->rows,
                              .width = KVF__VOCAB_PLANE,
                              .logits = pass->head.logits,
                              .valid = kvf__vocab_width(m->desc.V, p),
                              .target = pass->head.target,
                              .max = pass->head.max,
                              .sum = pass->head.sum,
                              .target_logit = pass->head.target_logit,
                              .e = gradient ? pass->head.e : NULL,
                              .acc = gradient ? pass->head.acc : NULL,
                              .C = m->desc.C};
    m->kernels->ce(m->act, &ce);
    kvf__pass_lap(pass, KVF__PART_LOSS);
    if (!gradient) return KVF_OK;
    KVF_TRY(kvf__mm_run(ctx, m->mm, kvf__vocab_plane(m, p)->bwd, c->rows, pass->head.e,
                        pass->head.acc, KVF__F32, KVF__MM_ADD));
    kvf__pass_lap(pass, KVF__PART_HEAD_BWD);
    return KVF_OK;
}

static kvf_status chunk_plane(kvf_ctx *ctx, kvf__pass *pass, const chunk *c, int64_t p,
                              bool gradient)
{
    KVF_TRY(kvf__head_plane_logits(ctx, pass, c, p));
    return kvf__head_plane_sum(ctx, pass, c, p, gradient);
}

static void chunk_losses(const kvf__pass *pass, const chunk *c, double *loss_sum, float *token_loss)
{
    for (int64_t j = 0; j < c->real; j++) {
        double loss = log((double)pass->head.sum[j]) + (double)pass->head.max[j] -
                      (double)pass->head.target_logit[j];
        *loss_sum += loss;
        kvf__pass_add_loss(pass, c->first + j, loss);
        if (token_loss) token_loss[c->first + j] = (float)loss;
    }
}

/* dxhat in the act type, or with post-norm dx_lab, because that is the stream. */
float *kvf__head_gradient_rows(const kvf__pass *pass, const chunk *c)
{
    const kvf__model *m = pass->model;
    return m->desc.post_norm ? pass->bwd.dx_lab + c->first * m->desc.C : pass->head.target_row;
}

void kvf__head_gradient_end(kvf__pass *pass, const chunk *c)
{
    const kvf__model *m = pass->model;
    int64_t C = m->desc.C;
    float *out = kvf__head_gradient_rows(pass, c);

    memset(out + c->real * C, 0, (size_t)((c->rows - c->real) * C) * sizeof(float));
    void *copy = m->desc.post_norm ? pass->bwd.dx_lab_act : pass->bwd.dxhat;
    if (copy != (void *)pass->bwd.dx_lab)
        m->kernels->from_f32(m->act, kvf__act_row(m->act, copy, c->first, C), out, c->rows * C);
    kvf__pass_lap(pass, KVF__PART_LOSS);
}

/* Turns acc into the gradient of what the head reads. */
static void chunk_gradient(kvf__pass *pass, const chunk *c, float scale)
{
    const kvf__model *m = pass->model;
    int64_t C = m->desc.C;
    const float *gamma = m->unfolded ? NULL : m->lm.gamma;
    float *out = kvf__head_gradient_rows(pass, c);

#pragma omp parallel for schedule(static)
    for (int64_t j = 0; j < c->real; j++) {
        float *row = out + j * C;
        const float *acc = pass->head.acc + j * C;
        float part = 1.0f / pass->head.sum[j];
        float own = kvf__pass_label_scale(pass, scale, c->first + j);

        kvf__table_row(m, &m->lm.slot, pass->batch->label_id[c->first + j], row);
        for (int64_t i = 0; i < C; i++)
            row[i] = own * (acc[i] * part - row[i] * (gamma ? gamma[i] : 1));
    }
    kvf__head_gradient_end(pass, c);
}

/* The logits of a plane to scale * (softmax - the label). */
static void plane_dlogits(kvf__pass *pass, const chunk *c, int64_t p, float scale)
{
    int64_t valid = kvf__vocab_width(pass->model->desc.V, p);

#pragma omp parallel for schedule(static)
    for (int64_t j = 0; j < c->real; j++) {
        float *row = pass->head.logits + j * KVF__VOCAB_PLANE;
        float own = kvf__pass_label_scale(pass, scale, c->first + j),
              part = own / pass->head.sum[j];
        int64_t label = pass->batch->label_id[c->first + j] - p * KVF__VOCAB_PLANE;
        for (int64_t v = 0; v < valid; v++)
            row[v] = part * expf(row[v] - pass->head.max[j]);
        if (label >= 0 && label < valid) row[label] -= own;
    }
}

static kvf_status chunk_weights(kvf_ctx *ctx, kvf__pass *pass, const chunk *c, float scale)
{
    if (!pass->model->train.weights) return KVF_OK;
    for (int64_t p = 0; p < pass->model->lm.n; p++) {
        KVF_TRY(kvf__head_plane_logits(ctx, pass, c, p));
        plane_dlogits(pass, c, p, scale);
        KVF_TRY(kvf__head_grad(ctx, pass, p, c->first, c->real));
    }
    kvf__pass_lap(pass, KVF__PART_HEAD_BWD);
    return KVF_OK;
}

void kvf__head_norm_bwd(kvf__pass *pass)
{
    const kvf__model *m = pass->model;
    const kvf__norm_at norm = kvf__pass_final_norm(pass);

    if (m->desc.post_norm) return; /* the last block's norm comes first in its own way back */
    memset(pass->bwd.dx_lab, 0, (size_t)(pass->ML * m->desc.C) * sizeof(float));
    kvf__pass_ahead_bwd(pass, &norm, pass->bwd.dx_lab, pass->bwd.dx_lab_act);
}

kvf_status kvf__head_check(kvf_ctx *ctx, const kvf__pass *pass, const char *what)
{
    if (!pass->model->lm.n)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "architecture %s is an encoder and has no language-model head",
                         pass->model->desc.arch_name);
    if (pass->state == KVF__PASS_EMPTY)
        return kvf__fail(ctx, KVF_EUSAGE, "pass: %s without a forward pass before it", what);
    return KVF_OK;
}

kvf_status kvf__head_check_gradient(kvf_ctx *ctx, const kvf__pass *pass)
{
    if (!pass->limits.backward)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "pass: gradient of the loss, but the pass was made without backward");
    if (pass->cache)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "pass: gradient of the loss, but the batch continues a cache");
    return KVF_OK;
}

static kvf_status check_loss(kvf_ctx *ctx, const kvf__pass *pass, bool gradient)
{
    const kvf__batch *b = pass->batch;
    int64_t V = pass->model->desc.V;

    KVF_TRY(kvf__head_check(ctx, pass, "loss"));
    if (gradient) KVF_TRY(kvf__head_check_gradient(ctx, pass));
    for (int64_t j = 0; j < b->n_labels; j++)
        if (b->label_id[j] < 0 || b->label_id[j] >= V)
            return kvf__fail(ctx, KVF_ESHAPE,
                             "batch: label %lld has id %ld, the vocabulary ends at %lld",
                             (long long)j, (long)b->label_id[j], (long long)V - 1);
    return KVF_OK;
}

kvf_status kvf__pass_lm_loss(kvf_ctx *ctx, kvf__pass *pass, bool gradient, float scale,
                             double *loss_sum, float *token_loss)
{
    double sum = 0;

    KVF_TRY(check_loss(ctx, pass, gradient));
    pass->times.mark = kvf__clock();
    for (int64_t first = 0; first < pass->batch->n_labels; first += KVF__HEAD_ROWS) {
        chunk c = kvf__head_chunk_at(pass, first);
        kvf__head_chunk_begin(pass, &c, gradient);
        for (int64_t p = 0; p < pass->model->lm.n; p++)
            KVF_TRY(chunk_plane(ctx, pass, &c, p, gradient));
        chunk_losses(pass, &c, &sum, token_loss);
        if (!gradient) continue;
        chunk_gradient(pass, &c, scale);
        KVF_TRY(chunk_weights(ctx, pass, &c, scale));
    }
    if (!isfinite(sum) && !pass->sections.given)
        return kvf__fail(ctx, KVF_ENUMERIC, "loss of the batch is %g, expected a finite number",
                         sum);
    if (gradient && pass->batch->n_labels) kvf__head_norm_bwd(pass);
    if (gradient) pass->state = KVF__PASS_LOSS;
    *loss_sum = sum;
    return KVF_OK;
}

kvf_status kvf__pass_lm_logits(kvf_ctx *ctx, kvf__pass *pass, float *logits)
{
    int64_t V = pass->model->desc.V;

    KVF_TRY(kvf__head_check(ctx, pass, "logits"));
    pass->head.reach = KVF__PACK_FORWARD;
    pass->times.mark = kvf__clock();
    for (int64_t first = 0; first < pass->batch->n_labels; first += KVF__HEAD_ROWS) {
        chunk c = kvf__head_chunk_at(pass, first);
        for (int64_t p = 0; p < pass->model->lm.n; p++) {
            KVF_TRY(kvf__head_plane_logits(ctx, pass, &c, p));
            size_t bytes = (size_t)kvf__vocab_width(pass->model->desc.V, p) * sizeof(float);
            for (int64_t j = 0; j < c.real; j++)
                memcpy(logits + (first + j) * V + p * KVF__VOCAB_PLANE,
                       pass->head.logits + j * KVF__VOCAB_PLANE, bytes);
        }
    }
    kvf__pass_lap(pass, KVF__PART_HEAD);
    return KVF_OK;
}
