/* Export: a run or prefix as a PEFT folder, or as one safetensors file with the raw past key
 * values. */
#include "load_int.h"

#include <string.h>

static kvf_status export_safetensors(kvf_ctx *ctx, const char *out, bool force,
                                     const kvf_prefix *prefix)
{
    const kvf__identity *id = &prefix->id;
    if (id->raw_keys)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: the keys of a prefix inside rows (placement infix) are not rotated: "
                         "they are no past_key_values",
                         out);
    kvf__tensor tensor = {
        .name = "past_key_values",
        .view = {.data = prefix->prefix.kv,
                 .dtype = KVF__F32,
                 .rank = 6,
                 .dim = {id->L, 2, 1, id->G, id->P, id->D}},
    };
    return kvf__safetensors_write(ctx, out, force, &tensor, 1);
}

kvf_status kvf_export(kvf_ctx *ctx, const kvf_export_options *options)
{
    bool peft = !strcmp(options->format, "peft");
    if (!peft && strcmp(options->format, "safetensors"))
        return kvf__fail(ctx, KVF_EUSAGE, "format \"%s\" is not known; known: peft, safetensors",
                         options->format);
    kvf_prefix *prefix = NULL;
    bool needs_base = false;
    KVF_TRY(kvf_prefix_needs_base(ctx, options->path, &needs_base));
    if (needs_base)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "%s: its method reads the base: merge the run, then export the prefix",
                         options->path);
    KVF_TRY(kvf_prefix_open(ctx, options->path, options->checkpoint, &prefix));
    if (kvf_prefix_changes_base(prefix)) {
        kvf_status refused = kvf__fail(
            ctx, KVF_EUNSUPPORTED,
            "%s: method %s is no prefix: neither PEFT nor past key values "
            "have a form for it",
            options->path, prefix->id.method);
        kvf_prefix_free(prefix);
        return refused;
    }
    kvf_status st = options->head ? kvf_prefix_use_head(ctx, prefix, options->head) : KVF_OK;
    if (!st)
        st = peft ? kvf__peft_write(ctx, options->out, options->force, &prefix->id, &prefix->prefix,
                                    &prefix->head)
                  : export_safetensors(ctx, options->out, options->force, prefix);
    kvf_prefix_free(prefix);
    return st;
}
