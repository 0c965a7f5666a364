/* The LSTM of lstm.h by oneDNN's primitive; see there for what is computed.
 *
 * oneDNN wants weights in layouts of its own, others forward than backward, while AdamW steps them
 * as torch lays them out; both directions are copied side by side ([2, 4 H, I], oneDNN's ldgoi) and
 * reordered before each run, gradients back after it. That is a small part of a step: the sequence
 * is short, the weights are read once. oneDNN adds to the gradients of weights, so they are zeroed
 * first. */
#include "dnnl_engine.h"
#include "lstm.h"

#include <string.h>

/* One array: as torch has it, and as a primitive wants it. */
typedef struct weights {
    float *plain;          /* [2, 4 H, width], owned */
    dnnl_memory_desc_t md; /* of plain: dims [1, 2, width, 4, H] as ldgoi */
    dnnl_memory_t plain_memory;
    dnnl_memory_t fwd, bwd, grad;               /* in the primitives' layouts, memory theirs */
    dnnl_primitive_t to_fwd, to_bwd, from_grad; /* reorders */
    int64_t width;
} weights;

struct kvf__lstm {
    kvf__lstm_sizes s;
    bool reference; /* oneDNN has none here */
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    kvf__lstm_mds mds; /* weights in any layout */
    dnnl_primitive_desc_t fwd_pd, bwd_pd;
    dnnl_primitive_t fwd, bwd;
    weights wx, wh;
    dnnl_memory_t src, dst, bias, workspace, dsrc, ddst, dbias;

    float *x, *y;           /* [T, I], [T, 2 H]: copies for the backward pass */
    float *dx, *dy;         /* the same of the gradients */
    float *b, *db;          /* [2, 4, H] the two biases added */
    float *keep;            /* reference only */
    double *scratch;        /* reference only */
    kvf__lstm_weights w[2]; /* reference only: of the last fwd, viewed */
};

static kvf_status fail_dnnl(kvf_ctx *ctx, const kvf__lstm *l, dnnl_status_t status)
{
    return kvf__fail(ctx, status == dnnl_out_of_memory ? KVF_ENOMEM : KVF_EINTERNAL,
                     "oneDNN: an LSTM of %lld steps, %lld to 2 * %lld: %s", (long long)l->s.T,
                     (long long)l->s.I, (long long)l->s.H,
                     status == dnnl_out_of_memory ? "out of memory" : "failed");
}

/* ---- create ---------------------------------------------------------------------------------- */

static dnnl_status_t describe(kvf__lstm *l)
{
    const int64_t T = l->s.T, I = l->s.I, H = l->s.H;
    const dnnl_dims_t src = {T, 1, I}, dst = {T, 1, 2 * H}, bias = {1, 2, 4, H};
    const dnnl_dims_t wx = {1, 2, I, 4, H}, wh = {1, 2, H, 4, H};
    dnnl_status_t st;

    st = kvf__md_create(&l->mds.src, 3, src, dnnl_f32, dnnl_tnc);
    if (st) return st;
    st = kvf__md_create(&l->mds.dst, 3, dst, dnnl_f32, dnnl_tnc);
    if (st) return st;
    st = kvf__md_create(&l->mds.bias, 4, bias, dnnl_f32, dnnl_ldgo);
    if (st) return st;
    st = kvf__md_create(&l->mds.wx, 5, wx, dnnl_f32, dnnl_format_tag_any);
    if (st) return st;
    st = kvf__md_create(&l->mds.wh, 5, wh, dnnl_f32, dnnl_format_tag_any);
    if (st) return st;
    st = kvf__md_create(&l->wx.md, 5, wx, dnnl_f32, dnnl_ldgoi);
    if (st) return st;
    return kvf__md_create(&l->wh.md, 5, wh, dnnl_f32, dnnl_ldgoi);
}

static dnnl_status_t make_primitives(kvf__lstm *l)
{
    dnnl_status_t st;

    st = kvf__lstm_fwd_pd_create(&l->fwd_pd, l->engine, &l->mds);
    if (st) return st;
    st = kvf__lstm_bwd_pd_create(&l->bwd_pd, l->engine, &l->mds, l->fwd_pd);
    if (st) return st;
    st = dnnl_primitive_create(&l->fwd, l->fwd_pd);
    if (st) return st;
    return dnnl_primitive_create(&l->bwd, l->bwd_pd);
}

static dnnl_status_t make_reorder(const kvf__lstm *l, kvf__md_arg from, kvf__md_arg to,
                                  dnnl_primitive_t *out)
{
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t st = dnnl_reorder_primitive_desc_create(&pd, from, l->engine, to, l->engine,
                                                          NULL);
    if (!st) st = dnnl_primitive_create(out, pd);
    dnnl_primitive_desc_destroy(pd);
    return st;
}

