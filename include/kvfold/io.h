/* Looking inside files, and bringing them in and out of other ecosystems.
 *
 *     kvf_json *tree = NULL;
 *     if (kvf_inspect(ctx, "prefix.h5", &tree)) return 1;
 *     puts(kvf_json_str(kvf_json_get(tree, "kind"), NULL));
 *     kvf_json_free(tree);
 */
#ifndef KVFOLD_IO_H
#define KVFOLD_IO_H

#include <kvfold/base.h>
#include <kvfold/json.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Describes any kvfold (HDF5), safetensors or GGUF file, or a Hugging Face or PEFT folder. *out, to be freed by the
 * caller, is an object: kind ("prefix", "run", "safetensors", "gguf", "peft", "hf"), format_version (own files), attributes {},
 * tensors [{name, shape, dtype, bytes, labels?}], for prefixes `layers` [{layer, key {mean, std, min, max, norm}, value {...}}],
 * options {}, lineage {}, history {steps, first_train_loss, last_train_loss, best_...} for runs, metadata {} for foreign files.
 * EIO, EFORMAT, EUNSUPPORTED: one line naming the file. */
kvf_status kvf_inspect(kvf_ctx *ctx, const char *path, kvf_json **out);

#ifdef __cplusplus
}
#endif
#endif
