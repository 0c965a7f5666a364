/* One vector of f32 of the instruction set that the file is compiled for: 16 lanes with AVX-512, 8
 * with AVX2.
 *
 * Included by the files of a per-ISA library only, never by portable code. Everything is static and
 * inlined, so that code of one instruction set cannot leak into another's library through the
 * linker. The operators + - * / work on vf directly (a GCC and clang extension), and
 * -ffp-contract=fast fuses a * b + c.
 *
 * vec_tail.h has the ends of rows, vec_act.h bf16, vec_exp.h exponentials, vec_int.h integers. */
#ifndef KVF_VEC_H
#define KVF_VEC_H

#if !defined(__AVX2__) || !defined(__FMA__)
#error "vec.h needs -mavx2 -mfma at least"
#endif

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define VEC_INLINE static inline __attribute__((always_inline, unused))

/* Unrolls a loop over registers before the compiler decides which variables live in memory. */
#if defined(__clang__)
#define VEC_UNROLL _Pragma("clang loop unroll(full)")
#else
#define VEC_UNROLL _Pragma("GCC unroll 16")
#endif

/* Floats, their bits, and as many 16-bit values. VEC(name): the intrinsic of that width;
 * VEC_HALF(name): of half of it. */
#if defined(__AVX512F__)
enum { VF_LANES = 16 };
typedef __m512 vf;
typedef __m512i vi;
typedef __m256i vh;
#define VEC(name)      _mm512_##name
#define VEC_HALF(name) _mm256_##name
#else
enum { VF_LANES = 8 };
typedef __m256 vf;
typedef __m256i vi;
typedef __m128i vh;
#define VEC(name)      _mm256_##name
#define VEC_HALF(name) _mm_##name
#endif

#define vf_set   VEC(set1_ps)
#define vf_zero  VEC(setzero_ps)
#define vf_load  VEC(loadu_ps)
#define vf_store VEC(storeu_ps)
#define vf_fma   VEC(fmadd_ps)  /* a * b + c */
#define vf_fnma  VEC(fnmadd_ps) /* c - a * b */
#define vf_max   VEC(max_ps)    /* propagates a NaN in the second argument, not in the first */
#define vf_min   VEC(min_ps)
#define vf_sqrt  VEC(sqrt_ps)

VEC_INLINE vf vf_abs(vf v)
{
    return VEC(andnot_ps)(vf_set(-0.0f), v);
}

/* ---- differences of the instruction sets ----------------------------------------------------- */

#if defined(__AVX512F__)

/* Selects yes where v < 0, no elsewhere (also for -0 and NaN). */
VEC_INLINE vf vf_if_negative(vf v, vf yes, vf no)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(v, vf_zero(), _CMP_LT_OQ), no, yes);
}

VEC_INLINE vf vf_round(vf v)
{
    return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* Returns 1 / x to the last bit or two, for normal x with a normal reciprocal. */
VEC_INLINE vf vf_rcp(vf x)
{
    vf r = _mm512_rcp14_ps(x);
    return vf_fma(vf_fnma(x, r, vf_set(1.0f)), r, r);
}

VEC_INLINE float vf_sum(vf v)
{
    return _mm512_reduce_add_ps(v);
}

VEC_INLINE float vf_hmax(vf v)
{
    return _mm512_reduce_max_ps(v);
}

/* Rounds to bf16, to nearest even; NaN stays NaN. */
VEC_INLINE vh vec_narrow(vf v)
{
#if defined(__AVX512BF16__)
    return (vh)_mm512_cvtneps_pbh(v);
#else
    vi bits = (vi)v, odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    vi rounded = _mm512_add_epi32(_mm512_add_epi32(bits, odd), _mm512_set1_epi32(0x7fff));
    __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    rounded = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
#endif
}

#else /* AVX2 */

VEC_INLINE vf vf_if_negative(vf v, vf yes, vf no)
{
    return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(v, vf_zero(), _CMP_LT_OQ));
}

VEC_INLINE vf vf_round(vf v)
{
    return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* AVX2's estimate has only 12 bits, so one Newton step is not enough; division is as fast as
 * two. */
VEC_INLINE vf vf_rcp(vf x)
{
    return vf_set(1.0f) / x;
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

VEC_INLINE vh vec_narrow(vf v)
{
    vi bits = (vi)v, odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    vi rounded = _mm256_add_epi32(_mm256_add_epi32(bits, odd), _mm256_set1_epi32(0x7fff));
    vf quiet = _mm256_or_ps(v, (vf)_mm256_set1_epi32(0x400000));
    vf chosen = _mm256_blendv_ps((vf)rounded, quiet, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    vi high = _mm256_srli_epi32((vi)chosen, 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
}

#endif

#endif