/* Memory of the primitives for an array of weights, and the ways there and back. what, dwhat: how
 * oneDNN numbers it among the weights. */
static dnnl_status_t make_weights(kvf__lstm *l, weights *w, int which)
{
    kvf__md_arg fwd = dnnl_primitive_desc_query_md(l->fwd_pd, dnnl_query_weights_md, which);
    kvf__md_arg bwd = dnnl_primitive_desc_query_md(l->bwd_pd, dnnl_query_weights_md, which);
    kvf__md_arg grad = dnnl_primitive_desc_query_md(l->bwd_pd, dnnl_query_diff_weights_md, which);
    dnnl_status_t st;

    st = dnnl_memory_create(&w->plain_memory, KVF__MD(&w->md), l->engine, w->plain);
    if (st) return st;
    st = dnnl_memory_create(&w->fwd, fwd, l->engine, DNNL_MEMORY_ALLOCATE);
    if (st) return st;
    st = dnnl_memory_create(&w->bwd, bwd, l->engine, DNNL_MEMORY_ALLOCATE);
    if (st) return st;
    st = dnnl_memory_create(&w->grad, grad, l->engine, DNNL_MEMORY_ALLOCATE);
    if (st) return st;
    st = make_reorder(l, KVF__MD(&w->md), fwd, &w->to_fwd);
    if (st) return st;
    st = make_reorder(l, KVF__MD(&w->md), bwd, &w->to_bwd);
    if (st) return st;
    return make_reorder(l, grad, KVF__MD(&w->md), &w->from_grad);
}

static dnnl_status_t make_memories(kvf__lstm *l)
{
    const struct {
        dnnl_memory_t *memory;
        dnnl_memory_desc_t *md;
        float *data;
    } all[] = {{&l->src, &l->mds.src, l->x},   {&l->dst, &l->mds.dst, l->y},
               {&l->bias, &l->mds.bias, l->b}, {&l->dsrc, &l->mds.src, l->dx},
               {&l->ddst, &l->mds.dst, l->dy}, {&l->dbias, &l->mds.bias, l->db}};

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        dnnl_status_t st = dnnl_memory_create(all[i].memory, KVF__MD(all[i].md), l->engine,
                                              all[i].data);
        if (st) return st;
    }
    return dnnl_memory_create(&l->workspace,
                              dnnl_primitive_desc_query_md(l->fwd_pd, dnnl_query_workspace_md, 0),
                              l->engine, DNNL_MEMORY_ALLOCATE);
}

static kvf_status alloc_memory(kvf_ctx *ctx, kvf__lstm *l)
{
    const int64_t T = l->s.T, I = l->s.I, H = l->s.H;
    const struct {
        float **at;
        int64_t n;
    } all[] = {
        {&l->x, T * I}, {&l->y, T * 2 * H}, {&l->dx, T * I},           {&l->dy, T * 2 * H},
        {&l->b, 8 * H}, {&l->db, 8 * H},    {&l->wx.plain, 8 * H * I}, {&l->wh.plain, 8 * H * H}};

    l->wx.width = I;
    l->wh.width = H;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        KVF_TRY(kvf__alloc_array(ctx, (size_t)all[i].n, sizeof(float), all[i].at));
    return KVF_OK;
}

static kvf_status take_reference(kvf_ctx *ctx, kvf__lstm *l)
{
    const int64_t H = l->s.H;
    l->reference = true;
    KVF_TRY(kvf__alloc_array(ctx, (size_t)(2 * l->s.T * 6 * H), sizeof(float), &l->keep));
    return kvf__alloc_array(ctx, (size_t)(6 * H), sizeof(double), &l->scratch);
}

static kvf_status build(kvf_ctx *ctx, kvf__lstm *l)
{
    dnnl_status_t st;

    KVF_TRY(alloc_memory(ctx, l));
    KVF_TRY(kvf__dnnl_open(ctx, &l->engine, &l->stream));
    st = describe(l);
    if (!st) st = make_primitives(l);
    if (st == dnnl_unimplemented) return take_reference(ctx, l);
    if (!st) st = make_weights(l, &l->wx, 0);
    if (!st) st = make_weights(l, &l->wh, 1);
    if (!st) st = make_memories(l);
    return st ? fail_dnnl(ctx, l, st) : KVF_OK;
}

