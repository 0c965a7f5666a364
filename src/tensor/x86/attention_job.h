/* What the two passes of attention share that does not depend on the unit: one item's work,
 * blocks of its queries, masks, and the way of results out of it. Included before
 * attention_body.h. */
#ifndef KVF_ATTENTION_JOB_H
#define KVF_ATTENTION_JOB_H

#include "attention_pack.h"

/* One item and its scratch. Gradients are kept in f32 until the item ends. PAIR and units:
 * attention_pack.h. */
typedef struct attn_job {
    const kvf__attn *attn;
    const kvf__attn_row *row;
    const kvf__attn_item *next;  /* the thread's next item, NULL: none */
    int64_t g, shared, n;        /* key/value head; keys before the row's own, keys in all */
    int64_t width, units;        /* elements and units of a packed row */
    int64_t across;              /* queries side by side: BLOCK, backward QUERIES */
    float *k, *v;                /* rows [n][units] */
    float *k_pairs, *v_pairs;    /* pairs [n / PAIR][width] */
    float *q, *dout;             /* rows [QUERIES][units] of a block */
    float *q_cols, *dout_cols;   /* cols [units][across] */
    float *q_pairs, *dout_pairs; /* pairs [QUERIES / PAIR][width] */
    float *s, *dp;               /* [keys][across]; P or dS replace them as [keys / PAIR][across] */
    float *p_rows, *ds_rows;     /* [keys][across / PAIR] */
    float *out_cols;             /* [width][across] O^T or dQ^T */
    float *dk, *dv;              /* [n][width] */
    float *lse, *delta;          /* [QUERIES] */
} attn_job;

/* Queries that fill two vectors, and the keys they see. */
typedef struct attn_block {
    int64_t head, q0, n; /* first query, queries */
    int vectors;
    int64_t keys; /* keys that some query sees */
    int64_t both; /* keys from here on are seen by the second vector alone */
} attn_block;

/* One vector of queries against many keys: P = 2^(S * scale + shift), 0 where a key is hidden. */
typedef struct attn_column {
    int64_t plain;    /* every lane sees the keys before this one */
    int64_t diagonal; /* from then on key j is hidden from the first j - diagonal lanes */
    vf scale, shift;
    vf delta; /* backward only */
} attn_column;

VEC_INLINE vf hide(const attn_column *c, int64_t j, vf v, vf other)
{
    return j < c->plain ? v : vf_keep_n(other, attn_min(j - c->diagonal, VF_LANES), v);
}

static attn_block job_block(const attn_job *job, int64_t head, int64_t q0, bool shared_only)
{
    const int64_t n = attn_min(job->row->len - q0, BLOCK);
    attn_block b = {head, q0, n, n > VF_LANES ? 2 : 1, job->n, job->n};
    if (job->attn->causal) b.keys = job->shared + q0 + n;
    if (shared_only) b.keys = attn_min(b.keys, job->shared);
    b.both = b.keys;
    if (job->attn->causal && b.vectors == 2)
        b.both = attn_min(b.keys, attn_round(job->shared + q0 + VF_LANES, KEY_STEP));
    return b;
}

/* One vector of a block, without what the passes add. */
static attn_column job_column(const attn_job *job, const attn_block *b, int v)
{
    /* the key of the first lane's own token */
    const int64_t self = job->shared + b->q0 + v * VF_LANES;
    attn_column c = {
        .plain = self + 1, .diagonal = self, .scale = vf_set(job->attn->scale * 1.44269504f)};
    if (!job->attn->causal) {
        c.plain = job->n;
        c.diagonal = job->n - VF_LANES;
    }
    return c;
}

static attn_rows job_queries(const attn_job *job, int64_t head, int64_t q0)
{
    const kvf__attn *a = job->attn;
    return (attn_rows){a->qkv, a->act, (job->row->start + q0) * a->ld + head * a->D, a->ld};
}

