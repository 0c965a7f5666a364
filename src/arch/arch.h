/* Shared by the files that describe and bind a model: the row of an architecture, and its weights.
 *
 * An architecture is data. A new family is a file of its own, with config keys and weight rows, and
 * a name in arch.c; no other file branches on a family's name. */
#ifndef KVF_ARCH_H
#define KVF_ARCH_H

#include "arch_keys.h"
#include "bind.h"

/* The role of a weight in a block, independent of its name in the file. */
typedef enum kvf__role {
    KVF__W_TOKENS,
    KVF__W_POSITIONS,
    KVF__W_TYPES, /* token types: first or second text */
    KVF__W_EMBED_NORM,
    KVF__W_EMBED_NORM_BETA,
    KVF__W_EMBED_OUT, /* dense layer from the width of the embeddings to that of the model */
    KVF__W_EMBED_OUT_BIAS,
    KVF__W_RELATIVE, /* relative position embeddings and their norm, shared by all layers */
    KVF__W_RELATIVE_NORM,
    KVF__W_RELATIVE_NORM_BETA,
    KVF__W_NORM1, /* norm of the attention half of a block, in pre-norm and post-norm blocks */
    KVF__W_NORM1_BETA,
    KVF__W_QKV, /* fused, columns q | k | v; replaces Q, K and V */
    KVF__W_QKV_BIAS,
    KVF__W_Q,
    KVF__W_Q_BIAS,
    KVF__W_K,
    KVF__W_K_BIAS,
    KVF__W_V,
    KVF__W_V_BIAS,
    KVF__W_Q_NORM, /* norm of a head's queries, or of all heads, before rope */
    KVF__W_K_NORM,
    KVF__W_MIXER_IN,   /* first product of a mixer (desc.h): b | c | x, or q | k | v */
    KVF__W_MIXER_GATE, /* delta rule: gate of the output */
    KVF__W_MIXER_BETA,
    KVF__W_MIXER_DECAY,
    KVF__W_MIXER_CONV,
    KVF__W_MIXER_STEP, /* bias of the decay's softplus, and the log of its rate, by head */
    KVF__W_MIXER_RATE,
    KVF__W_MIXER_NORM, /* norm of a head's output */
    KVF__W_OUT,
    KVF__W_OUT_BIAS,
    KVF__W_OUT_NORM1, /* norm of the attention half's output */
    KVF__W_NORM2,     /* norm of the feed-forward half */
    KVF__W_NORM2_BETA,
    KVF__W_GATE,
    KVF__W_GATE_BIAS,
    KVF__W_UP,
    KVF__W_UP_BIAS,
    KVF__W_GATE_UP, /* fused, outputs of gate, then of up; replaces both */
    KVF__W_DOWN,
    KVF__W_DOWN_BIAS,
    KVF__W_OUT_NORM2,    /* norm of the feed-forward half's output */
    KVF__W_INPUT_TOKENS, /* token embeddings per layer, and the projection of the ordinary ones */
    KVF__W_INPUT_PROJECTION,
    KVF__W_INPUT_NORM, /* norm of that projection */
    KVF__W_INPUT_GATE, /* the half that reads a layer's input */
    KVF__W_INPUT_DOWN,
    KVF__W_OUT_NORM3,     /* norm of its output */
    KVF__W_SCALE,         /* factor on the stream after a layer */
    KVF__W_ENCODER_FINAL, /* norm of the encoder's states before cross-attention's keys and values
                           */
    KVF__W_FINAL,
    KVF__W_FINAL_BETA,
    KVF__W_HEAD,
    KVF__W_HEAD_BIAS,
    KVF__W_POOLER, /* dense layer on the first token's state, for heads */
    KVF__W_POOLER_BIAS,
    KVF__W_MLM_DENSE, /* head of masked language models; its decoder is tied to the embeddings */
    KVF__W_MLM_DENSE_BIAS,
    KVF__W_MLM_NORM,
    KVF__W_MLM_NORM_BETA,
    KVF__W_MLM_BIAS,
    KVF__W_ROLES /* number of roles */
} kvf__role;

/* Conditions for a weight, and its layout in the file. */
#define KVF__W_CONV1D 0x001u /* Hugging Face stores it [in, out] */
#define KVF__W_PERMUTED_H                                                                          \
    0x002u /* with arch.gguf_permuted: a GGUF has its rows permuted for H heads */
