/* Least squares in f64 by the Gram matrix. */
#ifndef KVF_CHOLESKY_H
#define KVF_CHOLESKY_H

#include "base_int.h"

/* The lower Cholesky factor of a Gram matrix [n, n], in place. A pivot that vanishes (rows or
 * columns that depend on each other) is lifted by a ridge far below f32 resolution. */
void kvf__cholesky(double *gram, int64_t n);
/* Adds `share` of the mean of the diagonal of a Gram matrix [n, n] to that diagonal. */
void kvf__add_ridge(double *gram, int64_t n, double share);
/* x [n] = (L L^T)^-1 x */
void kvf__cholesky_solve(const double *factor, double *x, int64_t n);

#endif
