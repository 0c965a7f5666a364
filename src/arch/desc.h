/* The description of a transformer: an architecture with its numbers, read from a config or a
 * GGUF's metadata. */
#ifndef KVF_DESC_H
#define KVF_DESC_H

#include "kernels.h"
#include "prefix.h"
#include "stacks.h"
#include "view.h"

typedef enum kvf__norm_kind { KVF__LAYERNORM, KVF__RMSNORM } kvf__norm_kind;
/* relative and bias: terms of attention scores that depend on the distance of query and key,
 * computed from both (DeBERTa) or from the distance alone (T5). */
typedef enum kvf__position_kind {
    KVF__POS_LEARNED,
    KVF__POS_ROPE,
    KVF__POS_RELATIVE,
    KVF__POS_BIAS
} kvf__position_kind;

/* Buckets of distances, `span` for each sign: one per distance up to span / 2, then increasingly
 * wide ones up to farthest - 1. */
typedef struct kvf__relative {
    int64_t span, farthest;
    bool logarithmic; /* else one bucket per distance, up to span */
} kvf__relative;

/* Scaling of rope's frequencies for texts longer than in pretraining (transformers'
 * modeling_rope_utils.py). Fields that a kind does not use are 0. */
typedef enum kvf__rope_kind {
    KVF__ROPE_DEFAULT,
    KVF__ROPE_LINEAR,
    KVF__ROPE_LLAMA3,
    KVF__ROPE_YARN,
    KVF__ROPE_LONG,        /* longrope within the original length: divisors, attention_factor */
    KVF__ROPE_PROPORTIONAL /* only the first frequencies of a head; the others are 0 */
} kvf__rope_kind;
typedef struct kvf__rope {
    kvf__rope_kind kind;
    double theta, factor;
    double low_freq_factor, high_freq_factor; /* llama3 */
    double original;                          /* llama3, yarn: positions in pretraining */
    double beta_fast, beta_slow;              /* yarn */
    double attention_factor;                  /* yarn, longrope; resolved */
    bool truncate;                            /* yarn */
    double partial;                           /* proportional: rotated fraction */
} kvf__rope;

/* Tokens that end a generated text. */
enum { KVF__MOST_ENDS = 32 };
typedef struct kvf__ends {
    int32_t id[KVF__MOST_ENDS];
    int n;
} kvf__ends;
bool kvf__ends_has(const kvf__ends *ends, int32_t id);
/* Adds an id once; ignores ids below 0 and ids without room. */
void kvf__ends_add(kvf__ends *ends, int32_t id);

/* RMSNorm of queries and keys before rope: for every head separately, or for all heads together. */
typedef enum kvf__qk_norm { KVF__QK_NONE, KVF__QK_BY_HEAD, KVF__QK_WHOLE } kvf__qk_norm;

/* Dropout rates of the config, < 0: absent. For trained heads; attention's also applies to the
 * base. */
typedef struct kvf__dropouts {
    double classifier, hidden;
    double pooled; /* after the layer that a head puts on the first state (summary_last_dropout,
                      seq_classif_dropout, ...) */
    double qa;
    double attention; /* dropout of the base includes attention probabilities if this is above 0 */
} kvf__dropouts;

/* The users of a block, in the order of the columns of KVF__BLOCK. */
typedef enum kvf__block_user {
    KVF__BLOCK_PASS,         /* pass.h */
    KVF__BLOCK_DECODER,      /* decoder.h; passes run a base that it refuses */
    KVF__BLOCK_PAST,         /* an exported prefix as past key values (PEFT, safetensors) */
    KVF__BLOCK_PROMPT_CLASS, /* virtual tokens in PEFT before a text to classify */
    KVF__BLOCK_CACHE,        /* an exported prefix as a saved cache (llama.cpp, mlx-lm) */
    KVF__BLOCK_USERS
} kvf__block_user;

