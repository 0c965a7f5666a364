/* Storing an item's gradients of attention, and per-query values of the backward pass. Independent
 * of the unit. */
#ifndef KVF_ATTENTION_STORE_H
#define KVF_ATTENTION_STORE_H

#include "attention_job.h"

/* Computes lse and delta = dout . out of queries q0 .. q0 + n - 1. Padding lanes get values that
 * make P and dS 0 for any score. */
static void query_sums(const attn_job *job, int64_t head, int64_t q0, int64_t n)
{
    const kvf__attn *a = job->attn;
    const kvf__attn_rows out = kvf__attn_in_out(a, job->row, a->out, head, q0),
                         dout = kvf__attn_in_out(a, job->row, a->dout, head, q0);
    for (int64_t i = 0; i < kvf__round_up(n, VF_LANES); i++) {
        vf sum = vf_zero();
        for (int64_t d = 0; i < n && d < a->D; d += VF_LANES)
            sum = vf_fma(load_part(&out, i, d, a->D - d), load_part(&dout, i, d, a->D - d), sum);
        job->delta[i] = vf_sum(sum);
        job->lse[i] = i < n ? *kvf__attn_lse(a, job->row, head, q0 + i) : 1e4f;
    }
}

static void store_dq(const attn_job *job, int64_t head, int64_t q0, int64_t n)
{
    const kvf__attn *a = job->attn;
    for (int64_t i = 0; i < n; i += VF_LANES) {
        const kvf__attn_rows to = kvf__attn_in_qkv(a, job->row, a->dqkv, head, q0 + i);
        unpack_cols(&to, job->out_cols + i, job->across, vf_set(a->scale),
                    attn_min(n - i, VF_LANES), a->D);
    }
}

/* Zeroes dq of the queries before the first wanted one. */
static void zero_unwanted(const attn_job *job)
{
    const kvf__attn *a = job->attn;
    const int64_t heads = a->H / a->G;
    const kvf__attn_rows to = kvf__attn_in_qkv(a, job->row, a->dqkv, job->g * heads, 0);
    for (int64_t i = 0; i < job->row->first; i++)
        for (int64_t d = 0; d < heads * a->D; d += VF_LANES)
            store_part(&to, i, d, vf_zero(), heads * a->D - d);
}

/* Adds dk and dv of the shared segments to the part's accumulators, and stores those of own keys in
 * dqkv. */
static void store_key_grads(const attn_job *job, int part)
{
    const kvf__attn *a = job->attn;
    if (job->dlog_weights)
        kvf__attn_add_log_weight_grads(a, job->row, job->g, part, job->dlog_weights);
    for (int which = 0; which < 2; which++) {
        const float *from = job->dkeys[which];
        const vf by = vf_set(which ? 1.0f : a->scale);
        for (int32_t s = 0; s < job->row->n_segs; s++) {
            const int64_t len = kvf__attn_keys_len(job->attn, job->row, s);
            float *to = kvf__attn_grad(a, part, job->row->seg[s]);
            if (to) to += (which * a->G + job->g) * len * a->D;
            for (int64_t i = 0; i < len; i++, from += job->width)
                for (int64_t d = 0; to && d < a->D; d += VF_LANES) {
                    const int64_t n = attn_min(a->D - d, VF_LANES);
                    float *at = to + i * a->D + d;
                    vf_store_n(at, vf_fma(vf_load(from + d), by, vf_load_n(at, n)), n);
                }
        }
        const kvf__attn_rows own = kvf__attn_in_qkv(a, job->row, a->dqkv,
                                                    a->H + which * a->G + job->g, 0);
        const int64_t len = a->shared_only ? 0 : kvf__attn_keys_len(a, job->row, job->row->n_segs);
        for (int64_t i = 0; i < len; i++, from += job->width) {
            prefetch_row(&own, i + AHEAD, a->D, 1);
            for (int64_t d = 0; d < a->D; d += VF_LANES)
                store_part(&own, i, d, vf_load(from + d) * by, a->D - d);
        }
    }
}

#endif
