/* Choosing the next token from logits. */
#ifndef KVF_SAMPLE_H
#define KVF_SAMPLE_H

#include "penalties.h"
#include "rng.h"

typedef struct kvf__sampling {
    double temperature, top_p; /* temperature 0: the largest logit, the lowest id on a tie */
    int64_t top_k;             /* 0: all */
    double min_p;              /* least share of the largest probability; 0: all */
    kvf__penalties penalties;  /* of whoever samples: the logits below have them already */
} kvf__sampling;

typedef struct kvf__candidate {
    float logit;
    int32_t id;
} kvf__candidate;

/* The next token from logits [V]. scratch [V] is memory to work in. NaN logits are never chosen.
 * Order of the cuts as in transformers: temperature, top-k, top-p over what is left, min-p. */
int32_t kvf__sample(const kvf__sampling *sampling, const float *logits, int64_t V, kvf__rng *rng,
                    kvf__candidate *scratch);

#endif
