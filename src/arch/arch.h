/* Between the files that describe and bind a model: the row of an architecture, and its weights one
 * by one.
 *
 * An architecture is data. Adding a family means a row in arch.c, its config keys, and its weight
 * rows; no other file branches on a family's name. */
#ifndef KVF_ARCH_H
#define KVF_ARCH_H

#include "arch_keys.h"
#include "bind.h"

/* What a weight is to the block, whatever its file calls it. */
typedef enum kvf__role {
    KVF__W_TOKENS,
    KVF__W_POSITIONS,
    KVF__W_TYPES, /* of tokens: first or second text */
    KVF__W_EMBED_NORM,
    KVF__W_EMBED_NORM_BETA,
    KVF__W_EMBED_OUT, /* from the width of the embeddings to that of the model */
    KVF__W_EMBED_OUT_BIAS,
    KVF__W_RELATIVE, /* embeddings of distances, and their norm; the same for all layers */
    KVF__W_RELATIVE_NORM,
    KVF__W_RELATIVE_NORM_BETA,
    KVF__W_NORM1, /* of the attention half of a block, in pre-norm and post-norm blocks */
    KVF__W_NORM1_BETA,
    KVF__W_QKV, /* fused, columns q | k | v; then Q, K, V do not exist */
    KVF__W_QKV_BIAS,
    KVF__W_Q,
    KVF__W_Q_BIAS,
    KVF__W_K,
    KVF__W_K_BIAS,
    KVF__W_V,
    KVF__W_V_BIAS,
    KVF__W_Q_NORM, /* of a head's queries, or of all, before rope */
    KVF__W_K_NORM,
    KVF__W_OUT,
    KVF__W_OUT_BIAS,
    KVF__W_OUT_NORM1, /* of what the attention half gives */
    KVF__W_NORM2,     /* of the feed-forward half */
    KVF__W_NORM2_BETA,
    KVF__W_GATE,
    KVF__W_GATE_BIAS,
    KVF__W_UP,
    KVF__W_UP_BIAS,
    KVF__W_GATE_UP, /* fused, outputs of gate, then of up; then these do not exist */
    KVF__W_DOWN,
    KVF__W_DOWN_BIAS,
    KVF__W_OUT_NORM2,    /* of what the feed-forward half gives */
    KVF__W_INPUT_TOKENS, /* embeddings of tokens for each layer, and the projection of the others */
    KVF__W_INPUT_PROJECTION,
    KVF__W_INPUT_NORM, /* of that projection */
    KVF__W_INPUT_GATE, /* of the half that reads a layer's input */
    KVF__W_INPUT_DOWN,
    KVF__W_OUT_NORM3,     /* of what it gives */
    KVF__W_SCALE,         /* of the stream that a layer leaves */
    KVF__W_ENCODER_FINAL, /* of the encoder's states, in front of cross-attention's keys, values */
    KVF__W_FINAL,
    KVF__W_FINAL_BETA,
    KVF__W_HEAD,
    KVF__W_HEAD_BIAS,
    KVF__W_POOLER, /* dense layer on the first token's state, for heads */
    KVF__W_POOLER_BIAS,
    KVF__W_MLM_DENSE, /* head of masked language models, its decoder tied to the embeddings */
    KVF__W_MLM_DENSE_BIAS,
    KVF__W_MLM_NORM,
    KVF__W_MLM_NORM_BETA,
    KVF__W_MLM_BIAS,
    KVF__W_ROLES /* how many there are */
} kvf__role;

/* When a weight exists, and how it lies in the file. */
#define KVF__W_CONV1D 0x001u /* Hugging Face stores it [in, out] */
#define KVF__W_PERMUTED_H                                                                          \
    0x002u /* with arch.gguf_permuted: a GGUF has its rows permuted in H heads */
#define KVF__W_PERMUTED_G   0x004u  /* ... in G heads */
#define KVF__W_IF_QKV       0x008u  /* only with desc.block.qkv_bias */
#define KVF__W_IF_OUT       0x010u  /* only with desc.block.out_bias */
#define KVF__W_IF_MLP       0x020u  /* only with desc.block.mlp_bias */
#define KVF__W_IF_QK_NORM   0x040u  /* only with desc.block.qk_norm */
#define KVF__W_IF_UNTIED    0x080u  /* only where the head has its own matrix */
#define KVF__W_OUTSIDE      0x100u  /* its name never carries the base-model prefix */
#define KVF__W_OPTIONAL     0x200u  /* a file may come without it */
#define KVF__W_IF_HEAD_BIAS 0x400u  /* only with desc.head_bias */
#define KVF__W_ASIDE        0x800u  /* no part of the base: neither hashed nor made nor trained */
#define KVF__W_IF_EMBED_OUT 0x1000u /* only where embeddings have a width of their own */
#define KVF__W_BY_HEAD                                                                             \
    0x2000u /* Hugging Face has the rows of q, k and v head by head, a GGUF one after the other */

