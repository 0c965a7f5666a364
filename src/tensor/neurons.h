/* Virtual neurons: the half of a prefix that acts in the feed-forward blocks (docs/maths.md).
 *
 * A feed-forward block is a key/value memory, act(x K^T) V (Geva et al. 2021, arXiv 2012.14913). N
 * trained pairs of a key and a value stand beside its own in each layer:
 *
 *   plain block   y += act(x key^T + bias) value
 *   gated block   y += (act(x key^T) * (x up^T)) value
 *
 * They are the parallel adapter of He et al. 2022 (arXiv 2110.04366) with the block's activation.
 * Keys are as in Hugging Face, before any folding of a norm. All arrays are f32. */
#ifndef KVF_NEURONS_H
#define KVF_NEURONS_H

#include "base_int.h"

typedef struct kvf__neuron_shape {
    int64_t L, N, C; /* layers of the base; neurons of a layer; width of the base */
    bool gated;      /* with a second key, up */
    bool biased;     /* with a bias, never together with `gated` */
} kvf__neuron_shape;
bool kvf__neuron_shape_same(const kvf__neuron_shape *a, const kvf__neuron_shape *b);
/* Returns the number of values of a neuron in one layer: 2 C, 2 C + 1 or 3 C. */
int64_t kvf__neuron_values(const kvf__neuron_shape *shape);

/* {0}: none. */
typedef struct kvf__neurons {
    kvf__neuron_shape shape;
    float *w;            /* the arrays of kvf__neuron_arrays one after the other, owned */
    uint8_t *layer_mask; /* [L], owned; 0: the layer has no neurons, and its values are zeros */
} kvf__neurons;

/* One layer. */
typedef struct kvf__neurons_layer {
    float *key, *up, *value; /* [N, C]; up NULL unless gated */
    float *bias;             /* [N]; NULL: none */
} kvf__neurons_layer;
kvf__neurons_layer kvf__neurons_at(const kvf__neurons *neurons, int64_t l);

/* One array over all layers: [L, N, C], the bias [L, N]. */
typedef struct kvf__neuron_array {
    const char *name; /* "key", or "gate" and "up"; "value"; "bias" */
    float *at;
    int64_t columns; /* values of a neuron in it: C or 1 */
} kvf__neuron_array;
enum { KVF__NEURON_ARRAYS = 4 };
/* Sets `out` to the arrays in the order of memory; returns their number. */
int kvf__neuron_arrays(const kvf__neurons *neurons, kvf__neuron_array out[KVF__NEURON_ARRAYS]);

/* Creates neurons of zeros in every layer. ENOMEM. */
kvf_status kvf__neurons_create(kvf_ctx *ctx, kvf__neurons *out, const kvf__neuron_shape *shape);
/* Copies values and mask of neurons with the same shape; none: does nothing. */
void kvf__neurons_take(kvf__neurons *to, const kvf__neurons *from);
/* Copies all neurons of `from` to those of `to` from `at` on; `to` has at least its layers. */
void kvf__neurons_place(kvf__neurons *to, int64_t at, const kvf__neurons *from);
void kvf__neurons_done(kvf__neurons *neurons);
size_t kvf__neurons_count(const kvf__neurons *neurons); /* number of values; 0: none */
/* The flat view [N, L * kvf__neuron_values]: each row has, layer by layer, a neuron's key, up or
 * bias, and value. */
void kvf__neurons_from_flat(kvf__neurons *neurons, const float *flat);
void kvf__neurons_to_flat(const kvf__neurons *neurons, float *flat);
void kvf__neurons_clear_masked(kvf__neurons *neurons); /* zeroes masked layers */

#endif
