/* Dropout of the base itself: on embeddings and on the output of each half, as in GPT and BERT
 * (embd_pdrop, resid_pdrop, hidden_dropout_prob). Attention probabilities have dropout too if the
 * config has a rate for them (attention_plain.c).
 *
 * Masks are drawn when applied (dropout.h), by (seed, step, example, place, token, column). So a
 * row's masks do not depend on the batch, and recomputation draws them again. A place is the
 * embedding, or a half of a layer. */
#include "pass_priv.h"

#include <omp.h>
#include <string.h>

#define BASE_STREAM 0x62617365 /* "base" */
#define ATTN_STREAM 0x6174746e /* "attn" */

enum { MAX_ROW = 1 << 24 }; /* numbers reserved for the tokens of a row at each place */

kvf_status kvf__pass_set_base_dropout(kvf_ctx *ctx, kvf__pass *pass, const kvf__input *input)
{
    const kvf__row_dropout *by = input->base_dropout;
    const kvf__batch *b = input->batch;

    pass->drop.active = false;
    if (!by || !(by->p > 0)) return KVF_OK;
    if (!pass->limits.base_dropout)
        return kvf__fail(ctx, KVF_EUSAGE, "pass: it was made without dropout of the base");
    if (by->p >= 1)
        return kvf__fail(ctx, KVF_EUSAGE, "pass: dropout %g, expected 0 to below 1", by->p);
    if (input->cache || b->parent || pass->model->train.adapters)
        return kvf__fail(
            ctx, KVF_EUSAGE,
            "pass: dropout of the base excludes common prefixes, a cache and adapters");
    kvf__rng stream = kvf__rng_make(by->seed, ((uint64_t)BASE_STREAM << 32) + (uint64_t)by->step);
    kvf__rng attn = kvf__rng_make(by->seed, ((uint64_t)ATTN_STREAM << 32) + (uint64_t)by->step);
    for (int64_t r = 0; r < b->n_rows; r++) {
        pass->drop.stream[r] = kvf__dropout_row(stream, b, r);
        pass->drop.attn_stream[r] = kvf__dropout_row(attn, b, r);
        for (int64_t i = b->start[r]; i < b->start[r + 1]; i++)
            pass->drop.row[i] = (int32_t)r;
    }
    pass->drop.rate = kvf__dropout_make(by->p);
    pass->drop.active = pass->drop.rate.drop > 0;
    return KVF_OK;
}

const kvf__attn_drop *kvf__pass_attn_drop(kvf__pass *pass, int64_t l)
{
    if (!pass->drop.active || !(pass->model->desc.dropout.attention > 0)) return NULL;
    pass->drop.attn = (kvf__attn_drop){
        .rate = pass->drop.rate, .stream = pass->drop.attn_stream, .layer = l};
    return &pass->drop.attn;
}

/* Returns the token of row i in layer l's second half. */
static int64_t token_of(const kvf__pass *pass, bool labelled, int64_t i)
{
    return labelled ? pass->batch->label_at[i] : i;
}

/* Returns the width of a place: embeddings may have their own. */
static int64_t width_of(const kvf__pass *pass, int64_t place)
{
    return place ? pass->model->desc.C : pass->model->desc.E;
}

/* Returns the first mask element of a token at a place. */
static int64_t mask_at(const kvf__pass *pass, int64_t place, int64_t token)
{
    int64_t in_row = token - pass->batch->start[pass->drop.row[token]];
    return (place * MAX_ROW + in_row) * width_of(pass, place);
}

static int64_t place_of(int64_t l, kvf__half half)
{
    return 1 + 2 * l + (half == KVF__HALF_FFN);
}

/* Applies masks to src rows, into dst or added to it. */
static void mask_rows(const kvf__pass *pass, int64_t place, bool labelled, float *dst,
                      const float *src, int64_t rows, bool add)
{
    int64_t C = width_of(pass, place);

#pragma omp parallel for schedule(static) num_threads(pass->threads)
    for (int64_t i = 0; i < rows; i++) {
        int64_t token = token_of(pass, labelled, i), first = mask_at(pass, place, token);
        kvf__rng stream = pass->drop.stream[pass->drop.row[token]];
        if (add)
            kvf__dropout_add(pass->drop.rate, stream, first, dst + i * C, src + i * C, C);
        else
            kvf__dropout_set(pass->drop.rate, stream, first, dst + i * C, src + i * C, C);
    }
}

void kvf__pass_drop_fwd(kvf__pass *pass, int64_t l, kvf__half half, float *x)
{
    if (!pass->drop.active) return;
    bool labelled = l == pass->model->desc.L - 1;
    mask_rows(pass, place_of(l, half), labelled, x, pass->fwd.half, kvf__pass_real(pass, l), true);
    kvf__pass_lap(pass, KVF__PART_OTHER);
}

const float *kvf__pass_drop_bwd(kvf__pass *pass, int64_t l, kvf__half half, const float *dx,
                                int64_t M, const void **dy)
{
    const kvf__model *m = pass->model;
    int64_t C = m->desc.C, real = kvf__pass_real(pass, l);

    if (!pass->drop.active) return dx;
    mask_rows(pass, place_of(l, half), l == m->desc.L - 1, pass->bwd.dhalf, dx, real, false);
    memset(pass->bwd.dhalf + real * C, 0, (size_t)((M - real) * C) * sizeof(float));
    if (pass->bwd.dhalf_act != (void *)pass->bwd.dhalf)
        m->kernels->from_f32(m->act, pass->bwd.dhalf_act, pass->bwd.dhalf, M * C);
    *dy = pass->bwd.dhalf_act;
    kvf__pass_lap(pass, KVF__PART_OTHER);
    return pass->bwd.dhalf;
}

void kvf__pass_drop_embedding(kvf__pass *pass)
{
    float *x = pass->fwd.embedded;
    if (pass->drop.active) mask_rows(pass, 0, false, x, x, pass->batch->n_tokens, false);
}

/* In post-norm blocks the gradient through qkv is still in dxhat, unless a dense layer is in
 * between. */
void kvf__pass_drop_embedding_bwd(kvf__pass *pass)
{
    const kvf__model *m = pass->model;
    int64_t C = m->desc.C;

    if (!pass->drop.active) return;
    mask_rows(pass, 0, false, pass->bwd.dembedded, pass->bwd.dembedded, pass->batch->n_tokens,
              false);
    if (!m->desc.block.post_norm || m->embed.out) return;
#pragma omp parallel for schedule(static) num_threads(pass->threads)
    for (int64_t i = 0; i < pass->batch->n_tokens; i++) {
        float *row = pass->fwd.scratch + omp_get_thread_num() * C;
        void *d = kvf__act_row(m->act, pass->bwd.dxhat, i, C);
        kvf__to_f32(m->act, d, row, C);
        kvf__dropout_set(pass->drop.rate, pass->drop.stream[pass->drop.row[i]], mask_at(pass, 0, i),
                         row, row, C);
        kvf__from_f32(m->act, row, d, C);
    }
}