static attn_rows job_outs(const attn_job *job, const void *out, int64_t head, int64_t q0)
{
    const kvf__attn *a = job->attn;
    return (attn_rows){out, a->act, ((job->row->start + q0) * a->H + head) * a->D, a->H * a->D};
}

static int64_t job_lse(const attn_job *job, int64_t head, int64_t q0)
{
    return head * job->attn->N + job->row->start + q0;
}

/* ---- memory that comes next ------------------------------------------------------------------ */

/* Rows of an item lie far apart, and most are in no near cache when their block's turn comes. While
 * one block is computed, parts of what the next one reads are asked for, and parts of the next
 * item's own keys and values. */
typedef struct attn_span {
    int64_t head, q0, n; /* n queries of a head */
} attn_span;
typedef struct attn_ahead {
    int64_t step; /* queries of a block */
    bool backward;
    int64_t part, parts; /* of what this block asks for */
} attn_ahead;

static const kvf__attn_item *next_item(const kvf__attn_plan *plan, const kvf__attn_item *item)
{
    const int thread = item->thread;
    for (item++; item < plan->items + plan->n_items; item++)
        if (item->thread == thread) return item;
    return NULL;
}

/* Rows from n * part / parts on, up to the next part's. */
static void ask_rows(const attn_rows *rows, int64_t n, int64_t D, int64_t part, int64_t parts)
{
    const int64_t size = rows->dtype == KVF__F32 ? 4 : 2;
    for (int64_t i = n * part / parts; i < n * (part + 1) / parts; i++) {
        const char *from = (const char *)rows->base + (rows->at + i * rows->stride) * size;
        for (int64_t byte = -((intptr_t)from & 63); byte < D * size; byte += 64)
            __builtin_prefetch(from + byte, 0, 2); /* the second cache: the first is at work */
    }
}

static void ask_block(const attn_job *next, const attn_span *b, const attn_ahead *how)
{
    const kvf__attn *a = next->attn;
    const attn_rows q = job_queries(next, b->head, b->q0),
                    out = job_outs(next, a->out, b->head, b->q0),
                    dout = job_outs(next, a->dout, b->head, b->q0);
    ask_rows(&q, b->n, a->D, how->part, how->parts);
    if (!how->backward) return;
    ask_rows(&dout, b->n, a->D, how->part, how->parts);
    ask_rows(&out, b->n, a->D, how->part, how->parts);
}

/* Block b computes; what comes behind it? */
static void ask_ahead(const attn_job *job, const attn_span *b, const attn_ahead *how)
{
    const kvf__attn *a = job->attn;
    const int64_t heads = a->H / a->G;
    const int64_t each = (job->row->len - job->row->first + how->step - 1) / how->step;
    const int64_t block = (b->head - job->g * heads) * each + (b->q0 - job->row->first) / how->step;
    attn_job next = {.attn = a, .row = job->row};
    attn_span to = {b->head, b->q0 + how->step, 0};

    if (job->next) {
        next.row = &a->plan->rows[job->next->row];
        for (int which = 0; which < 2; which++) {
            const attn_rows own = attn_source(a, next.row, job->next->head, next.row->n_segs,
                                              which);
            ask_rows(&own, next.row->len, a->D, block * how->parts + how->part,
                     heads * each * how->parts);
        }
        next.row = job->row;
    }
    if (to.q0 >= job->row->len) to = (attn_span){b->head + 1, job->row->first, 0};
    if (to.head == (job->g + 1) * heads) {
        if (!job->next) return;
        next.row = &a->plan->rows[job->next->row];
        to = (attn_span){job->next->head * heads, next.row->first, 0};
    }
    to.n = attn_min(next.row->len - to.q0, how->step);
    ask_block(&next, &to, how);
}

