/* Private to src/pass: layers without attention, in a pass (pass_mixer.c) and in a step of
 * generation (decoder_mixer.c), and the gates on attention's output (pass_gate.c). */
#ifndef KVF_PASS_MIXER_H
#define KVF_PASS_MIXER_H

#include "arena.h"
#include "model_priv.h"

#include <math.h>

struct kvf__pass;

static inline float kvf__sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

/* A unit of a mixer, which threads compute separately: up to 64 channels of a short convolution, or
 * a key head of a delta rule with its value heads. Its state is the unit's pieces of the layer's
 * state (desc.h), one after the other. */
typedef struct kvf__mixer_piece {
    int64_t at, n; /* floats of the layer's state */
} kvf__mixer_piece;
enum { KVF__MIXER_PIECES = 4, KVF__MIXER_CHANNELS = 64 };
int64_t kvf__mixer_units(const kvf__desc *d);
/* Returns the floats of the largest unit's state. */
int64_t kvf__mixer_unit_state(const kvf__desc *d);
/* Sets the pieces of a unit; returns their number. */
int kvf__mixer_pieces(const kvf__desc *d, int64_t unit, kvf__mixer_piece piece[KVF__MIXER_PIECES]);
/* Copies a unit's state from or to a layer's state. from NULL: zeros. */
void kvf__mixer_take(const kvf__desc *d, int64_t unit, const float *from, float *state);
void kvf__mixer_put(const kvf__desc *d, int64_t unit, const float *state, float *to);

/* One row of n tokens: its first product and its output, in the type act. */
typedef struct kvf__mixer_row {
    const kvf__model *model;
    int64_t layer, unit, n;
    kvf__dtype act;
    const void *in;   /* [n, J] */
    void *out;        /* [n, A] */
    float *state;     /* of the unit, before the row; forward: after it */
    const void *dout; /* backward: [n, A] */
    void *din;        /* [n, J] */
    float *dstate;    /* gradient of the state after the row; becomes that of `state` */
    float *scratch;   /* kvf__mixer_scratch() floats */
} kvf__mixer_row;
/* Returns the floats of scratch memory of a row of at most n tokens. */
int64_t kvf__mixer_scratch(const kvf__desc *d, int64_t n);
void kvf__mixer_row_fwd(const kvf__mixer_row *row); /* out NULL: the state alone */
void kvf__mixer_row_bwd(const kvf__mixer_row *row);

/* Working memory of a pass. */
typedef struct kvf__pass_mixer {
    float *scratch; /* [threads, kvf__mixer_scratch()] */
    /* [threads, rows, unit's state] states after rows, and their gradients; one row without common
     * prefixes */
    float *state, *dstate;
    float *before; /* [threads, unit's state] */
    int64_t rows;
    void *gated;  /* [Mx, HD] attention's output times its gate; NULL: no gates */
    float *token; /* [threads, 3, HD] scratch of gates */
} kvf__pass_mixer;
void kvf__pass_lay_mixer(struct kvf__pass *pass, kvf__carver *carve, int64_t M);
/* Run the mixer of layer l: kept att from kept qkv; dqkv from datt. */
void kvf__pass_mixer_fwd(struct kvf__pass *pass, int64_t l);
void kvf__pass_mixer_bwd(struct kvf__pass *pass, int64_t l);
/* Returns the input of layer l's out product, att or, with gates, their product. */
const void *kvf__pass_gate_fwd(struct kvf__pass *pass, int64_t l);
/* Turns datt into the gradient of att itself; sets the gates' part of dqkv, if `gates`. */
void kvf__pass_gate_bwd(struct kvf__pass *pass, int64_t l, bool gates);

#endif
