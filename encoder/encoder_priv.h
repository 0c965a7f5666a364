/* Inside encoder/: the object and the row of a kind. */
#ifndef KVF_ENCODER_PRIV_H
#define KVF_ENCODER_PRIV_H

#include "encoder_int.h"

typedef struct kvf__encoder_kind {
    const char *method;
    /* Fills encoder->params (name, dims) and scratch sizes; memory is taken by encoder.c. */
    kvf_status (*describe)(kvf_ctx *ctx, kvf__encoder *encoder);
    kvf_status (*fwd)(kvf_ctx *ctx, kvf__encoder *encoder, float *flat);
    kvf_status (*bwd)(kvf_ctx *ctx, kvf__encoder *encoder, const float *dflat);
    void (*init_random)(kvf__encoder *encoder, const char *scheme, uint64_t seed);
    void (*init_zero)(kvf__encoder *encoder);
    /* Moves the parameters so that fwd emits flat += change. */
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
};

extern const kvf__encoder_kind kvf__enc_mlp, kvf__enc_direct;

/* Appends a parameter to the list; memory is assigned later. */
kvf_status kvf__encoder_add(kvf_ctx *ctx, kvf__encoder *encoder, const char *name, int64_t rows,
                            int64_t columns);
void kvf__fill_normal(float *out, int64_t n, double deviation, uint64_t seed, uint64_t stream);
void kvf__fill_uniform(float *out, int64_t n, double bound, uint64_t seed, uint64_t stream);

#endif
