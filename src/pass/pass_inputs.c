/* Gemma 4's per-layer embeddings (modeling_gemma4.py): each layer has an input per token besides
 * the stream,
 *
 *     input = (norm(x0 W^T / sqrt(C)) + table[id] sqrt(I)) / sqrt(2)      [L, I]
 *
 * where x0 is the token's embedding. A third half after the other two reads it:
 *
 *     x += norm(down(act(gate(x)) * input))      x *= scale
 *
 * The scale is a number per layer, present also without inputs. Virtual tokens have no row in the
 * table, so embed.c refuses them. */
#include "pass_inputs.h"
#include "pass_norms.h"
#include "pass_priv.h"

#include <math.h>
#include <omp.h>
#include <string.h>

/* ---- inputs ---------------------------------------------------------------------------------- */

void kvf__finish_input(const kvf__model *m, float *to, const float *of_token)
{
    const int64_t I = m->desc.by_layer.inputs;
    const float root = (float)(1 / sqrt((double)m->desc.C)), factor = (float)sqrt((double)I);
    double square = 0;

    for (int64_t i = 0; i < I; i++) {
        to[i] *= root;
        square += (double)to[i] * (double)to[i];
    }
    const float rstd = (float)(1 / sqrt(square / (double)I + (double)m->desc.norm_eps));
    for (int64_t i = 0; i < I; i++)
        to[i] = (to[i] * rstd * m->inputs.gamma[i] + of_token[i] * factor) * (float)sqrt(0.5);
}

kvf_status kvf__pass_make_inputs(kvf_ctx *ctx, kvf__pass *pass)
{
    const kvf__model *m = pass->model;
    const int64_t I = m->desc.by_layer.inputs, LI = m->desc.L * I, C = m->desc.C;
    const int64_t N = pass->batch->n_tokens;
    float *all = pass->inputs.all, *rows = NULL;

    if (!all) return KVF_OK;
    KVF_TRY(kvf__sgemm(ctx, false, true, N, LI, C, pass->fwd.x, C, m->inputs.projection, C, 0, all,
                       LI));
    KVF_TRY(kvf__alloc_array(ctx, (size_t)pass->threads, (size_t)LI * sizeof *rows, &rows));
#pragma omp parallel for schedule(static) num_threads(pass->threads)
    for (int64_t i = 0; i < N; i++) {
        float *row = rows + omp_get_thread_num() * LI;
        kvf__table_row(m, &m->inputs.tokens, pass->batch->ids[i], row);
        for (int64_t at = 0; at < LI; at += I)
            kvf__finish_input(m, all + i * LI + at, row + at);
    }
    kvf__free(rows);
    return KVF_OK;
}

/* ---- the half that reads them ---------------------------------------------------------------- */

/* Copies inputs of layer l [M, I] in the activation type. Padding rows are zero. */
static void gather_inputs(const kvf__pass *pass, int64_t l, void *to, int64_t M)
{
    const kvf__model *m = pass->model;
    const int64_t I = m->desc.by_layer.inputs, real = kvf__pass_real(pass, l);
    const bool labelled = l == m->desc.L - 1;

    for (int64_t i = 0; i < real; i++) {
        const int64_t token = labelled ? pass->batch->label_at[i] : i;
        kvf__from_f32(m->act, pass->inputs.all + (token * m->desc.L + l) * I,
                      kvf__act_row(m->act, to, i, I), I);
    }
    memset(kvf__act_row(m->act, to, real, I), 0, (size_t)((M - real) * I) * kvf__act_size(m->act));
}

static kvf__whole_norm norm_of(const kvf__pass *pass, int64_t l, int64_t M)
{
    const kvf__kept *keep = &pass->kept[l];
    const kvf__norm_at at = {.gamma = pass->model->layers[l].input_gamma,
                             .xhat = keep->input_xhat,
                             .rstd = keep->input_rstd,
                             .M = M};

    return kvf__pass_whole_norm(pass, &at);
}

