/* Inside src/model: what is needed while weights are packed: once (create.c); again whenever
 * trained ones have changed; or over and over, where frozen ones are packed just before use
 * (pack_on_demand.c). Kept with the model in the last two cases. */
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
    const kvf__slots *slots; /* what is packed */
    kvf__packer packer;
    float *gamma, *beta; /* [C] of the norm at hand */
    kvf__model_options options;
} kvf__creation;

static inline const kvf__slot *kvf__creation_slot(const kvf__creation *c, kvf__role role,
                                                  int64_t layer)
{
    return kvf__slot_of(c->desc, c->slots, role, layer);
}

/* pack_units.c: the workspace; the products of a unit, in the directions that the packer is set to.
 */
kvf_status kvf__creation_prepare(kvf__creation *c);
kvf_status kvf__creation_pack_unit(kvf__creation *c, int64_t unit);

/* pack_on_demand.c: packs layer 0 and plane 0 into the memory that all layers, all planes share. */
kvf_status kvf__creation_pack_first(kvf__creation *c);

#endif