#define KVF__W_PERMUTED_G   0x004u  /* for G heads */
#define KVF__W_IF_QKV       0x008u  /* only with desc.block.qkv_bias */
#define KVF__W_IF_OUT       0x010u  /* only with desc.block.out_bias */
#define KVF__W_IF_MLP       0x020u  /* only with desc.block.mlp_bias */
#define KVF__W_IF_QK_NORM   0x040u  /* only with desc.block.qk_norm */
#define KVF__W_IF_UNTIED    0x080u  /* only if the head has its own matrix */
#define KVF__W_OUTSIDE      0x100u  /* its name never carries the base-model prefix */
#define KVF__W_OPTIONAL     0x200u  /* optional in a file */
#define KVF__W_IF_HEAD_BIAS 0x400u  /* only with desc.head_bias */
#define KVF__W_ASIDE        0x800u  /* not part of the base: not hashed, created or trained */
#define KVF__W_IF_EMBED_OUT 0x1000u /* only if embeddings have a width of their own */
#define KVF__W_BY_HEAD                                                                             \
    0x2000u /* Hugging Face orders the rows of q, k and v head by head, a GGUF one after the other \
             */

#define KVF__W_PLUS_ONE  0x4000u /* Hugging Face stores it less 1 */
#define KVF__W_NOT_FIRST 0x8000u /* absent in the first layer */
#define KVF__W_OF_QKV                                                                              \
    0x10000u /* q, k or v: a file may have all three in one tensor, possibly with the same name */
#define KVF__W_IF_KV     0x20000u /* only in layers with keys and values of their own */
#define KVF__W_IF_V      0x40000u /* only in layers whose values differ from their keys */
#define KVF__W_IF_INPUTS 0x80000u /* only with desc.by_layer.inputs */

/* Only in layers of these places of an encoder-decoder. */
#define KVF__W_IN_ENCODER   0x100000u
#define KVF__W_IN_DECODER   0x200000u
#define KVF__W_IN_CROSS     0x400000u
#define KVF__W_PLACES       (KVF__W_IN_ENCODER | KVF__W_IN_DECODER | KVF__W_IN_CROSS)
#define KVF__W_IF_GATED     0x800000u  /* only with desc.block.gated */
#define KVF__W_IF_PLAIN     0x1000000u /* only without desc.block.gated */
#define KVF__W_IF_ATTENTION 0x2000000u /* only in layers with attention */
#define KVF__W_IF_MIXER     0x4000000u /* only in layers without */
#define KVF__W_AND_GATE     0x8000000u /* rows of each head's query, followed by those of its gate */
#define KVF__W_LOG          0x10000000u /* Hugging Face stores x, a GGUF -exp(x) */

/* hf, gguf: name patterns, '#' is the layer number; hf lacks the base-model prefix; gguf NULL: not
 * in a GGUF. shape: a word per dimension, as stored. A word is a product of the digits 1 and 2 and
 * of letters of the shape alphabet. Additional letters: S = H + 2 G, L = layers, I = width of layer
 * inputs, E = width of the embeddings, J and A = outputs of a layer's first product and inputs of
 * its last, with attention (H + 2 G) D and H D. Of mixers: Q = channels, W = taps, N = value heads,
 * M = their size. X = rows of the position table, Y = token types, R =
 * relative position buckets. G, D, S and F are those of the layer. Example: "SD C" is [(H + 2 G) *
 * D, C]. */
typedef struct kvf__weight {
    kvf__role role;
    const char *hf, *gguf, *shape;
    unsigned flags;
} kvf__weight;

/* Two rows with a common role and name: a matrix and its bias, or the two vectors of a norm. HF_:
 * absent from a GGUF. */
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

/* The masked-LM head without its decoder, which is the word embeddings. */
#define KVF__MASKED_LM (KVF__W_OPTIONAL | KVF__W_OUTSIDE | KVF__W_ASIDE)
#define KVF__MASKED_LM_HEAD(dense, norm, bias, n)                                                  \
    KVF__HF_DENSE(MLM_DENSE, dense, n " C", n, KVF__MASKED_LM, KVF__MASKED_LM),                    \
        KVF__HF_NORM(MLM_NORM, norm, n, KVF__MASKED_LM),                                           \
    {                                                                                              \
        KVF__W_MLM_BIAS, bias, NULL, "V", KVF__MASKED_LM                                           \
    }

