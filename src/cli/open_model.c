/* Base and prefixes as several commands open them. Prefixes first: they are small, and a wrong name
 * should not cost the loading of a base; but those of methods that read the base after it. */
#include "cli_model.h"

#include <stdlib.h>

/* Those that need the base once it is there, the others before. */
static kvf_status open_prefixes(const cli_call *call, const cli_model_options *o, cli_model *model)
{
    kvf_status st = KVF_OK;
    model->n = o->prefixes.n; /* those not yet open are NULL */
    for (size_t i = 0; !st && i < model->n; i++) {
        bool later = false;
        st = kvf__prefix_needs_base(call->ctx, o->prefixes.item[i], &later);
        if (!st && later == (model->base != NULL))
            st = kvf_prefix_open_on(call->ctx, o->prefixes.item[i], model->base, o->checkpoint,
                                    &model->prefixes[i]);
        if (!st && o->head && later == (model->base != NULL))
            st = kvf_prefix_use_head(call->ctx, model->prefixes[i], o->head);
    }
    return st;
}

/* There is always room for it. */
static kvf_status open_own_head(const cli_call *call, const cli_model_options *o, cli_model *model)
{
    bool there = false;
    kvf_status st = kvf__base_has_head(call->ctx, o->base, &there);
    if (st || !there) return st;
    model->n = 1;
    return kvf_prefix_open(call->ctx, o->base, KVF_CHECKPOINT_DEFAULT, &model->prefixes[0]);
}

/* The first that changes the base; kvf_prefix_check refuses company. */
static const kvf_prefix *changing(const cli_model *model)
{
    for (size_t i = 0; i < model->n; i++)
        if (model->prefixes[i] && kvf_prefix_changes_base(model->prefixes[i]))
            return model->prefixes[i];
    return NULL;
}

static kvf_status open_all(const cli_call *call, const cli_model_options *o, cli_model *model)
{
    kvf_status st = open_prefixes(call, o, model);
    if (!st && !model->n && o->own_head) st = open_own_head(call, o, model);
    if (!st) st = kvf_base_open_for(call->ctx, o->base, &o->how, changing(model), &model->base);
    if (!st && o->prefixes.n) st = open_prefixes(call, o, model);
    for (size_t i = 0; !st && i < model->n; i++)
        st = kvf_prefix_check(call->ctx, model->prefixes[i], model->base, o->allow_other_base);
    if (!st && o->drop_layers) st = kvf_base_drop_layers(call->ctx, model->base, o->drop_layers);
    return st;
}

int cli_model_open(const cli_call *call, const cli_model_options *o, cli_model *out)
{
    cli_model model = {.prefixes = calloc(o->prefixes.n + 1, sizeof(kvf_prefix *))};
    if (!model.prefixes) return cli_fail(call->command, "out of memory");
    kvf_status st = open_all(call, o, &model);
    if (st) {
        cli_model_close(&model);
        return cli_fail_status(call, st);
    }
    *out = model;
    return CLI_OK;
}

void cli_model_close(cli_model *model)
{
    for (size_t i = 0; i < model->n; i++)
        kvf_prefix_free(model->prefixes[i]);
    free(model->prefixes);
    kvf_base_free(model->base);
    *model = (cli_model){0};
}
