/* Adapters of Houlsby et al. 2019 (arXiv 1902.00751). Beside each of a layer's two sub-layers,
 * attention and feed-forward, a bottleneck is trained while the base is frozen:
 *
 *     A(v) = up(act(down(v)))      down [m, C], up [C, m], both with bias
 *
 * The placement decides where it reads and adds. f is the whole sub-layer with its output layer's
 * bias, s the input of f's products, and x the residual stream:
 *
 *     serial    x += f(s) + A(f(s))     Houlsby's, with the skip connection inside the adapter
 *     parallel  x += f(s) + A(s)        He et al. 2022 (arXiv 2110.04366), unscaled
 *     attn      as serial, at attention alone
 *     ffn       as serial, at the feed-forward part alone
 *
 * All of them act before the residual sum, and in post-norm blocks before the norm as well. `up`
 * and the biases start at zero, so the first output is that of the bare base. Its bits are the same
 * as with every adapter dropped. They are also the same as without adapters if oneDNN's products
 * add to their destination last (brgemm). Adapters are f32, independent of the base's activations,
 * and the same for all rows. */
#ifndef KVF_ADAPTER_H
#define KVF_ADAPTER_H

#include "kernels.h"
#include "prefix.h"

typedef enum kvf__half { KVF__HALF_ATTN, KVF__HALF_FFN, KVF__HALVES } kvf__half;

typedef enum kvf__placement {
    KVF__PLACE_SERIAL,
    KVF__PLACE_PARALLEL,
    KVF__PLACE_ATTN,
    KVF__PLACE_FFN
} kvf__placement;

typedef struct kvf__adapter_shape {
    int64_t size;    /* m; 0: no adapters */
    kvf__act_fn act; /* gelu: KVF__GELU_ERF, transformers' "gelu" */
    kvf__placement place;
} kvf__adapter_shape;

/* Parse and format the names on the command line and in files. EUSAGE lists the valid ones. */
kvf_status kvf__adapter_act_parse(kvf_ctx *ctx, const char *name, kvf__act_fn *out);
kvf_status kvf__adapter_place_parse(kvf_ctx *ctx, const char *name, kvf__placement *out);
const char *kvf__adapter_act_name(kvf__act_fn act);
const char *kvf__adapter_place_name(kvf__placement place);
/* Return the number of adapters in a layer, 2, or 1 for attn and ffn; whether a half has one. */
int64_t kvf__adapter_halves(const kvf__adapter_shape *shape);
bool kvf__adapter_has(const kvf__adapter_shape *shape, kvf__half half);

/* The adapters of a base of L layers of width C. */
typedef struct kvf__adapters kvf__adapters;
/* Creates adapters of zeros, which have no effect. gradients: allocate those too. EUSAGE: size <
 * 1. */
kvf_status kvf__adapters_create(kvf_ctx *ctx, const kvf__adapter_shape *shape, int64_t L, int64_t C,
                                bool gradients, kvf__adapters **out);
void kvf__adapters_free(kvf__adapters *adapters);
const kvf__adapter_shape *kvf__adapters_shape(const kvf__adapters *adapters);
/* Sets down to Xavier-uniform values, +-sqrt(6 / (C + m)), from a stream for each adapter; the rest
 * to zero. */
void kvf__adapters_init(kvf__adapters *adapters, uint64_t seed);
/* Return the number of parameters, 4 per adapter, and each in the order of layers:
 * "3.attn.down.weight", "3.attn.down.bias", "3.attn.up.weight", "3.attn.up.bias",
 * "3.ffn.down.weight", ... Views live as long as the adapters. */
size_t kvf__adapters_count(const kvf__adapters *adapters);
kvf__param kvf__adapters_param(const kvf__adapters *adapters, size_t i);
/* Disables the adapters of layers from .. to, as if `up` and its bias were zero. ESHAPE: no such
 * layers. */
kvf_status kvf__adapters_drop(kvf_ctx *ctx, kvf__adapters *adapters, int64_t from, int64_t to);

/* One adapter. It borrows values and gradients from the set. Gradients are added to; NULL: none. */
typedef struct kvf__bottleneck {
    int64_t C, m;
    kvf__act_fn act;
    float *down, *down_bias, *up, *up_bias;     /* [m, C], [m], [C, m], [C] */
    float *ddown, *ddown_bias, *dup, *dup_bias; /* their gradients, same shapes */
} kvf__bottleneck;

/* Returns the adapter of a layer's half, NULL: none, or disabled. */
const kvf__bottleneck *kvf__adapters_at(const kvf__adapters *adapters, int64_t l, kvf__half half);

#endif
