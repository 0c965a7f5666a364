/* The functions of wide.h as plain loops. */
#include "kernels_int.h"

#include <math.h>
#include <string.h>

static void fwd(float *y, const float *x, const float *w, const float *b, int64_t P, int64_t N,
                int64_t M)
{
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < N; n++)
        for (int64_t p = 0; p < P; p++) {
            double sum = b[n];
            for (int64_t c = 0; c < M; c++)
                sum += (double)x[p * M + c] * (double)w[n * M + c];
            y[p * N + n] = (float)sum;
        }
}

static void bwd(float *dx, const float *dy, const float *w, int64_t P, int64_t N, int64_t M)
{
#pragma omp parallel for schedule(static)
    for (int64_t c = 0; c < M; c++)
        for (int64_t p = 0; p < P; p++) {
            double sum = 0;
            for (int64_t n = 0; n < N; n++)
                sum += (double)dy[p * N + n] * (double)w[n * M + c];
            dx[p * M + c] = (float)sum;
        }
}

static void update(const kvf__adamw_rates *r, float *w, float *m, float *v, float g)
{
    float gradient = g * r->grad_scale;
    *m += (gradient - *m) * r->beta1_rest;
    *v = *v * r->beta2 + gradient * gradient * r->beta2_rest;
    float denominator = sqrtf(*v) / r->root_correction + r->eps;
    *w = *w * r->decay - r->step_size * (*m / denominator);
}

static void adamw(const kvf__adamw_rates *r, float *w, float *m, float *v, const float *g,
                  int64_t n)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < n; i++)
        update(r, w + i, m + i, v + i, g[i]);
}

static void adamw_outer(const kvf__adamw_rates *r, float *w, float *m, float *v, const float *left,
                        const float *right, int64_t P, int64_t N, int64_t M)
{
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < N; n++)
        for (int64_t c = 0; c < M; c++) {
            int64_t i = n * M + c;
            double g = 0;
            for (int64_t p = 0; p < P; p++)
                g += (double)left[p * N + n] * (double)right[p * M + c];
            update(r, w + i, m + i, v + i, (float)g);
        }
}

static double dot(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

const kvf__wide kvf__wide_ref = {
    .name = "ref", .fwd = fwd, .bwd = bwd, .adamw = adamw, .adamw_outer = adamw_outer, .dot = dot};
