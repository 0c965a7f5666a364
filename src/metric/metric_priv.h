/* Shared by the files of src/metric. */
#ifndef KVF_METRIC_PRIV_H
#define KVF_METRIC_PRIV_H

#include "metric_int.h"

/* Computes scores from counts; 0 where a denominator is 0. */
kvf__prf kvf__prf_of(int64_t correct, int64_t predicted, int64_t gold);
void kvf__prf_add(kvf__prf *sum, const kvf__prf *by);
void kvf__prf_divide(kvf__prf *sum, double n); /* divides all but support */

#endif
