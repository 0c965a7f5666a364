/* Encoders: trainable parameters that emit a prefix (port kv) or virtual token embeddings (port
 * embed). A kind is a row of the table in encoder.c and a file enc_<kind>.c. Training code sees
 * three things: the parameters, the emitted value and its gradient. The encoder has no batch axis,
 * so its cost does not depend on the number of rows (docs/maths.md). */
#ifndef KVF_ENCODER_INT_H
#define KVF_ENCODER_INT_H

#include "kv_projection.h"
#include "method.h"
#include "prefix.h"
#include "vectors.h"
#include "view.h"

typedef struct kvf__encoder kvf__encoder;

typedef struct kvf__encoder_shape {
    int64_t L, G, P, D;
    /* [L + 1] per-layer heads, copied; NULL: all layers have the same G and D */
    const kvf__kv_heads *heads;
    int64_t M;        /* hidden width of `mlp` and `p-tuning`; ignored by others */
    int64_t C;        /* width of the base; needed by port embed */
    const char *form; /* form of `p-tuning`: "lstm" or "mlp"; NULL: the first */
    /* `mlp` and `direct`: virtual neurons emitted by a second part of the encoder, with N in place
     * of P and parameters named "neurons.*". N = 0: none. With them P may be 0. */
    kvf__neuron_shape neurons;
    int64_t neurons_M; /* hidden width of that part of `mlp`; 0: from M and N */
    /* Projections of the base with L layers and P positions, if kvf__encoder_needs_projections.
     * create takes ownership and empties *projections, even on failure. */
    kvf__kv_projections *projections;
} kvf__encoder_shape;

/* The emitted value, or its gradient. Exactly one member is set, depending on the port of the
 * method. */
typedef struct kvf__emitted {
    kvf__prefix *prefix;   /* port kv */
    kvf__vectors *vectors; /* port embed */
} kvf__emitted;

/* Creates an encoder with zero parameters. method: a name of encoder.c. "mlp" (P-tuning v2, Li &
 * Liang): embedding [P, W], Linear(W, M), tanh, Linear(M, N). "direct": the flat prefix [P, N].
 * "projected": [P, C] for each layer, through its frozen projections. N = 2*L*G*D and W = G*D;
 * where layers differ, the sum over layers and the largest. EUSAGE: unknown method, P < 1, M <
 * 1. */
kvf_status kvf__encoder_create(kvf_ctx *ctx, const char *method, const kvf__encoder_shape *shape,
                               kvf__encoder **out);
/* Returns whether the method uses the base's projections. It then starts from the layers' inputs
 * for real words, not from their keys and values. */
bool kvf__encoder_needs_projections(const char *method);
void kvf__encoder_free(kvf__encoder *encoder);
const kvf__method *kvf__encoder_method(const kvf__encoder *encoder);
const kvf__encoder_shape *kvf__encoder_shape_of(const kvf__encoder *encoder);
kvf__kv_shape kvf__encoder_kv(const kvf__encoder_shape *shape); /* a view */

/* Returns the parameters. The encoder owns their values and gradients. */
kvf__params *kvf__encoder_params(kvf__encoder *encoder);

/* The natural step (docs/maths.md): the optimizer updates the emitted values instead of the last
 * layer's weight and bias. For encoders with kvf__encoder_is_reparameterized. */
bool kvf__encoder_is_reparameterized(const kvf__encoder *encoder);
kvf_status kvf__encoder_make_natural(kvf_ctx *ctx, kvf__encoder *encoder);
/* Returns the list that the optimizer updates: the parameters or, with a natural step, those before
 * the last layer and "prefix" [P, width], for neurons "neurons" [N, width]. The gradient of
 * "prefix" is that of the emitted value. Its value is zero before the optimizer's step and the
 * wanted change after it. Valid until the next call; copies the current lr_scale. */
const kvf__params *kvf__encoder_steps(kvf__encoder *encoder);
/* Marks the prefix values for Muon (param.h). For `direct` and encoders with a natural step. */
void kvf__encoder_values_by_muon(kvf__encoder *encoder);
/* Completes the optimizer's step. With a natural step, first multiplies the last layer by `decay`,
 * then adds the smallest change that makes the wanted change, given the hidden rows of the last
 * fwd. */
