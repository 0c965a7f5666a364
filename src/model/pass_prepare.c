/* Making the products of a batch size before the first step: oneDNN builds a primitive for each
 * (weight, rows), which takes milliseconds, and a step must not wait for it. */
#include "pass_priv.h"

/* A weight and how the pass multiplies with it. */
typedef struct use {
    const kvf__packed *w;
    kvf__dtype dst;
    unsigned flags;
} use;

static kvf_status prepare_uses(kvf_ctx *ctx, kvf__mm *mm, const use *uses, size_t n, int64_t M)
{
    for (size_t i = 0; i < n; i++)
        if (uses[i].w && M > 0)
            KVF_TRY(kvf__mm_prepare(ctx, mm, uses[i].w, M, uses[i].dst, uses[i].flags));
    return KVF_OK;
}

/* Everything of a layer behind its attention, on M rows. In the backward pass the first product
 * into dxhat sets it and the others add. */
static kvf_status prepare_block(kvf_ctx *ctx, kvf__pass *pass, const kvf__layer *w, int64_t M)
{
    kvf__mm *mm = pass->model->mm;
    kvf__dtype act = pass->model->act;
    const use out[] = {{w->out, KVF__F32, kvf__pass_out_flags(pass, KVF__HALF_ATTN)},
                       {pass->limits.backward ? w->out_t : NULL, act, 0}};

    KVF_TRY(prepare_uses(ctx, mm, out, 2, M));
    for (int p = 0; p < pass->model->ffn.n; p++) {
        const use fwd[] = {{w->up[p], act, 0},
                           {w->gate[p], act, 0},
                           {w->down[p], KVF__F32, kvf__pass_out_flags(pass, KVF__HALF_FFN)}};
        KVF_TRY(prepare_uses(ctx, mm, fwd, 3, M));
        if (!pass->limits.backward) continue;
        unsigned first = p ? KVF__MM_ADD : 0;
        const use bwd[] = {{w->down_t[p], act, 0},
                           {w->gate_t[p], act, first},
                           {w->up_t[p], act, w->gate_t[p] ? KVF__MM_ADD : first}};
        KVF_TRY(prepare_uses(ctx, mm, bwd, 3, M));
    }
    return KVF_OK;
}

static kvf_status prepare_head(kvf_ctx *ctx, kvf__pass *pass, int64_t rows)
{
    const kvf__model *model = pass->model;

    for (int64_t p = 0; p < model->lm.n; p++) {
        const use uses[] = {
            {model->lm.packed[p], KVF__F32, 0},
            {pass->limits.backward ? model->lm.packed_t[p] : NULL, KVF__F32, KVF__MM_ADD}};
        KVF_TRY(prepare_uses(ctx, model->mm, uses, 2, rows));
    }
    return KVF_OK;
}

kvf_status kvf__pass_prepare(kvf_ctx *ctx, kvf__pass *pass, int64_t tokens, int64_t labels)
{
    const kvf__model *model = pass->model;
    int64_t M = kvf__pass_padded(model, tokens), ML = kvf__pass_padded(model, labels);

    if (tokens < 1 || tokens > pass->limits.tokens || labels < 0 || labels > pass->limits.labels)
        return kvf__fail(ctx, KVF_ESHAPE,
                         "pass: %lld tokens and %lld labels, the limits are %lld and %lld",
                         (long long)tokens, (long long)labels, (long long)pass->limits.tokens,
                         (long long)pass->limits.labels);
    for (int64_t l = 0; l < model->desc.L; l++) {
        const kvf__layer *w = &model->layers[l];
        const use qkv[] = {{w->qkv, model->act, 0},
                           {pass->limits.backward ? w->qkv_t : NULL, model->act, 0}};
        KVF_TRY(prepare_uses(ctx, model->mm, qkv, 2, M));
        KVF_TRY(prepare_block(ctx, pass, w, l == model->desc.L - 1 ? ML : M));
    }
    for (int64_t first = 0; first < ML; first += KVF__HEAD_ROWS)
        KVF_TRY(prepare_head(ctx, pass, ML - first < KVF__HEAD_ROWS ? ML - first : KVF__HEAD_ROWS));
    return KVF_OK;
}
