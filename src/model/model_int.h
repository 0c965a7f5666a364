/* The frozen transformer: a description read from a config, weights bound by name and packed for
 * oneDNN, and one pass forward and backward in which the prefix is key segment 0 of every layer.
 *
 * Weights are const and packed, so no weight gradient can be written, unless the model was made to
 * be trained itself: then it also has its weights in f32, which the optimizer steps. A pass
 * allocates nothing: kvf__pass_create sizes one arena from its limits. */
#ifndef KVF_MODEL_INT_H
#define KVF_MODEL_INT_H

#include "adapter.h"
#include "attention.h"
#include "batch.h"
#include "kernels.h"
#include "kv_projection.h"
#include "matmul.h"
#include "prefix.h"
#include "vectors.h"

/* ---- description ----------------------------------------------------------------------------- */

typedef enum kvf__norm_kind { KVF__LAYERNORM, KVF__RMSNORM } kvf__norm_kind;
typedef enum kvf__position_kind { KVF__POS_LEARNED, KVF__POS_ROPE } kvf__position_kind;

/* How rope's frequencies are scaled for lengths beyond those of pretraining (INTEROP 2.11). Fields
 * a kind does not use are 0. */
typedef enum kvf__rope_kind {
    KVF__ROPE_DEFAULT,
    KVF__ROPE_LINEAR,
    KVF__ROPE_LLAMA3,
    KVF__ROPE_YARN
} kvf__rope_kind;
typedef struct kvf__rope {
    kvf__rope_kind kind;
    double theta, factor;
    double low_freq_factor, high_freq_factor; /* llama3 */
    double original;                          /* llama3, yarn: positions in pretraining */
    double beta_fast, beta_slow;              /* yarn */
    double attention_factor;                  /* yarn, resolved */
    bool truncate;                            /* yarn */
} kvf__rope;

/* An architecture with its numbers. Read-only after kvf__desc_from_*. */
typedef struct kvf__desc {
    const struct kvf__arch *arch; /* row of the table in arch.c: names, norm, biases, ... */
    const char *arch_name;        /* "llama", "mistral", "gpt2": model_type of Hugging Face */
    int64_t L, H, G, D, C, F, V;
    int64_t max_positions; /* that rows may have; the table of a family with position_pad holds
                              position_pad + 1 rows more */
    int64_t types;         /* token types, 0: none */
    kvf__norm_kind norm;
    bool post_norm; /* x = norm(x + half(x)); else x += half(norm(x)) */
    bool qk_norm;   /* RMSNorm of every head's queries and keys, before rope */
    float norm_eps;
    kvf__act_fn act;
    bool gated, causal, tied;
    bool qkv_bias, out_bias, mlp_bias, head_bias;
    bool starts_at_0; /* behind a prefix positions start at 0, not at P, unless a run says so */
    kvf__position_kind positions;
    int32_t position_pad; /* RoBERTa: tokens with this id stand at this row of the table, the others
                             are counted from the row behind it on; -1: position and row are one */
    kvf__rope rope;
    float *rope_divisors; /* GGUF's rope_freqs.weight [D/2], owned; NULL: none */
    float *inv_freq;  /* rope: [D/2], f32 arithmetic as transformers does, scaling applied; owned */
    float rope_scale; /* factor on cos and sin (yarn), else 1 */
    int64_t sliding_window; /* 0: none; else accepted only while P + length fits in it */
    float score_scale;      /* 1/sqrt(D), or 1 */
    bool score_by_layer;    /* gpt2 scale_attn_by_inverse_layer_idx: also / (l + 1) */
    /* For task heads; < 0 or 0: the config does not say. */
    double classifier_dropout, hidden_dropout, initializer_range;
    double
        attention_dropout; /* dropout of the base drops probabilities too where this is above 0 */
    int32_t bos, eos, pad; /* config's ids, -1 if absent */
    bool gguf;             /* names and row order are those of a GGUF */
} kvf__desc;

/* EUNSUPPORTED names the key and value that is not supported; EFORMAT a missing or senseless one.
 */
kvf_status kvf__desc_from_hf(kvf_ctx *ctx, const char *where, const kvf_json *config,
                             kvf__desc *out);
/* meta: scalar keys of the GGUF; table: for rope_freqs.weight and the shapes of tensors. */
kvf_status kvf__desc_from_gguf(kvf_ctx *ctx, const char *where, const kvf_json *meta,
                               const kvf__table *table, kvf__desc *out);
