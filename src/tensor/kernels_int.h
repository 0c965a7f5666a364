/* Between the files that make up kernels.h: the tables, one per instruction set, and what fills
 * them.
 *
 * cpu.c picks a table; ref_ops.c and x86/ops_<level>.c define them; ref_attention.c and
 * attention_<level>.c bring the attention functions, by the names below. */
#ifndef KVF_KERNELS_INT_H
#define KVF_KERNELS_INT_H

#include "kernels.h"

/* What this process may use: the CPU's features, the state the kernel saves, and KVF_CPU. Each
 * level has all features of those before it. */
typedef enum kvf__cpu_rank {
    KVF__CPU_REF,
    KVF__CPU_AVX2,   /* with FMA and F16C */
    KVF__CPU_AVX512, /* F, BW, DQ, VL */
    KVF__CPU_AVX512_BF16,
    KVF__CPU_AMX /* TILE, BF16 */
} kvf__cpu_rank;
kvf__cpu_rank kvf__cpu_best(void);
/* KVF_CPU is set: then oneDNN is capped too. */
bool kvf__cpu_is_capped(void);

#if defined(__x86_64__)
#define KVF__HAVE_X86 1
#else
#define KVF__HAVE_X86 0
#endif

extern const kvf__kernels kvf__kernels_ref;
extern const kvf__kernels kvf__kernels_avx2;
extern const kvf__kernels kvf__kernels_avx512;
extern const kvf__kernels kvf__kernels_avx512_bf16;

void kvf__attn_fwd_ref(const struct kvf__attn *attn);
void kvf__attn_bwd_ref(const struct kvf__attn *attn);
void kvf__attn_fwd_avx2(const struct kvf__attn *attn);
void kvf__attn_bwd_avx2(const struct kvf__attn *attn);
void kvf__attn_fwd_avx512(const struct kvf__attn *attn);
void kvf__attn_bwd_avx512(const struct kvf__attn *attn);
void kvf__attn_fwd_avx512_bf16(const struct kvf__attn *attn);
void kvf__attn_bwd_avx512_bf16(const struct kvf__attn *attn);

void kvf__attn_head_ref(const struct kvf__attn *attn, const struct kvf__attn_row *row, int64_t head,
                        void *scratch);
void kvf__attn_head_avx2(const struct kvf__attn *attn, const struct kvf__attn_row *row,
                         int64_t head, void *scratch);
void kvf__attn_head_avx512(const struct kvf__attn *attn, const struct kvf__attn_row *row,
                           int64_t head, void *scratch);
void kvf__attn_head_avx512_bf16(const struct kvf__attn *attn, const struct kvf__attn_row *row,
                                int64_t head, void *scratch);

/* The attention entries of a level's table: the one place that ties the two halves together. */
#define KVF__ATTN_ENTRIES(level)                                                                   \
    .attn_fwd = kvf__attn_fwd_##level, .attn_bwd = kvf__attn_bwd_##level,                          \
    .attn_head = kvf__attn_head_##level

#endif
