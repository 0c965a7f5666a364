/* The norms of a block, at the places given by its description.
 *
 *   pre-norm    x += out(attention(qkv(norm1(x))))      x += down(act(up(norm2(x))))
 *   post-norm   x = norm1(x + out(attention(qkv(x))))   x = norm2(x + down(act(up(x))))
 *   out-norm    x += norm(out(attention(qkv(x))))       x += norm(down(act(up(x))))
 *
 * The weights of a family determine its norms. An out-norm may be combined with a pre-norm; without
 * one, products read a copy of the stream too. A pre-norm's weights are folded into the following
 * product, so it outputs xhat alone. In an unfolded model it applies them, because they are
 * trained. A post-norm's output is the residual stream itself, so its weights are applied. Products
 * then read x_act, a copy of the stream in the activation type, because they add to the stream. In
 * some families queries and keys have norms before rope, per head or over all heads. */
#include "pass_norms.h"
#include "names.h"
#include "pass_grads.h"
#include "pass_priv.h"

#include <omp.h>
#include <string.h>

/* ---- which norm ------------------------------------------------------------------------------ */

/* After the last layer's attention a norm has the labelled rows only. */
static kvf__norm_at norm_at(const kvf__pass *pass, int64_t l, bool first)
{
    const kvf__layer *w = &pass->model->layers[l];
    const kvf__kept *keep = &pass->kept[l];
    const bool after = !first || pass->model->desc.block.post_norm;
    const bool labelled = after && l == pass->model->desc.L - 1;
    kvf__norm_at at = {.role = first ? KVF__W_NORM1 : KVF__W_NORM2,
                       .role_beta = first ? KVF__W_NORM1_BETA : KVF__W_NORM2_BETA,
                       .layer = l,
                       .gamma = first ? w->gamma1 : w->gamma2,
                       .beta = first ? w->beta1 : w->beta2,
                       .xhat = first ? keep->xhat1 : keep->xhat2,
                       .rstd = first ? keep->rstd1 : keep->rstd2,
                       .out = first ? keep->in1 : keep->in2};

    at.real = labelled ? pass->batch->n_labels : pass->batch->n_tokens;
    at.M = labelled ? pass->ML : pass->M;
    return at;
}

kvf__norm_at kvf__pass_final_norm(const kvf__pass *pass)
{
    return (kvf__norm_at){.role = KVF__W_FINAL,
                          .role_beta = KVF__W_FINAL_BETA,
                          .gamma = pass->model->lm.gamma,
                          .beta = pass->model->lm.beta,
                          .xhat = pass->head.xhat,
                          .rstd = pass->head.rstd,
                          .out = pass->head.in,
                          .real = pass->batch->n_labels,
                          .M = pass->ML};
}

