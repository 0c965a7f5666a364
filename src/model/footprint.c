/* Memory of a model, estimated from its description, for a forecast before a base is opened, and
 * for models too large for this machine.
 *
 * Matrices count with their elements. oneDNN pads some to whole blocks; in a real model that is
 * negligible (1 % of SmolLM2). */
#include "names.h"
#include "products.h"
#include "stored.h"

/* Elements of a layer's matrices (the mean, if layers differ), of its widest row of outputs, and of
 * the head. */
typedef struct counts {
    double layer, head;
    double widest; /* outputs of the largest piece of packing */
} counts;

static counts count(const kvf__desc *d)
{
    const int64_t layers = d->by_layer.shape || d->encoder ? d->L
                                                           : 1; /* else all equal the first */
    counts n = {.widest = KVF__VOCAB_PLANE};
    kvf__product p;

    for (int64_t l = 0; l < layers; l++)
        for (size_t i = 0; kvf__product_at(d, l, i, &p); i++) {
            n.layer += (double)p.k * (double)p.n;
            if ((double)p.n > n.widest) n.widest = (double)p.n;
        }
    n.layer /= (double)layers;
    if (kvf__weight_by_role(d, KVF__W_HEAD)) n.head = (double)d->V * (double)d->C;
    return n;
}

static double bytes_of(kvf__dtype dtype)
{
    return (double)kvf__dtype_block_bytes(dtype) / (double)kvf__dtype_block(dtype);
}

kvf__footprint kvf__model_footprint(const kvf__desc *desc, const kvf__model_options *options,
                                    kvf__dtype file)
{
    const counts n = count(desc);
    const bool packed = options->keep == KVF__KEEP_PACKED;
    const double L = (double)desc->L,
                 of_head = bytes_of(options->act) * (options->backward ? 2 : 1);
    const double of_layer = options->int8 ? options->backward ? 2 : 1 : of_head;
    const double plane = n.head > 0 ? (double)(KVF__VOCAB_PLANE * desc->C) : 0;
    const double planes = n.head > 0 ? (double)((desc->V + KVF__VOCAB_PLANE - 1) / KVF__VOCAB_PLANE)
                                     : 0;
    const double rope = desc->position.kind == KVF__POS_ROPE
                            ? (double)(desc->position.max < 8192 ? desc->position.max : 8192) *
                                  (double)desc->D * sizeof(float)
                            : 0;
    kvf__footprint out = {.rest = rope + L * 4 * (double)desc->C * sizeof(float)};

    out.packed = of_layer * (packed ? L : 1) * n.layer + of_head * (packed ? planes : 1) * plane;
    if (options->keep == KVF__KEEP_STORED)
        out.stored = L * n.layer * bytes_of(kvf__stored_dtype(options->stored, desc->C)) +
                     n.head * bytes_of(kvf__stored_dtype(options->stored, desc->C));
    if (options->keep == KVF__KEEP_MAPPED) out.mapped = n.layer * bytes_of(file);
    if (!packed) out.rest += n.widest * (double)desc->C * sizeof(float);
    return out;
}
