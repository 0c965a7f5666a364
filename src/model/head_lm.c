/* The language-model head on the labelled rows: loss, its gradient, or logits. The full logits
 * never exist for a loss.
 *
 * Per pass of at most KVF__HEAD_ROWS rows the vocabulary goes by in planes, keeping the running
 * maximum m and the sum s of exp(logit - m), as in flash attention (Dao et al. 2022):
 *
 *   loss  = log s + m - logit[target]
 *   dxhat = (sum_v exp(logit_v - m) head[v]) / s - head[target]
 *
 * The sum over v accumulates plane by plane in f32 and is rescaled by the kernel whenever m moves;
 * the target's row comes unpacked from the file, times the final norm's gamma where the packed
 * head has that folded in. A head that is trained goes by a second time, once m and s are final,
 * for the gradient of its own weights. */
#include "head_lm.h"
#include "arena.h"
#include "loss.h"
#include "pass_grads.h"
#include "pass_norms.h"
#include "pass_priv.h"
#include "products.h"

#include <math.h>
#include <string.h>

/* ---- sums ------------------------------------------------------------------------------------ */

kvf__vocab_sums kvf__vocab_sums_lay(kvf__carver *carve, int64_t rows)
{
    return (kvf__vocab_sums){
        .logits = kvf__carve(carve, rows, KVF__VOCAB_PLANE, sizeof(float)),
        .max = kvf__carve(carve, rows, 1, sizeof(float)),
        .sum = kvf__carve(carve, rows, 1, sizeof(float)),
        .target_logit = kvf__carve(carve, rows, 1, sizeof(float)),
        .target = kvf__carve(carve, rows, 1, sizeof(int32_t)),
    };
}

void kvf__vocab_sums_begin(const kvf__vocab_sums *sums, int64_t rows)
{
    for (int64_t j = 0; j < rows; j++) {
        sums->max[j] = -INFINITY;
        sums->sum[j] = 0;
        sums->target_logit[j] = 0;
    }
}

double kvf__vocab_label_loss(const kvf__vocab_sums *sums, int64_t j)
{
    return log((double)sums->sum[j]) + (double)sums->max[j] - (double)sums->target_logit[j];
}

kvf_status kvf__vocab_check_labels(kvf_ctx *ctx, const kvf__batch *batch, int64_t V)
{
    for (int64_t j = 0; j < batch->n_labels; j++)
        if (batch->label_id[j] < 0 || batch->label_id[j] >= V)
            return kvf__fail(ctx, KVF_ESHAPE,
                             "batch: label %lld has id %ld, the vocabulary ends at %lld",
                             (long long)j, (long)batch->label_id[j], (long long)V - 1);
    return KVF_OK;
}

kvf_status kvf__vocab_check_sum(kvf_ctx *ctx, double loss_sum)
{
    if (isfinite(loss_sum)) return KVF_OK;
    return kvf__fail(ctx, KVF_ENUMERIC, "loss of the batch is %g, expected a finite number",
                     loss_sum);
}

/* ---- the walk -------------------------------------------------------------------------------- */

void kvf__cap_logits(float cap, float *z, int64_t n)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++)
        z[i] = cap * tanhf(z[i] / cap);
}

/* Of the cap, where it gave the logit z: 1 - tanh^2; of one that was left out 0. */
float kvf__cap_slope(const kvf__model *model, float z)
{
    const float cap = model->desc.factors.logit_cap, t = cap > 0 ? z / cap : 0;
    return fabsf(t) < 1 ? 1 - t * t : 0;
}

/* e [rows, KVF__VOCAB_PLANE] times the slope of the cap on each logit. */
static void cap_bwd(const kvf__vocab_walk *w, int64_t valid)
{
    const kvf__pass *pass = w->pass;
    const kvf__model *m = pass->model;

    if (!(m->desc.factors.logit_cap > 0)) return;
#pragma omp parallel for schedule(static)
    for (int64_t j = 0; j < w->rows; j++) {
        const float *z = pass->head.sums.logits + j * KVF__VOCAB_PLANE;
        char *e = kvf__act_row(m->act, pass->head.e, j, KVF__VOCAB_PLANE);
        for (int64_t v = 0; v < valid; v++, e += kvf__act_size(m->act)) {
            float value;
            kvf__to_f32(m->act, e, &value, 1);
            value *= kvf__cap_slope(m, z[v]);
            kvf__from_f32(m->act, &value, e, 1);
        }
    }
}

