/* Linear layers of task heads, forward and backward: plain loops in f64 over contiguous memory. A
 * head reads few rows of the batch, so its time is negligible.
 *
 * Columns are divided into strips that fit in registers and the first-level cache; a strip belongs
 * to one thread. */
#include "head_priv.h"

enum { LANES = 8, STRIP = 64, PARALLEL = 1 << 15 };

/* Sums in lanes, so that the compiler can vectorise without reordering a sum. */
static double dot(const float *a, const float *b, int64_t n)
{
    double lane[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            lane[j] += (double)a[i + j] * b[i + j];
    for (; i < n; i++)
        sum += (double)a[i] * b[i];
    for (int j = 0; j < LANES; j++)
        sum += lane[j];
    return sum;
}

void kvf__linear_fwd(const kvf__linear *layer, float *y, const float *x, int64_t rows)
{
    int64_t in = layer->in, out = layer->out, n = rows * out;

#pragma omp parallel for schedule(static) if (n * in > PARALLEL)
    for (int64_t i = 0; i < n; i++) {
        int64_t r = i / out, o = i % out;
        y[i] = (float)(dot(x + r * in, layer->w + o * in, in) + (layer->b ? layer->b[o] : 0));
    }
}

/* Computes out[0..n) (+)= sum over k of factor[k * stride] * from[k * ld + 0..n), n <= STRIP. */
static void combine(float *out, bool add, int64_t n, const float *factor, int64_t stride,
                    const float *from, int64_t ld, int64_t terms)
{
    double sum[STRIP] = {0};
    for (int64_t k = 0; k < terms; k++) {
        double by = factor[k * stride];
        for (int64_t i = 0; i < n; i++)
            sum[i] += by * from[k * ld + i];
    }
    for (int64_t i = 0; i < n; i++)
        out[i] = (float)(add ? out[i] + sum[i] : sum[i]);
}

static int64_t strip_width(int64_t in, int64_t strip)
{
    int64_t rest = in - strip * STRIP;
    return rest < STRIP ? rest : STRIP;
}

void kvf__linear_bwd(const kvf__linear *layer, float *dx, const float *x, const float *dy,
                     int64_t rows)
{
    int64_t in = layer->in, out = layer->out, strips = (in + STRIP - 1) / STRIP;

    /* dx[r] = sum over o of dy[r][o] w[o] */
#pragma omp parallel for schedule(static) if (rows * out * in > PARALLEL)
    for (int64_t i = 0; i < rows * strips; i++) {
        int64_t r = i / strips, at = i % strips * STRIP;
        combine(dx + r * in + at, false, strip_width(in, i % strips), dy + r * out, 1,
                layer->w + at, in, out);
    }
    if (!layer->dw) return;
        /* dw[o] += sum over r of dy[r][o] x[r] */
#pragma omp parallel for schedule(static) if (rows * out * in > PARALLEL)
    for (int64_t i = 0; i < out * strips; i++) {
        int64_t o = i / strips, at = i % strips * STRIP;
        combine(layer->dw + o * in + at, true, strip_width(in, i % strips), dy + o, out, x + at, in,
                rows);
    }
    static const float one = 1;
    for (int64_t at = 0; layer->db && at < out; at += STRIP)
        combine(layer->db + at, true, strip_width(out, at / STRIP), &one, 0, dy + at, out, rows);
}
