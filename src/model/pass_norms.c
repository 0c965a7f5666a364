/* The norms of a block, wherever its description puts them.
 *
 *   pre-norm    x += out(attention(qkv(norm1(x))))      x += down(act(up(norm2(x))))
 *   post-norm   x = norm1(x + out(attention(qkv(x))))   x = norm2(x + down(act(up(x))))
 *
 * A pre-norm has its weights folded into what follows and hands on xhat alone, unless the model is
 * unfolded: then it applies them, because they are trained. A post-norm's output is the residual
 * stream itself, so its weights are applied, and a copy of the stream in the act
 * type, x_act, is what the products read: they add to the stream while they do.
 * Queries and keys have norms of their own in some families, per head, before rope. */
#include "pass_norms.h"
#include "arch.h"
#include "pass_grads.h"
#include "pass_priv.h"

#include <omp.h>
#include <string.h>

/* ---- forward --------------------------------------------------------------------------------- */

static void folded_fwd(kvf__pass *pass, void *xhat, float *rstd, const float *x, int64_t M)
{
    const kvf__desc *d = &pass->model->desc;

    pass->model->kernels->norm_fwd(pass->model->act, xhat, rstd, x, M, d->C,
                                   d->norm == KVF__RMSNORM, d->norm_eps);
    kvf__pass_lap(pass, KVF__PART_NORM);
}

kvf__whole_norm kvf__pass_whole_norm(const kvf__pass *pass, const float *gamma, const float *beta,
                                     int64_t M)
{
    const kvf__desc *d = &pass->model->desc;

    return (kvf__whole_norm){.M = M,
                             .C = d->C,
                             .rms = d->norm == KVF__RMSNORM,
                             .eps = d->norm_eps,
                             .gamma = gamma,
                             .beta = beta};
}

/* Norms the stream x [M, C] in place. */
static void whole_fwd(kvf__pass *pass, kvf__whole_norm norm, float *x, void *xhat, float *rstd)
{
    norm.x = norm.y = x;
    norm.y_act = pass->fwd.x_act;
    norm.xhat = xhat;
    norm.rstd = rstd;
    pass->model->kernels->whole_norm_fwd(pass->model->act, &norm);
    kvf__pass_lap(pass, KVF__PART_NORM);
}

/* The stream stays; its norm goes to `to`, act [M, C]. */
static void ahead_fwd(kvf__pass *pass, kvf__whole_norm norm, const float *x, void *to, void *xhat,
                      float *rstd)
{
    bool f32 = pass->model->act == KVF__F32;

    norm.x = x;
    norm.y = f32 ? to : pass->fwd.normed_f;
    norm.y_act = f32 ? NULL : to;
    norm.xhat = xhat;
    norm.rstd = rstd;
    pass->model->kernels->whole_norm_fwd(pass->model->act, &norm);
    kvf__pass_lap(pass, KVF__PART_NORM);
}

const void *kvf__pass_before_qkv(kvf__pass *pass, int64_t l)
{
    const kvf__model *m = pass->model;
    const kvf__layer *w = &m->layers[l];
    const kvf__kept *keep = &pass->kept[l];

    if (m->desc.post_norm) {
        if (keep->in1)
            memcpy(keep->in1, pass->fwd.x_act,
                   (size_t)(pass->M * m->desc.C) * kvf__act_size(m->act));
        return pass->fwd.x_act;
    }
    if (m->unfolded) {
        ahead_fwd(pass, kvf__pass_whole_norm(pass, w->gamma1, w->beta1, pass->M), pass->fwd.x,
                  keep->in1, keep->xhat1, keep->rstd1);
        return keep->in1;
    }
    folded_fwd(pass, keep->xhat1, keep->rstd1, pass->fwd.x, pass->M);
    return keep->xhat1;
}

