/* kvf_inspect(): detects the kind of a file and describes it. */
#include "inspect_int.h"

#include <kvfold/io.h>

kvf_status kvf_inspect(kvf_ctx *ctx, const char *path, kvf_json **out)
{
    KVF_TRY(KVF__NEED(ctx, path, out));
    kvf__file_kind kind = KVF__FILE_UNKNOWN;

    KVF_TRY(kvf__file_kind_of(ctx, path, &kind));
    kvf_json *root = kvf_json_object();
    kvf_status st = kind == KVF__FILE_HDF5 ? kvf__inspect_own(ctx, path, root)
                                           : kvf__inspect_foreign(ctx, path, kind, root);
    char *text = st ? NULL : kvf_json_text(root, KVF_JSON_COMPACT);
    if (!st && !text) /* an allocation above failed */
        st = kvf__fail(ctx, KVF_ENOMEM, "%s: out of memory while describing it", path);
    kvf_json_text_free(text);
    KVF__GIVE(st, out, root, kvf_json_free(root));
    return st;
}
