/* The prefix tensor, the only thing that passes between encoder and base, in both directions.
 *
 * Value and gradient have the same type: kv [L, 2, G, P, D], f32, key before value, keys as they
 * sit in a Hugging Face cache (half-split head order, after RoPE, never rotated again). No batch
 * axis: every row reads the same memory, and a gradient is already summed over the rows. P = 0 is
 * legal and means "no prefix".
 *
 * Where layers differ in their heads it is the list of its layers, [2, G, P, D] each with G and D
 * of its own, one after the other; kvf__prefix_at has where a layer lies in either case. L counts
 * the layers that have keys and values of their own.
 *
 * The flat view of PEFT and P-tuning v2 is [P, 2*L*G*D]: flat[p][((2*l + kv)*G + g)*D + d], in the
 * other case [P, the sum of the layers' 2*G*D]. */
#ifndef KVF_PREFIX_H
#define KVF_PREFIX_H

#include "base_int.h"
#include "param.h"

#define KVF__LOG_WEIGHT "log_weight" /* its name among parameters and datasets */
/* Its largest absolute value: scores of attention stay numbers. */
#define KVF__MOST_LOG_WEIGHT 1e4f

/* Heads of a layer, where layers differ in them. */
typedef struct kvf__kv_heads {
    int64_t G, D;
    int64_t heads, width; /* sums of G and of G * D over the layers before */
} kvf__kv_heads;

/* In place of G and D where layers differ in them: no size, so that nothing is made of it. */
enum { KVF__BY_LAYER = -1 };
/* Which layers and heads a prefix has. */
typedef struct kvf__kv_shape {
    int64_t L, G, D;
    const kvf__kv_heads *heads; /* [L + 1], viewed; NULL: every layer has G and D */
} kvf__kv_shape;
kvf__kv_heads kvf__kv_at(const kvf__kv_shape *shape, int64_t l); /* l = L: the sums of all */
bool kvf__kv_same(const kvf__kv_shape *a, const kvf__kv_shape *b);
/* A list of its own of the same heads, NULL where there is none. */
kvf_status kvf__kv_copy_heads(kvf_ctx *ctx, const kvf__kv_shape *shape, kvf__kv_heads **out);
/* "[4, 2, 2, 20, 8]", or "[2, G, 20, D] with G x D of 2 x 8, 1 x 16, ..."; P below 0: "P". */
enum { KVF__KV_TEXT = 192 };
const char *kvf__kv_text(char buf[KVF__KV_TEXT], const kvf__kv_shape *shape, int64_t P);
/* "L=4 G=2 D=8", or the list. */
const char *kvf__heads_text(char buf[KVF__KV_TEXT], const kvf__kv_shape *shape);

typedef struct kvf__prefix {
    int64_t L, G, P, D;
    float *kv;            /* [L, 2, G, P, D], or the layers one after the other, owned */
    kvf__kv_heads *heads; /* [L + 1], owned, where layers differ, and G and D are KVF__BY_LAYER; or
                             NULL */
    uint8_t
        *layer_mask;   /* [L], owned: 0 = this layer has no prefix segment (its values are zeros) */
    float *log_weight; /* [L, G, P], owned: added to the scores of its keys (attention.h), 0 in
                          masked layers; NULL: none */
    int64_t near;      /* in layers from this one on, the decoder's, keys take the relative bias of
                          tokens right before the row's own; 0: in none */
} kvf__prefix;

/* Of a layer: keys [G, P, D], then as many values. */
typedef struct kvf__prefix_layer {
    int64_t G, D, n; /* n: of keys, or of values */
    float *k, *v;
    float *log_weight; /* [G, P]; NULL: none */
} kvf__prefix_layer;
kvf__prefix_layer kvf__prefix_at(const kvf__prefix *prefix, int64_t l);
kvf__kv_shape kvf__prefix_shape(const kvf__prefix *prefix); /* a view */

/* Zeros, every layer on. */
kvf_status kvf__prefix_create(kvf_ctx *ctx, kvf__prefix *out, const kvf__kv_shape *shape,
                              int64_t P);
/* Of the same layers, heads, length and bias as another. */
kvf_status kvf__prefix_like(kvf_ctx *ctx, kvf__prefix *out, const kvf__prefix *other);
/* EUNSUPPORTED: KVF__BY_LAYER. */
kvf_status kvf__prefix_init(kvf_ctx *ctx, kvf__prefix *out, int64_t L, int64_t G, int64_t P,
                            int64_t D);
void kvf__prefix_done(kvf__prefix *prefix);
size_t kvf__prefix_count(const kvf__prefix *prefix); /* L * 2 * G * P * D, or the sum over layers */
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
/* Keys and values of n tokens of `from`, from `first` on, become those of `to` from `at` on; both
 * have the same layers and heads. */
void kvf__prefix_copy_tokens(kvf__prefix *to, int64_t at, const kvf__prefix *from, int64_t first,
                             int64_t n);
/* Zeros in layers that the mask leaves out. */
void kvf__prefix_clear_masked(kvf__prefix *prefix);

#endif