static kvf_status plane_logits(const kvf__vocab_walk *w, int64_t p)
{
    kvf__pass *pass = w->pass;
    const kvf__model *m = pass->model;
    const void *x = kvf__act_row(m->act, pass->head.in, w->first, m->desc.C);
    const unsigned directions = KVF__PACK_FORWARD | (w->how->gradient ? KVF__PACK_BACKWARD : 0);

    KVF_TRY(kvf__model_ensure_packed(w->ctx, pass->model, m->desc.L + p, directions));
    if (m->store.late) kvf__pass_lap(pass, KVF__PART_PACK);
    KVF_TRY(kvf__mm_run(w->ctx, m->mm, kvf__vocab_plane(m, p)->fwd, w->rows, x,
                        pass->head.sums.logits, KVF__F32, 0));
    if (m->desc.factors.logit_cap > 0)
        kvf__cap_logits(m->desc.factors.logit_cap, pass->head.sums.logits,
                        w->rows * KVF__VOCAB_PLANE);
    kvf__pass_lap(pass, KVF__PART_HEAD);
    return KVF_OK;
}

/* The plane's logits into the running maxima and sums, and with a gradient acc [rows, C] +=
 * exp(logit - max) head. */
static kvf_status plane_sums(const kvf__vocab_walk *w, int64_t p)
{
    kvf__pass *pass = w->pass;
    const kvf__model *m = pass->model;
    const kvf__vocab_sums *sums = &pass->head.sums;
    const bool gradient = w->how->gradient;

    for (int64_t j = 0; j < w->rows; j++)
        sums->target[j] = j < w->real ? (int32_t)(pass->batch->label_id[w->first + j] -
                                                  p * KVF__VOCAB_PLANE)
                                      : -1;
    const kvf__ce_chunk ce = {.rows = w->rows,
                              .width = KVF__VOCAB_PLANE,
                              .logits = sums->logits,
                              .valid = kvf__vocab_width(m->desc.V, p),
                              .target = sums->target,
                              .max = sums->max,
                              .sum = sums->sum,
                              .target_logit = sums->target_logit,
                              .e = gradient ? pass->head.e : NULL,
                              .acc = gradient ? pass->head.acc : NULL,
                              .C = m->desc.C};
    m->kernels->ce(m->act, &ce);
    kvf__pass_lap(pass, KVF__PART_LOSS);
    if (!gradient) return KVF_OK;
    cap_bwd(w, ce.valid);
    KVF_TRY(kvf__mm_run(w->ctx, m->mm, kvf__vocab_plane(m, p)->bwd, w->rows, pass->head.e,
                        pass->head.acc, KVF__F32, KVF__MM_ADD));
    kvf__pass_lap(pass, KVF__PART_HEAD_BWD);
    return KVF_OK;
}

static kvf_status walk_chunk(kvf__vocab_walk *w)
{
    kvf__pass *pass = w->pass;

    if (w->sums) kvf__vocab_sums_begin(&pass->head.sums, w->rows);
    if (w->how->gradient)
        memset(pass->head.acc, 0, (size_t)(w->rows * pass->model->desc.C) * sizeof(float));
    for (int64_t p = 0; p < pass->model->lm.n; p++) {
        KVF_TRY(plane_logits(w, p));
        if (w->plane) w->plane(w, p);
        if (w->sums) KVF_TRY(plane_sums(w, p));
    }
    return w->chunk ? w->chunk(w) : KVF_OK;
}

kvf_status kvf__vocab_walk_run(kvf__vocab_walk *w, const char *what)
{
    kvf__pass *pass = w->pass;

    if (!pass->model->lm.n) return kvf__no_lm_head(w->ctx, pass->model);
    if (pass->state == KVF__PASS_EMPTY)
        return kvf__fail(w->ctx, KVF_EUSAGE, "pass: %s without a forward pass before it", what);
    pass->times.mark = kvf__clock();
    for (w->first = 0; w->first < pass->batch->n_labels; w->first += KVF__HEAD_ROWS) {
        const int64_t left = pass->ML - w->first, real = pass->batch->n_labels - w->first;
        w->rows = left < KVF__HEAD_ROWS ? left : KVF__HEAD_ROWS;
        w->real = real < w->rows ? real : w->rows;
        KVF_TRY(walk_chunk(w));
    }
    return KVF_OK;
}