kvf__whole_norm kvf__pass_whole_norm(const kvf__pass *pass, const kvf__norm_at *at)
{
    const kvf__desc *d = &pass->model->desc;

    return (kvf__whole_norm){.M = at->M,
                             .C = d->C,
                             .rms = d->block.norm == KVF__RMSNORM,
                             .eps = d->norm_eps,
                             .gamma = at->gamma,
                             .beta = at->beta,
                             .xhat = at->xhat,
                             .rstd = at->rstd};
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Applies a norm before products and returns its output; the stream x is unchanged. */
const void *kvf__pass_pre_norm_fwd(kvf__pass *pass, const kvf__norm_at *at, const float *x)
{
    const kvf__model *m = pass->model;
    const bool f32 = m->act == KVF__F32;

    if (!m->unfolded) {
        m->kernels->norm_fwd(m->act, at->xhat, at->rstd, x, at->M, m->desc.C,
                             m->desc.block.norm == KVF__RMSNORM, m->desc.norm_eps);
        kvf__pass_lap(pass, KVF__PART_NORM);
        return at->xhat;
    }
    kvf__whole_norm norm = kvf__pass_whole_norm(pass, at);
    norm.x = x;
    norm.y = f32 ? at->out : pass->fwd.normed_f;
    norm.y_act = f32 ? NULL : at->out;
    m->kernels->whole_norm_fwd(m->act, &norm);
    kvf__pass_lap(pass, KVF__PART_NORM);
    return at->out;
}

/* Applies a norm to the stream x [M, C] in place. */
static void post_norm_fwd(kvf__pass *pass, const kvf__norm_at *at, float *x)
{
    kvf__whole_norm norm = kvf__pass_whole_norm(pass, at);

    norm.x = norm.y = x;
    norm.y_act = pass->fwd.x_act;
    pass->model->kernels->whole_norm_fwd(pass->model->act, &norm);
    kvf__pass_lap(pass, KVF__PART_NORM);
}

/* Post-norm: keeps a copy of the stream, the input of a half's products, for gradients of trained
 * weights. */
static const void *keep_stream(const kvf__pass *pass, int64_t M, void *in)
{
    size_t row = (size_t)pass->model->desc.C * kvf__act_size(pass->model->act);

    if (in) memcpy(in, pass->fwd.x_act, (size_t)M * row);
    return pass->fwd.x_act;
}

/* Returns whether the layer's half has no norm. Its products then read a copy of the stream,
 * because they add to the stream itself. */
static bool is_bare(const kvf__pass *pass, int64_t l, kvf__half half)
{
    return !kvf__desc_has(&pass->model->desc, half == KVF__HALF_FFN ? KVF__W_NORM2 : KVF__W_NORM1,
                          l);
}

const void *kvf__pass_before(kvf__pass *pass, int64_t l, kvf__half half, float *x)
{
    const kvf__model *m = pass->model;
    const bool post_norm = m->desc.block.post_norm, ffn = half == KVF__HALF_FFN;
    const kvf__norm_at at = norm_at(pass, l, !ffn || post_norm);
    const int64_t M = ffn ? at.M : pass->M;

    if (is_bare(pass, l, half))
        m->kernels->from_f32(m->act, pass->fwd.x_act, x, M * m->desc.C);
    else if (!post_norm)
        return kvf__pass_pre_norm_fwd(pass, &at, x);
    else if (ffn)
        post_norm_fwd(pass, &at, x); /* norm of the attention half */
    return keep_stream(pass, M, ffn ? pass->kept[l].in2 : pass->kept[l].in1);
}

void kvf__pass_end_norm(kvf__pass *pass, int64_t l, float *x)
{
    const kvf__norm_at at = norm_at(pass, l, !kvf__layer_feeds(&pass->model->desc, l));

    if (pass->model->desc.block.post_norm) post_norm_fwd(pass, &at, x);
}

static kvf__norm_at out_norm_at(const kvf__pass *pass, int64_t l, kvf__half half)
{
    const bool ffn = half == KVF__HALF_FFN;

    return (kvf__norm_at){.role = ffn ? KVF__W_OUT_NORM2 : KVF__W_OUT_NORM1,
                          .role_beta = KVF__W_ROLES,
                          .layer = l,
                          .gamma = pass->model->layers[l].out_gamma[ffn],
                          .xhat = pass->kept[l].out_xhat[ffn],
                          .rstd = pass->kept[l].out_rstd[ffn],
                          .real = kvf__pass_real(pass, l)};
}

void kvf__pass_out_norm_fwd(kvf__pass *pass, int64_t l, kvf__half half, float *x, int64_t M)
{
    const kvf__norm_at at = out_norm_at(pass, l, half);
    kvf__whole_norm norm = kvf__pass_whole_norm(pass, &at);

    if (!at.gamma) return;
    norm.M = M;
    norm.x = norm.y = pass->fwd.half;
    pass->model->kernels->whole_norm_fwd(pass->model->act, &norm);
    if (!pass->drop.active) kvf__pass_add_half(pass, l, half, x, M);
    kvf__pass_lap(pass, KVF__PART_NORM);
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Multiplies the columns of d act [M, C] by gamma. */
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

/* Returns the copy in the activation type if it is a separate array. */
static void *other(void *copy, const float *dx)
{
    return copy == (const void *)dx ? NULL : copy;
}

void kvf__pass_pre_norm_bwd(kvf__pass *pass, const kvf__norm_at *at, float *dx, void *dx_act)
{
    const kvf__model *m = pass->model;

    if (m->unfolded) {
        kvf__norm_grad(pass, at, NULL, pass->bwd.dxhat);
        scale_columns(pass, pass->bwd.dxhat, at->gamma, at->M);
    }
    m->kernels->norm_bwd(m->act, dx, other(dx_act, dx), pass->bwd.dxhat, at->xhat, at->rstd, at->M,
                         m->desc.C, m->desc.block.norm == KVF__RMSNORM);
    kvf__pass_lap(pass, KVF__PART_NORM_BWD);
}

void kvf__pass_post_norm_bwd(kvf__pass *pass, const kvf__norm_at *at, const void *plus, float *dx,
                             void *dx_act)
{
    kvf__whole_norm norm = kvf__pass_whole_norm(pass, at);

    kvf__norm_grad(pass, at, dx, plus);
    norm.plus = plus;
    norm.dx = dx;
    norm.dx_act = other(dx_act, dx);
    pass->model->kernels->whole_norm_bwd(pass->model->act, &norm);
    kvf__pass_lap(pass, KVF__PART_NORM_BWD);
}

const float *kvf__pass_out_norm_bwd(kvf__pass *pass, int64_t l, kvf__half half, const float *dhalf,
                                    int64_t M, const void **dy)
{
    const kvf__model *m = pass->model;
    const kvf__norm_at at = out_norm_at(pass, l, half);
    kvf__whole_norm norm = kvf__pass_whole_norm(pass, &at);

    if (!at.gamma) return dhalf;
    dhalf = kvf__pass_adapt_grad(pass, l, half, dhalf);
    if (dhalf != pass->bwd.dhalf)
        memcpy(pass->bwd.dhalf, dhalf, (size_t)(M * m->desc.C) * sizeof *dhalf);
    kvf__norm_grad(pass, &at, pass->bwd.dhalf, NULL);
    norm.M = M;
    norm.dx = pass->bwd.dhalf;
    norm.dx_act = other(pass->bwd.dhalf_act, pass->bwd.dhalf);
    m->kernels->whole_norm_bwd(m->act, &norm);
    *dy = pass->bwd.dhalf_act;
    kvf__pass_lap(pass, KVF__PART_NORM_BWD);
    return pass->bwd.dhalf;
}

void kvf__pass_bare_bwd(kvf__pass *pass, float *dx, void *dx_act, int64_t M)
{
    kvf__dtype act = pass->model->act;
    int64_t C = pass->model->desc.C;

#pragma omp parallel for schedule(static) num_threads(pass->threads)
    for (int64_t i = 0; i < M; i++) {
        float *row = pass->fwd.scratch + omp_get_thread_num() * C;
        kvf__to_f32(act, kvf__act_row(act, pass->bwd.dxhat, i, C), row, C);
        for (int64_t c = 0; c < C; c++)
            dx[i * C + c] += row[c];
        if (dx_act != (void *)dx)
            kvf__from_f32(act, dx + i * C, kvf__act_row(act, dx_act, i, C), C);
    }
    kvf__pass_lap(pass, KVF__PART_NORM_BWD);
}

void kvf__pass_end_norm_bwd(kvf__pass *pass, int64_t l, float *dx, void *dx_act)
{
    const kvf__desc *d = &pass->model->desc;
    const kvf__norm_at at = norm_at(pass, l, !kvf__layer_feeds(d, l));
    const bool last = l == d->L - 1 || l == d->encoder - 1; /* last of a stack */

    if (d->block.post_norm)
        kvf__pass_post_norm_bwd(pass, &at, last ? NULL : pass->bwd.dxhat, dx, dx_act);
}

void kvf__pass_before_bwd(kvf__pass *pass, int64_t l, kvf__half half, float *dx, void *dx_act)
{
    const bool post_norm = pass->model->desc.block.post_norm, ffn = half == KVF__HALF_FFN;
    const kvf__norm_at at = norm_at(pass, l, !ffn || post_norm);

    if (is_bare(pass, l, half))
        kvf__pass_bare_bwd(pass, dx, dx_act, at.M);
    else if (!post_norm)
        kvf__pass_pre_norm_bwd(pass, &at, dx, dx_act);
    else if (ffn)
        kvf__pass_post_norm_bwd(pass, &at, pass->bwd.dxhat, dx, dx_act);
}

/* ---- heads ----------------------------------------------------------------------------------- */

/* Describes part i of two of the norms on x act [M, (H + 2G) D]. The heads of a layer are normed
 * separately, or all queries as one and all keys as one. Returns false if there is no such part.
 * Keys and values of another layer are normed there. */
static bool head_norm(const kvf__pass *pass, int64_t l, int i, void *x, kvf__head_norm *out)
{
    const kvf__desc *d = &pass->model->desc;
    const kvf__layer_shape layer = kvf__desc_layer(d, l);
    const kvf__kept *keep = &pass->kept[l];
    const kvf__dtype act = pass->model->act;
    const int64_t M = pass->batch->n_tokens, first = i ? d->H * layer.D : 0;
    const int64_t others = layer.from != l ? 0 : d->block.v_norm ? 2 * layer.G : layer.G;
    const bool whole = d->block.qk_norm == KVF__QK_WHOLE;

    if (i > whole || !d->block.qk_norm || kvf__layer_mixes(d, l)) return false;
    *out = (kvf__head_norm){.M = M,
                            .ld = kvf__qkv_width(d, l),
                            .heads = whole ? 1 : d->H + others,
                            .D = !whole ? layer.D
                                 : i    ? layer.G * layer.D
                                        : d->H * layer.D,
                            .eps = d->norm_eps,
                            .gamma = pass->model->layers[l].head_gamma + first,
                            .x = (char *)x + (size_t)first * kvf__act_size(act),
                            .xhat = keep->qk_xhat ? kvf__act_row(act, keep->qk_xhat, M, first)
                                                  : NULL,
                            .rstd = keep->qk_rstd + (i ? M : 0)};
    return true;
}

void kvf__pass_head_norms_fwd(kvf__pass *pass, int64_t l)
{
    kvf__head_norm norm;

    if (!pass->model->desc.block.qk_norm) return;
    for (int i = 0; head_norm(pass, l, i, pass->kept[l].qkv, &norm); i++)
        pass->model->kernels->head_norm_fwd(pass->model->act, &norm);
    kvf__pass_lap(pass, KVF__PART_NORM);
}

void kvf__pass_head_norms_bwd(kvf__pass *pass, int64_t l)
{
    kvf__head_norm norm;

    if (!pass->model->desc.block.qk_norm) return;
    kvf__head_norm_grad(pass, l);
    for (int i = 0; head_norm(pass, l, i, pass->bwd.dqkv, &norm); i++)
        pass->model->kernels->head_norm_bwd(pass->model->act, &norm);
    kvf__pass_lap(pass, KVF__PART_NORM_BWD);
}
