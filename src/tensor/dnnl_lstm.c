/* The LSTM of lstm.h with oneDNN's primitive.
 *
 * oneDNN needs weights in its own layouts, which differ between forward and backward, while AdamW
 * updates them in torch's. Both directions are copied side by side ([2, 4 H, I], oneDNN's ldgoi)
 * and reordered before each run, gradients back after it. The cost is a small part of a step,
 * because the sequence is short. oneDNN adds to the gradients of weights, so they are zeroed first.
 *
 * Primitives are made for one thread and run by one, because oneDNN divides their sums by the
 * number of threads, which would affect bits. */
#include "arena.h"
#include "dnnl_engine.h"
#include "lstm.h"

#include <string.h>

/* A layout required by a primitive, its memory, and the reorder into it or (gradients) out of
 * it. */
typedef struct layout {
    dnnl_memory_t memory;
    dnnl_primitive_t reorder;
} layout;

/* One array of weights. Its gradient reuses the plain memory after the weights were read. */
typedef struct weights {
    float *plain;          /* [2, 4 H, width], in torch's layout */
    dnnl_memory_desc_t md; /* layout of plain: dims [1, 2, width, 4, H] as ldgoi */
    dnnl_memory_t memory;
    layout fwd, bwd, grad;
} weights;

typedef struct direction {
    dnnl_primitive_desc_t pd;
    dnnl_primitive_t primitive;
} direction;

enum { SRC, DST, BIAS, DSRC, DDST, DBIAS, WORKSPACE, MEMORIES };

struct kvf__lstm {
    kvf__lstm_sizes s;
    bool reference; /* oneDNN has no primitive for this CPU */
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    kvf__lstm_mds mds; /* weights in any layout */
    direction fwd, bwd;
    weights w[2]; /* weights for the input and for the state */
    dnnl_memory_t memory[MEMORIES];

    void *block;               /* memory of the arrays below and the plain weights */
    float *x, *y;              /* [T, I], [T, 2 H]: copies for the backward pass */
    float *dx, *dy;            /* gradients of x and y */
    float *b, *db;             /* [2, 4, H] the two biases added */
    float *keep;               /* reference only */
    double *scratch;           /* reference only */
    kvf__lstm_weights seen[2]; /* reference only: weights of the last fwd, borrowed */
};

static kvf_status fail_dnnl(kvf_ctx *ctx, const kvf__lstm *l, dnnl_status_t status)
{
    const char *why;
    kvf_status st = kvf__dnnl_failed(status, &why);
    return kvf__fail(ctx, st, "oneDNN: an LSTM of %lld steps, %lld to 2 * %lld: %s",
                     (long long)l->s.T, (long long)l->s.I, (long long)l->s.H, why);
}

/* ---- create ---------------------------------------------------------------------------------- */

static dnnl_status_t describe(kvf__lstm *l)
{
    const int64_t T = l->s.T, I = l->s.I, H = l->s.H;
    const dnnl_dims_t src = {T, 1, I}, dst = {T, 1, 2 * H}, bias = {1, 2, 4, H};
    const dnnl_dims_t wx = {1, 2, I, 4, H}, wh = {1, 2, H, 4, H};

    KVF__DNNL_TRY(kvf__md_create(&l->mds.src, 3, src, dnnl_f32, dnnl_tnc));
    KVF__DNNL_TRY(kvf__md_create(&l->mds.dst, 3, dst, dnnl_f32, dnnl_tnc));
    KVF__DNNL_TRY(kvf__md_create(&l->mds.bias, 4, bias, dnnl_f32, dnnl_ldgo));
    KVF__DNNL_TRY(kvf__md_create(&l->mds.wx, 5, wx, dnnl_f32, dnnl_format_tag_any));
    KVF__DNNL_TRY(kvf__md_create(&l->mds.wh, 5, wh, dnnl_f32, dnnl_format_tag_any));
    KVF__DNNL_TRY(kvf__md_create(&l->w[0].md, 5, wx, dnnl_f32, dnnl_ldgoi));
    return kvf__md_create(&l->w[1].md, 5, wh, dnnl_f32, dnnl_ldgoi);
}

