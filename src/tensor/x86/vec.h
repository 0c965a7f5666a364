/* One vector of f32 of the instruction set this file is compiled for: 16 lanes with AVX-512, 8 with
 * AVX2.
 *
 * Included by the files of a per-ISA library only, never by portable code. Everything is static and
 * inlined: code of one instruction set must not leak into another's library through the linker. The
 * operators + - * / work on vf directly (a GCC and clang extension), and a * b + c is fused by
 * -ffp-contract=fast.
 *
 * `_n` forms touch the first n lanes only, 0 <= n <= VF_LANES; loads give zero in the others. With
 * them a row's tail goes through the same arithmetic as its body. bf16 stores round to nearest
 * even, NaN stays NaN. */
#ifndef KVF_VEC_H
#define KVF_VEC_H

#if !defined(__AVX2__) || !defined(__FMA__)
#error "vec.h needs -mavx2 -mfma at least"
#endif

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define VEC_INLINE static inline __attribute__((always_inline, unused))

#if defined(__AVX512F__)

enum { VF_LANES = 16 };
typedef __m512 vf;

VEC_INLINE vf vf_set(float x)
{
    return _mm512_set1_ps(x);
}

VEC_INLINE vf vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

VEC_INLINE void vf_store(float *p, vf v)
{
    _mm512_storeu_ps(p, v);
}

VEC_INLINE __mmask16 vf_first(int64_t n)
{
    return (__mmask16)((1u << n) - 1u);
}

VEC_INLINE vf vf_load_n(const float *p, int64_t n)
{
    return _mm512_maskz_loadu_ps(vf_first(n), p);
}

VEC_INLINE void vf_store_n(float *p, vf v, int64_t n)
{
    _mm512_mask_storeu_ps(p, vf_first(n), v);
}

/* The first n lanes of v, `other` in the rest. */
VEC_INLINE vf vf_keep_n(vf v, int64_t n, vf other)
{
    return _mm512_mask_blend_ps(vf_first(n), other, v);
}

VEC_INLINE vf vf_fma(vf a, vf b, vf c) /* a * b + c */
{
    return _mm512_fmadd_ps(a, b, c);
}

VEC_INLINE vf vf_fnma(vf a, vf b, vf c) /* c - a * b */
{
    return _mm512_fnmadd_ps(a, b, c);
}

/* A NaN in b comes through; one in a does not. */
VEC_INLINE vf vf_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}

VEC_INLINE vf vf_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}

VEC_INLINE vf vf_abs(vf v)
{
    return _mm512_abs_ps(v);
}

/* yes where v < 0, no elsewhere (also for -0 and NaN). */
VEC_INLINE vf vf_if_negative(vf v, vf yes, vf no)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_LT_OQ), no, yes);
}

VEC_INLINE vf vf_round(vf v)
{
    return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* p * 2^n for integral n; 0 where x < low, so that results never become subnormal (slow on many
 * CPUs). */
VEC_INLINE vf vec_scale2(vf p, vf n, vf x, float low)
{
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(low), _CMP_NLT_UQ), p, n);
}

/* 1 / x to the last bit or two, for normal x with a normal reciprocal. */
VEC_INLINE vf vf_rcp(vf x)
{
    vf r = _mm512_rcp14_ps(x);
    return _mm512_fmadd_ps(_mm512_fnmadd_ps(x, r, _mm512_set1_ps(1.0f)), r, r);
}

VEC_INLINE float vf_sum(vf v)
{
    return _mm512_reduce_add_ps(v);
}

VEC_INLINE float vf_hmax(vf v)
{
    return _mm512_reduce_max_ps(v);
}

VEC_INLINE vf vec_widen(__m256i half)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

VEC_INLINE __m256i vec_narrow(vf v)
{
#if defined(__AVX512BF16__)
    return (__m256i)_mm512_cvtneps_pbh(v);
#else
    __m512i bits = _mm512_castps_si512(v);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, odd), _mm512_set1_epi32(0x7fff));
    __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    rounded = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
#endif
}

VEC_INLINE vf vf_load_bf16(const uint16_t *p)
{
    return vec_widen(_mm256_loadu_si256((const __m256i *)p));
}

VEC_INLINE void vf_store_bf16(uint16_t *p, vf v)
{
    _mm256_storeu_si256((__m256i *)p, vec_narrow(v));
}

VEC_INLINE vf vf_load_bf16_n(const uint16_t *p, int64_t n)
{
    return vec_widen(_mm256_maskz_loadu_epi16(vf_first(n), p));
}

VEC_INLINE void vf_store_bf16_n(uint16_t *p, vf v, int64_t n)
{
    _mm256_mask_storeu_epi16(p, vf_first(n), vec_narrow(v));
}

#else /* AVX2 */

enum { VF_LANES = 8 };
typedef __m256 vf;

VEC_INLINE vf vf_set(float x)
{
    return _mm256_set1_ps(x);
}

VEC_INLINE vf vf_load(const float *p)
{
    return _mm256_loadu_ps(p);
}

VEC_INLINE void vf_store(float *p, vf v)
{
    _mm256_storeu_ps(p, v);
}

VEC_INLINE __m256i vf_first(int64_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

VEC_INLINE vf vf_load_n(const float *p, int64_t n)
{
    return _mm256_maskload_ps(p, vf_first(n));
}

VEC_INLINE void vf_store_n(float *p, vf v, int64_t n)
{
    _mm256_maskstore_ps(p, vf_first(n), v);
}

/* The first n lanes of v, `other` in the rest. */
VEC_INLINE vf vf_keep_n(vf v, int64_t n, vf other)
{
    return _mm256_blendv_ps(other, v, _mm256_castsi256_ps(vf_first(n)));
}

VEC_INLINE vf vf_fma(vf a, vf b, vf c) /* a * b + c */
{
    return _mm256_fmadd_ps(a, b, c);
}

VEC_INLINE vf vf_fnma(vf a, vf b, vf c) /* c - a * b */
{
    return _mm256_fnmadd_ps(a, b, c);
}

/* A NaN in b comes through; one in a does not. */
VEC_INLINE vf vf_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}

