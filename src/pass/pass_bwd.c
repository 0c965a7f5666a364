/* The backward pass: from the gradient of the labelled rows' residual stream to the prefix of every
 * layer, or to the input of layer 0 if vectors are trained.
 *
 * Per layer it undoes block_fwd and qkv_fwd of pass_fwd.c: down^T, act', up^T, norm, out^T,
 * attention, rope^-1, qkv^T, norm. The lowest layer with a prefix ends there, since nothing below
 * it is needed. Only the prefix gets gradients if weights are frozen. If layers share their kept
 * values, each is recomputed just before use. */
#include "attention.h"
#include "names.h"
#include "pass_grads.h"
#include "pass_norms.h"
#include "pass_priv.h"
#include "products.h"

#include <string.h>

/* Computes dxhat [M, C] of one plane: y += down(act(up(xhat))). The first product of a layer sets
 * dxhat, the others add. */
static kvf_status ffn_plane_bwd(kvf_ctx *ctx, kvf__pass *pass, int64_t l, int64_t p,
                                const float *dx, const void *dy, int64_t M)
{
    const kvf__model *m = pass->model;
    const kvf__layer_weights *w = m->layers[l].w;
    const kvf__plane plane = kvf__ffn_plane(kvf__desc_layer(&m->desc, l).F, p);
    const kvf__kept *keep = &pass->kept[l];
    unsigned first = p ? KVF__MM_ADD : 0;
    int64_t n = M * plane.width;
    const void *fac1 = kvf__act_row(m->act, keep->fac1, plane.start, M);

    KVF_TRY(kvf__weight_grad(ctx, pass, l, KVF__PRODUCT_DOWN, p, dx));
    KVF_TRY(kvf__mm_run(ctx, m->mm, w->down[p].bwd, M, dy, pass->bwd.da, m->act, 0));
    kvf__pass_lap(pass, KVF__PART_FFN_BWD);
    if (!m->desc.block.gated) {
        m->kernels->mul(m->act, pass->bwd.da, fac1, n);
        kvf__pass_lap(pass, KVF__PART_ACT_BWD);
        KVF_TRY(
            kvf__mm_run(ctx, m->mm, w->up[p].bwd, M, pass->bwd.da, pass->bwd.dxhat, m->act, first));
    } else {
        const void *fac2 = kvf__act_row(m->act, keep->fac2, plane.start, M);
        m->kernels->glu_bwd(m->act, pass->bwd.dg, pass->bwd.du, pass->bwd.da, fac1, fac2, n);
        kvf__pass_lap(pass, KVF__PART_ACT_BWD);
        KVF_TRY(kvf__mm_run(ctx, m->mm, w->gate[p].bwd, M, pass->bwd.dg, pass->bwd.dxhat, m->act,
                            first));
        KVF_TRY(kvf__mm_run(ctx, m->mm, w->up[p].bwd, M, pass->bwd.du, pass->bwd.dxhat, m->act,
                            KVF__MM_ADD));
    }
    kvf__pass_lap(pass, KVF__PART_FFN_BWD);
    KVF_TRY(kvf__weight_grad(ctx, pass, l, KVF__PRODUCT_UP, p, NULL));
    return m->desc.block.gated ? kvf__weight_grad(ctx, pass, l, KVF__PRODUCT_GATE, p, NULL)
                               : KVF_OK;
}

/* Runs the feed-forward half backward. */
static kvf_status ffn_bwd(kvf_ctx *ctx, kvf__pass *pass, int64_t l, float *dx, void *dx_act,
                          int64_t M)
{
    const kvf__model *m = pass->model;
    const void *dy;

    KVF_TRY(kvf__pass_adapt_bwd(ctx, pass, l, KVF__HALF_FFN, dx, dx_act, M, &dy));
    const float *dhalf = kvf__pass_drop_bwd(pass, l, KVF__HALF_FFN, dx, M, &dy);
    dhalf = kvf__pass_out_norm_bwd(pass, l, KVF__HALF_FFN, dhalf, M, &dy);
    for (int64_t p = 0; p < kvf__ffn_planes(kvf__desc_layer(&m->desc, l).F); p++)
        KVF_TRY(ffn_plane_bwd(ctx, pass, l, p, dhalf, dy, M));
    KVF_TRY(kvf__pass_neurons_bwd(ctx, pass, l, dhalf));
    kvf__pass_adapt_add(pass, l, KVF__HALF_FFN, M);
    kvf__pass_before_bwd(pass, l, KVF__HALF_FFN, dx, dx_act);
    return KVF_OK;
}

