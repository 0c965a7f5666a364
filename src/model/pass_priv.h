/* Inside src/model: one pass over a packed batch, its arena and what a layer keeps for the backward
 * pass.
 *
 * A batch is M rows, the tokens back to back and then rows of zeros up to a count that oneDNN runs
 * well (COMPUTE.md 4i). The residual stream and its gradient are f32, everything stored per layer
 * is of the act type. All memory is carved from one arena by kvf__pass_create; a pass allocates
 * nothing. */
#ifndef KVF_PASS_PRIV_H
#define KVF_PASS_PRIV_H

#include "bottleneck.h"
#include "dropout.h"
#include "model_priv.h"

#define KVF__HEAD_ROWS 256 /* labelled rows per pass over the vocabulary */

/* Components of the timings, in the order of kvf__pass_timings. */
#define KVF__PART_LIST(X)                                                                          \
    X(EMBED, "embed")                                                                              \
    X(NORM, "norm")                                                                                \
    X(QKV, "qkv")                                                                                  \
    X(ROPE, "rope")                                                                                \
    X(ATTN, "attention")                                                                           \
    X(OUT, "out")                                                                                  \
    X(FFN, "ffn")                                                                                  \
    X(ACT, "activation")                                                                           \
    X(ADAPTER, "adapter")                                                                          \
    X(HEAD, "head")                                                                                \
    X(LOSS, "loss")                                                                                \
    X(HEAD_BWD, "head_bwd")                                                                        \
    X(FFN_BWD, "ffn_bwd")                                                                          \
    X(ACT_BWD, "activation_bwd")                                                                   \
    X(NORM_BWD, "norm_bwd")                                                                        \
    X(OUT_BWD, "out_bwd")                                                                          \
    X(ADAPTER_BWD, "adapter_bwd")                                                                  \
    X(ATTN_BWD, "attention_bwd")                                                                   \
    X(ROPE_BWD, "rope_bwd")                                                                        \
    X(QKV_BWD, "qkv_bwd")                                                                          \
    X(EMBED_BWD, "embed_bwd")                                                                      \
    X(WEIGHT_GRAD, "weight_grad")                                                                  \
    X(PACK, "pack")                                                                                \
    X(RECOMPUTE, "recompute")                                                                      \
    X(OTHER, "other")

typedef enum kvf__part {
#define KVF__PART_ENUM(name, text) KVF__PART_##name,
    KVF__PART_LIST(KVF__PART_ENUM)
#undef KVF__PART_ENUM
        KVF__PARTS
} kvf__part;

/* What one layer leaves for its backward pass. Without backward, or when layers are recomputed, all
 * layers share one set. */
typedef struct kvf__kept {
    void *xhat1;     /* [M, C] input of qkv; post-norm or unfolded: of norm 1's weights (post-norm:
                        labelled rows only in the last layer) */
    void *qkv;       /* [M, (H+2G)D], q and k rotated */
    void *att;       /* [M, HD] output of attention */
    void *xhat2;     /* [M, C] input of the feed-forward part (post-norm or unfolded: of norm 2's
                        weights); last layer: labelled rows only */
    void *in1, *in2; /* [M, C] what the products of the halves read where that is not xhat; one
                        array for all layers unless weights are trained. Post-norm: in1 only then */
    void *g;         /* planes [M, width] back to back, input of down; NULL unless weights are
                        trained */
    void *fac1, *fac2; /* planes [M, width] back to back: fn'(h), or the two factors of glu_fwd */
    float *rstd1, *rstd2; /* [M] */
    float *lse;           /* [H, M] */
    void *qk_xhat;  /* [M, H + G, D] of the norms of queries and keys; NULL: there are none, or
                       no backward pass */
    float *qk_rstd; /* [M, H + G] */
    kvf__bottleneck_kept adapt[KVF__HALVES]; /* last layer: labelled rows only */
} kvf__kept;

/* Rows with the same prefix before them: a section of the input, or all rows. */
typedef struct kvf__pass_section {
    int64_t first, end;        /* rows */
    const kvf__prefix *prefix; /* NULL if P = 0 */
    const kvf__vectors *vectors;
    int64_t position_start;
    double *loss_sum;     /* NULL: not wanted */
    kvf__prefix *dprefix; /* set by bwd */
    kvf__vectors *dvectors;
    int32_t seg;  /* of its prefix in the layer at hand; -1: none */
    bool planned; /* attention's work was dealt with it */
} kvf__pass_section;

