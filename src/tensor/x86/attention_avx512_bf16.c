/* Attention for avx512_bf16: attention_body.h compiled for it, act F32 in
 * f32 arithmetic, act BF16 with products of bf16 pairs that are summed in f32 (vdpbf16ps). */
#if !defined(__AVX512BF16__)
#error "compile with the AVX-512 flags and -mavx512bf16"
#endif

#include "attention_few.h"
#include "attention_job.h"
#include "kernels_int.h"

#define ATTN_PAIR  1
#define ATTN(name) name##_f32
#include "attention_body.h"
#undef ATTN_PAIR
#undef ATTN

#define ATTN_PAIR  2
#define ATTN(name) name##_bf16
#include "attention_body.h"

void kvf__attn_fwd_avx512_bf16(const kvf__attn *attn)
{
    kvf__attn_run(attn, attn->act == KVF__BF16 ? fwd_item_bf16 : fwd_item_f32, false);
}

void kvf__attn_bwd_avx512_bf16(const kvf__attn *attn)
{
    kvf__attn_run(attn, attn->act == KVF__BF16 ? bwd_item_bf16 : bwd_item_f32, true);
}

void kvf__attn_head_avx512_bf16(const kvf__attn *attn, const kvf__attn_row *row, int64_t head,
                                void *scratch)
{
    few_head(attn, row, head, scratch);
}
