/* Attention for avx512: attention_body.h compiled for it, in f32
 * arithmetic for both act types. */
#if !defined(__AVX512F__) || !defined(__AVX512BW__) || !defined(__AVX512DQ__) ||                   \
    !defined(__AVX512VL__)
#error "compile with -mavx512f -mavx512bw -mavx512dq -mavx512vl"
#endif

#include "attention_few.h"
#include "attention_job.h"
#include "kernels_int.h"

#define ATTN_PAIR  1
#define ATTN(name) name##_f32
#include "attention_body.h"

void kvf__attn_fwd_avx512(const kvf__attn *attn)
{
    kvf__attn_run(attn, fwd_item_f32, false);
}

void kvf__attn_bwd_avx512(const kvf__attn *attn)
{
    kvf__attn_run(attn, bwd_item_f32, true);
}

void kvf__attn_head_avx512(const kvf__attn *attn, const kvf__attn_row *row, int64_t head,
                           void *scratch)
{
    few_head(attn, row, head, scratch);
}