typedef struct kvf__arch {
    const char *name;   /* model_type */
    const char *inside; /* model_type of multimodal models whose text_config and language_model it
                           is; NULL: none */
    const char *class_stem; /* beginning of its class names, for configs without model_type */
    const char *gguf;       /* general.architecture, NULL: read from Hugging Face files only */
    bool gguf_local;        /* the row of that name for files with a sliding window */
    const char *prefix;     /* prefix of the base model's tensors */
    const kvf__config_keys *keys;
    const kvf__weight *weights;
    size_t n_weights;
    const char *const *buffers; /* tensors that are not weights of the base (masks, pretraining
                                   heads), patterns as above, NULL-terminated */
    const kvf__pair *renamed; /* suffixes of names and their spelling in old files, NULL-terminated;
                                 NULL: none */
    kvf__block block;         /* act: default if the config has none */
    kvf__position_kind positions;
    const char *heads; /* family in head_task.c whose task heads it has; NULL: none */
    const char *act_name;
    bool gelu_is_new;    /* "gelu" means gelu_new */
    bool act_says_gated; /* the activation's name begins with "gated-" */
    bool tied;           /* default if absent from the config */
    bool head_bias;      /* default if absent from the config */
    bool score_flags;    /* supports scale_attn_weights and scale_attn_by_inverse_layer_idx */
    bool pad_positions; /* tokens with the id `pad` use that row of the position table, others count
                           from the next row (RoBERTa) */
    int32_t pad;        /* with pad_positions: default if absent from the config */
    int32_t first_position; /* table row of position 0 */
    bool starts_at_0;       /* after a prefix, positions start at 0 by default */
    bool mlm_gelu;          /* the masked-LM head always uses gelu */
    bool gguf_permuted;     /* rows of q and k are permuted in a GGUF */
    bool takes_no_cache;    /* its class in transformers takes no cache, so PEFT cannot put a prefix
                               before it */
    bool scaled_embed;      /* embeddings are multiplied by the root of the width */
    /* a GGUF with so many layers divides scores by the root of C/H instead of D */
    int64_t gguf_wide;
} kvf__arch;

#define KVF__COUNT(array) (sizeof(array) / sizeof *(array))
/* Initialises the weights of a row. */
#define KVF__WEIGHTS(table) .weights = table, .n_weights = KVF__COUNT(table)
/* The rows of a family's file, such as arch_llama.c. */
typedef struct kvf__arch_family {
    const kvf__arch *rows;
    size_t n;
} kvf__arch_family;
extern const kvf__arch_family kvf__arch_hybrid, kvf__arch_llama, kvf__arch_olmo, kvf__arch_neox,
    kvf__arch_phi, kvf__arch_gemma, kvf__arch_gpt, kvf__arch_bert, kvf__arch_deberta,
    kvf__arch_modernbert, kvf__arch_t5, kvf__arch_bart;

const kvf__arch *kvf__arch_by_model_type(const char *model_type); /* NULL if unknown */
const kvf__arch *kvf__arch_inside(const char *model_type);
const kvf__arch *kvf__arch_by_class(const char *class_name);
const kvf__arch *kvf__arch_by_gguf(const char *architecture, bool local);
/* Writes "llama, mistral, gpt2, ..." to buf, for messages; returns buf. */
enum { KVF__ARCH_LIST_BYTES = 320 };
const char *kvf__arch_list(char buf[KVF__ARCH_LIST_BYTES], bool gguf);

/* ---- description, shared by both configs ----------------------------------------------------- */

/* Checks by_layer.shape and derives the rest of by_layer; does nothing if it is NULL. */
kvf_status kvf__desc_finish_layers(kvf_ctx *ctx, const char *where, kvf__desc *desc);
kvf_status kvf__by_layer_copy(kvf_ctx *ctx, const kvf__desc *from, kvf__by_layer *out);
void kvf__by_layer_done(kvf__by_layer *by);
/* Fills in the values of the row. */
void kvf__desc_from_arch(const kvf__arch *arch, kvf__desc *desc);
/* Checks that the numbers are consistent and supported by the pass. EFORMAT, EUNSUPPORTED. */
kvf_status kvf__desc_check(kvf_ctx *ctx, const char *where, const kvf__desc *desc);
/* Sets *same to whether both compute the same, independent of file formats. Token ids count too. */
kvf_status kvf__desc_same(kvf_ctx *ctx, const kvf__desc *a, const kvf__desc *b, bool *same);
/* Computes inv_freq, local_inv_freq and scale from desc->position.rope and
 * desc->position.divisors. */
kvf_status kvf__rope_init(kvf_ctx *ctx, kvf__desc *desc);
/* Returns the factor on cos and sin recommended by YaRN's authors: 0.1 * mscale * ln(factor) +
 * 1. */
double kvf__yarn_mscale(double factor, double mscale);

#endif
