/* Exponentials and a logarithm of vectors. */
#ifndef KVF_VEC_EXP_H
#define KVF_VEC_EXP_H

#include "vec.h"

/* Returns p * 2^n for integral n; 0 where x < low, so that results never become subnormal (slow on
 * many CPUs). AVX2 adds n to the exponent: p 2^n must be a normal number where x >= low. */
VEC_INLINE vf vec_scale2(vf p, vf n, vf x, float low)
{
#if defined(__AVX512F__)
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, vf_set(low), _CMP_NLT_UQ), p, n);
#else
    vi bits = _mm256_add_epi32((vi)p, _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23));
    return _mm256_andnot_ps(_mm256_cmp_ps(x, vf_set(low), _CMP_LT_OQ), (vf)bits);
#endif
}

/* Both exponentials: error below 1.5 ulp; 0 below 2^-126 (and for -inf), at most 3.4e38, NaN stays
 * NaN. The argument is split into an integral power of two and a rest r. The power of r is a
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

/* Absolute error below 2e-7. */
VEC_INLINE vf vf_tanh(vf x)
{
    const vf e = vf_exp(vf_abs(x) * vf_set(-2.0f)), one = vf_set(1.0f);
    const vf t = (one - e) / (one + e);
    return vf_if_negative(x, vf_zero() - t, t);
}

/* Returns log2 of a normal x > 0: exponent plus the series of artanh((m - 1) / (m + 1)) for the
 * mantissa m in [0.75, 1.5). */
VEC_INLINE vf vf_log2(vf x)
{
    const vi bits = (vi)x, from = VEC(set1_epi32)(0x3f400000); /* 0.75 */
    const vi power = VEC(srai_epi32)(VEC(sub_epi32)(bits, from), 23);
    const vf n = VEC(cvtepi32_ps)(power);
    const vf m = (vf)VEC(sub_epi32)(bits, VEC(slli_epi32)(power, 23));
    const float two_over_ln2 = 2.885390082f;
    const vf z = (m - vf_set(1.0f)) / (m + vf_set(1.0f)), z2 = z * z;
    vf q = vf_fma(z2, vf_set(two_over_ln2 / 9), vf_set(two_over_ln2 / 7));
    q = vf_fma(q, z2, vf_set(two_over_ln2 / 5));
    q = vf_fma(q, z2, vf_set(two_over_ln2 / 3));
    q = vf_fma(q, z2, vf_set(two_over_ln2));
    return vf_fma(q, z, n);
}

#endif
