/* What a run trains: the encoder and, where the task has one, the head; as one list that AdamW
 * steps and the best checkpoint copies. Both learn by one optimizer, the head at its own rate. */
#include "train_int.h"

#include <string.h>

kvf__params *kvf__trainer_published(const kvf__trainer *t)
{
    return t->encoder ? kvf__encoder_params(t->encoder) : kvf__model_params(t->base->model);
}

/* Beside an encoder, which comes first. */
static bool unfreezes(const kvf__trainer *t)
{
    return t->encoder && !strcmp(t->options.unfreeze, "base");
}

bool kvf__trainer_trains_base(const kvf__trainer *t)
{
    return !t->encoder || unfreezes(t);
}

size_t kvf__trainer_own_params(const kvf__trainer *t)
{
    size_t n = kvf__trainer_published(t)->n;
    return unfreezes(t) ? n + kvf__model_params(t->base->model)->n : n;
}

kvf_status kvf__trainer_form(const kvf__trainer *t, kvf__train *out)
{
    const kvf_train_options *o = &t->options;
    *out = (kvf__train){0};
    bool beside = !strcmp(o->unfreeze, "base");
    if (t->method->port != KVF__PORT_BLOCK && !beside) return KVF_OK;
    if (!strcmp(t->method->folds_to, "base") || beside) {
        out->what = KVF__TRAIN_EVERYTHING;
        return KVF_OK;
    }
    out->what = KVF__TRAIN_ADAPTERS;
    out->adapters.size = o->adapter_size;
    KVF_TRY(kvf__adapter_act_parse(t->ctx, o->adapter_activation, &out->adapters.act));
    return kvf__adapter_place_parse(t->ctx, o->adapter_placement, &out->adapters.place);
}

kvf_status kvf__trainer_join(kvf__trainer *t)
{
    t->params.n = 0;
    KVF_TRY(kvf__params_append(t->ctx, &t->params, kvf__trainer_published(t)));
    if (unfreezes(t))
        KVF_TRY(kvf__params_append(t->ctx, &t->params, kvf__model_params(t->base->model)));
    if (t->n_jobs) return kvf__jobs_join(t);
    const kvf__params *head = kvf__trainer_head_params(t);
    return head ? kvf__params_append(t->ctx, &t->params, head) : KVF_OK;
}

kvf__subject kvf__trainer_subject(const kvf__trainer *t)
{
    return (kvf__subject){.prefix = t->emitted.prefix,
                          .vectors = t->emitted.vectors,
                          .position_start = t->id.position_start,
                          .head = t->head};
}

/* --layers: which layers have a prefix. */
static kvf_status take_layers(kvf__trainer *t)
{
    const char *layers = t->options.layers;
    int64_t L = t->id.L, first = 0, last = L - 1;
    KVF_TRY(kvf__alloc(t->ctx, (size_t)L, &t->layer_mask));
    if (layers && *layers) {
        kvf_status st = kvf__layers_parse(t->ctx, layers, &first, &last);
        if (st) return kvf__fail_prefix(t->ctx, st, "--layers");
    }
    if (last >= L)
        return kvf__fail(t->ctx, KVF_EUSAGE, "--layers %s: the base has layers 0 to %lld", layers,
                         (long long)L - 1);
    memset(t->layer_mask + first, 1, (size_t)(last - first + 1));
    return KVF_OK;
}

/* The encoder, and what it emits by the port of its method; none for port block. */
static kvf_status take_encoder(kvf__trainer *t)
{
    kvf__encoder_shape shape = {
        .L = t->id.L,
        .P = t->id.P,
        .M = t->options.encoder_hidden,
        .form = strcmp(t->options.method, "p-tuning") ? NULL : t->options.p_encoder};
    KVF_TRY(take_layers(t));
    if (t->method->port == KVF__PORT_BLOCK) return KVF_OK;
    KVF_TRY(kvf__encoder_on_base(t->ctx, t->base, t->options.method, &shape, &t->encoder));
    shape = *kvf__encoder_shape_of(t->encoder);
    if (t->method->port == KVF__PORT_EMBED) {
        KVF_TRY(kvf__vectors_init(t->ctx, &t->vectors, shape.P, shape.C));
        KVF_TRY(kvf__vectors_init(t->ctx, &t->dvectors, shape.P, shape.C));
        t->emitted.vectors = &t->vectors;
        t->gradient.vectors = &t->dvectors;
        return KVF_OK;
    }
    KVF_TRY(kvf__prefix_init(t->ctx, &t->prefix, shape.L, shape.G, shape.P, shape.D));
    KVF_TRY(kvf__prefix_init(t->ctx, &t->dprefix, shape.L, shape.G, shape.P, shape.D));
    memcpy(t->prefix.layer_mask, t->layer_mask, (size_t)shape.L);
    memcpy(t->dprefix.layer_mask, t->layer_mask, (size_t)shape.L);
    t->emitted.prefix = &t->prefix;
    t->gradient.prefix = &t->dprefix;
    return KVF_OK;
}

