/* What a run trains: the encoder and, where the task has one, the head; as one list that AdamW
 * steps and the best checkpoint copies. Both learn by one optimizer, the head at its own rate. */
#include "encoder_run.h"
#include "trainer.h"

#include <string.h>

/* The base after the encoder. */
static bool unfreezes(const kvf__trainer *t)
{
    return t->tuned.encoder && t->options.unfreeze_base;
}

size_t kvf__trainer_own_params(const kvf__trainer *t)
{
    const kvf__tuned *tuned = &t->tuned;
    return tuned->log_weight.n + (tuned->encoder ? kvf__encoder_params(tuned->encoder)->n : 0) +
           (tuned->base ? tuned->base->n : 0);
}

int64_t kvf__trainer_trained_values(const kvf__trainer *t)
{
    const int64_t all = kvf__params_values(&t->tuned.params);
    return kvf__log_weight_trained(t) ? all : all - kvf__params_values(&t->tuned.log_weight);
}

kvf_status kvf__trainer_form(const kvf__trainer *t, kvf__train *out)
{
    const kvf_train_options *o = &t->options;
    *out = (kvf__train){0};
    if (t->tuned.method->port != KVF__PORT_BLOCK && !o->unfreeze_base) return KVF_OK;
    if (!strcmp(t->tuned.method->folds_to, "base") || o->unfreeze_base) {
        out->what = KVF__TRAIN_EVERYTHING;
        return KVF_OK;
    }
    out->what = KVF__TRAIN_ADAPTERS;
    out->frozen_norms = o->adapter_norms_off;
    out->adapters.size = o->adapter_size;
    KVF_TRY(kvf__adapter_act_parse(t->ctx, o->adapter_activation, &out->adapters.act));
    return kvf__adapter_place_parse(t->ctx, o->adapter_placement, &out->adapters.place);
}

static kvf_status list(kvf__trainer *t, const kvf__params *log_weight, const kvf__params *encoder,
                       kvf__params *out)
{
    out->n = 0;
    KVF_TRY(kvf__params_append(t->ctx, out, log_weight));
    if (encoder) KVF_TRY(kvf__params_append(t->ctx, out, encoder));
    if (t->tuned.base) KVF_TRY(kvf__params_append(t->ctx, out, t->tuned.base));
    return kvf__tasks_list_params(t, out);
}

kvf_status kvf__trainer_list_params(kvf__trainer *t)
{
    kvf__tuned *tuned = &t->tuned;
    const kvf__params *values = tuned->encoder ? kvf__encoder_params(tuned->encoder) : NULL;
    const kvf__params *steps = tuned->encoder ? kvf__encoder_steps(tuned->encoder) : NULL;
    const kvf__params none = {0};
    KVF_TRY(list(t, &tuned->log_weight, values, &tuned->params));
    return list(t, kvf__log_weight_trained(t) ? &tuned->log_weight : &none, steps, &tuned->steps);
}

kvf__subject kvf__trainer_subject(const kvf__trainer *t, const kvf__train_task *task)
{
    const kvf__tuned *tuned = &t->tuned;
    return (kvf__subject){.condition.prefix = tuned->task_prefix.P ? &tuned->task_prefix
                                                                   : tuned->emitted.prefix,
                          .condition.vectors = tuned->emitted.vectors,
                          .condition.position_start = t->id.position_start,
                          .head = task->head};
}

/* --layers: which layers have a prefix. */
static kvf_status choose_layers(kvf__trainer *t)
{
    const char *layers = t->options.layers;
    const int64_t L = t->id.L;
    KVF_TRY(kvf__alloc(t->ctx, (size_t)L, &t->tuned.layer_mask));
    memset(t->tuned.layer_mask, 1, (size_t)L);
    if (!layers || !*layers) return kvf__places_mask(t, t->tuned.layer_mask);
    kvf_status st = kvf__layers_parse(t->ctx, layers, L, t->tuned.layer_mask);
    if (st == KVF_ESHAPE)
        return kvf__fail(t->ctx, KVF_EUSAGE, "--layers %s: the base has layers 0 to %lld", layers,
                         (long long)L - 1);
    if (st) return kvf__fail_prefix(t->ctx, st, "--layers");
    return kvf__places_mask(t, t->tuned.layer_mask);
}

/* What an encoder emits, and its gradient, by the port of its method. */
static kvf_status make_emitted(kvf__trainer *t, const kvf__encoder_shape *shape)
{
    kvf__tuned *tuned = &t->tuned;
    if (tuned->method->port == KVF__PORT_EMBED) {
        KVF_TRY(kvf__vectors_init(t->ctx, &tuned->vectors, shape->P, shape->C));
        KVF_TRY(kvf__vectors_init(t->ctx, &tuned->dvectors, shape->P, shape->C));
        tuned->emitted.vectors = &tuned->vectors;
        tuned->gradient.vectors = &tuned->dvectors;
        return KVF_OK;
    }
    const kvf__kv_shape kv = kvf__encoder_kv(shape);
    KVF_TRY(kvf__prefix_create(t->ctx, &tuned->prefix, &kv, shape->P));
    KVF_TRY(kvf__prefix_create(t->ctx, &tuned->dprefix, &kv, shape->P));
    tuned->prefix.near = kvf__identity_near(&t->id);
    memcpy(tuned->prefix.layer_mask, tuned->layer_mask, (size_t)shape->L);
    memcpy(tuned->dprefix.layer_mask, tuned->layer_mask, (size_t)shape->L);
    tuned->emitted.prefix = &tuned->prefix;
    tuned->gradient.prefix = &tuned->dprefix;
    return kvf__log_weight_make(t);
}

