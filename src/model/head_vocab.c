/* A trained language-model head: loss, the gradient of the hidden states and of the matrix itself.
 * As in head_lm.c the vocabulary goes by in planes and the full logits never exist; but the
 * gradient of a plane's rows needs the whole row's softmax, so the planes go by twice:
 *
 *   first    m = max of the logits, s = sum exp(logit - m);  loss = log s + m - logit[target]
 *   second   e = exp(logit - m), hence softmax = e / s, and per plane
 *            dhidden += e W          (then times scale / s)
 *            dW      += e^T (hidden * scale / s)
 *
 * and the targets' rows at the end: dhidden -= scale * W[target], dW[target] -= scale * hidden. */
#include "head_vocab.h"
#include "model_priv.h"

#include <math.h>
#include <string.h>

enum { ROWS = 256, PLANE = KVF__VOCAB_PLANE }; /* of labels and of the vocabulary at a time */

struct kvf__lm_head {
    const kvf__kernels *kernels;
    int64_t V, C;
    float *weight, *grad; /* [V, C]; grad NULL: not trained here */
    kvf__param param;
    kvf__params params;
    kvf__slot slot;
    float *logits, *e;          /* [ROWS, PLANE] */
    float *scaled;              /* [ROWS, C] hidden * scale / s */
    float *max, *sum, *target;  /* [ROWS]; target: its logit */
    float *last_max, *last_sum; /* [ROWS] of the second time, not to be kept */
    int32_t *column;            /* [ROWS] of the target in the plane at hand */
};

/* ---- create ---------------------------------------------------------------------------------- */

static kvf_status alloc_memory(kvf_ctx *ctx, kvf__lm_head *head, bool gradient)
{
    size_t rows = ROWS, planes = (size_t)ROWS * PLANE, matrix;

    if (!kvf__mul((size_t)head->V, (size_t)head->C, &matrix))
        return kvf__fail(ctx, KVF_ENOMEM, "%s: %lld x %lld", KVF__LM_HEAD_NAME, (long long)head->V,
                         (long long)head->C);
    if (gradient) KVF_TRY(kvf__alloc_array(ctx, matrix, sizeof(float), &head->grad));
    KVF_TRY(kvf__alloc_array(ctx, planes, sizeof(float), &head->logits));
    KVF_TRY(kvf__alloc_array(ctx, planes, sizeof(float), &head->e));
    KVF_TRY(kvf__alloc_array(ctx, rows * (size_t)head->C, sizeof(float), &head->scaled));
    KVF_TRY(kvf__alloc_array(ctx, 5 * rows, sizeof(float), &head->max));
    head->sum = head->max + rows;
    head->target = head->sum + rows;
    head->last_max = head->target + rows;
    head->last_sum = head->last_max + rows;
    return kvf__alloc_array(ctx, rows, sizeof *head->column, &head->column);
}

static void describe(kvf__lm_head *head)
{
    head->param = (kvf__param){.name = KVF__LM_HEAD_NAME,
                               .value = head->weight,
                               .grad = head->grad,
                               .rank = 2,
                               .dim = {head->V, head->C},
                               .n = head->V * head->C,
                               .lr_scale = 1};
    head->params = (kvf__params){.n = 1, .capacity = 1, .item = &head->param};
    head->slot = (kvf__slot){
        .name = KVF__LM_HEAD_NAME,
        .view = {.data = head->weight, .dtype = KVF__F32, .rank = 2, .dim = {head->V, head->C}}};
}

kvf_status kvf__lm_head_create(kvf_ctx *ctx, const kvf__model *model, bool gradient,
                               kvf__lm_head **out)
{
    kvf__lm_head *head = NULL;
    kvf_status st;

    if (!model->lm.packed)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "architecture %s is an encoder and has no language-model head",
                         model->desc.arch_name);
    if (model->desc.head_bias)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "the head of this %s has a bias, which --train-head does not know",
                         model->desc.arch_name);
    KVF_TRY(kvf__alloc(ctx, sizeof *head, &head));
    head->kernels = model->kernels;
    head->V = model->desc.V;
    head->C = model->desc.C;
    st = kvf__slot_f32(ctx, &model->lm.file, &head->weight);
    if (!st) st = alloc_memory(ctx, head, gradient);
    if (st) {
        kvf__lm_head_free(head);
        return st;
    }
    describe(head);
    *out = head;
    return KVF_OK;
}

void kvf__lm_head_free(kvf__lm_head *head)
{
    if (!head) return;
    kvf__free(head->weight);
    kvf__free(head->grad);
    kvf__free(head->logits);
    kvf__free(head->e);
    kvf__free(head->scaled);
    kvf__free(head->max);
    kvf__free(head->column);
    kvf__free(head);
}

kvf__params *kvf__lm_head_params(kvf__lm_head *head)
{
    return &head->params;
}

const kvf__slot *kvf__lm_head_slot(const kvf__lm_head *head)
{
    return &head->slot;
}

/* ---- products -------------------------------------------------------------------------------- */

/* A run of labels, and what they share. */
typedef struct chunk {
    kvf_ctx *ctx;
    kvf__lm_head *head;
    const float *hidden; /* [n, C] */
    const int32_t *ids;  /* [n] targets */
    int64_t n;
} chunk;

static int64_t plane_width(const kvf__lm_head *head, int64_t from)
{
    return head->V - from < PLANE ? head->V - from : PLANE;
}

/* dst [n, ld]: logits of the vocabulary's rows from, from + 1, ... */
static kvf_status plane_logits(kvf_ctx *ctx, const kvf__lm_head *head, const float *hidden,
                               int64_t n, int64_t from, float *dst, int64_t ld)
{
    int64_t C = head->C;
    return kvf__sgemm(ctx, false, true, n, plane_width(head, from), C, hidden, C,
                      head->weight + from * C, C, 0, dst, ld);
}

