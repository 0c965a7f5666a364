/* The prefix tensor, the only thing that passes between encoder and base, in both directions.
 *
 * Value and gradient have the same type: kv [L, 2, G, P, D], f32, key before value, keys as they
 * sit in a Hugging Face cache (half-split head order, after RoPE, never rotated again). No batch
 * axis: every row reads the same memory, and a gradient is already summed over the rows. P = 0 is
 * legal and means "no prefix".
 *
 * The flat view of PEFT and P-tuning v2 is [P, 2*L*G*D]: flat[p][((2*l + kv)*G + g)*D + d]. */
#ifndef KVF_PREFIX_H
#define KVF_PREFIX_H

#include "base_int.h"
#include "param.h"

#define KVF__LOG_WEIGHT "log_weight" /* its name among parameters and datasets */
/* Its largest absolute value: scores of attention stay numbers. */
#define KVF__MOST_LOG_WEIGHT 1e4f

typedef struct kvf__prefix {
    int64_t L, G, P, D;
    float *kv; /* [L, 2, G, P, D], owned */
    uint8_t
        *layer_mask;   /* [L], owned: 0 = this layer has no prefix segment (its values are zeros) */
    float *log_weight; /* [L, G, P], owned: added to the scores of its keys (attention.h), 0 in
                          masked layers; NULL: none */
} kvf__prefix;

/* Zeros, every layer on. */
kvf_status kvf__prefix_init(kvf_ctx *ctx, kvf__prefix *out, int64_t L, int64_t G, int64_t P,
                            int64_t D);
void kvf__prefix_done(kvf__prefix *prefix);
size_t kvf__prefix_count(const kvf__prefix *prefix); /* L * 2 * G * P * D */
/* Of log-weights: L * G * P. */
size_t kvf__prefix_weights(const kvf__prefix *prefix);
/* Gives it log-weights, all 0, if it has none. */
kvf_status kvf__prefix_weigh(kvf_ctx *ctx, kvf__prefix *prefix);
/* Those of another of its shape; where that has none, none. */
kvf_status kvf__prefix_take_weights(kvf_ctx *ctx, kvf__prefix *to, const kvf__prefix *from);
/* Adds them to a list of parameters, if it has them; the gradient, if any, is that of *d. */
kvf_status kvf__log_weight_param(kvf_ctx *ctx, const kvf__prefix *prefix, const kvf__prefix *d,
                                 kvf__params *params);
/* ENUMERIC, EFORMAT: they are not finite, too large, or not 0 in a masked layer. */
kvf_status kvf__prefix_check_weights(kvf_ctx *ctx, const char *where, const kvf__prefix *prefix);
void kvf__prefix_from_flat(kvf__prefix *prefix, const float *flat /* [P, 2LGD] */);
void kvf__prefix_to_flat(const kvf__prefix *prefix, float *flat);
/* Zeros in layers that the mask leaves out. */
void kvf__prefix_clear_masked(kvf__prefix *prefix);

#endif
