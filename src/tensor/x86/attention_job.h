/* One item of attention: its memory, the blocks of its queries, and the keys visible to each.
 * Independent of the unit (attention_pack.h). */
#ifndef KVF_ATTENTION_JOB_H
#define KVF_ATTENTION_JOB_H

#include "attention_pack.h"

/* Rows in the layouts of the products. With PAIR 1, pairs are the rows. */
typedef struct attn_packed {
    float *rows;  /* [rows][units] */
    float *cols;  /* [units][across]; queries and their gradients only */
    float *pairs; /* [rows / PAIR][width] */
} attn_packed;

/* Relative terms of one head (attention_relative.h). For a bias only `bias`: by distance i - j,
 * [span] from 1 - row->len on. */
typedef struct attn_terms {
    float *bias;
    float *rows[2]; /* relative keys by t - i, relative queries by i - t: [span][width] from -reach
                       on; NULL: none */
    float *cols[2]; /* transposed, [width][span] */
    float *keys, *queries; /* own keys, queries of a block: [rows][width] */
    float *band;           /* products of VF_LANES rows with columns, [VF_LANES][BAND] */
    float *ds, *dq;        /* backward only: [SPREAD][SPREAD], [QUERIES][width] */
    int64_t width, reach, span;
} attn_terms;

/* One item and its scratch. Gradients stay in f32 until the item ends. In pairs, [0] belongs to
 * keys and [1] to values: S = K Q^T and dK = dS^T Q, dP = V dO^T and dV = P^T dO. */
typedef struct attn_job {
    const kvf__attn *attn;
    const kvf__attn_row *row;
    const kvf__attn_item *next; /* the thread's next item; NULL: none */
    int64_t g, shared, n;       /* key/value head; keys before the row's own, and total keys */
    int64_t width, units;       /* elements and units of a packed row */
    int64_t across;             /* queries per row of a layout: BLOCK, backward QUERIES */
    attn_packed keys[2];        /* K and V, n rows */
    attn_packed queries[2];     /* Q and dO of a block, QUERIES rows */
    float *scores[2];           /* S and dP [keys][across]; P or dS replace them */
    float *weights[2];          /* dS and P [keys][across / PAIR] */
    float *out_cols;            /* [width][across] O^T or dQ^T */
    float *dkeys[2];            /* dK and dV [n][width] */
    int64_t weighted;           /* number of first keys that may have log-weights */
    float *log_weights; /* log-weights of these, in units of S before its scale and after its cap */
    float *dlog_weights; /* their gradients; NULL: not wanted */
    float *lse, *delta;  /* [QUERIES] */
    attn_terms terms;    /* zero if the call has none */
    int64_t near;        /* number of keys before own ones that have a bias */
} attn_job;

typedef struct attn_span {
    int64_t head, q0, n; /* n queries of a head */
} attn_span;

/* Queries that fill two vectors, and their visible keys. */
typedef struct attn_block {
    int64_t head, q0, n; /* first query, queries */
    int vectors;
    int64_t first; /* lower bound of the visible keys, a multiple of KEY_STEP */
    int64_t keys;  /* end of the keys visible to some query */
    int64_t both;  /* keys from here on are visible to the second vector only */
} attn_block;

/* One vector of queries against many keys: P = 2^((S + log-weight) * scale + shift), 0 where a key
 * is hidden. */
typedef struct attn_column {
    int64_t plain;    /* keys before this one are visible to every lane */
    int64_t diagonal; /* from then on key j is hidden from the first j - diagonal lanes */
    int64_t end;      /* keys from this one on are hidden from all lanes */
    int64_t near;     /* keys from this one on are in the windows of all lanes */
    int64_t far;      /* before `near`, key j is visible to the first j - far lanes only */
    int64_t own;      /* keys before this one are in every window */
    bool capped;      /* replace S by `cap` tanh(S * to_cap) first */
    int64_t weighted; /* copy of the job's value */
    const float *log_weights;
    float *dlog_weights;
    vf scale, shift, to_cap, cap;
    vf delta; /* backward only */
} attn_column;

VEC_INLINE vf hide(const attn_column *c, int64_t j, vf v, vf other)
{
    if (j < c->near && j >= c->own) v = vf_keep_n(v, attn_max(j - c->far, 0), other);
    if (j < c->plain) return v;
    return vf_keep_n(other, j < c->end ? attn_min(j - c->diagonal, VF_LANES) : VF_LANES, v);
}

static attn_block job_block(const attn_job *job, int64_t head, int64_t q0, bool shared_only)
{
    const int64_t n = attn_min(job->row->len - q0, BLOCK);
    const int64_t first = kvf__attn_first_visible(job->attn, job->shared, q0);
    attn_block b = {.head = head,
                    .q0 = q0,
                    .n = n,
                    .vectors = n > VF_LANES ? 2 : 1,
                    .first = first / KEY_STEP * KEY_STEP,
                    .keys = job->n,
                    .both = job->n};
    if (job->attn->causal) b.keys = job->shared + q0 + n;
    if (shared_only) b.keys = attn_min(b.keys, job->shared);
    b.both = b.keys;
    if (job->attn->causal && b.vectors == 2)
        b.both = attn_min(b.keys, kvf__round_up(job->shared + q0 + VF_LANES, KEY_STEP));
    return b;
}

