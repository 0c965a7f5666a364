/* Which options are for which methods: an option that was given and that the method cannot honour
 * is refused, never ignored. */
#include "method.h"
#include "options_priv.h"

#include <string.h>

/* Weights that are trained are f32 in memory. */
static kvf_status check_trained_base(kvf_ctx *ctx, const kvf_train_options *o)
{
    const char *option = o->stream_layers                     ? "stream-layers"
                         : o->weight_dtype                    ? "weight-dtype"
                         : o->precision == KVF_PRECISION_INT8 ? "precision int8"
                                                              : NULL;
    if (!option) return KVF_OK;
    return kvf__fail(ctx, KVF_EUSAGE, "--%s is for frozen weights; %s trains them", option,
                     strcmp(o->method, "full") ? "--unfreeze base" : "method full");
}

bool kvf__train_option_applies(const char *name, const char *method)
{
    const kvf__option *row = kvf__option_find(name);
    const kvf__method *known = method ? kvf__method_find(method) : NULL;

    if (!row || !known) return false;
    if (!row->methods) return known->port != KVF__PORT_NONE || strcmp(row->row.name, "lr") != 0;
    return kvf__choice_index(row->methods, known->name) >= 0;
}

/* Method head has nothing to train but what the task brings. */
static kvf_status check_head_alone(kvf_ctx *ctx, const kvf_train_options *o)
{
    if (!strcmp(o->task, "lm") && !o->named_data.n)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "--method head: task lm has no head of its own, want another --task");
    return KVF_OK;
}

/* Flags are not marked as given: true is what was asked for. */
static bool is_set(const kvf_train_options *o, const kvf__option *r)
{
    return r->row.kind == KVF_FLAG ? *(const bool *)kvf__option_field(o, r)
                                   : kvf__train_option_given(o, r->row.name);
}

kvf_status kvf__train_options_check_method(kvf_ctx *ctx, const kvf_train_options *o)
{
    const kvf__method *method = kvf__method_find(o->method);
    const kvf__option *r;

    for (size_t i = 0; (r = kvf__option_at(i)) != NULL; i++)
        if (is_set(o, r) && !kvf__train_option_applies(r->row.name, o->method))
            return kvf__fail(ctx, KVF_EUSAGE, "--%s: not for method %s", r->row.name, method->name);
    if (method->port == KVF__PORT_NONE) KVF_TRY(check_head_alone(ctx, o));
    if (!strcmp(o->method, "adapter") && o->base_dropout > 0)
        return kvf__fail(ctx, KVF_EUSAGE, "--base-dropout: not for method adapter");
    if (o->train_head && !strcmp(o->method, "full"))
        return kvf__fail(ctx, KVF_EUSAGE, "--train-head: method full trains it anyway");
    if (o->infix && o->base_dropout > 0)
        return kvf__fail(ctx, KVF_EUSAGE, "--base-dropout: not with --infix");
    if (kvf__train_option_given(o, "base-lr") && !o->unfreeze_base)
        return kvf__fail(ctx, KVF_EUSAGE, "--base-lr needs --unfreeze base");
    if (!(o->base_lr > 0)) return kvf__fail(ctx, KVF_EUSAGE, "--base-lr must be above 0");
    if (o->unfreeze_base && o->train_head)
        return kvf__fail(ctx, KVF_EUSAGE, "--train-head: --unfreeze base trains it anyway");
    if (o->stream_layers && o->weight_dtype)
        return kvf__fail(ctx, KVF_EUSAGE, "--stream-layers: not with --weight-dtype");
    if (o->precision == KVF_PRECISION_INT8 && (o->stream_layers || o->weight_dtype))
        return kvf__fail(ctx, KVF_EUSAGE, "--precision int8: not with --%s",
                         o->stream_layers ? "stream-layers" : "weight-dtype");
    if (!strcmp(o->method, "full") || o->unfreeze_base) KVF_TRY(check_trained_base(ctx, o));
    if (!strcmp(o->method, "adapter") && o->adapter_size < 1)
        return kvf__fail(ctx, KVF_EUSAGE, "--adapter-size must be at least 1");
    return KVF_OK;
}
