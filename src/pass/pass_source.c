/* The pass of an encoder-decoder: encoder layers on the source, decoder layers on the batch itself.
 * The residual stream holds the rows of one stack at a time. The decoder needs only the encoder's
 * last states; backward, every cross-attention adds to their gradient. */
#include "attention.h"
#include "pass_norms.h"
#include "pass_priv.h"
#include "products.h"

#include <string.h>

/* ---- forward --------------------------------------------------------------------------------- */

static kvf_status check_rows(kvf_ctx *ctx, const kvf__pass *pass, const kvf__batch *source,
                             int64_t rows)
{
    const kvf__pass_limits *limits = &pass->limits;

    if (source->n_rows != rows || source->n_tokens > limits->source_tokens)
        return kvf__fail(ctx, KVF_ESHAPE,
                         "source: %lld rows with %lld tokens, expected %lld with at most %lld",
                         (long long)source->n_rows, (long long)source->n_tokens, (long long)rows,
                         (long long)limits->source_tokens);
    for (int64_t r = 0; r < rows; r++) {
        const int64_t len = source->start[r + 1] - source->start[r];
        if (len > pass->model->desc.position.max)
            return kvf__fail(
                ctx, KVF_ESHAPE, "source row %lld: %lld tokens, the model has %lld positions",
                (long long)r, (long long)len, (long long)pass->model->desc.position.max);
        if (len < 1 || len > limits->source_len)
            return kvf__fail(ctx, KVF_ESHAPE,
                             "source row %lld: %lld tokens, the pass was made for 1 to %lld",
                             (long long)r, (long long)len, (long long)limits->source_len);
    }
    for (int64_t i = 0; i < source->n_tokens; i++)
        if (source->ids[i] < 0 || source->ids[i] >= pass->model->desc.V)
            return kvf__fail(ctx, KVF_ESHAPE, "source: id %ld, the vocabulary ends at %lld",
                             (long)source->ids[i], (long long)pass->model->desc.V - 1);
    return KVF_OK;
}

kvf_status kvf__pass_check_source(kvf_ctx *ctx, const kvf__pass *pass, const kvf__input *input)
{
    const kvf__batch *b = input->batch, *source = b->source;
    const kvf__desc *d = &pass->model->desc;

    if (!d->encoder && !source) return KVF_OK;
    if (!d->encoder)
        return kvf__fail(ctx, KVF_EUSAGE, "batch: it has a source, %s has no encoder",
                         d->arch_name);
    if (b->parent || b->infix_at || input->streams || input->queries ||
        input->entry.layer > d->encoder || (input->base_dropout && input->base_dropout->p > 0))
        return kvf__fail(ctx, KVF_EUSAGE,
                         "batch: %s is an encoder-decoder, which excludes common prefixes, a "
                         "prefix inside rows, dropout of the base, streams and queries",
                         d->arch_name);
    for (int64_t r = 0; !source && r < b->n_rows; r++)
        if (!input->cache || !kvf__cache_source(input->cache, kvf__row_slot(input->slot, r)))
            return kvf__fail(ctx, KVF_EUSAGE, "batch row %lld: the encoder of %s has no source",
                             (long long)r, d->arch_name);
    for (int64_t r = 0; source && input->cache && r < b->n_rows; r++)
        if (source->start[r + 1] - source->start[r] >
            input->cache->reserved[kvf__row_slot(input->slot, r)])
            return kvf__fail(ctx, KVF_ESHAPE, "source row %lld: the cache holds %lld tokens",
                             (long long)r,
                             (long long)input->cache->reserved[kvf__row_slot(input->slot, r)]);
    return source ? check_rows(ctx, pass, source, b->n_rows) : KVF_OK;
}

int64_t kvf__pass_first_layer(const kvf__pass *pass)
{
    return pass->source.target->source ? 0 : pass->model->desc.encoder;
}

bool kvf__pass_in_encoder(const kvf__pass *pass)
{
    return pass->model->desc.encoder && pass->batch != pass->source.target;
}

const kvf__embed_stack *kvf__pass_embed(const kvf__pass *pass)
{
    const bool decoder = pass->model->desc.encoder && !kvf__pass_in_encoder(pass);
    return &pass->model->embed.stack[decoder];
}

/* Applies the encoder's last norm; its weights are folded into the readers of the states. Post-norm
 * blocks end with their own. */
static void norm_states(kvf__pass *pass)
{
    const kvf__model *m = pass->model;

    if (m->desc.block.post_norm) {
        memcpy(pass->source.states, pass->fwd.x_act,
               (size_t)(pass->M * m->desc.C) * kvf__act_size(m->act));
        return;
    }
    m->kernels->norm_fwd(m->act, pass->source.states, pass->source.rstd, pass->fwd.x, pass->M,
                         m->desc.C, m->desc.block.norm == KVF__RMSNORM, m->desc.norm_eps);
    kvf__pass_lap(pass, KVF__PART_NORM);
}