/* The fields of a block, with a column for each of its users. TAKES: any value; NOT(why): refused
 * if the field is set; ONLY(why): refused if it is not. A field without all columns does not
 * compile. tests/pass/test_decoder.c requires a golden model for each field that pass and decoder
 * take. Norms around the halves of a block follow from its weights (kvf__desc_has). */
#define KVF__BLOCK(FIELD)                                                                          \
    FIELD(kvf__norm_kind, norm, TAKES, TAKES, TAKES, TAKES, TAKES)                                 \
    /* x = norm(x + half(x)); else x += half(norm(x)) */                                           \
    FIELD(bool, post_norm, TAKES, NOT("has norms after its sub-layers"), TAKES, TAKES, TAKES)      \
    FIELD(kvf__qk_norm, qk_norm, TAKES, TAKES, TAKES, TAKES, TAKES)                                \
    /* QK_BY_HEAD: also a norm of the values, without weights */                                   \
    FIELD(bool, v_norm, TAKES, TAKES, TAKES, TAKES, TAKES)                                         \
    /* attention and feed-forward both read the input of the block */                              \
    FIELD(bool, parallel, TAKES, TAKES, TAKES, TAKES, TAKES)                                       \
    /* attention's output times the sigmoid of a gate, which q_proj emits after each head's query  \
     */                                                                                            \
    FIELD(bool, out_gate, TAKES, TAKES, TAKES, TAKES, TAKES)                                       \
    FIELD(kvf__act_fn, act, TAKES, TAKES, TAKES, TAKES, TAKES)                                     \
    FIELD(bool, gated, TAKES, TAKES, TAKES, TAKES, TAKES)                                          \
    FIELD(bool, causal, TAKES, ONLY("reads in both directions"), TAKES,                            \
          ONLY("PEFT puts virtual tokens before [CLS], so it would read the class from them"),     \
          ONLY("is for an encoder, which reads no cache"))                                         \
    FIELD(bool, qkv_bias, TAKES, TAKES, TAKES, TAKES, TAKES)                                       \
    FIELD(bool, out_bias, TAKES, TAKES, TAKES, TAKES, TAKES)                                       \
    FIELD(bool, mlp_bias, TAKES, TAKES, TAKES, TAKES, TAKES)

/* The structure of a block, from a row of the architecture table or from a config. */
#define KVF__BLOCK_FIELD(type, name, ...) type name;
typedef struct kvf__block {
    KVF__BLOCK(KVF__BLOCK_FIELD)
} kvf__block;
/* Returns why a user refuses a base with this block; NULL: accepted. */
const char *kvf__block_refused(const kvf__block *block, kvf__block_user user);

enum { KVF__MOST_LAYERS = 1024, KVF__MOST_FFN = 1536 * 64 };

/* Positions of tokens. */
typedef struct kvf__positions {
    kvf__position_kind kind;
    /* maximum positions of rows; the table of a family with `pad` holds pad + 1 more */
    int64_t max;
    int32_t pad;   /* RoBERTa: tokens with this id use this row of the table, others count from the
                      next row; -1: position and row are equal */
    int32_t first; /* table row of position 0 */
    bool starts_at_0; /* after a prefix, positions start at 0 instead of P by default */
    int64_t window;   /* window of local layers: a query attends to the last so many keys, in an
                         encoder to own keys less far away on either side; 0: no local layers */
    uint64_t global[KVF__MOST_LAYERS / 64];  /* bit l: layer l is not local */
    uint64_t no_rope[KVF__MOST_LAYERS / 64]; /* bit l: layer l has no rope */
    kvf__rope rope;
    kvf__relative relative;
    int64_t rotated; /* rope rotates the first R of D elements of a head; 0: no rope */
    /* divisors of frequencies (GGUF's rope_freqs.weight) [R/2], owned; NULL: none */
    float *divisors;
    float *inv_freq; /* rope: [R/2] in f32 arithmetic as in transformers, scaling applied; owned */
    float scale;     /* factor on cos and sin (yarn, longrope), else 1 */
    /* beta of the factor that queries after the original length have (Llama 4, Ministral 3); 0:
     * none */
    float query_growth;
    double local_theta;    /* rope base of local layers, without scaling; 0: that of all layers */
    int64_t local_rotated; /* R of local layers with local_theta */
    float *local_inv_freq; /* [R/2] of local layers with local_theta, owned */
} kvf__positions;
/* Returns the window of a layer, 0: none. */
int64_t kvf__positions_window(const kvf__positions *positions, int64_t layer);
/* Returns the factor on queries at a position, 1 + beta log(1 + floor(position / original)). */
float kvf__query_scale(const kvf__positions *positions, int64_t position);
/* Marks or tests a layer of `global` or `no_rope`. */
void kvf__layers_mark(uint64_t bits[KVF__MOST_LAYERS / 64], int64_t layer);
bool kvf__layers_has(const uint64_t bits[KVF__MOST_LAYERS / 64], int64_t layer);

