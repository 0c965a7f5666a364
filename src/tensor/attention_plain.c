/* Attention with dropout on its probabilities, forward and backward:
 *
 *     p = softmax(s)           o = sum_j m_j p_j v_j
 *     dp_j = m_j (do . v_j)    ds_j = p_j (dp_j - do . o)    dv_j += m_j p_j do
 *
 * m is 0 or 1 / (1 - rate). It is drawn by (row, layer, head, query, key) when applied, and drawn
 * again in the backward pass (dropout.h). Without dropout all m are 1. This kernel is separate, f32
 * and portable, so the fused ones carry no cost of dropout. Every inner loop runs over keys or over
 * D without a sum across lanes, on keys and values that are transposed once per item. lse is in
 * natural logarithms here. */
#include "attention_int.h"

#include <math.h>
#include <string.h>

/* Maximum queries and keys of a row, limited by the counter of a mask. */
enum { MOST_KEYS = 1 << 20 };

/* One item, head g of one row's keys, and its scratch. */
typedef struct plain_job {
    const kvf__attn *attn;
    const kvf__attn_row *row;
    kvf__rng stream;
    int part;
    int64_t g, shared, n;          /* key/value head; keys before the row's own, and total keys */
    float *k, *v;                  /* [n, D] */
    float *k_cols, *v_cols;        /* [D, n] */
    float *dk, *dv;                /* [n, D] */
    float *w, *dw;                 /* [n] log-weights, 0 for keys without; their gradients */
    float *p, *dp, *mask, *row_of; /* [n] each; row_of is all ones */
    float *q, *dq, *o, *dout;      /* [D] */
    /* relative terms of the current head, [2 len - 1, D] indexed by len - 1 - i + j for query i and
     * own key j, and transposed */
    float *rk, *rq, *rk_cols, *rq_cols;
    int64_t near; /* bias: number of keys before own ones that have it; and its values for query i
                     and key j - near, indexed by len - 1 - i + j */
    float *bias;
} plain_job;

/* ---- in and out ------------------------------------------------------------------------------ */

static void read_f32(const kvf__attn_rows *rows, int64_t i, float *to, int64_t n)
{
    const int64_t at = (rows->at + i * rows->stride) * (int64_t)kvf__dtype_block_bytes(rows->dtype);
    kvf__to_f32(rows->dtype, (const char *)rows->base + at, to, n);
}

static void write_act(const kvf__attn_rows *rows, int64_t i, const float *values, int64_t n)
{
    const int64_t at = (rows->at + i * rows->stride) * (int64_t)kvf__dtype_block_bytes(rows->dtype);
    kvf__from_f32(rows->dtype, values, (char *)rows->base + at, n);
}

/* Copies keys (which = 0) or values as rows, segment after segment, then the row's own. */
static void gather(const plain_job *j, int which, float *to)
{
    const kvf__attn *a = j->attn;

    for (int32_t s = 0; s <= j->row->n_segs; s++) {
        const kvf__attn_rows from = kvf__attn_keys(a, j->row, j->g, s, which);
        for (int64_t t = 0; t < kvf__attn_keys_len(a, j->row, s); t++, to += a->D)
            read_f32(&from, t, to, a->D);
    }
}

static void transpose(const float *rows, int64_t n, int64_t D, float *cols)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t d = 0; d < D; d++)
            cols[d * n + i] = rows[i * D + d];
}

/* Copies the relative keys and queries of a head, one for each distance in the row. */
static void open_relative(const plain_job *j, int64_t head)
{
    const kvf__attn_relative *r = j->attn->relative;
    const int64_t D = j->attn->D, width = j->attn->H * D, n = 2 * j->row->len - 1;

    for (int64_t x = 0; x < n; x++) {
        const int64_t b = r->bucket[r->most + j->row->len - 2 - x];
        memcpy(j->rk + x * D, r->k + b * width + head * D, (size_t)D * sizeof(float));
        memcpy(j->rq + x * D, r->q + b * width + head * D, (size_t)D * sizeof(float));
    }
    transpose(j->rk, n, D, j->rk_cols);
    transpose(j->rq, n, D, j->rq_cols);
}

