/* Shared by creating a decoder (decoder.c) and running a step (decoder_step.c). */
#ifndef KVF_DECODER_PRIV_H
#define KVF_DECODER_PRIV_H

#include "arena.h"
#include "decoder.h"
#include "matvec.h"
#include "pass_priv.h"

/* A dense layer as stored: [rows, K], or a part of such a matrix. */
typedef struct kvf__raw {
    const kvf__slot *slot;  /* NULL: none */
    float *bias;            /* [rows] in Hugging Face order, or NULL */
    int64_t first, rows, K; /* rows from `first` on */
} kvf__raw;

/* A norm with weights applied, not folded, because the matrix after it is the file's. */
typedef struct kvf__raw_norm {
    float *gamma, *beta; /* [C]; NULL: no norm, no beta */
} kvf__raw_norm;

typedef struct kvf__raw_layer {
    /* whole heads each: q, k, v and gates, or one fused; or the parts of a mixer's first product */
    kvf__raw qkv[4];
    kvf__raw out, gate, up, down;
    kvf__raw input_gate, input_down; /* no slot: layers have no inputs (pass_inputs.c) */
    kvf__raw_norm norm1, norm2, out_norm1, out_norm2, out_norm3;
} kvf__raw_layer;

/* Per-thread scratch memory. */
typedef struct kvf__decoder_own {
    float *xhat; /* [rows, C] output of a norm; every thread computes all of it, which costs less
                    than waiting */
    float *rstd; /* [rows] */
    float *head; /* [D] */
    float *whole_rstd;         /* [2, rows] of norms over all queries and over all keys */
    float *of_token;           /* [L, I] a row of the table for inputs of layers */
    void *product, *attention; /* scratch of the kernels */
    kvf__kvseg *segs;          /* [2, rows] prefixes, caches */
    kvf__attn_row *rows;       /* [rows] */
    float *mixer, *state;      /* scratch of a mixer, and the state of its unit */
} kvf__decoder_own;

struct kvf__decoder {
    kvf__model *model;
    const kvf__slots *slots; /* source of the weights */
    kvf__cache *cache;
    const kvf__matvec *matvec;
    int64_t rows, P, neurons; /* limits */
    int threads;
    kvf__raw_layer *layers;   /* [L] */
    kvf__raw head, inputs_of; /* inputs_of: [L I, C], no slot if layers have no inputs */
    kvf__raw_norm final;
    kvf__decoder_own *own; /* [threads] */

    float *x;            /* [rows, C] residual stream */
    float *qkv;          /* [rows, J] of the current layer, q and k rotated */
    float *att;          /* [rows, A] */
    float *half;         /* [rows, C] output of a half, if a norm follows it */
    float *inputs;       /* [rows, L, I] */
    float *h1, *h2, *g;  /* [rows, F] gate or up; up if gated; output of the activation */
    float *n1, *n2, *ng; /* [rows, neurons] the same of virtual neurons */
    float *lse;          /* [H, rows] */
    int32_t *position;   /* [rows] */
};

/* State of a thread in a step. */
typedef struct kvf__worker {
    const kvf__decoder *decoder;
    const kvf__step *step;
    struct kvf__team *team;
    const kvf__decoder_own *own;
    float *logits;
    int t, n; /* number of this thread, number of threads */
} kvf__worker;
/* Runs this thread's units of layer l's mixer: att from qkv. */
void kvf__decoder_mix(const kvf__worker *w, int64_t l);

/* Returns the number of rows just before row m that are tokens of the same slot. */
static inline int64_t kvf__step_behind(const kvf__step *step, int64_t m)
{
    int64_t n = 0;
    while (step->runs && n < m &&
           kvf__row_slot(step->slot, m - n - 1) == kvf__row_slot(step->slot, m))
        n++;
    return n;
}

/* Returns the tokens of its slot before row m. */
static inline int64_t kvf__step_length(const kvf__decoder *decoder, const kvf__step *step,
                                       int64_t m)
{
    return decoder->cache->length[kvf__row_slot(step->slot, m)] + kvf__step_behind(step, m);
}

/* Returns the condition of row m. */
static inline kvf__step_row kvf__step_row_at(const kvf__step *step, int64_t m)
{
    return step->row ? step->row[m] : (kvf__step_row){.condition = step->condition};
}

#endif