const void *kvf__pass_before_ffn(kvf__pass *pass, int64_t l, float *x, int64_t M)
{
    const kvf__layer *w = &pass->model->layers[l];
    const kvf__kept *keep = &pass->kept[l];

    if (!pass->model->desc.post_norm && pass->model->unfolded) {
        ahead_fwd(pass, kvf__pass_whole_norm(pass, w->gamma2, w->beta2, M), x, keep->in2,
                  keep->xhat2, keep->rstd2);
        return keep->in2;
    }
    if (!pass->model->desc.post_norm) {
        folded_fwd(pass, keep->xhat2, keep->rstd2, x, M);
        return keep->xhat2;
    }
    whole_fwd(pass, kvf__pass_whole_norm(pass, w->gamma1, w->beta1, M), x, keep->xhat1,
              keep->rstd1);
    if (keep->in2)
        memcpy(keep->in2, pass->fwd.x_act,
               (size_t)(M * pass->model->desc.C) * kvf__act_size(pass->model->act));
    return pass->fwd.x_act;
}

void kvf__pass_final_norm(kvf__pass *pass)
{
    const kvf__model *m = pass->model;

    if (m->unfolded)
        ahead_fwd(pass, kvf__pass_whole_norm(pass, m->lm.gamma, m->lm.beta, pass->ML),
                  pass->fwd.x_lab, pass->head.in, pass->head.xhat, pass->head.rstd);
    else
        folded_fwd(pass, pass->head.xhat, pass->head.rstd, pass->fwd.x_lab, pass->ML);
}

void kvf__pass_behind_ffn(kvf__pass *pass, int64_t l, float *x, int64_t M)
{
    const kvf__layer *w = &pass->model->layers[l];
    const kvf__kept *keep = &pass->kept[l];

    if (!pass->model->desc.post_norm) return;
    whole_fwd(pass, kvf__pass_whole_norm(pass, w->gamma2, w->beta2, M), x, keep->xhat2,
              keep->rstd2);
}

/* ---- backward -------------------------------------------------------------------------------- */

/* dx += what dxhat says of the norm's input, and its copy in the act type, if that is another
 * array. */
static void folded_bwd(kvf__pass *pass, float *dx, void *dx_act, const void *xhat,
                       const float *rstd, int64_t M)
{
    const kvf__model *m = pass->model;

    m->kernels->norm_bwd(m->act, dx, dx_act == (void *)dx ? NULL : dx_act, pass->bwd.dxhat, xhat,
                         rstd, M, m->desc.C, m->desc.norm == KVF__RMSNORM);
    kvf__pass_lap(pass, KVF__PART_NORM_BWD);
}

/* d act [M, C] *= gamma, columns. */
static void scale_columns(const kvf__pass *pass, void *d, const float *gamma, int64_t M)
{
    kvf__dtype act = pass->model->act;
    int64_t C = pass->model->desc.C;

#pragma omp parallel for schedule(static) num_threads(pass->threads)
    for (int64_t i = 0; i < M; i++) {
        void *row = kvf__act_row(act, d, i, C);
        float *wide = pass->fwd.scratch + omp_get_thread_num() * C;
        kvf__to_f32(act, row, wide, C);
        for (int64_t c = 0; c < C; c++)
            wide[c] *= gamma[c];
        kvf__from_f32(act, wide, row, C);
    }
}

void kvf__pass_ahead_bwd(kvf__pass *pass, const kvf__ahead *norm, float *dx, void *dx_act)
{
    if (norm->gamma) {
        kvf__norm_grad(pass, norm->role, norm->role_beta, norm->layer, NULL, pass->bwd.dxhat,
                       norm->xhat, norm->real);
        scale_columns(pass, pass->bwd.dxhat, norm->gamma, norm->M);
    }
    folded_bwd(pass, dx, dx_act, norm->xhat, norm->rstd, norm->M);
}

/* norm: with gamma, xhat, rstd and plus. */
static void whole_bwd(kvf__pass *pass, kvf__whole_norm norm, float *dx, void *dx_act)
{
    norm.dx = dx;
    norm.dx_act = dx_act == (void *)dx ? NULL : dx_act;
    pass->model->kernels->whole_norm_bwd(pass->model->act, &norm);
    kvf__pass_lap(pass, KVF__PART_NORM_BWD);
}

