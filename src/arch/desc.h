/* The description of a transformer: an architecture with its numbers, read from a config or a
 * GGUF's metadata. */
#ifndef KVF_DESC_H
#define KVF_DESC_H

#include "kernels.h"
#include "prefix.h"
#include "stacks.h"
#include "view.h"

typedef enum kvf__norm_kind { KVF__LAYERNORM, KVF__RMSNORM } kvf__norm_kind;
/* Relative and bias: terms of attention's scores, by how far a query and a key of a row are apart,
 * made of both (DeBERTa) or of the distance alone (T5). */
typedef enum kvf__position_kind {
    KVF__POS_LEARNED,
    KVF__POS_ROPE,
    KVF__POS_RELATIVE,
    KVF__POS_BIAS
} kvf__position_kind;

/* How distances fall into buckets, of which each sign has `span`: one each up to span / 2, then
 * ever wider ones up to farthest - 1. */
typedef struct kvf__relative {
    int64_t span, farthest;
    bool logarithmic; /* else one bucket each, up to span */
} kvf__relative;

/* How rope's frequencies are scaled for lengths beyond those of pretraining (transformers'
 * modeling_rope_utils.py). Fields a kind does not use are 0. */
typedef enum kvf__rope_kind {
    KVF__ROPE_DEFAULT,
    KVF__ROPE_LINEAR,
    KVF__ROPE_LLAMA3,
    KVF__ROPE_YARN,
    KVF__ROPE_LONG,        /* longrope within the original length: divisors, attention_factor */
    KVF__ROPE_PROPORTIONAL /* the first frequencies of a head alone, the others are 0 */
} kvf__rope_kind;
typedef struct kvf__rope {
    kvf__rope_kind kind;
    double theta, factor;
    double low_freq_factor, high_freq_factor; /* llama3 */
    double original;                          /* llama3, yarn: positions in pretraining */
    double beta_fast, beta_slow;              /* yarn */
    double attention_factor;                  /* yarn, longrope; resolved */
    bool truncate;                            /* yarn */
    double partial;                           /* proportional: which part turns */
} kvf__rope;

/* Tokens that end what is generated. */
enum { KVF__MOST_ENDS = 32 };
typedef struct kvf__ends {
    int32_t id[KVF__MOST_ENDS];
    int n;
} kvf__ends;
bool kvf__ends_has(const kvf__ends *ends, int32_t id);
void kvf__ends_add(kvf__ends *ends, int32_t id); /* once; below 0: none; what has no room is left */

/* RMSNorm of queries and keys, before rope: of every head by itself, or of all heads together. */
typedef enum kvf__qk_norm { KVF__QK_NONE, KVF__QK_BY_HEAD, KVF__QK_WHOLE } kvf__qk_norm;

/* Of the config, < 0: not in it. What heads drop while they are trained; attention's is also what
 * the base drops. */
typedef struct kvf__dropouts {
    double classifier, hidden;
    double pooled; /* behind the layer that a head puts on the first state (summary_last_dropout,
                      seq_classif_dropout, ...) */
    double qa;
    double attention; /* dropout of the base drops probabilities too where it is above 0 */
} kvf__dropouts;

/* The users of a block, in the order of the columns of KVF__BLOCK. */
typedef enum kvf__block_user {
    KVF__BLOCK_PASS,         /* pass.h */
    KVF__BLOCK_DECODER,      /* decoder.h; a base that it refuses is run by passes */
    KVF__BLOCK_PAST,         /* an exported prefix as past key values (PEFT, safetensors) */
    KVF__BLOCK_PROMPT_CLASS, /* virtual tokens in PEFT, in front of a text to classify */
    KVF__BLOCK_CACHE,        /* an exported prefix as a saved cache (llama.cpp, mlx-lm) */
    KVF__BLOCK_USERS
} kvf__block_user;

/* The fields of a block, with a column for each of its users: TAKES: any value; NOT(why): refused
 * where the field is set; ONLY(why): refused where it is not. A field without all columns does not
 * compile. tests/pass/test_decoder.c wants a golden model of each field that pass and decoder take.
 * Which norms stand around the halves of a block its weights say (kvf__desc_has). */
