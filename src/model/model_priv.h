/* Private to src/model and src/pass: the packed model built by create.c and read by the pass.
 *
 * In pre-norm blocks norm weights are folded: gamma into the rows of the following weight, beta
 * into its bias. A norm's output is then xhat alone, forward and backward (norms and weights are
 * frozen). In post-norm blocks the output is the residual stream itself, so norms are kept; in the
 * unfolded form, which training needs (masters.c), all are kept. The feed-forward width is cut into
 * planes of at most KVF__PLANE columns, the vocabulary into planes of exactly KVF__VOCAB_PLANE,
 * because oneDNN slows down beyond that (docs/architecture.md, Computing). Products over planes are
 * added up with KVF__MM_ADD. */
#ifndef KVF_MODEL_PRIV_H
#define KVF_MODEL_PRIV_H

#include "attention.h"
#include "packed_model.h"
#include "slot.h"

#define KVF__PLANE       1536
#define KVF__VOCAB_PLANE 1536
#define KVF__MAX_PLANES  (KVF__MOST_FFN / KVF__PLANE)

/* A packed weight [k, n] with its bias, and its transpose [n, k] without bias, for the gradient of
 * its input; NULL: absent. */
typedef struct kvf__packed_pair {
    kvf__packed *fwd, *bwd;
} kvf__packed_pair;

/* The products of a layer (products.h). */
typedef struct kvf__layer_weights {
    kvf__packed_pair qkv, out; /* [C, (H + 2G) D], columns q | k | v; [H D, C] */
    /* cross-attention: [C, 2G D] of the encoder's states; qkv is then q alone */
    kvf__packed_pair kv;
    kvf__packed_pair up[KVF__MAX_PLANES];    /* [C, plane width] (gpt2: c_fc) */
    kvf__packed_pair gate[KVF__MAX_PLANES];  /* [C, plane width]; NULL unless gated */
    kvf__packed_pair down[KVF__MAX_PLANES];  /* [plane width, C]; the bias is in plane 0 */
    kvf__packed_pair input_gate, input_down; /* [C, I], [I, C]; NULL unless layers have inputs */
} kvf__layer_weights;

typedef struct kvf__layer {
    kvf__layer_weights *w; /* borrowed; shared by all layers of a place that are packed on demand */
    float *gamma1, *beta1, *gamma2, *beta2; /* [C] of norm 1, 2; NULL if folded */
    float *folded_gamma, *folded_beta; /* [C] of norm 2 if folded into the product after it; NULL:
                                          none */
    float *out_gamma[2];               /* [C] norms of the halves' outputs; NULL: none */
    float *head_gamma;  /* [H + G, D] norms of queries and keys, with those of values [H + 2G, D];
                           NULL: none */
    float *input_gamma; /* [C] norm of the input half's output; NULL: none */
    struct {            /* mixer of a layer without attention (desc.h) */
        float *conv;    /* [kernel, channels] */
        /* delta rule: [value_heads] bias of the decay's softplus and its rate, -exp(A_log);
         * [value_dim] norm of a head's output */
        float *step, *rate, *gamma;
    } mixer;
    float *scale; /* [1] factor on the stream after the layer; NULL: 1 */
} kvf__layer;

/* Current contents of shared packed memory: number of a layer or plane; -1: none. */
typedef struct kvf__packed_at {
    int64_t forward, backward;
} kvf__packed_at;

typedef struct kvf__stored kvf__stored;

/* Trained parts of the model (port `block`). */
typedef struct kvf__model_train {
    struct kvf__masters *masters; /* f32 weights; NULL: none */
    kvf__adapters *adapters;      /* owned; NULL: none */
    kvf__params params;           /* parameters of both: adapters, then masters */
    bool weights;                 /* weights are trained, not only norms */
    struct kvf__creation *again;  /* state for packing again; NULL: never needed */
} kvf__model_train;

/* Layers that are packed on demand (pack_on_demand.c), in shared memory. */
typedef struct kvf__model_store {
    bool late;                                      /* layers are packed on demand */
    struct kvf__stored *from;                       /* source of packing */
    kvf__packed_at layer_at[KVF__PLACES], plane_at; /* current contents */
} kvf__model_store;

/* The language-model head: planes of KVF__VOCAB_PLANE columns, where columns >= V are padding with
 * zero weights. The final norm's gamma is folded in and its beta into the bias, unless they are
 * stored here. */
typedef struct kvf__model_head {
    int64_t n;                /* number of planes; 0: the base has no such head */
    kvf__packed_pair *planes; /* [n], or one shared by all; [C, KVF__VOCAB_PLANE] */
    kvf__slot slot; /* lm_head [V, C] (the embedding if tied) as packed: target rows for the loss
                       gradient */
    kvf__slot file; /* lm_head as in the file */
    float *gamma, *beta; /* [C] of the final norm, without beta; NULL: none (the last block's norm
                            is then the final one) */
} kvf__model_head;

/* Processing of token embeddings in a stack. */
typedef struct kvf__embed_stack {
    kvf__slot positions; /* learned table [rows, E]; view.data NULL for rope */
    float *gamma, *beta; /* [E] norm on embeddings; NULL: none */
} kvf__embed_stack;

/* Embeddings of tokens, read from the file row by row. */
typedef struct kvf__model_embed {
    kvf__slot tokens;          /* [V, E] */
    kvf__embed_stack stack[2]; /* the first stack, and the decoder after it */
    kvf__slot types;           /* [types, E]; view.data NULL: none */
    float *out, *out_bias; /* [C, E], [C] dense layer after the embeddings; NULL: none, E is C */
    kvf__read_fn *read;    /* reads rows of such tables; NULL: in place */
    void *user;
} kvf__model_embed;