typedef enum kvf__pass_state { KVF__PASS_EMPTY, KVF__PASS_FWD, KVF__PASS_LOSS } kvf__pass_state;

struct kvf__pass {
    kvf__model *model;
    kvf__pass_limits limits;
    int threads;
    kvf__arena arena;
    kvf__attn_plan *plan;
    double seconds[KVF__PARTS], mark;

    /* carved from the arena; Mx = padded limits.tokens, Lx = padded limits.labels, Rx = the larger
     */
    kvf__kept *kept;            /* [L] */
    kvf__attn_row *rows;        /* [limits.rows] */
    kvf__kvseg *segs;           /* [sections + limits.rows]; with infix twice the rows */
    kvf__pass_section *section; /* [sections] at least one */
    float *label_scale; /* [Lx] factor on the loss of each label; NULL: batches have no sections */
    int32_t *lead;      /* [limits.rows] segment of a row that is a lead, else -1 */
    int64_t *offset;    /* [limits.rows] tokens of the leads before a row */
    int32_t *position;  /* [Mx] */
    float *scratch;     /* [threads, C] */
    float *x, *x_lab;   /* [Mx, C], [Lx, C] residual stream; of labelled rows */
    void *x_act;        /* [Rx, C] copy of the stream that products read; NULL unless
                           post-norm */
    void *normed;       /* [Rx, C] in1 and in2 of all layers; NULL: they have their own, or none */
    float *normed_f;    /* [Rx, C] the same before rounding; NULL in f32, or folded */
    float *hidden;      /* [Lx, C] final states; NULL if post-norm: x_lab is that */
    void *att_lab;      /* [Lx, HD] */
    void *g;            /* [Rx, widest plane] output of the activation */
    void *xhat_f;       /* [Lx, C] output of the final norm, without its weights */
    void *in_f;         /* [Lx, C] what the language-model head reads; xhat_f where folded */
    float *rstd_f;      /* [Lx] */
    float *adapt_part;  /* [Rx, C] output of one product; NULL unless adapters are serial */
    float *logits;      /* [head rows, KVF__VOCAB_PLANE] */
    float *ce_max, *ce_sum, *ce_target; /* [head rows] */
    int32_t *target;                    /* [head rows] */
    float *soft_logit;                  /* [head rows, limits.soft] of a teacher's items */

    float *row_kv;         /* [limits.rows, 2, G, P, D] a layer's prefix as each row sees it; NULL
                              unless rows have dropout of their own */
    float *row_dkv;        /* its gradient, backward only */
    kvf__rng *row_stream;  /* [limits.rows] where each row's masks are drawn from */
    kvf__rng *drop_stream; /* the same for dropout of the base; NULL: there is none */
    kvf__rng *attn_stream; /* and for its attention */
    int32_t *drop_row;     /* [Mx] row of each token */
    float *half;           /* [Rx, C] what a half adds, before its mask */
    float *dhalf;          /* [Rx, C] its gradient; backward only */
    void *dhalf_act;       /* the same in the act type; the same memory where that is f32 */

    /* the same, backward only */
    void *e;                   /* [head rows, KVF__VOCAB_PLANE] */
    float *acc, *target_row;   /* [head rows, C] */
    float *soft_row;           /* [head rows, C] of the head; NULL: no teacher */
    float *dx, *dx_lab;        /* [Mx, C], [Lx, C] */
    void *dx_act, *dx_lab_act; /* the same in the act type; the same memory where that is f32 */
    void *dxhat;               /* [Rx, C] */
    void *da, *dg, *du;        /* [Rx, widest plane] */
    void *datt, *datt_lab;     /* [Mx, HD], [Lx, HD] */
    void *dqkv;                /* [Mx, (H+2G)D] */
    float *wide_x, *wide_dy;   /* [Rx, widest product] f32 factors of a weight's gradient; NULL in
                                  f32, or where no weights are trained */
    void *embed_xhat;          /* [Mx, C] of the norm on embeddings; NULL unless it is trained */
    float *embed_rstd;         /* [Mx] */
    float *dadapt;    /* [Rx, C] gradient of a half's output through its adapter, or of its input */
    void *dadapt_act; /* the same in the act type; the same memory where that is f32 */
    float *dadapt_h;  /* [Rx, adapter size] */
    float *entered;   /* [L, Mx, C] residual stream that enters each layer; NULL unless
                         layers are recomputed */
    float *dlead;     /* [limits.lead_tokens, (H+2G)D] what later rows add to leads' keys, values */

