/* A base: a frozen pretrained transformer with its tokenizer, opened from a Hugging Face folder or
 * a GGUF file; and the prefix that conditions it.
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
    KVF_PRECISION_INT8 /* eight-bit products of the frozen weights, the rest as in BF16; never
                          chosen by AUTO. EUSAGE where weights are trained, with a weight_dtype
                          other than AUTO, and with stream_layers */
} kvf_precision;

/* Storage type of frozen weights in memory. AUTO: packed for products in the type of the precision,
 * for training in both directions. The other types keep one copy of each matrix and pack a layer
 * just before it is computed, which saves memory and costs time. F32 gives the same bits as AUTO.
 * BF16 and INT8 (a scale for every 32 weights of a row) round the weights. */
typedef enum kvf_weight_dtype {
    KVF_WEIGHTS_AUTO,
    KVF_WEIGHTS_F32,
    KVF_WEIGHTS_BF16,
    KVF_WEIGHTS_INT8
} kvf_weight_dtype;

/* Storage type of the values in a prefix file. INT8 has scales. */
typedef enum kvf_dtype { KVF_DTYPE_F32, KVF_DTYPE_F16, KVF_DTYPE_BF16, KVF_DTYPE_INT8 } kvf_dtype;
const char *kvf_dtype_name(kvf_dtype dtype); /* "f32", "int8" */

typedef struct kvf_base kvf_base;

typedef struct kvf_base_options {
    kvf_precision precision; /* type of activations and products; AUTO: bf16 where CPU flags and
                                width of the base make it faster, else f32 */
    bool backward;           /* also pack weights for the backward pass */
    kvf_weight_dtype weight_dtype;
    bool stream_layers; /* keep no weights: each layer is packed from the mapped file just before it
                           is computed, with the same bits as AUTO. EUSAGE with a weight_dtype other
                           than AUTO */
    const char *lora;   /* PEFT folder of a LoRA to fold into the weights, which gives a base with
                           another hash; NULL: none */
    uint64_t reserved[3];
} kvf_base_options;

typedef struct kvf_shape {
    /* G, D: 0 if layers differ in them; F is then of the narrowest layer */
    int64_t L, H, G, D, C, F, V;
    int64_t max_positions;
} kvf_shape;

/* Opens a base. options may be NULL. The file stays mapped until the base is freed. ctx must
 * outlive the base. EIO, EFORMAT, EUNSUPPORTED, ESHAPE, ENOMEM: one line naming file and place.
 * EUNSUPPORTED: also BF16 or INT8 on a CPU without such products. */
kvf_status kvf_base_open(kvf_ctx *ctx, const char *path, const kvf_base_options *options,
                         kvf_base **out);
/* Opens a base for a prefix of a method that changes the base (adapter). The base then carries its
 * values, and the prefix must outlive it. Any other prefix, or NULL, makes it kvf_base_open. */
typedef struct kvf_prefix kvf_prefix;
kvf_status kvf_base_open_for(kvf_ctx *ctx, const char *path, const kvf_base_options *options,
                             const kvf_prefix *prefix, kvf_base **out);
/* Returns whether the prefix changes the base, so that the base must be opened for it. */
bool kvf_prefix_changes_base(const kvf_prefix *prefix);
/* Disables the adapters of layers "A-B" (or "A", or a list "0,2,4-7"). EUSAGE: the base has no
 * adapters, or the text is no such list; ESHAPE: no such layers. */
kvf_status kvf_base_drop_layers(kvf_ctx *ctx, kvf_base *base, const char *layers);
void kvf_base_free(kvf_base *base);

const char *kvf_base_name(const kvf_base *base); /* last component of the path, or general.name */
const char *kvf_base_architecture(const kvf_base *base); /* "llama", "gpt2", "bert", ... */
/* 32 hex digits, computed when the base is opened. */
const char *kvf_base_hash(const kvf_base *base);
kvf_shape kvf_base_shape(const kvf_base *base);
kvf_precision kvf_base_precision(const kvf_base *base); /* never AUTO */

/* State of a run file; other files have one only. DEFAULT: best if there is one, else last. */
typedef enum kvf_checkpoint {
    KVF_CHECKPOINT_DEFAULT,
    KVF_CHECKPOINT_BEST,
    KVF_CHECKPOINT_LAST
} kvf_checkpoint;

