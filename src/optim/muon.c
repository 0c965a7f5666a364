/* Muon (Jordan et al. 2024) for the values of a prefix (docs/maths.md). AdamW scales each number by
 * its own moments, so all virtual tokens follow the common part of their gradients. Here the step
 * of a head's values is their first moment X [P, D], with its singular values brought closer
 * together. Unlike the published Muon there are two rounds, the momentum is that of Adam without
 * bias correction, and the step has a fixed root mean square. Keys are updated by AdamW.
 *
 * One thread computes a layer, in a fixed order of sums, so trained values have the same bits at
 * any number of threads. */
#include "optim_int.h"

#include <math.h>
#include <string.h>

/* The published polynomial, X = A X + B (X X^T) X + C (X X^T)^2 X, raises small singular values.
 * Two rounds, instead of the published five, keep directions of noise small (docs/methods.md). */
static const float A = 3.4445f, B = -4.775f, C = 2.0315f;
enum { ROUNDS = 2 };
/* Root mean square of a step, relative to the rate. Adam's is near 1 in its first steps. */
static const double STEP = 0.25;

/* Work arrays of a head. x, y [rows, side]: the moment and its next round; side is the smaller of P
 * and D, over which inner loops run. gram, map [side, side]. */
typedef struct work {
    float *x, *y, *gram, *map;
    int64_t rows, side;
} work;

static int64_t floats_of_head(int64_t P, int64_t D)
{
    const int64_t side = P < D ? P : D;
    return 2 * (P * D + side * side);
}

static int64_t layers_of(const kvf__param *param)
{
    return param->dim[1] / param->muon_unit;
}

int64_t kvf__muon_floats(const kvf__param *param)
{
    return param->muon_heads ? layers_of(param) * floats_of_head(param->dim[0], param->muon_width)
                             : 0;
}

static work work_of(float *at, int64_t P, int64_t D)
{
    const int64_t n = P * D, side = P < D ? P : D;
    float *gram = at + 2 * n;
    return (work){.x = at,
                  .y = at + n,
                  .gram = gram,
                  .map = gram + side * side,
                  .rows = n / side,
                  .side = side};
}

/* Sets c [rows, side] = a [rows, side] times b [side, side]. */
static void multiply(float *c, const float *a, const float *b, int64_t rows, int64_t side)
{
    memset(c, 0, (size_t)(rows * side) * sizeof *c);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < side; k++)
            for (int64_t i = 0; i < side; i++)
                c[r * side + i] += a[r * side + k] * b[k * side + i];
}

static void gram_of(const work *w)
{
    const int64_t side = w->side;
    memset(w->gram, 0, (size_t)(side * side) * sizeof *w->gram);
    for (int64_t r = 0; r < w->rows; r++)
        for (int64_t k = 0; k < side; k++)
            for (int64_t i = 0; i < side; i++)
                w->gram[k * side + i] += w->x[r * side + k] * w->x[r * side + i];
}

static void scale(const work *w, double by)
{
    for (int64_t i = 0; i < w->rows * w->side; i++)
        w->x[i] *= (float)by;
}

static double norm(const work *w)
{
    double sum = 0;
    for (int64_t i = 0; i < w->rows * w->side; i++)
        sum += (double)w->x[i] * (double)w->x[i];
    return sqrt(sum);
}

static void next_round(work *w)
{
    const int64_t side = w->side;
    gram_of(w);
    multiply(w->map, w->gram, w->gram, side, side);
    for (int64_t i = 0; i < side * side; i++)
        w->map[i] = B * w->gram[i] + C * w->map[i] + (i % (side + 1) ? 0 : A);
    multiply(w->y, w->x, w->map, w->rows, side);
    float *was = w->x;
    w->x = w->y;
    w->y = was;
}

/* Updates the values of one head, which begin at column `at`. */
static void step_head(const kvf__adamw_rates *rates, double rate, const kvf__param *param, float *m,
                      work w, int64_t at)
{
    const int64_t P = param->dim[0], D = param->muon_width, stride = param->dim[1];
    const int64_t of_p = P > D ? D : 1, of_d = P > D ? 1 : P; /* strides of x */
    for (int64_t p = 0; p < P; p++)
        for (int64_t d = 0; d < D; d++) {
            const int64_t i = p * stride + at + d;
            m[i] += (param->grad[i] * rates->grad_scale - m[i]) * rates->beta1_rest;
            w.x[p * of_p + d * of_d] = m[i];
        }
    const double size = norm(&w);
    if (size > 0) {
        scale(&w, 1 / size);
        for (int i = 0; i < ROUNDS; i++)
            next_round(&w);
        scale(&w, rate * STEP * sqrt((double)(P * D)) / norm(&w));
    }
    for (int64_t p = 0; p < P; p++)
        for (int64_t d = 0; d < D; d++) {
            float *value = param->value + p * stride + at + d;
            *value = *value * rates->decay - w.x[p * of_p + d * of_d];
        }
}

void kvf__muon_step(const kvf__adamw_rates *rates, double rate, const kvf__param *param, float *m,
                    float *v, float *scratch)
{
    const kvf__wide *wide = kvf__wide_get();
    const int64_t P = param->dim[0], stride = param->dim[1], D = param->muon_width;
    const int64_t width = param->muon_heads * D;

#pragma omp parallel for schedule(static)
    for (int64_t l = 0; l < layers_of(param); l++) {
        const work w = work_of(scratch + l * floats_of_head(P, D), P, D);
        const int64_t keys = l * param->muon_unit, values = keys + param->muon_unit - width;
        for (int64_t p = 0; p < P; p++) {
            const int64_t i = p * stride + keys;
            wide->adamw(rates, param->value + i, m + i, v + i, param->grad + i, values - keys);
        }
        for (int64_t g = 0; g < param->muon_heads; g++)
            step_head(rates, rate, param, m, w, values + g * D);
    }
}
