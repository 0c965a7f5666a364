/* The kernels of kernels.h as plain loops: the reference for the faster forms, and the fallback.
 * Portable C, double arithmetic, no threads; results are rounded once, when stored. */
#include "kernels_int.h"

#include <assert.h>
#include <math.h>

/* ---- norms ----------------------------------------------------------------------------------- */

/* Without y: xhat only. */
static void whole_norm_fwd(kvf__dtype act, const kvf__whole_norm *n)
{
    for (int64_t m = 0; m < n->M; m++) {
        const float *row = n->x + m * n->C;
        double mean = 0, variance = 0;
        for (int64_t c = 0; c < n->C && !n->rms; c++)
            mean += row[c] / (double)n->C;
        for (int64_t c = 0; c < n->C; c++)
            variance += (row[c] - mean) * (row[c] - mean) / (double)n->C;

        double by = 1 / sqrt(variance + n->eps);
        n->rstd[m] = (float)by;
        for (int64_t c = 0; c < n->C; c++) {
            double xhat = (row[c] - mean) * by;
            if (n->xhat) kvf__ref_set(act, n->xhat, m * n->C + c, xhat);
            if (!n->y) continue;
            double y = xhat * n->gamma[c] + (n->beta ? n->beta[c] : 0);
            if (n->y_act) kvf__ref_set(act, n->y_act, m * n->C + c, y);
            n->y[m * n->C + c] = (float)y;
        }
    }
}

static void norm_fwd(kvf__dtype act, void *xhat, float *rstd, const float *x, int64_t M, int64_t C,
                     bool rms, float eps)
{
    const kvf__whole_norm norm = {
        .M = M, .C = C, .rms = rms, .eps = eps, .x = x, .xhat = xhat, .rstd = rstd};
    whole_norm_fwd(act, &norm);
}

/* With xhat = (x - mean) rstd: dx = (d - mean(d) - xhat mean(d xhat)) rstd. rms omits mean(d). */
static void norm_bwd(kvf__dtype act, float *dx, void *dx_act, const void *dxhat, const void *xhat,
                     const float *rstd, int64_t M, int64_t C, bool rms)
{
    for (int64_t m = 0; m < M; m++) {
        double mean = 0, dot = 0;
        for (int64_t i = m * C; i < (m + 1) * C; i++) {
            if (!rms) mean += kvf__ref_get(act, dxhat, i) / (double)C;
            dot += kvf__ref_get(act, dxhat, i) * kvf__ref_get(act, xhat, i) / (double)C;
        }
        for (int64_t i = m * C; i < (m + 1) * C; i++) {
            dx[i] = (float)(dx[i] + (kvf__ref_get(act, dxhat, i) - mean -
                                     kvf__ref_get(act, xhat, i) * dot) *
                                        rstd[m]);
            if (dx_act) kvf__ref_set(act, dx_act, i, dx[i]);
        }
    }
}

static double whole_norm_d(kvf__dtype act, const kvf__whole_norm *n, int64_t at)
{
    double dy = (double)n->dx[at] + (n->plus ? kvf__ref_get(act, n->plus, at) : 0);
    return dy * n->gamma[at % n->C];
}

/* Like norm_bwd with d = gamma dy, replacing dx instead of adding. */
static void whole_norm_bwd(kvf__dtype act, const kvf__whole_norm *n)
{
    for (int64_t m = 0; m < n->M; m++) {
        double mean = 0, dot = 0;
        for (int64_t i = m * n->C; i < (m + 1) * n->C; i++) {
            double d = whole_norm_d(act, n, i) / (double)n->C;
            if (!n->rms) mean += d;
            dot += d * kvf__ref_get(act, n->xhat, i);
        }
        for (int64_t i = m * n->C; i < (m + 1) * n->C; i++) {
            double d = whole_norm_d(act, n, i);
            n->dx[i] = (float)((d - mean - kvf__ref_get(act, n->xhat, i) * dot) * n->rstd[m]);
            if (n->dx_act) kvf__ref_set(act, n->dx_act, i, n->dx[i]);
        }
    }
}

