/* Creating a pass for batches up to its limits: memory (pass_arena.c), the attention plan, and rope
 * tables. Products of a batch size are prepared before the first step, because oneDNN takes
 * milliseconds to build a primitive for each (weight, rows). */
#include "names.h"
#include "pass_priv.h"
#include "products.h"

/* ---- create ---------------------------------------------------------------------------------- */

static kvf_status check_limits(kvf_ctx *ctx, const kvf__model *model,
                               const kvf__pass_limits *limits)
{
    const struct {
        const char *name;
        int64_t value, least;
    } items[] = {{"rows", limits->rows, 1},
                 {"tokens", limits->tokens, 1},
                 {"row_len", limits->row_len, 1},
                 {"labels", limits->labels, 0},
                 {"P", limits->P, 0},
                 {"neurons", limits->neurons, 0},
                 {"cache_len", limits->cache_len, 0},
                 {"source_tokens", limits->source_tokens, model->desc.encoder ? 1 : 0},
                 {"source_len", limits->source_len, model->desc.encoder ? 1 : 0},
                 {"soft", limits->soft, 0},
                 {"common_len", limits->common_len, 0},
                 {"common_tokens", limits->common_tokens, 0},
                 {"sections", limits->sections, 0}};

    for (size_t i = 0; i < sizeof items / sizeof items[0]; i++)
        if (items[i].value < items[i].least || items[i].value > INT32_MAX)
            return kvf__fail(ctx, KVF_ESHAPE, "pass: limit %s is %lld, expected %lld to %ld",
                             items[i].name, (long long)items[i].value, (long long)items[i].least,
                             (long)INT32_MAX);
    if (limits->backward && !model->backward)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "pass: the model was packed without its backward weights");
    return KVF_OK;
}

static kvf_status plan_create(kvf_ctx *ctx, kvf__pass *pass)
{
    const kvf__desc *d = &pass->model->desc;
    const kvf__pass_limits *limits = &pass->limits;
    int64_t prefixes = limits->sections > 1 ? limits->sections : 1;
    if (limits->row_dropout || limits->infix) prefixes = limits->rows;
    const int64_t source = limits->source_tokens, most = limits->source_len;
    const kvf__attn_limits attn = {
        .rows = limits->rows,
        .tokens = kvf__padded_rows(pass->model, source > limits->tokens ? source : limits->tokens),
        .row_len = most > limits->row_len ? most : limits->row_len,
        .shared_len = limits->P + limits->cache_len + limits->common_len + most,
        .grad_len = limits->backward ? prefixes * limits->P + limits->common_tokens + source : 0,
        .H = d->H,
        .G = kvf__shape_most(d, "G"),
        .D = kvf__shape_most(d, "D"),
        .backward = limits->backward,
        .plain = limits->base_dropout && d->dropout.attention > 0,
        .relative = pass->model->relative.layer};
    return kvf__attn_plan_create(ctx, &attn, &pass->keys.plan);
}

/* Makes rope rows for a batch at the limits that starts after its prefix; fwd extends them for
 * larger offsets. */
static kvf_status rope_create(kvf_ctx *ctx, kvf__pass *pass)
{
    const kvf__desc *d = &pass->model->desc;
    int64_t rows = pass->limits.P + pass->limits.cache_len + pass->limits.common_len +
                   pass->limits.row_len;

    if (d->position.kind != KVF__POS_ROPE) return KVF_OK;
    return kvf__rope_tables(ctx, pass->model, rows < d->position.max ? rows : d->position.max);
}

kvf_status kvf__pass_create(kvf_ctx *ctx, kvf__model *model, const kvf__pass_limits *limits,
                            kvf__pass **out)
{
    kvf__pass *pass = NULL;

    KVF_TRY(check_limits(ctx, model, limits));
    KVF_TRY(kvf__alloc(ctx, sizeof *pass, &pass));
    pass->model = model;
    pass->limits = *limits;
    pass->threads = kvf_ctx_threads(ctx);
    kvf_status st = kvf__pass_alloc(ctx, pass);
    if (!st) st = plan_create(ctx, pass);
    if (!st) st = rope_create(ctx, pass);
    KVF__GIVE(st, out, pass, kvf__pass_free(pass));
    return st;
}

