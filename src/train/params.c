/* Creates the trained parts of a run: the encoder and its output, weights of the base, or both. */
#include "encoder_run.h"
#include "tuned.h"

#include <string.h>

/* True if weights of the base are trained in addition to an encoder. */
static bool unfreezes(const kvf__run *run, const kvf__tuned *tuned)
{
    return tuned->encoder && run->options.unfreeze_base;
}

/* Applies --layers. */
static kvf_status choose_layers(kvf__run *run, kvf__tuned *tuned)
{
    const char *layers = run->options.layers;
    const int64_t L = run->id.L;
    KVF_TRY(kvf__alloc(run->ctx, (size_t)L, &tuned->layer_mask));
    memset(tuned->layer_mask, 1, (size_t)L);
    if (!layers || !*layers) return kvf__places_mask(run, tuned->layer_mask);
    kvf_status st = kvf__layers_parse(run->ctx, layers, L, tuned->layer_mask);
    if (st == KVF_ESHAPE)
        return kvf__fail(run->ctx, KVF_EUSAGE, "--layers %s: the base has layers 0 to %lld", layers,
                         (long long)L - 1);
    if (st) return kvf__fail_prefix(run->ctx, st, "--layers");
    return kvf__places_mask(run, tuned->layer_mask);
}

/* Allocates neurons and their gradient, in the feed-forward blocks of the chosen layers. */
static kvf_status make_neurons(const kvf__run *run, kvf__tuned *tuned,
                               const kvf__neuron_shape *shape)
{
    const kvf__desc *desc = kvf__model_desc(run->base->model);
    for (int64_t l = 0; l < shape->L; l++)
        if (kvf__layer_feeds(desc, l) && shape->N > kvf__desc_layer(desc, l).F)
            return kvf__fail(
                run->ctx, KVF_EUSAGE,
                "--ffn-length %lld: layer %lld of the base has %lld neurons of its own",
                (long long)shape->N, (long long)l, (long long)kvf__desc_layer(desc, l).F);
    if (!strcmp(run->options.method, "mlp") && shape->N > run->options.encoder_hidden)
        return kvf__fail(run->ctx, KVF_EUSAGE,
                         "--ffn-length %lld: want at most --encoder-hidden, %lld",
                         (long long)shape->N, (long long)run->options.encoder_hidden);
    KVF_TRY(kvf__neurons_create(run->ctx, &tuned->prefix.neurons, shape));
    KVF_TRY(kvf__neurons_create(run->ctx, &tuned->dprefix.neurons, shape));
    for (int64_t l = 0; l < shape->L; l++)
        tuned->prefix.neurons.layer_mask[l] = tuned->dprefix.neurons.layer_mask[l] =
            kvf__layer_feeds(desc, l) && tuned->layer_mask[kvf__desc_layer(desc, l).from];
    return KVF_OK;
}

/* --state-lr: adds the state before rows, at first zeros. */
static kvf_status make_state(const kvf__run *run, kvf__tuned *tuned)
{
    const kvf__desc *d = kvf__model_desc(run->base->model);
    const int64_t n = kvf__mixer_state_at(d, d->L);

    if (!run->options.state_lr) return KVF_OK;
    if (!n)
        return kvf__fail(
            run->ctx, KVF_EUSAGE,
            "--state-lr: every layer of this base has attention, so there is no state");
    KVF_TRY(kvf__prefix_zero_state(run->ctx, &tuned->prefix, n));
    KVF_TRY(kvf__prefix_zero_state(run->ctx, &tuned->dprefix, n));
    const kvf__param state = {.name = KVF__MIXER_STATE,
                              .value = tuned->prefix.state,
                              .grad = tuned->dprefix.state,
                              .rank = 1,
                              .dim = {n},
                              .n = n,
                              .lr_scale = run->options.state_lr / run->options.lr};
    return kvf__params_add(run->ctx, &tuned->state, &state);
}

