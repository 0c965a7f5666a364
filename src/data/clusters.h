/* Internal to src/data: groups with a common beginning, for --group-by prefix (clusters.c). */
#ifndef KVF_CLUSTERS_H
#define KVF_CLUSTERS_H

#include "dataset.h"
#include "rng.h"

typedef struct kvf__clusters {
    int64_t n;
    int64_t *start;  /* [n + 1] offsets into member */
    int64_t *member; /* [groups] group indices, cluster by cluster */
    int64_t *order;  /* [n] scratch: clusters in an epoch's order */
    int64_t *taken;  /* [n] scratch: members of each cluster already in a step */
    int64_t *mixed;  /* [groups] scratch: members in an epoch's order */
} kvf__clusters;

/* Creates the clusters in one block, which kvf__free() frees. */
kvf_status kvf__clusters_create(kvf_ctx *ctx, const kvf__dataset *dataset, kvf__clusters **out);
/* Writes the order [groups] of an epoch. Steps of batch_size groups are filled with whole clusters,
 * in their order. A cluster is divided only if none of the next clusters fits. batch_size 0:
 * clusters one after the other. rng NULL: file order. */
void kvf__clusters_order(kvf__clusters *clusters, kvf__rng *rng, int64_t batch_size,
                         int64_t *order);

#endif
