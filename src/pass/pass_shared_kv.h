/* Private to src/pass: keys and values shared by several layers (pass_shared_kv.c). */
#ifndef KVF_PASS_SHARED_KV_H
#define KVF_PASS_SHARED_KV_H

#include "arena.h"

struct kvf__pass;

/* Keys and values that later layers read too, indexed by their own layer. */
typedef struct kvf__pass_shared {
    void **kv; /* [L] of [Mx, 2GD] in the activation type; NULL if no other layer reads them, or if
                  nothing is shared */
    float **dkv; /* [L] sums of the readers' gradients; backward only */
} kvf__pass_shared;

/* Keys and values shared between layers. Lay out their memory for M rows. After layer l's qkv,
 * store or copy them. Begin a backward pass. After the attention of layer l backward, add the
 * gradients up, or pass them to their layer. */
void kvf__pass_lay_shared(struct kvf__pass *pass, kvf__carver *carve, int64_t M);
void kvf__pass_shared_fwd(struct kvf__pass *pass, int64_t l);
void kvf__pass_shared_begin_bwd(struct kvf__pass *pass);
void kvf__pass_shared_bwd(struct kvf__pass *pass, int64_t l);

#endif
