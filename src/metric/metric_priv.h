/* What the files of src/metric share. */
#ifndef KVF_METRIC_PRIV_H
#define KVF_METRIC_PRIV_H

#include "metric_int.h"

/* From counts; 0 where a denominator is 0. */
kvf__prf kvf__prf_of(int64_t correct, int64_t predicted, int64_t gold);
void kvf__prf_add(kvf__prf *sum, const kvf__prf *by);
void kvf__prf_divide(kvf__prf *sum, double n); /* all but support */

#endif
