/* Inside src/pass: one pass over a packed batch, its arena and what a layer keeps for the backward
 * pass.
 *
 * A batch is M rows, the tokens back to back and then rows of zeros up to a count that oneDNN runs
 * well (docs/architecture.md, Computing). The residual stream and its gradient are f32, everything
 * stored per layer is of the act type. All memory is carved from one arena by kvf__pass_create; a
 * pass allocates nothing. */
#ifndef KVF_PASS_PRIV_H
#define KVF_PASS_PRIV_H

#include "arena.h"
#include "head_lm.h"
#include "pass.h"
#include "pass_adapters.h"
#include "pass_dropout.h"
#include "pass_inputs.h"
#include "pass_keys.h"
#include "pass_rows.h"
#include "pass_sections.h"
#include "pass_shared_kv.h"
#include "pass_source.h"
#include "pass_times.h"

/* What one layer leaves for its backward pass. Without backward, or when layers are recomputed, all
 * layers share one set. */
typedef struct kvf__kept {
    void *xhat1; /* [M, C] input of qkv; post-norm or unfolded: of norm 1's weights (post-norm:
                    labelled rows only in the last layer) */
    void *qkv;   /* [M, (H+2G)D], q and k rotated */
    void *kv;    /* [Sx, 2GD] of the encoder's states, for cross-attention (then qkv is [M, HD]);
                    NULL: the layer has none */
    void *att;   /* [M, HD] output of attention */
    void *xhat2; /* [M, C] input of the feed-forward part (post-norm or unfolded: of norm 2's
                    weights); last layer: labelled rows only */
    void *in1, *in2;   /* [M, C] what the products of the halves read where that is not xhat; one
                          array for all layers unless weights are trained. Post-norm: in1 only then */
    void *g;           /* planes [M, width] back to back, input of down; NULL unless weights are
                          trained */
    void *fac1, *fac2; /* planes [M, width] back to back: fn'(h), or the two factors of glu_fwd */
    float *rstd1, *rstd2; /* [M] */
    void *out_xhat[2];    /* [M, C] of the norms of what the halves give (last layer: labelled rows
                             only), with rstd [M]; NULL: there are none */
    float *out_rstd[2];
    float *lse;     /* [H, M] */
    void *qk_xhat;  /* [M, H + G, D] of the norms of queries and keys; NULL: there are none, or
                       no backward pass */
    float *qk_rstd; /* [M, H + G] */
    kvf__bottleneck_kept adapt[KVF__HALVES]; /* last layer: labelled rows only */
    void *input_fac1, *input_fac2; /* [M, I] the factors of glu_fwd of the half that reads the
                                      layer's input (last layer: labelled rows only); NULL */
    void *input_xhat;              /* [M, C] of the norm of what that gives */
    float *input_rstd;             /* [M] */
} kvf__kept;

/* What the forward pass works on; Mx = padded limits.tokens, Lx = padded limits.labels, Rx = the
 * larger. */
typedef struct kvf__pass_forward {
    int32_t *position;   /* [Mx] */
    float *scratch;      /* [threads, the larger of C and E] */
    float *embedded;     /* [Mx, E] what the dense layer behind the embeddings reads; x where there
                            is none */
    float *x, *x_lab;    /* [Mx, C], [Lx, C] residual stream; of labelled rows */
    void *x_act;         /* [Rx, C] copy of the stream that products read; NULL where they read
                            what a norm gives */
    float *half;         /* [Rx, C] what a half gives, where more than adding it is to be done;
                            else NULL */
    void *normed;        /* [Rx, C] in1 and in2 of all layers; NULL: they have their own, or none */
    float *normed_f;     /* [Rx, C] the same before rounding; NULL in f32, or folded */
    float *hidden;       /* [Lx, C] final states; NULL if post-norm: x_lab is that */
    void *att_lab;       /* [Lx, HD] */
    void *g;             /* [Rx, widest plane] output of the activation */
    const void *qkv_src; /* [M, C] what the last layer's qkv product read */
} kvf__pass_forward;

typedef struct kvf__pass_backward {
    float *dx, *dx_lab;        /* [Mx, C], [Lx, C] */
    float *dembedded;          /* [Mx, E] the gradient of fwd.embedded; dx where that is x */
    void *dx_act, *dx_lab_act; /* the same in the act type; the same memory where that is f32 */
    void *dxhat;               /* [Rx, C] */
    float *dhalf;              /* [Rx, C] gradient of fwd.half; NULL where there is none */
    void *dhalf_act;           /* the same in the act type; the same memory where that is f32 */
    void *da, *dg, *du;        /* [Rx, widest plane] */
    void *datt, *datt_lab;     /* [Mx, HD], [Lx, HD] */
    void *dqkv;                /* [Mx, (H+2G)D] */
} kvf__pass_backward;