#define KVF__W_PLUS_ONE  0x4000u /* Hugging Face stores it less 1 */
#define KVF__W_NOT_FIRST 0x8000u /* the first layer has none */
#define KVF__W_OF_QKV                                                                              \
    0x10000u /* q, k or v: a file may have all three in one tensor, whose name may be the same */
#define KVF__W_IF_KV     0x20000u /* only in layers with keys and values of their own */
#define KVF__W_IF_V      0x40000u /* only in layers whose values are not their keys */
#define KVF__W_IF_INPUTS 0x80000u /* only with desc.by_layer.inputs */

/* Only in layers of these places of an encoder-decoder. */
#define KVF__W_IN_ENCODER 0x100000u
#define KVF__W_IN_DECODER 0x200000u
#define KVF__W_IN_CROSS   0x400000u
#define KVF__W_PLACES     (KVF__W_IN_ENCODER | KVF__W_IN_DECODER | KVF__W_IN_CROSS)
#define KVF__W_IF_GATED   0x800000u  /* only with desc.block.gated */
#define KVF__W_IF_PLAIN   0x1000000u /* only without */

/* hf, gguf: name patterns, '#' is the layer's number; hf without the base-model prefix; gguf NULL:
 * not in a GGUF. shape: a word per dimension, as stored; a word is a product of letters of the
 * shape alphabet, where S = H + 2 G, X = rows of the position table, Y = token types, E = width of
 * the embeddings, R = buckets of distances, L = layers, I = width of their inputs, 1 is 1, 2 is 2;
 * G, D, S and F are those of the layer: "SD C" is [(H + 2 G) * D, C]. */
typedef struct kvf__weight {
    kvf__role role;
    const char *hf, *gguf, *shape;
    unsigned flags;
} kvf__weight;

/* Two rows, by the role and the name that they have in common: a matrix and its bias, the two
 * vectors of a norm. HF_: of which a GGUF has none. */
