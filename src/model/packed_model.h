/* A frozen transformer with weights packed for oneDNN. Weights are const, so no weight gradient can
 * be written. A model made for training its weights also has them in f32, which the optimizer
 * updates. */
#ifndef KVF_PACKED_MODEL_H
#define KVF_PACKED_MODEL_H

#include "adapter.h"
#include "bind.h"
#include "kv_projection.h"
#include "matmul.h"
#include "prefix.h"

typedef struct kvf__model kvf__model;
enum { KVF__HEAD_ROWS = 256 }; /* labelled rows that the head processes at once */
/* Trained parts of a model: port `block`. Adapters include all norms. */
typedef enum kvf__train_what {
    KVF__TRAIN_NOTHING,
    KVF__TRAIN_ADAPTERS,
    KVF__TRAIN_EVERYTHING
} kvf__train_what;
typedef struct kvf__train {
    kvf__train_what what;
    bool unfolded;     /* norms keep their own weights even if nothing is trained, for comparing the
                          bare base with a trained form; implied by the others */
    bool frozen_norms; /* TRAIN_ADAPTERS without the norms */
    kvf__adapter_shape adapters; /* with TRAIN_ADAPTERS; size 0: norms only */
} kvf__train;

/* Storage of the frozen matrices of layers and head between uses. Packed: in the layout of
 * products, for both directions, in the activation type. Otherwise there is one copy in the order
 * of the file. Layers, and planes of the head, are packed from it just before use, in memory shared
 * by all of them. Their values are those of the copy. */
typedef enum kvf__keep {
    KVF__KEEP_PACKED,
    KVF__KEEP_STORED, /* in memory, in the type `stored` */
    KVF__KEEP_MAPPED  /* in the file; only the current layer is in memory */
} kvf__keep;

typedef struct kvf__model_options {
    kvf__dtype act; /* F32 or BF16 */
    bool int8; /* with BF16: products of frozen matrices in eight bits (dnnl_int8.c), whose weights
                  must be kept packed: else EUSAGE */
    bool backward;     /* pack the transposed weights too */
    kvf__keep keep;    /* trained matrices must be packed: else EUSAGE */
    kvf__dtype stored; /* F32, BF16 or Q8_0 (BF16 if rows are not whole blocks) */
    /* Called after weights were packed, whose file pages are unlikely to be needed again. May be
     * NULL. */
    void (*packed)(void *user);
    kvf__advise_fn *advise; /* for KEEP_MAPPED; may be NULL */
    kvf__read_fn *read;     /* reads rows of tables, as long as the model lives; NULL: in place */
    void *user;
    kvf__train train;
} kvf__model_options;

/* Packs the weights (norms folded in, unless train requires otherwise). Takes ownership of desc
 * (and empties it) on success. The slots' bytes must outlive the model, which reads rows of the
 * token embedding from them. */
kvf_status kvf__model_create(kvf_ctx *ctx, kvf__desc *desc, const kvf__slots *slots,
                             const kvf__model_options *options, kvf__model **out);
/* Packs the weights for backward passes, from the slots of a frozen model; uses `packed` and `user`
 * of the options. On failure the model is unchanged. */
kvf_status kvf__model_add_backward(kvf_ctx *ctx, kvf__model *model, const kvf__slots *slots,
                                   const kvf__model_options *options);
void kvf__model_free(kvf__model *model);
/* Returns the parameters requested by options.train: adapters by their own names, then weights by
 * Hugging Face's; f32 values and gradients in the model's memory. kvf__pass_bwd adds to the
 * gradients. Empty if nothing is trained. */