void kvf__desc_done(kvf__desc *desc);
/* A config.json that reads back as the same model; *out to be freed. EUNSUPPORTED: it has no words
 * for what `where` describes. */
kvf_status kvf__desc_to_hf(kvf_ctx *ctx, const char *where, const kvf__desc *desc, char **out);

/* Visits every weight that a file of this description holds, by the name and in the shape Hugging
 * Face gives it, in model order; stops at the first status that is not KVF_OK. For those who make a
 * base instead of reading one. */
typedef kvf_status (*kvf__weight_fn)(void *user, const char *name, int rank, const int64_t *dim);
kvf_status kvf__desc_weights(const kvf__desc *desc, kvf__weight_fn each, void *user);

/* ---- weights --------------------------------------------------------------------------------- */

/* Bytes behind a slot will be read soon, or not for a while. */
typedef void kvf__advise_fn(void *user, const void *at, size_t bytes, bool soon);
/* Copies bytes behind a slot; false where that cannot be done without reading them there. */
typedef bool kvf__read_fn(void *user, const void *at, size_t bytes, void *out);

/* One weight by its Hugging Face name, viewed in the file. conv1d: stored [in, out] (GPT-2).
 * permuted: rows are in GGUF llama order (INTEROP 5.4) and undone when read. */
typedef struct kvf__slot {
    char name[96];
    kvf__view view;
    bool conv1d;
    int64_t permuted_heads; /* 0: rows in Hugging Face order */
    bool aside;             /* no part of the base's hash: the masked-LM head */
} kvf__slot;

typedef struct kvf__slots {
    kvf__slot *items; /* canonical names, in model order */
    size_t n;
    kvf__map index;
} kvf__slots;

/* Finds every weight the description needs, checks every shape (ESHAPE: name, found, expected),
 * EFORMAT if one is missing. Accepts names with and without the base-model prefix; ignores known
 * buffers, logs other surplus tensors. */
kvf_status kvf__bind(kvf_ctx *ctx, const char *where, const kvf__desc *desc,
                     const kvf__table *table, kvf__slots *out);
void kvf__slots_done(kvf__slots *slots);
/* A weight as Hugging Face has it, for a file: rows in its order, integers as f32, other types as
 * they are. A view of the slot's bytes, or of *memory, which takes the place of what it was before
 * and is freed by the caller. */
kvf_status kvf__slot_plain(kvf_ctx *ctx, const kvf__slot *slot, void **memory, kvf__view *out);
/* XXH3-128 over the description and, in name order, name, dtype, shape and raw bytes of every slot
 * (tied copies and the masked-LM head left out). */
kvf_status kvf__slots_hash(kvf_ctx *ctx, const kvf__desc *desc, const kvf__slots *slots,
                           char hex[33]);
/* The same, telling of each weight once it has been read; advise as in kvf__model_options. */
kvf_status kvf__slots_hash_advised(kvf_ctx *ctx, const kvf__desc *desc, const kvf__slots *slots,
                                   kvf__advise_fn *advise, void *user, char hex[33]);

typedef struct kvf__model kvf__model;
/* What of a model is trained: port `block`. Adapters come with all norms. */
typedef enum kvf__train_what {
    KVF__TRAIN_NOTHING,
    KVF__TRAIN_ADAPTERS,
    KVF__TRAIN_EVERYTHING
} kvf__train_what;
typedef struct kvf__train {
    kvf__train_what what;
    bool unfolded; /* norms keep their own weights even if nothing is trained: the bare base that a
                      trained form is compared with; implied by the others */
    kvf__adapter_shape adapters; /* with TRAIN_ADAPTERS; size 0: none, the norms alone */
} kvf__train;

/* Where the frozen matrices of layers and head are between two uses. Packed: as products read them,
 * for both directions, in the act type. Otherwise there is one copy in the order of the file, from
 * which a layer is packed just before it is computed and the head plane by plane, into memory that
 * all layers and all planes share; the values are then those of that copy. */
typedef enum kvf__keep {
    KVF__KEEP_PACKED,
    KVF__KEEP_STORED, /* in memory, in the type `stored` */
    KVF__KEEP_MAPPED  /* in the file, of which only the layer at hand is needed in memory */
} kvf__keep;