static dnnl_status_t make_primitives(kvf__lstm *l)
{
    KVF__DNNL_TRY(kvf__lstm_fwd_pd_create(&l->fwd.pd, l->engine, &l->mds));
    KVF__DNNL_TRY(kvf__lstm_bwd_pd_create(&l->bwd.pd, l->engine, &l->mds, l->fwd.pd));
    KVF__DNNL_TRY(dnnl_primitive_create(&l->fwd.primitive, l->fwd.pd));
    return dnnl_primitive_create(&l->bwd.primitive, l->bwd.pd);
}

/* Makes the layouts of an array of weights and the reorders between them. which: oneDNN's number of
 * the array. */
static dnnl_status_t make_weights(kvf__lstm *l, int which)
{
    weights *w = &l->w[which];
    kvf__md_arg plain = KVF__MD(&w->md);
    kvf__md_arg fwd = dnnl_primitive_desc_query_md(l->fwd.pd, dnnl_query_weights_md, which);
    kvf__md_arg bwd = dnnl_primitive_desc_query_md(l->bwd.pd, dnnl_query_weights_md, which);
    kvf__md_arg grad = dnnl_primitive_desc_query_md(l->bwd.pd, dnnl_query_diff_weights_md, which);

    KVF__DNNL_TRY(dnnl_memory_create(&w->memory, plain, l->engine, w->plain));
    KVF__DNNL_TRY(dnnl_memory_create(&w->fwd.memory, fwd, l->engine, DNNL_MEMORY_ALLOCATE));
    KVF__DNNL_TRY(dnnl_memory_create(&w->bwd.memory, bwd, l->engine, DNNL_MEMORY_ALLOCATE));
    KVF__DNNL_TRY(dnnl_memory_create(&w->grad.memory, grad, l->engine, DNNL_MEMORY_ALLOCATE));
    KVF__DNNL_TRY(kvf__reorder_create(l->engine, plain, fwd, &w->fwd.reorder));
    KVF__DNNL_TRY(kvf__reorder_create(l->engine, plain, bwd, &w->bwd.reorder));
    return kvf__reorder_create(l->engine, grad, plain, &w->grad.reorder);
}

static dnnl_status_t make_memories(kvf__lstm *l)
{
    const dnnl_memory_desc_t *const mds[] = {&l->mds.src, &l->mds.dst, &l->mds.bias};
    float *const data[] = {l->x, l->y, l->b, l->dx, l->dy, l->db};

    for (int i = 0; i < WORKSPACE; i++)
        KVF__DNNL_TRY(dnnl_memory_create(&l->memory[i], KVF__MD(mds[i % 3]), l->engine, data[i]));
    return dnnl_memory_create(&l->memory[WORKSPACE],
                              dnnl_primitive_desc_query_md(l->fwd.pd, dnnl_query_workspace_md, 0),
                              l->engine, DNNL_MEMORY_ALLOCATE);
}

static void lay(void *object, kvf__carver *carver)
{
    kvf__lstm *l = object;
    const int64_t T = l->s.T, I = l->s.I, H = l->s.H;

    l->x = kvf__carve(carver, T, I, sizeof *l->x);
    l->y = kvf__carve(carver, T, 2 * H, sizeof *l->y);
    l->dx = kvf__carve(carver, T, I, sizeof *l->dx);
    l->dy = kvf__carve(carver, T, 2 * H, sizeof *l->dy);
    l->b = kvf__carve(carver, 8, H, sizeof *l->b);
    l->db = kvf__carve(carver, 8, H, sizeof *l->db);
    l->w[0].plain = kvf__carve(carver, 8 * H, I, sizeof *l->w[0].plain);
    l->w[1].plain = kvf__carve(carver, 8 * H, H, sizeof *l->w[1].plain);
}

static kvf_status alloc_reference(kvf_ctx *ctx, kvf__lstm *l)
{
    const int64_t H = l->s.H;
    l->reference = true;
    KVF_TRY(kvf__alloc_array(ctx, (size_t)(2 * l->s.T * 6 * H), sizeof(float), &l->keep));
    return kvf__alloc_array(ctx, (size_t)(6 * H), sizeof(double), &l->scratch);
}