/* Makes the part of a column that both passes share. */
static attn_column job_column(const attn_job *job, const attn_block *b, int v)
{
    /* key of the first lane's own token */
    const int64_t self = job->shared + b->q0 + v * VF_LANES;
    const float log2e = 1.44269504f, cap = job->attn->cap, scale = job->attn->scale;
    attn_column c = {.plain = self + 1,
                     .diagonal = self,
                     .end = INT64_MAX,
                     .capped = cap > 0,
                     .weighted = job->weighted,
                     .log_weights = job->log_weights,
                     .dlog_weights = job->dlog_weights,
                     .scale = vf_set(cap > 0 ? log2e : scale * log2e),
                     .to_cap = vf_set(cap > 0 ? scale / cap : 0),
                     .cap = vf_set(cap)};
    if (job->attn->window) {
        c.far = self - job->attn->window;
        c.near = c.far + VF_LANES;
    }
    if (!job->attn->causal) {
        c.own = job->shared;
        c.diagonal = job->attn->window ? self + job->attn->window - 1 : job->n;
        c.plain = attn_min(c.diagonal + 1, job->n);
        c.end = job->n;
    }
    return c;
}

/* Applies the cap, if any, to the scores s [end - from][across]. */
VEC_INLINE void column_cap(const attn_column *c, float *s, int64_t across, int64_t from,
                           int64_t end)
{
    for (int64_t j = from; c->capped && j < end; j++, s += across)
        vf_store(s, vf_tanh(vf_load(s) * c->to_cap) * c->cap);
}

/* Returns the score of key j plus its log-weight. */
VEC_INLINE vf weigh(const attn_column *c, int64_t j, vf s)
{
    if (j < c->weighted) s = s + vf_set(c->log_weights[j]);
    return s;
}

VEC_INLINE void column_weigh(const attn_column *c, float *s, int64_t across, int64_t from,
                             int64_t end)
{
    for (int64_t j = from; j < attn_min(end, c->weighted); j++, s += across)
        vf_store(s, weigh(c, j, vf_load(s)));
}

/* Returns the largest of the scores s [end - from][across] of each query, unscaled. */
VEC_INLINE vf column_max(const attn_column *c, const float *s, int64_t across, int64_t from,
                         int64_t end)
{
    const vf none = vf_set(-3.0e38f);
    const int64_t plain = attn_min(c->plain, end);
    vf max[4] = {none, none, none, none};
    int64_t j = from;
    for (; j < c->near && j < end; j++)
        max[0] = vf_max(max[0], hide(c, j, vf_load(s + (j - from) * across), none));
    for (; j + 4 <= plain; j += 4)
        for (int t = 0; t < 4; t++)
            max[t] = vf_max(max[t], vf_load(s + (j - from + t) * across));
    for (; j < end; j++)
        max[0] = vf_max(max[0], hide(c, j, vf_load(s + (j - from) * across), none));
    return vf_max(vf_max(max[0], max[1]), vf_max(max[2], max[3]));
}

/* Zeroes sums for O^T or dQ^T if keys before the first are omitted. Otherwise the first product
 * overwrites them. */
static void clear_sums(const attn_job *job, int64_t first)
{
    if (first) memset(job->out_cols, 0, (size_t)(job->width * job->across) * sizeof *job->out_cols);
}

static bool wants_log_weights(const kvf__attn *a, const kvf__attn_row *row)
{
    for (int32_t s = 0; s < row->n_segs; s++)
        if (a->segs[row->seg[s]].dlog_weight) return true;
    return false;
}

/* Collects the log-weights of an item's keys, and allocates their gradients. */
static void weigh_job(attn_job *job, char **scratch, bool backward)
{
    const float by = job->attn->cap > 0 ? 1 : 1 / job->attn->scale;

    job->weighted = kvf__attn_weighted(job->attn, job->row);
    if (!job->weighted) return;
    job->log_weights = kvf__attn_alloc(scratch, job->weighted);
    kvf__attn_gather_log_weights(job->attn, job->row, job->g, job->log_weights);
    for (int64_t j = 0; j < job->weighted; j++)
        job->log_weights[j] *= by;
    if (!backward || !wants_log_weights(job->attn, job->row)) return;
    job->dlog_weights = kvf__attn_alloc(scratch, job->weighted);
    memset(job->dlog_weights, 0, sizeof(float) * (size_t)job->weighted);
}

/* Returns an item's job at a place known to the thread with the rest of a cut item; *scratch: the
 * memory after it. */
static attn_job *job_at(const kvf__attn_plan *plan, const kvf__attn_item *item, char **scratch)
{
    _Static_assert(sizeof(attn_job) <= KVF__ATTN_STATE, "a job has its place in scratch");
    attn_job *job = (attn_job *)(void *)kvf__attn_scratch(plan, item->slot);
    *scratch = (char *)(void *)job + KVF__ATTN_STATE;
    return job;
}

/* Returns the thread's next item, NULL: none. */
static const kvf__attn_item *next_item(const kvf__attn_plan *plan, const kvf__attn_item *item)
{
    return item + 1 < plan->items + plan->start[item->thread + 1] ? item + 1 : NULL;
}

/* Returns block i of an item, with as many queries as scratch holds. */
static attn_span job_span(const attn_job *job, int64_t i)
{
    const int64_t each = kvf__attn_blocks(job->row), heads = job->attn->H / job->attn->G;
    const int64_t q0 = job->row->first + i % each * KVF__ATTN_QUERIES;
    return (attn_span){.head = job->g * heads + i / each,
                       .q0 = q0,
                       .n = attn_min(job->row->len - q0, KVF__ATTN_QUERIES)};
}

#endif
