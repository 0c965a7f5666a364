/* Which options are for which methods: an option that was given and that the method cannot honour
 * is refused, never ignored. A row says the ports whose methods know the option, or the methods.
 */
#include "method.h"
#include "options_priv.h"

#include <string.h>

enum { KV = 1 << KVF__PORT_KV, EMBED = 1 << KVF__PORT_EMBED };

static const struct {
    const char *option;
    unsigned ports;     /* 0: method decides */
    const char *method; /* names between bars */
} RULES[] = {
    {"prefix-length", KV | EMBED, NULL},
    {"encoder-hidden", 0, "mlp|p-tuning"},
    {"init", KV | EMBED, NULL},
    {"init-text", KV | EMBED, NULL},
    {"init-kv", KV | EMBED, NULL},
    {"init-scheme", 0, "mlp|direct|prompt|p-tuning"},
    {"init-encoder", KV | EMBED, NULL},
    {"lr-units", KV | EMBED, NULL},
    {"prefix-dropout", KV | EMBED, NULL}, /* embed is refused with the reason, prefix_dropout.c */
    {"layers", KV, NULL},
    {"position-start", KV | EMBED, NULL},
    {"verbalizer", EMBED, NULL},
    {"adapter-size", 0, "adapter"},
    {"adapter-activation", 0, "adapter"},
    {"adapter-placement", 0, "adapter"},
    {"unfreeze", 0, "p-tuning"},
    {"base-lr", 0, "p-tuning"},
};

static bool is_among(const char *names, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = names; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL)
        if (!strncmp(at, name, n) && (at[n] == '|' || !at[n])) return true;
    return false;
}

/* Weights that are trained are f32 in memory. */
static kvf_status check_trained_base(kvf_ctx *ctx, const kvf_train_options *o)
{
    const char *option = o->stream_layers                  ? "stream-layers"
                         : strcmp(o->weight_dtype, "auto") ? "weight-dtype"
                                                           : NULL;
    if (!option) return KVF_OK;
    return kvf__fail(ctx, KVF_EUSAGE, "--%s is for frozen weights; %s trains them", option,
                     strcmp(o->method, "full") ? "--unfreeze base" : "method full");
}

kvf_status kvf__train_options_check_method(kvf_ctx *ctx, const kvf_train_options *o)
{
    const kvf__method *method = kvf__method_find(o->method);

    for (size_t i = 0; i < sizeof RULES / sizeof RULES[0]; i++) {
        bool known = RULES[i].ports ? (RULES[i].ports >> method->port & 1) != 0
                                    : is_among(RULES[i].method, o->method);
        if (!known && kvf__train_option_given(o, RULES[i].option))
            return kvf__fail(ctx, KVF_EUSAGE, "--%s: not for method %s", RULES[i].option,
                             method->name);
    }
    if (o->approximate && !is_among("mlp|p-tuning", o->method))
        return kvf__fail(ctx, KVF_EUSAGE, "--approximate: not for method %s", method->name);
    if (!strcmp(o->method, "adapter") && o->base_dropout > 0)
        return kvf__fail(ctx, KVF_EUSAGE, "--base-dropout: not for method adapter");
    if (o->infix && method->port == KVF__PORT_BLOCK)
        return kvf__fail(ctx, KVF_EUSAGE, "--infix: not for method %s", method->name);
    if (o->train_head && !strcmp(o->method, "full"))
        return kvf__fail(ctx, KVF_EUSAGE, "--train-head: method full trains it anyway");
    if (o->infix && o->base_dropout > 0)
        return kvf__fail(ctx, KVF_EUSAGE, "--base-dropout: not with --infix");
    if (kvf__train_option_given(o, "base-lr") && strcmp(o->unfreeze, "base"))
        return kvf__fail(ctx, KVF_EUSAGE, "--base-lr needs --unfreeze base");
    if (!(o->base_lr > 0)) return kvf__fail(ctx, KVF_EUSAGE, "--base-lr must be above 0");
    if (!strcmp(o->unfreeze, "base") && o->train_head)
        return kvf__fail(ctx, KVF_EUSAGE, "--train-head: --unfreeze base trains it anyway");
    if (o->stream_layers && strcmp(o->weight_dtype, "auto"))
        return kvf__fail(ctx, KVF_EUSAGE, "--stream-layers: not with --weight-dtype");
    if (!strcmp(o->method, "full") || !strcmp(o->unfreeze, "base"))
        KVF_TRY(check_trained_base(ctx, o));
    if (!strcmp(o->method, "adapter") && o->adapter_size < 1)
        return kvf__fail(ctx, KVF_EUSAGE, "--adapter-size must be at least 1");
    return KVF_OK;
}
