/* Values that change the base itself (methods of port block): read from an adapter file or a run,
 * and copied to a base.
 *
 * A model with adapters has a form of its own, with unfolded norms. The base is therefore opened
 * for its adapter and carries only that; no other prefix can share it. */
#include "method.h"
#include "open_prefix.h"

#include <stdlib.h>
#include <string.h>

/* ---- from files ------------------------------------------------------------------------------ */

/* values: the trained parameters, adapters first. If there are no others, the norms were frozen. */
static kvf_status adapter_form(kvf_ctx *ctx, const char *path, int64_t size, const char *activation,
                               const char *placement, const kvf__artifact *file,
                               const kvf__params *values, kvf__train *out)
{
    enum { PARTS = 4 }; /* parameters of an adapter */
    kvf__train form = {.what = KVF__TRAIN_ADAPTERS, .adapters.size = size};
    kvf_status st = kvf__adapter_act_parse(ctx, activation, &form.adapters.act);

    if (!st) st = kvf__adapter_place_parse(ctx, placement, &form.adapters.place);
    if (st) return kvf__fail_prefix(ctx, KVF_EFORMAT, "%s", path);
    form.frozen_norms = (int64_t)values->n ==
                        PARTS * file->id.L * kvf__adapter_halves(&form.adapters);
    *out = form;
    return KVF_OK;
}

kvf_status kvf__block_form(kvf_ctx *ctx, const char *path, const kvf__artifact *adapter,
                           kvf__train *out)
{
    return adapter_form(ctx, path, adapter->size, adapter->activation, adapter->placement, adapter,
                        &adapter->values.params, out);
}

static const char *text_of(const kvf_json *options, const char *name)
{
    const char *text = kvf_json_str(kvf_json_get(options, name), NULL);
    return text ? text : "";
}

kvf_status kvf__block_from_run(kvf_ctx *ctx, const char *path, kvf__artifact *run, bool best,
                               kvf_prefix *prefix)
{
    const kvf__method *method = kvf__method_find(run->id.method);
    const kvf_json *options = run->options;
    kvf__params_owned *from = best ? &run->best : &run->values;

    if (method->port == KVF__PORT_NONE)
        prefix->form = (kvf__train){0};
    else if (strcmp(method->folds_to, "adapter"))
        prefix->form = (kvf__train){.what = KVF__TRAIN_EVERYTHING};
    else
        KVF_TRY(adapter_form(
            ctx, path, kvf__int_at(options, "adapter-size"), text_of(options, "adapter-activation"),
            text_of(options, "adapter-placement"), run, &from->params, &prefix->form));
    prefix->file.values = *from;
    *from = (kvf__params_owned){0};
    return KVF_OK;
}

kvf_status kvf__block_beside(kvf_ctx *ctx, const kvf_json *options, const kvf__params *values,
                             const kvf__params *encoder, kvf_prefix *prefix)
{
    if (strcmp(text_of(options, "unfreeze"), "base")) return KVF_OK;
    prefix->form = (kvf__train){.what = KVF__TRAIN_EVERYTHING};
    for (size_t i = 0; i < values->n; i++) {
        const kvf__param *from = &values->item[i];
        kvf__param *to = NULL;
        if (kvf__params_find(encoder, from->name)) continue;
        KVF_TRY(kvf__params_owned_add(ctx, &prefix->file.values, from->name, from->rank, from->dim,
                                      &to));
        memcpy(to->value, from->value, (size_t)from->n * sizeof *from->value);
    }
    return KVF_OK;
}

/* ---- onto a base ----------------------------------------------------------------------------- */

static kvf_status load_one(kvf_ctx *ctx, const char *where, const kvf__params *values,
                           kvf__param *to)
{
    const kvf__param *from = kvf__params_find(values, to->name);
    char found[128], expected[128];

    if (!from)
        return kvf__fail(ctx, KVF_EMISMATCH, "%s: has no %s, which the base needs", where,
                         to->name);
    if (from->rank != to->rank || memcmp(from->dim, to->dim, (size_t)to->rank * sizeof *to->dim))
        return kvf__fail(ctx, KVF_ESHAPE, "%s: %s is %s, but the base needs %s", where, to->name,
                         kvf__shape_text(found, from->rank, from->dim),
                         kvf__shape_text(expected, to->rank, to->dim));
    memcpy(to->value, from->value, (size_t)to->n * sizeof *to->value);
    return KVF_OK;
}

