/* The loss of the language-model head against a teacher. For each label it compares the teacher's k
 * most likely items, and the mass of all others as one more bucket:
 *
 *   loss = sum_i p_i (log p_i - log q_i) + p_r (log p_r - log q_r),   r: the rest
 *
 * This is KL(teacher || student) of the k + 1 buckets. It is never negative, at most that of the
 * whole distributions, and 0 only if both agree on the k items and the rest. (Renormalised over the
 * k items it would ignore mass outside them.) With z the logits:
 *
 *   dloss/dz_i = q_i - p_i          for the k items
 *   dloss/dz_v = (q_r - p_r) q_v / q_r   for every other
 *
 * KL(student || teacher) of the same buckets exchanges p and q, and
 *
 *   dloss/dz_i = q_i (log q_i - log p_i - loss)     for the k items; the rest as above, by q_v
 *
 * The vocabulary is walked once, in planes as in vocab_walk.c. The k items are removed from each
 * plane before it is summed. R = sum of exp(z - m) and acc = sum of exp(z_v - m) head[v] then cover
 * the rest alone, so q_r is not a difference of nearly equal numbers:
 *
 *   dxhat = (q_r - p_r) acc / R + sum_i (q_i - p_i) head[i] */
#include "head_lm.h"
#include "loss.h"
#include "pass_priv.h"
#include "products.h"

#include <math.h>
#include <string.h>

/* Value of a removed logit: far below any other, and finite, because a kernel subtracts the maximum
 * from it. */
static const float TAKEN = -1e30f;
/* Lower bound of log p in KL(student || teacher), which limits the cost of items that the teacher
 * rules out. */
static const double LEAST_LOGP = -30;

/* ---- the student ----------------------------------------------------------------------------- */

static const int32_t *ids_of(const kvf__vocab_walk *w, int64_t j)
{
    return w->how->teacher->ids + (w->first + j) * w->how->teacher->k;
}

static const float *logp_of(const kvf__vocab_walk *w, int64_t j)
{
    return w->how->teacher->logp + (w->first + j) * (w->how->teacher->k + 1);
}

/* Takes the items' logits out of plane p. */
void kvf__soft_plane(kvf__vocab_walk *w, int64_t p)
{
    int64_t k = w->how->teacher->k, from = p * KVF__VOCAB_PLANE;

    for (int64_t j = 0; j < w->real; j++) {
        const int32_t *ids = ids_of(w, j);
        float *row = w->pass->head.sums.logits + j * KVF__VOCAB_PLANE,
              *out = w->pass->head.soft_logit + j * k;
        for (int64_t i = 0; i < k; i++) {
            if (ids[i] < from || ids[i] >= from + KVF__VOCAB_PLANE) continue;
            out[i] = row[ids[i] - from];
            row[ids[i] - from] = TAKEN;
        }
    }
}

/* Returns the log of the sum of all exp(logit): of the items and of the rest, whose log is
 * *rest. */
static double log_sum(const kvf__vocab_walk *w, int64_t j, double *rest)
{
    const kvf__pass_head *head = &w->pass->head;
    const int64_t k = w->how->teacher->k;
    const float *z = head->soft_logit + j * k;
    double sum = 0, top = *rest = log((double)head->sums.sum[j]) + (double)head->sums.max[j];

    for (int64_t i = 0; i < k; i++)
        top = fmax(top, (double)z[i]);
    sum = exp(*rest - top);
    for (int64_t i = 0; i < k; i++)
        sum += exp((double)z[i] - top);
    return top + log(sum);
}

/* Returns p (log p - log q) of a bucket; 0 if the teacher's p is 0. */
static double term(const kvf__soft_targets *t, float logp, double logq)
{
    if (t->reverse) return exp(logq) * (logq - fmax((double)logp, LEAST_LOGP));
    return isinf(logp) ? 0 : exp((double)logp) * ((double)logp - logq);
}

/* Returns dloss/d(log of the bucket's sum of exponentials); loss: of the label, for reverse. */
static double slope(const kvf__soft_targets *t, float logp, double logq, double loss)
{
    if (t->reverse) return term(t, logp, logq) - exp(logq) * loss;
    return exp(logq) - exp((double)logp);
}

static double label_loss(const kvf__vocab_walk *w, int64_t j)
{
    const int64_t k = w->how->teacher->k;
    const float *logp = logp_of(w, j), *z = w->pass->head.soft_logit + j * k;
    double rest, all = log_sum(w, j, &rest), loss = term(w->how->teacher, logp[k], rest - all);

    for (int64_t i = 0; i < k; i++)
        loss += term(w->how->teacher, logp[i], (double)z[i] - all);
    return loss;
}