/* Allocates the encoder's output and its gradient, by the port of the method. */
static kvf_status make_emitted(const kvf__run *run, kvf__tuned *tuned,
                               const kvf__encoder_shape *shape)
{
    if (run->method->port == KVF__PORT_EMBED) {
        KVF_TRY(kvf__vectors_init(run->ctx, &tuned->vectors, shape->P, shape->C));
        KVF_TRY(kvf__vectors_init(run->ctx, &tuned->dvectors, shape->P, shape->C));
        tuned->emitted.vectors = &tuned->vectors;
        tuned->gradient.vectors = &tuned->dvectors;
        return KVF_OK;
    }
    const kvf__kv_shape kv = kvf__encoder_kv(shape);
    KVF_TRY(kvf__prefix_create(run->ctx, &tuned->prefix, &kv, shape->P));
    KVF_TRY(kvf__prefix_create(run->ctx, &tuned->dprefix, &kv, shape->P));
    tuned->prefix.near = kvf__identity_near(&run->id);
    memcpy(tuned->prefix.layer_mask, tuned->layer_mask, (size_t)shape->L);
    memcpy(tuned->dprefix.layer_mask, tuned->layer_mask, (size_t)shape->L);
    if (run->id.neurons.N) KVF_TRY(make_neurons(run, tuned, &shape->neurons));
    tuned->emitted.prefix = &tuned->prefix;
    tuned->gradient.prefix = &tuned->dprefix;
    KVF_TRY(make_state(run, tuned));
    return kvf__log_weight_make(run, tuned);
}

/* Encoder, or weights of the base, or both. */
kvf_status kvf__tuned_make(kvf__run *run, kvf__tuned *tuned)
{
    const kvf_train_options *o = &run->options;
    const kvf__desc *desc = kvf__model_desc(run->base->model);
    const kvf__encoder_shape shape = {.L = run->id.L,
                                      .P = run->id.P,
                                      .neurons = run->id.neurons,
                                      .M = o->encoder_hidden,
                                      .form = strcmp(o->method, "p-tuning") ? NULL : o->p_encoder};
    kvf__params *base = kvf__model_params(run->base->model);
    if (run->method->port == KVF__PORT_EMBED && desc->E != desc->C)
        return kvf__fail(run->ctx, KVF_EUNSUPPORTED,
                         "method %s: virtual tokens have the model width %lld, and this base has "
                         "embeddings of width %lld",
                         o->method, (long long)desc->C, (long long)desc->E);
    if (run->method->port == KVF__PORT_EMBED && desc->by_layer.inputs)
        return kvf__fail(run->ctx, KVF_EUNSUPPORTED,
                         "method %s: not supported on %s, which has embeddings for each layer: use "
                         "a method with keys and values",
                         o->method, desc->arch_name);
    KVF_TRY(choose_layers(run, tuned));
    if (run->method->port == KVF__PORT_BLOCK) tuned->base = base;
    if (!kvf__method_has_length(o->method)) return KVF_OK;
    KVF_TRY(kvf__encoder_on_base(run->ctx, run->base, o->method, &shape, &tuned->encoder));
    if (!o->optimizer_adamw && kvf__encoder_is_reparameterized(tuned->encoder))
        KVF_TRY(kvf__encoder_make_natural(run->ctx, tuned->encoder));
    if (o->values_muon) kvf__encoder_values_by_muon(tuned->encoder);
    for (size_t i = 0; unfreezes(run, tuned) && i < base->n; i++)
        base->item[i].lr_scale = o->base_lr / o->lr; /* the schedule multiplies by o->lr */
    if (unfreezes(run, tuned)) tuned->base = base;
    return make_emitted(run, tuned, kvf__encoder_shape_of(tuned->encoder));
}

void kvf__tuned_done(kvf__tuned *tuned)
{
    kvf__encoder_free(tuned->encoder);
    kvf__params_done(&tuned->params);
    kvf__params_done(&tuned->steps);
    kvf__params_done(&tuned->log_weight);
    kvf__params_done(&tuned->state);
    kvf__free(tuned->layer_mask);
    kvf__prefix_done(&tuned->prefix);
    kvf__prefix_done(&tuned->dprefix);
    kvf__prefix_done(&tuned->task_prefix);
    kvf__prefix_done(&tuned->masked);
    kvf__prefix_done(&tuned->both);
    kvf__prefix_done(&tuned->dboth);
    kvf__vectors_done(&tuned->vectors);
    kvf__vectors_done(&tuned->dvectors);
}
