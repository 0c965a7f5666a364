/* The language-model head against a teacher: for each label the teacher's k likeliest items and the
 * mass of all others as one more bucket,
 *
 *   loss = sum_i p_i (log p_i - log q_i) + p_r (log p_r - log q_r),   r: the rest
 *
 * which is KL(teacher || student) of the k + 1 buckets: never negative, at most that of the whole
 * distributions, and 0 only if the student gives the k items and the rest what the teacher gives
 * them. (Renormalised over the k it would say nothing of mass that leaves them.) With z the logits:
 *
 *   dloss/dz_i = q_i - p_i          for the k items
 *   dloss/dz_v = (q_r - p_r) q_v / q_r   for every other
 *
 * The vocabulary goes by once, in planes as in head_lm.c. The k items are taken out of each plane
 * before it is summed, so that R = sum of exp(z - m) and acc = sum of exp(z_v - m) head[v] are
 * those of the rest alone and q_r is no difference of nearly equal numbers:
 *
 *   dxhat = (q_r - p_r) acc / R + sum_i (q_i - p_i) head[i] */
#include "head_lm.h"
#include "pass_priv.h"
#include "products.h"

#include <math.h>
#include <string.h>

/* What is left of a logit that was taken out: far below any other, and finite, because a kernel
 * subtracts the maximum from it. */
static const float TAKEN = -1e30f;

typedef kvf__head_chunk chunk;

/* ---- the student ----------------------------------------------------------------------------- */

/* Rows of a chunk as the losses see them. */
typedef struct view {
    const kvf__soft_targets *soft;
    kvf__pass *pass;
    chunk c;
} view;

static const int32_t *ids_of(const view *v, int64_t j)
{
    return v->soft->ids + (v->c.first + j) * v->soft->k;
}

static const float *logp_of(const view *v, int64_t j)
{
    return v->soft->logp + (v->c.first + j) * (v->soft->k + 1);
}

/* The items' logits out of plane p. */
static void take_items(const view *v, int64_t p)
{
    int64_t k = v->soft->k, from = p * KVF__VOCAB_PLANE;
    for (int64_t j = 0; j < v->c.real; j++) {
        const int32_t *ids = ids_of(v, j);
        float *row = v->pass->head.logits + j * KVF__VOCAB_PLANE,
              *out = v->pass->head.soft_logit + j * k;
        for (int64_t i = 0; i < k; i++) {
            if (ids[i] < from || ids[i] >= from + KVF__VOCAB_PLANE) continue;
            out[i] = row[ids[i] - from];
            row[ids[i] - from] = TAKEN;
        }
    }
}

/* log of the sum of all exp(logit): the items' and the rest's, whose log is *rest. */
static double log_sum(const view *v, int64_t j, double *rest)
{
    const float *z = v->pass->head.soft_logit + j * v->soft->k;
    double sum = 0, top = *rest = log((double)v->pass->head.sum[j]) + (double)v->pass->head.max[j];
    for (int64_t i = 0; i < v->soft->k; i++)
        top = fmax(top, (double)z[i]);
    sum = exp(*rest - top);
    for (int64_t i = 0; i < v->soft->k; i++)
        sum += exp((double)z[i] - top);
    return top + log(sum);
}

/* p (log p - log q); 0 where the teacher gives nothing. */
static double term(float logp, double logq)
{
    return isinf(logp) ? 0 : exp((double)logp) * ((double)logp - logq);
}

static void chunk_losses(const view *v, double *loss_sum, float *token_loss)
{
    int64_t k = v->soft->k;
    for (int64_t j = 0; j < v->c.real; j++) {
        const float *logp = logp_of(v, j), *z = v->pass->head.soft_logit + j * k;
        double rest, all = log_sum(v, j, &rest), loss = term(logp[k], rest - all);
        for (int64_t i = 0; i < k; i++)
            loss += term(logp[i], (double)z[i] - all);
        *loss_sum += loss;
        if (token_loss) token_loss[v->c.first + j] = (float)loss;
    }
}

