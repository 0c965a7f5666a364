/* One item of attention's work: the memory it uses, the blocks of its queries, and which keys each
 * sees. Independent of the unit (attention_pack.h). */
#ifndef KVF_ATTENTION_JOB_H
#define KVF_ATTENTION_JOB_H

#include "attention_pack.h"

/* Some rows in the layouts that products read. With PAIR 1 pairs are the rows. */
typedef struct attn_packed {
    float *rows;  /* [rows][units] */
    float *cols;  /* [units][across]; of queries and their gradients only */
    float *pairs; /* [rows / PAIR][width] */
} attn_packed;

/* One item and its scratch. Gradients are kept in f32 until the item ends. Of two, [0] belongs to
 * keys and [1] to values: S = K Q^T and dK = dS^T Q, dP = V dO^T and dV = P^T dO. */
typedef struct attn_job {
    const kvf__attn *attn;
    const kvf__attn_row *row;
    const kvf__attn_item *next; /* the thread's next item, NULL: none */
    int64_t g, shared, n;       /* key/value head; keys before the row's own, keys in all */
    int64_t width, units;       /* elements and units of a packed row */
    int64_t across;             /* queries side by side: BLOCK, backward QUERIES */
    attn_packed keys[2];        /* K and V, n rows */
    attn_packed queries[2];     /* Q and dO of a block, QUERIES rows */
    float *scores[2];           /* S and dP [keys][across]; P or dS replace them */
    float *weights[2];          /* dS and P [keys][across / PAIR] */
    float *out_cols;            /* [width][across] O^T or dQ^T */
    float *dkeys[2];            /* dK and dV [n][width] */
    float *lse, *delta;         /* [QUERIES] */
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
        b.both = attn_min(b.keys, kvf__round_up(job->shared + q0 + VF_LANES, KEY_STEP));
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

static const kvf__attn_item *next_item(const kvf__attn_plan *plan, const kvf__attn_item *item)
{
    const int thread = item->thread;
    for (item++; item < plan->items + plan->n_items; item++)
        if (item->thread == thread) return item;
    return NULL;
}

#endif
