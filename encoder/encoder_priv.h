/* Inside encoder/: the object and the row of a kind. */
#ifndef KVF_ENCODER_PRIV_H
#define KVF_ENCODER_PRIV_H

#include "encoder_int.h"

typedef struct kvf__encoder_kind {
    const char *method;
    const char *form; /* a method's forms are kinds of their own, the first is the usual one; NULL:
                         it has but one */
    bool hidden;      /* has a hidden width M */
    bool needs_projections;   /* of the base, in shape.projections */
    const char *default_init; /* NULL: that of --init */
    /* Fills encoder->params (name, dims) and scratch sizes; memory is taken by encoder.c. */
    kvf_status (*describe)(kvf_ctx *ctx, kvf__encoder *encoder);
    void (*done)(kvf__encoder *encoder); /* NULL: the kind has nothing of its own */
    kvf_status (*fwd)(kvf_ctx *ctx, kvf__encoder *encoder, float *flat);
    kvf_status (*bwd)(kvf_ctx *ctx, kvf__encoder *encoder, const float *dflat);
    void (*init_random)(kvf__encoder *encoder, const char *scheme, uint64_t seed);
    kvf_status (*init_zero)(kvf_ctx *ctx, kvf__encoder *encoder);
    /* Starts from real words, see encoder_int.h; NULL: cannot. */
    void (*init_words)(kvf__encoder *encoder, const float *words, int64_t stride);
    /* Moves the parameters so that fwd emits flat += change; NULL: cannot. */
    kvf_status (*shift)(kvf_ctx *ctx, kvf__encoder *encoder, const double *change);
    kvf_status (*lr_units)(kvf_ctx *ctx, kvf__encoder *encoder, double *k);
} kvf__encoder_kind;

struct kvf__encoder {
    const kvf__encoder_kind *kind;
    const kvf__method *method;
    kvf__encoder_shape shape;
    int64_t width; /* columns of the flat view: 2 * L * G * D (kv) or C (embed) */
    kvf__params params;
    float *values, *grads;   /* one block each, carved into the parameters (with outer: no grads) */
    float *flat;             /* [P, width] */
    float *hidden, *dhidden; /* mlp: [P, M] after tanh, and its gradient */
    void *own;               /* of the kind; released by kind->done */
    kvf__kv_projections projections; /* projected; owned */
    char *names;                     /* of parameters, where they are not constants */
    float *work;                     /* projected: scratch of a projection */
};

extern const kvf__encoder_kind kvf__enc_mlp, kvf__enc_direct, kvf__enc_projected, kvf__enc_prompt,
    kvf__enc_ptuning_lstm, kvf__enc_ptuning_mlp;

/* Appends a parameter to the list; memory is assigned later. */
kvf_status kvf__encoder_add(kvf_ctx *ctx, kvf__encoder *encoder, const char *name, int64_t rows,
                            int64_t columns);
/* sums [n] = of rows [P, n]. */
void kvf__column_sums(float *sums, const float *rows, int64_t P, int64_t n);
/* w [N, M] and b [N] so that h w^T + b grows by change [P, N]: the minimum-norm change of both. */
kvf_status kvf__last_layer_shift(kvf_ctx *ctx, float *w, float *b, const float *h,
                                 const double *change, int64_t P, int64_t M, int64_t N);
void kvf__fill_normal(float *out, int64_t n, double deviation, uint64_t seed, uint64_t stream);
void kvf__fill_uniform(float *out, int64_t n, double bound, uint64_t seed, uint64_t stream);

#endif
