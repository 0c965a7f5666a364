/* Base and prefixes as several commands open them. Prefixes first: they are small, and a wrong name
 * should not cost the loading of a base; but those of methods that read the base after it. */
#include "cli_int.h"

#include <stdlib.h>
#include <string.h>

kvf_checkpoint cli_checkpoint(const char *name)
{
    if (!name) return KVF_CHECKPOINT_DEFAULT;
    return strcmp(name, "best") ? KVF_CHECKPOINT_LAST : KVF_CHECKPOINT_BEST;
}

kvf_precision cli_precision(const char *name)
{
    if (!name || !strcmp(name, "auto")) return KVF_PRECISION_AUTO;
    return strcmp(name, "f32") ? KVF_PRECISION_BF16 : KVF_PRECISION_F32;
}

kvf_base_options cli_base_options(const char *precision, const char *weight_dtype,
                                  const char *stream_layers)
{
    static const char *const NAMES[] = {"auto", "f32", "bf16", "int8"};
    kvf_base_options options = {.precision = cli_precision(precision)};
    for (int i = 0; weight_dtype && i < 4; i++)
        if (!strcmp(weight_dtype, NAMES[i])) options.weight_dtype = (kvf_weight_dtype)i;
    options.stream_layers = stream_layers && !strcmp(stream_layers, "on");
    return options;
}

/* Those that need the base once it is there, the others before. */
static kvf_status open_prefixes(const cli_call *call, const cli_model_paths *paths,
                                cli_model *model)
{
    kvf_status st = KVF_OK;
    model->n = paths->prefixes.n; /* those not yet open are NULL */
    for (size_t i = 0; !st && i < model->n; i++) {
        bool later = false;
        st = kvf_prefix_needs_base(call->ctx, paths->prefixes.at[i], &later);
        if (!st && later == (model->base != NULL))
            st = kvf_prefix_open_on(call->ctx, paths->prefixes.at[i], model->base,
                                    cli_checkpoint(paths->checkpoint), &model->prefixes[i]);
        if (!st && paths->head && later == (model->base != NULL))
            st = kvf_prefix_use_head(call->ctx, model->prefixes[i], paths->head);
    }
    return st;
}

/* There is always room for it. */
static kvf_status open_own_head(const cli_call *call, const cli_model_paths *paths,
                                cli_model *model)
{
    bool there = false;
    kvf_status st = kvf_base_has_head(call->ctx, paths->base, &there);
    if (st || !there) return st;
    model->n = 1;
    return kvf_prefix_open(call->ctx, paths->base, KVF_CHECKPOINT_DEFAULT, &model->prefixes[0]);
}

/* The first that changes the base; kvf_prefix_check refuses company. */
static const kvf_prefix *changing(const cli_model *model)
{
    for (size_t i = 0; i < model->n; i++)
        if (model->prefixes[i] && kvf_prefix_changes_base(model->prefixes[i]))
            return model->prefixes[i];
    return NULL;
}

static kvf_status open_all(const cli_call *call, const cli_model_paths *paths, cli_model *model)
{
    const kvf_base_options options = cli_base_options(paths->precision, paths->weight_dtype,
                                                      paths->stream_layers);
    kvf_status st = open_prefixes(call, paths, model);
    if (!st && !model->n && paths->own_head) st = open_own_head(call, paths, model);
    if (!st)
        st = kvf_base_open_for(call->ctx, paths->base, &options, changing(model), &model->base);
    if (!st && paths->prefixes.n) st = open_prefixes(call, paths, model);
    for (size_t i = 0; !st && i < model->n; i++)
        st = kvf_prefix_check(call->ctx, model->prefixes[i], model->base, paths->allow_other_base);
    if (!st && paths->drop_layers)
        st = kvf_base_drop_layers(call->ctx, model->base, paths->drop_layers);
    return st;
}

int cli_model_open(const cli_call *call, const cli_model_paths *paths, cli_model *out)
{
    cli_model model = {.prefixes = calloc(paths->prefixes.n + 1, sizeof(kvf_prefix *))};
    if (!model.prefixes) return cli_fail(call->command, "out of memory");
    kvf_status st = open_all(call, paths, &model);
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