/* Opens a prefix file, an adapter file, a base file with a head (which gives the head only), or a
 * run file, whose encoder is run with dropout off. */
kvf_status kvf_prefix_open(kvf_ctx *ctx, const char *path, kvf_checkpoint checkpoint,
                           kvf_prefix **out);
/* Opens a prefix with its base, which runs of some methods need to emit their prefix. Such runs are
 * EUSAGE without it (base NULL, or kvf_prefix_open). The base is not kept. */
kvf_status kvf_prefix_open_on(kvf_ctx *ctx, const char *path, const kvf_base *base,
                              kvf_checkpoint checkpoint, kvf_prefix **out);
/* Selects the head and the prefix of one task in a file of several tasks. EUSAGE: no such head, or
 * a file of one task. kvf_prefix_check refuses a prefix of several tasks without this selection. */
kvf_status kvf_prefix_use_head(kvf_ctx *ctx, kvf_prefix *prefix, const char *name);
void kvf_prefix_free(kvf_prefix *prefix);
int64_t kvf_prefix_length(const kvf_prefix *prefix); /* P */
/* Returns the task as named by --task: "lm", "seq-cls", ...; "multi-task": select one of several
 * heads first. */
const char *kvf_prefix_task(const kvf_prefix *prefix);
/* Returns the name of class or tag i, in the order of the head's outputs; NULL past the last. */
const char *kvf_prefix_label(const kvf_prefix *prefix, size_t i);
/* Returns the name of head i of several while none is selected; NULL past the last. */
const char *kvf_prefix_head(const kvf_prefix *prefix, size_t i);
/* Returns the keys and values [L, 2, 1, G, P, D], keys before values, in the layout of a Hugging
 * Face cache (keys after rope). The view lives as long as the prefix. shape may be NULL. NULL: the
 * prefix consists of virtual tokens at the input or of values of the base, or its layers have
 * different heads. */
const float *kvf_prefix_kv(const kvf_prefix *prefix, int64_t shape[6]);
/* Returns the keys and values of one layer, [2, 1, G, P, D], also if layers have different heads.
 * NULL: no such layer. */
const float *kvf_prefix_layer(const kvf_prefix *prefix, int64_t layer, int64_t shape[5]);
/* Returns the log-weights [L, G, P], valid until they are replaced. NULL: none, or layers have
 * different heads. shape may be NULL. */
const float *kvf_prefix_log_weights(const kvf_prefix *prefix, int64_t shape[3]);
/* Returns an array of the virtual neurons, [L, N, C], with L layers of the base. Plain feed-forward
 * blocks have "key" and "value", and "bias" [L, N, 1] where the base has one. Gated blocks have
 * "gate", "up" and "value". NULL: no such array. shape may be NULL. */
const float *kvf_prefix_neurons(const kvf_prefix *prefix, const char *array, int64_t shape[3]);
/* Copies log-weights for the keys and values, replacing earlier ones. Masked layers get 0.
 * EUNSUPPORTED: no keys and values; ESHAPE; ENUMERIC: a value is not finite, or beyond 10000. */
kvf_status kvf_prefix_set_log_weights(kvf_ctx *ctx, kvf_prefix *prefix, const float *values,
                                      const int64_t shape[3]);
/* Returns a mask [L] of the layers that have a prefix (1 or 0), valid as long as the prefix.
 * Attention skips the prefix in the other layers, where zero keys would still take attention
 * weight. L may be NULL. NULL: no keys and values. */
const uint8_t *kvf_prefix_layer_mask(const kvf_prefix *prefix, int64_t *L);
/* Sets the layers that have a prefix. Keys, values and log-weights of the others become 0.
 * EUNSUPPORTED: no keys and values; ESHAPE: L differs from the prefix's; EUSAGE: an entry is
 * neither 0 nor 1, or all are 0. */
kvf_status kvf_prefix_set_layer_mask(kvf_ctx *ctx, kvf_prefix *prefix, const uint8_t *mask,
                                     int64_t L);
/* Returns whether keys in the decoder's self-attention take T5's relative bias, as tokens right
 * before the row (train --places peft). */