/* Factors on token embeddings (Gemma, Granite) and on the head's input (T5, Granite), 1: none; caps
 * on scaled scores and on logits, c tanh(s / c) (Gemma), 0: none.
 *
 * residual: Granite's factor r on the output of each half. The pass divides the stream by it, which
 * changes no norm if epsilon is divided by r^2. So `embed` and norm_eps have it in them, and only
 * files need its value. */
typedef struct kvf__factors {
    float embed, head, score_cap, logit_cap, residual;
} kvf__factors;

/* Token ids of the config, -1 if absent. */
typedef struct kvf__token_ids {
    int32_t bos, eos, pad; /* first of several eos */
    int32_t start;         /* first token of a decoder after its encoder */
    int32_t forced;        /* the token that then follows, whatever the logits */
    kvf__ends ends;        /* tokens that end generated text, from config and files */
} kvf__token_ids;

/* The layers without attention of a hybrid, all of one kind (docs/maths.md):
 *
 *   short convolution (LFM2)      b, c, x = in(x); y = out(c * conv(b * x))
 *   gated delta rule (Qwen3.5)    q, k, v = silu(conv(...)); S = a S + k (beta (v - a S^T k))^T;
 * S^T q
 *
 * conv is causal and separate for each channel. A layer's state after some tokens is the last
 * kernel - 1 inputs of its convolution, [channels, kernel - 1], then S [value_heads, key_dim,
 * value_dim]. */
enum { KVF__MOST_TAPS = 64 };
typedef enum kvf__mixer_kind { KVF__MIXER_NONE, KVF__MIXER_CONV, KVF__MIXER_DELTA } kvf__mixer_kind;
typedef struct kvf__mixer {
    kvf__mixer_kind kind;
    int64_t kernel; /* taps of the convolution */
    /* delta rule: heads of keys (and queries), of values; a key head serves value_heads / key_heads
     * consecutive value heads */
    int64_t key_heads, value_heads, key_dim, value_dim;
} kvf__mixer;

/* Sizes that may differ between layers. */
typedef struct kvf__layer_shape {
    int64_t G, D, F; /* G 0: the layer has no attention */
    int64_t R;       /* elements of a head rotated by rope, 0: none */
    int64_t from; /* layer whose keys and values it reads: itself, or an earlier one with the same
                     G, D and window */
    bool k_is_v;  /* one projection serves for keys and values */
} kvf__layer_shape;
typedef struct kvf__by_layer {
    kvf__layer_shape *shape; /* [L], owned; NULL: all layers are equal */
    kvf__kv_heads *heads; /* heads of the prefix (prefix.h), owned; NULL: all layers have G and D */
    int64_t with_kv;      /* number of layers with keys and values of their own, which come first */
    int64_t inputs; /* width of the input that each layer derives from a token's embeddings, besides
                       the stream (pass_inputs.c); 0: none */
} kvf__by_layer;

