/* The prompt cache of mlx-lm (save_prompt_cache() of mlx_lm/models/cache.py): a safetensors file
 * whose metadata are trees; a key is the path to a leaf. Tensors L.0 and L.1 are the keys and
 * values of layer L, [1, G, P, D], as in a Hugging Face cache.
 *
 *   mlx-lm 0.32.0: tensors L.2 hold P; trees: user metadata (0), classes of the layers' caches (1),
 *                  which tensors are numbers (2)
 *   up to 0.31.3:  trees: states of the layers' caches (0), user metadata (1), classes (2) */
#ifndef KVF_MLX_CACHE_H
#define KVF_MLX_CACHE_H

#include "prefix.h"
#include "view.h"

typedef struct kvf__mlx_form {
    bool old;          /* the older layout */
    kvf__dtype dtype;  /* F32 or F16 */
    const char *model; /* model for mlx_lm.generate, unless --model is given */
} kvf__mlx_form;
/* ENUMERIC: a value exceeds the range of the type. */
kvf_status kvf__mlx_cache_write(kvf_ctx *ctx, const char *path, bool force,
                                const kvf__mlx_form *form, const kvf__prefix *prefix);

#endif
