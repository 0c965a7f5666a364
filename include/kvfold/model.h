/* A base: a frozen pretrained transformer with its tokenizer, opened from a Hugging Face folder or
 * a GGUF file; and a prefix: what conditions it.
 *
 *     kvf_base *base = NULL;
 *     kvf_prefix *prefix = NULL;
 *     if (kvf_base_open(ctx, "model.gguf", NULL, &base)) return 1;
 *     if (kvf_prefix_open(ctx, "prefix.h5", KVF_CHECKPOINT_DEFAULT, &prefix)) return 1;
 *     kvf_prefix_free(prefix);
 *     kvf_base_free(base);
 */
#ifndef KVFOLD_MODEL_H
#define KVFOLD_MODEL_H

#include <kvfold/base.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum kvf_precision {
    KVF_PRECISION_AUTO,
    KVF_PRECISION_F32,
    KVF_PRECISION_BF16
} kvf_precision;

/* What frozen weights are kept as in memory. AUTO: as products read them, in the type of the
 * precision, for training in both directions. The others are one copy of each matrix in that type,
 * which every layer is packed from just before it is computed: less memory for more time. F32 gives
 * the bits of AUTO; BF16 and INT8 (a scale for every 32 weights of a row) round the weights. */
typedef enum kvf_weight_dtype {
    KVF_WEIGHTS_AUTO,
    KVF_WEIGHTS_F32,
    KVF_WEIGHTS_BF16,
    KVF_WEIGHTS_INT8
} kvf_weight_dtype;

/* Type in which a prefix file stores values; INT8 has scales. */
typedef enum kvf_dtype { KVF_DTYPE_F32, KVF_DTYPE_F16, KVF_DTYPE_BF16, KVF_DTYPE_INT8 } kvf_dtype;
const char *kvf_dtype_name(kvf_dtype dtype); /* "f32", "int8" */

typedef struct kvf_base kvf_base;

typedef struct kvf_base_options {
    kvf_precision precision; /* of activations and products; AUTO: by the CPU's flags and the width
                                of the base, bf16 where that is faster */
    bool backward;           /* also what training needs */
    kvf_weight_dtype weight_dtype;
    bool stream_layers; /* keep no weights at all: each layer is packed from the mapped file just
                           before it is computed, with the bits of AUTO. EUSAGE with a weight_dtype
                           that is not AUTO */
} kvf_base_options;

typedef struct kvf_shape {
    int64_t L, H, G, D, C, F, V;
    int64_t max_positions;
} kvf_shape;

/* options may be NULL. The file stays mapped until the base is freed. ctx must outlive the base.
 * EIO, EFORMAT, EUNSUPPORTED, ESHAPE, ENOMEM: one line naming file and place. BF16 on a CPU without
 * it: EUNSUPPORTED. */
kvf_status kvf_base_open(kvf_ctx *ctx, const char *path, const kvf_base_options *options,
                         kvf_base **out);
/* The same for a prefix of a method that changes the base itself (adapter), whose values it then
 * carries; the prefix must outlive it. With any other, or NULL, it is kvf_base_open. */
typedef struct kvf_prefix kvf_prefix;
kvf_status kvf_base_open_for(kvf_ctx *ctx, const char *path, const kvf_base_options *options,
                             const kvf_prefix *prefix, kvf_base **out);
/* Does it change the base, so that the base must be opened for it? */
bool kvf_prefix_changes_base(const kvf_prefix *prefix);
/* Leaves out the adapters of layers "A-B" (or "A"). EUSAGE: the base carries none, or the text is
 * no range; ESHAPE: no such layers. */
kvf_status kvf_base_drop_layers(kvf_ctx *ctx, kvf_base *base, const char *layers);
void kvf_base_free(kvf_base *base);

const char *kvf_base_name(const kvf_base *base); /* last part of the path, or general.name */
const char *kvf_base_architecture(const kvf_base *base); /* "llama", "gpt2", "bert", ... */
const char *kvf_base_hash(const kvf_base *base);         /* 32 hex digits, computed at open */
kvf_shape kvf_base_shape(const kvf_base *base);
kvf_precision kvf_base_precision(const kvf_base *base); /* F32 or BF16 */

/* Which state of a run file is meant; prefix files have one only. DEFAULT: best if there is one,
 * else last. */
typedef enum kvf_checkpoint {
    KVF_CHECKPOINT_DEFAULT,
    KVF_CHECKPOINT_BEST,
    KVF_CHECKPOINT_LAST
} kvf_checkpoint;

/* A prefix file, an adapter file, a base file with a head (which is all it gives), or a run file
 * whose encoder is run now (dropout off). */
kvf_status kvf_prefix_open(kvf_ctx *ctx, const char *path, kvf_checkpoint checkpoint,
                           kvf_prefix **out);
/* The same on its base, which some methods read to emit their prefix: runs of those are EUSAGE
 * without it (base NULL, or kvf_prefix_open). The base is not kept. */
kvf_status kvf_prefix_open_on(kvf_ctx *ctx, const char *path, const kvf_base *base,
                              kvf_checkpoint checkpoint, kvf_prefix **out);
/* Of a run of several tasks the head of one: the prefix is then that task's. EUSAGE: it has no such
 * head, or one only. Without it kvf_prefix_check refuses the prefix. */
kvf_status kvf_prefix_use_head(kvf_ctx *ctx, kvf_prefix *prefix, const char *name);
void kvf_prefix_free(kvf_prefix *prefix);
int64_t kvf_prefix_length(const kvf_prefix *prefix); /* P */
int64_t kvf_prefix_position_start(const kvf_prefix *prefix);
const char *kvf_prefix_base_hash(const kvf_prefix *prefix); /* "" if unknown */

/* EMISMATCH unless architecture, L, G, D and hash are the base's; allow_other_base lets the hash
 * differ, never the shape. EUSAGE: it changes the base, and the base was not opened for it; or the
 * base was opened for another. */
kvf_status kvf_prefix_check(kvf_ctx *ctx, const kvf_prefix *prefix, const kvf_base *base,
                            bool allow_other_base);

#ifdef __cplusplus
}
#endif
#endif
