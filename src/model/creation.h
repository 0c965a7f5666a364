/* Private to src/model: state of packing weights. Packing runs once (create.c), after each change
 * of trained weights, or repeatedly for frozen weights packed on demand (pack_on_demand.c). The
 * model keeps this state in the last two cases. */
#ifndef KVF_CREATION_H
#define KVF_CREATION_H

#include "names.h"
#include "pack.h"
#include "slot.h"
#include "stored.h"

typedef struct kvf__creation {
    kvf_ctx *ctx;
    kvf__model *model;
    const kvf__desc *desc;
    const kvf__slots *slots; /* source of the weights */
    kvf__packer packer;
    float *gamma, *beta; /* [C] of the current norm */
    kvf__model_options options;
} kvf__creation;

static inline const kvf__slot *kvf__creation_slot(const kvf__creation *c, kvf__role role,
                                                  int64_t layer)
{
    return kvf__slot_of(c->desc, c->slots, role, layer);
}

/* pack_units.c: allocates the workspace; packs the products of a unit, in the packer's
 * directions. */
kvf_status kvf__creation_prepare(kvf__creation *c);
kvf_status kvf__creation_pack_unit(kvf__creation *c, int64_t unit);

/* pack_on_demand.c: packs layer 0 and plane 0 into the memory shared by all layers and planes. */
kvf_status kvf__creation_pack_first(kvf__creation *c);

#endif
