/* Prefetching. Rows of an item are far apart in memory, and mostly not in a near cache when their
 * block is computed. While one block is computed, parts of the next block's input are prefetched,
 * and parts of the next item's keys and values. */
#ifndef KVF_ATTENTION_AHEAD_H
#define KVF_ATTENTION_AHEAD_H

#include "attention_job.h"

typedef struct attn_ahead {
    int64_t step; /* queries of a block */
    bool backward;
    int64_t part, parts; /* part prefetched by this block */
} attn_ahead;

/* Prefetches rows from n * part / parts on, up to the next part's, to the second-level cache, since
 * the first is in use. */
static void prefetch_share(const kvf__attn_rows *rows, int64_t n, int64_t D, int64_t part,
                           int64_t parts)
{
    const int64_t size = rows->dtype == KVF__F32 ? 4 : 2;
    for (int64_t i = n * part / parts; i < n * (part + 1) / parts; i++) {
        const char *from = (const char *)rows->base + (rows->at + i * rows->stride) * size;
        for (int64_t byte = -((intptr_t)from & 63); byte < D * size; byte += 64)
            __builtin_prefetch(from + byte, 0, 2);
    }
}

static void prefetch_block(const kvf__attn *a, const kvf__attn_row *row, const attn_span *b,
                           const attn_ahead *how)
{
    const kvf__attn_rows q = kvf__attn_in_qkv(a, row, a->qkv, b->head, b->q0),
                         out = kvf__attn_in_out(a, row, a->out, b->head, b->q0),
                         dout = kvf__attn_in_out(a, row, a->dout, b->head, b->q0);
    prefetch_share(&q, b->n, a->D, how->part, how->parts);
    if (!how->backward) return;
    prefetch_share(&dout, b->n, a->D, how->part, how->parts);
    prefetch_share(&out, b->n, a->D, how->part, how->parts);
}

/* Prefetches the input of the block after b. */
static void prefetch_ahead(const attn_job *job, const attn_span *b, const attn_ahead *how)
{
    const kvf__attn *a = job->attn;
    const int64_t heads = a->H / a->G;
    const int64_t each = (job->row->len - job->row->first + how->step - 1) / how->step;
    const int64_t block = (b->head - job->g * heads) * each + (b->q0 - job->row->first) / how->step;
    const kvf__attn_row *row = job->row, *later = job->next ? &a->plan->rows[job->next->row] : NULL;
    attn_span to = {b->head, b->q0 + how->step, 0};

    for (int which = 0; later && which < 2; which++) {
        const kvf__attn_rows own = kvf__attn_keys(a, later, job->next->head, later->n_segs, which);
        prefetch_share(&own, kvf__attn_keys_len(a, later, later->n_segs), a->D,
                       block * how->parts + how->part, heads * each * how->parts);
    }
    if (to.q0 >= row->len) to = (attn_span){b->head + 1, row->first, 0};
    if (to.head == (job->g + 1) * heads) {
        if (!later) return;
        row = later;
        to = (attn_span){job->next->head * heads, row->first, 0};
    }
    to.n = attn_min(row->len - to.q0, how->step);
    prefetch_block(a, row, &to, how);
}

#endif
