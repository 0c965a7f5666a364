/* The prefix tensor, the interface between encoder and base in both directions.
 *
 * Value and gradient have the same type: kv [L, 2, G, P, D], f32, key before value. Keys are as in
 * a Hugging Face cache: half-split head order, after RoPE, never rotated again. There is no batch
 * axis: every row uses the same memory, and a gradient is already summed over rows. P = 0 is
 * allowed and means "no prefix".
 *
 * If layers differ in their heads, the tensor is the concatenation of its layers, [2, G, P, D] each
 * with G and D of its own. kvf__prefix_at locates a layer in either case. L counts the layers with
 * keys and values of their own.
 *
 * The flat view of PEFT and P-tuning v2 is [P, 2*L*G*D]: flat[p][((2*l + kv)*G + g)*D + d], or [P,
 * sum of 2*G*D over the layers]. */
#ifndef KVF_PREFIX_H
#define KVF_PREFIX_H

#include "neurons.h"
#include "param.h"

#define KVF__LOG_WEIGHT  "log_weight"  /* name among parameters and datasets */
#define KVF__MIXER_STATE "mixer_state" /* the same for the state before rows */
/* Largest absolute value of a log-weight, which keeps attention scores finite. */
#define KVF__MOST_LOG_WEIGHT 1e4f

/* Heads of a layer, if layers differ. */
typedef struct kvf__kv_heads {
    int64_t G, D;
    int64_t heads, width; /* sums of G and of G * D over the previous layers */
} kvf__kv_heads;

/* Value of G and D if layers differ: an invalid size, which no computation can use. */
enum { KVF__BY_LAYER = -1 };
/* Layers and heads of a prefix. */
typedef struct kvf__kv_shape {
    int64_t L, G, D;
    const kvf__kv_heads *heads; /* [L + 1], borrowed; NULL: every layer has G and D */
} kvf__kv_shape;
kvf__kv_heads kvf__kv_at(const kvf__kv_shape *shape, int64_t l); /* l = L: sums over all layers */
bool kvf__kv_same(const kvf__kv_shape *a, const kvf__kv_shape *b);
/* Copies the list of heads; NULL if there is none. */
kvf_status kvf__kv_copy_heads(kvf_ctx *ctx, const kvf__kv_shape *shape, kvf__kv_heads **out);
/* Formats "[4, 2, 2, 20, 8]", or "[2, G, 20, D] with G x D of 2 x 8, 1 x 16, ..."; P below 0:
 * "P". */
enum { KVF__KV_TEXT = 192 };
const char *kvf__kv_text(char buf[KVF__KV_TEXT], const kvf__kv_shape *shape, int64_t P);
/* Formats "L=4 G=2 D=8", or the list. */
const char *kvf__heads_text(char buf[KVF__KV_TEXT], const kvf__kv_shape *shape);

typedef struct kvf__prefix {
    int64_t L, G, P, D;
    float *kv; /* [L, 2, G, P, D], or the concatenated layers, owned */
    /* [L + 1], owned, if layers differ; G and D are then KVF__BY_LAYER; else NULL */
    kvf__kv_heads *heads;
    /* [L], owned; 0: the layer has no prefix segment, and its values are zeros */
    uint8_t *layer_mask;
    float *log_weight; /* [L, G, P], owned: added to the scores of the keys (attention.h), 0 in
                          masked layers; NULL: none */
    int64_t near; /* first layer (of the decoder) whose keys take the relative bias of tokens right
                     before the row's own; 0: none */
    kvf__neurons neurons; /* the half in the feed-forward blocks, owned; N = 0: none */
    /* [states] states of all layers without attention after the prefix's text (desc.h), owned;
     * NULL: rows begin with zeros */
    float *state;
    int64_t states;
} kvf__prefix;

/* One layer: keys [G, P, D], then values [G, P, D]. */
typedef struct kvf__prefix_layer {
    int64_t G, D, n; /* n: number of keys' elements, equal to that of values */
    float *k, *v;
    float *log_weight; /* [G, P]; NULL: none */
} kvf__prefix_layer;
kvf__prefix_layer kvf__prefix_at(const kvf__prefix *prefix, int64_t l);
kvf__kv_shape kvf__prefix_shape(const kvf__prefix *prefix); /* a view */

/* Creates a prefix of zeros with every layer on. */
kvf_status kvf__prefix_create(kvf_ctx *ctx, kvf__prefix *out, const kvf__kv_shape *shape,
                              int64_t P);
/* Creates a prefix of zeros with the layers, heads, lengths, bias and state of another. */
kvf_status kvf__prefix_like(kvf_ctx *ctx, kvf__prefix *out, const kvf__prefix *other);
/* EUNSUPPORTED: KVF__BY_LAYER. */
kvf_status kvf__prefix_init(kvf_ctx *ctx, kvf__prefix *out, int64_t L, int64_t G, int64_t P,
                            int64_t D);
void kvf__prefix_done(kvf__prefix *prefix);
/* Replaces the state by a copy of n floats, at the same place if there were n; from NULL: removes
 * it. */
kvf_status kvf__prefix_set_state(kvf_ctx *ctx, kvf__prefix *prefix, const float *from, int64_t n);
kvf_status kvf__prefix_zero_state(kvf_ctx *ctx, kvf__prefix *prefix, int64_t n); /* n zeros */
size_t kvf__prefix_count(const kvf__prefix *prefix); /* L * 2 * G * P * D, or the sum over layers */
/* Returns the number of log-weights: L * G * P. */
size_t kvf__prefix_weights(const kvf__prefix *prefix);
/* Adds log-weights of 0 if there are none. */
kvf_status kvf__prefix_weigh(kvf_ctx *ctx, kvf__prefix *prefix);
/* Copies the log-weights of a prefix with the same shape, or removes them if it has none. */
kvf_status kvf__prefix_take_weights(kvf_ctx *ctx, kvf__prefix *to, const kvf__prefix *from);
/* Appends the log-weights, if any, to a list of parameters; the gradient is that of *d, if
 * given. */
kvf_status kvf__log_weight_param(kvf_ctx *ctx, const kvf__prefix *prefix, const kvf__prefix *d,
                                 kvf__params *params);
/* ENUMERIC, EFORMAT: log-weights are not finite, too large, or not 0 in a masked layer. */
kvf_status kvf__prefix_check_weights(kvf_ctx *ctx, const char *where, const kvf__prefix *prefix);
void kvf__prefix_from_flat(kvf__prefix *prefix, const float *flat /* [P, 2LGD] */);
void kvf__prefix_to_flat(const kvf__prefix *prefix, float *flat);
/* Copies keys, values and (if both have them) log-weights of n tokens of `from`, from `first` on,
 * to those of `to` from `at` on. Both have the same layers and heads. */
void kvf__prefix_copy_tokens(kvf__prefix *to, int64_t at, const kvf__prefix *from, int64_t first,
                             int64_t n);
/* Zeroes masked layers. */
void kvf__prefix_clear_masked(kvf__prefix *prefix);

#endif