/* row [C] = scale * dloss/d(what the head reads) of label j. */
static void label_gradient(const view *v, int64_t j, float scale, float *scratch, float *row)
{
    const kvf__model *m = v->pass->model;
    const int32_t *ids = ids_of(v, j);
    const float *logp = logp_of(v, j), *acc = v->pass->head.acc + j * m->desc.C;
    const float *z = v->pass->head.soft_logit + j * v->soft->k;
    const float *gamma = m->unfolded ? NULL : m->lm.gamma;
    int64_t k = v->soft->k, C = m->desc.C;
    double rest, all = log_sum(v, j, &rest);
    double left = exp(rest - all) - exp((double)logp[k]);
    float by = (float)((double)scale * left / (double)v->pass->head.sum[j]);

    for (int64_t c = 0; c < C; c++)
        row[c] = by * acc[c];
    for (int64_t i = 0; i < k; i++) {
        by = (float)((double)scale * (exp((double)z[i] - all) - exp((double)logp[i])));
        kvf__table_row(m, &m->lm.slot, ids[i], scratch);
        for (int64_t c = 0; c < C; c++)
            row[c] += by * scratch[c] * (gamma ? gamma[c] : 1);
    }
}

static void chunk_gradient(const view *v, float scale)
{
    int64_t C = v->pass->model->desc.C;
    float *out = kvf__head_gradient_rows(v->pass, &v->c);

#pragma omp parallel for schedule(static)
    for (int64_t j = 0; j < v->c.real; j++)
        label_gradient(v, j, kvf__pass_label_scale(v->pass, scale, v->c.first + j),
                       v->pass->head.soft_row + j * C, out + j * C);
    kvf__head_gradient_end(v->pass, &v->c);
}

static kvf_status check_items(kvf_ctx *ctx, const kvf__pass *pass, const kvf__soft_targets *soft)
{
    int64_t k = soft->k, V = pass->model->desc.V;
    if (k < 1 || k > pass->limits.soft || k >= V)
        return kvf__fail(
            ctx, KVF_ESHAPE,
            "pass: %lld items of a teacher, expected 1 to %lld, below the vocabulary's "
            "%lld",
            (long long)k, (long long)pass->limits.soft, (long long)V);
    for (int64_t j = 0; j < pass->batch->n_labels; j++)
        for (int64_t i = 0; i < k; i++) {
            int64_t id = soft->ids[j * k + i], before = i ? soft->ids[j * k + i - 1] : -1;
            if (id <= before || id >= V)
                return kvf__fail(ctx, KVF_ESHAPE,
                                 "teacher: label %lld has item %lld after %lld, expected ascending "
                                 "ids below %lld",
                                 (long long)j, (long long)id, (long long)before, (long long)V);
        }
    return KVF_OK;
}

kvf_status kvf__pass_lm_soft(kvf_ctx *ctx, kvf__pass *pass, const kvf__soft_targets *soft,
                             bool gradient, float scale, double *loss_sum, float *token_loss)
{
    view v = {.soft = soft, .pass = pass};
    double sum = 0;

    KVF_TRY(kvf__head_check(ctx, pass, "loss"));
    if (gradient) KVF_TRY(kvf__head_check_gradient(ctx, pass));
    if (gradient && pass->model->train.weights)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "pass: a teacher's loss, but the head itself is trained");
    KVF_TRY(check_items(ctx, pass, soft));
    pass->times.mark = kvf__clock();
    for (int64_t first = 0; first < pass->batch->n_labels; first += KVF__HEAD_ROWS) {
        v.c = kvf__head_chunk_at(pass, first);
        kvf__head_chunk_begin(pass, &v.c, gradient);
        for (int64_t p = 0; p < pass->model->lm.n; p++) {
            KVF_TRY(kvf__head_plane_logits(ctx, pass, &v.c, p));
            take_items(&v, p);
            KVF_TRY(kvf__head_plane_sum(ctx, pass, &v.c, p, gradient));
        }
        chunk_losses(&v, &sum, token_loss);
        if (gradient) chunk_gradient(&v, scale);
    }
    if (!isfinite(sum))
        return kvf__fail(ctx, KVF_ENUMERIC, "loss of the batch is %g, expected a finite number",
                         sum);
    if (gradient && pass->batch->n_labels) kvf__head_norm_bwd(pass);
    if (gradient) pass->state = KVF__PASS_LOSS;
    *loss_sum = sum;
    return KVF_OK;
}