kvf_status kvf__encoder_take_step(kvf_ctx *ctx, kvf__encoder *encoder, double decay);

/* fwd: writes the emitted value to out (a prefix of the same L, G, P, D, or vectors of the same P,
 * C), zero in masked layers. bwd, after fwd: overwrites every gradient; they are valid until the
 * next fwd. It runs once per step, because sums over rows and micro-batches are taken in the
 * smaller gradient of the emitted value. */
kvf_status kvf__encoder_fwd(kvf_ctx *ctx, kvf__encoder *encoder, kvf__emitted out);
kvf_status kvf__encoder_bwd(kvf_ctx *ctx, kvf__encoder *encoder, kvf__emitted gradient);

/* Sets initial values as torch does: the first parameter (the embedding; for direct and prompt the
 * only one) N(0, 1), the others U(+-1/sqrt(fan_in)). With ptuning_v2, and always for projected:
 * weights N(0, 0.02), biases 0. */
void kvf__encoder_init_random(kvf__encoder *encoder, bool ptuning_v2, uint64_t seed);
/* Makes the encoder emit zeros. With linear layers only the last is set to zero. EUSAGE: the biases
 * of the base prevent it. */
kvf_status kvf__encoder_init_zero(kvf_ctx *ctx, kvf__encoder *encoder);
/* Returns whether the method can start from given keys and values, or vectors. */
bool kvf__encoder_reaches(const char *method);
/* Copies words + l * stride [P, C] to the input of layer l. For methods with
 * kvf__encoder_needs_projections. stride 0: the same words for all layers. */
void kvf__encoder_init_words(kvf__encoder *encoder, const float *words, int64_t stride);
/* Makes the encoder emit `target`. `direct` copies it; `mlp` adds the minimum-norm change to its
 * last layer, solved in f64. *residual = |emitted - target| / |target|, at most 1e-4 for P <=
 * min(M, G*D). Call init_random first. EUSAGE: the method cannot emit a given value. */
kvf_status kvf__encoder_init_target(kvf_ctx *ctx, kvf__encoder *encoder, kvf__emitted target,
                                    double *residual);
/* Checks a residual. EUSAGE: it exceeds 1e-2 and `approximate` is false. `where` names the
 * target. */
kvf_status kvf__encoder_check_fit(kvf_ctx *ctx, const kvf__encoder *encoder, const char *where,
                                  double residual, bool approximate);
/* Makes the encoder emit the neurons of *target; its zeros are emitted as exact zeros. Call
 * init_random first. *residual as above. */
kvf_status kvf__encoder_init_neurons(kvf_ctx *ctx, kvf__encoder *encoder,
                                     const kvf__neurons *target, double *residual);
/* Copies values by name. EFORMAT, ESHAPE: a name is missing or has other dimensions; `where` names
 * the source. */
kvf_status kvf__encoder_load(kvf_ctx *ctx, kvf__encoder *encoder, const char *where,
                             const kvf__params *from);

/* Copies values from a table of any float types (a safetensors state dict). The part of the neurons
 * keeps its values if the table has none of them. EFORMAT: also for unknown tensors. */
kvf_status kvf__encoder_read_table(kvf_ctx *ctx, kvf__encoder *encoder, const char *where,
                                   const kvf__table *table);

/* Sets lr_scale of every parameter. per_parameter: 1 for all. Otherwise one Adam step moves the
 * emitted keys and values about as far as that of a direct prefix. For `mlp`: 1/k for the last
 * weight, 1/2 for the last bias, 1/100 for the first layer and the embedding. k is the mean L1 norm
 * of the hidden rows. *k > 0 is used as given, else measured now and returned. k[1] is that of the
 * neurons' part, if there is one. */
kvf_status kvf__encoder_lr_units(kvf_ctx *ctx, kvf__encoder *encoder, bool per_parameter,
                                 double *k);
/* Multiplies the rates of the neurons' part by `factor`. */
void kvf__encoder_scale_neurons(kvf__encoder *encoder, double factor);
/* Multiplies the rates of all layers but the last by `factor`. */
void kvf__encoder_slow_below_last(kvf__encoder *encoder, double factor);

#endif
