/* Inside encoder/: the object and the row of a kind. */
#ifndef KVF_ENCODER_PRIV_H
#define KVF_ENCODER_PRIV_H

#include "encoder_int.h"
#include "lstm.h"

/* One kind: what it emits and how its gradient comes back. Everything else (memory, starting
 * values, files) follows from its parameters and linear layers. */
typedef struct kvf__encoder_kind {
    const char *method;
    const char *form; /* a method's forms are kinds of their own, the first is the usual one; NULL:
                         it has but one */
    bool hidden;      /* has a hidden width M */
    bool projected;   /* reads the base's projections, from shape.projections */
    bool tanh;        /* between its linear layers; else ReLU */
    /* Adds the parameters (name, dims) and linear layers; their memory is taken by encoder.c. */
    kvf_status (*describe)(kvf_ctx *ctx, kvf__encoder *encoder);
    kvf_status (*fwd)(kvf_ctx *ctx, kvf__encoder *encoder, float *flat);
    /* Given the gradient in encoder->flat. */
    kvf_status (*bwd)(kvf_ctx *ctx, kvf__encoder *encoder);
    /* Changes parameters so that the next fwd emits `change` [P, width] more than the last. NULL:
     * the kind cannot reach given values, and starts at random ones. */
    kvf_status (*shift)(kvf_ctx *ctx, kvf__encoder *encoder, const double *change);
    kvf_status (*lr_units)(kvf_ctx *ctx, kvf__encoder *encoder, double *k); /* NULL: one for all */
} kvf__encoder_kind;

enum { KVF__ENCODER_LINEARS = 3, KVF__ENCODER_LSTMS = 2 };

/* One of an encoder's linear layers, with what it read and the gradient of what it wrote. The last
 * ends the encoder. */
typedef struct kvf__encoder_linear {
    size_t weight; /* index of the parameter; the bias is the next */
    int64_t in, out;
    float *x;  /* [P, in]; a view of a parameter unless the weight's gradient stays unformed */
    float *dy; /* [P, out], of what it wrote before the function that follows */
} kvf__encoder_linear;

struct kvf__encoder {
    const kvf__encoder_kind *kind;
    const kvf__method *method;
    kvf__encoder_shape shape;
    kvf__kv_heads *heads; /* shape.heads, owned */
    int64_t width;        /* columns of the flat view: 2 * L * G * D (kv) or C (embed) */
    kvf__params params;
    void *memory; /* one block, carved into what the pointers below and in params are */
    float *flat;  /* [P, width] */
    struct {
        kvf__params list; /* what kvf__encoder_steps gives; n = 0: the parameters themselves */
        float *change;    /* [P, width] of what is emitted, that the last layer is to make */
        float *solved;    /* [P, width] */
        float *inverse;   /* [P, P] */
        double *gram;     /* [2, P, P] of scratch */
        void *memory;     /* of the four */
    } natural;
    kvf__encoder_linear linears[KVF__ENCODER_LINEARS];
    int n_linears;
    struct {
        kvf__lstm *layer[KVF__ENCODER_LSTMS]; /* NULL: there is none */
        float *between, *dbetween;            /* [P, 2M] what the first layer hands to the second */
        float *dy;                            /* [P, 2M] gradient of what the second hands on */
    } lstm;
    kvf__kv_projections projections; /* projected; owned */
    char *names;                     /* of parameters, where they are not constants */
    float *work;                     /* projected: scratch of a projection */
};

extern const kvf__encoder_kind kvf__enc_mlp, kvf__enc_direct, kvf__enc_projected, kvf__enc_prompt,
    kvf__enc_ptuning_lstm, kvf__enc_ptuning_mlp;

/* Appends a parameter to the list; memory is assigned later. columns 0: a vector. */
kvf_status kvf__encoder_add(kvf_ctx *ctx, kvf__encoder *encoder, const char *name, int64_t rows,
                            int64_t columns);

/* Values of `shift`: for a kind whose only parameter is what it emits, and for one that ends in a
 * linear layer. */
kvf_status kvf__encoder_shift_values(kvf_ctx *ctx, kvf__encoder *encoder, const double *change);
kvf_status kvf__encoder_shift_last_layer(kvf_ctx *ctx, kvf__encoder *encoder, const double *change);

/* ---- linear layers (linear.c) ---------------------------------------------------------------- */

/* Appends a layer and its two parameters. outer: the gradient of its weight stays unformed
 * (wide.h). */
kvf_status kvf__encoder_add_linear(kvf_ctx *ctx, kvf__encoder *encoder, const char *weight,
                                   const char *bias, int64_t in, int64_t out, bool outer);
/* From what the first layer reads, its x, to what the last one does. */
void kvf__encoder_linears_hidden(kvf__encoder *encoder);
/* And to what the last one writes. */
void kvf__encoder_linears_fwd(kvf__encoder *encoder, float *flat);
/* Gradients of all layers; dx: of what the first one read. */
kvf_status kvf__encoder_linears_bwd(kvf_ctx *ctx, kvf__encoder *encoder, float *dx);

/* (A A^T + ridge)^-1 [P, P] with A = [h | 1], h [P, M]: inverse * change is what a
 * ridge-regularised minimum-norm change of the layer is made of. gram: [2, P, P] of scratch. */
void kvf__last_layer_inverse(float *inverse, double *gram, const float *h, int64_t P, int64_t M);
/* w [N, M] and b [N] so that h w^T + b grows by change [P, N]: the minimum-norm change of both. */
kvf_status kvf__last_layer_shift(kvf_ctx *ctx, float *w, float *b, const float *h,
                                 const double *change, int64_t P, int64_t M, int64_t N);

#endif