/* Relative terms of the scores of all layers, computed from frozen weights (relative.c). */
typedef struct kvf__relative_terms {
    kvf__attn_relative *layer; /* [L]; NULL: none */
    void *memory;              /* memory of the arrays below */
    float *values;             /* [L, 2, buckets, H * D]; T5: [2, buckets, H] */
    int32_t *bucket;           /* [2 position.max - 1]; T5: [2, 2 farthest + 1] */
} kvf__relative_terms;
kvf_status kvf__relative_create(kvf_ctx *ctx, const kvf__desc *desc, const kvf__slots *slots,
                                kvf__relative_terms *out);
kvf_status kvf__relative_bias_create(kvf_ctx *ctx, const kvf__desc *desc, const kvf__slots *slots,
                                     kvf__relative_terms *out);

/* Inputs of layers besides the stream, [L, I] per token (pass_inputs.c). */
typedef struct kvf__model_inputs {
    kvf__slot tokens;  /* [V, L I], read row by row; view.data NULL: no such inputs */
    float *projection; /* [L I, C] */
    float *gamma;      /* [I] */
} kvf__model_inputs;

/* [rows, R/2]; NULL for learned positions. 8192 rows at creation, see rope_tables.c. */
typedef struct kvf__rope_table {
    float *cos, *sin;
    int64_t rows;
} kvf__rope_table;

struct kvf__model {
    kvf__desc desc;
    kvf__dtype act;
    bool int8; /* products.h: kvf__product_type */
    bool backward;
    bool unfolded; /* norms apply their weights themselves everywhere */
    kvf__mm *mm;   /* owned */
    const kvf__kernels *kernels;
    int64_t row_step;   /* row counts of large batches are padded to a multiple of it */
    void *memory;       /* memory of layers, weights, planes and vectors */
    kvf__layer *layers; /* [L] */
    /* weights of the layers: [L], or [KVF__PLACES] shared by those of a place */
    kvf__layer_weights *weights;
    kvf__model_embed embed;
    kvf__model_inputs inputs;
    kvf__rope_table rope, local_rope; /* local_rope: of local layers; NULL: that of all layers */
    kvf__relative_terms relative;
    kvf__model_head lm;
    float *pooler, *pooler_bias; /* [C, C], [C] or NULL */
    kvf__masked_lm masked_lm;    /* complete or zero */
    kvf__model_train train;
    kvf__model_store store;
    size_t packed_bytes;
};

/* Computes g [n] = act(h1), or act(h1) h2 with an h2 [n], the input of a half's down product. h1
 * and h2 become the factors that the backward pass needs. */
static inline void kvf__model_activate(const kvf__model *model, kvf__dtype type, void *h1, void *h2,
                                       void *g, int64_t n)
{
    if (h2)
        model->kernels->glu_fwd(type, model->desc.block.act, h1, h2, g, n);
    else
        model->kernels->act_fwd(type, model->desc.block.act, h1, g, n);
}

/* Trained weights (masters.c): f32 values in the shape of Hugging Face with gradients, and slots
 * that view them instead of the file's. */
typedef struct kvf__masters kvf__masters;
kvf_status kvf__masters_create(kvf_ctx *ctx, const kvf__desc *desc, const kvf__slots *slots,
                               const kvf__train *train, bool backward, kvf__masters **out);
void kvf__masters_free(kvf__masters *masters);
const kvf__slots *kvf__masters_slots(const kvf__masters *masters);
/* Returns the gradient of a weight (arch.h's kvf__role; KVF__W_ROLES is none); NULL: not trained,
 * or absent. */
float *kvf__masters_grad(const kvf__masters *masters, int role, int64_t layer);
kvf__params *kvf__masters_params(kvf__masters *masters);

/* Reads row i of a table with scattered access, in f32. */
static inline void kvf__table_row(const kvf__model *model, const kvf__slot *table, int64_t row,
                                  float *out)
{
    kvf__slot_table_row(table, row, model->embed.read, model->embed.user, out);
}

/* Computes the embedding of a token, times the model's factor. */
void kvf__embed_row(const kvf__model *model, int64_t id, float *out);
/* Returns the rope tables of a layer. */
const kvf__rope_table *kvf__rope_of(const kvf__model *model, int64_t layer);
/* Extends the cos/sin tables to `rows` positions (at most max_positions); f32 arithmetic as in
 * transformers. */
kvf_status kvf__rope_tables(kvf_ctx *ctx, kvf__model *model, int64_t rows);
/* Extends them to the last of n positions, with some reserve. */
kvf_status kvf__rope_extend(kvf_ctx *ctx, kvf__model *model, const int32_t *position, int64_t n);

/* Packs a unit's weights (products.h: a layer, or a plane of the head) before a pass uses them, if
 * the model packs on demand (pack_on_demand.c). */
enum { KVF__PACK_FORWARD = 1, KVF__PACK_BACKWARD = 2 };
kvf_status kvf__model_ensure_packed(kvf_ctx *ctx, kvf__model *model, int64_t unit,
                                    unsigned directions);

static inline size_t kvf__act_size(kvf__dtype act)
{
    return act == KVF__BF16 ? 2 : 4;
}

/* Returns row `row` of a dense matrix of the activation type. */
static inline void *kvf__act_row(kvf__dtype act, void *base, int64_t row, int64_t width)
{
    return (char *)base + (size_t)(row * width) * kvf__act_size(act);
}

#endif
