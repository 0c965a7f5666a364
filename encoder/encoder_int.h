/* Encoders: trainable parameters that emit what conditions the base: a prefix (port kv) or virtual
 * token embeddings (port embed). A kind is a row of the table in encoder.c and
 * a file enc_<kind>.c; whoever trains sees only this: parameters out, emitted value out, its
 * gradient in. The encoder has no batch axis, so it costs the same for any number of rows
 * (docs/maths.md). */
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
    const kvf__kv_heads
        *heads;       /* [L + 1] where layers differ in G and D, copied; NULL: they do not */
    int64_t M;        /* hidden width of `mlp` and `p-tuning`; ignored by others */
    int64_t C;        /* width of the base; needed by port embed */
    const char *form; /* of `p-tuning`: "lstm" or "mlp"; NULL: the first */
    /* Of the base, L layers and P positions, where kvf__encoder_needs_projections: create takes
     * them (and empties these), whatever its outcome. */
    kvf__kv_projections *projections;
} kvf__encoder_shape;

/* What an encoder emits, or its gradient: exactly one is set, by the method's port. */
typedef struct kvf__emitted {
    kvf__prefix *prefix;   /* kv */
    kvf__vectors *vectors; /* embed */
} kvf__emitted;

/* method: "mlp" (P-tuning v2, Li & Liang: embedding [P, W], Linear(W, M), tanh, Linear(M, N)),
 * "direct" (the flat prefix [P, N] itself) or "projected" ([P, C] for each layer, through its
 * frozen projections); N = 2*L*G*D, W = G*D, or the sum over layers and the largest of them.
 * Parameters start at zero. EUSAGE: unknown method, P < 1, M < 1. */
kvf_status kvf__encoder_create(kvf_ctx *ctx, const char *method, const kvf__encoder_shape *shape,
                               kvf__encoder **out);
/* Such a method starts from real words as layers read them, not from what they leave there. */
bool kvf__encoder_needs_projections(const char *method);
void kvf__encoder_free(kvf__encoder *encoder);
const kvf__method *kvf__encoder_method(const kvf__encoder *encoder);
const kvf__encoder_shape *kvf__encoder_shape_of(const kvf__encoder *encoder);
kvf__kv_shape kvf__encoder_kv(const kvf__encoder_shape *shape); /* a view */

/* The list of parameters; values and gradients are the encoder's own memory, valid until it is
 * freed. */
kvf__params *kvf__encoder_params(kvf__encoder *encoder);

/* The natural step (docs/maths.md): what an optimizer steps is, in place of the weight and bias of
 * the last layer, what they emit. Of encoders where kvf__encoder_is_reparameterized. */
bool kvf__encoder_is_reparameterized(const kvf__encoder *encoder);
kvf_status kvf__encoder_make_natural(kvf_ctx *ctx, kvf__encoder *encoder);
/* What an optimizer steps: the parameters, or, of a natural one, those before the last layer and
 * "prefix" [P, width], whose gradient is that of what was emitted and whose value, zero before the
 * optimizer's step, is the change it wants. Valid until the next call; lr_scale as it is now. */
const kvf__params *kvf__encoder_steps(kvf__encoder *encoder);
/* Of `direct` and of a natural one: the values of the prefix step by Muon (param.h). */
void kvf__encoder_values_by_muon(kvf__encoder *encoder);
/* After the optimizer's step: of a natural one the last layer takes the smallest change that makes
 * it, given the hidden rows of the last fwd; decay: its values are multiplied by it before. */
kvf_status kvf__encoder_take_step(kvf_ctx *ctx, kvf__encoder *encoder, double decay);

/* out (a prefix of the same L, G, P, D, or vectors of the same P, C) = what the parameters emit
 * now, zeros in layers that its mask leaves out. bwd, after fwd: sets every gradient; they hold
 * until the next fwd. It does not add, because sums over rows and parts of a step are taken in the
 * gradient of what was emitted, where they are small: bwd runs once in a step. */
kvf_status kvf__encoder_fwd(kvf_ctx *ctx, kvf__encoder *encoder, kvf__emitted out);
kvf_status kvf__encoder_bwd(kvf_ctx *ctx, kvf__encoder *encoder, kvf__emitted gradient);

/* As torch: embedding N(0,1), Linear U(+-1/sqrt(fan_in)), direct N(0, 0.02); or as P-tuning v2: all
 * weights N(0, 0.02), biases 0. */
void kvf__encoder_init_random(kvf__encoder *encoder, bool ptuning_v2, uint64_t seed);
/* Emits zeros: `mlp` sets its last layer to zero and leaves the rest. EUSAGE where a base's biases
 * forbid it. */
kvf_status kvf__encoder_init_zero(kvf_ctx *ctx, kvf__encoder *encoder);
/* True if the method can start from given keys and values, or vectors. */
bool kvf__encoder_reaches(const char *method);
/* Of such a method only: layer l reads words + l * stride, [P, C]; stride 0: all read the same. */
void kvf__encoder_init_words(kvf__encoder *encoder, const float *words, int64_t stride);
/* Emits `target`: `direct` copies it; `mlp` adds to its last layer the minimum-norm change that
 * reaches it, solved in f64. *residual = |emitted - target| / |target|, at most 1e-4 for P <=
 * min(M, G*D). Call init_random first. EUSAGE: the method cannot reach any given value. */
kvf_status kvf__encoder_init_target(kvf_ctx *ctx, kvf__encoder *encoder, kvf__emitted target,
                                    double *residual);
/* EUSAGE where that residual is above 1e-2, unless `approximate`; `where` names the target. */
kvf_status kvf__encoder_check_fit(kvf_ctx *ctx, const kvf__encoder *encoder, const char *where,
                                  double residual, bool approximate);
/* Copies values in by name. EFORMAT/ESHAPE: a name is missing or has other dims; `where` names the
 * source. */
kvf_status kvf__encoder_load(kvf_ctx *ctx, kvf__encoder *encoder, const char *where,
                             const kvf__params *from);

/* The same from a table of any float types (a safetensors state dict). Tensors the encoder does not
 * know are refused (EFORMAT). */
kvf_status kvf__encoder_read_table(kvf_ctx *ctx, kvf__encoder *encoder, const char *where,
                                   const kvf__table *table);

/* Sets lr_scale of every parameter. per_parameter: 1 for all. Else one Adam step moves the
 * emitted keys and values about as far as it moves a direct prefix: of `mlp`: last weight 1/k (k:
 * mean over virtual tokens of the L1 norm of the hidden row, *k in/out: used if > 0, else measured
 * now and returned), last bias 1/2, first layer and embedding 1/100. */
kvf_status kvf__encoder_lr_units(kvf_ctx *ctx, kvf__encoder *encoder, bool per_parameter,
                                 double *k);
/* Those rates of all layers but the last times `factor`. */
void kvf__encoder_slow_below_last(kvf__encoder *encoder, double factor);

#endif
