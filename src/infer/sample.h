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

/* log(sum(exp(logits [V]))) of those that are numbers,
 *
 *   m + log(sum over v of exp(logit[v] - m)),   m: the largest logit
 *
 * in double, summed in the order of the vocabulary, so that equal logits give equal bits whoever
 * computed them. */
typedef struct kvf__logit_sum {
    double value;
    int64_t best;    /* the largest, of equal ones the first; -1: none is a number */
    int64_t numbers; /* how many are */
} kvf__logit_sum;
kvf__logit_sum kvf__log_sum(const float *logits, int64_t V);

/* False: there is a NaN or +inf, or nothing but -inf. */
bool kvf__logits_fine(const float *logits, int64_t V);
/* The next token from logits [V]; -1: they are not fine. scratch [V] is memory to work in.
 * Order of the cuts as in transformers: temperature, top-k, top-p over what is left, min-p. */
int32_t kvf__sample(const kvf__sampling *sampling, const float *logits, int64_t V, kvf__rng *rng,
                    kvf__candidate *scratch);

#endif
