/* Files of other ecosystems described: their tensors, and what they say about
 * themselves as metadata. Tensors are listed, not read: a base of gigabytes is described as fast as
 * a small one.
 */
#include "inspect_int.h"

#include <string.h>

static const char *dtype_text(const kvf__view *view)
{
    return view->dtype == KVF__OTHER ? view->other_name : kvf__dtype_name(view->dtype);
}

/* tensors [], and metadata {} if there is any. Takes the metadata out of `weights`. */
void kvf__inspect_weights(kvf__weights *weights, kvf_json *root)
{
    kvf_json *tensors = kvf_json_array();

    for (size_t i = 0; i < weights->table.n; i++) {
        const kvf__tensor *tensor = &weights->table.items[i];
        const kvf__view *view = &tensor->view;
        kvf_json_add(tensors, kvf__tensor_entry(tensor->name, view->rank, view->dim,
                                                dtype_text(view), kvf__view_bytes(view)));
    }
    kvf_json_set(root, "tensors", tensors);
    kvf__set_taken(root, "metadata", &weights->meta);
}

static kvf_status inspect_with(kvf_ctx *ctx, const char *path, kvf_json *root,
                               kvf_status (*open)(kvf_ctx *, const char *, kvf__weights *))
{
    kvf__weights weights = {0};
    kvf_status st;

    st = open(ctx, path, &weights);
    if (st) goto out;
    kvf__inspect_weights(&weights, root);
out:
    kvf__weights_close(&weights);
    return st;
}

kvf_status kvf__inspect_safetensors(kvf_ctx *ctx, const char *path, kvf_json *root)
{
    return inspect_with(ctx, path, root, kvf__safetensors_open);
}

kvf_status kvf__inspect_gguf(kvf_ctx *ctx, const char *path, kvf_json *root)
{
    return inspect_with(ctx, path, root, kvf__gguf_open);
}

/* A JSON file of the folder as the value of `key`. */
static kvf_status add_config(kvf_ctx *ctx, const char *dir, const char *name, const char *key,
                             kvf_json *root)
{
    char *path = NULL;
    kvf_json *config = NULL;
    kvf_status st;

    st = kvf__path_join(ctx, dir, name, &path);
    if (st) goto out;
    if (!kvf__exists(path)) goto out;
    st = kvf_json_load(ctx, path, &config);
    if (st) goto out;
    kvf__set_taken(root, key, &config);
out:
    kvf__free(path);
    return st;
}

kvf_status kvf__inspect_hf(kvf_ctx *ctx, const char *dir, kvf_json *root)
{
    KVF_TRY(add_config(ctx, dir, "config.json", "attributes", root));
    return inspect_with(ctx, dir, root, kvf__safetensors_open_dir);
}

static kvf_status open_adapter(kvf_ctx *ctx, const char *dir, kvf__weights *out)
{
    char *path = NULL;
    kvf_status st;

    KVF_TRY(kvf__path_join(ctx, dir, "adapter_model.safetensors", &path));
    st = kvf__safetensors_open(ctx, path, out);
    kvf__free(path);
    return st;
}

/* Any PEFT adapter is described, also those that cannot be imported. */
kvf_status kvf__inspect_peft(kvf_ctx *ctx, const char *dir, kvf_json *root)
{
    KVF_TRY(add_config(ctx, dir, "adapter_config.json", "attributes", root));
    return inspect_with(ctx, dir, root, open_adapter);
}
