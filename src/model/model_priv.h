/* Inside src/model and src/pass: the packed model that create.c builds and the pass reads.
 *
 * In pre-norm blocks norm weights are folded: gamma into the rows of the following weight, beta
 * into its bias, so a norm's output is xhat alone, forward and backward (norms and weights are
 * frozen). In post-norm blocks the output is the residual stream itself, so there they are kept,
 * as they are everywhere in the unfolded form, which training needs (masters.c).
 * The feed-forward width is cut into planes of at most KVF__PLANE columns, the vocabulary into
 * planes of exactly KVF__VOCAB_PLANE, because oneDNN slows down beyond that (docs/architecture.md,
 * Computing); products over planes add up with KVF__MM_ADD. */
#ifndef KVF_MODEL_PRIV_H
#define KVF_MODEL_PRIV_H

#include "attention.h"
#include "packed_model.h"
#include "slot.h"

#define KVF__PLANE       1536
#define KVF__VOCAB_PLANE 1536
#define KVF__MAX_PLANES  (KVF__MOST_FFN / KVF__PLANE)

/* A packed weight [k, n] with its bias, and without it transposed [n, k], for the gradient of its
 * input; NULL: not there. */
typedef struct kvf__packed_pair {
    kvf__packed *fwd, *bwd;
} kvf__packed_pair;

/* The products of a layer (products.h). */
typedef struct kvf__layer_weights {
    kvf__packed_pair qkv, out;               /* [C, (H + 2G) D], columns q | k | v; [H D, C] */
    kvf__packed_pair kv;                     /* cross-attention: [C, 2G D] of the encoder's states,
                                                and qkv is q alone */
    kvf__packed_pair up[KVF__MAX_PLANES];    /* [C, plane width] (gpt2: c_fc) */
    kvf__packed_pair gate[KVF__MAX_PLANES];  /* the same; NULL unless gated */
    kvf__packed_pair down[KVF__MAX_PLANES];  /* [plane width, C]; the bias is in plane 0 */
    kvf__packed_pair input_gate, input_down; /* [C, I], [I, C]; NULL unless layers have inputs */
} kvf__layer_weights;

typedef struct kvf__layer {
    kvf__layer_weights
        *w; /* viewed; one for all layers of a place that are packed just before use */
    float *gamma1, *beta1, *gamma2, *beta2; /* [C] of norm 1, 2; NULL where they are folded */
    float *out_gamma[2]; /* [C] of the norms of what the halves give; NULL: there are none */
    float *head_gamma;   /* [H + G, D] of the norms of queries and keys, with those of values [H +
                            2G, D]; NULL: there are none */
    float *input_gamma;  /* [C] of the norm of what the half of the layer's input gives; NULL */
    float *scale;        /* [1] of the stream that the layer leaves; NULL: 1 */
} kvf__layer;

/* What shared packed memory holds: the number of a layer, or of a plane; -1: of none. */
typedef struct kvf__packed_at {
    int64_t forward, backward;
} kvf__packed_at;

typedef struct kvf__stored kvf__stored;

/* What of the model is trained, if anything (port `block`). */
typedef struct kvf__model_train {
    struct kvf__masters *masters; /* f32 weights; NULL: none */
    kvf__adapters *adapters;      /* owned; NULL: none */
    kvf__params params;           /* the list of both: adapters, then masters */
    bool weights;                 /* not norms alone */
    struct kvf__creation *again;  /* how it was packed, to be packed again; NULL: never is */
} kvf__model_train;

/* Layers that are packed just before use (pack_on_demand.c), into memory that they share. */
typedef struct kvf__model_store {
    bool late;                                      /* they are */
    struct kvf__stored *from;                       /* what they are packed from */
    kvf__packed_at layer_at[KVF__PLACES], plane_at; /* what is packed there now */
} kvf__model_store;

/* The language-model head: planes of KVF__VOCAB_PLANE columns; columns >= V are padding: zero
 * weights. The final gamma is folded in, its beta in the bias, unless they are here. */
typedef struct kvf__model_head {
    int64_t n;                /* planes; 0: the base has no such head */
    kvf__packed_pair *planes; /* [n], or one that all share; [C, KVF__VOCAB_PLANE] */
    kvf__slot slot;           /* lm_head [V, C] (the embedding where tied) as it is packed: target
                               rows for the loss gradient */
    kvf__slot file;           /* the same as the file has it */
    float *gamma, *beta; /* [C] of the final norm; NULL: none (then the last block's norm is the
                            final one), no beta */
} kvf__model_head;

/* What a stack does with embeddings of its tokens. */
typedef struct kvf__embed_stack {
    kvf__slot positions; /* learned table [rows, E]; view.data NULL for rope */
    float *gamma, *beta; /* [E] of the norm on embeddings; NULL: none */
} kvf__embed_stack;

/* What a token begins as, read from the file row by row. */
typedef struct kvf__model_embed {
    kvf__slot tokens;          /* [V, E] */
    kvf__embed_stack stack[2]; /* of the first stack, and of the decoder behind it */
    kvf__slot types;           /* [types, E]; view.data NULL: none */
    float *out, *out_bias; /* [C, E], [C] of the dense layer behind it; NULL: none, and E is C */
    kvf__read_fn *read;    /* how a pass reads rows of such tables; NULL: in place */
    void *user;
} kvf__model_embed;

