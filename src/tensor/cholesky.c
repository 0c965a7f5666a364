/* See cholesky.h. */
#include "cholesky.h"

#include <math.h>

void kvf__cholesky(double *gram, int64_t n)
{
    double trace = 0;
    for (int64_t i = 0; i < n; i++)
        trace += gram[i * n + i];
    for (int64_t j = 0; j < n; j++) {
        for (int64_t i = j; i < n; i++) {
            double sum = gram[i * n + j];
            for (int64_t t = 0; t < j; t++)
                sum -= gram[i * n + t] * gram[j * n + t];
            if (i == j) sum = sqrt(fmax(sum, 1e-12 * trace));
            gram[i * n + j] = i == j ? sum : sum / gram[j * n + j];
        }
    }
}

void kvf__add_ridge(double *gram, int64_t n, double share)
{
    double trace = 0;
    for (int64_t i = 0; i < n; i++)
        trace += gram[i * n + i];
    for (int64_t i = 0; i < n; i++)
        gram[i * n + i] += share * trace / (double)n;
}

void kvf__cholesky_solve(const double *factor, double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        for (int64_t t = 0; t < i; t++)
            x[i] -= factor[i * n + t] * x[t];
        x[i] /= factor[i * n + i];
    }
    for (int64_t i = n - 1; i >= 0; i--) {
        for (int64_t t = i + 1; t < n; t++)
            x[i] -= factor[t * n + i] * x[t];
        x[i] /= factor[i * n + i];
    }
}