/* ---- labels ---------------------------------------------------------------------------------- */

/* dxhat in the act type, or with post-norm dx_lab, because that is the stream. */
float *kvf__head_gradient_rows(const kvf__vocab_walk *w)
{
    const kvf__pass *pass = w->pass;
    const kvf__desc *d = &pass->model->desc;
    return d->block.post_norm ? pass->bwd.dx_lab + w->first * d->C : pass->head.target_row;
}

void kvf__head_gradient_end(const kvf__vocab_walk *w)
{
    kvf__pass *pass = w->pass;
    const kvf__model *m = pass->model;
    int64_t C = m->desc.C;
    float *out = kvf__head_gradient_rows(w);

    memset(out + w->real * C, 0, (size_t)((w->rows - w->real) * C) * sizeof(float));
    void *copy = m->desc.block.post_norm ? pass->bwd.dx_lab_act : pass->bwd.dxhat;
    if (copy != (void *)pass->bwd.dx_lab)
        m->kernels->from_f32(m->act, kvf__act_row(m->act, copy, w->first, C), out, w->rows * C);
    kvf__pass_lap(pass, KVF__PART_LOSS);
}

/* Turns acc into the gradient of what the head reads. */
static void label_gradients(const kvf__vocab_walk *w)
{
    const kvf__pass *pass = w->pass;
    const kvf__model *m = pass->model;
    int64_t C = m->desc.C;
    const float *gamma = m->unfolded ? NULL : m->lm.gamma;
    float *out = kvf__head_gradient_rows(w);

#pragma omp parallel for schedule(static)
    for (int64_t j = 0; j < w->real; j++) {
        float *row = out + j * C;
        const float *acc = pass->head.acc + j * C;
        float part = 1.0f / pass->head.sums.sum[j];
        float own = kvf__pass_label_scale(pass, w->how->scale, w->first + j);
        const float slope = kvf__cap_slope(m, pass->head.sums.target_logit[j]);

        kvf__table_row(m, &m->lm.slot, pass->batch->label_id[w->first + j], row);
        for (int64_t i = 0; i < C; i++)
            row[i] = own * (acc[i] * part - slope * row[i] * (gamma ? gamma[i] : 1));
    }
    kvf__head_gradient_end(w);
}

/* The logits of a plane to scale * (softmax - the label). */
static void plane_dlogits(const kvf__vocab_walk *w, int64_t p)
{
    const kvf__pass *pass = w->pass;
    const kvf__vocab_sums *sums = &pass->head.sums;
    int64_t valid = kvf__vocab_width(pass->model->desc.V, p);

#pragma omp parallel for schedule(static)
    for (int64_t j = 0; j < w->real; j++) {
        float *row = sums->logits + j * KVF__VOCAB_PLANE;
        float own = kvf__pass_label_scale(pass, w->how->scale, w->first + j),
              part = own / sums->sum[j];
        int64_t label = pass->batch->label_id[w->first + j] - p * KVF__VOCAB_PLANE;
        const kvf__model *m = pass->model;
        const float target = label >= 0 && label < valid ? own * kvf__cap_slope(m, row[label]) : 0;
        for (int64_t v = 0; v < valid; v++)
            row[v] = part * expf(row[v] - sums->max[j]) * kvf__cap_slope(m, row[v]);
        if (label >= 0 && label < valid) row[label] -= target;
    }
}

/* A head that is trained: the chunk's part of its own gradient. */
static kvf_status weight_gradient(const kvf__vocab_walk *w)
{
    for (int64_t p = 0; p < w->pass->model->lm.n; p++) {
        KVF_TRY(plane_logits(w, p));
        plane_dlogits(w, p);
        KVF_TRY(kvf__head_grad(w->ctx, w->pass, p, w->first, w->real));
    }
    kvf__pass_lap(w->pass, KVF__PART_HEAD_BWD);
    return KVF_OK;
}

static kvf_status label_chunk(kvf__vocab_walk *w)
{
    for (int64_t j = 0; j < w->real; j++) {
        double loss = kvf__vocab_label_loss(&w->pass->head.sums, j);
        w->loss_sum += loss;
        kvf__pass_add_loss(w->pass, w->first + j, loss);
        if (w->how->token_loss) w->how->token_loss[w->first + j] = (float)loss;
    }
    if (!w->how->gradient) return KVF_OK;
    label_gradients(w);
    return w->pass->model->train.weights ? weight_gradient(w) : KVF_OK;
}