kvf_status kvf__lstm_create(kvf_ctx *ctx, const kvf__lstm_sizes *sizes, kvf__lstm **out)
{
    kvf__lstm *lstm = NULL;
    size_t most;
    if (sizes->T < 1 || sizes->I < 1 || sizes->H < 1)
        return kvf__fail(ctx, KVF_ESHAPE, "lstm: %lld steps, %lld to 2 * %lld, want none below 1",
                         (long long)sizes->T, (long long)sizes->I, (long long)sizes->H);
    if (!kvf__mul((size_t)(sizes->I > sizes->H ? sizes->I : sizes->H), (size_t)sizes->H, &most) ||
        most > (size_t)INT64_MAX / 64)
        return kvf__fail(ctx, KVF_ENOMEM, "lstm: a state of %lld is more than memory can address",
                         (long long)sizes->H);
    KVF_TRY(kvf__alloc(ctx, sizeof *lstm, &lstm));
    lstm->s = *sizes;
    kvf_status st = build(ctx, lstm);
    if (st)
        kvf__lstm_free(lstm);
    else
        *out = lstm;
    return st;
}

static void weights_done(weights *w)
{
    dnnl_primitive_destroy(w->to_fwd);
    dnnl_primitive_destroy(w->to_bwd);
    dnnl_primitive_destroy(w->from_grad);
    dnnl_memory_destroy(w->plain_memory);
    dnnl_memory_destroy(w->fwd);
    dnnl_memory_destroy(w->bwd);
    dnnl_memory_destroy(w->grad);
    kvf__md_destroy(&w->md);
    kvf__free(w->plain);
}

void kvf__lstm_free(kvf__lstm *l)
{
    if (!l) return;
    weights_done(&l->wx);
    weights_done(&l->wh);
    dnnl_memory_t memories[] = {l->src, l->dst, l->bias, l->workspace, l->dsrc, l->ddst, l->dbias};
    for (size_t i = 0; i < sizeof memories / sizeof memories[0]; i++)
        dnnl_memory_destroy(memories[i]);
    dnnl_primitive_destroy(l->fwd);
    dnnl_primitive_destroy(l->bwd);
    dnnl_primitive_desc_destroy(l->fwd_pd);
    dnnl_primitive_desc_destroy(l->bwd_pd);
    dnnl_memory_desc_t *mds[] = {&l->mds.src, &l->mds.dst, &l->mds.wx, &l->mds.wh, &l->mds.bias};
    for (size_t i = 0; i < sizeof mds / sizeof mds[0]; i++)
        kvf__md_destroy(mds[i]);
    dnnl_stream_destroy(l->stream);
    dnnl_engine_destroy(l->engine);
    float *blocks[] = {l->x, l->y, l->dx, l->dy, l->b, l->db, l->keep};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        kvf__free(blocks[i]);
    kvf__free(l->scratch);
    kvf__free(l);
}

/* ---- run ------------------------------------------------------------------------------------- */

static dnnl_status_t reorder(const kvf__lstm *l, dnnl_primitive_t how, dnnl_memory_t from,
                             dnnl_memory_t to)
{
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    return dnnl_primitive_execute(how, l->stream, 2, args);
}

/* Both directions of torch's arrays behind each other. */
static void gather(const kvf__lstm *l, const kvf__lstm_weights w[2])
{
    const int64_t H = l->s.H, nx = 4 * H * l->s.I, nh = 4 * H * H;
    for (int d = 0; d < 2; d++) {
        memcpy(l->wx.plain + d * nx, w[d].wx, (size_t)nx * sizeof(float));
        memcpy(l->wh.plain + d * nh, w[d].wh, (size_t)nh * sizeof(float));
        for (int64_t i = 0; i < 4 * H; i++)
            l->b[d * 4 * H + i] = w[d].bx[i] + w[d].bh[i];
    }
}

static dnnl_status_t run_fwd(kvf__lstm *l)
{
    dnnl_status_t st;
    const dnnl_exec_arg_t args[] = {
        {DNNL_ARG_SRC_LAYER, l->src},       {DNNL_ARG_WEIGHTS_LAYER, l->wx.fwd},
        {DNNL_ARG_WEIGHTS_ITER, l->wh.fwd}, {DNNL_ARG_BIAS, l->bias},
        {DNNL_ARG_DST_LAYER, l->dst},       {DNNL_ARG_WORKSPACE, l->workspace}};

    st = reorder(l, l->wx.to_fwd, l->wx.plain_memory, l->wx.fwd);
    if (st) return st;
    st = reorder(l, l->wh.to_fwd, l->wh.plain_memory, l->wh.fwd);
    if (st) return st;
    st = dnnl_primitive_execute(l->fwd, l->stream, 6, args);
    return st ? st : dnnl_stream_wait(l->stream);
}

