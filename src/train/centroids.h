/* A prefix whose keys lie at centroids of what rows of the data ask. */
#ifndef KVF_CENTROIDS_H
#define KVF_CENTROIDS_H

#include "evaluator.h"

struct kvf__trainer;
/* Fills *target, which is as long as the run's prefix, for text behind it at the run's positions. */
kvf_status kvf__centroids(struct kvf__trainer *trainer, kvf__prefix *target);

#endif