    /* the batch of the last fwd, viewed */
    kvf__pass_state state;
    const kvf__batch *batch;
    int64_t n_sections;
    bool in_sections;          /* the input has them */
    const kvf__prefix *prefix; /* NULL if P = 0, or in sections */
    kvf__cache *cache;
    const int32_t *slot;
    int64_t M, ML; /* padded rows, padded labelled rows */
    int64_t n_segs;
    bool dealt;      /* the attention plan, for the sections whose `planned` says so */
    bool dealt_last; /* for the last layer, where rows without labels ask for nothing */
    kvf__dropout row_dropout;
    bool drops_rows; /* this batch has it */
    kvf__dropout drop;
    kvf__attn_drop attn_drop; /* of the layer at hand; its streams are those of attention alone */
    bool drops;               /* this batch has dropout of the base */
    bool turns_rows;        /* this batch has a prefix inside its rows, which rope turns for each */
    int64_t position_start; /* of the input */
    const void *qkv_src;    /* [M, C] what the last layer's qkv product read */
    int64_t computed;       /* the layer that ran last: whose kept the others share */
    bool again;             /* a layer is being recomputed */
    unsigned head_reach;    /* KVF__REACH_...: how the labels at hand use planes of the head */
    double *share;          /* of the input */
};

/* Rows that are computed for n: exact up to 8, then multiples of 8 up to 64, then of row_step. */
int64_t kvf__pass_padded(const kvf__model *model, int64_t n);
/* Books the time since the last call on a component. */
void kvf__pass_lap(kvf__pass *pass, kvf__part part);
/* Fills rows and segs for layer l and deals the attention's work. gradient: those of prefixes are
 * wanted, where the sections say; dlead: those of leads too (dlead is zeroed). */
void kvf__pass_segments(kvf__pass *pass, int64_t l, bool gradient, bool dlead);
/* The attention call of layer l, forward fields filled. */
struct kvf__attn kvf__pass_attn(const kvf__pass *pass, int64_t l);
/* Adds what the rows behind leads left in dlead to the leads' own rows of dqkv. */
void kvf__pass_collect_leads(kvf__pass *pass);
/* Does row r see the prefix? */
bool kvf__pass_row_sees(const kvf__pass *pass, int64_t r);
/* The prefix inside rows (pass_infix.c): takes it from the input; fills row_kv for layer l (and
 * zeroes row_dkv); adds the rows' gradients to dprefix. */
kvf_status kvf__pass_take_infix(kvf_ctx *ctx, kvf__pass *pass, const kvf__input *input);
void kvf__pass_turn_rows(kvf__pass *pass, int64_t l, bool gradient);
void kvf__pass_collect_turned(kvf__pass *pass, int64_t l, kvf__prefix *dprefix);
/* Positions by which the prefix inside row r moves its tokens. */
int64_t kvf__infix_shift(const kvf__batch *batch, const kvf__prefix *prefix, int64_t r);

/* Dropout by rows (pass_row_prefix.c): takes it from the input; fills row_kv for layer l (and
 * zeroes row_dkv); the prefix segment of row r, given that of all; adds the rows' gradients to
 * dprefix. */
kvf_status kvf__pass_take_dropout(kvf_ctx *ctx, kvf__pass *pass, const kvf__input *input);
void kvf__pass_mask_rows(kvf__pass *pass, int64_t l, bool gradient);
struct kvf__kvseg kvf__pass_row_segment(const kvf__pass *pass, struct kvf__kvseg prefix, int64_t r);
void kvf__pass_collect_rows(kvf__pass *pass, int64_t l, kvf__prefix *dprefix);
/* ESHAPE for parents that do not come before their row, or lie too deep. Sets offset. */
kvf_status kvf__pass_check_leads(kvf_ctx *ctx, kvf__pass *pass, const kvf__input *input);
/* Has packed weights of layer l at hand, in the directions (KVF__REACH_...) that come next. */
kvf_status kvf__pass_reach(kvf_ctx *ctx, kvf__pass *pass, int64_t l, unsigned directions);
/* Makes kept[l] that of layer l of the last forward pass again, where layers share it. */
kvf_status kvf__pass_recompute(kvf_ctx *ctx, kvf__pass *pass, int64_t l);
/* Adds layer l's part to what the input's `share` asks for, once attention ran (pass_share.c). */
kvf_status kvf__pass_add_share(kvf_ctx *ctx, const kvf__pass *pass, int64_t l);