/* Encoder, or weights of the base, or both. */
static kvf_status make_tuned(kvf__trainer *t)
{
    const kvf_train_options *o = &t->options;
    const kvf__encoder_shape shape = {.L = t->id.L,
                                      .P = t->id.P,
                                      .M = o->encoder_hidden,
                                      .form = strcmp(o->method, "p-tuning") ? NULL : o->p_encoder};
    const kvf__desc *desc = kvf__model_desc(t->base->model);
    kvf__params *base = kvf__model_params(t->base->model);
    if (t->tuned.method->port == KVF__PORT_EMBED && desc->E != desc->C)
        return kvf__fail(
            t->ctx, KVF_EUNSUPPORTED,
            "method %s trains vectors as wide as the model, %lld, and the embeddings of "
            "this base are %lld wide",
            o->method, (long long)desc->C, (long long)desc->E);
    if (t->tuned.method->port == KVF__PORT_EMBED && desc->by_layer.inputs)
        return kvf__fail(t->ctx, KVF_EUNSUPPORTED,
                         "method %s: virtual tokens have no embeddings for each layer, which %s "
                         "reads: train keys and values",
                         o->method, desc->arch_name);
    KVF_TRY(choose_layers(t));
    if (t->tuned.method->port == KVF__PORT_BLOCK) t->tuned.base = base;
    if (!kvf__method_has_length(o->method)) return KVF_OK;
    KVF_TRY(kvf__encoder_on_base(t->ctx, t->base, o->method, &shape, &t->tuned.encoder));
    if (!o->optimizer_adamw && kvf__encoder_is_reparameterized(t->tuned.encoder))
        KVF_TRY(kvf__encoder_make_natural(t->ctx, t->tuned.encoder));
    if (o->values_muon) kvf__encoder_values_by_muon(t->tuned.encoder);
    for (size_t i = 0; unfreezes(t) && i < base->n; i++)
        base->item[i].lr_scale = o->base_lr / o->lr; /* the schedule carries o->lr */
    if (unfreezes(t)) t->tuned.base = base;
    return make_emitted(t, kvf__encoder_shape_of(t->tuned.encoder));
}

static kvf_status make_best(kvf__trainer *t)
{
    const kvf__params *params = &t->tuned.params;
    size_t total = 0;
    for (size_t i = 0; i < params->n; i++)
        total += (size_t)params->item[i].n;
    KVF_TRY(kvf__alloc_array(t->ctx, total, sizeof(float), &t->progress.best.values));
    KVF_TRY(kvf__params_append(t->ctx, &t->progress.best.params, params));
    float *at = t->progress.best.values;
    for (size_t i = 0; i < t->progress.best.params.n; i++) {
        t->progress.best.params.item[i].value = at;
        t->progress.best.params.item[i].grad = NULL;
        at += t->progress.best.params.item[i].n;
    }
    return KVF_OK;
}

static bool is_measured(const kvf__trainer *t, kvf__measured of)
{
    if (of == KVF__OF_RETENTION) return t->retention;
    return of != KVF__OF_ANCHOR || (t->retention && t->options.kl_to_base > 0);
}

static kvf_status make_history(kvf__trainer *t)
{
    size_t n = (size_t)(t->progress.steps > t->output.resumed.history.n
                            ? t->progress.steps
                            : t->output.resumed.history.n);
    for (int i = 0; i < KVF__COLUMNS; i++)
        if (is_measured(t, kvf__columns[i].of))
            KVF_TRY(kvf__alloc_array(t->ctx, n, kvf__dtype_block_bytes(kvf__columns[i].dtype),
                                     &t->progress.history.column[i]));
    return KVF_OK;
}

kvf_status kvf__trainer_make(kvf__trainer *t)
{
    KVF_TRY(make_tuned(t));
    KVF_TRY(kvf__tasks_make_heads(t));
    return kvf__trainer_list_params(t);
}

kvf_status kvf__trainer_parameters(kvf__trainer *t)
{
    kvf_train_options *o = &t->options;
    KVF_TRY(kvf__dropout_alloc(t));
    if (kvf__ranks_follows(t)) return kvf__model_refresh(t->ctx, t->base->model);
    KVF_TRY(kvf__adamw_init(t->ctx, &t->stepper.adamw, &t->tuned.steps));
    t->stepper.adamw.beta1 = o->beta1;
    t->stepper.adamw.beta2 = o->beta2;
    t->stepper.adamw.eps = o->eps;
    t->stepper.adamw.weight_decay = o->weight_decay;
    if (t->rows.total.valid_rows || kvf__run_has_best(&t->output.resumed)) KVF_TRY(make_best(t));
    KVF_TRY(make_history(t));
    if (t->output.is_resumed)
        KVF_TRY(kvf__trainer_restore(t));
    else
        KVF_TRY(kvf__trainer_start_values(t));
    if (!t->output.is_resumed) t->progress.best.params.n = 0;
    if (t->tuned.encoder)
        KVF_TRY(
            kvf__encoder_lr_units(t->ctx, t->tuned.encoder, o->lr_per_parameter, &t->tuned.lr_k));
    /* such keys take a large last layer, and through that the layers below move them far */
    if (t->tuned.encoder && !strcmp(o->init, "centroids") && !o->lr_per_parameter)
        kvf__encoder_slow_below_last(t->tuned.encoder, 0.1);
    if (!t->tuned.encoder) t->tuned.lr_k = 1; /* every parameter steps with the one rate */
    return kvf__model_refresh(t->ctx, t->base->model);
}
