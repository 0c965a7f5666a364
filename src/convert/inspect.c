/* kvf_inspect(): which kind of file is it? */
#include "inspect_int.h"

#include <kvfold/io.h>

kvf_status kvf_inspect(kvf_ctx *ctx, const char *path, kvf_json **out)
{
    KVF_TRY(KVF__NEED(ctx, path, out));
    kvf__file_kind kind = KVF__FILE_UNKNOWN;
    kvf_json *root = NULL;
    char *text = NULL;
    kvf_status st;

    st = kvf__file_kind_of(ctx, path, &kind);
    if (st) goto out;
    root = kvf_json_object();
    st = kind == KVF__FILE_HDF5 ? kvf__inspect_own(ctx, path, root)
                                : kvf__inspect_foreign(ctx, path, kind, root);
    if (st) goto out;
    text = kvf_json_text(root, KVF_JSON_COMPACT); /* NULL if anything above found no memory */
    if (!text) {
        st = kvf__fail(ctx, KVF_ENOMEM, "%s: out of memory while describing it", path);
        goto out;
    }
    *out = root;
    root = NULL;
out:
    kvf_json_text_free(text);
    kvf_json_free(root);
    return st;
}