kvf_status kvf__block_load(kvf_ctx *ctx, const char *where, const kvf__params *values,
                           kvf__model *model)
{
    kvf__params *to = kvf__model_params(model);

    if (to->n != values->n)
        return kvf__fail(ctx, KVF_EMISMATCH, "%s: has %zu parameters, but the base needs %zu",
                         where, values->n, to->n);
    for (size_t i = 0; i < to->n; i++)
        KVF_TRY(load_one(ctx, where, values, &to->item[i]));
    return kvf__model_refresh(ctx, model);
}

bool kvf_prefix_changes_base(const kvf_prefix *prefix)
{
    return prefix && prefix->file.values.params.n > 0;
}

static kvf_status open_for(kvf_ctx *ctx, const char *path, const kvf_base_options *options,
                           const kvf_prefix *prefix, kvf_base **out)
{
    kvf_base *base = NULL;

    if (!kvf_prefix_changes_base(prefix)) return kvf__base_open_as(ctx, path, options, NULL, out);
    KVF_TRY(kvf__base_open_as(ctx, path, options, &prefix->form, &base));
    kvf_status st = kvf__block_load(ctx, path, &prefix->file.values.params, base->model);
    if (st) {
        kvf_base_free(base);
        return st;
    }
    base->carries = prefix;
    *out = base;
    return KVF_OK;
}

kvf_status kvf_base_open_for(kvf_ctx *ctx, const char *path, const kvf_base_options *options,
                             const kvf_prefix *prefix, kvf_base **out)
{
    KVF_TRY(KVF__NEED(ctx, path, out));
    KVF__RETURN(ctx, open_for(ctx, path, options, prefix, out));
}

kvf_status kvf_base_open(kvf_ctx *ctx, const char *path, const kvf_base_options *options,
                         kvf_base **out)
{
    return kvf_base_open_for(ctx, path, options, NULL, out);
}

kvf_status kvf__base_open_exact(kvf_ctx *ctx, const char *path, const char *lora, kvf_base **out)
{
    const kvf_base_options exact = {.precision = KVF_PRECISION_F32, .lora = lora};
    return kvf_base_open(ctx, path, &exact, out);
}

/* Parses "4" or "4-7" of n bytes. */
static bool read_span(const char *text, size_t n, long long *from, long long *to)
{
    char *end = NULL;
    if (!n || *text < '0' || *text > '9') return false;
    *from = *to = strtoll(text, &end, 10);
    if (end < text + n && *end == '-' && end[1] >= '0' && end[1] <= '9')
        *to = strtoll(end + 1, &end, 10);
    return end == text + n && *from <= *to;
}

kvf_status kvf__layers_parse(kvf_ctx *ctx, const char *layers, int64_t L, uint8_t *mask)
{
    long long from = 0, to = 0;
    memset(mask, 0, (size_t)L);
    for (const char *at = layers;; at++) {
        size_t n = strcspn(at, ",");
        if (!read_span(at, n, &from, &to))
            return kvf__fail(ctx, KVF_EUSAGE, "\"%s\": want layers as A-B or A, or a list of those",
                             layers);
        if (to >= L)
            return kvf__fail(ctx, KVF_ESHAPE, "layers %s: the base has layers 0-%lld", layers,
                             (long long)L - 1);
        for (long long l = from; l <= to; l++)
            if (mask[l]++)
                return kvf__fail(ctx, KVF_EUSAGE, "\"%s\": layer %lld is given twice", layers, l);
        at += n;
        if (!*at) return KVF_OK;
    }
}

static kvf_status drop_layers(kvf_ctx *ctx, kvf__adapters *adapters, int64_t L, const char *layers,
                              uint8_t *mask)
{
    KVF_TRY(kvf__layers_parse(ctx, layers, L, mask));
    for (int64_t l = 0; l < L; l++)
        if (mask[l]) KVF_TRY(kvf__adapters_drop(ctx, adapters, l, l));
    return KVF_OK;
}

kvf_status kvf_base_drop_layers(kvf_ctx *ctx, kvf_base *base, const char *layers)
{
    KVF_TRY(KVF__NEED(ctx, base, layers));
    kvf__adapters *adapters = kvf__model_adapters(base->model);
    const int64_t L = kvf__model_desc(base->model)->L;
    uint8_t *mask = NULL;

    if (!adapters) return kvf__fail(ctx, KVF_EUSAGE, "%s has no adapters to leave out", base->path);
    KVF_TRY(kvf__alloc(ctx, (size_t)L, &mask));
    kvf_status st = drop_layers(ctx, adapters, L, layers, mask);
    kvf__free(mask);
    return st;
}