static void open_head(const plain_job *j, int64_t head)
{
    const kvf__attn_relative *r = j->attn->relative;
    const int64_t last = j->row->len - 1 + j->near;

    if (r && !r->bias) open_relative(j, head);
    for (int64_t x = 0; r && r->bias && x < j->row->len + last; x++)
        j->bias[x] = kvf__attn_bias(j->attn, head, last - x);
}

static void open_job(plain_job *j, const kvf__attn *attn, const kvf__attn_item *item)
{
    char *scratch = kvf__attn_scratch(attn->plan, item->slot);

    *j = (plain_job){
        .attn = attn, .row = &attn->plan->rows[item->row], .part = item->part, .g = item->head};
    if (attn->drop) j->stream = attn->drop->stream[item->row];
    j->shared = kvf__attn_shared_len(attn, j->row);
    j->n = j->shared + kvf__attn_keys_len(attn, j->row, j->row->n_segs);
    j->near = kvf__attn_near(attn, j->row);
    float **const rows[] = {&j->k, &j->v, &j->k_cols, &j->v_cols, &j->dk, &j->dv};
    float **const keys[] = {&j->p, &j->dp, &j->mask, &j->row_of, &j->w, &j->dw};
    float **const vectors[] = {&j->q, &j->dq, &j->o, &j->dout};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        *rows[i] = kvf__attn_alloc(&scratch, j->n * attn->D);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        *keys[i] = kvf__attn_alloc(&scratch, j->n);
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++)
        *vectors[i] = kvf__attn_alloc(&scratch, attn->D);
    float **const relative[] = {&j->rk, &j->rq, &j->rk_cols, &j->rq_cols};
    const bool bias = attn->relative && attn->relative->bias;
    for (size_t i = 0; attn->relative && !bias && i < sizeof relative / sizeof relative[0]; i++)
        *relative[i] = kvf__attn_alloc(&scratch, 2 * j->row->len * attn->D);
    if (bias) j->bias = kvf__attn_alloc(&scratch, 2 * j->row->len + j->near);
    for (int64_t i = 0; i < j->n; i++)
        j->row_of[i] = 1;
    memset(j->w, 0, (size_t)j->n * sizeof *j->w);
    kvf__attn_gather_log_weights(attn, j->row, j->g, j->w);
    gather(j, 0, j->k);
    gather(j, 1, j->v);
    transpose(j->k, j->n, attn->D, j->k_cols);
}

/* ---- arithmetic ------------------------------------------------------------------------------ */

/* Computes to [n] += x * from [n]. */
static void add_scaled(float *restrict to, float x, const float *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += x * from[i];
}

/* Computes to [n] = x [D] times cols [D, stride]. */
static void times_cols(const plain_job *j, float *to, const float *x, const float *cols, int64_t n)
{
    memset(to, 0, (size_t)n * sizeof *to);
    for (int64_t d = 0; d < j->attn->D; d++)
        add_scaled(to, x[d], cols + d * j->n, n);
}

/* Draws mask [n] for the keys visible to query i of a head. */
static void draw_mask(const plain_job *j, int64_t head, int64_t i, int64_t n)
{
    const kvf__attn_drop *drop = j->attn->drop;
    if (!drop) {
        memcpy(j->mask, j->row_of, (size_t)n * sizeof *j->mask);
        return;
    }
    int64_t first = ((drop->layer * j->attn->H + head) * MOST_KEYS + i) * MOST_KEYS;
    kvf__dropout_set(drop->rate, j->stream, first, j->mask, j->row_of, n);
}

/* Adds the relative terms of query i to the scores of own keys. */
static void add_relative(const plain_job *j, int64_t i)
{
    const int64_t T = j->row->len, at = T - 1 - i;
    float *restrict s = j->p + j->shared;

    for (int64_t d = 0; d < j->attn->D; d++) {
        const float *restrict k = j->k_cols + d * j->n + j->shared;
        const float *restrict rk = j->rk_cols + d * (2 * T - 1) + at;
        const float *restrict rq = j->rq_cols + d * (2 * T - 1) + at;
        const float q = j->q[d];
        for (int64_t t = 0; t < T; t++)
            s[t] += q * rk[t] + k[t] * rq[t];
    }
}

