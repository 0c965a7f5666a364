/* The language-model head on the labelled rows: loss, its gradient, or logits, by the walk of
 * vocab_walk.c, which computes m, s and acc:
 *
 *   loss  = log s + m - logit[target]
 *   dxhat = acc / s - head[target]
 *
 * The target's row is read unpacked from the file, times the final norm's gamma if that is folded
 * into the packed head. A trained head needs a second walk with the final m and s, for the gradient
 * of its own weights. */
#include "head_lm.h"
#include "loss.h"
#include "pass_grads.h"
#include "pass_norms.h"
#include "pass_priv.h"
#include "products.h"

#include <math.h>
#include <string.h>

/* ---- labels ---------------------------------------------------------------------------------- */

/* Turns acc into the gradient of the head's input. */
static void label_gradients(const kvf__vocab_walk *w)
{
    const kvf__pass *pass = w->pass;
    const kvf__model *m = pass->model;
    int64_t C = m->desc.C;
    const float *gamma = m->unfolded ? NULL : m->lm.gamma;
    float *out = kvf__head_gradient_rows(w);

#pragma omp parallel for schedule(static)
    for (int64_t j = 0; j < w->real; j++) {
        float *row = out + j * C;
        const float *acc = pass->head.acc + j * C;
        float part = 1.0f / pass->head.sums.sum[j];
        float own = kvf__pass_label_scale(pass, w->how->scale, w->first + j);
        const float slope = kvf__cap_slope(m, pass->head.sums.target_logit[j]);

        kvf__table_row(m, &m->lm.slot, pass->batch->label_id[w->first + j], row);
        for (int64_t i = 0; i < C; i++)
            row[i] = own * (acc[i] * part - slope * row[i] * (gamma ? gamma[i] : 1));
    }
    kvf__head_gradient_end(w);
}

/* Turns the logits of a plane into scale * (softmax - the label). */
static void plane_dlogits(const kvf__vocab_walk *w, int64_t p)
{
    const kvf__pass *pass = w->pass;
    const kvf__vocab_sums *sums = &pass->head.sums;
    int64_t valid = kvf__vocab_width(pass->model->desc.V, p);

#pragma omp parallel for schedule(static)
    for (int64_t j = 0; j < w->real; j++) {
        float *row = sums->logits + j * KVF__VOCAB_PLANE;
        float own = kvf__pass_label_scale(pass, w->how->scale, w->first + j),
              part = own / sums->sum[j];
        int64_t label = pass->batch->label_id[w->first + j] - p * KVF__VOCAB_PLANE;
        const kvf__model *m = pass->model;
        const float target = label >= 0 && label < valid ? own * kvf__cap_slope(m, row[label]) : 0;
        for (int64_t v = 0; v < valid; v++)
            row[v] = part * expf(row[v] - sums->max[j]) * kvf__cap_slope(m, row[v]);
        if (label >= 0 && label < valid) row[label] -= target;
    }
}

/* Adds the chunk's part of a trained head's own gradient. */
static kvf_status weight_gradient(const kvf__vocab_walk *w)
{
    for (int64_t p = 0; p < w->pass->model->lm.n; p++) {
        KVF_TRY(kvf__vocab_plane_logits(w, p));
        plane_dlogits(w, p);
        KVF_TRY(kvf__head_grad(w->ctx, w->pass, p, w->first, w->real));
    }
    kvf__pass_lap(w->pass, KVF__PART_HEAD_BWD);
    return KVF_OK;
}

static kvf_status label_chunk(kvf__vocab_walk *w)
{
    for (int64_t j = 0; j < w->real; j++) {
        double loss = kvf__vocab_label_loss(&w->pass->head.sums, j);
        w->loss_sum += loss;
        kvf__pass_add_loss(w->pass, w->first + j, loss);
        if (w->how->token_loss) w->how->token_loss[w->first + j] = (float)loss;
    }
    if (!w->how->gradient) return KVF_OK;
    label_gradients(w);
    return w->pass->model->train.weights ? weight_gradient(w) : KVF_OK;
}

/* ---- the loss -------------------------------------------------------------------------------- */

