/* kvf_inspect(): detects the kind of a file and describes it. */
#include "inspect_int.h"
#include "open_base.h"

#include <kvfold/io.h>

static kvf_status describe(kvf_ctx *ctx, const char *path, kvf_json *root)
{
    kvf__file_kind kind = KVF__FILE_UNKNOWN;
    char *at = NULL;

    KVF_TRY(kvf__exists(path) ? kvf__strdup(ctx, path, &at) : kvf__hub_find_prefix(ctx, path, &at));
    kvf_status st = kvf__file_kind_of(ctx, at, &kind);
    if (!st)
        st = kind == KVF__FILE_HDF5 ? kvf__inspect_own(ctx, at, root)
                                    : kvf__inspect_foreign(ctx, at, kind, root);
    kvf__free(at);
    return st;
}

kvf_status kvf_inspect(kvf_ctx *ctx, const char *path, kvf_json **out)
{
    KVF_TRY(KVF__NEED(ctx, path, out));
    kvf_json *root = kvf_json_object();
    kvf_status st = describe(ctx, path, root);
    char *text = st ? NULL : kvf_json_text(root, KVF_JSON_COMPACT);
    if (!st && !text) /* an allocation above failed */
        st = kvf__fail(ctx, KVF_ENOMEM, "%s: out of memory while describing it", path);
    kvf_json_text_free(text);
    KVF__GIVE(st, out, root, kvf_json_free(root));
    return st;
}