kvf_status kvf__lstm_fwd(kvf_ctx *ctx, kvf__lstm *l, float *y, const float *x,
                         const kvf__lstm_weights w[2])
{
    memcpy(l->x, x, (size_t)(l->s.T * l->s.I) * sizeof *x);
    if (l->reference) {
        memcpy(l->w, w, sizeof l->w);
        kvf__lstm_ref_fwd(&l->s, l->y, l->keep, x, w);
    } else {
        gather(l, w);
        dnnl_status_t st = run_fwd(l);
        if (st) return fail_dnnl(ctx, l, st);
    }
    memcpy(y, l->y, (size_t)(l->s.T * 2 * l->s.H) * sizeof *y);
    return KVF_OK;
}

static dnnl_status_t zero(dnnl_memory_t memory, kvf__md_arg md)
{
    void *data = NULL;
    dnnl_status_t st = dnnl_memory_get_data_handle(memory, &data);
    if (!st) memset(data, 0, dnnl_memory_desc_get_size(md));
    return st;
}

static dnnl_status_t run_bwd(kvf__lstm *l)
{
    dnnl_status_t st;
    const dnnl_exec_arg_t args[] = {
        {DNNL_ARG_SRC_LAYER, l->src},
        {DNNL_ARG_WEIGHTS_LAYER, l->wx.bwd},
        {DNNL_ARG_WEIGHTS_ITER, l->wh.bwd},
        {DNNL_ARG_BIAS, l->bias},
        {DNNL_ARG_DST_LAYER, l->dst},
        {DNNL_ARG_WORKSPACE, l->workspace},
        {DNNL_ARG_DIFF_SRC_LAYER, l->dsrc},
        {DNNL_ARG_DIFF_WEIGHTS_LAYER, l->wx.grad},
        {DNNL_ARG_DIFF_WEIGHTS_ITER, l->wh.grad},
        {DNNL_ARG_DIFF_BIAS, l->dbias},
        {DNNL_ARG_DIFF_DST_LAYER, l->ddst},
    };
    kvf__md_arg dwx = dnnl_primitive_desc_query_md(l->bwd_pd, dnnl_query_diff_weights_md, 0);
    kvf__md_arg dwh = dnnl_primitive_desc_query_md(l->bwd_pd, dnnl_query_diff_weights_md, 1);

    st = reorder(l, l->wx.to_bwd, l->wx.plain_memory, l->wx.bwd);
    if (st) return st;
    st = reorder(l, l->wh.to_bwd, l->wh.plain_memory, l->wh.bwd);
    if (st) return st;
    st = zero(l->wx.grad, dwx);
    if (st) return st;
    st = zero(l->wh.grad, dwh);
    if (st) return st;
    memset(l->db, 0, (size_t)(8 * l->s.H) * sizeof *l->db);
    st = dnnl_primitive_execute(l->bwd, l->stream, sizeof args / sizeof args[0], args);
    if (st) return st;
    st = reorder(l, l->wx.from_grad, l->wx.grad, l->wx.plain_memory); /* the weights are read */
    if (st) return st;
    st = reorder(l, l->wh.from_grad, l->wh.grad, l->wh.plain_memory);
    return st ? st : dnnl_stream_wait(l->stream);
}

static void scatter(const kvf__lstm *l, const kvf__lstm_grads g[2])
{
    const int64_t H = l->s.H, nx = 4 * H * l->s.I, nh = 4 * H * H;
    for (int d = 0; d < 2; d++) {
        memcpy(g[d].wx, l->wx.plain + d * nx, (size_t)nx * sizeof(float));
        memcpy(g[d].wh, l->wh.plain + d * nh, (size_t)nh * sizeof(float));
        memcpy(g[d].bx, l->db + d * 4 * H, (size_t)(4 * H) * sizeof(float));
        memcpy(g[d].bh, l->db + d * 4 * H, (size_t)(4 * H) * sizeof(float));
    }
}

kvf_status kvf__lstm_bwd(kvf_ctx *ctx, kvf__lstm *l, float *dx, const kvf__lstm_grads g[2],
                         const float *dy)
{
    if (l->reference) {
        kvf__lstm_ref_bwd(&l->s, dx, g, dy, l->y, l->keep, l->x, l->w, l->scratch);
        return KVF_OK;
    }
    memcpy(l->dy, dy, (size_t)(l->s.T * 2 * l->s.H) * sizeof *dy);
    dnnl_status_t st = run_bwd(l);
    if (st) return fail_dnnl(ctx, l, st);
    memcpy(dx, l->dx, (size_t)(l->s.T * l->s.I) * sizeof *dx);
    scatter(l, g);
    return KVF_OK;
}