/* What distances add to the scores of all layers, made of weights that are frozen (relative.c). */
typedef struct kvf__relative_terms {
    kvf__attn_relative *layer; /* [L]; NULL: the base has none */
    void *memory;              /* of all below */
    float *values;             /* [L, 2, buckets, H * D]; T5: [2, buckets, H] */
    int32_t *bucket;           /* [2 position.max - 1]; T5: [2, 2 farthest + 1] */
} kvf__relative_terms;
kvf_status kvf__relative_create(kvf_ctx *ctx, const kvf__desc *desc, const kvf__slots *slots,
                                kvf__relative_terms *out);
kvf_status kvf__relative_bias_create(kvf_ctx *ctx, const kvf__desc *desc, const kvf__slots *slots,
                                     kvf__relative_terms *out);

/* What each layer reads of a token besides the stream, [L, I] (pass_inputs.c). */
typedef struct kvf__model_inputs {
    kvf__slot tokens;  /* [V, L I], read row by row; view.data NULL: there are no such inputs */
    float *projection; /* [L I, C] */
    float *gamma;      /* [I] */
} kvf__model_inputs;

/* [rows, R/2]; NULL for learned positions. The first 8192 rows at creation, see rope.c. */
typedef struct kvf__rope_table {
    float *cos, *sin;
    int64_t rows;
} kvf__rope_table;

struct kvf__model {
    kvf__desc desc;
    kvf__dtype act;
    bool int8; /* products.h: kvf__product_type */
    bool backward;
    bool unfolded; /* norms apply their weights themselves, in every place */
    kvf__mm *mm;   /* owned */
    const kvf__kernels *kernels;
    int64_t row_step;   /* batches of many rows are padded to a multiple of it */
    void *memory;       /* of layers, weights, planes and every vector */
    kvf__layer *layers; /* [L] */
    kvf__layer_weights
        *weights; /* of the layers: [L], or [KVF__PLACES] that those of a place share */
    kvf__model_embed embed;
    kvf__model_inputs inputs;
    kvf__rope_table rope, local_rope; /* local_rope: of local layers; NULL: that of all */
    kvf__relative_terms relative;
    kvf__model_head lm;
    float *pooler, *pooler_bias; /* [C, C], [C] or NULL */
    kvf__masked_lm masked_lm;    /* whole or zero */
    kvf__model_train train;
    kvf__model_store store;
    size_t packed_bytes;
};

/* g [n] = act(h1), or act(h1) h2 where there is an h2 [n]: what a half's down product reads. h1 and
 * h2 become the factors that the backward pass needs. */
static inline void kvf__model_activate(const kvf__model *model, kvf__dtype type, void *h1, void *h2,
                                       void *g, int64_t n)
{
    if (h2)
        model->kernels->glu_fwd(type, model->desc.block.act, h1, h2, g, n);
    else
        model->kernels->act_fwd(type, model->desc.block.act, h1, g, n);
}

/* Trained weights (masters.c): f32 values in the shape of Hugging Face with their gradients, and
 * the slots that view them in place of the file's. */
typedef struct kvf__masters kvf__masters;
kvf_status kvf__masters_create(kvf_ctx *ctx, const kvf__desc *desc, const kvf__slots *slots,
                               const kvf__train *train, bool backward, kvf__masters **out);
void kvf__masters_free(kvf__masters *masters);
const kvf__slots *kvf__masters_slots(const kvf__masters *masters);
/* The gradient of a weight (arch.h's kvf__role; KVF__W_ROLES is none); NULL: it is not trained, or
 * there is none. */
float *kvf__masters_grad(const kvf__masters *masters, int role, int64_t layer);
kvf__params *kvf__masters_params(kvf__masters *masters);

/* Row i of a table of which a pass needs rows here and there, in f32. */
static inline void kvf__table_row(const kvf__model *model, const kvf__slot *table, int64_t row,
                                  float *out)
{
    kvf__slot_table_row(table, row, model->embed.read, model->embed.user, out);
}

/* What a token begins as: its row of the embedding, times the model's factor. */
void kvf__embed_row(const kvf__model *model, int64_t id, float *out);
/* The tables by which a layer rotates. */
const kvf__rope_table *kvf__rope_of(const kvf__model *model, int64_t layer);
/* Extends the cos/sin tables to `rows` positions (at most max_positions); f32 arithmetic as
 * transformers. */
kvf_status kvf__rope_tables(kvf_ctx *ctx, kvf__model *model, int64_t rows);
/* The same to the last of n positions, and some more. */
kvf_status kvf__rope_extend(kvf_ctx *ctx, kvf__model *model, const int32_t *position, int64_t n);

/* Before a pass uses packed weights of a unit (products.h: a layer, or a plane of the head): packs
 * them, if the model does so just before use (pack_on_demand.c). */
enum { KVF__PACK_FORWARD = 1, KVF__PACK_BACKWARD = 2 };
kvf_status kvf__model_ensure_packed(kvf_ctx *ctx, kvf__model *model, int64_t unit,
                                    unsigned directions);

static inline size_t kvf__act_size(kvf__dtype act)
{
    return act == KVF__BF16 ? 2 : 4;
}

/* Row `row` of a dense matrix of the act type. */
static inline void *kvf__act_row(kvf__dtype act, void *base, int64_t row, int64_t width)
{
    return (char *)base + (size_t)(row * width) * kvf__act_size(act);
}

#endif
