/* What a file says of its base (name, architecture, hash), held against a base and replaced by what
 * that says. */
#include "load_int.h"

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

kvf_status kvf__identity_check(kvf_ctx *ctx, const char *path, kvf__identity *id,
                               const kvf_base *base, bool allow_other_base)
{
    const kvf_prefix view = {.id = *id, .path = (char *)path};
    KVF_TRY(kvf__prefix_fits(ctx, &view, base, allow_other_base));
    return *id->base_hash ? KVF_OK : kvf__identity_stamp(ctx, id, base);
}