static kvf_status check_gradient(kvf_ctx *ctx, const kvf__pass *pass)
{
    if (!pass->limits.backward)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "pass: gradient of the loss, but the pass was made without backward");
    if (pass->cache)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "pass: gradient of the loss, but the batch continues a cache");
    return KVF_OK;
}

/* Computes the gradient of the last layer's output from that of the head's input: dx_lab, and its
 * copy in the activation type. */
static void final_norm_bwd(kvf__pass *pass)
{
    const kvf__model *m = pass->model;
    const kvf__norm_at norm = kvf__pass_final_norm(pass);

    /* the last block's norm is undone first in its own backward pass */
    if (m->desc.block.post_norm) return;
    memset(pass->bwd.dx_lab, 0, (size_t)(pass->ML * m->desc.C) * sizeof(float));
    kvf__pass_pre_norm_bwd(pass, &norm, pass->bwd.dx_lab, pass->bwd.dx_lab_act);
}

kvf_status kvf__pass_vocab_loss(kvf_ctx *ctx, kvf__pass *pass, const kvf__loss *how,
                                double *loss_sum)
{
    /* otherwise the walk reports an error */
    const bool ready = pass->model->lm.n && pass->state != KVF__PASS_EMPTY;
    kvf__vocab_walk walk = {.ctx = ctx,
                            .pass = pass,
                            .how = how,
                            .sums = true,
                            .plane = how->teacher ? kvf__soft_plane : NULL,
                            .chunk = how->teacher ? kvf__soft_chunk : label_chunk};

    if (ready && how->gradient) KVF_TRY(check_gradient(ctx, pass));
    if (ready)
        KVF_TRY(how->teacher ? kvf__soft_check(ctx, pass, how)
                             : kvf__vocab_check_labels(ctx, pass->batch, pass->model->desc.V));
    KVF_TRY(kvf__vocab_walk_run(&walk, "loss"));
    if (how->teacher || !pass->sections.given) KVF_TRY(kvf__vocab_check_sum(ctx, walk.loss_sum));
    if (how->gradient && pass->batch->n_labels) final_norm_bwd(pass);
    if (how->gradient) pass->state = KVF__PASS_LOSS;
    *loss_sum = walk.loss_sum;
    return KVF_OK;
}

/* ---- logits ---------------------------------------------------------------------------------- */

/* Copies logits into row j of w->out, [rows, V] of the chunk. */
static void copy_plane(kvf__vocab_walk *w, int64_t p)
{
    const int64_t V = w->pass->model->desc.V;
    const size_t bytes = (size_t)kvf__vocab_width(V, p) * sizeof(float);

    for (int64_t j = 0; j < w->real; j++)
        memcpy(w->out + j * V + p * KVF__VOCAB_PLANE,
               w->pass->head.sums.logits + j * KVF__VOCAB_PLANE, bytes);
}

static kvf_status next_chunk(kvf__vocab_walk *w)
{
    w->out += w->real * w->pass->model->desc.V;
    return KVF_OK;
}

kvf_status kvf__pass_lm_logits(kvf_ctx *ctx, kvf__pass *pass, float *logits)
{
    const kvf__loss none = {0};
    kvf__vocab_walk walk = {.ctx = ctx,
                            .pass = pass,
                            .how = &none,
                            .plane = copy_plane,
                            .chunk = next_chunk,
                            .out = logits};

    return kvf__vocab_walk_run(&walk, "logits");
}

static kvf_status visit_chunk(kvf__vocab_walk *w)
{
    return w->visit(w->user, w->first, w->real, w->out);
}

kvf_status kvf__pass_lm_logits_each(kvf_ctx *ctx, kvf__pass *pass, float *memory,
                                    kvf__outputs_fn *visit, void *user)
{
    const kvf__loss none = {0};
    kvf__vocab_walk walk = {.ctx = ctx,
                            .pass = pass,
                            .how = &none,
                            .plane = copy_plane,
                            .chunk = visit_chunk,
                            .out = memory,
                            .visit = visit,
                            .user = user};

    return kvf__vocab_walk_run(&walk, "logits");
}
