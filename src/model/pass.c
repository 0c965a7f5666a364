/* Making a pass: its arena, laid out twice by one function (first to count, then to carve), the
 * attention plan, the primitives of a batch size, and the times.
 *
 * What is kept per token and layer follows COMPUTE.md 6.9; a pass without backward keeps one
 * layer's worth and needs one plane of the feed-forward part at a time. A pass that recomputes
 * keeps one layer's worth and what enters each layer (Chen et al. 2016, arXiv 1604.06174, with
 * segments of one layer). */
#include "pass_priv.h"

int64_t kvf__pass_padded(const kvf__model *model, int64_t n)
{
    int64_t step = n <= 8 ? 1 : n <= 64 ? 8 : model->row_step;
    return (n + step - 1) / step * step;
}

void kvf__pass_lap(kvf__pass *pass, kvf__part part)
{
    double now = kvf__clock();
    pass->seconds[pass->again ? KVF__PART_RECOMPUTE : part] += now - pass->mark;
    pass->mark = now;
}

size_t kvf__pass_timings(const kvf__pass *pass, kvf__timing *out, size_t max)
{
    static const char *const names[KVF__PARTS] = {
#define KVF__PART_NAME(name, text) text,
        KVF__PART_LIST(KVF__PART_NAME)
#undef KVF__PART_NAME
    };
    for (size_t i = 0; i < KVF__PARTS && i < max; i++)
        out[i] = (kvf__timing){.name = names[i], .seconds = pass->seconds[i]};
    return KVF__PARTS;
}

/* ---- the arena ------------------------------------------------------------------------------- */

/* Sizes that the layout needs more than once. */
typedef struct sizes {
    int64_t M, ML, R, plane, head_rows, qkv, att, adapter;
    bool weights; /* are trained in this pass */
    bool whole;   /* norms stand whole in front of halves */
    size_t act;
} sizes;

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static sizes sizes_of(const kvf__pass *pass)
{
    const kvf__model *model = pass->model;
    const kvf__desc *d = &model->desc;
    sizes s = {.M = kvf__pass_padded(model, pass->limits.tokens),
               .ML = kvf__pass_padded(model, pass->limits.labels)};

    s.R = larger(s.M, s.ML);
    s.head_rows = !model->head ? 0 : s.ML < KVF__HEAD_ROWS ? s.ML : KVF__HEAD_ROWS;
    for (int p = 0; p < model->n_planes; p++)
        s.plane = larger(s.plane, model->plane_width[p]);
    s.qkv = (d->H + 2 * d->G) * d->D;
    s.att = d->H * d->D;
    s.adapter = model->adapters ? kvf__adapters_shape(model->adapters)->size : 0;
    s.act = kvf__act_size(model->act);
    s.weights = model->trains_weights && pass->limits.backward;
    s.whole = model->unfolded && !d->post_norm;
    return s;
}

static kvf__bottleneck_kept lay_adapter(kvf__carver *carve, const kvf__pass *pass, const sizes *s,
                                        kvf__half half, int64_t M2)
{
    if (!kvf__pass_adapts(pass, half)) return (kvf__bottleneck_kept){0};
    return (kvf__bottleneck_kept){
        .in = kvf__carve(carve, M2, pass->model->desc.C, sizeof(float)),
        .h = kvf__carve(carve, M2, s->adapter, sizeof(float)),
        .slope = kvf__carve(carve, M2, s->adapter, sizeof(float)),
    };
}