/* ---- the loss -------------------------------------------------------------------------------- */

static kvf_status check_gradient(kvf_ctx *ctx, const kvf__pass *pass)
{
    if (!pass->limits.backward)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "pass: gradient of the loss, but the pass was made without backward");
    if (pass->cache)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "pass: gradient of the loss, but the batch continues a cache");
    return KVF_OK;
}

/* From what the head reads to what the last layer left: dx_lab, and its copy in the act type. */
static void final_norm_bwd(kvf__pass *pass)
{
    const kvf__model *m = pass->model;
    const kvf__norm_at norm = kvf__pass_final_norm(pass);

    if (m->desc.block.post_norm) return; /* the last block's norm comes first in its own way back */
    memset(pass->bwd.dx_lab, 0, (size_t)(pass->ML * m->desc.C) * sizeof(float));
    kvf__pass_pre_norm_bwd(pass, &norm, pass->bwd.dx_lab, pass->bwd.dx_lab_act);
}

kvf_status kvf__pass_vocab_loss(kvf_ctx *ctx, kvf__pass *pass, const kvf__loss *how,
                                double *loss_sum)
{
    const bool ready = pass->model->lm.n && pass->state != KVF__PASS_EMPTY; /* or the walk fails */
    kvf__vocab_walk walk = {.ctx = ctx,
                            .pass = pass,
                            .how = how,
                            .sums = true,
                            .plane = how->teacher ? kvf__soft_plane : NULL,
                            .chunk = how->teacher ? kvf__soft_chunk : label_chunk};

    if (ready && how->gradient) KVF_TRY(check_gradient(ctx, pass));
    if (ready)
        KVF_TRY(how->teacher ? kvf__soft_check(ctx, pass, how)
                             : kvf__vocab_check_labels(ctx, pass->batch, pass->model->desc.V));
    KVF_TRY(kvf__vocab_walk_run(&walk, "loss"));
    if (how->teacher || !pass->sections.given) KVF_TRY(kvf__vocab_check_sum(ctx, walk.loss_sum));
    if (how->gradient && pass->batch->n_labels) final_norm_bwd(pass);
    if (how->gradient) pass->state = KVF__PASS_LOSS;
    *loss_sum = walk.loss_sum;
    return KVF_OK;
}

/* ---- logits ---------------------------------------------------------------------------------- */

/* Into row j of w->out, [rows, V] of the chunk. */
static void copy_plane(kvf__vocab_walk *w, int64_t p)
{
    const int64_t V = w->pass->model->desc.V;
    const size_t bytes = (size_t)kvf__vocab_width(V, p) * sizeof(float);

    for (int64_t j = 0; j < w->real; j++)
        memcpy(w->out + j * V + p * KVF__VOCAB_PLANE,
               w->pass->head.sums.logits + j * KVF__VOCAB_PLANE, bytes);
}

static kvf_status next_chunk(kvf__vocab_walk *w)
{
    w->out += w->real * w->pass->model->desc.V;
    return KVF_OK;
}

kvf_status kvf__pass_lm_logits(kvf_ctx *ctx, kvf__pass *pass, float *logits)
{
    const kvf__loss none = {0};
    kvf__vocab_walk walk = {.ctx = ctx,
                            .pass = pass,
                            .how = &none,
                            .plane = copy_plane,
                            .chunk = next_chunk,
                            .out = logits};

    return kvf__vocab_walk_run(&walk, "logits");
}

static kvf_status visit_chunk(kvf__vocab_walk *w)
{
    return w->visit(w->user, w->first, w->real, w->out);
}

kvf_status kvf__pass_lm_logits_each(kvf_ctx *ctx, kvf__pass *pass, float *memory,
                                    kvf__outputs_fn *visit, void *user)
{
    const kvf__loss none = {0};
    kvf__vocab_walk walk = {.ctx = ctx,
                            .pass = pass,
                            .how = &none,
                            .plane = copy_plane,
                            .chunk = visit_chunk,
                            .out = memory,
                            .visit = visit,
                            .user = user};

    return kvf__vocab_walk_run(&walk, "logits");
}
