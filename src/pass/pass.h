/* A pass over a packed batch, forward and backward, with the prefix as key segment 0 of every
 * layer. A pass does not allocate: kvf__pass_create sizes one arena from its limits. */
#ifndef KVF_PASS_H
#define KVF_PASS_H

#include "batch.h"
#include "cache.h"
#include "condition.h"

typedef struct kvf__pass kvf__pass;
typedef struct kvf__pass_limits {
    int64_t rows, tokens, row_len, labels; /* maxima of one batch */
    int64_t P;                             /* longest prefix */
    int64_t neurons;                       /* most virtual neurons of a layer, 0: none */
    int64_t cache_len;                     /* longest cache, 0: none */
    int64_t common_len;    /* longest path of common prefixes before a row, 0: no common prefixes */
    int64_t common_tokens; /* total tokens in the common prefixes of one batch */
    /* encoder-decoder: maximum source tokens of a batch, and of a row */
    int64_t source_tokens, source_len;
    int64_t soft;      /* maximum items of a teacher (loss.h), 0: none */
    bool row_dropout;  /* inputs may have row dropout */
    bool base_dropout; /* inputs may have base dropout */
    bool infix;        /* batches may have infix_at; needed for rope positions */
    int64_t sections;  /* maximum sections of a batch, 0: none */
    int64_t lowest;    /* layers below this one have no backward pass and share memory */
    bool backward;
    bool recompute; /* with backward: keep only the input of each layer, and compute the layer again
                       before its backward pass; same bits, less memory, more time */
} kvf__pass_limits;
kvf_status kvf__pass_create(kvf_ctx *ctx, kvf__model *model, const kvf__pass_limits *limits,
                            kvf__pass **out);
void kvf__pass_free(kvf__pass *pass);
/* Build every primitive for a batch of this size, so that running one does not allocate; for a
 * source. */
kvf_status kvf__pass_prepare(kvf_ctx *ctx, kvf__pass *pass, int64_t tokens, int64_t labels);
kvf_status kvf__pass_prepare_source(kvf_ctx *ctx, kvf__pass *pass, int64_t tokens);

/* Dropout drawn separately for every row in training, by (seed, step, row). A row counts by its
 * example, so its masks do not depend on the batch. Of the prefix: on element (layer, kv, g, p, d)
 * as read by the row. Of the base: on embeddings and on the output of each half of a block. */
typedef struct kvf__row_dropout {
    double p; /* [0, 1) */
    uint64_t seed;
    int64_t step;
} kvf__row_dropout;

/* Consecutive rows of a batch with one condition, namely those of one of several runs computed
 * together. Common prefixes belong to the section of the rows that share them. */
typedef struct kvf__section {
    int64_t rows;
    kvf__condition condition;
    float loss_scale; /* factor on the loss scale of its labels */
    double *loss_sum; /* its labels' loss is added; NULL: not wanted */
} kvf__section;

/* Queries of the labelled positions and their attention outputs, one layer after the other, in the
 * caller's memory. */
typedef struct kvf__queries {
    float *q;        /* [n_labels, H, D] rotated */
    float *out;      /* [n_labels, H, D] output over all visible keys */
    float *own;      /* [n_labels, H, D] output over the row's own tokens only */
    float *own_mass; /* [n_labels, H] log of the sum of exp(score) over these tokens */
    /* Called when the arrays hold layer l; attn: parameters of its scores. */
    kvf_status (*layer)(void *user, int64_t l, const struct kvf__attn *attn);
    void *user;
    /* no longer than the input's prefix: the layer's attention is then computed again with this
     * prefix, for the later layers; NULL: unchanged */
    const kvf__prefix *instead;
} kvf__queries;

/* The residual stream at the input of a layer below which no layer has a prefix. Its bits depend on
 * a row's tokens and positions alone (rows of few tokens are computed like those of many). For an
 * encoder-decoder it is the encoder's, at the latest its output at the decoder's first layer. */