static kvf__kept lay_kept(kvf__carver *carve, const kvf__pass *pass, const sizes *s, int64_t M2)
{
    const kvf__desc *d = &pass->model->desc;
    int64_t width = pass->limits.backward ? d->F : s->plane;
    int64_t heads = d->qk_norm ? d->H + d->G : 0;

    bool own = s->weights;
    return (kvf__kept){
        .in1 = own ? kvf__carve(carve, s->M, d->C, s->act) : pass->normed,
        .in2 = own ? kvf__carve(carve, M2, d->C, s->act) : pass->normed,
        .g = own ? kvf__carve(carve, M2, d->F, s->act) : NULL,
        .xhat1 = kvf__carve(carve, s->M, d->C, s->act),
        .qkv = kvf__carve(carve, s->M, s->qkv, s->act),
        .att = kvf__carve(carve, s->M, s->att, s->act),
        .xhat2 = kvf__carve(carve, M2, d->C, s->act),
        .fac1 = kvf__carve(carve, M2, width, s->act),
        .fac2 = d->gated ? kvf__carve(carve, M2, width, s->act) : NULL,
        .rstd1 = kvf__carve(carve, s->M, 1, sizeof(float)),
        .rstd2 = kvf__carve(carve, M2, 1, sizeof(float)),
        .lse = kvf__carve(carve, d->H, s->M, sizeof(float)),
        .qk_xhat = heads && pass->limits.backward ? kvf__carve(carve, s->M, heads * d->D, s->act)
                                                  : NULL,
        .qk_rstd = heads ? kvf__carve(carve, s->M, heads, sizeof(float)) : NULL,
        .adapt = {lay_adapter(carve, pass, s, KVF__HALF_ATTN, M2),
                  lay_adapter(carve, pass, s, KVF__HALF_FFN, M2)},
    };
}

static void lay_layers(kvf__pass *pass, kvf__carver *carve, const sizes *s)
{
    int64_t L = pass->model->desc.L;
    bool shared = !pass->limits.backward || pass->limits.recompute;
    kvf__kept one = {0};

    pass->kept = kvf__carve(carve, L, 1, sizeof(kvf__kept));
    for (int64_t l = 0; l < L; l++) {
        if (l == 0 || !shared) {
            int64_t M2 = shared ? s->R : l == L - 1 ? s->ML : s->M;
            one = lay_kept(carve, pass, s, M2);
        }
        if (carve->arena) pass->kept[l] = one;
    }
}

static void lay_fwd(kvf__pass *pass, kvf__carver *carve, const sizes *s)
{
    const kvf__desc *d = &pass->model->desc;

    pass->rows = kvf__carve(carve, pass->limits.rows, 1, sizeof(kvf__attn_row));
    int64_t segs = pass->limits.infix ? 2 : 1; /* of a row: its own prefix, and its cache */
    int64_t sections = larger(pass->limits.sections, 1);
    pass->segs = kvf__carve(carve, segs * pass->limits.rows + sections, 1, sizeof(kvf__kvseg));
    pass->section = kvf__carve(carve, sections, 1, sizeof(kvf__pass_section));
    if (pass->limits.sections) pass->label_scale = kvf__carve(carve, s->ML, 1, sizeof(float));
    pass->lead = kvf__carve(carve, pass->limits.rows, 1, sizeof(int32_t));
    pass->offset = kvf__carve(carve, pass->limits.rows, 1, sizeof(int64_t));
    pass->position = kvf__carve(carve, s->M, 1, sizeof(int32_t));
    pass->scratch = kvf__carve(carve, pass->threads, d->C, sizeof(float));
    pass->x = kvf__carve(carve, s->M, d->C, sizeof(float));
    pass->x_lab = kvf__carve(carve, s->ML, d->C, sizeof(float));
    if (d->post_norm)
        pass->x_act = kvf__carve(carve, s->R, d->C, s->act);
    else
        pass->hidden = kvf__carve(carve, s->ML, d->C, sizeof(float));
    bool f32 = pass->model->act == KVF__F32;
    if (s->whole && !s->weights) pass->normed = kvf__carve(carve, s->R, d->C, s->act);
    if (s->whole && !f32) pass->normed_f = kvf__carve(carve, s->R, d->C, sizeof(float));
    pass->att_lab = kvf__carve(carve, s->ML, s->att, s->act);
    pass->g = kvf__carve(carve, s->R, s->plane, s->act);
    pass->xhat_f = kvf__carve(carve, s->ML, d->C, s->act);
    pass->in_f = s->whole || d->post_norm ? kvf__carve(carve, s->ML, d->C, s->act) : pass->xhat_f;
    pass->rstd_f = kvf__carve(carve, s->ML, 1, sizeof(float));
    if (pass->limits.row_dropout || pass->limits.infix) {
        int64_t one = 2 * d->G * d->D * pass->limits.P, rows = pass->limits.rows;
        pass->row_kv = kvf__carve(carve, rows, one, sizeof(float));
        pass->row_dkv = kvf__carve(carve, pass->limits.backward ? rows : 0, one, sizeof(float));
        pass->row_stream = kvf__carve(carve, rows, 1, sizeof(kvf__rng));
    }
    if (s->adapter) pass->adapt_part = kvf__carve(carve, s->R, d->C, sizeof(float));
    if (pass->limits.base_dropout) {
        pass->drop_stream = kvf__carve(carve, pass->limits.rows, 1, sizeof(kvf__rng));
        pass->attn_stream = kvf__carve(carve, pass->limits.rows, 1, sizeof(kvf__rng));
        pass->drop_row = kvf__carve(carve, s->M, 1, sizeof(int32_t));
        pass->half = kvf__carve(carve, s->R, d->C, sizeof(float));
    }
    pass->logits = kvf__carve(carve, s->head_rows, KVF__VOCAB_PLANE, sizeof(float));
    pass->ce_max = kvf__carve(carve, s->head_rows, 1, sizeof(float));
    pass->ce_sum = kvf__carve(carve, s->head_rows, 1, sizeof(float));
    pass->ce_target = kvf__carve(carve, s->head_rows, 1, sizeof(float));
    pass->target = kvf__carve(carve, s->head_rows, 1, sizeof(int32_t));
    pass->soft_logit = kvf__carve(carve, s->head_rows, pass->limits.soft, sizeof(float));
}

