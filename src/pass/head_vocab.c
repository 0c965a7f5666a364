/* A trained language-model head: loss, the gradient of the hidden states and of the matrix itself.
 * As in vocab_walk.c the vocabulary is processed in planes, without storing all logits. The
 * gradient of a plane's rows needs the softmax over the whole vocabulary, so there are two rounds:
 *
 *   first    m = max of the logits, s = sum exp(logit - m);  loss = log s + m - logit[target]
 *   second   e = exp(logit - m), hence softmax = e / s, and per plane
 *            dhidden += e W          (then times scale / s)
 *            dW      += e^T (hidden * scale / s)
 *
 * and the targets' rows at the end: dhidden -= scale * W[target], dW[target] -= scale * hidden. */
#include "arena.h"
#include "head_lm.h"
#include "head_priv.h"
#include "products.h"

#include <string.h>

enum {
    ROWS = KVF__HEAD_ROWS,
    PLANE = KVF__VOCAB_PLANE
}; /* labels, and vocabulary rows, at a time */

/* The head's outer layer holds the matrix, its gradient (NULL: frozen) and a bias (NULL: none). */
struct kvf__vocab_work {
    kvf__slot slot; /* slot of the trained head */
    int64_t C;
    kvf__vocab_sums sums;       /* [ROWS] */
    float *e;                   /* [ROWS, PLANE] */
    float *scaled;              /* [ROWS, C] hidden * scale / s */
    float *last_max, *last_sum; /* [ROWS] for the second round, discarded */
};

/* ---- create ---------------------------------------------------------------------------------- */

static void lay_work(void *object, kvf__carver *carve)
{
    kvf__vocab_work *work = object;

    work->sums = kvf__vocab_sums_lay(carve, ROWS);
    work->e = kvf__carve(carve, ROWS, PLANE, sizeof(float));
    work->scaled = kvf__carve(carve, ROWS, work->C, sizeof(float));
    work->last_max = kvf__carve(carve, ROWS, 1, sizeof(float));
    work->last_sum = kvf__carve(carve, ROWS, 1, sizeof(float));
}

kvf_status kvf__vocab_work_create(kvf_ctx *ctx, kvf__head *head)
{
    kvf__vocab_work made = {.C = head->outer.in};
    return kvf__carve_object(ctx, lay_work, &made, sizeof made, &head->vocab);
}

static kvf_status alloc_memory(kvf_ctx *ctx, kvf__head *head, bool gradient)
{
    size_t matrix;

    if (!kvf__mul((size_t)head->width, (size_t)head->C, &matrix))
        return kvf__fail(ctx, KVF_ENOMEM, "%s: %lld x %lld", KVF__LM_HEAD_NAME,
                         (long long)head->width, (long long)head->C);
    if (gradient) KVF_TRY(kvf__alloc_array(ctx, matrix, sizeof(float), &head->grads));
    head->outer = (kvf__linear){
        .w = head->values, .dw = head->grads, .in = head->C, .out = head->width};
    return kvf__vocab_work_create(ctx, head);
}

static kvf_status describe(kvf_ctx *ctx, kvf__head *head)
{
    const kvf__param param = {.name = KVF__LM_HEAD_NAME,
                              .value = head->values,
                              .grad = head->grads,
                              .rank = 2,
                              .dim = {head->width, head->C},
                              .n = head->width * head->C,
                              .lr_scale = 1};

    head->vocab->slot = (kvf__slot){
        .name = KVF__LM_HEAD_NAME,
        .view = {
            .data = head->values, .dtype = KVF__F32, .rank = 2, .dim = {head->width, head->C}}};
    return kvf__params_add(ctx, &head->params, &param);
}

kvf_status kvf__head_create_lm(kvf_ctx *ctx, const kvf__model *model, bool gradient,
                               kvf__head **out)
{
    kvf__head *head = NULL;

    if (!model->lm.n) return kvf__no_lm_head(ctx, model);
    if (model->desc.factors.logit_cap > 0)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "architecture %s caps its logits, which a trained head does not support",
                         model->desc.arch_name);
    if (model->desc.head_bias)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "the head of this %s has a bias, which --train-head does not support",
                         model->desc.arch_name);
    KVF_TRY(kvf__alloc(ctx, sizeof *head, &head));
    head->kernels = model->kernels;
    head->width = model->desc.V;
    head->C = model->desc.C;
    kvf_status st = kvf__slot_f32(ctx, &model->lm.file, &head->values);
    if (!st) st = alloc_memory(ctx, head, gradient);
    if (!st) st = describe(ctx, head);
    KVF__GIVE(st, out, head, kvf__head_free(head));
    return st;
}