/* Sections (pass_sections.c): takes them from the input; where their gradients go; has layer l a
 * prefix segment in this batch, or for these rows; the section of a row; what ids below 0 stand for
 * at a token; lm_loss's scale for a label. */
kvf_status kvf__pass_take_sections(kvf_ctx *ctx, kvf__pass *pass, const kvf__input *input);
kvf_status kvf__pass_take_grads(kvf_ctx *ctx, kvf__pass *pass, const kvf__grads *into);
bool kvf__pass_has_prefix(const kvf__pass *pass, int64_t l);
bool kvf__section_has_prefix(const kvf__pass_section *section, int64_t l);
const kvf__pass_section *kvf__pass_section_of(const kvf__pass *pass, int64_t r);
void kvf__pass_add_loss(const kvf__pass *pass, int64_t label, double loss); /* to its section's */
const kvf__vectors *kvf__pass_vectors_at(const kvf__pass *pass, int64_t token);
static inline float kvf__pass_label_scale(const kvf__pass *pass, float scale, int64_t label)
{
    return pass->in_sections ? scale * pass->label_scale[label] : scale;
}

/* The norms around a block's halves (pass_norms.c); each does what its place has, if anything.
 * before_*: returns what the half's products read. */
const void *kvf__pass_before_qkv(kvf__pass *pass, int64_t l);
const void *kvf__pass_before_ffn(kvf__pass *pass, int64_t l, float *x, int64_t M);
void kvf__pass_behind_ffn(kvf__pass *pass, int64_t l, float *x, int64_t M);
void kvf__pass_final_norm(kvf__pass *pass); /* x_lab to in_f */
/* Undo them: dx [M, C] and its copy go from the gradient of the output to that of the input. The
 * gradient of what the half's products read is in dxhat. That of qkv's input stays there for
 * behind_ffn_bwd of the layer below, where it meets dx, if post-norm. */
typedef struct kvf__ahead {
    const float *gamma; /* NULL: folded */
    int role, role_beta;
    int64_t layer;
    const void *xhat;
    const float *rstd;
    int64_t real, M; /* rows that count, rows with padding */
} kvf__ahead;
/* A norm in front of what left its gradient in dxhat: dx [M, C] += that through the norm. */
void kvf__pass_ahead_bwd(kvf__pass *pass, const kvf__ahead *norm, float *dx, void *dx_act);
void kvf__pass_behind_ffn_bwd(kvf__pass *pass, int64_t l, float *dx, void *dx_act, int64_t M);
void kvf__pass_before_ffn_bwd(kvf__pass *pass, int64_t l, float *dx, void *dx_act, int64_t M);
void kvf__pass_before_qkv_bwd(kvf__pass *pass, int64_t l);
/* Norms of queries and keys, on kept qkv and on dqkv. */
void kvf__pass_head_norms_fwd(kvf__pass *pass, int64_t l);
void kvf__pass_head_norms_bwd(kvf__pass *pass, int64_t l);
/* A norm with weights over M rows; the arrays are for the caller to fill in. */
kvf__whole_norm kvf__pass_whole_norm(const kvf__pass *pass, const float *gamma, const float *beta,
                                     int64_t M);

/* Dropout of the base (pass_dropout.c): takes it from the input; x += half under its mask; the
 * gradient of what a half added, f32 and (*dy) in the act type, given that of the stream, which it
 * is without dropout; x [tokens, C] under the mask of embeddings, and back on dx and dxhat. */
kvf_status kvf__pass_take_base_dropout(kvf_ctx *ctx, kvf__pass *pass, const kvf__input *input);
void kvf__pass_drop_fwd(kvf__pass *pass, int64_t l, kvf__half half, float *x);
/* Of layer l's probabilities, until the next call; NULL: they stay whole. */
const kvf__attn_drop *kvf__pass_attn_drop(kvf__pass *pass, int64_t l);
const float *kvf__pass_drop_bwd(kvf__pass *pass, int64_t l, kvf__half half, const float *dx,
                                int64_t M, const void **dy);
void kvf__pass_drop_embedding(kvf__pass *pass, float *x);
void kvf__pass_drop_embedding_bwd(kvf__pass *pass);

/* Adapters of a layer's halves (pass_adapters.c): has this half one at all, in some layer? */
bool kvf__pass_adapts(const kvf__pass *pass, kvf__half half);
/* The output of one of a half's products: x [M, C] += src w. first: of those of this half and pass.
 */
