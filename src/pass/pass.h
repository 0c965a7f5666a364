/* A pass over a packed batch, forward and backward, in which the prefix is key segment 0 of every
 * layer. A pass allocates nothing: kvf__pass_create sizes one arena from its limits. */
#ifndef KVF_PASS_H
#define KVF_PASS_H

#include "batch.h"
#include "cache.h"
#include "condition.h"

typedef struct kvf__pass kvf__pass;
typedef struct kvf__pass_limits {
    int64_t rows, tokens, row_len, labels; /* most in one batch */
    int64_t P;                             /* longest prefix */
    int64_t cache_len;                     /* longest cache, 0: none */
    int64_t common_len;    /* longest path of common prefixes before a row, 0: no common prefixes */
    int64_t common_tokens; /* tokens in all common prefixes of one batch */
    int64_t source_tokens, source_len; /* of an encoder-decoder: most in one batch's source, and in
                                          a row of it */
    int64_t soft;                      /* most items of a teacher (loss.h), 0: none */
    bool row_dropout;                  /* inputs may ask for it */
    bool base_dropout;                 /* the same */
    bool infix;       /* batches may have infix_at; needed where positions are rope's */
    int64_t sections; /* most in one batch, 0: batches have none */
    int64_t lowest;   /* no backward pass enters a layer below this one: these share memory */
    bool backward;
    bool recompute; /* with backward: keep only what enters each layer and compute the layer again
                       before its backward pass; the same bits, less memory, more time */
} kvf__pass_limits;
kvf_status kvf__pass_create(kvf_ctx *ctx, kvf__model *model, const kvf__pass_limits *limits,
                            kvf__pass **out);
void kvf__pass_free(kvf__pass *pass);
/* Builds every primitive a batch of this size needs, so that running one allocates nothing; those
 * of a source. */
kvf_status kvf__pass_prepare(kvf_ctx *ctx, kvf__pass *pass, int64_t tokens, int64_t labels);
kvf_status kvf__pass_prepare_source(kvf_ctx *ctx, kvf__pass *pass, int64_t tokens);

/* Dropout drawn anew for every row, for training, by (seed, step, row), where a row counts by its
 * example, so that it draws the same in any batch. Of the prefix: on element (layer, kv, g, p, d)
 * of what the row sees. Of the base: on embeddings and on what each half of a block adds. */
typedef struct kvf__row_dropout {
    double p; /* [0, 1) */
    uint64_t seed;
    int64_t step;
} kvf__row_dropout;

/* Rows of a batch that follow each other and have one condition: those of one of several runs that
 * are computed together. Common prefixes belong to the section of the rows that share them. */
typedef struct kvf__section {
    int64_t rows;
    kvf__condition condition;
    float loss_scale; /* a factor on the scale of the loss for its labels */
    double *loss_sum; /* the loss of its labels is added; NULL: not wanted */
} kvf__section;

/* The queries of the labelled positions and what attention answers them, of one layer after the
 * other; memory of the caller. */
typedef struct kvf__queries {
    float *q;        /* [n_labels, H, D] rotated */
    float *out;      /* [n_labels, H, D] the answer of all keys that each sees */
    float *own;      /* [n_labels, H, D] what their row's own tokens alone would answer */
    float *own_mass; /* [n_labels, H] log of the sum of exp(score) over these tokens */
    /* Called when the arrays hold layer l; attn: how its scores are made. */
    kvf_status (*layer)(void *user, int64_t l, const struct kvf__attn *attn);
    void *user;
    const kvf__prefix
        *instead; /* no longer than the input's: the layer's attention is then computed
                     anew with this prefix, as later layers see it; NULL: it stays */
} kvf__queries;

/* The residual stream that enters a layer below which no layer has a prefix: it depends on a row's
 * tokens and positions alone, to the bit, whatever else is in the batch (rows of few tokens are
 * computed there as those of many are). Of an encoder-decoder it is the encoder's, at the latest
 * what leaves that and enters the decoder's first layer. */
typedef struct kvf__entry {
    int64_t layer; /* 0: none */
    float *x;      /* [n_tokens, C] of the batch or of its source; memory of the caller */
    bool known;    /* x is taken, and the layers below are not computed; else x is set */
    bool fixed;    /* for a batch that is always the same: rows of few tokens are computed as
                      without an entry, and x is of use to this batch alone */
} kvf__entry;

