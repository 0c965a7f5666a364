/* Gradient times value: the first order of what setting a virtual token's keys and values to zero
 * would change. Its sign is left out, since a zero key still takes its share of attention: only
 * nearness to zero can be trusted. */
#include "prune.h"

#include <math.h>
#include <string.h>

/* A sweep over the data there and back. */
typedef struct sweep {
    const kvf__prune_data *data;
    kvf__prefix d;  /* of the loss summed over its terms */
    float *dhidden; /* [labels, C] of a batch; NULL: the base's own head */
    int64_t labels; /* that it has room for */
    int64_t terms;
} sweep;

/* Room for the gradient where a head of the prefix's own reads the states. */
static kvf_status take_hidden(sweep *s, int64_t labels)
{
    const int64_t C = kvf__model_desc(s->data->base->model)->C;
    if (labels <= s->labels) return KVF_OK;
    kvf__free(s->dhidden);
    s->dhidden = NULL;
    s->labels = 0;
    KVF_TRY(kvf__alloc_array(s->data->ctx, (size_t)(labels * C), sizeof *s->dhidden, &s->dhidden));
    s->labels = labels;
    return s->data->subject->head ? kvf__head_prepare(s->data->ctx, s->data->subject->head, labels)
                                  : KVF_OK;
}

static kvf_status own_head_loss(sweep *s, kvf__pass *pass, const kvf__batch *batch)
{
    const kvf__subject *subject = s->data->subject;
    kvf_ctx *ctx = s->data->ctx;
    const float *hidden = NULL;
    double loss = 0;
    KVF_TRY(take_hidden(s, batch->n_labels));
    KVF_TRY(kvf__pass_hidden(ctx, pass, &hidden));
    if (subject->head)
        KVF_TRY(kvf__head_loss(ctx, subject->head, batch, hidden, 0, 1, &loss, s->dhidden));
    else
        KVF_TRY(
            kvf__lm_head_loss(ctx, subject->lm_head, batch, hidden, 1, &loss, NULL, s->dhidden));
    return kvf__pass_hidden_grad(ctx, pass, s->dhidden);
}

static kvf_status there_and_back(void *user, kvf__pass *pass, const kvf__batch *batch)
{
    sweep *s = user;
    const kvf__subject *subject = s->data->subject;
    const kvf__grads grads = {.prefix = &s->d};
    double loss = 0;
    s->terms += subject->head ? kvf__head_terms(subject->head, batch) : batch->n_labels;
    if (subject->head || subject->lm_head)
        KVF_TRY(own_head_loss(s, pass, batch));
    else
        KVF_TRY(kvf__pass_lm_loss(s->data->ctx, pass, true, 1, &loss, NULL));
    return kvf__pass_bwd(s->data->ctx, pass, &grads);
}

/* |gradient x value| of one token, over all its places. */
static double token_score(const kvf__prefix *kv, const kvf__prefix *d, int64_t token)
{
    double sum = 0;
    for (int64_t head = 0; head < kv->L * 2 * kv->G; head++) {
        const int64_t at = (head * kv->P + token) * kv->D;
        for (int64_t k = at; k < at + kv->D; k++)
            sum += (double)d->kv[k] * (double)kv->kv[k];
    }
    return fabs(sum);
}

kvf_status kvf__prune_gradient(const kvf__prune_data *data, double *score)
{
    const kvf__prefix *kv = data->subject->prefix;
    const kvf__evaluator_options how = {
        .P = kv->P, .batch_tokens = data->batch_tokens, .share_prefixes = true, .backward = true};
    kvf__evaluator *evaluator = NULL;
    sweep s = {.data = data};
    kvf_status st;

    st = kvf__prefix_init(data->ctx, &s.d, kv->L, kv->G, kv->P, kv->D);
    if (st) goto out;
    memcpy(s.d.layer_mask, kv->layer_mask, (size_t)kv->L);
    st = kvf__evaluator_create(data->ctx, data->base, data->set, &how, &evaluator);
    if (st) goto out;
    st = kvf__evaluator_walk(data->ctx, evaluator, data->subject, there_and_back, &s);
    for (int64_t i = 0; i < kv->P && !st; i++)
        score[i] = token_score(kv, &s.d, i) / (double)(s.terms ? s.terms : 1);
out:
    kvf__evaluator_free(evaluator);
    kvf__prefix_done(&s.d);
    kvf__free(s.dhidden);
    return st;
}