kvf_status kvf__pass_out(kvf_ctx *ctx, kvf__pass *pass, int64_t l, kvf__half half,
                         const kvf__packed *w, const void *src, float *x, int64_t M, bool first);
unsigned kvf__pass_out_flags(const kvf__pass *pass, kvf__half half); /* of such a product */
/* Then x [M, C] += the half's adapter; src: what the products read. */
kvf_status kvf__pass_adapt_fwd(kvf_ctx *ctx, kvf__pass *pass, int64_t l, kvf__half half, float *x,
                               const void *src, int64_t M);
/* Undoes it: *dy [M, C] in the act type is the gradient of what the products left. What a parallel
 * adapter says of src stays behind until `beside` adds it to dxhat; `scatter` spreads that of
 * labelled rows over the batch. */
kvf_status kvf__pass_adapt_bwd(kvf_ctx *ctx, kvf__pass *pass, int64_t l, kvf__half half,
                               const float *dx, const void *dx_act, int64_t M, const void **dy);
void kvf__pass_adapt_scatter(kvf__pass *pass);
void kvf__pass_adapt_beside(kvf__pass *pass, int64_t l, kvf__half half, int64_t M);

/* Gradients of trained weights (pass_grads.c); each does nothing where its weight is not trained.
 * M: rows that count. Norms: dy is the sum of dx and plus, of which one may be NULL. */
void kvf__norm_grad(const kvf__pass *pass, int gamma, int beta, int64_t l, const float *dx,
                    const void *plus, const void *xhat, int64_t M);
void kvf__head_norm_grad(const kvf__pass *pass, int64_t l);
/* Weights (pass_weights.c). Those of a layer, where the backward pass has what they need at hand:
 * dx is the gradient of what the half added to the stream. Plane p of down: dx; of up and gate: da
 * or du and dg. */
kvf_status kvf__down_grad(kvf_ctx *ctx, kvf__pass *pass, int64_t l, int p, const float *dx);
kvf_status kvf__up_grad(kvf_ctx *ctx, kvf__pass *pass, int64_t l, int p);
kvf_status kvf__out_grad(kvf_ctx *ctx, kvf__pass *pass, int64_t l, const float *dx);
kvf_status kvf__qkv_grad(kvf_ctx *ctx, kvf__pass *pass, int64_t l);
/* Of the language-model head: plane p of the vocabulary, whose gradient on labelled rows first ..
 * first + rows - 1 stands in logits. */
kvf_status kvf__head_grad(kvf_ctx *ctx, kvf__pass *pass, int64_t p, int64_t first, int64_t rows);

/* x [M, C] = token embedding (+ type, learned position, norm); rows >= n_tokens hold no token.
 * Fills position too, and x_act. */
void kvf__embed_fwd(kvf__pass *pass);
/* Adds the gradient of layer 0's input (dx, and with post-norm dxhat) to the vectors it came from,
 * where the sections want it, and, with block, to what is trained of the embeddings, token by token
 * in the order of the batch. Uses up dx and x. */
void kvf__embed_bwd(kvf__pass *pass, bool block);
/* Sum of what stands for token i: its embedding or vector, type and position, before the norm. */
void kvf__embed_token(const kvf__pass *pass, int64_t i, float *x, float *scratch);
/* ESHAPE for ids outside the vocabulary and positions past the model's. */
kvf_status kvf__embed_check(kvf_ctx *ctx, const kvf__pass *pass, const kvf__input *input);

/* Keys and values of layer l of every row of the batch, behind the cached ones; lengths stay as
 * they are. */
void kvf__cache_append(kvf__cache *cache, int64_t l, const kvf__batch *batch, const int32_t *slot,
                       const void *qkv, int64_t H);
/* Counts the appended tokens in, once all layers have them. */
void kvf__cache_advance(kvf__cache *cache, const kvf__batch *batch, const int32_t *slot);
/* Address of keys (kv = 0) or values (1) of a layer and slot: [G, room of the slot, D]. */
void *kvf__cache_at(const kvf__cache *cache, int64_t l, int64_t slot, int kv);

static inline size_t kvf__act_size(kvf__dtype act)
{
    return act == KVF__BF16 ? 2 : 4;
}

/* Row `row` of a dense matrix of the act type. */
static inline void *kvf__act_row(kvf__dtype act, void *base, int64_t row, int64_t width)
{
    return (char *)base + (size_t)(row * width) * kvf__act_size(act);
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

#endif