static void head_norm_fwd(kvf__dtype act, const kvf__head_norm *n)
{
    for (int64_t head = 0; head < n->M * n->heads; head++) {
        int64_t at = head / n->heads * n->ld + head % n->heads * n->D;
        const float *gamma = n->gamma + head % n->heads * n->D;
        double square = 0;
        for (int64_t d = 0; d < n->D; d++)
            square += kvf__ref_get(act, n->x, at + d) * kvf__ref_get(act, n->x, at + d) /
                      (double)n->D;

        double by = 1 / sqrt(square + n->eps);
        n->rstd[head] = (float)by;
        for (int64_t d = 0; d < n->D; d++) {
            double xhat = kvf__ref_get(act, n->x, at + d) * by;
            if (n->xhat) kvf__ref_set(act, n->xhat, head * n->D + d, xhat);
            kvf__ref_set(act, n->x, at + d, xhat * gamma[d]);
        }
    }
}

static void head_norm_bwd(kvf__dtype act, const kvf__head_norm *n)
{
    for (int64_t head = 0; head < n->M * n->heads; head++) {
        int64_t at = head / n->heads * n->ld + head % n->heads * n->D;
        const float *gamma = n->gamma + head % n->heads * n->D;
        double dot = 0;
        for (int64_t d = 0; d < n->D; d++)
            dot += kvf__ref_get(act, n->x, at + d) * gamma[d] *
                   kvf__ref_get(act, n->xhat, head * n->D + d) / (double)n->D;
        for (int64_t d = 0; d < n->D; d++)
            kvf__ref_set(act, n->x, at + d,
                         (kvf__ref_get(act, n->x, at + d) * gamma[d] -
                          kvf__ref_get(act, n->xhat, head * n->D + d) * dot) *
                             n->rstd[head]);
    }
}

/* ---- activation functions -------------------------------------------------------------------- */

typedef struct {
    double value, slope; /* fn(x), fn'(x) */
} fn_pair;

/* Returns x sigmoid(z) and its derivative, for a z(x) with derivative dz. */
static fn_pair gated_by_sigmoid(double x, double z, double dz)
{
    double s = 1 / (1 + exp(-z));
    return (fn_pair){x * s, s + x * s * (1 - s) * dz};
}

static fn_pair apply(kvf__act_fn fn, double x)
{
    const double root_2_over_pi = 0.79788456080286536, root_half = 0.70710678118654752;
    switch (fn) {
    case KVF__GELU_TANH: {
        /* (1 + tanh(u)) / 2 = sigmoid(2u), u = sqrt(2 / pi) (x + 0.044715 x^3): Hendrycks and
         * Gimpel 2016 */
        double u = root_2_over_pi * (x + 0.044715 * x * x * x);
        return gated_by_sigmoid(x, 2 * u, 2 * root_2_over_pi * (1 + 3 * 0.044715 * x * x));
    }
    case KVF__GELU_ERF: {
        double phi = 0.5 * erfc(-x * root_half), density = 0.5 * root_2_over_pi * exp(-0.5 * x * x);
        return (fn_pair){x * phi, phi + x * density};
    }
    case KVF__SILU:
        return gated_by_sigmoid(x, x, 1);
    case KVF__QUICK_GELU:
        return gated_by_sigmoid(x, 1.702 * x, 1.702);
    case KVF__RELU:
        return (fn_pair){x < 0 ? 0 : x, x > 0};
    case KVF__TANH:
        return (fn_pair){tanh(x), 1 - tanh(x) * tanh(x)};
    }
    assert(!"a function of the list");
    return (fn_pair){x, 1};
}

static void act_fwd(kvf__dtype act, kvf__act_fn fn, void *h, void *g, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        fn_pair f = apply(fn, kvf__ref_get(act, h, i));
        kvf__ref_set(act, g, i, f.value);
        kvf__ref_set(act, h, i, f.slope);
    }
}

static void glu_fwd(kvf__dtype act, kvf__act_fn fn, void *g, void *u, void *a, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double by = kvf__ref_get(act, u, i);
        fn_pair f = apply(fn, kvf__ref_get(act, g, i));
        kvf__ref_set(act, a, i, f.value * by);
        kvf__ref_set(act, g, i, f.slope * by);
        kvf__ref_set(act, u, i, f.value);
    }
}

static void glu_bwd(kvf__dtype act, void *dg, void *du, const void *da, const void *g,
                    const void *u, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double d = kvf__ref_get(act, da, i), by_g = kvf__ref_get(act, g, i),
               by_u = kvf__ref_get(act, u, i);
        kvf__ref_set(act, dg, i, d * by_g);
        kvf__ref_set(act, du, i, d * by_u);
    }
}

