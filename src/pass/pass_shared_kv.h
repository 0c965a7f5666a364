/* Inside src/pass: keys and values that several layers read (pass_shared_kv.c). */
#ifndef KVF_PASS_SHARED_KV_H
#define KVF_PASS_SHARED_KV_H

#include "arena.h"

struct kvf__pass;

/* Keys and values that later layers read too, by the layer they are of. */
typedef struct kvf__pass_shared {
    void **kv;   /* [L] of [Mx, 2GD] in the act type; NULL where no other layer reads them, or all
                    layers have their own */
    float **dkv; /* [L] the sums of the gradients of all who read them; backward only */
} kvf__pass_shared;

/* Keys and values that layers share: their memory for M rows; after layer l's
 * qkv, kept or taken over; before a backward pass; after the attention of layer l on the way back,
 * added up, or given to the layer they are of. */
void kvf__pass_lay_shared(struct kvf__pass *pass, kvf__carver *carve, int64_t M);
void kvf__pass_shared_fwd(struct kvf__pass *pass, int64_t l);
void kvf__pass_shared_begin_bwd(struct kvf__pass *pass);
void kvf__pass_shared_bwd(struct kvf__pass *pass, int64_t l);

#endif