static kvf_status take_words(kvf__trainer *t, kvf__head **out)
{
    const kvf__label_set *names = &t->data.names;
    KVF_TRY(
        kvf__verbalizer_words(t->ctx, t->options.verbalizer, names->names, names->n, &t->words));
    return kvf__verbalizer_head(t->ctx, t->base, t->words, names->n, out);
}

kvf_status kvf__trainer_make_head(kvf__trainer *t, kvf__head **out)
{
    kvf_train_options *o = &t->options;
    const kvf__head_options options = {
        .task = t->task,
        .labels = t->data.names.n ? (int64_t)t->data.names.n : 1,
        .regression = t->data.regression,
        .dropout = o->head_dropout,
        .seed = o->seed,
    };
    if (o->verbalizer && *o->verbalizer) return take_words(t, out);
    KVF_TRY(kvf__head_create(t->ctx, t->base->model, &options, out));
    kvf__params *params = kvf__head_params(*out);
    for (size_t i = 0; i < params->n; i++)
        params->item[i].lr_scale = o->head_lr / o->lr; /* the schedule carries o->lr */
    return KVF_OK;
}

static kvf_status take_head(kvf__trainer *t)
{
    if (t->n_jobs) return kvf__jobs_heads(t);
    if (t->task == KVF__TASK_LM) return kvf__trainer_make_own_head(t);
    return kvf__trainer_make_head(t, &t->head);
}

static kvf_status take_best(kvf__trainer *t)
{
    const kvf__params *params = &t->params;
    size_t total = 0;
    for (size_t i = 0; i < params->n; i++)
        total += (size_t)params->item[i].n;
    KVF_TRY(kvf__alloc_array(t->ctx, total, sizeof(float), &t->best_values));
    KVF_TRY(kvf__params_append(t->ctx, &t->best, params));
    float *at = t->best_values;
    for (size_t i = 0; i < t->best.n; i++) {
        t->best.item[i].value = at;
        t->best.item[i].grad = NULL;
        at += t->best.item[i].n;
    }
    return KVF_OK;
}

static bool is_measured(const kvf__trainer *t, kvf__measured of)
{
    if (of == KVF__OF_RETENTION) return t->retention;
    return of != KVF__OF_ANCHOR || (t->retention && t->options.kl_to_base > 0);
}

static kvf_status take_history(kvf__trainer *t)
{
    size_t n = (size_t)(t->steps > t->resumed.history.n ? t->steps : t->resumed.history.n);
    for (int i = 0; i < KVF__COLUMNS; i++)
        if (is_measured(t, kvf__columns[i].of))
            KVF_TRY(kvf__alloc_array(t->ctx, n, kvf__dtype_block_bytes(kvf__columns[i].dtype),
                                     &t->history.column[i]));
    return KVF_OK;
}

/* The schedule carries o->lr. */
static void set_base_rate(kvf__trainer *t)
{
    kvf__params *weights = kvf__model_params(t->base->model);
    for (size_t i = 0; unfreezes(t) && i < weights->n; i++)
        weights->item[i].lr_scale = t->options.base_lr / t->options.lr;
}

kvf_status kvf__trainer_parameters(kvf__trainer *t)
{
    kvf_train_options *o = &t->options;
    KVF_TRY(take_encoder(t));
    set_base_rate(t);
    KVF_TRY(take_head(t));
    KVF_TRY(kvf__trainer_join(t));
    KVF_TRY(kvf__trainer_alloc_dropout(t));
    if (kvf__ranks_follows(t)) return kvf__model_refresh(t->ctx, t->base->model);
    KVF_TRY(kvf__adamw_init(t->ctx, &t->adamw, &t->params));
    t->adamw.beta1 = o->beta1;
    t->adamw.beta2 = o->beta2;
    t->adamw.eps = o->eps;
    t->adamw.weight_decay = o->weight_decay;
    if (t->valid.n || t->resumed.best.params.n) KVF_TRY(take_best(t));
    KVF_TRY(take_history(t));
    if (t->is_resumed)
        KVF_TRY(kvf__trainer_restore(t));
    else
        KVF_TRY(kvf__trainer_start_values(t));
    if (!t->is_resumed) t->best.n = 0;
    if (t->encoder) KVF_TRY(kvf__encoder_lr_units(t->ctx, t->encoder, o->lr_units, &t->lr_k));
    if (!t->encoder) t->lr_k = 1; /* every parameter steps with the one rate */
    return kvf__model_refresh(t->ctx, t->base->model);
}
