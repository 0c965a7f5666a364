/* Describes files of other ecosystems: tensors and metadata. Tensors are listed without reading
 * their values, so a base of gigabytes takes no longer than a small one. */
#include "inspect_int.h"

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

/* Describes any PEFT adapter, including those that cannot be imported. */
static const struct {
    const char *name, *config; /* of a folder: file that holds its attributes */
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
    kvf_json *attributes = NULL;

    if (kind) kvf_json_set(root, "kind", kvf_json_new_str(KINDS[kind].name));
    if (config) KVF_TRY(kvf__json_load_in(ctx, path, config, &attributes));
    kvf__set_taken(root, "attributes", &attributes);
    kvf_status st = kvf__weights_open(ctx, path, kind, &weights);
    if (!st) {
        kvf__inspect_table(&weights.table, root);
        kvf__set_taken(root, "metadata", &weights.meta);
    }
    kvf__weights_close(&weights);
    return st;
}