VEC_INLINE vf vf_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}

VEC_INLINE vf vf_abs(vf v)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v);
}

/* yes where v < 0, no elsewhere (also for -0 and NaN). */
VEC_INLINE vf vf_if_negative(vf v, vf yes, vf no)
{
    return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(v, _mm256_setzero_ps(), _CMP_LT_OQ));
}

VEC_INLINE vf vf_round(vf v)
{
    return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* p * 2^n for integral n; 0 where x < low, so that results never become subnormal (slow on many
 * CPUs). Adds n to the exponent: p 2^n must be a normal number where x >= low. */
VEC_INLINE vf vec_scale2(vf p, vf n, vf x, float low)
{
    __m256i bits = _mm256_add_epi32(_mm256_castps_si256(p),
                                    _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23));
    __m256 tiny = _mm256_cmp_ps(x, _mm256_set1_ps(low), _CMP_LT_OQ);
    return _mm256_andnot_ps(tiny, _mm256_castsi256_ps(bits));
}

/* 1 / x. The estimate of AVX2 has 12 bits only, so one Newton step would not do; division is as
 * fast as two. */
VEC_INLINE vf vf_rcp(vf x)
{
    return _mm256_set1_ps(1.0f) / x;
}

VEC_INLINE float vf_sum(vf v)
{
    __m128 quad = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    quad = _mm_add_ps(quad, _mm_movehl_ps(quad, quad));
    return _mm_cvtss_f32(_mm_add_ss(quad, _mm_movehdup_ps(quad)));
}

VEC_INLINE float vf_hmax(vf v)
{
    __m128 quad = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    quad = _mm_max_ps(quad, _mm_movehl_ps(quad, quad));
    return _mm_cvtss_f32(_mm_max_ss(quad, _mm_movehdup_ps(quad)));
}

VEC_INLINE vf vec_widen(__m128i half)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

VEC_INLINE __m128i vec_narrow(vf v)
{
    __m256i bits = _mm256_castps_si256(v);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, odd), _mm256_set1_epi32(0x7fff));
    __m256 quiet = _mm256_or_ps(v, _mm256_castsi256_ps(_mm256_set1_epi32(0x400000)));
    __m256 chosen = _mm256_blendv_ps(_mm256_castsi256_ps(rounded), quiet,
                                     _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    __m256i high = _mm256_srli_epi32(_mm256_castps_si256(chosen), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
}

VEC_INLINE vf vf_load_bf16(const uint16_t *p)
{
    return vec_widen(_mm_loadu_si128((const __m128i *)p));
}

VEC_INLINE void vf_store_bf16(uint16_t *p, vf v)
{
    _mm_storeu_si128((__m128i *)p, vec_narrow(v));
}

VEC_INLINE vf vf_load_bf16_n(const uint16_t *p, int64_t n)
{
    uint16_t lanes[8] = {0};
    memcpy(lanes, p, (size_t)n * sizeof *p);
    return vf_load_bf16(lanes);
}

VEC_INLINE void vf_store_bf16_n(uint16_t *p, vf v, int64_t n)
{
    uint16_t lanes[8];
    vf_store_bf16(lanes, v);
    memcpy(p, lanes, (size_t)n * sizeof *p);
}

#endif

VEC_INLINE vf vf_zero(void)
{
    return vf_set(0.0f);
}

/* Both exponentials: error below 1.5 ulp; 0 below 2^-126 (and for -inf), at most 3.4e38, NaN stays
 * NaN. The argument is split into an integral power of two and a rest r, whose power is a
 * polynomial through the Chebyshev points of its interval (relative error 1e-8 and 5e-9 before
 * rounding). */
VEC_INLINE vf vf_exp(vf x)
{
    const float low = -87.33f, ln2 = 0x1.62e43p-1f, ln2_rest = -0x1.05c610p-29f;
    vf clamped = vf_min(vf_set(88.72f), vf_max(vf_set(low), x));
    vf n = vf_round(clamped * vf_set(0x1.715476p0f));
    vf r = vf_fnma(n, vf_set(ln2_rest), vf_fnma(n, vf_set(ln2), clamped));

    vf q = vf_fma(r, vf_set(0.001392617612f), vf_set(0.008363173075f));
    q = vf_fma(q, r, vf_set(0.04166655466f));
    q = vf_fma(q, r, vf_set(0.1666657703f));
    q = vf_fma(q, r, vf_set(0.5f));
    return vec_scale2(vf_fma(q, r * r, r) + vf_set(1.0f), n, x, low);
}

VEC_INLINE vf vf_exp2(vf x)
{
    const float low = -126.0f;
    vf clamped = vf_min(vf_set(127.99f), vf_max(vf_set(low), x));
    vf n = vf_round(clamped), r = clamped - n;

    vf q = vf_fma(r, vf_set(0.0001545316295f), vf_set(0.001339086336f));
    q = vf_fma(q, r, vf_set(0.009618082557f));
    q = vf_fma(q, r, vf_set(0.05550357114f));
    q = vf_fma(q, r, vf_set(0.2402265076f));
    q = vf_fma(q, r, vf_set(0.693147188f));
    return vec_scale2(vf_fma(q, r, vf_set(1.0f)), n, x, low);
}

#endif
