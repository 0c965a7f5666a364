/* An adapter file described: where it comes from, its shape, and every parameter with its norm. */
#include "inspect_int.h"

#include <string.h>

kvf_status kvf__inspect_adapter(kvf_ctx *ctx, const char *path, kvf_json *root)
{
    kvf__h5 h5;
    kvf__adapter_file file = {0};
    kvf_json *tensors = kvf_json_array(), *attributes;

    kvf_json_set(root, "tensors", tensors);
    KVF_TRY(kvf__adapter_file_read(ctx, path, &file));
    h5 = kvf__h5_open(ctx, path, "adapter");
    kvf__inspect_identity(&h5, &file.id, NULL, root);
    attributes = kvf_json_get(root, "attributes");
    kvf_json_set(attributes, "size", kvf_json_new_int(file.size));
    kvf_json_set(attributes, "activation", kvf_json_new_str(file.activation));
    kvf_json_set(attributes, "placement", kvf_json_new_str(file.placement));
    kvf__inspect_params(&h5, NULL, "adapter", true, tensors);
    kvf__inspect_head(&h5, root, tensors);
    kvf__set_taken(root, "options", &file.options);
    kvf__set_taken(root, "lineage", &file.lineage);
    kvf__adapter_file_done(&file);
    return kvf__h5_close(&h5);
}
