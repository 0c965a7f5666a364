/* Attention for avx2: attention_body.h compiled for it, in f32
 * arithmetic for both act types. */
#if !defined(__AVX2__) || !defined(__FMA__)
#error "compile with -mavx2 -mfma"
#endif

#include "attention_few.h"
#include "attention_job.h"
#include "kernels_int.h"

#define ATTN_PAIR  1
#define ATTN(name) name##_f32
#include "attention_body.h"

void kvf__attn_fwd_avx2(const kvf__attn *attn)
{
    kvf__attn_run(attn, fwd_item_f32, false);
}

void kvf__attn_bwd_avx2(const kvf__attn *attn)
{
    kvf__attn_run(attn, bwd_item_f32, true);
}

void kvf__attn_head_avx2(const kvf__attn *attn, const kvf__attn_row *row, int64_t head,
                         void *scratch)
{
    few_head(attn, row, head, scratch);
}