typedef struct kvf__model_options {
    kvf__dtype act;    /* F32 or BF16 */
    bool backward;     /* pack the transposed weights too */
    kvf__keep keep;    /* what is trained itself must be packed: EUSAGE */
    kvf__dtype stored; /* F32, BF16 or Q8_0 (BF16 where rows are no whole blocks) */
    /* Called whenever some weights were packed and will hardly be read from their file again; NULL:
     * nobody wants to know. */
    void (*packed)(void *user);
    kvf__advise_fn *advise; /* NULL: nobody wants to know; of use with KEEP_MAPPED */
    kvf__read_fn *read;     /* for rows of tables, as long as the model lives; NULL: in place */
    void *user;
    kvf__train train;
} kvf__model_options;

/* Packs the weights (norms folded in, unless train says otherwise). desc is taken over (and
 * emptied) on success; the bytes behind slots must outlive the model: the token embedding is read
 * from them row by row. */
kvf_status kvf__model_create(kvf_ctx *ctx, kvf__desc *desc, const kvf__slots *slots,
                             const kvf__model_options *options, kvf__model **out);
void kvf__model_free(kvf__model *model);
/* What options.train asked for: adapters by their own names, then weights by Hugging Face's; f32
 * values and gradients, the model's own memory. kvf__pass_bwd adds to the gradients. Empty if
 * nothing is trained. */
kvf__params *kvf__model_params(kvf__model *model);
/* To be called whenever values have changed, before the next pass: packs what products read anew.
 */
kvf_status kvf__model_refresh(kvf_ctx *ctx, kvf__model *model);
const kvf__desc *kvf__model_desc(const kvf__model *model);
kvf__dtype kvf__model_act(const kvf__model *model);
size_t kvf__model_packed_bytes(const kvf__model *model);
/* Bytes that such a model takes once it is made, within a few percent; file: the type of its
 * matrices there. */
typedef struct kvf__footprint {
    double packed; /* weights as products read them */
    double stored; /* copies in a type of their own */
    double mapped; /* pages of the file that a step needs at a time */
    double rest;   /* norms, rope tables, workspace of packing */
} kvf__footprint;
kvf__footprint kvf__model_footprint(const kvf__desc *desc, const kvf__model_options *options,
                                    kvf__dtype file);
/* Do rows of a pass of at most so many tokens get the same bits whatever other rows are in it?
 * Tried (rows_alike.c), in the time of some passes; false where weights are packed just before use.
 */
kvf_status kvf__model_rows_alike(kvf_ctx *ctx, const kvf__model *model, int64_t most, bool *out);
/* Rows of the (unfolded) token embedding in f32: out [n, C]. */
void kvf__model_embedding(const kvf__model *model, const int32_t *ids, int64_t n, float *out);
/* The dense layer [C out, C in] that BERT's heads put on the first token's final state, frozen with
 * the base, and its bias [C]; f32 views into the model. NULL: the file has none. */
const float *kvf__model_pooler(const kvf__model *model, const float **bias);
/* The head with which BERT and RoBERTa were pretrained: logits of the vocabulary are
 *   embedding * norm(act(dense x + dense_bias)) + bias,
 * frozen, as f32 views into the model. */
typedef struct kvf__masked_lm {
    float *dense, *dense_bias; /* [C out, C in], [C] */
    float *gamma, *beta;       /* [C] of the LayerNorm, whose eps is the description's */
    float *bias;               /* [V] */
    kvf__act_fn act;
} kvf__masked_lm;
/* NULL: the file has none, or only parts of one, or its decoder is not the embedding. */
const kvf__masked_lm *kvf__model_masked_lm(const kvf__model *model);
/* The adapters that options asked for, zero at first; NULL: none. They have gradients if the model
 * was made for backward passes. */
kvf__adapters *kvf__model_adapters(kvf__model *model);
/* Has the base a language-model head? Encoders have none: lm_loss, lm_logits are EUNSUPPORTED. */
bool kvf__model_has_head(const kvf__model *model);

/* to (may be from) = from with its keys rotated as if its first virtual token stood at position
 * `first`; back: with that rotation undone. On bases without rope a copy. */
kvf_status kvf__model_turn_prefix(kvf_ctx *ctx, kvf__model *model, kvf__prefix *to,
                                  const kvf__prefix *from, int64_t first, bool back);
/* Keys that were rotated for positions from, from + 1, ... (which may be below 0) become those of
 * to, to + 1, ...; under every scaling, whose factor stays on them. Without rope nothing happens.
 */