static void set_batch(kvf__pass *pass, const kvf__batch *batch)
{
    pass->batch = batch;
    pass->M = kvf__padded_rows(pass->model, batch->n_tokens);
    pass->keys.dealt = false;
}

void kvf__pass_set_stack(kvf__pass *pass, int64_t l)
{
    const int64_t encoder = pass->model->desc.encoder;
    const kvf__batch *target = pass->source.target;

    if (l == encoder && encoder && target->source) norm_states(pass);
    set_batch(pass, l < encoder ? target->source : target);
    if (l < encoder) pass->source.M = pass->M;
}

kvf_status kvf__pass_source_kv(kvf_ctx *ctx, kvf__pass *pass, int64_t l)
{
    const kvf__model *m = pass->model;
    const kvf__batch *source = pass->source.target->source;

    if (!source) return KVF_OK;
    KVF_TRY(kvf__mm_run(ctx, m->mm, m->layers[l].w->kv.fwd, pass->source.M, pass->source.states,
                        pass->kept[l].kv, m->act, 0));
    kvf__pass_lap(pass, KVF__PART_QKV);
    if (pass->cache) kvf__cache_put_source(pass->cache, l, source, pass->slot, pass->kept[l].kv);
    return KVF_OK;
}

kvf__kvseg kvf__pass_source_segment(const kvf__pass *pass, int64_t l, int64_t r, bool gradient)
{
    const kvf__desc *d = &pass->model->desc;
    const kvf__batch *source = pass->source.target->source;
    const int64_t half = d->G * d->D;

    if (pass->cache) return kvf__cache_source_segment(pass->cache, l, kvf__row_slot(pass->slot, r));
    const kvf__dtype act = pass->model->act;
    char *k = kvf__act_row(act, pass->kept[l].kv, source->start[r], 2 * half);
    float *dk = gradient && pass->source.wanted ? pass->source.dkv + source->start[r] * 2 * half
                                                : NULL;
    return (kvf__kvseg){.k = k,
                        .v = k + (size_t)half * kvf__act_size(act),
                        .dtype = act,
                        .len = source->start[r + 1] - source->start[r],
                        .token_stride = 2 * half,
                        .head_stride = d->D,
                        .dk = dk,
                        .dv = dk ? dk + half : NULL};
}

/* ---- backward -------------------------------------------------------------------------------- */

void kvf__pass_source_bwd_begin(kvf__pass *pass, int64_t lowest)
{
    const kvf__desc *d = &pass->model->desc;

    pass->source.wanted = lowest < d->encoder;
    if (!pass->source.wanted || !d->encoder) return;
    memset(pass->source.dstates, 0, (size_t)(pass->source.M * d->C) * sizeof(float));
    memset(pass->source.dkv, 0, (size_t)(pass->source.M * 2 * d->G * d->D) * sizeof(float));
}

/* Rows of dkv beyond the source's tokens stay zero. */
kvf_status kvf__pass_source_kv_bwd(kvf_ctx *ctx, kvf__pass *pass, int64_t l)
{
    const kvf__model *m = pass->model;
    kvf__pass_source *s = &pass->source;
    const int64_t n = s->M * 2 * m->desc.G * m->desc.D;

    if (!s->wanted) return KVF_OK;
    if ((void *)s->dkv != s->dkv_act) m->kernels->from_f32(m->act, s->dkv_act, s->dkv, n);
    KVF_TRY(kvf__mm_run(ctx, m->mm, m->layers[l].w->kv.bwd, s->M, s->dkv_act, s->dstates, KVF__F32,
                        KVF__MM_ADD));
    memset(s->dkv, 0, (size_t)n * sizeof(float));
    kvf__pass_lap(pass, KVF__PART_QKV_BWD);
    return KVF_OK;
}

void kvf__pass_leave_decoder(kvf__pass *pass)
{
    const kvf__model *m = pass->model;
    const int64_t C = m->desc.C;
    float *dx = pass->bwd.dx;
    void *dx_act = pass->bwd.dx_act;

    set_batch(pass, pass->source.target->source);
    if (m->desc.block.post_norm) {
        memcpy(dx, pass->source.dstates, (size_t)(pass->M * C) * sizeof *dx);
        return;
    }
    memset(dx, 0, (size_t)(pass->M * C) * sizeof *dx);
    m->kernels->from_f32(m->act, pass->bwd.dxhat, pass->source.dstates, pass->M * C);
    m->kernels->norm_bwd(m->act, dx, dx_act == (void *)dx ? NULL : dx_act, pass->bwd.dxhat,
                         pass->source.states, pass->source.rstd, pass->M, C,
                         m->desc.block.norm == KVF__RMSNORM);
    kvf__pass_lap(pass, KVF__PART_NORM_BWD);
}