const kvf__slot *kvf__head_matrix(const kvf__head *head)
{
    return head ? &head->vocab->slot : NULL;
}

/* ---- products -------------------------------------------------------------------------------- */

/* A run of labels with their common data. */
typedef struct chunk {
    kvf_ctx *ctx;
    const kvf__head *head;
    const float *hidden; /* [n, C] */
    const int32_t *ids;  /* [n] targets */
    int64_t n;
} chunk;

/* Returns labels from `first` on, at most ROWS. */
static chunk chunk_at(kvf_ctx *ctx, const kvf__head *head, const float *hidden, const int32_t *ids,
                      int64_t n, int64_t first)
{
    return (chunk){.ctx = ctx,
                   .head = head,
                   .hidden = hidden + first * head->outer.in,
                   .ids = ids + first,
                   .n = n - first < ROWS ? n - first : ROWS};
}

/* Computes dst [n, ld]: logits of the vocabulary's rows from, from + 1, ... */
static kvf_status plane_logits(kvf_ctx *ctx, const kvf__head *head, const float *hidden, int64_t n,
                               int64_t from, float *dst, int64_t ld)
{
    const kvf__linear *matrix = &head->outer;
    const int64_t C = head->outer.in, width = kvf__vocab_width(matrix->out, from / PLANE);

    KVF_TRY(
        kvf__sgemm(ctx, false, true, n, width, C, hidden, C, matrix->w + from * C, C, 0, dst, ld));
    for (int64_t j = 0; matrix->b && j < n; j++)
        for (int64_t v = 0; v < width; v++)
            dst[j * ld + v] += matrix->b[from + v];
    return KVF_OK;
}

kvf_status kvf__vocab_logits(kvf_ctx *ctx, const kvf__head *head, const float *hidden, int64_t n,
                             float *logits)
{
    for (int64_t from = 0; from < head->width; from += PLANE)
        KVF_TRY(plane_logits(ctx, head, hidden, n, from, logits + from, head->width));
    return KVF_OK;
}

/* Adds the plane's logits to the running maxima and sums; e, may be NULL: exp(logit - max). */
static kvf_status plane_softmax(const chunk *c, int64_t from, float *max, float *sum, float *e)
{
    const kvf__head *head = c->head;
    const kvf__vocab_sums *sums = &head->vocab->sums;

    KVF_TRY(plane_logits(c->ctx, head, c->hidden, c->n, from, sums->logits, PLANE));
    for (int64_t j = 0; j < c->n; j++)
        sums->target[j] = (int32_t)(c->ids[j] - from);
    const kvf__ce_chunk ce = {.rows = c->n,
                              .width = PLANE,
                              .logits = sums->logits,
                              .valid = kvf__vocab_width(head->outer.out, from / PLANE),
                              .target = sums->target,
                              .max = max,
                              .sum = sum,
                              .target_logit = sums->target_logit,
                              .e = e,
                              .C = head->outer.in};
    head->kernels->ce(KVF__F32, &ce);
    return KVF_OK;
}

/* Computes loss [n] of the labels; NULL: only the sums. */
static kvf_status chunk_losses(const chunk *c, float *loss)
{
    const kvf__vocab_sums *sums = &c->head->vocab->sums;

    kvf__vocab_sums_begin(sums, c->n);
    for (int64_t from = 0; from < c->head->outer.out; from += PLANE)
        KVF_TRY(plane_softmax(c, from, sums->max, sums->sum, NULL));
    for (int64_t j = 0; loss && j < c->n; j++)
        loss[j] = (float)kvf__vocab_label_loss(sums, j);
    return KVF_OK;
}