void kvf__rope_move(const kvf__desc *desc, kvf__prefix *prefix, int64_t from, int64_t to);

/* The raw key and value projections of every layer, with tables for P positions; slots: those the
 * model was made of. */
kvf_status kvf__model_kv_projections(kvf_ctx *ctx, kvf__model *model, const kvf__slots *slots,
                                     int64_t P, kvf__kv_projections *out);

/* ---- generation cache ------------------------------------------------------------------------ */

/* Keys and values of earlier tokens of several rows, in the act type: per slot and layer [2, G,
 * room, D]. */
typedef struct kvf__cache kvf__cache;
kvf_status kvf__cache_create(kvf_ctx *ctx, const kvf__model *model, int64_t slots, int64_t capacity,
                             kvf__cache **out);
/* Slots without memory yet, each to get its own for at most `capacity` tokens. */
kvf_status kvf__cache_create_empty(kvf_ctx *ctx, const kvf__model *model, int64_t slots,
                                   int64_t capacity, kvf__cache **out);
/* Gives a slot room for so many tokens, 0: none; what it held is gone. Unchanged on failure. */
kvf_status kvf__cache_reserve(kvf_ctx *ctx, kvf__cache *cache, int64_t slot, int64_t room);
void kvf__cache_free(kvf__cache *cache);
int64_t kvf__cache_length(const kvf__cache *cache, int64_t slot);
void kvf__cache_truncate(kvf__cache *cache, int64_t slot, int64_t length);
/* Slot `to` begins with the first n tokens of slot `from`, and holds no others. */
void kvf__cache_copy(kvf__cache *cache, int64_t from, int64_t to, int64_t n);
/* Copies keys and values of the first n tokens of a slot into out [L, 2, G, n, D], f32. */
void kvf__cache_read(const kvf__cache *cache, int64_t slot, int64_t n, float *out);

/* ---- a step of generation -------------------------------------------------------------------- */

/* One more token for each of a few rows. Such a step is bound by reading the weights, so it reads
 * those of the file, quantised as they are, instead of the packed ones (matvec.h), in one parallel
 * region. Activations and sums are f32; where the model computes in bf16, products of more than one
 * row may round their factors to it, as a pass does. */
typedef struct kvf__decoder kvf__decoder;
typedef struct kvf__step_row {
    const kvf__prefix *prefix; /* NULL: none */
    int64_t position_start;
    const kvf__slot *head; /* NULL: the decoder's */
} kvf__step_row;
typedef struct kvf__step {
    int64_t n;           /* rows */
    const int32_t *ids;  /* [n] their new tokens */
    const int32_t *slot; /* [n] their slots in the cache; NULL: row r uses slot r */
    const kvf__prefix *prefix;
    int64_t position_start;   /* of a row's first cached token */
    const kvf__step_row *row; /* [n] what stands before each row, in place of the two above; NULL:
                                 they hold for all */
    bool as_one; /* a row's bits are those of a step of that row alone, whatever is beside it */
} kvf__step;

/* Has this base such a form? Not where a file stores weights by inputs (GPT-2 of Hugging Face). */
bool kvf__decoder_fits(const kvf__model *model, const kvf__slots *slots);
/* slots: those the model was made of; they, the model and the cache must outlive it. P: longest
 * prefix. EUSAGE where it does not fit. */
kvf_status kvf__decoder_create(kvf_ctx *ctx, kvf__model *model, const kvf__slots *slots,
                               kvf__cache *cache, int64_t rows, int64_t P, kvf__decoder **out);
/* A head [V, C] in place of the base's (head_vocab.h), which must outlive the decoder. */
void kvf__decoder_set_head(kvf__decoder *decoder, const kvf__slot *head);
void kvf__decoder_free(kvf__decoder *decoder);
/* Appends the tokens to the cache; logits [n, V] of what follows them, f32. Allocates nothing but
 * rope tables for positions that no batch has reached. ESHAPE as kvf__pass_fwd. */
kvf_status kvf__decoder_step(kvf_ctx *ctx, kvf__decoder *decoder, const kvf__step *step,
                             float *logits);

/* ---- a pass ---------------------------------------------------------------------------------- */