kvf_status kvf__lm_head_logits(kvf_ctx *ctx, const kvf__lm_head *head, const float *hidden,
                               int64_t n, float *logits)
{
    for (int64_t from = 0; from < head->V; from += PLANE)
        KVF_TRY(plane_logits(ctx, head, hidden, n, from, logits + from, head->V));
    return KVF_OK;
}

/* The plane's logits into the running maxima and sums; e, may be NULL: exp(logit - max). */
static kvf_status plane_softmax(const chunk *c, int64_t from, float *max, float *sum, float *e)
{
    kvf__lm_head *head = c->head;

    KVF_TRY(plane_logits(c->ctx, head, c->hidden, c->n, from, head->logits, PLANE));
    for (int64_t j = 0; j < c->n; j++)
        head->column[j] = (int32_t)(c->ids[j] - from);
    const kvf__ce_chunk ce = {.rows = c->n,
                              .width = PLANE,
                              .logits = head->logits,
                              .valid = plane_width(head, from),
                              .target = head->column,
                              .max = max,
                              .sum = sum,
                              .target_logit = head->target,
                              .e = e,
                              .C = head->C};
    head->kernels->ce(KVF__F32, &ce);
    return KVF_OK;
}

static kvf_status chunk_losses(const chunk *c, double *loss_sum, float *token_loss)
{
    kvf__lm_head *head = c->head;

    for (int64_t j = 0; j < c->n; j++) {
        head->max[j] = -INFINITY;
        head->sum[j] = head->target[j] = 0;
    }
    for (int64_t from = 0; from < head->V; from += PLANE)
        KVF_TRY(plane_softmax(c, from, head->max, head->sum, NULL));
    for (int64_t j = 0; j < c->n; j++) {
        double loss = log((double)head->sum[j]) + (double)head->max[j] - (double)head->target[j];
        *loss_sum += loss;
        if (token_loss) token_loss[j] = (float)loss;
    }
    return KVF_OK;
}

/* The targets' part: what the softmax is compared with. */
static void chunk_targets(const chunk *c, float scale, float *dhidden)
{
    const kvf__lm_head *head = c->head;
    int64_t C = head->C;

    for (int64_t j = 0; j < c->n; j++) {
        const float *row = head->weight + c->ids[j] * C, *hidden = c->hidden + j * C;
        float *drow = head->grad + c->ids[j] * C, by = scale / head->sum[j];
        for (int64_t i = 0; i < C; i++) {
            dhidden[j * C + i] = dhidden[j * C + i] * by - scale * row[i];
            drow[i] -= scale * hidden[i];
        }
    }
}

/* After chunk_losses: dhidden [n, C] is set, the matrix's gradient added to. */
static kvf_status chunk_gradient(const chunk *c, float scale, float *dhidden)
{
    kvf__lm_head *head = c->head;
    int64_t C = head->C, n = c->n;

    memcpy(head->last_max, head->max, (size_t)n * sizeof *head->max);
    memset(dhidden, 0, (size_t)(n * C) * sizeof *dhidden);
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < C; i++)
            head->scaled[j * C + i] = c->hidden[j * C + i] * (scale / head->sum[j]);
    for (int64_t from = 0; from < head->V; from += PLANE) {
        int64_t width = plane_width(head, from);
        memset(head->last_sum, 0, (size_t)n * sizeof *head->last_sum);
        KVF_TRY(plane_softmax(c, from, head->last_max, head->last_sum, head->e));
        KVF_TRY(kvf__sgemm(c->ctx, false, false, n, C, width, head->e, PLANE,
                           head->weight + from * C, C, 1, dhidden, C));
        KVF_TRY(kvf__sgemm(c->ctx, true, false, width, C, n, head->e, PLANE, head->scaled, C, 1,
                           head->grad + from * C, C));
    }
    chunk_targets(c, scale, dhidden);
    return KVF_OK;
}

kvf_status kvf__lm_head_loss(kvf_ctx *ctx, kvf__lm_head *head, const kvf__batch *batch,
                             const float *hidden, float scale, double *loss_sum, float *token_loss,
                             float *dhidden)
{
    double sum = 0;

    if (dhidden && !head->grad)
        return kvf__fail(ctx, KVF_EUSAGE, "%s: made without a gradient", KVF__LM_HEAD_NAME);
    for (int64_t j = 0; j < batch->n_labels; j++)
        if (batch->label_id[j] < 0 || batch->label_id[j] >= head->V)
            return kvf__fail(ctx, KVF_ESHAPE,
                             "batch: label %lld has id %ld, the vocabulary ends at %lld",
                             (long long)j, (long)batch->label_id[j], (long long)head->V - 1);
    for (int64_t first = 0; first < batch->n_labels; first += ROWS) {
        int64_t left = batch->n_labels - first;
        const chunk c = {.ctx = ctx,
                         .head = head,
                         .hidden = hidden + first * head->C,
                         .ids = batch->label_id + first,
                         .n = left < ROWS ? left : ROWS};
        KVF_TRY(chunk_losses(&c, &sum, token_loss ? token_loss + first : NULL));
        if (dhidden) KVF_TRY(chunk_gradient(&c, scale, dhidden + first * head->C));
    }
    if (!isfinite(sum))
        return kvf__fail(ctx, KVF_ENUMERIC, "loss of the batch is %g, expected a finite number",
                         sum);
    *loss_sum = sum;
    return KVF_OK;
}
