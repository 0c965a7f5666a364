/* Rows of a file's matrix as vectors of f32, a part of 32 elements at a time, with the bits of
 * dequant.c and dtype.c. These round a product and then a sum; here the products are exact (scales
 * have 11 to 17 bits, integers at most 8), so fusing changes nothing.
 *
 * Layouts: ggml-common.h, ggml-quants.c. The type is a constant wherever this is inlined. */
#ifndef KVF_MATVEC_BLOCKS_H
#define KVF_MATVEC_BLOCKS_H

#include "matvec_int.h"
#include "vec_act.h"
#include "vec_int.h"

enum { PART = KVF__MATVEC_PART, VECTORS = PART / VF_LANES, BIG_PARTS = 8 };

/* Returns the bytes of a block. */
VEC_INLINE int64_t type_bytes(kvf__dtype dtype)
{
    static const int64_t BYTES[] = {
#define TYPE_BYTES(id, text, bytes, elements) bytes,
        KVF__DTYPE_LIST(TYPE_BYTES)
#undef TYPE_BYTES
    };
    return BYTES[dtype];
}

/* Returns the 4-bit integers of vector v of a part whose 16 bytes hold elements 0..15 in their low
 * halves and 16..31 in the high ones. */
VEC_INLINE vi nibbles(const uint8_t *q, int v)
{
    const int at = v * VF_LANES;
    vi bytes = vi_bytes(q + at % 16);
    return at < 16 ? (vi)(bytes & vi_set(15)) : vi_right(bytes, 4);
}

/* Computes scale * n + offset for the 4-bit n of a part. AVX-512 looks up the 16 possible values;
 * its look-up ignores the bits above the fourth. */
VEC_INLINE void q4_part(const uint8_t *q, vf scale, vf offset, vf out[VECTORS])
{
#if defined(__AVX512F__)
    vf values = vf_fma(vi_to_f32(vi_lanes()), scale, offset);
    vi bytes = vi_bytes(q);
    out[0] = _mm512_permutexvar_ps(bytes, values);
    out[1] = _mm512_permutexvar_ps(_mm512_srli_epi32(bytes, 4), values);
#else
    for (int v = 0; v < VECTORS; v++)
        out[v] = vf_fma(vi_to_f32(nibbles(q, v)), scale, offset);
#endif
}

/* Like q4_part, with bit j of qh as the fifth bit of element j. */
VEC_INLINE void q5_part(const uint8_t *qh, const uint8_t *q, vf scale, vf offset, vf out[VECTORS])
{
    int32_t bits;
    memcpy(&bits, qh, sizeof bits);
    for (int v = 0; v < VECTORS; v++) {
        vi high = vi_right_by(vi_set((int32_t)((uint32_t)bits >> (v * VF_LANES))), vi_lanes());
        high = vi_left(high & vi_set(1), 4);
        out[v] = vf_fma(vi_to_f32(nibbles(q, v) | high), scale, offset);
    }
}

VEC_INLINE void q8_part(const uint8_t *q, vf scale, vf out[VECTORS])
{
    for (int v = 0; v < VECTORS; v++)
        out[v] = vi_to_f32(vi_signed_bytes(q + v * VF_LANES)) * scale;
}

/* Scale and minimum of part i of a Q4_K or Q5_K block; see k_scales in dequant.c. */
VEC_INLINE void k_part_scale(const uint8_t *block, int i, vf *scale, vf *minimum)
{
    const uint8_t *s = block + 4;
    int a = i < 4 ? s[i] & 63 : (s[i + 4] & 15) | (s[i - 4] >> 6) << 4;
    int b = i < 4 ? s[i + 4] & 63 : (s[i + 4] >> 4) | (s[i] >> 6) << 4;
    load_two_f16(block, scale, minimum);
    *scale *= vf_set((float)a);
    *minimum *= vf_set((float)b);
}