#define KVF__DENSE(role, hf, gguf, shape, n, flags, bias_flags)                                    \
    {KVF__W_##role, hf ".weight", gguf ".weight", shape, flags},                                   \
    {                                                                                              \
        KVF__W_##role##_BIAS, hf ".bias", gguf ".bias", n, bias_flags                              \
    }
#define KVF__HF_DENSE(role, hf, shape, n, flags, bias_flags)                                       \
    {KVF__W_##role, hf ".weight", NULL, shape, flags},                                             \
    {                                                                                              \
        KVF__W_##role##_BIAS, hf ".bias", NULL, n, bias_flags                                      \
    }
#define KVF__NORM(role, hf, gguf, n)                                                               \
    {KVF__W_##role, hf ".weight", gguf ".weight", n, 0},                                           \
    {                                                                                              \
        KVF__W_##role##_BETA, hf ".bias", gguf ".bias", n, 0                                       \
    }
#define KVF__HF_NORM(role, hf, n, flags)                                                           \
    {KVF__W_##role, hf ".weight", NULL, n, flags},                                                 \
    {                                                                                              \
        KVF__W_##role##_BETA, hf ".bias", NULL, n, flags                                           \
    }

/* The head of pretraining, but for its decoder: that is the word embeddings. */
#define KVF__MASKED_LM (KVF__W_OPTIONAL | KVF__W_OUTSIDE | KVF__W_ASIDE)
#define KVF__MASKED_LM_HEAD(dense, norm, bias, n)                                                  \
    KVF__HF_DENSE(MLM_DENSE, dense, n " C", n, KVF__MASKED_LM, KVF__MASKED_LM),                    \
        KVF__HF_NORM(MLM_NORM, norm, n, KVF__MASKED_LM),                                           \
    {                                                                                              \
        KVF__W_MLM_BIAS, bias, NULL, "V", KVF__MASKED_LM                                           \
    }

typedef struct kvf__arch {
    const char *name;       /* model_type */
    const char *inside;     /* model_type of models with towers for images or sound, whose
                               text_config and language_model it is; NULL: none */
    const char *class_stem; /* how its class names begin, for configs without model_type */
    const char *gguf;       /* general.architecture, NULL: only read from Hugging Face files */
    const char *prefix;     /* of the base model's tensors */
    const kvf__config_keys *keys;
    const kvf__weight *weights;
    size_t n_weights;
    const char *const *buffers; /* tensors that are no weights of the base (masks, heads of
                                   pretraining), patterns as above, NULL-terminated */
    const kvf__pair *renamed;   /* endings of names and what old files have instead,
                                   NULL-terminated; NULL: none */
    kvf__block block;           /* act: unless the config has one */
    kvf__position_kind positions;
    const char *heads; /* the family in head_task.c whose heads of tasks it has; NULL: none */
    const char *act_name;
    bool gelu_is_new;    /* "gelu" means what others call gelu_new */
    bool act_says_gated; /* "gated-" in front of the activation's name */
    bool tied;           /* unless the config has it */
    bool head_bias;      /* the same */
    bool score_flags;    /* knows scale_attn_weights and scale_attn_by_inverse_layer_idx */
    bool pad_positions;  /* tokens with the id `pad` stand at the table's row of that number, others
                            are counted from the row behind it on (RoBERTa) */
    int32_t pad;         /* with pad_positions: unless the config has it */
    int32_t first_position; /* row of the table that position 0 has */
    bool starts_at_0;       /* after a prefix positions start at 0 unless a run asks otherwise */
    bool mlm_gelu;          /* the masked-LM head's activation is gelu, whatever the config says */
    bool gguf_permuted;     /* rows of q and k are permuted in a GGUF */
    bool takes_no_cache;    /* its model in transformers: PEFT can put no prefix before it */
    bool scaled_embed;      /* embeddings times the root of the width */
    int64_t gguf_wide; /* a GGUF with so many layers divides scores by the root of C/H, not of D */
} kvf__arch;

#define KVF__COUNT(array) (sizeof(array) / sizeof *(array))
/* Of a row. */
#define KVF__WEIGHTS(table) .weights = table, .n_weights = KVF__COUNT(table)
/* The rows of arch_llama.c and its like. */
typedef struct kvf__arch_family {
    const kvf__arch *rows;
    size_t n;
} kvf__arch_family;
extern const kvf__arch_family kvf__arch_llama, kvf__arch_olmo, kvf__arch_neox, kvf__arch_phi,
    kvf__arch_gemma, kvf__arch_gpt, kvf__arch_bert, kvf__arch_deberta, kvf__arch_modernbert,
    kvf__arch_t5, kvf__arch_bart;

const kvf__arch *kvf__arch_by_model_type(const char *model_type); /* NULL if unknown */
const kvf__arch *kvf__arch_inside(const char *model_type);
const kvf__arch *kvf__arch_by_class(const char *class_name);
const kvf__arch *kvf__arch_by_gguf(const char *architecture);
/* "llama, mistral, gpt2, ..." into buf; returns buf. For messages. */
enum { KVF__ARCH_LIST_BYTES = 320 };
const char *kvf__arch_list(char buf[KVF__ARCH_LIST_BYTES], bool gguf);

/* ---- description, shared by both configs ----------------------------------------------------- */

/* Once by_layer.shape is filled in (NULL: nothing happens): checks it, and fills in the rest. */
kvf_status kvf__desc_finish_layers(kvf_ctx *ctx, const char *where, kvf__desc *desc);
kvf_status kvf__by_layer_copy(kvf_ctx *ctx, const kvf__desc *from, kvf__by_layer *out);
void kvf__by_layer_done(kvf__by_layer *by);
/* Fills what the row gives. */
void kvf__desc_from_arch(const kvf__arch *arch, kvf__desc *desc);
/* Checks that the numbers make sense together and fit what the pass can do; ESHAPE never, EFORMAT
 * or EUNSUPPORTED. */
kvf_status kvf__desc_check(kvf_ctx *ctx, const char *where, const kvf__desc *desc);
/* Do both compute the same, whatever files they came from? Token ids count too. */
kvf_status kvf__desc_same(kvf_ctx *ctx, const kvf__desc *a, const kvf__desc *b, bool *same);
/* inv_freq, local_inv_freq and scale from desc->position.rope and desc->position.divisors. */
kvf_status kvf__rope_init(kvf_ctx *ctx, kvf__desc *desc);
/* The factor on cos and sin that yarn's authors recommend: 0.1 * mscale * ln(factor) + 1. */
double kvf__yarn_mscale(double factor, double mscale);

#endif