/* Largest of the scores s [end][across] of each query, unscaled. */
VEC_INLINE vf column_max(const attn_column *c, const float *s, int64_t across, int64_t end)
{
    const vf none = vf_set(-3.0e38f);
    const int64_t plain = attn_min(c->plain, end);
    vf max[4] = {none, none, none, none};
    int64_t j = 0;
    for (; j + 4 <= plain; j += 4)
        for (int t = 0; t < 4; t++)
            max[t] = vf_max(max[t], vf_load(s + (j + t) * across));
    for (; j < end; j++)
        max[0] = vf_max(max[0], hide(c, j, vf_load(s + j * across), none));
    return vf_max(vf_max(max[0], max[1]), vf_max(max[2], max[3]));
}

/* lse and delta = dout . out of queries q0 .. q0 + n - 1, 0 in the lanes that fill up the last
 * vector. */
static void query_sums(const attn_job *job, int64_t head, int64_t q0, int64_t n)
{
    const kvf__attn *a = job->attn;
    const attn_rows out = job_outs(job, a->out, head, q0), dout = job_outs(job, a->dout, head, q0);
    for (int64_t i = 0; i < attn_round(n, VF_LANES); i++) {
        vf sum = vf_zero();
        for (int64_t d = 0; i < n && d < a->D; d += VF_LANES)
            sum = vf_fma(load_part(&out, i, d, a->D - d), load_part(&dout, i, d, a->D - d), sum);
        job->delta[i] = vf_sum(sum);
        job->lse[i] = i < n ? a->lse[job_lse(job, head, q0 + i)] : 0;
    }
}

static void store_dq(const attn_job *job, int64_t head, int64_t q0, int64_t n)
{
    const kvf__attn *a = job->attn;
    for (int64_t i = 0; i < n; i += VF_LANES) {
        const attn_dest to = {a->dqkv, a->act, (job->row->start + q0 + i) * a->ld + head * a->D,
                              a->ld};
        unpack_cols(&to, job->out_cols + i, job->across, vf_set(a->scale),
                    attn_min(n - i, VF_LANES), a->D);
    }
}

/* dq of the queries before the first one wanted. */
static void zero_unwanted(const attn_job *job)
{
    const kvf__attn *a = job->attn;
    const int64_t heads = a->H / a->G;
    const attn_dest to = {a->dqkv, a->act, job->row->start * a->ld + job->g * heads * a->D, a->ld};
    for (int64_t i = 0; i < job->row->first; i++)
        for (int64_t d = 0; d < heads * a->D; d += VF_LANES)
            store_part(&to, i, d, vf_zero(), heads * a->D - d);
}

/* dk and dv of the shared segments to this thread's accumulators, those of the row's own keys to
 * dqkv. */
static void store_key_grads(const attn_job *job, int thread)
{
    const kvf__attn *a = job->attn;
    for (int which = 0; which < 2; which++) {
        const float *from = which ? job->dv : job->dk;
        const vf by = vf_set(which ? 1.0f : a->scale);
        for (int32_t s = 0; s < job->row->n_segs; s++) {
            const int64_t len = attn_source_len(job->attn, job->row, s);
            float *to = kvf__attn_grad(a, thread, job->row->seg[s]);
            if (to) to += (which * a->G + job->g) * len * a->D;
            for (int64_t i = 0; i < len; i++, from += job->width)
                for (int64_t d = 0; to && d < a->D; d += VF_LANES) {
                    const int64_t n = attn_min(a->D - d, VF_LANES);
                    float *at = to + i * a->D + d;
                    vf_store_n(at, vf_fma(vf_load(from + d), by, vf_load_n(at, n)), n);
                }
        }
        const int64_t column = (a->H + which * a->G + job->g) * a->D;
        const attn_dest own = {a->dqkv, a->act, job->row->start * a->ld + column, a->ld};
        for (int64_t i = 0; i < job->row->len && !a->shared_only; i++, from += job->width) {
            prefetch_row(own.base, own.dtype, own.at + (i + AHEAD) * own.stride, a->D, 1);
            for (int64_t d = 0; d < a->D; d += VF_LANES)
                store_part(&own, i, d, vf_load(from + d) * by, a->D - d);
        }
    }
}

#endif