static void lay_bwd(kvf__pass *pass, kvf__carver *carve, const sizes *s)
{
    const kvf__desc *d = &pass->model->desc;
    bool f32 = pass->model->act == KVF__F32;

    pass->e = kvf__carve(carve, s->head_rows, KVF__VOCAB_PLANE, s->act);
    pass->acc = kvf__carve(carve, s->head_rows, d->C, sizeof(float));
    pass->target_row = kvf__carve(carve, s->head_rows, d->C, sizeof(float));
    if (pass->limits.soft) pass->soft_row = kvf__carve(carve, s->head_rows, d->C, sizeof(float));
    pass->dx = kvf__carve(carve, s->M, d->C, sizeof(float));
    pass->dx_lab = kvf__carve(carve, s->ML, d->C, sizeof(float));
    pass->dx_act = f32 ? pass->dx : kvf__carve(carve, s->M, d->C, s->act);
    pass->dx_lab_act = f32 ? pass->dx_lab : kvf__carve(carve, s->ML, d->C, s->act);
    pass->dxhat = kvf__carve(carve, s->R, d->C, s->act);
    pass->da = kvf__carve(carve, s->R, s->plane, s->act);
    if (d->gated) {
        pass->dg = kvf__carve(carve, s->R, s->plane, s->act);
        pass->du = kvf__carve(carve, s->R, s->plane, s->act);
    }
    pass->datt = kvf__carve(carve, s->M, s->att, s->act);
    pass->datt_lab = kvf__carve(carve, s->ML, s->att, s->act);
    pass->dqkv = kvf__carve(carve, s->M, s->qkv, s->act);
    if (pass->limits.base_dropout) {
        pass->dhalf = kvf__carve(carve, s->R, d->C, sizeof(float));
        pass->dhalf_act = f32 ? pass->dhalf : kvf__carve(carve, s->R, d->C, s->act);
    }
    if (s->adapter) {
        pass->dadapt = kvf__carve(carve, s->R, d->C, sizeof(float));
        pass->dadapt_act = f32 ? pass->dadapt : kvf__carve(carve, s->R, d->C, s->act);
        pass->dadapt_h = kvf__carve(carve, s->R, s->adapter, sizeof(float));
    }
    pass->dlead = kvf__carve(carve, pass->limits.lead_tokens, s->qkv, sizeof(float));
    if (s->weights && !f32) {
        int64_t widest = larger(larger(s->qkv, s->plane), larger(s->att, d->C));
        pass->wide_x = kvf__carve(carve, s->R, widest, sizeof(float));
        pass->wide_dy = kvf__carve(carve, s->R, widest, sizeof(float));
    }
    if (pass->model->masters && pass->model->embed_gamma) {
        pass->embed_xhat = kvf__carve(carve, s->M, d->C, s->act);
        pass->embed_rstd = kvf__carve(carve, s->M, 1, sizeof(float));
    }
    if (pass->limits.recompute) pass->entered = kvf__carve(carve, d->L * s->M, d->C, sizeof(float));
}