typedef struct kvf__entry {
    int64_t layer; /* 0: none */
    float *x;      /* [n_tokens, C] of the batch or of its source; the caller's memory */
    bool known;    /* x is an input, and the layers below are skipped; else x is set */
    bool fixed; /* for a fixed batch: rows of few tokens are computed as without an entry, and x is
                   valid for this batch only */
} kvf__entry;

typedef struct kvf__input {
    const kvf__batch *batch; /* an encoder-decoder needs its source, unless the cache holds the
                                encoder's output */
    /* condition of all rows. With batch->infix_at on a base with rope, the prefix keys are not yet
     * rotated: each row rotates them to the prefix's position in it */
    kvf__condition condition;
    kvf__cache *cache;   /* NULL, or keys and values of earlier tokens (only on causal bases); those
                            of the batch are appended */
    const int32_t *slot; /* [R], cache slot of each row; NULL: row r uses slot r */
    const kvf__row_dropout *row_dropout;  /* NULL: none; excludes common prefixes and a cache */
    const kvf__row_dropout *base_dropout; /* dropout of the base; excludes adapters too */
    float *streams;   /* [L, n_tokens, C]; NULL: not wanted. Set to the residual stream at the input
                         of each layer; with post-norm blocks, the input of qkv */
    kvf__entry entry; /* `known` excludes streams, share, queries, a cache and base_dropout */
    double *share; /* [L, H]; NULL: not wanted. Adds, for every label, the attention mass on virtual
                      tokens: prefix, or vectors (except those in a cache) */
    const kvf__queries *queries;  /* NULL: not wanted; excludes sections and a cache */
    const kvf__section *sections; /* [n_sections] covering all rows, instead of `condition`;
                                     excludes dropout and infix_at */
    int64_t n_sections;           /* 0: none */
} kvf__input;

/* Runs the base up to the final norm of the labelled positions (label_at; other rows of the last
 * layer are not computed). ESHAPE: over the limits, a position past the model's, an id outside the
 * vocabulary or without its vector. */
kvf_status kvf__pass_fwd(kvf_ctx *ctx, kvf__pass *pass, const kvf__input *input);
/* A teacher's distribution at each label: its k most likely items, ids ascending, with their
 * log-probabilities, followed by that of all other items together. */
typedef struct kvf__soft_targets {
    int64_t k;
    const int32_t *ids; /* [n_labels, k] */
    const float *logp;  /* [n_labels, k + 1]; -INFINITY: probability 0 */
    bool reverse;       /* use KL(student || teacher) */
} kvf__soft_targets;
/* Computes the distributions of a teacher after fwd: ids [n_labels, k], logp [n_labels, k +
 * 1]. ENUMERIC: a logit is not finite. */
kvf_status kvf__pass_lm_top(kvf_ctx *ctx, kvf__pass *pass, int64_t k, int32_t *ids, float *logp);
/* Computes logits [n_labels, V] after fwd, f32. */
kvf_status kvf__pass_lm_logits(kvf_ctx *ctx, kvf__pass *pass, float *logits);
/* Targets of gradients; each one given is added to. Without vectors (and block) the pass ends at
 * the lowest layer's prefix. */
typedef struct kvf__grads {
    kvf__prefix *prefix;   /* required if the input has one; masked layers are unchanged */
    kvf__vectors *vectors; /* vectors absent from the batch are unchanged */
    bool block;            /* add to the gradients of the model's parameters */
    const struct kvf__grads *sections; /* [n_sections] if the input has them: their prefix and
                                          vectors, instead of those above */
    /* Called when the gradient of a prefix layer is complete, from the last layer down, so that it
     * can be sent during further computation. May be NULL. */
    void (*layer_done)(void *user, int64_t l);
    void *user;
} kvf__grads;
/* After a loss with gradient (loss.h): adds d(scale * loss)/d each target. */
kvf_status kvf__pass_bwd(kvf_ctx *ctx, kvf__pass *pass, const kvf__grads *into);

/* Seconds by component since the creation of the pass ("qkv", "attention", ...), for bench and
 * logs. */
typedef struct kvf__timing {
    const char *name;
    double seconds;
} kvf__timing;
size_t kvf__pass_timings(const kvf__pass *pass, kvf__timing *out, size_t max);

#endif
