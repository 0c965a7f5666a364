/* The walk over the vocabulary with the base's own head. A loss never stores all logits.
 *
 * For chunks of at most KVF__HEAD_ROWS rows the vocabulary is processed in planes, with the running
 * maximum m and the sum s of exp(logit - m), as in flash attention (Dao et al. 2022), and with a
 * gradient also
 *
 *   acc = sum_v exp(logit_v - m) head[v]
 *
 * which is accumulated plane by plane in f32. The kernel rescales it whenever m changes. */
#include "head_lm.h"
#include "pass_priv.h"
#include "products.h"

#include <math.h>
#include <string.h>

void kvf__cap_logits(float cap, float *z, int64_t n)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++)
        z[i] = cap * tanhf(z[i] / cap);
}

/* Returns the slope of the cap at a capped logit z: 1 - tanh^2; 0 for a removed logit. */
float kvf__cap_slope(const kvf__model *model, float z)
{
    const float cap = model->desc.factors.logit_cap, t = cap > 0 ? z / cap : 0;
    return fabsf(t) < 1 ? 1 - t * t : 0;
}

/* Multiplies e [rows, KVF__VOCAB_PLANE] by the slope of the cap on each logit. */
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

kvf_status kvf__vocab_plane_logits(const kvf__vocab_walk *w, int64_t p)
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

/* Adds the plane's logits to the running maxima and sums and, with a gradient, exp(logit - max)
 * head to acc [rows, C]. */
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
        KVF_TRY(kvf__vocab_plane_logits(w, p));
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

/* Returns dxhat in the activation type, or for post-norm dx_lab, the gradient of the stream. */
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
