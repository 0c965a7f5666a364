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
    KVF_PRECISION_BF16,
    KVF_PRECISION_INT8 /* products of the frozen weights in eight bits, the rest as in BF16; AUTO
                          never takes it. EUSAGE where weights are trained, with a weight_dtype that
                          is not AUTO, and with stream_layers */
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
    const char *lora; /* folder of a LoRA of PEFT that is folded into the weights: another base than
                         the bare one, of another hash; NULL: none */
    uint64_t reserved[3];
} kvf_base_options;

typedef struct kvf_shape {
    int64_t L, H, G, D, C, F, V; /* G, D: 0 where layers differ in them, F then of the narrowest */
    int64_t max_positions;
} kvf_shape;

/* options may be NULL. The file stays mapped until the base is freed. ctx must outlive the base.
 * EIO, EFORMAT, EUNSUPPORTED, ESHAPE, ENOMEM: one line naming file and place. BF16 or INT8 on a CPU
 * without such products: EUNSUPPORTED. */
kvf_status kvf_base_open(kvf_ctx *ctx, const char *path, const kvf_base_options *options,
                         kvf_base **out);
/* The same for a prefix of a method that changes the base itself (adapter), whose values it then
 * carries; the prefix must outlive it. With any other, or NULL, it is kvf_base_open. */
typedef struct kvf_prefix kvf_prefix;
kvf_status kvf_base_open_for(kvf_ctx *ctx, const char *path, const kvf_base_options *options,
                             const kvf_prefix *prefix, kvf_base **out);
/* Does it change the base, so that the base must be opened for it? */
bool kvf_prefix_changes_base(const kvf_prefix *prefix);
/* Leaves out the adapters of layers "A-B" (or "A", or a list "0,2,4-7"). EUSAGE: the base carries
 * none, or the text is no such list; ESHAPE: no such layers. */
kvf_status kvf_base_drop_layers(kvf_ctx *ctx, kvf_base *base, const char *layers);
void kvf_base_free(kvf_base *base);

const char *kvf_base_name(const kvf_base *base); /* last part of the path, or general.name */
const char *kvf_base_architecture(const kvf_base *base); /* "llama", "gpt2", "bert", ... */
const char *kvf_base_hash(const kvf_base *base);         /* 32 hex digits, computed at open */
kvf_shape kvf_base_shape(const kvf_base *base);
kvf_precision kvf_base_precision(const kvf_base *base); /* not AUTO */

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
/* The task, as --task names it: "lm", "seq-cls", ...; "multi-task": one of several heads has to be
 * chosen first. */
const char *kvf_prefix_task(const kvf_prefix *prefix);
/* Name of class or tag i, in the order of the head's outputs; NULL: past the last. */
const char *kvf_prefix_label(const kvf_prefix *prefix, size_t i);
/* Name of head i of several, of which none is chosen yet; NULL: past the last. */
const char *kvf_prefix_head(const kvf_prefix *prefix, size_t i);
/* Its keys and values [L, 2, 1, G, P, D], keys before values, as they lie in a Hugging Face cache
 * (keys after rope); a view, as long as the prefix lives. shape may be NULL. NULL: it has none, but
 * virtual tokens at the input or values of the base itself; or its heads differ by layer. */
const float *kvf_prefix_kv(const kvf_prefix *prefix, int64_t shape[6]);
/* The same of one layer, [2, 1, G, P, D], whether heads differ or not; NULL: it has no such layer.
 */
const float *kvf_prefix_layer(const kvf_prefix *prefix, int64_t layer, int64_t shape[5]);
/* Its log-weights [L, G, P], a view as long as it keeps them; NULL: it has none, or its heads
 * differ by layer. shape may be NULL. */
const float *kvf_prefix_log_weights(const kvf_prefix *prefix, int64_t shape[3]);
/* Gives keys and values log-weights, which are copied, in place of those they have; 0 in masked
 * layers. EUNSUPPORTED: it has no keys and values; ESHAPE; ENUMERIC: one is not finite, or beyond
 * 10000. */
kvf_status kvf_prefix_set_log_weights(kvf_ctx *ctx, kvf_prefix *prefix, const float *values,
                                      const int64_t shape[3]);
/* Which layers have a prefix, [L], 1 or 0 each, a view as long as the prefix lives: attention skips
 * it in the others, where keys and values of 0 would take their share. L may be NULL. NULL: it has
 * no keys and values. */
const uint8_t *kvf_prefix_layer_mask(const kvf_prefix *prefix, int64_t *L);
/* Says which have; keys, values and log-weights of the others become 0. EUNSUPPORTED: it has no
 * keys and values; ESHAPE: L is not its own; EUSAGE: an entry is neither 0 nor 1, or all are 0. */