#define KVF__BLOCK(FIELD)                                                                          \
    FIELD(kvf__norm_kind, norm, TAKES, TAKES, TAKES, TAKES, TAKES)                                 \
    /* x = norm(x + half(x)); else x += half(norm(x)) */                                           \
    FIELD(bool, post_norm, TAKES, NOT("has norms behind its halves"), TAKES, TAKES, TAKES)         \
    FIELD(kvf__qk_norm, qk_norm, TAKES, TAKES, TAKES, TAKES, TAKES)                                \
    /* with QK_BY_HEAD, and the same of values, without weights */                                 \
    FIELD(bool, v_norm, TAKES, TAKES, TAKES, TAKES, TAKES)                                         \
    /* both halves read the x that enters the block */                                             \
    FIELD(bool, parallel, TAKES, TAKES, TAKES, TAKES, TAKES)                                       \
    FIELD(kvf__act_fn, act, TAKES, TAKES, TAKES, TAKES, TAKES)                                     \
    FIELD(bool, gated, TAKES, TAKES, TAKES, TAKES, TAKES)                                          \
    FIELD(bool, causal, TAKES, ONLY("reads in both directions"), TAKES,                            \
          ONLY("the class is read from [CLS], which in PEFT stands behind the virtual tokens: "    \
               "it would read the first of them"),                                                 \
          ONLY("is for an encoder, which reads no cache"))                                         \
    FIELD(bool, qkv_bias, TAKES, TAKES, TAKES, TAKES, TAKES)                                       \
    FIELD(bool, out_bias, TAKES, TAKES, TAKES, TAKES, TAKES)                                       \
    FIELD(bool, mlp_bias, TAKES, TAKES, TAKES, TAKES, TAKES)

/* What a block is made of: a row of the table of architectures, or a config gives it. */
#define KVF__BLOCK_FIELD(type, name, ...) type name;
typedef struct kvf__block {
    KVF__BLOCK(KVF__BLOCK_FIELD)
} kvf__block;
/* Why a user refuses a base with this block; NULL: it takes it. */
const char *kvf__block_refused(const kvf__block *block, kvf__block_user user);

enum { KVF__MOST_LAYERS = 1024, KVF__MOST_FFN = 1536 * 64 };

/* Where tokens are. */
typedef struct kvf__positions {
    kvf__position_kind kind;
    int64_t max;      /* that rows may have; the table of a family with `pad` holds pad + 1 more */
    int32_t pad;      /* RoBERTa: tokens with this id are at this row of the table, the others are
                         counted from the row after it on; -1: position and row are one */
    int32_t first;    /* row of the table that position 0 has */
    bool starts_at_0; /* after a prefix positions start at 0, not at P, unless a run asks for it */
    int64_t window;   /* of local layers: a query sees the last so many keys, in an encoder own ones
                         less far away on either side; 0: no layer is local */
    uint64_t global[KVF__MOST_LAYERS / 64]; /* bit l: layer l is not local */
    kvf__rope rope;
    kvf__relative relative;
    int64_t rotated; /* rope: the first R of D elements of a head; 0: not rope */
    float *divisors; /* of frequencies (GGUF's rope_freqs.weight) [R/2], owned; NULL: none */
    float *inv_freq; /* rope: [R/2], f32 arithmetic as transformers does, scaling applied; owned */
    float scale;     /* factor on cos and sin (yarn, longrope), else 1 */
    double local_theta;    /* rope of local layers, without a scaling; 0: that of all */
    int64_t local_rotated; /* with local_theta: their R */
    float *local_inv_freq; /* with local_theta: [R/2], owned */
} kvf__positions;
/* The window of a layer, 0: none. */
int64_t kvf__positions_window(const kvf__positions *positions, int64_t layer);

/* A factor on embeddings of tokens (Gemma) and on what the head reads (T5; 1: none), caps on scaled
 * scores and on logits, c tanh(s / c) (Gemma; 0: none). */
typedef struct kvf__factors {
    float embed, head, score_cap, logit_cap;
} kvf__factors;

/* The config's token ids, -1 if absent. */
typedef struct kvf__token_ids {
    int32_t bos, eos, pad; /* of several eos the first */
    int32_t start;         /* with which a decoder begins behind its encoder */
    int32_t forced;        /* what it then writes first, whatever the logits */
    kvf__ends ends;        /* that end what is generated, by config or file */
} kvf__token_ids;