/* ---- products and conversions ---------------------------------------------------------------- */

static void mul(kvf__dtype act, void *d, const void *by, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        kvf__ref_set(act, d, i, kvf__ref_get(act, d, i) * kvf__ref_get(act, by, i));
}

static void from_f32(kvf__dtype act, void *dst, const float *src, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        kvf__ref_set(act, dst, i, src[i]);
}

static void to_f32(kvf__dtype act, float *dst, const void *src, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = (float)kvf__ref_get(act, src, i);
}

/* ---- rotary positions ------------------------------------------------------------------------ */

static void rope(kvf__dtype act, void *x, int64_t M, int64_t ld, int64_t heads, int64_t D,
                 int64_t R, const int32_t *position, const float *cos, const float *sin,
                 bool inverse)
{
    for (int64_t m = 0; m < M; m++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; i < R / 2; i++) {
                int64_t low = m * ld + h * D + i, high = low + R / 2,
                        at = position[m] * (R / 2) + i;
                double a = kvf__ref_get(act, x, low), b = kvf__ref_get(act, x, high);
                double c = cos[at], s = inverse ? -sin[at] : sin[at];
                kvf__ref_set(act, x, low, a * c - b * s);
                kvf__ref_set(act, x, high, b * c + a * s);
            }
}

/* ---- cross-entropy --------------------------------------------------------------------------- */

static void ce_row(kvf__dtype act, const kvf__ce_chunk *chunk, int64_t r)
{
    const float *logits = chunk->logits + r * chunk->width;
    float old = chunk->max[r], max = old;
    double sum = 0;

    for (int64_t v = 0; v < chunk->width && v < chunk->valid; v++)
        max = fmaxf(max, logits[v]);
    if (max > old) {
        double by = exp((double)old -
                        max); /* 0 in the first chunk, which discards the contents of acc */
        chunk->sum[r] = (float)(chunk->sum[r] * by);
        chunk->max[r] = max;
        for (int64_t c = 0; c < chunk->C && chunk->acc; c++)
            chunk->acc[r * chunk->C + c] = by == 0 ? 0 : (float)(chunk->acc[r * chunk->C + c] * by);
    }
    for (int64_t v = 0; v < chunk->width; v++) {
        double e = v < chunk->valid ? exp((double)logits[v] - max) : 0;
        if (chunk->e) kvf__ref_set(act, chunk->e, r * chunk->width + v, e);
        sum += e;
    }
    chunk->sum[r] = (float)(chunk->sum[r] + sum);

    int32_t target = chunk->target[r];
    if (target >= 0 && target < chunk->width) chunk->target_logit[r] = logits[target];
}

static void ce(kvf__dtype act, const kvf__ce_chunk *chunk)
{
    for (int64_t r = 0; r < chunk->rows; r++)
        ce_row(act, chunk, r);
}

/* ---- eight bits ------------------------------------------------------------------------------ */

static void quantize(kvf__dtype act, uint8_t *q, uint8_t zero, float *scale, const void *x,
                     int64_t M, int64_t K)
{
    for (int64_t m = 0; m < M; m++) {
        scale[m] = 0;
        for (int64_t k = 0; k < K; k++)
            scale[m] = kvf__larger(scale[m], fabsf((float)kvf__ref_get(act, x, m * K + k)));
        const float to = kvf__quantizer(&scale[m]);
        for (int64_t k = 0; k < K; k++) {
            const float v = (float)kvf__ref_get(act, x, m * K + k);
            q[m * K + k] = (uint8_t)(zero + (to > 0 ? lrintf(v * to) : 0));
        }
    }
}

static void scale_sums(kvf__dtype type, const kvf__scaled_sums *s)
{
    for (int64_t m = 0; m < s->M; m++)
        for (int64_t n = 0; n < s->N; n++) {
            const int64_t i = m * s->N + n;
            double y = (s->sums[i] - s->zero[n]) * (double)s->row[m] * s->column[n];
            if (s->bias) y += s->bias[n];
            kvf__ref_set(type, s->y, i, s->add ? y + kvf__ref_get(type, s->y, i) : y);
        }
}

#define REF(stem) stem##ref
const kvf__kernels kvf__kernels_ref = KVF__KERNELS_TABLE("ref", REF);
