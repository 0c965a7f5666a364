/* The LSTM of lstm.h as plain loops with sums in double: the reference for oneDNN's, and the
 * fallback where oneDNN has none. */
#include "lstm.h"

#include <math.h>
#include <string.h>

enum { GATE_I, GATE_F, GATE_G, GATE_O, CELL, CELL_TANH, KEPT };

/* Returns the kept values [KEPT, H] of step t of a direction. */
static float *kept_at(const kvf__lstm_sizes *s, float *keep, int direction, int64_t t)
{
    return keep + (direction * s->T + t) * KEPT * s->H;
}

/* Returns the step before t in reading order, -1 if t is the first. */
static int64_t step_before(const kvf__lstm_sizes *s, int direction, int64_t t)
{
    return direction == 0 ? t - 1 : t + 1 < s->T ? t + 1 : -1;
}

/* Returns the i-th step of a direction. */
static int64_t step_at(const kvf__lstm_sizes *s, int direction, int64_t i)
{
    return direction == 0 ? i : s->T - 1 - i;
}

static double dot(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static void step_fwd(const kvf__lstm_sizes *s, int direction, int64_t t, float *y, float *keep,
                     const float *x, const kvf__lstm_weights *w)
{
    const int64_t H = s->H, before = step_before(s, direction, t);
    const float *h0 = before < 0 ? NULL : y + before * 2 * H + direction * H;
    const float *c0 = before < 0 ? NULL : kept_at(s, keep, direction, before) + CELL * H;
    float *k = kept_at(s, keep, direction, t), *h = y + t * 2 * H + direction * H;

    for (int64_t row = 0; row < 4 * H; row++) {
        double a = dot(w->wx + row * s->I, x + t * s->I, s->I) + (double)w->bx[row] +
                   (double)w->bh[row];
        if (h0) a += dot(w->wh + row * H, h0, H);
        k[row] = (float)(row / H == GATE_G ? tanh(a) : sigmoid(a));
    }
    for (int64_t j = 0; j < H; j++) {
        double c = (double)k[GATE_I * H + j] * (double)k[GATE_G * H + j];
        if (c0) c += (double)k[GATE_F * H + j] * (double)c0[j];
        k[CELL * H + j] = (float)c;
        k[CELL_TANH * H + j] = (float)tanh(c);
        h[j] = (float)((double)k[GATE_O * H + j] * tanh(c));
    }
}

void kvf__lstm_ref_fwd(const kvf__lstm_sizes *sizes, float *y, float *keep, const float *x,
                       const kvf__lstm_weights w[2])
{
    for (int direction = 0; direction < 2; direction++)
        for (int64_t i = 0; i < sizes->T; i++)
            step_fwd(sizes, direction, step_at(sizes, direction, i), y, keep, x, &w[direction]);
}

/* Computes da [4 H], gradients before the gates' functions. dh, dc [H]: gradients of the step's
 * state and cell; dc becomes that of the previous cell. */
static void gates_bwd(int64_t H, double *da, const double *dh, double *dc, const float *k,
                      const float *c0)
{
    for (int64_t j = 0; j < H; j++) {
        double i = (double)k[GATE_I * H + j], f = (double)k[GATE_F * H + j];
        double g = (double)k[GATE_G * H + j], o = (double)k[GATE_O * H + j];
        double tc = (double)k[CELL_TANH * H + j];
        double d = dc[j] + dh[j] * o * (1 - tc * tc); /* h = o tanh(c) */
        da[GATE_O * H + j] = dh[j] * tc * o * (1 - o);
        da[GATE_I * H + j] = d * g * i * (1 - i); /* c = f c0 + i g */
        da[GATE_G * H + j] = d * i * (1 - g * g);
        da[GATE_F * H + j] = c0 ? d * (double)c0[j] * f * (1 - f) : 0;
        dc[j] = d * f;
    }
}

static void add_scaled(float *to, const float *from, double by, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = (float)((double)to[i] + by * (double)from[i]);
}

/* Computes step t of a direction: gradients of its weights and of x; dh becomes that of the
 * previous state. */
static void step_bwd(const kvf__lstm_sizes *s, int direction, int64_t t, float *dx,
                     const kvf__lstm_grads *g, const float *y, const float *x,
                     const kvf__lstm_weights *w, const double *da, double *dh)
{
    const int64_t H = s->H, before = step_before(s, direction, t);
    const float *h0 = before < 0 ? NULL : y + before * 2 * H + direction * H;

    memset(dh, 0, (size_t)H * sizeof *dh);
    for (int64_t row = 0; row < 4 * H; row++) {
        add_scaled(g->wx + row * s->I, x + t * s->I, da[row], s->I);
        add_scaled(dx + t * s->I, w->wx + row * s->I, da[row], s->I);
        g->bx[row] = g->bh[row] = (float)((double)g->bx[row] + da[row]);
        if (!h0) continue;
        add_scaled(g->wh + row * H, h0, da[row], H);
        for (int64_t j = 0; j < H; j++)
            dh[j] += da[row] * (double)w->wh[row * H + j];
    }
}

static void clear(const kvf__lstm_sizes *s, const kvf__lstm_grads *g)
{
    memset(g->wx, 0, (size_t)(4 * s->H * s->I) * sizeof(float));
    memset(g->wh, 0, (size_t)(4 * s->H * s->H) * sizeof(float));
    memset(g->bx, 0, (size_t)(4 * s->H) * sizeof(float));
    memset(g->bh, 0, (size_t)(4 * s->H) * sizeof(float));
}

void kvf__lstm_ref_bwd(const kvf__lstm_sizes *sizes, float *dx, const kvf__lstm_grads g[2],
                       const float *dy, const float *y, const float *keep, const float *x,
                       const kvf__lstm_weights w[2], double *scratch)
{
    const int64_t H = sizes->H, T = sizes->T;
    double *da = scratch, *dh = scratch + 4 * H, *dc = scratch + 5 * H;

    memset(dx, 0, (size_t)(T * sizes->I) * sizeof *dx);
    for (int d = 0; d < 2; d++) {
        clear(sizes, &g[d]);
        memset(dh, 0, (size_t)(2 * H) * sizeof *dh); /* clears dc too */
        for (int64_t i = T - 1; i >= 0; i--) {
            const int64_t t = step_at(sizes, d, i), before = step_before(sizes, d, t);
            const float *k = kept_at(sizes, (float *)keep, d, t);
            const float *c0 = before < 0 ? NULL
                                         : kept_at(sizes, (float *)keep, d, before) + CELL * H;
            for (int64_t j = 0; j < H; j++)
                dh[j] += (double)dy[t * 2 * H + d * H + j];
            gates_bwd(H, da, dh, dc, k, c0);
            step_bwd(sizes, d, t, dx, &g[d], y, x, &w[d], da, dh);
        }
    }
}
