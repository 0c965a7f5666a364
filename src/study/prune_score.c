/* Gradient times value: the first order of what setting a virtual token's keys and values to zero
 * would change. Its sign is left out, since a zero key still takes its share of attention: only
 * nearness to zero can be trusted. */
#include "prune.h"

#include <math.h>
#include <string.h>

/* A sweep over the data there and back. */
typedef struct sweep {
    const kvf__prune_data *data;
    kvf__prefix d; /* of the loss summed over its terms */
    int64_t terms;
} sweep;

static kvf_status there_and_back(void *user, kvf__pass *pass, const kvf__batch *batch)
{
    sweep *s = user;
    const kvf__subject *subject = s->data->subject;
    const kvf__grads grads = {.prefix = &s->d};
    const kvf__loss how = {.head = subject->head, .gradient = true, .scale = 1};
    double loss = 0;
    s->terms += kvf__head_terms(subject->head, batch);
    KVF_TRY(kvf__pass_loss(s->data->ctx, pass, &how, &loss));
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
    return st;
}