/* Where weights are trained. */
typedef struct kvf__pass_trained {
    float *wide_x,
        *wide_dy;      /* [Rx, widest product] f32 factors of a weight's gradient; NULL in f32 */
    void *embed_xhat;  /* [Mx, E] of the norm on embeddings; NULL unless it is trained */
    float *embed_rstd; /* [Mx] */
} kvf__pass_trained;

/* Layers that are computed again for the backward pass. */
typedef struct kvf__pass_again {
    int64_t rows;     /* Mx */
    float *entered;   /* [L, Mx, C] residual stream that enters each layer; NULL: none is */
    int64_t computed; /* the layer that ran last: whose kept the others share */
    bool now;         /* a layer is being recomputed */
} kvf__pass_again;

typedef enum kvf__pass_state { KVF__PASS_EMPTY, KVF__PASS_FWD, KVF__PASS_LOSS } kvf__pass_state;

struct kvf__pass {
    kvf__model *model;
    kvf__pass_limits limits;
    int threads;
    kvf__arena arena; /* all memory of the parts */
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
    kvf__pass_trained weights;
    kvf__pass_again again;
    kvf__pass_inputs inputs;
    kvf__pass_shared shared;
    kvf__pass_source source;

    /* the batch of the last fwd, viewed */
    kvf__pass_state state;
    const kvf__batch *batch;
    const kvf__prefix *prefix; /* NULL if P = 0, or in sections */
    kvf__cache *cache;
    const int32_t *slot;
    kvf__entry entry;
    int64_t M, ML;          /* padded rows, padded labelled rows */
    int64_t position_start; /* of the input */
};

/* Lays the parts out in an arena for batches at the pass's limits. ENOMEM. */
kvf_status kvf__pass_alloc(kvf_ctx *ctx, kvf__pass *pass);
/* Has packed weights of layer l at hand, in the directions (KVF__REACH_...) that come next. */
kvf_status kvf__pass_ensure_packed(kvf_ctx *ctx, kvf__pass *pass, int64_t l, unsigned directions);
/* Makes kept[l] that of layer l of the last forward pass again, where layers share it. */
kvf_status kvf__pass_recompute(kvf_ctx *ctx, kvf__pass *pass, int64_t l);

/* x [M, C] = token embedding (+ type, learned position, norm, dense layer); rows >= n_tokens hold
 * no token. Fills position too, and x_act. */
kvf_status kvf__embed_fwd(kvf_ctx *ctx, kvf__pass *pass);
/* Fills position alone. */
void kvf__embed_place(kvf__pass *pass);
/* Adds the gradient of layer 0's input (dx, and with post-norm dxhat) to the vectors it came from,
 * where the sections want it, and, with block, to what is trained of the embeddings, token by token
 * in the order of the batch. Uses up dx and x. */
kvf_status kvf__embed_bwd(kvf_ctx *ctx, kvf__pass *pass, bool block);
/* x [E] = the embedding of a token (id below 0: the vector in x), plus rows of the tables of types
 * and of a stack's positions, if there are such tables. */
void kvf__embed_sum(const kvf__model *model, const kvf__embed_stack *stack, int64_t id,
                    int64_t type, int64_t position, float *x, float *scratch);
/* ESHAPE for ids outside the vocabulary and positions past the model's. */
kvf_status kvf__embed_check(kvf_ctx *ctx, const kvf__pass *pass, const kvf__input *input);

struct kvf__cache {
    const kvf__desc *desc; /* of the model, which outlives the cache */
    kvf__kv_shape shape;   /* heads viewed in the model */
    int64_t slots, capacity;
    kvf__dtype act;
    void **data;       /* [slots] of [L, 2, G, room, D]; NULL where the slot has no room */
    int64_t *reserved; /* [slots] tokens a slot has memory for */
    int64_t *length;   /* [slots] */
    int64_t *source; /* [slots] tokens in layers of an encoder and of cross-attention, those of the
                        source; 0: none yet */
};

/* Keys and values of layer l of every row of the batch, after the cached ones; lengths stay as
 * they are. */
void kvf__cache_append(kvf__cache *cache, int64_t l, const kvf__batch *batch, const int32_t *slot,
                       const void *qkv, int64_t H);
/* Counts the appended tokens in, once all layers have them. */
void kvf__cache_advance(kvf__cache *cache, const kvf__batch *batch, const int32_t *slot);
/* Address of keys (kv = 0) or values (1) of a layer and slot: [G, room of the slot, D]. */
void *kvf__cache_at(const kvf__cache *cache, int64_t l, int64_t slot, int kv);
/* What attention reads of them. */
struct kvf__kvseg kvf__cache_segment(const kvf__cache *cache, int64_t l, int64_t slot);

static inline int64_t kvf__most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Rows of layer l's second half that are not padding. */
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