bool kvf_prefix_relative_bias(const kvf_prefix *prefix);
/* EUNSUPPORTED: no keys and values, or the base is no encoder-decoder with such a bias. */
kvf_status kvf_prefix_set_relative_bias(kvf_ctx *ctx, kvf_prefix *prefix, bool on);
/* Makes a prefix of task lm for this base from a copied array. It covers every layer (of an
 * encoder-decoder those of all places, format.md) and has no log-weights and no relative bias; the
 * functions above set them. position_start: position of a row's first token; below 0: P. ESHAPE:
 * not the base's shape; ENUMERIC: a value is not finite. */
kvf_status kvf_prefix_from_array(kvf_ctx *ctx, const kvf_base *base, const float *kv,
                                 const int64_t shape[6], int64_t position_start, kvf_prefix **out);
/* Writes a prefix file with keys and values, head and attributes. EUNSUPPORTED: no keys and values;
 * ENUMERIC: a value exceeds the range of f16; EEXIST. */
kvf_status kvf_prefix_save(kvf_ctx *ctx, const kvf_prefix *prefix, const char *path,
                           kvf_dtype dtype, bool force);
int64_t kvf_prefix_position_start(const kvf_prefix *prefix);
const char *kvf_prefix_base_hash(const kvf_prefix *prefix); /* "" if unknown */

/* Checks that a prefix fits a base. EMISMATCH: architecture, L, G, D or hash differ;
 * allow_other_base permits another hash, never another shape. EUSAGE: the prefix changes the base
 * and the base was not opened for it, or was opened for another. */
kvf_status kvf_prefix_check(kvf_ctx *ctx, const kvf_prefix *prefix, const kvf_base *base,
                            bool allow_other_base);

/* ---- base and prefixes together -------------------------------------------------------------- */

typedef struct kvf_session_options {
    kvf_base_options base;
    kvf_checkpoint checkpoint; /* state of run files */
    const char *head;          /* task to use in files of several tasks; NULL: none */
    const char *drop_layers;   /* layers whose adapters are disabled, "0,2,4-7"; NULL: none */
    bool allow_other_base;     /* accept a prefix of another base with the same shape */
    bool own_head;             /* without a prefix, use the head of a base file as one with P = 0 */
    const char *const *more;   /* [n_more] further prefix files */
    size_t n_more;
    uint64_t reserved[8];
} kvf_session_options;

/* Opens a base with its prefixes, in the order that their files need. A wrong prefix fails before
 * the base is loaded. The base is opened for its adapter. A run that reads its base is opened last.
 * prefix NULL: the bare base. options may be NULL. Errors as in kvf_base_open, kvf_prefix_open and
 * kvf_prefix_check. */
typedef struct kvf_session kvf_session;
kvf_status kvf_session_open(kvf_ctx *ctx, const char *base, const char *prefix,
                            const kvf_session_options *options, kvf_session **out);
/* Frees base and prefixes too. session may be NULL. */
void kvf_session_close(kvf_session *session);
kvf_base *kvf_session_base(const kvf_session *session);
kvf_prefix *kvf_session_prefix(const kvf_session *session); /* the first prefix, or NULL */
/* Returns a view of all prefixes [*n], the first one being `prefix`. */
kvf_prefix *const *kvf_session_prefixes(const kvf_session *session, size_t *n);

/* ---- tokens ---------------------------------------------------------------------------------- */

/* Encodes a text. *ids [*n] is released with kvf_ids_free(). special: add the tokenizer's special
 * tokens around the text. EDATA: not UTF-8. */
kvf_status kvf_tokenize(kvf_ctx *ctx, const kvf_base *base, const char *text, size_t bytes,
                        bool special, int32_t **ids, size_t *n);
void kvf_ids_free(int32_t *ids); /* ids may be NULL. */
/* Decodes ids. *text, released with kvf_string_free(), has *bytes bytes of UTF-8 and a final NUL;
 * bytes may be NULL. special: write special tokens out. EUSAGE: an id outside the vocabulary. */
kvf_status kvf_detokenize(kvf_ctx *ctx, const kvf_base *base, const int32_t *ids, size_t n,
                          bool special, char **text, size_t *bytes);
void kvf_string_free(char *text); /* text may be NULL. */

#ifdef __cplusplus
}
#endif
#endif
