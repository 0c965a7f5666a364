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

/* Work arrays of a head. x, y [side, length]: the moment and its next round; side is the smaller of
 * P and D. gram, map [side, side]. zero [side]: the bias of products. wide computes them. */
typedef struct work {
    const kvf__wide *wide;
    float *x, *y, *gram, *map, *zero;
    int64_t side, length;
} work;

static int64_t floats_of_head(int64_t P, int64_t D)
{
    const int64_t side = P < D ? P : D;
    return 2 * (P * D + side * side) + side;
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
    float *gram = at + 2 * n, *map = gram + side * side, *zero = map + side * side;
    memset(zero, 0, (size_t)side * sizeof *zero);
    return (work){.wide = kvf__wide_get(),
                  .x = at,
                  .y = at + n,
                  .gram = gram,
                  .map = map,
                  .zero = zero,
                  .side = side,
                  .length = n / side};
}

static void scale(const work *w, double by)
{
    for (int64_t i = 0; i < w->side * w->length; i++)
        w->x[i] *= (float)by;
}

static double norm(const work *w)
{
    return sqrt(w->wide->dot(w->x, w->x, w->side * w->length));
}

/* The matrices [side, side] are symmetric, so each is its own transpose. */
static void next_round(work *w)
{
    const kvf__wide *wide = w->wide;
    const int64_t side = w->side, length = w->length;
    wide->fwd(w->gram, w->x, w->x, w->zero, side, side, length);
    wide->fwd(w->map, w->gram, w->gram, w->zero, side, side, side);
    for (int64_t i = 0; i < side * side; i++)
        w->map[i] = B * w->gram[i] + C * w->map[i] + (i % (side + 1) ? 0 : A);
    wide->bwd(w->y, w->map, w->x, side, side, length);
    float *was = w->x;
    w->x = w->y;
    w->y = was;
}

/* Updates the values of one head, which begin at column `at`. */
static void step_head(const kvf__adamw_rates *rates, double rate, const kvf__param *param, float *m,
                      work w, int64_t at)
{
    const int64_t P = param->dim[0], D = param->muon_width, stride = param->dim[1];
    const int64_t of_p = P > D ? 1 : D, of_d = P > D ? P : 1; /* strides of x */
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
    const int64_t P = param->dim[0], stride = param->dim[1], D = param->muon_width;
    const int64_t width = param->muon_heads * D;

#pragma omp parallel for schedule(static)
    for (int64_t l = 0; l < layers_of(param); l++) {
        const work w = work_of(scratch + l * floats_of_head(P, D), P, D);
        const int64_t keys = l * param->muon_unit, values = keys + param->muon_unit - width;
        for (int64_t p = 0; p < P; p++) {
            const int64_t i = p * stride + keys;
            w.wide->adamw(rates, param->value + i, m + i, v + i, param->grad + i, values - keys);
        }
        for (int64_t g = 0; g < param->muon_heads; g++)
            step_head(rates, rate, param, m, w, values + g * D);
    }
}
