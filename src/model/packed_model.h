/* A frozen transformer whose weights are packed for oneDNN. Weights are const, so no weight
 * gradient can be written, unless the model was made to be trained itself: then it also has its
 * weights in f32, which the optimizer steps. */
#ifndef KVF_PACKED_MODEL_H
#define KVF_PACKED_MODEL_H

#include "adapter.h"
#include "bind.h"
#include "kv_projection.h"
#include "matmul.h"
#include "prefix.h"

typedef struct kvf__model kvf__model;
enum { KVF__HEAD_ROWS = 256 }; /* labelled rows that the head takes at once */
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
    bool frozen_norms;           /* TRAIN_ADAPTERS without the norms */
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
    bool int8;         /* with BF16: products of frozen matrices in eight bits (dnnl_int8.c), whose
                          weights must be kept packed: EUSAGE */
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

/* Packs the weights (norms folded in, unless train asks otherwise). desc is taken over (and
 * emptied) on success; the bytes of the slots must outlive the model: the token embedding is read
 * from them row by row. */
kvf_status kvf__model_create(kvf_ctx *ctx, kvf__desc *desc, const kvf__slots *slots,
                             const kvf__model_options *options, kvf__model **out);
/* Packs what backward passes read in addition, from the slots that a frozen model was made of; of
 * the options `packed` and `user` are used. On failure the model is as it was. */
kvf_status kvf__model_add_backward(kvf_ctx *ctx, kvf__model *model, const kvf__slots *slots,
                                   const kvf__model_options *options);
void kvf__model_free(kvf__model *model);
/* What options.train asked for: adapters by their own names, then weights by Hugging Face's; f32
 * values and gradients, the model's own memory. kvf__pass_bwd adds to the gradients. Empty if
 * nothing is trained. */
kvf__params *kvf__model_params(kvf__model *model);
/* To be called whenever values have changed, before the next pass: packs what products read anew.
 */
kvf_status kvf__model_refresh(kvf_ctx *ctx, kvf__model *model);
const kvf__desc *kvf__model_desc(const kvf__model *model);
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
/* Multiply-adds of products per token, forward from layer `from` on and backward to layer
 * `lowest`; head: with the language model's. For each token of the batch there are so many: */
typedef struct kvf__work_rows {
    double labels, source; /* tokens of an encoder-decoder's source */
} kvf__work_rows;
double kvf__model_work(const kvf__model *model, int64_t from, int64_t lowest, kvf__work_rows share,
                       bool head);
/* Do rows of a pass of at most so many tokens get the same bits whatever other rows are in it?
 * Tried (probe.c), in the time of some passes; false where weights are packed just before use.
 */
kvf_status kvf__model_rows_alike(kvf_ctx *ctx, const kvf__model *model, int64_t most, bool *out);
/* Rows of the (unfolded) token embedding in f32, times Gemma's factor: out [n, E]. */
void kvf__model_embedding(const kvf__model *model, const int32_t *ids, int64_t n, float *out);
/* The dense layer [C out, C in] that BERT's heads put on the first token's final state, frozen with
 * the base, and its bias [C]; f32 views into the model. NULL: the file has none. */
const float *kvf__model_pooler(const kvf__model *model, const float **bias);
/* The head with which BERT and its kin were pretrained: logits of the vocabulary are
 *   embedding * norm(act(dense x + dense_bias)) + bias,
 * frozen, as f32 views into the model. */
typedef struct kvf__masked_lm {
    float *dense, *dense_bias; /* [E out, C in], [E] */
    float *gamma, *beta;       /* [E] of the LayerNorm, whose eps is the description's */
    float *bias;               /* [V] */
    kvf__act_fn act;
} kvf__masked_lm;
/* NULL: the file has none, or only parts of one, or its decoder is not the embedding. */
const kvf__masked_lm *kvf__model_masked_lm(const kvf__model *model);
/* The adapters that options asked for, zero at first; NULL: none. They have gradients if the model
 * was made for backward passes. */
kvf__adapters *kvf__model_adapters(kvf__model *model);

/* to (may be from) = from with its keys rotated as if its first virtual token stood at position
 * `first`; back: with that rotation undone. On bases without rope a copy. */
kvf_status kvf__model_rotate_prefix(kvf_ctx *ctx, kvf__model *model, kvf__prefix *to,
                                    const kvf__prefix *from, int64_t first, bool back);
/* Keys that were rotated for positions from, from + 1, ... (which may be below 0) become those of
 * to, to + 1, ...; under every scaling, whose factor stays on them. Without rope nothing happens.
 */
void kvf__rope_move(const kvf__desc *desc, kvf__prefix *prefix, int64_t from, int64_t to);
/* Of one key [D] of layer l. */
void kvf__rope_move_key(const kvf__desc *desc, int64_t l, float *k, int64_t from, int64_t to);

/* The raw key and value projections of every layer, with tables for P positions; slots: those the
 * model was made of. */
kvf_status kvf__model_kv_projections(kvf_ctx *ctx, kvf__model *model, const kvf__slots *slots,
                                     int64_t P, kvf__kv_projections *out);

#endif
