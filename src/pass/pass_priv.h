/* Private to src/pass: one pass over a packed batch, its arena, and the values that layers keep for
 * the backward pass.
 *
 * A batch is M rows: the tokens, then zero rows up to a count that suits oneDNN
 * (docs/architecture.md, Computing). The residual stream and its gradient are f32, everything kept
 * per layer is of the activation type. kvf__pass_create carves all memory from one arena; a pass
 * does not allocate. */
#ifndef KVF_PASS_PRIV_H
#define KVF_PASS_PRIV_H

#include "arena.h"
#include "head_lm.h"
#include "pass.h"
#include "pass_adapters.h"
#include "pass_dropout.h"
#include "pass_inputs.h"
#include "pass_keys.h"
#include "pass_mixer.h"
#include "pass_neurons.h"
#include "pass_rows.h"
#include "pass_sections.h"
#include "pass_shared_kv.h"
#include "pass_source.h"
#include "pass_times.h"

#include <string.h>

/* Values that one layer keeps for its backward pass. Without backward, or with recomputation, all
 * layers share one set. */
typedef struct kvf__kept {
    void *xhat1; /* [M, C] input of qkv; post-norm or unfolded: xhat of norm 1 (post-norm: labelled
                    rows only in the last layer) */
    void *qkv;   /* [M, (H+2G)D], q and k rotated */
    void *kv;    /* [Sx, 2GD] from the encoder's states, for cross-attention (then qkv is [M, HD]);
                    NULL: none */
    void *att;   /* [M, HD] output of attention */
    void *xhat2; /* [M, C] input of the feed-forward part (post-norm or unfolded: xhat of norm 2);
                    last layer: labelled rows only */
    void *in1, *in2; /* [M, C] inputs of the halves' products if not xhat; one array for all layers
                        unless weights are trained. Post-norm: only then. in2 is separate for
                        neurons too */
    kvf__neurons_kept neurons;
    void *g; /* planes [M, width] back to back, input of down; NULL unless weights are trained */
    void *fac1, *fac2; /* planes [M, width] back to back: fn'(h), or the two factors of glu_fwd */
    float *rstd1, *rstd2; /* [M] */
    void *out_xhat[2];    /* [M, C] xhat of the norms of halves' outputs (last layer: labelled rows
                             only), with rstd [M]; NULL: none */
    float *out_rstd[2];
    float *lse;     /* [H, M] */
    void *qk_xhat;  /* [M, H + G, D] xhat of the norms of queries and keys; NULL: none, or no
                       backward pass */
    float *qk_rstd; /* [M, H + G] */
    kvf__bottleneck_kept adapt[KVF__HALVES]; /* last layer: labelled rows only */
    void *input_fac1, *input_fac2; /* [M, I] glu_fwd factors of the input half (last layer: labelled
                                      rows only); NULL: none */
    void *input_xhat;              /* [M, C] xhat of the norm of its output */
    float *input_rstd;             /* [M] */
} kvf__kept;

/* Working memory of the forward pass; Mx = padded limits.tokens, Lx = padded limits.labels, Rx =
 * the larger. */
typedef struct kvf__pass_forward {
    int32_t *position; /* [Mx] */
    float *scratch;    /* [threads, the larger of C and E] */
    float *embedded; /* [Mx, E] input of the dense layer after the embeddings; x if there is none */
    float *x, *x_lab; /* [Mx, C], [Lx, C] residual stream, and of labelled rows */
    void *x_act;  /* [Rx, C] copy of the stream for products; NULL if they read a norm's output */
    float *half;  /* [Rx, C] output of a half, if more than adding it is necessary; else NULL */
    void *normed; /* [Rx, C] shared in1 and in2 of all layers; NULL: separate, or none */
    float *normed_f;     /* [Rx, C] the same before rounding; NULL for f32, or folded */
    float *hidden;       /* [Lx, C] final states; NULL for post-norm: x_lab */
    void *att_lab;       /* [Lx, HD] */
    void *g;             /* [Rx, widest plane] output of the activation */
    const void *qkv_src; /* [M, C] input of the last layer's qkv product */
} kvf__pass_forward;

typedef struct kvf__pass_backward {
    float *dx, *dx_lab;        /* [Mx, C], [Lx, C] */
    float *dembedded;          /* [Mx, E] gradient of fwd.embedded; dx if that is x */
    void *dx_act, *dx_lab_act; /* in the activation type; the same memory for f32 */
    void *dxhat;               /* [Rx, C] */
    float *dhalf;              /* [Rx, C] gradient of fwd.half; NULL: none */
    void *dhalf_act;           /* in the activation type; the same memory for f32 */
    void *da, *dg, *du;        /* [Rx, widest plane] */
    void *datt, *datt_lab;     /* [Mx, HD], [Lx, HD] */
    void *dqkv;                /* [Mx, (H+2G)D] */
} kvf__pass_backward;

/* Memory for trained weights. */
typedef struct kvf__pass_trained {
    float *wide_x,
        *wide_dy;      /* [Rx, widest product] f32 factors of a weight's gradient; NULL for f32 */
    void *embed_xhat;  /* [Mx, E] xhat of the norm on embeddings; NULL unless it is trained */
    float *embed_rstd; /* [Mx] */
} kvf__pass_trained;

/* Recomputation of layers for the backward pass. */
typedef struct kvf__pass_again {
    int64_t rows; /* Mx */
    /* [L, Mx, C] residual stream at the input of each layer; NULL: no recomputation */
    float *entered;
    int64_t computed; /* layer of the shared kept values: the one that ran last */
    bool now;         /* a layer is being recomputed */
} kvf__pass_again;

typedef enum kvf__pass_state { KVF__PASS_EMPTY, KVF__PASS_FWD, KVF__PASS_LOSS } kvf__pass_state;

