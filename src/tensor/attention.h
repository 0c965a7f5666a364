/* Attention over key segments: first the prefix, then shared common prefixes or a generation cache,
 * last the row's own tokens. Every query attends to all of its row's shared segments, and to own
 * tokens causally or to all. With a window, a causal query attends to the last `window` keys in the
 * order of the segments, itself included. Other queries attend to own tokens less than `window`
 * away on either side and to all of the segments.
 *
 *     qkv  act [N, ld]   per packed token H*D queries, G*D keys, G*D values
 *     out  act [N, H*D]
 *     lse  f32 [H, N]    log-sum-exp for the backward pass (its base depends on the kernel)
 *
 * Query head h uses key/value head h / (H/G). Scores are multiplied by `scale`, then capped: c
 * tanh(s / c) (Gemma Team 2024, arXiv 2408.00118). Log-weights of a segment are added afterwards; a
 * log-weight w acts like e^w copies of its key.
 *
 * Work items are pairs (row, key/value head), assigned by kvf__attn_plan_set. Gradients of shared
 * segments go to accumulators chosen by lengths alone and are added in a fixed order at the end.
 * Equal inputs thus give equal bits for any number of threads. */
#ifndef KVF_ATTENTION_H
#define KVF_ATTENTION_H

#include "dropout.h"
#include "rng.h"
#include "view.h"

/* Keys and values before a row's own tokens. Element (g, t, d) is at g*head_stride + t*token_stride
 * + d. For the prefix of a layer: k = kv, v = kv + G*P*D, F32, token_stride D, head_stride P*D. */
typedef struct kvf__kvseg {
    const void *k, *v;
    kvf__dtype dtype; /* F32 or the activation type */
    int64_t len, token_stride, head_stride;
    float *dk, *dv; /* gradients, added to, with the same strides; NULL: not wanted */
    bool near;      /* its tokens directly precede those of the next segment, or own tokens */
    const float *log_weight; /* [G, len]; NULL: all 0 */
    float *dlog_weight;      /* only with dk; added to; NULL: not wanted */
} kvf__kvseg;

#define KVF__ATTN_SEGS 4
typedef struct kvf__attn_row {
    int64_t start, len; /* own tokens: packed rows start .. start + len - 1 */
    int64_t first; /* own tokens before this one are keys only: their out is not written, their dout
                      counts as zero */
    int32_t n_segs;
    int32_t seg[KVF__ATTN_SEGS]; /* indices into segs, in order */
} kvf__attn_row;

/* Assignment of items to threads, and the scratch memory of all threads. */
typedef struct kvf__attn_plan kvf__attn_plan;
typedef struct kvf__attn_limits {
    int64_t rows, tokens, row_len; /* maximum rows, packed tokens, own tokens in one row */
    int64_t shared_len;            /* largest sum of a row's shared segments */
    int64_t grad_len;              /* total length of segments with gradients */
    int64_t H, G, D;               /* maximum H, G and D; see kvf__attn_plan_heads */
    bool backward;
    bool plain;    /* kvf__attn_plain_fwd may be called */
    bool relative; /* calls may have relative terms */
} kvf__attn_limits;
kvf_status kvf__attn_plan_create(kvf_ctx *ctx, const kvf__attn_limits *limits,
                                 kvf__attn_plan **out);
void kvf__attn_plan_free(kvf__attn_plan *plan);
/* Sets the key/value heads of the next calls, at most limits.G, which is the initial value. */
void kvf__attn_plan_heads(kvf__attn_plan *plan, int64_t G);
/* Assigns the items of a batch to threads without allocating. The arrays are borrowed until the
 * next set. */
void kvf__attn_plan_set(kvf__attn_plan *plan, const kvf__attn_row *rows, int64_t n_rows,
                        const kvf__kvseg *segs, int64_t n_segs);

/* Returns bytes of scratch for kernels.attn_head with so many keys, own ones included. */
size_t kvf__attn_head_scratch(int64_t D, int64_t keys);

/* Dropout of attention probabilities. */
typedef struct kvf__attn_drop {
    kvf__dropout rate;
    const kvf__rng *stream; /* stream of each row of the plan */
    int64_t layer;          /* layer of the model: each draws its own masks */
} kvf__attn_drop;

/* Relative positions. Disentangled attention (He et al. 2021, DeBERTa, arXiv:2006.03654): the score
 * of query i and own key j before scaling is q_i . k_j + q_i . k[b] + k_j . q[b] with b =
 * bucket[most - 1 + i - j]. Keys of segments, including the prefix, have no such terms; H = G. Or a
 * bias of head h, bias[b][h] (Raffel et al. 2020, T5, arXiv:1910.10683), which keys of the last
 * segments that are `near` have too. Distances from `most` on use the bucket of the farthest. */
typedef struct kvf__attn_relative {
    const float *k, *q;    /* [buckets, H * D]; NULL: bias */
    const float *bias;     /* [buckets, H] */
    const int32_t *bucket; /* [2 most - 1] */
    int64_t most;          /* maximum own tokens of a row; no limit with bias */
} kvf__attn_relative;

typedef struct kvf__attn {
    kvf__attn_plan *plan;
    const kvf__kvseg *segs; /* same lengths as in plan_set; pointers differ by layer */
    int64_t H, G, D, N;
    kvf__dtype act;
    bool causal;
    bool by_blocks; /* compute rows of few own tokens like others, for the same bits of a token in
                       any row */
    bool crosses;   /* own tokens are queries only: all keys are in segments; not causal */
    int64_t window; /* 0: none */
    float scale;
    float cap; /* cap of the scaled scores; 0: none */
    const void *qkv;
    int64_t ld; /* row stride of qkv and dqkv, in elements */
    void *out;
    float *lse;
    const void *dout; /* backward only: act [N, H*D] */
    void *dqkv;       /* backward only: act [N, ld], overwritten */
    bool shared_only; /* backward only: compute dk, dv of the segments (layer 0), leave dqkv
                         unchanged */
    const kvf__attn_relative *relative; /* NULL: none */
    const kvf__attn_drop *drop;         /* for the two calls below; else unused */
} kvf__attn;

/* Variants of kernels.attn_fwd and attn_bwd with dropout (attention_plain.c). Rows and their keys
 * are at most 2^20. Use both together, since lse depends on the kernel. */
void kvf__attn_plain_fwd(const kvf__attn *attn);
void kvf__attn_plain_bwd(const kvf__attn *attn);

/* Computes the attention distribution of query i of a row's head: p [keys] = softmax of its scaled
 * scores in f64. Intended for display. Keys in p are in the order of the row: its segments, then
 * own tokens; 0 outside the window. Returns their number; p has room for all keys of the row. */
int64_t kvf__attn_shares_ref(const kvf__attn *attn, const kvf__attn_row *row, int64_t head,
                             int64_t i, double *p);

#endif
