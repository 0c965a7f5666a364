/* Inside src/data: groups of a data set that begin alike, for --group-by prefix (clusters.c). */
#ifndef KVF_CLUSTERS_H
#define KVF_CLUSTERS_H

#include "dataset.h"
#include "rng.h"

typedef struct kvf__clusters {
    int64_t n;
    int64_t *start;  /* [n + 1] into member */
    int64_t *member; /* [groups] */
    int64_t *order;  /* [n] scratch: clusters of an epoch */
    int64_t *taken;  /* [n] scratch: members already in a step */
    int64_t *mixed;  /* [groups] scratch: members in an epoch's order */
} kvf__clusters;

/* One block: kvf__free() frees it. */
kvf_status kvf__clusters_create(kvf_ctx *ctx, const kvf__dataset *dataset, kvf__clusters **out);
/* An epoch's order [groups]: steps of batch_size groups, filled with whole clusters as far as these
 * fit, first come first served; a cluster is divided only where none of the next ones fits.
 * batch_size 0: clusters one after the other. rng NULL: in the order of the file. */
void kvf__clusters_order(kvf__clusters *clusters, kvf__rng *rng, int64_t batch_size,
                         int64_t *order);

#endif
