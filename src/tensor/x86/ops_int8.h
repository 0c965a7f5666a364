/* Quantization of rows to eight bits before a product, and conversion of its sums. Part of
 * ops_vec.c; formulas as in ref_ops.c. Runs on the calling thread, whose cache holds the chunk of
 * rows (dnnl_int8.c). */
#ifndef KVF_OPS_INT8_H
#define KVF_OPS_INT8_H

#include "kernels_int.h"
#include "ops_row.h"
#include "vec_int.h"

/* Returns max |x|, compared as integers, among which NaN is the largest. */
VEC_INLINE float row_most(bool half, const void *x, int64_t K)
{
    const vi magnitude = vi_set(0x7fffffff);
    vi a = vi_set(0), b = a;
    int32_t lanes[VF_LANES], most = 0;
    int64_t k = 0;
    for (; k + 2 * VF_LANES <= K; k += 2 * VF_LANES) {
        a = VEC(max_epi32)(a, (vi)act_load(half, x, k, VF_LANES) & magnitude);
        b = VEC(max_epi32)(b, (vi)act_load(half, x, k + VF_LANES, VF_LANES) & magnitude);
    }
    FOR_LANES(j, n, k, K, a = VEC(max_epi32)(a, (vi)act_load(half, x, j, n) & magnitude););
    a = VEC(max_epi32)(a, b);
    memcpy(lanes, &a, sizeof lanes);
    for (int i = 0; i < VF_LANES; i++)
        if (lanes[i] > most) most = lanes[i];
    float value;
    memcpy(&value, &most, sizeof value);
    return value;
}

/* Stores the low byte of the first n lanes. */
VEC_INLINE void store_bytes(uint8_t *q, vi v, int64_t n)
{
#if defined(__AVX512F__)
    if (n >= VF_LANES)
        _mm_storeu_si128((__m128i *)q, _mm512_cvtepi32_epi8(v));
    else
        _mm_mask_storeu_epi8(q, vf_first(n), _mm512_cvtepi32_epi8(v));
#else
    int32_t lanes[VF_LANES];
    memcpy(lanes, &v, sizeof lanes);
    for (int64_t i = 0; i < n && i < VF_LANES; i++)
        q[i] = (uint8_t)lanes[i];
#endif
}

VEC_INLINE void quantize_row(bool half, uint8_t *q, uint8_t zero, float *scale, const void *x,
                             int64_t K)
{
    *scale = row_most(half, x, K);
    const float factor = kvf__quantizer(scale);
    const vf to = vf_set(factor);
    const vi offset = vi_set(zero);
    if (factor == 0) {
        memset(q, zero, (size_t)K);
        return;
    }
    FOR_LANES(k, n, 0, K, {
        vi rounded = VEC(cvtps_epi32)(act_load(half, x, k, n) * to);
        store_bytes(q + k, VEC(add_epi32)(rounded, offset), n);
    });
}

static void quantize(kvf__dtype act, uint8_t *q, uint8_t zero, float *scale, const void *x,
                     int64_t M, int64_t K)
{
    for (int64_t m = 0; m < M; m++)
        BY_TYPE(act, quantize_row, q + m * K, zero, scale + m, act_row(act == KVF__BF16, x, m, K),
                K);
}

VEC_INLINE vi vi_load_upto(const int32_t *p, int64_t n)
{
    return (vi)vf_load_upto((const float *)(const void *)p, n);
}

VEC_INLINE void scale_row(bool half, bool add, const kvf__scaled_sums *s, int64_t m)
{
    const int32_t *sums = s->sums + m * s->N;
    void *y = act_row(half, s->y, m, s->N);
    const vf row = vf_set(s->row[m]);
    FOR_LANES(i, n, 0, s->N, {
        vi sum = VEC(sub_epi32)(vi_load_upto(sums + i, n), vi_load_upto(s->zero + i, n));
        vf v = vi_to_f32(sum) * vf_load_upto(s->column + i, n);
        vf more = s->bias ? vf_load_upto(s->bias + i, n) : vf_zero();
        if (add) more += act_load(half, y, i, n);
        act_store(half, y, i, vf_fma(v, row, more), n);
    });
}

static void scale_sums(kvf__dtype type, const kvf__scaled_sums *s)
{
    for (int64_t m = 0; m < s->M; m++)
        if (s->add)
            BY_TYPE(type, scale_row, true, s, m);
        else
            BY_TYPE(type, scale_row, false, s, m);
}

#endif
