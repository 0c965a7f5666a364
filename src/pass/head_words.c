/* Classes read as words of the vocabulary, by the pretraining head of a masked language model
 * (Schick and Schütze 2021; Liu et al. 2021 for virtual tokens around [MASK]):
 *
 *   y = norm(act(W x + b)),   logit of class i = embedding[word i] . y + bias[word i]
 *
 * as in transformers' ...ForMaskedLM of BERT and relatives, for a few rows of the embedding [E].
 * Its parameters are frozen, except in a task head that begins with such layers on a base without
 * them (head_task.c); the gradient passes through to x. If the embedding itself is trained
 * (--unfreeze base), the rows follow it, and their gradient is added to its own. */
#include "arch.h"
#include "head_priv.h"
#include "model_priv.h"

#include <math.h>
#include <string.h>

static const kvf__head_kind KIND = {.inner = "transform"};

static kvf_status build(kvf_ctx *ctx, const kvf__model *model, const int32_t *ids, kvf__head *head)
{
    const kvf__masked_lm *from = head->words;
    int64_t n = head->width, C = head->C, E = kvf__model_desc(model)->E;

    KVF_TRY(kvf__alloc_array(ctx, (size_t)n * (size_t)(E + 1), sizeof(float), &head->values));
    KVF_TRY(kvf__alloc_array(ctx, (size_t)n, sizeof *ids, &head->word_ids));
    memcpy(head->word_ids, ids, (size_t)n * sizeof *ids);
    if (kvf__masters_grad(model->train.masters, KVF__W_TOKENS, 0)) {
        head->trained = model;
        KVF_TRY(kvf__alloc_array(ctx, (size_t)n * (size_t)E, sizeof(float), &head->grads));
    }
    float *bias = head->values + n * E;
    kvf__model_embedding(model, ids, n, head->values);
    for (int64_t i = 0; i < n; i++)
        bias[i] = from->bias[ids[i]];
    head->inner = (kvf__linear){.w = from->dense, .b = from->dense_bias, .in = C, .out = E};
    head->outer = (kvf__linear){.w = head->values, .b = bias, .dw = head->grads, .in = E, .out = n};
    return KVF_OK;
}

void kvf__head_words_refresh(kvf__head *head)
{
    if (head->trained)
        kvf__model_embedding(head->trained, head->word_ids, head->width, head->values);
}

void kvf__head_words_pass_on(kvf__head *head)
{
    const int64_t E = head->outer.in;

    if (!head->trained) return;
    float *to = kvf__masters_grad(head->trained->train.masters, KVF__W_TOKENS, 0);
    for (int64_t i = 0; i < head->width; i++)
        for (int64_t e = 0; e < E; e++)
            to[head->word_ids[i] * E + e] += head->grads[i * E + e];
    memset(head->grads, 0, (size_t)(head->width * E) * sizeof *head->grads);
}

kvf_status kvf__head_create_words(kvf_ctx *ctx, const kvf__model *model, const int32_t *ids,
                                  int64_t n, kvf__head **out)
{
    const kvf__desc *desc = kvf__model_desc(model);
    kvf__head *head = NULL;

    if (!kvf__model_masked_lm(model))
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "the base (%s) has no masked-language-model head to read words with",
                         desc->arch_name);
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= desc->V)
            return kvf__fail(ctx, KVF_ESHAPE, "head: word %ld, the vocabulary ends at %lld",
                             (long)ids[i], (long long)desc->V - 1);
    KVF_TRY(kvf__alloc(ctx, sizeof *head, &head));
    head->kind = &KIND;
    head->options = (kvf__head_options){.task = KVF__TASK_SEQ_CLS, .labels = n};
    head->dropout = kvf__dropout_make(0);
    head->words = kvf__model_masked_lm(model);
    head->norm_eps = (double)desc->norm_eps;
    head->kernels = model->kernels;
    head->C = desc->C;
    head->width = n;
    kvf_status st = build(ctx, model, ids, head);
    KVF__GIVE(st, out, head, kvf__head_free(head));
    return st;
}

/* xhat = (h - mean) / sqrt(variance + eps), y = gamma xhat + beta */
static void norm_row(const kvf__head *head, const float *h, float *xhat, float *rstd, float *y)
{
    const int64_t E = head->inner.out;
    double mean = 0, square = 0;

    for (int64_t i = 0; i < E; i++)
        mean += (double)h[i] / (double)E;
    for (int64_t i = 0; i < E; i++)
        square += ((double)h[i] - mean) * ((double)h[i] - mean) / (double)E;
    double by = 1 / sqrt(square + head->norm_eps);
    for (int64_t i = 0; i < E; i++) {
        xhat[i] = (float)(((double)h[i] - mean) * by);
        y[i] = head->words->gamma[i] * xhat[i] + (head->words->beta ? head->words->beta[i] : 0);
    }
    *rstd = (float)by;
}

void kvf__head_words_fwd(kvf__head *head, const float *hidden, int64_t n)
{
    const int64_t E = head->inner.out;

    /* act_fwd replaces its input by the slope there; the norm replaces the value by xhat */
    kvf__linear_fwd(&head->inner, head->work.slope, hidden, n);
    head->kernels->act_fwd(KVF__F32, head->words->act, head->work.slope, head->work.xhat, n * E);
    for (int64_t j = 0; j < n; j++)
        norm_row(head, head->work.xhat + j * E, head->work.xhat + j * E, &head->work.rstd[j],
                 head->work.inner_out + j * E);
}

/* dh = (d - mean(d) - xhat mean(d xhat)) rstd with d = dy gamma, then the activation's slope */
static void norm_row_bwd(const kvf__head *head, const float *xhat, const float *slope, double rstd,
                         float *d)
{
    const int64_t E = head->inner.out;
    double mean = 0, dot = 0;

    for (int64_t i = 0; i < E; i++) {
        if (head->dgamma) head->dgamma[i] += d[i] * xhat[i];
        d[i] *= head->words->gamma[i];
        mean += (double)d[i] / (double)E;
        dot += (double)d[i] * (double)xhat[i] / (double)E;
    }
    for (int64_t i = 0; i < E; i++)
        d[i] = (float)(((double)d[i] - mean - (double)xhat[i] * dot) * rstd * (double)slope[i]);
}

void kvf__head_words_bwd(kvf__head *head, int64_t n, float *dhidden)
{
    const int64_t E = head->inner.out;

    for (int64_t j = 0; j < n; j++)
        norm_row_bwd(head, head->work.xhat + j * E, head->work.slope + j * E,
                     (double)head->work.rstd[j], head->work.dinner + j * E);
    kvf__linear_bwd(&head->inner, dhidden, head->work.inner_in, head->work.dinner, n);
}
