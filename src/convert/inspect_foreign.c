/* Files of other ecosystems described: their tensors, and what they say about themselves as
 * metadata. Tensors are listed, not read: a base of gigabytes is described as fast as a small one.
 */
#include "inspect_int.h"

#include <string.h>

void kvf__inspect_table(const kvf__table *table, kvf_json *root)
{
    kvf_json *tensors = kvf_json_array();

    for (size_t i = 0; i < table->n; i++) {
        const kvf__tensor *tensor = &table->items[i];
        const kvf__view *view = &tensor->view;
        kvf_json_add(tensors, kvf__tensor_entry(tensor->name, view->rank, view->dim,
                                                kvf__view_type_name(view), kvf__view_bytes(view)));
    }
    kvf_json_set(root, "tensors", tensors);
}

/* A JSON file of the folder as the attributes. */
static kvf_status add_config(kvf_ctx *ctx, const char *dir, const char *name, kvf_json *root)
{
    char *path = NULL;
    kvf_json *config = NULL;
    kvf_status st;

    st = kvf__path_join(ctx, dir, name, &path);
    if (st) goto out;
    if (!kvf__exists(path)) goto out;
    st = kvf_json_load(ctx, path, &config);
    if (st) goto out;
    kvf__set_taken(root, "attributes", &config);
out:
    kvf__free(path);
    return st;
}

/* Any PEFT adapter is described, also those that cannot be imported. */
static const struct {
    const char *name, *config; /* of a folder: what its attributes are read from */
} KINDS[] = {
    [KVF__FILE_SAFETENSORS] = {"safetensors", NULL},
    [KVF__FILE_GGUF] = {"gguf", NULL},
    [KVF__FILE_HF_DIR] = {"hf", "config.json"},
    [KVF__FILE_PEFT_DIR] = {"peft", "adapter_config.json"},
};

kvf_status kvf__inspect_foreign(kvf_ctx *ctx, const char *path, kvf__file_kind kind, kvf_json *root)
{
    const char *config = KINDS[kind].config;
    kvf__weights weights = {0};

    if (kind) kvf_json_set(root, "kind", kvf_json_new_str(KINDS[kind].name));
    if (config) KVF_TRY(add_config(ctx, path, config, root));
    kvf_status st = kvf__weights_open(ctx, path, kind, &weights);
    if (!st) {
        kvf__inspect_table(&weights.table, root);
        kvf__set_taken(root, "metadata", &weights.meta);
    }
    kvf__weights_close(&weights);
    return st;
}