kvf_status kvf_prefix_set_layer_mask(kvf_ctx *ctx, kvf_prefix *prefix, const uint8_t *mask,
                                     int64_t L);
/* Do its keys in the decoder's self-attention take T5's relative bias, as tokens right before the
 * row's own (train --places peft)? */
bool kvf_prefix_relative_bias(const kvf_prefix *prefix);
/* EUNSUPPORTED: it has no keys and values, or its base is no encoder-decoder with such a bias. */
kvf_status kvf_prefix_set_relative_bias(kvf_ctx *ctx, kvf_prefix *prefix, bool on);
/* A prefix of this base, of task lm, from such an array, which is copied: in every layer (of an
 * encoder-decoder those of all places, format.md), without log-weights and relative bias, which the
 * functions above give it. position_start: of a row's first token; below 0: P. ESHAPE: not the
 * base's shape; ENUMERIC: a value is not finite. */
kvf_status kvf_prefix_from_array(kvf_ctx *ctx, const kvf_base *base, const float *kv,
                                 const int64_t shape[6], int64_t position_start, kvf_prefix **out);
/* A prefix file of keys and values, head and facts. EUNSUPPORTED: it has no keys and values;
 * ENUMERIC: f16 cannot hold one; EEXIST. */
kvf_status kvf_prefix_save(kvf_ctx *ctx, const kvf_prefix *prefix, const char *path,
                           kvf_dtype dtype, bool force);
int64_t kvf_prefix_position_start(const kvf_prefix *prefix);
const char *kvf_prefix_base_hash(const kvf_prefix *prefix); /* "" if unknown */

/* EMISMATCH unless architecture, L, G, D and hash are the base's; allow_other_base lets the hash
 * differ, never the shape. EUSAGE: it changes the base, and the base was not opened for it; or the
 * base was opened for another. */
kvf_status kvf_prefix_check(kvf_ctx *ctx, const kvf_prefix *prefix, const kvf_base *base,
                            bool allow_other_base);

/* ---- base and prefixes together -------------------------------------------------------------- */

typedef struct kvf_session_options {
    kvf_base_options base;
    kvf_checkpoint checkpoint; /* of run files */
    const char *head;          /* of files of several tasks: the one to use; NULL: none is named */
    const char *drop_layers;   /* adapters that are left out, "0,2,4-7"; NULL: none */
    bool allow_other_base;     /* the prefix may be for another base of the same shape */
    bool own_head;           /* without a prefix, the head of a base file counts as one, of P = 0 */
    const char *const *more; /* [n_more] further prefix files */
    size_t n_more;
    uint64_t reserved[8];
} kvf_session_options;

/* A base and what conditions it, opened and checked in the order that their files need: a wrong
 * prefix before the base is loaded, a base as its adapter wants it, a run that reads its base after
 * it. prefix NULL: the bare base. options may be NULL. Errors as of kvf_base_open, kvf_prefix_open,
 * kvf_prefix_check. */
typedef struct kvf_session kvf_session;
kvf_status kvf_session_open(kvf_ctx *ctx, const char *base, const char *prefix,
                            const kvf_session_options *options, kvf_session **out);
void kvf_session_close(kvf_session *session); /* NULL is fine; base and prefixes go with it */
kvf_base *kvf_session_base(const kvf_session *session);
kvf_prefix *kvf_session_prefix(const kvf_session *session); /* the first; NULL: none */
/* All of them, [*n], `prefix` first; a view. */
kvf_prefix *const *kvf_session_prefixes(const kvf_session *session, size_t *n);

/* ---- tokens ---------------------------------------------------------------------------------- */

/* *ids [*n], to be released with kvf_ids_free(): those of a text of so many bytes; special: with
 * what the tokenizer puts around a text. EDATA: not UTF-8. */
kvf_status kvf_tokenize(kvf_ctx *ctx, const kvf_base *base, const char *text, size_t bytes,
                        bool special, int32_t **ids, size_t *n);
void kvf_ids_free(int32_t *ids); /* NULL is fine */
/* *text, to be released with kvf_string_free(), a NUL after its *bytes bytes of UTF-8 (bytes may be
 * NULL); special: special tokens are written out. EUSAGE: an id outside the vocabulary. */
kvf_status kvf_detokenize(kvf_ctx *ctx, const kvf_base *base, const int32_t *ids, size_t n,
                          bool special, char **text, size_t *bytes);
void kvf_string_free(char *text); /* NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