typedef struct kvf__pass kvf__pass;
typedef struct kvf__pass_limits {
    int64_t rows, tokens, row_len, labels; /* most in one batch */
    int64_t P;                             /* longest prefix */
    int64_t cache_len;                     /* longest cache, 0: none */
    int64_t lead_len;                      /* longest path of leads before a row, 0: no leads */
    int64_t lead_tokens;                   /* tokens in all leads of one batch */
    int64_t soft;                          /* most items of a teacher (lm_soft), 0: none */
    bool row_dropout;                      /* inputs may ask for it */
    bool base_dropout;                     /* the same */
    bool infix;       /* batches may have infix_at; needed where positions are rope's */
    int64_t sections; /* most in one batch, 0: batches have none */
    bool backward;
    bool recompute; /* with backward: keep only what enters each layer and compute the layer again
                       before its backward pass; the same bits, less memory, more time */
} kvf__pass_limits;
kvf_status kvf__pass_create(kvf_ctx *ctx, kvf__model *model, const kvf__pass_limits *limits,
                            kvf__pass **out);
void kvf__pass_free(kvf__pass *pass);
/* Builds every primitive a batch of this size needs, so that running one allocates nothing. */
kvf_status kvf__pass_prepare(kvf_ctx *ctx, kvf__pass *pass, int64_t tokens, int64_t labels);

/* Dropout drawn anew for every row, for training, by (seed, step, row), where a row counts by its
 * example, so that it draws the same in any batch. Of the prefix: on element (layer, kv, g, p, d)
 * of what the row sees. Of the base: on embeddings and on what each half of a block adds. */
typedef struct kvf__row_dropout {
    double p; /* [0, 1) */
    uint64_t seed;
    int64_t step;
} kvf__row_dropout;

/* Rows of a batch that follow each other and share what stands before them: those of one of several
 * runs that are computed together. Leads belong to the section of the rows they lead. */
typedef struct kvf__section {
    int64_t rows;
    const kvf__prefix *prefix;   /* as in kvf__input */
    const kvf__vectors *vectors; /* the same */
    int64_t position_start;
    float loss_scale; /* a factor on `scale` of lm_loss for its labels */
    double *loss_sum; /* lm_loss adds its labels' losses, as to that of a batch; NULL: not wanted */
} kvf__section;

typedef struct kvf__input {
    const kvf__batch *batch;
    const kvf__prefix *prefix; /* NULL or P = 0: the bare base. With batch->infix_at on a base with
                                  rope its keys are not rotated yet: each row turns them to where
                                  the prefix stands in it */
    const kvf__vectors *vectors; /* what the batch's ids below 0 stand for (vectors.h): row p of it
                                    in place of the token's embedding; NULL: there are none */
    int64_t position_start;      /* position of a row's first token (with a cache: of its first
                                    cached token) */
    kvf__cache *cache;   /* NULL, or keys and values of earlier tokens; the batch's are appended */
    const int32_t *slot; /* [R], cache slot of each row; NULL: row r uses slot r */
    const kvf__row_dropout *row_dropout;  /* NULL: none; excludes leads and a cache */
    const kvf__row_dropout *base_dropout; /* the same for the base; excludes adapters too */
    double *share; /* [L, H]; NULL: not wanted. Adds, for every label, how much of its attention
                      falls on virtual tokens: prefix, or vectors (but those in a cache) */
    const kvf__section *sections; /* [n_sections] all rows, in place of prefix, vectors and
                                     position_start; excludes dropout and infix_at */
    int64_t n_sections;           /* 0: none */
} kvf__input;

/* Runs the base up to the final norm of the labelled positions (label_at; the rest of the last
 * layer is not computed). ESHAPE: over the limits, position past the model's, id outside the
 * vocabulary or without its vector. */
kvf_status kvf__pass_fwd(kvf_ctx *ctx, kvf__pass *pass, const kvf__input *input);
/* After fwd: *loss_sum = sum of -log p(label_id) in nats over the labels; token_loss [n_labels] if
 * not NULL. If `gradient`, also leaves d(scale * loss_sum)/d hidden for bwd. ENUMERIC if the loss
 * is not finite; with sections that is the caller's to see, for the other sections go on. */
kvf_status kvf__pass_lm_loss(kvf_ctx *ctx, kvf__pass *pass, bool gradient, float scale,
                             double *loss_sum, float *token_loss);
/* What a teacher says at each label: its k likeliest items, ids ascending, with their
 * log-probabilities, and behind these that of all other items together. */