static kvf_status build(kvf_ctx *ctx, kvf__lstm *l)
{
    KVF_TRY(kvf__carve_block(ctx, lay, l, &l->block));
    KVF_TRY(kvf__dnnl_open(ctx, &l->engine, &l->stream));
    dnnl_status_t st = describe(l);
    const int threads = kvf__dnnl_threads(1);
    if (!st) st = make_primitives(l);
    kvf__dnnl_threads(threads);
    if (st == dnnl_unimplemented) return alloc_reference(ctx, l);
    if (!st) st = make_weights(l, 0);
    if (!st) st = make_weights(l, 1);
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
    KVF__GIVE(st, out, lstm, kvf__lstm_free(lstm));
    return st;
}

static void layout_done(layout *l)
{
    dnnl_primitive_destroy(l->reorder);
    dnnl_memory_destroy(l->memory);
}

static void weights_done(weights *w)
{
    layout_done(&w->fwd);
    layout_done(&w->bwd);
    layout_done(&w->grad);
    dnnl_memory_destroy(w->memory);
    kvf__md_destroy(&w->md);
}

static void direction_done(direction *d)
{
    dnnl_primitive_destroy(d->primitive);
    dnnl_primitive_desc_destroy(d->pd);
}

void kvf__lstm_free(kvf__lstm *l)
{
    if (!l) return;
    weights_done(&l->w[0]);
    weights_done(&l->w[1]);
    for (int i = 0; i < MEMORIES; i++)
        dnnl_memory_destroy(l->memory[i]);
    direction_done(&l->fwd);
    direction_done(&l->bwd);
    dnnl_memory_desc_t *mds[] = {&l->mds.src, &l->mds.dst, &l->mds.wx, &l->mds.wh, &l->mds.bias};
    for (size_t i = 0; i < sizeof mds / sizeof mds[0]; i++)
        kvf__md_destroy(mds[i]);
    dnnl_stream_destroy(l->stream);
    dnnl_engine_destroy(l->engine);
    kvf__free(l->block);
    kvf__free(l->keep);
    kvf__free(l->scratch);
    kvf__free(l);
}

/* ---- run ------------------------------------------------------------------------------------- */

static dnnl_status_t to_layout(const kvf__lstm *l, const weights *w, const layout *to)
{
    return kvf__reorder_run(l->stream, to->reorder, w->memory, to->memory);
}

static dnnl_status_t run_primitive(const kvf__lstm *l, const direction *d, int n,
                                   const dnnl_exec_arg_t *args)
{
    const int threads = kvf__dnnl_threads(1);
    const dnnl_status_t st = dnnl_primitive_execute(d->primitive, l->stream, n, args);
    kvf__dnnl_threads(threads);
    return st;
}

/* Copies both directions of torch's arrays, one after the other. */
static void gather(const kvf__lstm *l, const kvf__lstm_weights w[2])
{
    const int64_t H = l->s.H, nx = 4 * H * l->s.I, nh = 4 * H * H;
    for (int d = 0; d < 2; d++) {
        memcpy(l->w[0].plain + d * nx, w[d].wx, (size_t)nx * sizeof(float));
        memcpy(l->w[1].plain + d * nh, w[d].wh, (size_t)nh * sizeof(float));
        for (int64_t i = 0; i < 4 * H; i++)
            l->b[d * 4 * H + i] = w[d].bx[i] + w[d].bh[i];
    }
}

static dnnl_status_t run_fwd(kvf__lstm *l)
{
    const dnnl_exec_arg_t args[] = {
        {DNNL_ARG_SRC_LAYER, l->memory[SRC]},        {DNNL_ARG_WEIGHTS_LAYER, l->w[0].fwd.memory},
        {DNNL_ARG_WEIGHTS_ITER, l->w[1].fwd.memory}, {DNNL_ARG_BIAS, l->memory[BIAS]},
        {DNNL_ARG_DST_LAYER, l->memory[DST]},        {DNNL_ARG_WORKSPACE, l->memory[WORKSPACE]}};

    for (int i = 0; i < 2; i++)
        KVF__DNNL_TRY(to_layout(l, &l->w[i], &l->w[i].fwd));
    KVF__DNNL_TRY(run_primitive(l, &l->fwd, 6, args));
    return dnnl_stream_wait(l->stream);
}