/* Computes datt [M, HD], the gradient of attention's output. */
static kvf_status out_bwd(kvf_ctx *ctx, kvf__pass *pass, int64_t l, const float *dx,
                          const void *dx_act, void *datt, int64_t M)
{
    const kvf__model *m = pass->model;
    const void *dy;

    KVF_TRY(kvf__pass_adapt_bwd(ctx, pass, l, KVF__HALF_ATTN, dx, dx_act, M, &dy));
    const float *dhalf = kvf__pass_drop_bwd(pass, l, KVF__HALF_ATTN, dx, M, &dy);
    dhalf = kvf__pass_out_norm_bwd(pass, l, KVF__HALF_ATTN, dhalf, M, &dy);
    KVF_TRY(kvf__weight_grad(ctx, pass, l, KVF__PRODUCT_OUT, 0, dhalf));
    KVF_TRY(kvf__mm_run(ctx, m->mm, m->layers[l].w->out.bwd, M, dy, datt, m->act, 0));
    kvf__pass_lap(pass, KVF__PART_OUT_BWD);
    return KVF_OK;
}

/* Runs both halves backward. If they read the same x, the gradient of the block's output is that of
 * both. The attention half then takes it before the other half adds to it. */
static kvf_status block_bwd(kvf_ctx *ctx, kvf__pass *pass, int64_t l, float *dx, void *dx_act,
                            void *datt, int64_t M)
{
    const bool parallel = pass->model->desc.block.parallel;

    KVF_TRY(kvf__pass_ensure_packed(ctx, pass, l, KVF__PACK_BACKWARD));
    KVF_TRY(kvf__pass_input_bwd(ctx, pass, l, dx, dx_act, M));
    kvf__pass_end_norm_bwd(pass, l, dx, dx_act);
    if (!kvf__layer_feeds(&pass->model->desc, l)) return out_bwd(ctx, pass, l, dx, dx_act, datt, M);
    if (parallel) KVF_TRY(out_bwd(ctx, pass, l, dx, dx_act, datt, M));
    KVF_TRY(ffn_bwd(ctx, pass, l, dx, dx_act, M));
    return parallel ? KVF_OK : out_bwd(ctx, pass, l, dx, dx_act, datt, M);
}

/* The last layer ran on labelled rows only, so other rows have zero gradients. */
static void scatter_labelled(kvf__pass *pass)
{
    const kvf__model *m = pass->model;
    const kvf__batch *b = pass->batch;
    int64_t C = m->desc.C, width = kvf__shape_size(&m->desc, m->desc.L - 1, "A");
    size_t att_bytes = (size_t)width * kvf__act_size(m->act);

    memset(pass->bwd.dx, 0, (size_t)(pass->M * C) * sizeof(float));
    memset(pass->bwd.datt, 0, (size_t)pass->M * att_bytes);
    for (int64_t j = 0; j < b->n_labels; j++) {
        memcpy(pass->bwd.dx + b->label_at[j] * C, pass->bwd.dx_lab + j * C,
               (size_t)C * sizeof(float));
        memcpy(kvf__act_row(m->act, pass->bwd.datt, b->label_at[j], width),
               kvf__act_row(m->act, pass->bwd.datt_lab, j, width), att_bytes);
    }
    kvf__pass_adapt_scatter(pass);
    kvf__pass_lap(pass, KVF__PART_OTHER);
}

/* Computes dqkv from datt, and the gradients of this layer's prefixes. prefix_only leaves dqkv
 * unchanged. */
static void attention_bwd(kvf__pass *pass, int64_t l, bool prefix_only)
{
    const kvf__model *m = pass->model;
    const int64_t from = kvf__desc_layer(&m->desc, l).from;
    kvf__prefix *dprefix = kvf__pass_has_prefix(pass, l) ? pass->sections.at[0].dprefix : NULL;

    kvf__pass_gate_bwd(pass, l, !prefix_only);
    kvf__pass_segments(pass, l, true, !prefix_only);
    kvf__attn attn = kvf__pass_attn(pass, l);
    attn.dout = pass->bwd.datt;
    attn.dqkv = pass->bwd.dqkv;
    attn.shared_only = prefix_only;
    attn.drop = kvf__pass_attn_drop(pass, l);
    if (attn.drop)
        kvf__attn_plain_bwd(&attn);
    else
        m->kernels->attn_bwd(&attn);
    kvf__pass_collect_rows(pass, from, dprefix);
    kvf__pass_collect_rotated(pass, from, dprefix);
    if (!prefix_only) {
        kvf__pass_collect_common_rows(pass, l);
        kvf__pass_shared_bwd(pass, l);
    }
    kvf__pass_clear_padding(pass, pass->bwd.dqkv, kvf__qkv_width(&m->desc, l));
    kvf__pass_lap(pass, KVF__PART_ATTN_BWD);
}

/* Computes dx from dqkv, the gradient of the previous layer's output (partly in dxhat, see
 * pass_priv.h). */
