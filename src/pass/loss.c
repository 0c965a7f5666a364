/* The loss of a pass with any head, and the final hidden states for heads other than the base's
 * own.
 *
 * In pre-norm models the final norm with its weights is applied here again, because the base's own
 * head has the weights folded in. It reads the f32 stream, so a head gets f32 for any activation
 * type. In post-norm models the stream of the labelled rows is already the hidden state. */
#include "loss.h"
#include "pass_norms.h"
#include "pass_priv.h"

#include <string.h>

kvf_status kvf__pass_hidden(kvf_ctx *ctx, kvf__pass *pass, const float **hidden)
{
    const kvf__model *m = pass->model;

    if (pass->state == KVF__PASS_EMPTY)
        return kvf__fail(ctx, KVF_EUSAGE, "pass: hidden states without a forward pass before them");
    if (m->desc.block.post_norm) {
        *hidden = pass->fwd.x_lab;
        return KVF_OK;
    }
    const kvf__norm_at final = kvf__pass_final_norm(pass);
    kvf__whole_norm norm = kvf__pass_whole_norm(pass, &final);
    norm.M = final.real;
    pass->times.mark = kvf__clock();
    norm.x = pass->fwd.x_lab;
    norm.y = pass->fwd.hidden;
    norm.xhat = NULL; /* already stored; rstd gets the same values again */
    m->kernels->whole_norm_fwd(m->act, &norm);
    kvf__pass_lap(pass, KVF__PART_NORM);
    *hidden = pass->fwd.hidden;
    return KVF_OK;
}

float *kvf__pass_dhidden(kvf__pass *pass)
{
    return pass->bwd.dx_lab;
}

kvf_status kvf__pass_hidden_grad(kvf_ctx *ctx, kvf__pass *pass, const float *dhidden)
{
    const kvf__model *m = pass->model;

    if (pass->state == KVF__PASS_EMPTY)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "pass: gradient of hidden states without a forward pass before it");
    if (!pass->limits.backward)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "pass: gradient of hidden states, but the pass was made without backward");
    if (pass->cache)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "pass: gradient of hidden states, but the batch continues a cache");
    size_t n = (size_t)(pass->batch->n_labels * m->desc.C), all = (size_t)(pass->ML * m->desc.C);
    pass->times.mark = kvf__clock();
    if (n && dhidden != pass->bwd.dx_lab) memcpy(pass->bwd.dx_lab, dhidden, n * sizeof *dhidden);
    memset(pass->bwd.dx_lab + n, 0, (all - n) * sizeof *dhidden);
    const kvf__norm_at final = kvf__pass_final_norm(pass);
    if (!m->desc.block.post_norm)
        kvf__pass_post_norm_bwd(pass, &final, NULL, pass->bwd.dx_lab, pass->bwd.dx_lab_act);
    pass->state = KVF__PASS_LOSS;
    return KVF_OK;
}

kvf_status kvf__pass_loss(kvf_ctx *ctx, kvf__pass *pass, const kvf__loss *how, double *loss_sum)
{
    const float *hidden = NULL;
    float *dhidden = how->gradient ? kvf__pass_dhidden(pass) : NULL;

    if (how->teacher || !how->head) return kvf__pass_vocab_loss(ctx, pass, how, loss_sum);
    KVF_TRY(kvf__pass_hidden(ctx, pass, &hidden));
    KVF_TRY(kvf__head_loss(ctx, how->head, pass->batch, hidden, how, loss_sum, dhidden));
    return how->gradient ? kvf__pass_hidden_grad(ctx, pass, dhidden) : KVF_OK;
}

kvf_status kvf__pass_outputs(kvf_ctx *ctx, kvf__pass *pass, kvf__head *head, float *outputs)
{
    const float *hidden = NULL;

    if (!head) return kvf__pass_lm_logits(ctx, pass, outputs);
    KVF_TRY(kvf__pass_hidden(ctx, pass, &hidden));
    return kvf__head_outputs(ctx, head, pass->batch, hidden, outputs);
}

kvf_status kvf__pass_outputs_each(kvf_ctx *ctx, kvf__pass *pass, kvf__head *head, float *memory,
                                  kvf__outputs_fn *visit, void *user)
{
    const float *hidden = NULL;

    if (!head) return kvf__pass_lm_logits_each(ctx, pass, memory, visit, user);
    KVF_TRY(kvf__pass_hidden(ctx, pass, &hidden));
    for (int64_t first = 0; first < pass->batch->n_labels; first += KVF__OUTPUT_LABELS) {
        const int64_t left = pass->batch->n_labels - first;
        const int64_t n = left < KVF__OUTPUT_LABELS ? left : KVF__OUTPUT_LABELS;
        KVF_TRY(kvf__head_logits(ctx, head, hidden + first * pass->model->desc.C, n, memory));
        KVF_TRY(visit(user, first, n, memory));
    }
    return KVF_OK;
}