/* Part i of a Q4_K block: the low or high halves of 32 bytes; Q5_K has bit i of qh on top. */
VEC_INLINE void k_part(const uint8_t *block, bool five, int i, vf out[VECTORS])
{
    const uint8_t *qh = block + 16, *q = block + (five ? 48 : 16) + i / 2 * 32;
    vf scale, minimum;
    k_part_scale(block, i, &scale, &minimum);
    for (int v = 0; v < VECTORS; v++) {
        vi n = vi_right(vi_bytes(q + v * VF_LANES), i % 2 * 4) & vi_set(15);
        if (five) {
            vi high = vi_right(vi_bytes(qh + v * VF_LANES), i) & vi_set(1);
            n |= vi_left(high, 4);
        }
        out[v] = vf_fma(vi_to_f32(n), scale, -minimum);
    }
}

/* Part i of a Q6_K block: four bits from ql, two from qh, a scale for every 16 elements. */
VEC_INLINE void q6_k_part(const uint8_t *block, int i, vf out[VECTORS])
{
    const int half = i / 4, in = i % 4;
    const uint8_t *ql = block + 64 * half + in % 2 * 32, *qh = block + 128 + 32 * half;
    const int8_t *s = (const int8_t *)block + 192 + 8 * half + 2 * in;
    vf d = load_one_f16(block + 208);
    for (int v = 0; v < VECTORS; v++) {
        const int at = v * VF_LANES;
        vi low = vi_right(vi_bytes(ql + at), in / 2 * 4) & vi_set(15);
        vi high = vi_right(vi_bytes(qh + at), in * 2) & vi_set(3);
        vf n = vi_to_f32(low | vi_left(high, 4)) - vf_set(32.0f);
        out[v] = n * (d * vf_set((float)s[at / 16]));
    }
}

/* Part i of a row of a plain type. */
VEC_INLINE void plain_part(kvf__dtype dtype, const uint8_t *row, int64_t i, vf out[VECTORS])
{
    for (int v = 0; v < VECTORS; v++) {
        const int64_t at = i * PART + v * VF_LANES;
        if (dtype == KVF__F32) out[v] = vf_load((const float *)(const void *)(row + 4 * at));
        if (dtype == KVF__F16) out[v] = vf_load_f16(row + 2 * at);
        if (dtype == KVF__BF16)
            out[v] = vf_load_bf16((const uint16_t *)(const void *)(row + 2 * at));
    }
}

/* Part i of a row, of which PART elements exist. */
VEC_INLINE void row_part(kvf__dtype dtype, const uint8_t *row, int64_t i, vf out[VECTORS])
{
    const uint8_t *small = row + i * type_bytes(dtype);
    const uint8_t *big = row + i / BIG_PARTS * type_bytes(dtype);
    const int in = (int)(i % BIG_PARTS);
    vf scale, offset;
    switch (dtype) {
    case KVF__Q4_0:
        scale = load_one_f16(small);
        q4_part(small + 2, scale, scale * vf_set(-8.0f), out);
        break;
    case KVF__Q4_1:
        load_two_f16(small, &scale, &offset);
        q4_part(small + 4, scale, offset, out);
        break;
    case KVF__Q5_0:
        scale = load_one_f16(small);
        q5_part(small + 2, small + 6, scale, scale * vf_set(-16.0f), out);
        break;
    case KVF__Q5_1:
        load_two_f16(small, &scale, &offset);
        q5_part(small + 4, small + 8, scale, offset, out);
        break;
    case KVF__Q8_0:
        q8_part(small + 2, load_one_f16(small), out);
        break;
    case KVF__Q4_K:
    case KVF__Q5_K:
        k_part(big, dtype == KVF__Q5_K, in, out);
        break;
    case KVF__Q6_K:
        q6_k_part(big, in, out);
        break;
    default:
        plain_part(dtype, row, i, out);
        break;
    }
}

#endif
