/* Attention on the vectors of vec.h, fused over blocks of queries, in f32. Compiled once per
 * instruction set (KVF_LEVEL). AVX512-BF16 has a second copy for act BF16, with products of bf16
 * pairs summed in f32 (vdpbf16ps). */
#include "attention_ahead.h"
#include "attention_few.h"
#include "attention_store.h"
#include "kernels_int.h"
#include "level.h"

#define ATTN_PAIR  1
#define ATTN(name) name##_f32
#include "attention_blocks.h"
/* needs the header before */
#include "attention_relative.h"
/* needs both */
#include "attention_bwd.h"
#include "attention_fwd.h"
#undef ATTN_PAIR
#undef ATTN

#if defined(__AVX512BF16__)
#define ATTN_PAIR  2
#define ATTN(name) name##_bf16
#include "attention_blocks.h"
/* needs the header before */
#include "attention_bwd.h"
#include "attention_fwd.h"
#define FOR_ACT(name, act) ((act) == KVF__BF16 ? name##_bf16 : name##_f32)
#else
#define FOR_ACT(name, act) name##_f32
#endif

void KVF__LEVEL(kvf__attn_fwd_)(const kvf__attn *attn)
{
    kvf__attn_run(attn, FOR_ACT(fwd_item, attn->act), false);
}

void KVF__LEVEL(kvf__attn_bwd_)(const kvf__attn *attn)
{
    kvf__attn_run(attn, FOR_ACT(bwd_item, attn->act), true);
}

void KVF__LEVEL(kvf__attn_head_)(const kvf__attn *attn, const kvf__attn_row *row, int64_t head,
                                 void *scratch)
{
    few_head(attn, row, head, scratch);
}
