/* Attention over key segments: segment 0 the prefix, between shared common prefixes or a generation
 * cache, last the row's own tokens. Every query sees its row's whole shared segments; own tokens
 * causally, or all of them. Under a window a causal query sees only the last so many of these keys,
 * itself among them, counted in the order of the segments; another one own tokens less than that
 * far away on either side, and the whole segments, whose keys are at no distance.
 *
 *   qkv  act [N, ld]   per packed token H*D queries, G*D keys, G*D values
 *   out  act [N, H*D]
 *   lse  f32 [H, N]    log-sum-exp kept for the backward pass (its base is the kernel's own matter)
 *
 * Query head h reads key/value head h / (H/G). Scores are scaled by `scale`, then capped: c tanh(s
 * / c) (Gemma Team 2024, arXiv 2408.00118). Keys of a segment with log-weights have theirs added
 * then: it is as if a key were there e to it times.
 *
 * Work items are (row, key/value head), dealt by kvf__attn_plan_set. Gradients of shared segments
 * go to accumulators by lengths alone and are added in one order at the end: equal inputs, equal
 * bits for any number of threads. */
#ifndef KVF_ATTENTION_H
#define KVF_ATTENTION_H

#include "dropout.h"
#include "rng.h"
#include "view.h"

/* Keys and values that precede a row's own tokens; element (g, t, d) at g*head_stride +
 * t*token_stride + d. The prefix of a layer: k = kv, v = kv + G*P*D, F32, token_stride D,
 * head_stride P*D. */
typedef struct kvf__kvseg {
    const void *k, *v;
    kvf__dtype dtype; /* F32 or the act type */
    int64_t len, token_stride, head_stride;
    float *dk, *dv; /* gradients, added to, same strides; NULL: not wanted */
    bool near;      /* its tokens come right before those of the next segment, or own ones */
    const float *log_weight; /* [G, len]; NULL: none, all 0 */
    float *dlog_weight;      /* with dk only: added to; NULL: not wanted */
} kvf__kvseg;

#define KVF__ATTN_SEGS 4
typedef struct kvf__attn_row {
    int64_t start, len; /* own tokens: packed rows start .. start + len - 1 */
    int64_t first;      /* own tokens before this one are keys only: their out is not written, their
                           dout taken for zero */
    int32_t n_segs;
    int32_t seg[KVF__ATTN_SEGS]; /* indices into segs, in order */
} kvf__attn_row;

/* Assignment of items to threads, and the scratch memory of all threads. */
typedef struct kvf__attn_plan kvf__attn_plan;
typedef struct kvf__attn_limits {
    int64_t rows, tokens, row_len; /* at most so many rows, packed tokens, own tokens in one row */
    int64_t shared_len;            /* longest sum of shared segments of a row */
    int64_t grad_len;              /* sum of lengths of segments with gradients */
    int64_t H, G, D;               /* G and D: at most; see kvf__attn_plan_heads */
    bool backward;
    bool plain;    /* kvf__attn_plain_fwd may be called */
    bool relative; /* calls may have relative terms */
} kvf__attn_limits;
kvf_status kvf__attn_plan_create(kvf_ctx *ctx, const kvf__attn_limits *limits,
                                 kvf__attn_plan **out);
void kvf__attn_plan_free(kvf__attn_plan *plan);
/* The key/value heads of the calls that come, at most limits.G, as at first. */
void kvf__attn_plan_heads(kvf__attn_plan *plan, int64_t G);
/* Deals the items of a batch; allocates nothing. The arrays are viewed until the next set. */
void kvf__attn_plan_set(kvf__attn_plan *plan, const kvf__attn_row *rows, int64_t n_rows,
                        const kvf__kvseg *segs, int64_t n_segs);

/* Bytes of scratch for kernels.attn_head with so many keys, its own included. */
size_t kvf__attn_head_scratch(int64_t D, int64_t keys);

/* Dropout of the probabilities. */
typedef struct kvf__attn_drop {
    kvf__dropout rate;
    const kvf__rng *stream; /* of each row of the plan */
    int64_t layer;          /* of the model: each draws its own masks */
} kvf__attn_drop;

/* Disentangled attention (He et al. 2021, DeBERTa, arXiv:2006.03654): the score of query i and own
 * key j, before it is scaled, is q_i . k_j + q_i . k[b] + k_j . q[b] with b = bucket[most - 1 + i -
 * j]. Keys of segments, the prefix's too, have no such terms. H = G. Or a bias of head h,
 * bias[b][h], in their place (Raffel et al. 2020, T5, arXiv:1910.10683), which keys of last
 * segments that are `near` have, too; distances from `most` on have the bucket of the farthest. */
typedef struct kvf__attn_relative {
    const float *k, *q;    /* [buckets, H * D]; NULL: bias */
    const float *bias;     /* [buckets, H] */
    const int32_t *bucket; /* [2 most - 1] */
    int64_t most;          /* own tokens of a row at most; no limit with bias */
} kvf__attn_relative;

typedef struct kvf__attn {
    kvf__attn_plan *plan;
    const kvf__kvseg *segs; /* same lengths as those given to plan_set; pointers differ by layer */
    int64_t H, G, D, N;
    kvf__dtype act;
    bool causal;
    bool by_blocks; /* rows of few own tokens are computed like others: the same bits for a token in
                       any row */
    bool crosses;   /* own tokens are queries alone: all keys are in segments; not causal */
    int64_t window; /* 0: none */
    float scale;
    float cap; /* of scaled scores; 0: none */
    const void *qkv;
    int64_t ld; /* row stride of qkv and dqkv, in elements */
    void *out;
    float *lse;
    const void *dout; /* backward only: act [N, H*D] */
    void *dqkv;       /* backward only: act [N, ld], written */
    bool shared_only; /* backward only: dk, dv of the segments (layer 0); dqkv is not touched */
    const kvf__attn_relative *relative; /* NULL: no such terms */
    const kvf__attn_drop *drop;         /* for the two calls below; else unused */
} kvf__attn;

/* What kernels.attn_fwd and attn_bwd do, under dropout (attention_plain.c); rows and their keys are
 * at most 2^20. One goes with the other: lse is of the
 * kernel's own kind. */
void kvf__attn_plain_fwd(const kvf__attn *attn);
void kvf__attn_plain_bwd(const kvf__attn *attn);

/* How query i of a row's head divides its attention: p [keys] = softmax of its scaled scores, in
 * f64 by the formula, for showing attention, not for computing with it. Keys are in p in the order
 * the row sees them: its segments one after the other, then own tokens; 0 outside its window.
 * Returns how many; p has room for all of the row. */
int64_t kvf__attn_shares_ref(const kvf__attn *attn, const kvf__attn_row *row, int64_t head,
                             int64_t i, double *p);

#endif