typedef struct kvf__soft {
    int64_t k;
    const int32_t *ids; /* [n_labels, k] */
    const float *logp;  /* [n_labels, k + 1]; -INFINITY: nothing */
} kvf__soft;
/* After fwd: what this pass says as a teacher, ids [n_labels, k], logp [n_labels, k + 1]. ENUMERIC
 * if a logit is not finite. */
kvf_status kvf__pass_lm_top(kvf_ctx *ctx, kvf__pass *pass, int64_t k, int32_t *ids, float *logp);
/* As lm_loss, with KL(teacher || pass) of those k + 1 buckets in place of -log p(label_id)
 * (head_soft.c); limits.soft must allow k. EUNSUPPORTED: a gradient where the head is trained. */
kvf_status kvf__pass_lm_soft(kvf_ctx *ctx, kvf__pass *pass, const kvf__soft *soft, bool gradient,
                             float scale, double *loss_sum, float *token_loss);
/* After fwd: logits [n_labels, V], f32. */
kvf_status kvf__pass_lm_logits(kvf_ctx *ctx, kvf__pass *pass, float *logits);
/* For heads that are not the language model's (head_task.h). hidden: final states of the labelled
 * positions, f32 [n_labels, C], as transformers' last_hidden_state; a view, valid until the next
 * call. hidden_grad takes d loss / d hidden in place of lm_loss, before bwd. */
kvf_status kvf__pass_hidden(kvf_ctx *ctx, kvf__pass *pass, const float **hidden);
kvf_status kvf__pass_hidden_grad(kvf_ctx *ctx, kvf__pass *pass, const float *dhidden);
/* Where gradients go: what is set is added to. Without vectors (and block) the pass ends at the
 * lowest layer's prefix. */
typedef struct kvf__grads {
    kvf__prefix *prefix;   /* needed where the input has one; masked layers stay untouched */
    kvf__vectors *vectors; /* those that the batch does not name stay untouched */
    bool block;            /* of the parameters that the model publishes */
    const struct kvf__grads *sections; /* [n_sections] where the input has them: their prefix and
                                          vectors, in place of those above */
    /* Called as soon as this pass has added all it has to a layer of the prefix's gradient, from
     * the last layer down, so that it can be sent on while the next is computed. NULL: nobody
     * waits. */
    void (*layer_done)(void *user, int64_t l);
    void *user;
} kvf__grads;
/* After lm_loss with gradient, or hidden_grad: *into += d(scale * loss)/d what it names. */
kvf_status kvf__pass_bwd(kvf_ctx *ctx, kvf__pass *pass, const kvf__grads *into);

/* Seconds by component since the pass was created ("qkv", "attention", ...), for bench and logs. */
typedef struct kvf__timing {
    const char *name;
    double seconds;
} kvf__timing;
size_t kvf__pass_timings(const kvf__pass *pass, kvf__timing *out, size_t max);

/* ---- the rate of oneDNN ---------------------------------------------------------------------- */

/* Multiply-adds count as 2 operations. Floor: what a step cannot do without, the layers' products
 * forward and for the gradient of their inputs, and the head on labelled rows: 4 * weights of the
 * layers * tokens + 4 * V * C * labels. Attention, norms and the like are no part of it; nor is it
 * lowered by what the pass leaves out (the last layer's unlabelled rows, all below the first
 * prefix), so that a share of the rate above 1 is possible in principle. */
double kvf__model_floor_flops(const kvf__model *model, int64_t tokens, int64_t labels);

/* Times the products of a forward pass of so many tokens and labels one by one, on the model's own
 * packed weights of layer 0 and memory that is hot from the run before. */
typedef struct kvf__probe kvf__probe;
typedef struct kvf__rates {
    double step; /* FLOP/s: operations of all products over the sum of their times, each as often as
                    a forward pass has it */
    double reference; /* FLOP/s of [512, 768] x [768, 3072] alone: one figure to compare machines
                         and shapes by */
} kvf__rates;
kvf_status kvf__probe_create(kvf_ctx *ctx, const kvf__model *model, int64_t tokens, int64_t labels,
                             kvf__probe **out);
void kvf__probe_free(kvf__probe *probe);
/* One measurement, about a tenth of a step; allocates nothing. */
kvf_status kvf__probe_run(kvf_ctx *ctx, kvf__probe *probe, kvf__rates *out);

#endif