kvf__params *kvf__model_params(kvf__model *model);
/* Packs changed weights again. Call it after values have changed, before the next pass. */
kvf_status kvf__model_refresh(kvf_ctx *ctx, kvf__model *model);
const kvf__desc *kvf__model_desc(const kvf__model *model);
/* Estimated memory of such a model, within a few percent; file: the type of its matrices there. */
typedef struct kvf__footprint {
    double packed; /* packed weights */
    double stored; /* copies in another type */
    double mapped; /* pages of the file needed at a time */
    double rest;   /* norms, rope tables, workspace of packing */
} kvf__footprint;
kvf__footprint kvf__model_footprint(const kvf__desc *desc, const kvf__model_options *options,
                                    kvf__dtype file);
/* Numbers of multiply-adds per token of the batch: products forward from layer `from` on and
 * backward to layer `lowest`; head: with that of the language model. */
typedef struct kvf__work_rows {
    double labels, source; /* labels, and source tokens of an encoder-decoder, per token */
} kvf__work_rows;
double kvf__model_work(const kvf__model *model, int64_t from, int64_t lowest, kvf__work_rows share,
                       bool head);
/* Sets *out to whether the bits of a row are independent of other rows, in passes of at most
 * `most` tokens. Measured (probe.c), in the time of a few passes; false if weights are packed on
 * demand. */
kvf_status kvf__model_rows_alike(kvf_ctx *ctx, const kvf__model *model, int64_t most, bool *out);
/* Reads rows of the (unfolded) token embedding in f32, times Gemma's factor: out [n, E]. */
void kvf__model_embedding(const kvf__model *model, const int32_t *ids, int64_t n, float *out);
/* Returns the dense layer [C out, C in] that BERT's heads apply to the first token's final state,
 * frozen, and its bias [C]; f32 views into the model. NULL: none in the file. */
const float *kvf__model_pooler(const kvf__model *model, const float **bias);
/* The pretraining head of BERT and relatives: logits of the vocabulary are embedding *
 * norm(act(dense x + dense_bias)) + bias. Frozen f32 views into the model. */
typedef struct kvf__masked_lm {
    float *dense, *dense_bias; /* [E out, C in], [E] */
    float *gamma, *beta;       /* [E] of the LayerNorm, whose eps is the description's */
    float *bias;               /* [V] */
    kvf__act_fn act;
} kvf__masked_lm;
/* Returns NULL if the file has no complete head, or its decoder is not the embedding. */
const kvf__masked_lm *kvf__model_masked_lm(const kvf__model *model);
/* Returns the adapters requested by the options, initially zero; NULL: none. They have gradients if
 * the model was made for backward passes. */
kvf__adapters *kvf__model_adapters(kvf__model *model);

/* Sets `to` (may be `from`) to `from` with its keys rotated as if its first virtual token stood at
 * position `first`; back: with that rotation undone. Copies on bases without rope. */
kvf_status kvf__model_rotate_prefix(kvf_ctx *ctx, kvf__model *model, kvf__prefix *to,
                                    const kvf__prefix *from, int64_t first, bool back);
/* Rotates keys from positions from, from + 1, ... (which may be negative) to positions to, to + 1,
 * ..., under any scaling, whose factor they keep. Without rope does nothing. */
void kvf__rope_move(const kvf__desc *desc, kvf__prefix *prefix, int64_t from, int64_t to);
/* Rotates one key [D] of layer l. */
void kvf__rope_move_key(const kvf__desc *desc, int64_t l, float *k, int64_t from, int64_t to);

/* Reads neurons rows[i] of layer l's feed-forward block: the n keys of *out, or gates and ups, and
 * the biases of a block with biases. slots: those the model was made of. */
kvf_status kvf__model_neurons(kvf_ctx *ctx, const kvf__model *model, const kvf__slots *slots,
                              int64_t l, const int64_t *rows, int64_t n,
                              const kvf__neurons_layer *out);

/* Reads the raw key and value projections of every layer, with tables for P positions; slots: those
 * the model was made of. */
kvf_status kvf__model_kv_projections(kvf_ctx *ctx, kvf__model *model, const kvf__slots *slots,
                                     int64_t P, kvf__kv_projections *out);

#endif
