/* Checks that a file belongs to a base: the base named in it (name, architecture, hash) is compared
 * with the open base, or replaced by it. */
#include "open_prefix.h"

#include <string.h>

const char *kvf__base_words(const kvf__identity *id, char buf[256])
{
    const bool named = id->base_name && *id->base_name;
    snprintf(buf, 256, named ? "base %s" : "another base", id->base_name);
    return buf;
}

static kvf_status replace_text(kvf_ctx *ctx, char **text, const char *by)
{
    char *copy = NULL;
    KVF_TRY(kvf__strdup(ctx, by, &copy));
    kvf__free(*text);
    *text = copy;
    return KVF_OK;
}

kvf_status kvf__identity_stamp(kvf_ctx *ctx, kvf__identity *id, const kvf_base *base)
{
    KVF_TRY(replace_text(ctx, &id->base_name, base->name));
    KVF_TRY(replace_text(ctx, &id->base_architecture, kvf_base_architecture(base)));
    return replace_text(ctx, &id->base_hash, base->hash);
}

/* Sets L, G, D and the base's name, architecture and hash, from the base or from the adapter. */
kvf_status kvf__import_stamp(kvf_ctx *ctx, const kvf_base *base, const char *base_name,
                             const char *method, const char *task, kvf__identity *id)
{
    if (base) {
        const kvf__kv_shape kv = kvf__desc_kv(kvf__model_desc(base->model));
        KVF_TRY(kvf__identity_set_kv(ctx, id, &kv));
        id->encoder_layers = kvf__model_desc(base->model)->encoder;
    }
    KVF_TRY(kvf__strdup(ctx, base_name, &id->base_name));
    KVF_TRY(kvf__strdup(ctx, "", &id->base_architecture));
    KVF_TRY(kvf__strdup(ctx, "", &id->base_hash));
    if (base) KVF_TRY(kvf__identity_stamp(ctx, id, base));
    KVF_TRY(kvf__strdup(ctx, method, &id->method));
    KVF_TRY(kvf__strdup(ctx, task, &id->task));
    KVF_TRY(kvf__strdup(ctx, "auto", &id->chat_template));
    id->position_start = id->P;
    return KVF_OK;
}

kvf_status kvf__prefix_fits(kvf_ctx *ctx, const kvf_prefix *prefix, const kvf_base *base,
                            bool allow_other_base)
{
    const kvf__desc *d = kvf__model_desc(base->model);
    const kvf__identity *id = &prefix->file.id;
    char names[512], name[256], found[KVF__KV_TEXT], wanted[KVF__KV_TEXT];
    if (prefix->file.head.n_tasks)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "%s: holds heads of several tasks: --head names one of %s", prefix->path,
                         kvf__head_names(&prefix->file.head, names, sizeof names));
    const kvf__kv_shape have = kvf__identity_kv(id), want = kvf__desc_kv(d);
    if (!kvf__kv_same(&have, &want) || id->encoder_layers != d->encoder)
        return kvf__fail(ctx, KVF_EMISMATCH, "%s: the prefix is for %s, %s, but the base has %s",
                         base->path, kvf__base_words(id, name), kvf__heads_text(found, &have),
                         kvf__heads_text(wanted, &want));
    if (prefix->file.vectors.P && prefix->file.vectors.C != d->C)
        return kvf__fail(
            ctx, KVF_EMISMATCH,
            "%s: the virtual tokens, for %s, are %lld wide, but the base's embeddings %lld",
            base->path, kvf__base_words(id, name), (long long)prefix->file.vectors.C,
            (long long)d->C);
    const kvf__neuron_shape neurons = kvf__desc_neurons(d, id->neurons.N);
    if (id->neurons.N && !kvf__neuron_shape_same(&id->neurons, &neurons))
        return kvf__fail(ctx, KVF_EMISMATCH,
                         "%s: the virtual neurons, for %s, are %lld wide in %lld layers, but the "
                         "base's blocks %lld in %lld, or of another form",
                         base->path, kvf__base_words(id, name), (long long)id->neurons.C,
                         (long long)id->neurons.L, (long long)neurons.C, (long long)neurons.L);
    if (allow_other_base) return KVF_OK;
    if (*id->base_architecture && strcmp(id->base_architecture, d->arch_name))
        return kvf__fail(ctx, KVF_EMISMATCH,
                         "%s: the prefix is for %s, architecture %s, but the base is %s "
                         "(--allow-other-base overrides)",
                         base->path, kvf__base_words(id, name), id->base_architecture,
                         d->arch_name);
    if (!*id->base_hash)
        return kvf__fail(
            ctx, KVF_EMISMATCH,
            "%s: the prefix does not name its base (--allow-other-base accepts it anyway)",
            base->path);
    if (strcmp(id->base_hash, base->hash))
        return kvf__fail(
            ctx, KVF_EMISMATCH,
            "%s: the prefix is for base %s (%s), but this one is %s (--allow-other-base overrides)",
            base->path, id->base_name, id->base_hash, base->hash);
    return KVF_OK;
}

kvf_status kvf__identity_check(kvf_ctx *ctx, const char *path, kvf__identity *id,
                               const kvf_base *base, bool allow_other_base)
{
    const kvf_prefix view = {.file.id = *id, .path = (char *)path};
    KVF_TRY(kvf__prefix_fits(ctx, &view, base, allow_other_base));
    return *id->base_hash ? KVF_OK : kvf__identity_stamp(ctx, id, base);
}

kvf_status kvf_prefix_check(kvf_ctx *ctx, const kvf_prefix *prefix, const kvf_base *base,
                            bool allow_other_base)
{
    KVF_TRY(KVF__NEED(ctx, prefix, base));
    if (base->carries && base->carries != prefix)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "%s: was opened with values of method %s, so other prefixes cannot use it",
                         base->path, base->carries->file.id.method);
    KVF_TRY(kvf__prefix_fits(ctx, prefix, base, allow_other_base));
    if (!kvf_prefix_changes_base(prefix) || base->carries) return KVF_OK;
    return kvf__fail(ctx, KVF_EUSAGE, "%s: method %s changes the base, which was not opened for it",
                     base->path, prefix->file.id.method);
}