typedef struct kvf__input {
    const kvf__batch *batch;  /* an encoder-decoder needs its source, unless the cache has what the
                                 encoder gave for it */
    kvf__condition condition; /* of all rows. With batch->infix_at on a base with rope the keys of
                                 its prefix are not rotated yet: each row rotates them to the
                                 position of the prefix in it */
    kvf__cache *cache;   /* NULL, or keys and values of earlier tokens (none on a base that is not
                            causal); the batch's are appended */
    const int32_t *slot; /* [R], cache slot of each row; NULL: row r uses slot r */
    const kvf__row_dropout *row_dropout;  /* NULL: none; excludes common prefixes and a cache */
    const kvf__row_dropout *base_dropout; /* the same for the base; excludes adapters too */
    float *streams;   /* [L, n_tokens, C]; NULL: not wanted. Set to the residual stream that enters
                         each layer: with post-norm blocks, what qkv reads */
    kvf__entry entry; /* known excludes streams, share, queries, a cache and base_dropout */
    double *share;    /* [L, H]; NULL: not wanted. Adds, for every label, how much of its attention
                         falls on virtual tokens: prefix, or vectors (but those in a cache) */
    double
        *adapter_sizes; /* [L, 2, 2]; NULL: not wanted. Adds, for attention and feed-forward part
                           of each layer, squares of what its adapter adds and of what that reads,
                           summed over the tokens, in the last layer over those with a label */
    const kvf__queries *queries;  /* NULL: not wanted; excludes sections and a cache */
    const kvf__section *sections; /* [n_sections] all rows, in place of `condition`;
                                     excludes dropout and infix_at */
    int64_t n_sections;           /* 0: none */
} kvf__input;

/* Runs the base up to the final norm of the labelled positions (label_at; the rest of the last
 * layer is not computed). ESHAPE: over the limits, position past the model's, id outside the
 * vocabulary or without its vector. */
kvf_status kvf__pass_fwd(kvf_ctx *ctx, kvf__pass *pass, const kvf__input *input);
/* What a teacher gives at each label: its k likeliest items, ids ascending, with their
 * log-probabilities, and after these that of all other items together. */
typedef struct kvf__soft_targets {
    int64_t k;
    const int32_t *ids; /* [n_labels, k] */
    const float *logp;  /* [n_labels, k + 1]; -INFINITY: nothing */
    bool reverse;       /* KL(student || teacher) */
} kvf__soft_targets;
/* After fwd: what this pass gives as a teacher, ids [n_labels, k], logp [n_labels, k + 1]. ENUMERIC
 * if a logit is not finite. */
kvf_status kvf__pass_lm_top(kvf_ctx *ctx, kvf__pass *pass, int64_t k, int32_t *ids, float *logp);
/* After fwd: logits [n_labels, V], f32. */
kvf_status kvf__pass_lm_logits(kvf_ctx *ctx, kvf__pass *pass, float *logits);
/* Where gradients go: what is set is added to. Without vectors (and block) the pass ends at the
 * lowest layer's prefix. */
typedef struct kvf__grads {
    kvf__prefix *prefix;   /* needed where the input has one; masked layers stay untouched */
    kvf__vectors *vectors; /* those that the batch does not name stay untouched */
    bool block;            /* of the parameters that the model publishes */
    const struct kvf__grads *sections; /* [n_sections] where the input has them: their prefix and
                                          vectors, in place of those above */
    /* Called as soon as this pass has added all it has to a layer of the prefix's gradient, from
     * the last layer down, so that it can be sent on while the next is computed. NULL: nobody
     * waits. */
    void (*layer_done)(void *user, int64_t l);
    void *user;
} kvf__grads;
/* After a loss with gradient (loss.h): *into += d(scale * loss)/d what it names. */
kvf_status kvf__pass_bwd(kvf_ctx *ctx, kvf__pass *pass, const kvf__grads *into);

/* Seconds by component since the pass was created ("qkv", "attention", ...), for bench and logs. */
typedef struct kvf__timing {
    const char *name;
    double seconds;
} kvf__timing;
size_t kvf__pass_timings(const kvf__pass *pass, kvf__timing *out, size_t max);

#endif
