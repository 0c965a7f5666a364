/* Samples the next token from logits. */
#ifndef KVF_SAMPLE_H
#define KVF_SAMPLE_H

#include "penalties.h"
#include "rng.h"

typedef struct kvf__sampling {
    double temperature, top_p; /* temperature 0: the largest logit, the lowest id on a tie */
    int64_t top_k;             /* 0: all */
    double min_p;              /* smallest share of the largest probability; 0: all */
    kvf__penalties penalties;  /* applied by the caller: the logits below include them */
} kvf__sampling;

typedef struct kvf__candidate {
    float logit;
    int32_t id;
} kvf__candidate;

/* log(sum(exp(logits [V]))) over the logits that are numbers. It is computed as m + log(sum over v
 * of exp(logit[v] - m)), with the largest logit m. The sum runs in double and in vocabulary order,
 * so that equal logits give equal bits everywhere. */
typedef struct kvf__logit_sum {
    double value;
    int64_t best;    /* index of the largest logit, the first one if equal; -1: none is a number */
    int64_t numbers; /* logits that are numbers */
} kvf__logit_sum;
kvf__logit_sum kvf__log_sum(const float *logits, int64_t V);

/* False if there is a NaN or +inf, or if all are -inf. */
bool kvf__logits_fine(const float *logits, int64_t V);
/* Returns the next token from logits [V]; -1: they are not fine. scratch [V] is scratch memory.
 * Order as in transformers: temperature, top-k, top-p over the rest, min-p. */
int32_t kvf__sample(const kvf__sampling *sampling, const float *logits, int64_t V, kvf__rng *rng,
                    kvf__candidate *scratch);

#endif
