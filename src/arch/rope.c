/* Rotary positions: inverse frequencies of every scaling kind.
 *
 * All arithmetic is f32, in the order of transformers: at position 4000 a double angle would differ
 * by 1e-4 rad. Powers are computed in double and rounded once, so frequencies are the same on every
 * machine and nearly always agree with torch to the last bit. Llama 3's and YaRN's (arXiv
 * 2309.00071) formulas follow their reference code. */
#include "arch.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

double kvf__yarn_mscale(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

float kvf__query_scale(const kvf__positions *positions, int64_t position)
{
    if (!(positions->query_growth > 0) || (double)position < positions->rope.original) return 1;
    const double lengths = floor((double)position / positions->rope.original);
    return (float)(1 + (double)positions->query_growth * log(1 + lengths));
}

static float scaled_llama3(const kvf__rope *rope, float inv)
{
    float factor = (float)rope->factor, low = (float)rope->low_freq_factor;
    float low_wavelen = (float)(rope->original / rope->low_freq_factor);
    float high_wavelen = (float)(rope->original / rope->high_freq_factor);
    float wavelen = (float)(2 * pi) / inv;

    if (wavelen > low_wavelen) return inv / factor;
    if (wavelen < high_wavelen) return inv;
    float smooth = ((float)rope->original / wavelen - low) /
                   (float)(rope->high_freq_factor - rope->low_freq_factor);
    return (1 - smooth) * inv / factor + smooth * inv;
}

/* Scales frequency i of n; pairs beyond the rotated part have frequency 0. */
static float scaled_proportional(const kvf__rope *rope, int64_t i, int64_t n, float inv)
{
    return i < (int64_t)floor(rope->partial * (double)(2 * n) / 2) ? inv / (float)rope->factor : 0;
}

/* Returns the index of the pair that makes `rotations` turns within the original length. */
static double correction_dim(const kvf__rope *rope, double rotations, double dims)
{
    return dims * log(rope->original / (rotations * 2 * pi)) / (2 * log(rope->theta));
}

static void scale_yarn(const kvf__rope *rope, int64_t R, const float *power, float *inv)
{
    double low = correction_dim(rope, rope->beta_fast, (double)R);
    double high = correction_dim(rope, rope->beta_slow, (double)R);

    if (rope->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, (double)R - 1);
    /* as in the reference code: a step without a division by zero */
    if (low == high) high += 0.001;
    for (int64_t i = 0; i < R / 2; i++) {
        float ramp = ((float)i - (float)low) / (float)(high - low);
        ramp = fminf(fmaxf(ramp, 0), 1);
        float extrapolated = 1 - ramp, interpolated = 1 - extrapolated;
        inv[i] = 1 / ((float)rope->factor * power[i]) * interpolated + 1 / power[i] * extrapolated;
    }
}

/* Computes the frequencies of local layers, of the default kind. */
static kvf_status init_local(kvf_ctx *ctx, kvf__desc *desc)
{
    const int64_t R = desc->position.local_rotated;
    float *inv = NULL;

    KVF_TRY(kvf__alloc_array(ctx, (size_t)R / 2, sizeof *inv, &inv));
    for (int64_t i = 0; i < R / 2; i++) {
        float exponent = (float)(2 * i) / (float)R;
        inv[i] = 1 / (float)pow((double)(float)desc->position.local_theta, (double)exponent);
    }
    kvf__free(desc->position.local_inv_freq);
    desc->position.local_inv_freq = inv;
    return KVF_OK;
}

kvf_status kvf__rope_init(kvf_ctx *ctx, kvf__desc *desc)
{
    const kvf__rope *rope = &desc->position.rope;
    int64_t n = desc->position.rotated / 2;
    float *power = NULL, *inv = NULL;

    kvf_status st = kvf__alloc_array(ctx, (size_t)n, sizeof *power, &power);
    if (st) goto out;
    st = kvf__alloc_array(ctx, (size_t)n, sizeof *inv, &inv);
    if (st) goto out;

    for (int64_t i = 0; i < n; i++) {
        float exponent = (float)(2 * i) / (float)desc->position.rotated;
        power[i] = (float)pow((double)(float)rope->theta, (double)exponent);
        inv[i] = 1 / power[i];
        if (desc->position.divisors) {
            inv[i] /= desc->position.divisors[i];
            power[i] *= desc->position.divisors[i];
        }
        if (rope->kind == KVF__ROPE_LONG) inv[i] = 1 / power[i]; /* as in the reference code */
        if (rope->kind == KVF__ROPE_LINEAR) inv[i] /= (float)rope->factor;
        if (rope->kind == KVF__ROPE_LLAMA3) inv[i] = scaled_llama3(rope, inv[i]);
        if (rope->kind == KVF__ROPE_PROPORTIONAL) inv[i] = scaled_proportional(rope, i, n, inv[i]);
    }
    if (rope->kind == KVF__ROPE_YARN) scale_yarn(rope, desc->position.rotated, power, inv);
    const bool scaled = rope->kind == KVF__ROPE_YARN || rope->kind == KVF__ROPE_LONG;
    desc->position.scale = scaled ? (float)rope->attention_factor : 1;
    kvf__free(desc->position.inv_freq);
    desc->position.inv_freq = inv;
    inv = NULL;
    if (desc->position.local_theta > 0) st = init_local(ctx, desc);
out:
    kvf__free(inv);
    kvf__free(power);
    return st;
}