void kvf__pass_behind_ffn_bwd(kvf__pass *pass, int64_t l, float *dx, void *dx_act, int64_t M)
{
    const kvf__kept *keep = &pass->kept[l];
    bool last = l == pass->model->desc.L - 1;

    if (!pass->model->desc.post_norm) return;
    kvf__whole_norm norm = kvf__pass_whole_norm(pass, pass->model->layers[l].gamma2, NULL, M);
    norm.xhat = keep->xhat2;
    norm.rstd = keep->rstd2;
    norm.plus = last ? NULL : pass->bwd.dxhat;
    kvf__norm_grad(pass, KVF__W_NORM2, KVF__W_NORM2_BETA, l, dx, norm.plus, keep->xhat2,
                   kvf__pass_real(pass, l));
    whole_bwd(pass, norm, dx, dx_act);
}

void kvf__pass_before_ffn_bwd(kvf__pass *pass, int64_t l, float *dx, void *dx_act, int64_t M)
{
    const kvf__layer *w = &pass->model->layers[l];
    const kvf__kept *keep = &pass->kept[l];

    if (!pass->model->desc.post_norm) {
        const kvf__ahead ahead = {w->gamma2,   KVF__W_NORM2, KVF__W_NORM2_BETA,       l,
                                  keep->xhat2, keep->rstd2,  kvf__pass_real(pass, l), M};
        kvf__pass_ahead_bwd(pass, &ahead, dx, dx_act);
        return;
    }
    kvf__whole_norm norm = kvf__pass_whole_norm(pass, pass->model->layers[l].gamma1, NULL, M);
    norm.xhat = keep->xhat1;
    norm.rstd = keep->rstd1;
    norm.plus = pass->bwd.dxhat;
    kvf__norm_grad(pass, KVF__W_NORM1, KVF__W_NORM1_BETA, l, dx, pass->bwd.dxhat, keep->xhat1,
                   kvf__pass_real(pass, l));
    whole_bwd(pass, norm, dx, dx_act);
}

void kvf__pass_before_qkv_bwd(kvf__pass *pass, int64_t l)
{
    const kvf__kept *keep = &pass->kept[l];

    if (pass->model->desc.post_norm) return;
    const kvf__ahead ahead = {
        pass->model->layers[l].gamma1, KVF__W_NORM1, KVF__W_NORM1_BETA, l, keep->xhat1, keep->rstd1,
        pass->batch->n_tokens,         pass->M};
    kvf__pass_ahead_bwd(pass, &ahead, pass->bwd.dx, pass->bwd.dx_act);
}

/* ---- heads ----------------------------------------------------------------------------------- */

static kvf__head_norm head_norm(const kvf__pass *pass, int64_t l)
{
    const kvf__desc *d = &pass->model->desc;

    return (kvf__head_norm){.M = pass->batch->n_tokens,
                            .ld = (d->H + 2 * d->G) * d->D,
                            .heads = d->H + d->G,
                            .D = d->D,
                            .eps = d->norm_eps,
                            .gamma = pass->model->layers[l].head_gamma,
                            .xhat = pass->kept[l].qk_xhat,
                            .rstd = pass->kept[l].qk_rstd};
}

void kvf__pass_head_norms_fwd(kvf__pass *pass, int64_t l)
{
    kvf__head_norm norm = head_norm(pass, l);

    if (!pass->model->desc.qk_norm) return;
    norm.x = pass->kept[l].qkv;
    pass->model->kernels->head_norm_fwd(pass->model->act, &norm);
    kvf__pass_lap(pass, KVF__PART_NORM);
}

void kvf__pass_head_norms_bwd(kvf__pass *pass, int64_t l)
{
    kvf__head_norm norm = head_norm(pass, l);

    if (!pass->model->desc.qk_norm) return;
    kvf__head_norm_grad(pass, l);
    norm.x = pass->bwd.dqkv;
    pass->model->kernels->head_norm_bwd(pass->model->act, &norm);
    kvf__pass_lap(pass, KVF__PART_NORM_BWD);
}