/* An architecture with its numbers. Read-only after kvf__desc_from_*. */
typedef struct kvf__desc {
    const struct kvf__arch *arch; /* row of the table in arch.c: names, weights, ... */
    const char *arch_name;        /* "llama", "mistral", "gpt2": model_type of Hugging Face */
    int64_t L, H, G, D, C, F, V;
    int64_t encoder; /* layers of the encoder; 0: the base is one stack */
    int64_t E;       /* width of the embeddings; if it is not C, a dense layer follows them */
    int64_t types;   /* token types, 0: none */
    kvf__block block;
    kvf__by_layer by_layer; /* overrides where layers differ in G, D or F */
    kvf__mixer mixer;       /* layers without attention; kind 0: none */
    float norm_eps;
    bool tied, head_bias;
    /* its class in transformers has a task head instead of the language-model head */
    bool headless;
    kvf__positions position;
    kvf__factors factors;
    float score_scale;   /* 1/sqrt(D), 1, or from the config */
    bool score_by_layer; /* gpt2 scale_attn_by_inverse_layer_idx: also / (l + 1) */
    kvf__dropouts dropout;
    double initializer_range; /* for task heads; 0: absent from the config */
    kvf__token_ids ids;
    bool mean_pooled; /* heads of whole rows use the mean of the states instead of the first */
    bool gguf;        /* names and row order are a GGUF's */
} kvf__desc;

/* EUNSUPPORTED names the unsupported key and value; EFORMAT a missing or invalid one. */
kvf_status kvf__desc_from_hf(kvf_ctx *ctx, const char *where, const kvf_json *config,
                             kvf__desc *out);
/* Replaces the end tokens by those in the root of a config.json or generation_config.json, if any,
 * and reads forced_bos_token_id. */
kvf_status kvf__desc_set_ends(kvf_ctx *ctx, const char *where, const kvf_json *root,
                              kvf__desc *desc);
/* meta: scalar keys of the GGUF; table: for rope_freqs.weight and the shapes of tensors. */
kvf_status kvf__desc_from_gguf(kvf_ctx *ctx, const char *where, const kvf_json *meta,
                               const kvf__table *table, kvf__desc *out);
kvf_status kvf__desc_copy(kvf_ctx *ctx, const kvf__desc *from, kvf__desc *out);
void kvf__desc_done(kvf__desc *desc);
/* Returns layer l, whether layers differ or not (layers.c). */
kvf__layer_shape kvf__desc_layer(const kvf__desc *desc, int64_t l);
/* Returns whether layer l has a mixer instead of attention. */
bool kvf__layer_mixes(const kvf__desc *desc, int64_t l);
/* Return the channels of its convolution; the floats of its state, and of the states of all layers
 * before l (l = L: of all). */
int64_t kvf__mixer_channels(const kvf__desc *desc);
int64_t kvf__mixer_state(const kvf__desc *desc);
int64_t kvf__mixer_state_at(const kvf__desc *desc, int64_t l);
/* Returns the layers and heads of a prefix for this base, as a view. */
kvf__kv_shape kvf__desc_kv(const kvf__desc *desc);
/* Returns the shape of N virtual neurons in each layer. */
kvf__neuron_shape kvf__desc_neurons(const kvf__desc *desc, int64_t N);
/* Writes a config.json that reads back as the same model; the caller frees *out. EUNSUPPORTED: it
 * cannot express the model described by `where`. */
kvf_status kvf__desc_to_hf(kvf_ctx *ctx, const char *where, const kvf__desc *desc, char **out);

/* Visits every weight of a file with this description, with Hugging Face's names and shapes, in
 * model order; stops at the first status other than KVF_OK. For creating a base. */
typedef kvf_status (*kvf__weight_fn)(void *user, const char *name, int rank, const int64_t *dim);
kvf_status kvf__desc_weights(const kvf__desc *desc, kvf__weight_fn each, void *user);

#endif