/* Sets row [C] to scale * dloss/d(head input) of label j. */
static void label_gradient(const kvf__vocab_walk *w, int64_t j, float *scratch, float *row)
{
    const kvf__pass *pass = w->pass;
    const kvf__model *m = pass->model;
    int64_t k = w->how->teacher->k, C = m->desc.C;
    const int32_t *ids = ids_of(w, j);
    const float *logp = logp_of(w, j), *acc = pass->head.acc + j * C;
    const float *z = pass->head.soft_logit + j * k, *gamma = m->unfolded ? NULL : m->lm.gamma;
    const double scale = (double)kvf__pass_label_scale(pass, w->how->scale, w->first + j);
    const kvf__soft_targets *t = w->how->teacher;
    double rest, all = log_sum(w, j, &rest), loss = t->reverse ? label_loss(w, j) : 0;
    double left = slope(t, logp[k], rest - all, loss);
    float by = (float)(scale * left / (double)pass->head.sums.sum[j]);

    for (int64_t c = 0; c < C; c++)
        row[c] = by * acc[c];
    for (int64_t i = 0; i < k; i++) {
        by = (float)(scale * slope(t, logp[i], (double)z[i] - all, loss));
        by *= kvf__cap_slope(m, z[i]);
        kvf__table_row(m, &m->lm.slot, ids[i], scratch);
        for (int64_t c = 0; c < C; c++)
            row[c] += by * scratch[c] * (gamma ? gamma[c] : 1);
    }
}

kvf_status kvf__soft_chunk(kvf__vocab_walk *w)
{
    int64_t C = w->pass->model->desc.C;
    float *out = w->how->gradient ? kvf__head_gradient_rows(w) : NULL;

    for (int64_t j = 0; j < w->real; j++) {
        const double loss = label_loss(w, j);
        w->loss_sum += loss;
        if (w->how->token_loss) w->how->token_loss[w->first + j] = (float)loss;
    }
    if (!out) return KVF_OK;
#pragma omp parallel for schedule(static)
    for (int64_t j = 0; j < w->real; j++)
        label_gradient(w, j, w->pass->head.soft_row + j * C, out + j * C);
    kvf__head_gradient_end(w);
    return KVF_OK;
}

kvf_status kvf__soft_check(kvf_ctx *ctx, const kvf__pass *pass, const kvf__loss *how)
{
    const kvf__soft_targets *soft = how->teacher;
    int64_t k = soft->k, V = pass->model->desc.V;

    if (how->gradient && pass->model->train.weights)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "pass: a teacher's loss, but the head itself is trained");
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

/* ---- the teacher ----------------------------------------------------------------------------- */

/* Keeps the most likely items of one label: logits descending, for equal ones the lower id
 * first. */
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

static void keep_plane(kvf__vocab_walk *w, int64_t p)
{
    int64_t valid = kvf__vocab_width(w->pass->model->desc.V, p), from = p * KVF__VOCAB_PLANE;
    int64_t k = w->k;

#pragma omp parallel for schedule(static)
    for (int64_t j = 0; j < w->real; j++) {
        const float *row = w->pass->head.sums.logits + j * KVF__VOCAB_PLANE;
        int32_t *ids = w->ids + (w->first + j) * k;
        float *best = w->out + (w->first + j) * (k + 1);
        for (int64_t v = 0; v < valid; v++)
            if (row[v] > best[k - 1]) keep_item(ids, best, k, (int32_t)(from + v), row[v]);
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

/* Turns logits into log-probabilities, followed by that of the rest. */
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

static kvf_status top_chunk(kvf__vocab_walk *w)
{
    const kvf__vocab_sums *sums = &w->pass->head.sums;

    for (int64_t j = 0; j < w->real; j++)
        KVF_TRY(finish_label(w->ctx, log((double)sums->sum[j]) + (double)sums->max[j], w->k,
                             w->ids + (w->first + j) * w->k, w->out + (w->first + j) * (w->k + 1)));
    return KVF_OK;
}

kvf_status kvf__pass_lm_top(kvf_ctx *ctx, kvf__pass *pass, int64_t k, int32_t *ids, float *logp)
{
    const kvf__loss none = {0};
    int64_t V = pass->model->desc.V;
    kvf__vocab_walk walk = {.ctx = ctx,
                            .pass = pass,
                            .how = &none,
                            .sums = true,
                            .plane = keep_plane,
                            .chunk = top_chunk,
                            .k = k,
                            .ids = ids,
                            .out = logp};

    if (k < 1 || k >= V)
        return kvf__fail(
            ctx, KVF_ESHAPE,
            "pass: %lld likeliest tokens of a vocabulary of %lld, expected fewer and at least 1",
            (long long)k, (long long)V);
    for (int64_t i = 0; pass->state != KVF__PASS_EMPTY && i < pass->batch->n_labels * (k + 1); i++)
        logp[i] = -INFINITY;
    return kvf__vocab_walk_run(&walk, "likeliest items");
}