void kvf__pass_free(kvf__pass *pass)
{
    if (!pass) return;
    kvf__attn_plan_free(pass->keys.plan);
    kvf__arena_done(&pass->arena);
    kvf__free(pass);
}

/* ---- products -------------------------------------------------------------------------------- */

/* Prepares the products of a unit: rows of qkv, of the rest of the layer, of the source; 0: not
 * now. */
static kvf_status prepare_unit(kvf_ctx *ctx, const kvf__pass *pass, int64_t unit, int64_t qkv_rows,
                               int64_t rows, int64_t source_rows)
{
    const kvf__model *m = pass->model;
    kvf__product p;

    for (size_t i = 0; kvf__product_at(&m->desc, unit, i, &p); i++) {
        const kvf__packed_pair *w = kvf__product_packed(m, &p);
        if (!w->fwd) continue; /* packed on demand, and not packed yet */
        const bool source = p.kind == KVF__PRODUCT_KV;
        const int64_t M = source                                                   ? source_rows
                          : p.kind == KVF__PRODUCT_QKV || p.kind == KVF__PRODUCT_Q ? qkv_rows
                                                                                   : rows;
        const kvf__half half = p.kind == KVF__PRODUCT_OUT ? KVF__HALF_ATTN : KVF__HALF_FFN;
        const kvf__dtype gradient = p.kind == KVF__PRODUCT_HEAD || source ? KVF__F32 : m->act;
        if (!M) continue;
        KVF_TRY(kvf__mm_prepare(ctx, m->mm, w->fwd, M, kvf__product_dst(m, &p),
                                p.adds ? kvf__pass_out_flags(pass, half, !p.plane) : 0));
        if (pass->limits.backward)
            KVF_TRY(kvf__mm_prepare(ctx, m->mm, w->bwd, M, gradient,
                                    p.gradient_adds ? KVF__MM_ADD : 0));
    }
    return KVF_OK;
}

kvf_status kvf__pass_prepare(kvf_ctx *ctx, kvf__pass *pass, int64_t tokens, int64_t labels)
{
    const kvf__model *model = pass->model;
    int64_t M = kvf__padded_rows(model, tokens), ML = kvf__padded_rows(model, labels);
    int64_t L = model->desc.L;

    if (tokens < 1 || tokens > pass->limits.tokens || labels < 0 || labels > pass->limits.labels)
        return kvf__fail(ctx, KVF_ESHAPE,
                         "pass: %lld tokens and %lld labels, the limits are %lld and %lld",
                         (long long)tokens, (long long)labels, (long long)pass->limits.tokens,
                         (long long)pass->limits.labels);
    for (int64_t l = model->desc.encoder; l < L; l++)
        KVF_TRY(prepare_unit(ctx, pass, l, M, l == L - 1 ? ML : M, 0));
    for (int64_t first = 0; first < ML; first += KVF__HEAD_ROWS)
        for (int64_t p = 0; p < model->lm.n; p++) {
            int64_t rows = ML - first < KVF__HEAD_ROWS ? ML - first : KVF__HEAD_ROWS;
            KVF_TRY(prepare_unit(ctx, pass, L + p, 0, rows, 0));
        }
    return KVF_OK;
}

kvf_status kvf__pass_prepare_source(kvf_ctx *ctx, kvf__pass *pass, int64_t tokens)
{
    const kvf__desc *d = &pass->model->desc;
    const int64_t M = kvf__padded_rows(pass->model, tokens);

    for (int64_t l = 0; l < d->L && d->encoder; l++)
        KVF_TRY(prepare_unit(ctx, pass, l, l < d->encoder ? M : 0, l < d->encoder ? M : 0, M));
    return KVF_OK;
}