/* Adds the bias of query i to the scores. */
static void add_bias(const plain_job *j, int64_t i, int64_t n)
{
    const int64_t first = j->shared - j->near;
    const float *bias = j->bias + j->row->len - 1 - i - first;

    for (int64_t k = first; k < n; k++)
        j->p[k] += bias[k];
}

/* Computes s [n], scaled, capped, plus log-weights; -INFINITY outside the window. */
static void scores(const plain_job *j, int64_t head, int64_t i, int64_t n)
{
    const kvf__attn_rows queries = kvf__attn_in_qkv(j->attn, j->row, j->attn->qkv, head, 0);
    const int64_t first = kvf__attn_first_visible(j->attn, j->shared, i);
    const float cap = j->attn->cap;

    read_f32(&queries, i, j->q, j->attn->D);
    times_cols(j, j->p, j->q, j->k_cols, n);
    if (j->attn->relative && j->bias) add_bias(j, i, n);
    if (j->attn->relative && !j->bias) add_relative(j, i);
    for (int64_t k = 0; k < n; k++)
        j->p[k] *= j->attn->scale;
    for (int64_t k = 0; cap > 0 && k < n; k++)
        j->p[k] = cap * tanhf(j->p[k] / cap);
    add_scaled(j->p, 1, j->w, n);
    for (int64_t k = 0; j->attn->window && k < n; k++)
        if (k < first || kvf__attn_is_far(j->attn, j->shared, i, k)) j->p[k] = -INFINITY;
}

/* ---- forward --------------------------------------------------------------------------------- */

static void query_fwd(const plain_job *j, int64_t head, int64_t i)
{
    const kvf__attn *a = j->attn;
    const kvf__attn_rows outs = kvf__attn_in_out(a, j->row, a->out, head, 0);
    const int64_t n = kvf__attn_visible(a, j->row, j->shared, i);
    float top = -INFINITY;
    double sum = 0;

    scores(j, head, i, n);
    for (int64_t k = 0; k < n; k++)
        top = j->p[k] > top ? j->p[k] : top;
    for (int64_t k = 0; k < n; k++) {
        j->p[k] = expf(j->p[k] - top);
        sum += (double)j->p[k];
    }
    *kvf__attn_lse(a, j->row, head, i) = top + (float)log(sum);
    draw_mask(j, head, i, n);
    memset(j->o, 0, (size_t)a->D * sizeof *j->o);
    for (int64_t k = 0; k < n; k++)
        if (j->mask[k] != 0)
            add_scaled(j->o, (float)(j->p[k] * j->mask[k] / sum), j->v + k * a->D, a->D);
    write_act(&outs, i, j->o, a->D);
}

static void fwd_item(const kvf__attn *attn, const kvf__attn_item *item)
{
    const int64_t heads = attn->H / attn->G;
    plain_job j;

    if (item->begin) return; /* the thread that begins a cut item computes all of it */
    open_job(&j, attn, item);
    for (int64_t head = j.g * heads; head < (j.g + 1) * heads; head++) {
        open_head(&j, head);
        for (int64_t i = 0; i < j.row->len; i++)
            query_fwd(&j, head, i);
    }
}