/* What layers may differ in. */
typedef struct kvf__layer_shape {
    int64_t G, D, F;
    int64_t R;    /* elements of a head that rope rotates */
    int64_t from; /* the layer whose keys and values it reads: itself, or one before it of the same
                     G, D and window */
    bool k_is_v;  /* one projection gives its keys and its values */
} kvf__layer_shape;
typedef struct kvf__by_layer {
    kvf__layer_shape *shape; /* [L], owned; NULL: all layers are alike */
    kvf__kv_heads *heads;    /* of the prefix (prefix.h), owned; NULL: all layers have G and D */
    int64_t with_kv; /* the layers that have keys and values of their own, which come first */
    int64_t inputs;  /* width of the vector that each layer reads besides the stream, which is made
                        of a token's embeddings (pass_inputs.c); 0: none does */
} kvf__by_layer;

/* An architecture with its numbers. Read-only after kvf__desc_from_*. */
typedef struct kvf__desc {
    const struct kvf__arch *arch; /* row of the table in arch.c: names, weights, ... */
    const char *arch_name;        /* "llama", "mistral", "gpt2": model_type of Hugging Face */
    int64_t L, H, G, D, C, F, V;
    int64_t encoder; /* layers of the encoder; 0: the base is one stack */
    int64_t E;       /* width of the embeddings; where it is not C, a dense layer follows them */
    int64_t types;   /* token types, 0: none */
    kvf__block block;
    kvf__by_layer by_layer; /* where not all layers have G, D and F */
    float norm_eps;
    bool tied, head_bias;
    bool headless; /* transformers' class for it has a task's head in place of the language model's
                    */
    kvf__positions position;
    kvf__factors factors;
    float score_scale;   /* 1/sqrt(D), or 1, or what a config has in place of D */
    bool score_by_layer; /* gpt2 scale_attn_by_inverse_layer_idx: also / (l + 1) */
    kvf__dropouts dropout;
    double initializer_range; /* for task heads; 0: not in the config */
    kvf__token_ids ids;
    bool mean_pooled; /* heads of whole rows read the mean of its states, not the first */
    bool gguf;        /* names and row order are those of a GGUF */
} kvf__desc;

/* EUNSUPPORTED names the key and value that is not supported; EFORMAT a missing or senseless one.
 */
kvf_status kvf__desc_from_hf(kvf_ctx *ctx, const char *where, const kvf_json *config,
                             kvf__desc *out);
/* The ends that the root of a config.json or generation_config.json names, in place of those
 * before, and forced_bos_token_id; nothing if it names none. */
kvf_status kvf__desc_set_ends(kvf_ctx *ctx, const char *where, const kvf_json *root,
                              kvf__desc *desc);
/* meta: scalar keys of the GGUF; table: for rope_freqs.weight and the shapes of tensors. */
kvf_status kvf__desc_from_gguf(kvf_ctx *ctx, const char *where, const kvf_json *meta,
                               const kvf__table *table, kvf__desc *out);
kvf_status kvf__desc_copy(kvf_ctx *ctx, const kvf__desc *from, kvf__desc *out);
void kvf__desc_done(kvf__desc *desc);
/* Layer l, whether layers differ or not (layers.c). */
kvf__layer_shape kvf__desc_layer(const kvf__desc *desc, int64_t l);
/* The layers and heads of a prefix before this base; a view of it. */
kvf__kv_shape kvf__desc_kv(const kvf__desc *desc);
/* A config.json that reads back as the same model; *out to be freed. EUNSUPPORTED: it has no words
 * for what `where` describes. */
kvf_status kvf__desc_to_hf(kvf_ctx *ctx, const char *where, const kvf__desc *desc, char **out);

/* Visits every weight that a file of this description holds, by the name and in the shape Hugging
 * Face gives it, in model order; stops at the first status that is not KVF_OK. For those who make a
 * base instead of reading one. */
typedef kvf_status (*kvf__weight_fn)(void *user, const char *name, int rank, const int64_t *dim);
kvf_status kvf__desc_weights(const kvf__desc *desc, kvf__weight_fn each, void *user);

#endif
