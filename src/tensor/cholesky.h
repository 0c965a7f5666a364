/* Least squares in f64 with the Gram matrix. */
#ifndef KVF_CHOLESKY_H
#define KVF_CHOLESKY_H

#include "base_int.h"

/* Replaces a Gram matrix [n, n] by its lower Cholesky factor. Vanishing pivots (dependent rows or
 * columns) are raised by a ridge far below f32 resolution. */
void kvf__cholesky(double *gram, int64_t n);
/* Adds `share` times the mean of the diagonal of a Gram matrix [n, n] to that diagonal. */
void kvf__add_ridge(double *gram, int64_t n, double share);
/* Computes x [n] = (L L^T)^-1 x. */
void kvf__cholesky_solve(const double *factor, double *x, int64_t n);

#endif