void kvf__attn_plain_fwd(const kvf__attn *attn)
{
    kvf__attn_run(attn, fwd_item, false);
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Computes p and ds of query i over its n visible keys: ds in dp, p times the mask. */
static void query_probs(const plain_job *j, int64_t head, int64_t i, int64_t n)
{
    const kvf__attn *a = j->attn;
    const kvf__attn_rows outs = kvf__attn_in_out(a, j->row, a->out, head, 0);
    const float lse = *kvf__attn_lse(a, j->row, head, i);
    float delta = 0;

    scores(j, head, i, n);
    draw_mask(j, head, i, n);
    read_f32(&outs, i, j->o, a->D);
    for (int64_t d = 0; d < a->D; d++)
        delta += j->dout[d] * j->o[d];
    times_cols(j, j->dp, j->dout, j->v_cols, n);
    for (int64_t k = 0; k < n; k++) {
        float p = expf(j->p[k] - lse);
        const float t = a->cap > 0 && j->p[k] > -INFINITY ? (j->p[k] - j->w[k]) / a->cap : 0;
        const float dw = p * (j->dp[k] * j->mask[k] - delta);
        j->dw[k] += dw;
        j->dp[k] = dw * (1 - t * t) * a->scale;
        j->p[k] = p * j->mask[k];
    }
}

static void query_bwd(const plain_job *j, int64_t head, int64_t i)
{
    const kvf__attn *a = j->attn;
    const kvf__attn_rows douts = kvf__attn_in_out(a, j->row, a->dout, head, 0);
    const kvf__attn_rows to = kvf__attn_in_qkv(a, j->row, a->dqkv, head, 0);
    const int64_t n = kvf__attn_visible(a, j->row, j->shared, i);
    const int64_t keys = a->shared_only ? j->shared : n;

    read_f32(&douts, i, j->dout, a->D);
    query_probs(j, head, i, n);
    memset(j->dq, 0, (size_t)a->D * sizeof *j->dq);
    for (int64_t k = 0; k < keys; k++) {
        add_scaled(j->dk + k * a->D, j->dp[k], j->q, a->D);
        add_scaled(j->dv + k * a->D, j->p[k], j->dout, a->D);
        add_scaled(j->dq, j->dp[k], j->k + k * a->D, a->D);
    }
    for (int64_t t = 0; j->rk && !a->shared_only && t < j->row->len; t++) {
        const int64_t k = j->shared + t, x = (j->row->len - 1 - i + t) * a->D;
        add_scaled(j->dk + k * a->D, j->dp[k], j->rq + x, a->D);
        add_scaled(j->dq, j->dp[k], j->rk + x, a->D);
    }
    if (!a->shared_only) write_act(&to, i, j->dq, a->D);
}

/* Stores gradients of keys and values: accumulators of segments, rows of dqkv. */
static void store_grads(const plain_job *j)
{
    const kvf__attn *a = j->attn;
    const kvf__attn_rows keys = kvf__attn_in_qkv(a, j->row, a->dqkv, a->H + j->g, 0);
    const kvf__attn_rows values = kvf__attn_in_qkv(a, j->row, a->dqkv, a->H + a->G + j->g, 0);
    int64_t at = 0;

    for (int32_t s = 0; s < j->row->n_segs; s++) {
        const int64_t len = a->segs[j->row->seg[s]].len, n = len * a->D;
        float *to = kvf__attn_grad(a, j->part, j->row->seg[s]);
        if (to) {
            add_scaled(to + j->g * n, 1, j->dk + at, n);
            add_scaled(to + (a->G + j->g) * n, 1, j->dv + at, n);
        }
        at += n;
    }
    kvf__attn_add_log_weight_grads(a, j->row, j->g, j->part, j->dw);
    for (int64_t t = 0; !a->shared_only && !a->crosses && t < j->row->len; t++, at += a->D) {
        write_act(&keys, t, j->dk + at, a->D);
        write_act(&values, t, j->dv + at, a->D);
    }
}

static void bwd_item(const kvf__attn *attn, const kvf__attn_item *item)
{
    const int64_t heads = attn->H / attn->G;
    plain_job j;

    if (item->begin) return;
    open_job(&j, attn, item);
    transpose(j.v, j.n, attn->D, j.v_cols);
    memset(j.dk, 0, (size_t)(j.n * attn->D) * sizeof *j.dk);
    memset(j.dv, 0, (size_t)(j.n * attn->D) * sizeof *j.dv);
    memset(j.dw, 0, (size_t)j.n * sizeof *j.dw);
    for (int64_t head = j.g * heads; head < (j.g + 1) * heads; head++) {
        open_head(&j, head);
        for (int64_t i = 0; i < j.row->len; i++)
            query_bwd(&j, head, i);
    }
    store_grads(&j);
}

void kvf__attn_plain_bwd(const kvf__attn *attn)
{
    kvf__attn_run(attn, bwd_item, true);
}