/* ---- the teacher ----------------------------------------------------------------------------- */

/* The likeliest so far of one label: logits descending, of equal ones the lower id first. */
static void keep_item(int32_t *ids, float *logits, int64_t k, int32_t id, float logit)
{
    int64_t at = k - 1;
    for (; at > 0 && logits[at - 1] < logit; at--) {
        logits[at] = logits[at - 1];
        ids[at] = ids[at - 1];
    }
    logits[at] = logit;
    ids[at] = id;
}

static void keep_plane(const kvf__pass *pass, const chunk *c, int64_t p, int64_t k, int32_t *ids,
                       float *logp)
{
    int64_t valid = kvf__vocab_width(pass->model->desc.V, p), from = p * KVF__VOCAB_PLANE;

#pragma omp parallel for schedule(static)
    for (int64_t j = 0; j < c->real; j++) {
        const float *row = pass->head.logits + j * KVF__VOCAB_PLANE;
        int32_t *my_ids = ids + (c->first + j) * k;
        float *best = logp + (c->first + j) * (k + 1);
        for (int64_t v = 0; v < valid; v++)
            if (row[v] > best[k - 1]) keep_item(my_ids, best, k, (int32_t)(from + v), row[v]);
    }
}

static void sort_by_id(int32_t *ids, float *values, int64_t k)
{
    for (int64_t i = 1; i < k; i++) {
        int32_t id = ids[i];
        float value = values[i];
        int64_t at = i;
        for (; at > 0 && ids[at - 1] > id; at--) {
            ids[at] = ids[at - 1];
            values[at] = values[at - 1];
        }
        ids[at] = id;
        values[at] = value;
    }
}

/* Logits to log-probabilities, the rest's behind them. */
static kvf_status finish_label(kvf_ctx *ctx, double all, int64_t k, int32_t *ids, float *logp)
{
    double mass = 0;
    if (!isfinite(all))
        return kvf__fail(ctx, KVF_ENUMERIC,
                         "teacher: the logits sum to %g, expected a finite number", all);
    for (int64_t i = 0; i < k; i++) {
        mass += exp((double)logp[i] - all);
        logp[i] = (float)((double)logp[i] - all);
    }
    sort_by_id(ids, logp, k);
    logp[k] = mass < 1 ? (float)log(1 - mass) : -INFINITY;
    return KVF_OK;
}

kvf_status kvf__pass_lm_top(kvf_ctx *ctx, kvf__pass *pass, int64_t k, int32_t *ids, float *logp)
{
    int64_t V = pass->model->desc.V;

    KVF_TRY(kvf__head_check(ctx, pass, "likeliest items"));
    if (k < 1 || k >= V)
        return kvf__fail(ctx, KVF_ESHAPE, "pass: the %lld likeliest of a vocabulary of %lld",
                         (long long)k, (long long)V);
    pass->times.mark = kvf__clock();
    for (int64_t i = 0; i < pass->batch->n_labels * (k + 1); i++)
        logp[i] = -INFINITY;
    for (int64_t first = 0; first < pass->batch->n_labels; first += KVF__HEAD_ROWS) {
        chunk c = kvf__head_chunk_at(pass, first);
        kvf__head_chunk_begin(pass, &c, false);
        for (int64_t p = 0; p < pass->model->lm.n; p++) {
            KVF_TRY(kvf__head_plane_logits(ctx, pass, &c, p));
            KVF_TRY(kvf__head_plane_sum(ctx, pass, &c, p, false));
            keep_plane(pass, &c, p, k, ids, logp);
        }
        for (int64_t j = 0; j < c.real; j++)
            KVF_TRY(finish_label(ctx, log((double)pass->head.sum[j]) + (double)pass->head.max[j], k,
                                 ids + (first + j) * k, logp + (first + j) * (k + 1)));
    }
    return KVF_OK;
}
