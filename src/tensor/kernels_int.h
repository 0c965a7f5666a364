/* Shared by the files of kernels.h, matvec.h and wide.h: the tables, one per instruction set.
 *
 * cpu.c picks a table. ref_*.c define those of "ref", the files of x86/ those of the set they are
 * compiled for. Attention functions are in separate files. */
#ifndef KVF_KERNELS_INT_H
#define KVF_KERNELS_INT_H

#include "dequant.h"
#include "kernels.h"
#include "matvec.h"
#include "wide.h"

#include <float.h>

/* Level available to this process: CPU features, register state saved by the kernel, and KVF_CPU.
 * Each level has all features of the lower ones. */
typedef enum kvf__cpu_rank {
    KVF__CPU_REF,
    KVF__CPU_AVX2,   /* with FMA and F16C */
    KVF__CPU_AVX512, /* F, BW, DQ, VL */
    KVF__CPU_AVX512_BF16,
    KVF__CPU_AMX /* TILE, BF16 */
} kvf__cpu_rank;
kvf__cpu_rank kvf__cpu_best(void);
/* Returns whether KVF_CPU is set, so that oneDNN is capped too. */
bool kvf__cpu_is_capped(void);

#if defined(__x86_64__)
#define KVF__HAVE_X86 1
#else
#define KVF__HAVE_X86 0
#endif

/* wide.h has no table of its own for avx512_bf16. */
#define KVF__DECLARE_LEVEL(level)                                                                  \
    extern const kvf__kernels kvf__kernels_##level;                                                \
    extern const kvf__matvec kvf__matvec_##level;                                                  \
    extern const kvf__wide kvf__wide_##level;                                                      \
    void kvf__attn_fwd_##level(const struct kvf__attn *attn);                                      \
    void kvf__attn_bwd_##level(const struct kvf__attn *attn);                                      \
    void kvf__attn_head_##level(const struct kvf__attn *attn, const struct kvf__attn_row *row,     \
                                int64_t head, void *scratch);                                      \
    void kvf__delta_fwd_##level(const struct kvf__delta *d);                                       \
    void kvf__delta_bwd_##level(const struct kvf__delta *d);

KVF__DECLARE_LEVEL(ref)
KVF__DECLARE_LEVEL(avx2)
KVF__DECLARE_LEVEL(avx512)
KVF__DECLARE_LEVEL(avx512_bf16)

/* The table of a file whose functions are named like its fields, except for those of LEVEL. */
#define KVF__KERNELS_TABLE(named, LEVEL)                                                           \
    {                                                                                              \
        .name = named, .norm_fwd = norm_fwd, .norm_bwd = norm_bwd,                                 \
        .whole_norm_fwd = whole_norm_fwd, .whole_norm_bwd = whole_norm_bwd,                        \
        .head_norm_fwd = head_norm_fwd, .head_norm_bwd = head_norm_bwd, .act_fwd = act_fwd,        \
        .mul = mul, .glu_fwd = glu_fwd, .glu_bwd = glu_bwd, .rope = rope, .ce = ce,                \
        .from_f32 = from_f32, .to_f32 = to_f32, .quantize = quantize, .scale_sums = scale_sums,    \
        .attn_fwd = LEVEL(kvf__attn_fwd_), .attn_bwd = LEVEL(kvf__attn_bwd_),                      \
        .attn_head = LEVEL(kvf__attn_head_), .delta_fwd = LEVEL(kvf__delta_fwd_),                  \
        .delta_bwd = LEVEL(kvf__delta_bwd_),                                                       \
    }

/* ---- eight bits ------------------------------------------------------------------------------ */

/* Returns the larger of two magnitudes; NaN if one is NaN. */
static inline float kvf__larger(float a, float b)
{
    return a >= b || a != a ? a : b;
}

/* Converts *scale from the largest magnitude to the scale; returns the factor of the elements. 0:
 * all elements become zero. */
static inline float kvf__quantizer(float *scale)
{
    const float most = *scale;
    const bool finite = most <= FLT_MAX, zero = most < 0x1p-100f;

    *scale = zero ? 0 : most / 127.0f;
    return zero || !finite ? 0 : 127.0f / most;
}

/* ---- elements, for the reference ------------------------------------------------------------- */

/* Returns element i of act values. */
static inline double kvf__ref_get(kvf__dtype act, const void *p, int64_t i)
{
    float value;
    if (act == KVF__F32) return ((const float *)p)[i];
    if (act == KVF__BF16) return kvf__bf16_value(((const uint16_t *)p)[i]);
    kvf__to_f32(act, (const uint16_t *)p + i, &value, 1);
    return value;
}

static inline void kvf__ref_set(kvf__dtype act, void *p, int64_t i, double value)
{
    float rounded = (float)value;
    if (act == KVF__F32)
        ((float *)p)[i] = rounded;
    else
        kvf__from_f32(act, &rounded, (uint16_t *)p + i, 1);
}

#endif
