/* Private to encoder/: the encoder object and the row of a kind. */
#ifndef KVF_ENCODER_PRIV_H
#define KVF_ENCODER_PRIV_H

#include "encoder_int.h"
#include "lstm.h"

/* One kind: its forward and backward function. Memory, initial values and files follow from its
 * parameters and linear layers. */
typedef struct kvf__encoder_kind {
    const char *method;
    const char *form; /* name of a form; each form of a method is a kind of its own, the default
                         first; NULL: the method has one form */
    bool hidden;      /* has a hidden width M */
    bool projected;   /* uses the base's projections in shape.projections */
    bool tanh;        /* activation between the linear layers is tanh, else ReLU */
    /* Adds the parameters (name, dimensions) and linear layers. encoder.c allocates their
     * memory. */
    kvf_status (*describe)(kvf_ctx *ctx, kvf__encoder *encoder);
    kvf_status (*fwd)(kvf_ctx *ctx, kvf__encoder *encoder, float *flat);
    /* Reads the gradient from encoder->flat. */
    kvf_status (*bwd)(kvf_ctx *ctx, kvf__encoder *encoder);
    /* Changes parameters so that the next fwd emits `change` [P, width] more than the last one.
     * NULL: the kind cannot emit given values, and starts at random. */
    kvf_status (*shift)(kvf_ctx *ctx, kvf__encoder *encoder, const double *change);
    /* Sets lr_scale as kvf__encoder_lr_units does; NULL: the same rate for all parameters. */
    kvf_status (*lr_units)(kvf_ctx *ctx, kvf__encoder *encoder, double *k);
} kvf__encoder_kind;

enum { KVF__ENCODER_LINEARS = 3, KVF__ENCODER_LSTMS = 2 };

/* A linear layer with its input and the gradient of its output. The encoder ends with the last
 * one. */
typedef struct kvf__encoder_linear {
    size_t weight; /* index of the weight; the bias is the next parameter */
    int64_t in, out;
    float *x; /* [P, in] input; a view of a parameter unless the weight's gradient stays factored */
    float *dy; /* [P, out] gradient of the output before the activation */
} kvf__encoder_linear;

/* An encoder, or one of its parts: the first emits keys and values, or vectors, the second neurons.
 * A part of P = 0 has no parameters. */
struct kvf__encoder {
    const kvf__encoder_kind *kind;
    const kvf__method *method;
    kvf__encoder_shape shape; /* P: rows of the part */
    kvf__encoder *next;       /* the part of the neurons, owned; NULL: none, or this is it */
    bool emits_neurons;
    kvf__params all, all_steps; /* first part: the lists of both parts */
    kvf__kv_heads *heads;       /* shape.heads, owned */
    int64_t width; /* columns of the flat view: 2 * L * G * D (kv), C (embed) or of neurons.h */
    kvf__params params;
    void *memory; /* block that holds the arrays below and the parameters */
    float *flat;  /* [P, width] */
    struct {
        kvf__params list; /* list of kvf__encoder_steps; n = 0: the parameters themselves */
        float *change;    /* [P, width] wanted change of the emitted value */
        float *solved;    /* [P, width] */
        float *inverse;   /* [P, P] */
        double *gram;     /* [2, P, P] scratch */
        void *memory;     /* block of these four */
    } natural;
    kvf__encoder_linear linears[KVF__ENCODER_LINEARS];
    int n_linears;
    struct {
        kvf__lstm *layer[KVF__ENCODER_LSTMS]; /* LSTM layers; NULL: none */
        float *between, *dbetween; /* [P, 2M] output of the first layer, input of the second, and
                                      its gradient */
        float *dy;                 /* [P, 2M] gradient of the second layer's output */
    } lstm;
    kvf__kv_projections projections; /* projected; owned */
    char *names;                     /* parameter names that are not constants */
    float *work;                     /* projected: scratch for a projection */
};

extern const kvf__encoder_kind kvf__enc_mlp, kvf__enc_direct, kvf__enc_projected, kvf__enc_prompt,
    kvf__enc_ptuning_lstm, kvf__enc_ptuning_mlp;

/* Appends a parameter without memory. columns 0: a vector. */
kvf_status kvf__encoder_add(kvf_ctx *ctx, kvf__encoder *encoder, const char *name, int64_t rows,
                            int64_t columns);

/* Implementations of `shift`: for a kind whose only parameter is the emitted value, and for one
 * that ends in a linear layer. */
kvf_status kvf__encoder_shift_values(kvf_ctx *ctx, kvf__encoder *encoder, const double *change);
kvf_status kvf__encoder_shift_last_layer(kvf_ctx *ctx, kvf__encoder *encoder, const double *change);

/* ---- linear layers (linear.c) ---------------------------------------------------------------- */

/* Appends a layer and its two parameters. outer: keep the gradient of its weight factored
 * (wide.h). */
kvf_status kvf__encoder_add_linear(kvf_ctx *ctx, kvf__encoder *encoder, const char *weight,
                                   const char *bias, int64_t in, int64_t out, bool outer);
/* Computes the input of the last layer from the first layer's x. */
void kvf__encoder_linears_hidden(kvf__encoder *encoder);
/* Computes the last layer after linears_hidden. */
void kvf__encoder_linears_fwd(kvf__encoder *encoder, float *flat);
/* Computes the gradients of all layers. dx: gradient of the first layer's input. */
kvf_status kvf__encoder_linears_bwd(kvf_ctx *ctx, kvf__encoder *encoder, float *dx);

/* Computes inverse = (A A^T + ridge)^-1 [P, P] with A = [h | 1], h [P, M], for ridge-regularised
 * minimum-norm changes of the last layer. gram: [2, P, P] scratch. */
void kvf__last_layer_inverse(float *inverse, double *gram, const float *h, int64_t P, int64_t M);
/* Adds the minimum-norm change to w [N, M] and b [N] that increases h w^T + b by change [P, N]. */
kvf_status kvf__last_layer_shift(kvf_ctx *ctx, float *w, float *b, const float *h,
                                 const double *change, int64_t P, int64_t M, int64_t N);

#endif