static kvf_status half_fwd(kvf_ctx *ctx, kvf__pass *pass, int64_t l, float *x, int64_t M)
{
    const kvf__model *m = pass->model;
    const kvf__layer_weights *w = m->layers[l].w;
    const kvf__kept *keep = &pass->kept[l];
    const int64_t n = M * m->desc.C;
    kvf__whole_norm norm = norm_of(pass, l, M);

    m->kernels->from_f32(m->act, pass->fwd.x_act, x, n);
    KVF_TRY(kvf__mm_run(ctx, m->mm, w->input_gate.fwd, M, pass->fwd.x_act, keep->input_fac1, m->act,
                        0));
    gather_inputs(pass, l, keep->input_fac2, M);
    kvf__model_activate(m, m->act, keep->input_fac1, keep->input_fac2, pass->fwd.g,
                        M * m->desc.by_layer.inputs);
    KVF_TRY(
        kvf__mm_run(ctx, m->mm, w->input_down.fwd, M, pass->fwd.g, pass->fwd.half, KVF__F32, 0));
    norm.x = norm.y = pass->fwd.half;
    m->kernels->whole_norm_fwd(m->act, &norm);
    for (int64_t i = 0; i < n; i++)
        x[i] += pass->fwd.half[i];
    kvf__pass_lap(pass, KVF__PART_FFN);
    return KVF_OK;
}

kvf_status kvf__pass_input_fwd(kvf_ctx *ctx, kvf__pass *pass, int64_t l, float *x, int64_t M)
{
    const float *scale = pass->model->layers[l].scale;

    if (pass->inputs.all) KVF_TRY(half_fwd(ctx, pass, l, x, M));
    for (int64_t i = 0; scale && i < M * pass->model->desc.C; i++)
        x[i] *= *scale;
    return KVF_OK;
}

/* Computes dxhat, the gradient of the half's input. */
static kvf_status half_bwd(kvf_ctx *ctx, kvf__pass *pass, int64_t l, const float *dx, int64_t M)
{
    const kvf__model *m = pass->model;
    const kvf__layer_weights *w = m->layers[l].w;
    const kvf__kept *keep = &pass->kept[l];
    kvf__pass_backward *bwd = &pass->bwd;
    kvf__whole_norm norm = norm_of(pass, l, M);

    memcpy(bwd->dhalf, dx, (size_t)(M * m->desc.C) * sizeof *dx);
    norm.dx = bwd->dhalf;
    norm.dx_act = bwd->dhalf_act == (void *)bwd->dhalf ? NULL : bwd->dhalf_act;
    m->kernels->whole_norm_bwd(m->act, &norm);
    KVF_TRY(kvf__mm_run(ctx, m->mm, w->input_down.bwd, M, bwd->dhalf_act, bwd->da, m->act, 0));
    m->kernels->glu_bwd(m->act, bwd->dg, bwd->du, bwd->da, keep->input_fac1, keep->input_fac2,
                        M * m->desc.by_layer.inputs);
    KVF_TRY(kvf__mm_run(ctx, m->mm, w->input_gate.bwd, M, bwd->dg, bwd->dxhat, m->act, 0));
    kvf__pass_lap(pass, KVF__PART_FFN_BWD);
    return KVF_OK;
}

kvf_status kvf__pass_input_bwd(kvf_ctx *ctx, kvf__pass *pass, int64_t l, float *dx, void *dx_act,
                               int64_t M)
{
    const kvf__model *m = pass->model;
    const float *scale = m->layers[l].scale;
    const int64_t n = M * m->desc.C;

    for (int64_t i = 0; scale && i < n; i++)
        dx[i] *= *scale;
    if (pass->inputs.all) {
        KVF_TRY(half_bwd(ctx, pass, l, dx, M));
        kvf__pass_bare_bwd(pass, dx, dx_act, M);
    } else if (scale && dx_act != (void *)dx) {
        m->kernels->from_f32(m->act, dx_act, dx, n);
    }
    return KVF_OK;
}
