/* The rate of oneDNN on a model's own products, and the operations that a step cannot do without.
 */
#ifndef KVF_PROBE_H
#define KVF_PROBE_H

#include "packed_model.h"

/* Multiply-adds count as 2 operations. Floor: what a step cannot do without, the layers' products
 * forward and for the gradient of their inputs, and the head on labelled rows: 4 * weights of the
 * layers * tokens + 4 * V * C * labels. Attention, norms and the like are no part of it; nor is it
 * lowered by what the pass leaves out (the last layer's unlabelled rows, all below the first
 * prefix), so that a share of the rate above 1 is possible in principle. */
double kvf__model_floor_flops(const kvf__model *model, int64_t tokens, int64_t labels);

/* Times the products of a forward pass of so many tokens and labels one by one, on the model's own
 * packed weights of layer 0 and memory that is hot from the run before. */
typedef struct kvf__probe kvf__probe;
typedef struct kvf__rates {
    double step; /* FLOP/s: operations of all products over the sum of their times, each as often as
                    a forward pass has it */
    double reference; /* FLOP/s of [512, 768] x [768, 3072] alone: one figure to compare machines
                         and shapes by */
} kvf__rates;
kvf_status kvf__probe_create(kvf_ctx *ctx, const kvf__model *model, int64_t tokens, int64_t labels,
                             kvf__probe **out);
void kvf__probe_free(kvf__probe *probe);
/* One measurement, about a tenth of a step; allocates nothing. */
kvf_status kvf__probe_run(kvf_ctx *ctx, kvf__probe *probe, kvf__rates *out);

#endif