kvf_status kvf__lstm_fwd(kvf_ctx *ctx, kvf__lstm *l, float *y, const float *x,
                         const kvf__lstm_weights w[2])
{
    memcpy(l->x, x, (size_t)(l->s.T * l->s.I) * sizeof *x);
    if (l->reference) {
        memcpy(l->seen, w, sizeof l->seen);
        kvf__lstm_ref_fwd(&l->s, l->y, l->keep, x, w);
    } else {
        gather(l, w);
        dnnl_status_t st = run_fwd(l);
        if (st) return fail_dnnl(ctx, l, st);
    }
    memcpy(y, l->y, (size_t)(l->s.T * 2 * l->s.H) * sizeof *y);
    return KVF_OK;
}

/* Zeroes the gradient of weights number `which`. */
static dnnl_status_t zero_grad(const kvf__lstm *l, int which)
{
    kvf__md_arg md = dnnl_primitive_desc_query_md(l->bwd.pd, dnnl_query_diff_weights_md, which);
    void *data = NULL;
    KVF__DNNL_TRY(dnnl_memory_get_data_handle(l->w[which].grad.memory, &data));
    memset(data, 0, dnnl_memory_desc_get_size(md));
    return dnnl_success;
}

static dnnl_status_t run_bwd(kvf__lstm *l)
{
    const dnnl_exec_arg_t args[] = {
        {DNNL_ARG_SRC_LAYER, l->memory[SRC]},
        {DNNL_ARG_WEIGHTS_LAYER, l->w[0].bwd.memory},
        {DNNL_ARG_WEIGHTS_ITER, l->w[1].bwd.memory},
        {DNNL_ARG_BIAS, l->memory[BIAS]},
        {DNNL_ARG_DST_LAYER, l->memory[DST]},
        {DNNL_ARG_WORKSPACE, l->memory[WORKSPACE]},
        {DNNL_ARG_DIFF_SRC_LAYER, l->memory[DSRC]},
        {DNNL_ARG_DIFF_WEIGHTS_LAYER, l->w[0].grad.memory},
        {DNNL_ARG_DIFF_WEIGHTS_ITER, l->w[1].grad.memory},
        {DNNL_ARG_DIFF_BIAS, l->memory[DBIAS]},
        {DNNL_ARG_DIFF_DST_LAYER, l->memory[DDST]},
    };

    for (int i = 0; i < 2; i++) {
        KVF__DNNL_TRY(to_layout(l, &l->w[i], &l->w[i].bwd));
        KVF__DNNL_TRY(zero_grad(l, i));
    }
    memset(l->db, 0, (size_t)(8 * l->s.H) * sizeof *l->db);
    KVF__DNNL_TRY(run_primitive(l, &l->bwd, sizeof args / sizeof args[0], args));
    for (int i = 0; i < 2; i++)
        KVF__DNNL_TRY(
            kvf__reorder_run(l->stream, l->w[i].grad.reorder, l->w[i].grad.memory, l->w[i].memory));
    return dnnl_stream_wait(l->stream);
}

static void scatter(const kvf__lstm *l, const kvf__lstm_grads g[2])
{
    const int64_t H = l->s.H, nx = 4 * H * l->s.I, nh = 4 * H * H;
    for (int d = 0; d < 2; d++) {
        memcpy(g[d].wx, l->w[0].plain + d * nx, (size_t)nx * sizeof(float));
        memcpy(g[d].wh, l->w[1].plain + d * nh, (size_t)nh * sizeof(float));
        memcpy(g[d].bx, l->db + d * 4 * H, (size_t)(4 * H) * sizeof(float));
        memcpy(g[d].bh, l->db + d * 4 * H, (size_t)(4 * H) * sizeof(float));
    }
}

kvf_status kvf__lstm_bwd(kvf_ctx *ctx, kvf__lstm *l, float *dx, const kvf__lstm_grads g[2],
                         const float *dy)
{
    if (l->reference) {
        kvf__lstm_ref_bwd(&l->s, dx, g, dy, l->y, l->keep, l->x, l->seen, l->scratch);
        return KVF_OK;
    }
    memcpy(l->dy, dy, (size_t)(l->s.T * 2 * l->s.H) * sizeof *dy);
    dnnl_status_t st = run_bwd(l);
    if (st) return fail_dnnl(ctx, l, st);
    memcpy(dx, l->dx, (size_t)(l->s.T * l->s.I) * sizeof *dx);
    scatter(l, g);
    return KVF_OK;
}