struct kvf__pass {
    kvf__model *model;
    kvf__pass_limits limits;
    int threads;
    kvf__arena arena; /* memory of all parts */
    kvf__pass_times times;

    kvf__kept *kept; /* [L] */
    kvf__pass_forward fwd;
    kvf__pass_backward bwd;
    kvf__pass_keys keys;
    kvf__pass_head head;
    kvf__pass_sections sections;
    kvf__pass_rows own;
    kvf__pass_dropout drop;
    kvf__pass_adapters adapt;
    kvf__pass_neurons neurons;
    kvf__pass_trained weights;
    kvf__pass_again again;
    kvf__pass_inputs inputs;
    kvf__pass_shared shared;
    kvf__pass_source source;
    kvf__pass_mixer mixer;

    /* batch of the last fwd, borrowed */
    kvf__pass_state state;
    const kvf__batch *batch;
    const kvf__prefix *prefix; /* NULL if P = 0, or with sections */
    kvf__cache *cache;
    const int32_t *slot;
    kvf__entry entry;
    int64_t M, ML;          /* padded rows, padded labelled rows */
    int64_t position_start; /* position_start of the input */
};

/* Lays out the parts in an arena for batches at the pass's limits. ENOMEM. */
kvf_status kvf__pass_alloc(kvf_ctx *ctx, kvf__pass *pass);
/* Packs weights of layer l, if necessary, for the next directions (KVF__PACK_...). */
kvf_status kvf__pass_ensure_packed(kvf_ctx *ctx, kvf__pass *pass, int64_t l, unsigned directions);
/* Multiplies queries, or their gradients, by the factor of their positions (Ministral 3). */
void kvf__pass_scale_queries(const kvf__pass *pass, int64_t l, void *qkv);
/* Recomputes kept[l] of the last forward pass, if layers share it. */
kvf_status kvf__pass_recompute(kvf_ctx *ctx, kvf__pass *pass, int64_t l);

/* Computes x [M, C] = token embedding (+ type, learned position, norm, dense layer); rows >=
 * n_tokens are padding. Fills position and x_act too. */
kvf_status kvf__embed_fwd(kvf_ctx *ctx, kvf__pass *pass);
/* Fills position only. */
void kvf__embed_place(kvf__pass *pass);
/* Adds the gradient of layer 0's input (dx, and with post-norm dxhat) to the vectors of sections
 * that want it. With block, adds it to trained embeddings too. The sum runs token by token, in
 * batch order. Overwrites dx and x. */
kvf_status kvf__embed_bwd(kvf_ctx *ctx, kvf__pass *pass, bool block);
/* Computes x [E] = the embedding of a token (id below 0: the vector in x), plus rows of the tables
 * of types and of a stack's positions, if any. */
void kvf__embed_sum(const kvf__model *model, const kvf__embed_stack *stack, int64_t id,
                    int64_t type, int64_t position, float *x, float *scratch);
/* ESHAPE: an id outside the vocabulary, or a position past the model's. */
kvf_status kvf__embed_check(kvf_ctx *ctx, const kvf__pass *pass, const kvf__input *input);

struct kvf__cache {
    const kvf__desc *desc; /* description of the model, which outlives the cache */
    kvf__kv_shape shape;   /* heads borrowed from the model */
    int64_t slots, capacity;
    int64_t states; /* floats of the states of mixers */
    kvf__dtype act;
    /* [slots] of states in f32, then [L, 2, G, room, D]; NULL for a slot without room */
    void **data;
    int64_t *reserved; /* [slots] room of each slot in tokens */
    int64_t *length;   /* [slots] */
    int64_t *source; /* [slots] source tokens, for layers of the encoder and of cross-attention; 0:
                        none yet */
};

/* Appends keys and values of layer l of every row of the batch; lengths are unchanged. */
void kvf__cache_append(kvf__cache *cache, int64_t l, const kvf__batch *batch, const int32_t *slot,
                       const void *qkv, int64_t H);
/* Adds the appended tokens to the lengths, after the last layer. */
void kvf__cache_advance(kvf__cache *cache, const kvf__batch *batch, const int32_t *slot);
/* Returns the address of keys (kv = 0) or values (1) of a layer and slot: [G, room of the slot,
 * D]. */
void *kvf__cache_at(const kvf__cache *cache, int64_t l, int64_t slot, int kv);
/* Returns the states of all mixers after a slot's tokens. */
float *kvf__cache_state(const kvf__cache *cache, int64_t slot);
/* Returns them as a segment for attention. */
struct kvf__kvseg kvf__cache_segment(const kvf__cache *cache, int64_t l, int64_t slot);

/* Zeroes the rows of padding of a matrix [M, width] of the activation type. */
static inline void kvf__pass_clear_padding(const kvf__pass *pass, void *rows, int64_t width)
{
    const kvf__dtype act = pass->model->act;
    const int64_t N = pass->batch->n_tokens;

    memset(kvf__act_row(act, rows, N, width), 0,
           (size_t)((pass->M - N) * width) * kvf__act_size(act));
}

static inline int64_t kvf__most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Returns the rows of layer l's second half without padding. */
static inline int64_t kvf__pass_real(const kvf__pass *pass, int64_t l)
{
    return l == pass->model->desc.L - 1 ? pass->batch->n_labels : pass->batch->n_tokens;
}

static inline int64_t kvf__row_slot(const int32_t *slot, int64_t row)
{
    return slot ? slot[row] : row;
}

static inline float kvf__pass_label_scale(const kvf__pass *pass, float scale, int64_t label)
{
    return pass->sections.given ? scale * pass->sections.label_scale[label] : scale;
}

#endif