static void lay_out(kvf__pass *pass, kvf__carver *carve)
{
    sizes s = sizes_of(pass);

    lay_fwd(pass, carve, &s);
    lay_layers(pass, carve, &s);
    if (pass->limits.backward) lay_bwd(pass, carve, &s);
}

static kvf_status arena_create(kvf_ctx *ctx, kvf__pass *pass)
{
    kvf__carver carve = {0};

    lay_out(pass, &carve);
    if (carve.overflow)
        return kvf__fail(ctx, KVF_ENOMEM,
                         "pass: %lld tokens and %lld labels are more than memory can address",
                         (long long)pass->limits.tokens, (long long)pass->limits.labels);
    KVF_TRY(kvf__arena_init(ctx, &pass->arena, carve.bytes));
    carve = (kvf__carver){.arena = &pass->arena};
    lay_out(pass, &carve);
    return KVF_OK;
}

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
                 {"cache_len", limits->cache_len, 0},
                 {"soft", limits->soft, 0},
                 {"lead_len", limits->lead_len, 0},
                 {"lead_tokens", limits->lead_tokens, 0},
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
    int64_t prefixes = limits->row_dropout || limits->infix ? limits->rows
                                                            : larger(limits->sections, 1);
    const kvf__attn_limits attn = {
        .rows = limits->rows,
        .tokens = kvf__pass_padded(pass->model, limits->tokens),
        .row_len = limits->row_len,
        .shared_len = limits->P + limits->cache_len + limits->lead_len,
        .grad_len = limits->backward ? prefixes * limits->P + limits->lead_tokens : 0,
        .H = d->H,
        .G = d->G,
        .D = d->D,
        .backward = limits->backward,
        .dropout = limits->base_dropout && d->attention_dropout > 0};
    return kvf__attn_plan_create(ctx, &attn, &pass->plan);
}

/* Enough rope rows for a batch at the limits that starts behind its prefix; fwd extends them for
 * larger offsets. */
static kvf_status rope_create(kvf_ctx *ctx, kvf__pass *pass)
{
    const kvf__desc *d = &pass->model->desc;
    int64_t rows = pass->limits.P + pass->limits.cache_len + pass->limits.lead_len +
                   pass->limits.row_len;

    if (d->positions != KVF__POS_ROPE) return KVF_OK;
    return kvf__rope_tables(ctx, pass->model, rows < d->max_positions ? rows : d->max_positions);
}

kvf_status kvf__pass_create(kvf_ctx *ctx, kvf__model *model, const kvf__pass_limits *limits,
                            kvf__pass **out)
{
    kvf__pass *pass = NULL;
    kvf_status st;

    st = check_limits(ctx, model, limits);
    if (st) goto out;
    st = kvf__alloc(ctx, sizeof *pass, &pass);
    if (st) goto out;
    pass->model = model;
    pass->limits = *limits;
    pass->threads = kvf_ctx_threads(ctx);
    st = arena_create(ctx, pass);
    if (st) goto out;
    st = plan_create(ctx, pass);
    if (st) goto out;
    st = rope_create(ctx, pass);
    if (st) goto out;

    *out = pass;
    pass = NULL;
out:
    kvf__pass_free(pass);
    return st;
}

void kvf__pass_free(kvf__pass *pass)
{
    if (!pass) return;
    kvf__attn_plan_free(pass->plan);
    kvf__arena_done(&pass->arena);
    kvf__free(pass);
}

/* ---- prepare --------------------------------------------------------------------------------- */

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
    for (int p = 0; p < pass->model->n_planes; p++) {
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

    for (int64_t p = 0; p < model->n_vocab_planes; p++) {
        const use uses[] = {
            {model->head[p], KVF__F32, 0},
            {pass->limits.backward ? model->head_t[p] : NULL, KVF__F32, KVF__MM_ADD}};
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
