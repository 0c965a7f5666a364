/* The rate of oneDNN on a model's own products, and the minimum operations of a step. */
#ifndef KVF_PROBE_H
#define KVF_PROBE_H

#include "packed_model.h"

/* Returns the floor, the minimum operations of a step: 4 * weights of the layers * tokens + 4 * V *
 * C * labels. It counts the layers' products forward and for the gradient of their inputs, and the
 * head on labelled rows; a multiply-add is 2 operations. Attention, norms and the like are
 * excluded. Work that a pass skips (the last layer's unlabelled rows, layers below the first
 * prefix) is included, so a share above 1 is possible. */
double kvf__model_floor_flops(const kvf__model *model, int64_t tokens, int64_t labels);

/* Times the products of a forward pass of so many tokens and labels one by one, on the packed
 * weights of layer 0 with warm caches. */
typedef struct kvf__probe kvf__probe;
typedef struct kvf__rates {
    double step; /* FLOP/s: operations of all products divided by their total time, each as often as
                    in a forward pass */
    double reference; /* FLOP/s of the single product [512, 768] x [768, 3072], for comparing
                         machines and shapes */
} kvf__rates;
kvf_status kvf__probe_create(kvf_ctx *ctx, const kvf__model *model, int64_t tokens, int64_t labels,
                             kvf__probe **out);
void kvf__probe_free(kvf__probe *probe);
/* Runs one measurement, about a tenth of a step; does not allocate. */
kvf_status kvf__probe_run(kvf_ctx *ctx, kvf__probe *probe, kvf__rates *out);

#endif