static kvf_status qkv_bwd(kvf_ctx *ctx, kvf__pass *pass, int64_t l)
{
    const kvf__model *m = pass->model;
    const kvf__desc *d = &m->desc;
    const kvf__layer_shape layer = kvf__desc_layer(d, l);

    if (kvf__layer_place(d, l) == KVF__PLACE_CROSS) KVF_TRY(kvf__pass_source_kv_bwd(ctx, pass, l));
    kvf__pass_scale_queries(pass, l, pass->bwd.dqkv);
    if (d->position.kind == KVF__POS_ROPE && !kvf__layer_mixes(d, l))
        m->kernels->rope(m->act, pass->bwd.dqkv, pass->batch->n_tokens, kvf__qkv_width(d, l),
                         d->H + (layer.from == l ? layer.G : 0), layer.D, layer.R,
                         pass->fwd.position, kvf__rope_of(m, l)->cos, kvf__rope_of(m, l)->sin,
                         true);
    kvf__pass_lap(pass, KVF__PART_ROPE_BWD);
    kvf__pass_head_norms_bwd(pass, l);
    KVF_TRY(kvf__mm_run(ctx, m->mm, m->layers[l].w->qkv.bwd, pass->M, pass->bwd.dqkv,
                        pass->bwd.dxhat, m->act, 0));
    kvf__pass_lap(pass, KVF__PART_QKV_BWD);
    KVF_TRY(kvf__weight_grad(ctx, pass, l, KVF__PRODUCT_QKV, 0, NULL));
    kvf__pass_adapt_add(pass, l, KVF__HALF_ATTN, pass->M);
    kvf__pass_before_bwd(pass, l, KVF__HALF_ATTN, pass->bwd.dx, pass->bwd.dx_act);
    return KVF_OK;
}

static bool has_state(const kvf__pass *pass, int64_t l)
{
    return kvf__layer_mixes(&pass->model->desc, l) && kvf__pass_trains_state(pass);
}

/* Returns the lowest layer with a prefix, neurons or a trained state, L if there is none. */
static int64_t lowest_prefix(const kvf__pass *pass)
{
    int64_t l = 0, L = pass->model->desc.L;

    while (l < L && !kvf__pass_has_prefix(pass, l) && !kvf__pass_has_neurons(pass, l) &&
           !has_state(pass, l))
        l++;
    return l;
}

static bool wants_vectors(const kvf__pass *pass)
{
    for (int64_t i = 0; i < pass->sections.n; i++)
        if (pass->sections.at[i].dvectors) return true;
    return false;
}

kvf_status kvf__pass_bwd(kvf_ctx *ctx, kvf__pass *pass, const kvf__grads *into)
{
    if (pass->state != KVF__PASS_LOSS)
        return kvf__fail(ctx, KVF_EUSAGE, "pass: backward without a loss gradient before it");
    KVF_TRY(kvf__pass_set_grads(ctx, pass, into));
    pass->state = KVF__PASS_FWD; /* the gradient is consumed */
    pass->times.mark = kvf__clock();
    int64_t last = pass->model->desc.L - 1;
    int64_t lowest = wants_vectors(pass) || into->block ? -1 : lowest_prefix(pass);
    if (lowest > last || !pass->batch->n_labels) return KVF_OK;

    kvf__pass_shared_begin_bwd(pass);
    kvf__pass_source_bwd_begin(pass, lowest);
    KVF_TRY(kvf__pass_recompute(ctx, pass, last));
    KVF_TRY(block_bwd(ctx, pass, last, pass->bwd.dx_lab, pass->bwd.dx_lab_act, pass->bwd.datt_lab,
                      pass->ML));
    scatter_labelled(pass);
    for (int64_t l = last;; l--) {
        if (kvf__layer_mixes(&pass->model->desc, l) && (l > lowest || has_state(pass, l)))
            kvf__pass_mixer_bwd(pass, l);
        else if (l > lowest || kvf__pass_has_prefix(pass, l))
            attention_bwd(pass, l, l == lowest);
        if (into->layer_done && into->prefix && kvf__desc_layer(&pass->model->desc, l).from == l)
            into->layer_done(into->user, l);
        if (l == lowest) return KVF_OK;
        KVF_TRY(qkv_bwd(ctx, pass, l));
        if (l == 0) break;
        if (l == pass->model->desc.encoder) kvf__pass_leave_decoder(pass);
        KVF_TRY(kvf__pass_recompute(ctx, pass, l - 1));
        KVF_TRY(
            block_bwd(ctx, pass, l - 1, pass->bwd.dx, pass->bwd.dx_act, pass->bwd.datt, pass->M));
    }
    KVF_TRY(kvf__embed_bwd(ctx, pass, into->block));
    kvf__pass_lap(pass, KVF__PART_EMBED_BWD);
    return KVF_OK;
}
