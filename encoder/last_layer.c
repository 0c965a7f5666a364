/* Reaching a target with the smallest change of an encoder's last linear layer (docs/maths.md).
 *
 * Column n of the change requires h w + b = change[:, n]. With A = [h | 1] the minimum-norm (w, b)
 * is A^T (A A^T)^-1 change[:, n], solved in f64. With more rows than unknowns, P > M + 1, a target
 * cannot be reached in general; (A^T A)^-1 A^T change[:, n] is the least-squares solution. */
#include "cholesky.h"
#include "encoder_priv.h"

#include <math.h>
#include <string.h>

/* Ridge of a natural step, relative to the mean diagonal of the Gram matrix. It avoids large
 * weights if hidden rows are nearly equal or more numerous than M. */
static const double RIDGE = 1e-3;

static void gram_of_rows(double *gram, const float *h, int64_t P, int64_t M)
{
    for (int64_t i = 0; i < P; i++)
        for (int64_t j = 0; j <= i; j++) {
            double sum = 1;
            for (int64_t t = 0; t < M; t++)
                sum += (double)h[i * M + t] * (double)h[j * M + t];
            gram[i * P + j] = gram[j * P + i] = sum;
        }
}

void kvf__last_layer_inverse(float *inverse, double *gram, const float *h, int64_t P, int64_t M)
{
    double *columns = gram + P * P;

    gram_of_rows(gram, h, P, M);
    kvf__add_ridge(gram, P, RIDGE);
    kvf__cholesky(gram, P);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < P; i++) {
        double *column = columns + i * P;
        for (int64_t j = 0; j < P; j++)
            column[j] = i == j;
        kvf__cholesky_solve(gram, column, P);
        for (int64_t j = 0; j < P; j++)
            inverse[i * P + j] = (float)column[j];
    }
}

/* Solves with the Gram matrix of rows. P <= M + 1. */
static kvf_status reach(kvf_ctx *ctx, float *w, float *b, const float *h, const double *change,
                        int64_t P, int64_t M, int64_t N)
{
    double *gram = NULL;
    KVF_TRY(kvf__alloc_array(ctx, (size_t)(P * (P + N)), sizeof *gram, &gram));
    double *x = gram + P * P;
    gram_of_rows(gram, h, P, M);
    kvf__cholesky(gram, P);
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < N; n++) {
        double *column = x + n * P, bias = b[n];
        for (int64_t p = 0; p < P; p++)
            column[p] = change[p * N + n];
        kvf__cholesky_solve(gram, column, P);
        for (int64_t t = 0; t < M; t++) {
            double sum = w[n * M + t];
            for (int64_t p = 0; p < P; p++)
                sum += (double)h[p * M + t] * column[p];
            w[n * M + t] = (float)sum;
        }
        for (int64_t p = 0; p < P; p++)
            bias += column[p];
        b[n] = (float)bias;
    }
    kvf__free(gram);
    return KVF_OK;
}

/* Computes inverse [P, M + 1]: row p is (A^T A)^-1 times row p of A. gram: [M + 1, M + 1]
 * scratch. */
static void least_squares(double *inverse, double *gram, const float *h, int64_t P, int64_t M)
{
    int64_t n = M + 1;

    for (int64_t p = 0; p < P; p++) {
        for (int64_t t = 0; t < M; t++)
            inverse[p * n + t] = h[p * M + t];
        inverse[p * n + M] = 1;
    }
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++) {
            double sum = 0;
            for (int64_t p = 0; p < P; p++)
                sum += inverse[p * n + i] * inverse[p * n + j];
            gram[i * n + j] = gram[j * n + i] = sum;
        }
    kvf__cholesky(gram, n);
#pragma omp parallel for schedule(static)
    for (int64_t p = 0; p < P; p++)
        kvf__cholesky_solve(gram, inverse + p * n, n);
}

/* Solves with the Gram matrix of columns. P > M + 1. */
static kvf_status approach(kvf_ctx *ctx, float *w, float *b, const float *h, const double *change,
                           int64_t P, int64_t M, int64_t N)
{
    double *inverse = NULL;
    KVF_TRY(kvf__alloc_array(ctx, (size_t)((P + M + 1) * (M + 1)), sizeof *inverse, &inverse));
    least_squares(inverse, inverse + P * (M + 1), h, P, M);
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < N; n++)
        for (int64_t t = 0; t <= M; t++) {
            float *to = t < M ? &w[n * M + t] : &b[n];
            double sum = *to;
            for (int64_t p = 0; p < P; p++)
                sum += inverse[p * (M + 1) + t] * change[p * N + n];
            *to = (float)sum;
        }
    kvf__free(inverse);
    return KVF_OK;
}

kvf_status kvf__last_layer_shift(kvf_ctx *ctx, float *w, float *b, const float *h,
                                 const double *change, int64_t P, int64_t M, int64_t N)
{
    return P <= M + 1 ? reach(ctx, w, b, h, change, P, M, N)
                      : approach(ctx, w, b, h, change, P, M, N);
}