/* Subtracts the targets' part of the gradients. */
static void chunk_targets(const chunk *c, const float *scale, float *dhidden)
{
    const kvf__linear *matrix = &c->head->outer;
    int64_t C = c->head->outer.in;

    for (int64_t j = 0; j < c->n; j++) {
        const float *row = matrix->w + c->ids[j] * C, *hidden = c->hidden + j * C;
        float *drow = matrix->dw ? matrix->dw + c->ids[j] * C : NULL,
              by = scale[j] / c->head->vocab->sums.sum[j];
        for (int64_t i = 0; i < C; i++)
            dhidden[j * C + i] = dhidden[j * C + i] * by - scale[j] * row[i];
        for (int64_t i = 0; drow && i < C; i++)
            drow[i] -= scale[j] * hidden[i];
    }
}

/* After chunk_losses: sets dhidden [n, C], adds to the matrix's gradient. */
static kvf_status chunk_gradient(const chunk *c, const float *scale, float *dhidden)
{
    const kvf__linear *matrix = &c->head->outer;
    const kvf__vocab_work *work = c->head->vocab;
    int64_t C = c->head->outer.in, n = c->n;

    memcpy(work->last_max, work->sums.max, (size_t)n * sizeof *work->last_max);
    memset(dhidden, 0, (size_t)(n * C) * sizeof *dhidden);
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < C; i++)
            work->scaled[j * C + i] = c->hidden[j * C + i] * (scale[j] / work->sums.sum[j]);
    for (int64_t from = 0; from < matrix->out; from += PLANE) {
        int64_t width = kvf__vocab_width(matrix->out, from / PLANE);
        memset(work->last_sum, 0, (size_t)n * sizeof *work->last_sum);
        KVF_TRY(plane_softmax(c, from, work->last_max, work->last_sum, work->e));
        KVF_TRY(kvf__sgemm(c->ctx, false, false, n, C, width, work->e, PLANE, matrix->w + from * C,
                           C, 1, dhidden, C));
        if (matrix->dw)
            KVF_TRY(kvf__sgemm(c->ctx, true, false, width, C, n, work->e, PLANE, work->scaled, C, 1,
                               matrix->dw + from * C, C));
    }
    chunk_targets(c, scale, dhidden);
    return KVF_OK;
}

kvf_status kvf__vocab_label_losses(kvf_ctx *ctx, const kvf__head *head, const float *hidden,
                                   const int32_t *ids, int64_t n, float *loss)
{
    for (int64_t first = 0; first < n; first += ROWS) {
        const chunk c = chunk_at(ctx, head, hidden, ids, n, first);
        KVF_TRY(chunk_losses(&c, loss + first));
    }
    return KVF_OK;
}

kvf_status kvf__vocab_label_gradients(kvf_ctx *ctx, const kvf__head *head, const float *hidden,
                                      const int32_t *ids, int64_t n, const float *scale,
                                      float *dhidden)
{
    for (int64_t first = 0; first < n; first += ROWS) {
        const chunk c = chunk_at(ctx, head, hidden, ids, n, first);
        KVF_TRY(chunk_losses(&c, NULL));
        KVF_TRY(chunk_gradient(&c, scale + first, dhidden + first * head->outer.in));
    }
    return KVF_OK;
}

kvf_status kvf__vocab_loss(kvf_ctx *ctx, kvf__head *head, const kvf__batch *batch,
                           const float *hidden, const kvf__loss *how, double *loss_sum,
                           float *dhidden)
{
    float scale[ROWS];
    double sum = 0;

    if (dhidden && !head->grads)
        return kvf__fail(ctx, KVF_EUSAGE, "%s: made without a gradient", KVF__LM_HEAD_NAME);
    KVF_TRY(kvf__vocab_check_labels(ctx, batch, head->width));
    for (int64_t j = 0; j < ROWS; j++)
        scale[j] = how->scale;
    for (int64_t first = 0; first < batch->n_labels; first += ROWS) {
        const chunk c = chunk_at(ctx, head, hidden, batch->label_id, batch->n_labels, first);
        KVF_TRY(chunk_losses(&c, NULL));
        for (int64_t j = 0; j < c.n; j++) {
            double loss = kvf__vocab_label_loss(&head->vocab->sums, j);
            sum += loss;
            if (how->token_loss) how->token_loss[first + j] = (float)loss;
        }
        if (dhidden) KVF_TRY(chunk_gradient(&c, scale, dhidden + first * head->outer.in));
    }
    KVF_TRY(kvf__vocab_check_sum(ctx, sum));
    *loss_sum = sum;
    return KVF_OK;
}
