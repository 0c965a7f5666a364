/* Attention as the formulas define it: plain loops over one query and all its keys, double
 * accumulation, no threads.
 *
 *   s_j = scale * q . k_j    p_j = exp(s_j + w_j - lse)    o = sum_j p_j v_j
 *   dp_j = do . v_j          dw_j = p_j (dp_j - do . o)    ds_j = dw_j * scale
 *   dq = sum_j ds_j k_j      dk_j = sum_i ds_ij q_i        dv_j = sum_i p_ij do_i
 *
 * with a cap c: s_j = c tanh(scale * q . k_j / c), and ds_j times 1 - (s_j / c)^2. w_j is the
 * log-weight of key j, 0 where it has none; its gradient is the sum of dw_ij over queries. Relative
 * terms are added to q . k, their gradients to dq and dk.
 *
 * The fast kernels are compared with this file. lse is in natural logarithms here. The backward
 * pass walks the pairs twice, once per query for dq and once per key for dk and dv. It thus needs
 * no memory for the matrix of p. */
#include "attention_int.h"
#include "kernels_int.h"

#include <math.h>
#include <string.h>

/* Head g of the keys and values visible to one row's queries, concatenated. */
typedef struct ref_head {
    const kvf__attn *attn;
    const kvf__attn_row *row;
    int64_t g, shared, n; /* keys before the row's own, and total keys */
} ref_head;

static double vec_get(kvf__attn_rows v, int64_t d)
{
    return kvf__ref_get(v.dtype, v.base, v.at + d);
}

static void vec_put(kvf__attn_rows v, int64_t d, double value)
{
    kvf__ref_set(v.dtype, v.base, v.at + d, value);
}

/* Returns key (which = 0) or value (1) j of a head. */
static kvf__attn_rows key_of(const ref_head *h, int64_t j, int which)
{
    int32_t s = 0;
    for (; s < h->row->n_segs && j >= kvf__attn_keys_len(h->attn, h->row, s); s++)
        j -= kvf__attn_keys_len(h->attn, h->row, s);
    kvf__attn_rows key = kvf__attn_keys(h->attn, h->row, h->g, s, which);
    key.at += j * key.stride;
    return key;
}

/* Returns the log-weight of key j. */
static double weight_of(const ref_head *h, int64_t j)
{
    int32_t s = 0;
    for (; s < h->row->n_segs && j >= kvf__attn_keys_len(h->attn, h->row, s); s++)
        j -= kvf__attn_keys_len(h->attn, h->row, s);
    const float *w = kvf__attn_log_weights(h->attn, h->row, h->g, s);
    return w ? (double)w[j] : 0;
}

static kvf__attn_rows query_of(const ref_head *h, int64_t head, int64_t i)
{
    return kvf__attn_in_qkv(h->attn, h->row, h->attn->qkv, head, i);
}

/* Returns query i's row of out or dout. */
static kvf__attn_rows out_of(const ref_head *h, const void *out, int64_t head, int64_t i)
{
    return kvf__attn_in_out(h->attn, h->row, out, head, i);
}

static double dot(kvf__attn_rows a, kvf__attn_rows b, int64_t D)
{
    double sum = 0;
    for (int64_t d = 0; d < D; d++)
        sum += vec_get(a, d) * vec_get(b, d);
    return sum;
}

static int64_t visible(const ref_head *h, int64_t i)
{
    return kvf__attn_visible(h->attn, h->row, h->shared, i);
}

static bool sees(const ref_head *h, int64_t i, int64_t j)
{
    return j >= kvf__attn_first_visible(h->attn, h->shared, i) && j < visible(h, i) &&
           !kvf__attn_is_far(h->attn, h->shared, i, j);
}

/* Returns element d of the relative key or query between query i and key j, from table `of`; 0:
 * none. */
static double relative_part(const ref_head *h, const float *of, int64_t head, int64_t i, int64_t j,
                            int64_t d)
{
    const kvf__attn_relative *r = h->attn->relative;
    const int64_t own = j - h->shared;
    if (!r || r->bias || own < 0) return 0;
    return (double)of[(r->bucket[r->most - 1 + i - own] * h->attn->H + head) * h->attn->D + d];
}

/* Returns the unscaled relative term of own key j. */
static double relative_of(const ref_head *h, int64_t head, int64_t i, int64_t j)
{
    const kvf__attn_relative *r = h->attn->relative;
    const int64_t own = j - h->shared, D = h->attn->D;
    double sum = 0;

    if (r && r->bias)
        return own < -kvf__attn_near(h->attn, h->row)
                   ? 0
                   : (double)kvf__attn_bias(h->attn, head, i - own);
    if (!r || own < 0) return 0;
    const kvf__attn_rows query = query_of(h, head, i), key = key_of(h, j, 0);
    for (int64_t d = 0; d < D; d++)
        sum += vec_get(query, d) * relative_part(h, r->k, head, i, j, d) +
               vec_get(key, d) * relative_part(h, r->q, head, i, j, d);
    return sum;
}

/* Returns the score of query i and key j with its log-weight; *slope: derivative of the cap. */
static double score(const ref_head *h, int64_t head, int64_t i, int64_t j, double *slope)
{
    const double cap = (double)h->attn->cap;
    const double s = (double)h->attn->scale *
                     (dot(query_of(h, head, i), key_of(h, j, 0), h->attn->D) +
                      relative_of(h, head, i, j));
    const double t = cap > 0 ? tanh(s / cap) : 0;

    *slope = 1 - t * t;
    return (cap > 0 ? cap * t : s) + weight_of(h, j);
}

static ref_head head_of(const kvf__attn *attn, const kvf__attn_row *row, int64_t g)
{
    const int64_t shared = kvf__attn_shared_len(attn, row);
    return (ref_head){attn, row, g, shared, shared + kvf__attn_keys_len(attn, row, row->n_segs)};
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Computes p [n] = exp(s - *max) of the n keys up to the last visible to query i; returns their
 * sum. */
static double exp_scores(const ref_head *h, int64_t head, int64_t i, double *p, double *max)
{
    const int64_t n = visible(h, i);
    double sum = 0, slope;

    *max = -INFINITY;
    for (int64_t j = 0; j < n; j++) {
        p[j] = sees(h, i, j) ? score(h, head, i, j, &slope) : -INFINITY;
        *max = fmax(*max, p[j]);
    }
    for (int64_t j = 0; j < n; j++) {
        p[j] = exp(p[j] - *max);
        sum += p[j];
    }
    return sum;
}

static void query_fwd(const ref_head *h, int64_t head, int64_t i, double *p)
{
    const kvf__attn *a = h->attn;
    const int64_t n = visible(h, i);
    const kvf__attn_rows o = out_of(h, a->out, head, i);
    double max, sum = exp_scores(h, head, i, p, &max);

    for (int64_t d = 0; d < a->D; d++) {
        double value = 0;
        for (int64_t j = 0; j < n; j++)
            value += p[j] * vec_get(key_of(h, j, 1), d);
        vec_put(o, d, value / sum);
    }
    *kvf__attn_lse(h->attn, h->row, head, i) = (float)(max + log(sum));
}

void kvf__attn_head_ref(const kvf__attn *attn, const kvf__attn_row *row, int64_t head,
                        void *scratch)
{
    const ref_head h = head_of(attn, row, head / (attn->H / attn->G));
    for (int64_t i = row->first; i < row->len; i++)
        query_fwd(&h, head, i, scratch);
}

void kvf__attn_fwd_ref(const kvf__attn *attn)
{
    double *p = (double *)(void *)kvf__attn_scratch(attn->plan,
                                                    0); /* number of keys visible to a query */
    for (int64_t r = 0; r < attn->plan->n_rows; r++)
        for (int64_t head = 0; head < attn->H; head++)
            kvf__attn_head_ref(attn, &attn->plan->rows[r], head, p);
}

int64_t kvf__attn_shares_ref(const kvf__attn *attn, const kvf__attn_row *row, int64_t head,
                             int64_t i, double *p)
{
    const ref_head h = head_of(attn, row, head / (attn->H / attn->G));
    const int64_t n = visible(&h, i);
    double max, sum = exp_scores(&h, head, i, p, &max);

    for (int64_t j = 0; j < n; j++)
        p[j] /= sum;
    return n;
}

/* ---- backward -------------------------------------------------------------------------------- */

/* A pair of query i and key j. */
typedef struct ref_pair {
    double p, ds, dw;
} ref_pair;

static ref_pair pair_of(const ref_head *h, int64_t head, int64_t i, int64_t j)
{
    const kvf__attn *a = h->attn;
    const kvf__attn_rows dout = out_of(h, a->dout, head, i);
    double slope;
    const double s = score(h, head, i, j, &slope);
    const double delta = dot(dout, out_of(h, a->out, head, i), a->D);
    const double p = exp(s - (double)*kvf__attn_lse(h->attn, h->row, head, i));
    const double dw = p * (dot(dout, key_of(h, j, 1), a->D) - delta);
    return (ref_pair){.p = p, .ds = dw * slope * (double)a->scale, .dw = dw};
}

static void query_bwd(const ref_head *h, int64_t head, int64_t i, double *dq)
{
    const kvf__attn *a = h->attn;
    const kvf__attn_rows to = kvf__attn_in_qkv(a, h->row, a->dqkv, head, i);
    const float *rk = a->relative ? a->relative->k : NULL;
    for (int64_t d = 0; d < a->D; d++)
        dq[d] = 0;
    for (int64_t j = 0; i >= h->row->first && j < visible(h, i); j++) {
        if (!sees(h, i, j)) continue;
        const double ds = pair_of(h, head, i, j).ds;
        const kvf__attn_rows key = key_of(h, j, 0);
        for (int64_t d = 0; d < a->D; d++)
            dq[d] += ds * (vec_get(key, d) + relative_part(h, rk, head, i, j, d));
    }
    for (int64_t d = 0; d < a->D; d++)
        vec_put(to, d, dq[d]);
}

/* Computes dk and dv [D] of key j: sums over all queries that attend to it, of all heads that share
 * it. Returns the gradient of its log-weight. */
static double key_bwd(const ref_head *h, int64_t j, double *dk, double *dv)
{
    const kvf__attn *a = h->attn;
    const int64_t heads = a->H / a->G;
    const float *rq = a->relative ? a->relative->q : NULL;
    double dw = 0;
    for (int64_t d = 0; d < a->D; d++)
        dk[d] = dv[d] = 0;
    for (int64_t head = h->g * heads; head < (h->g + 1) * heads; head++)
        for (int64_t i = h->row->first; i < h->row->len; i++) {
            if (!sees(h, i, j)) continue;
            const ref_pair pair = pair_of(h, head, i, j);
            const kvf__attn_rows query = query_of(h, head, i), dout = out_of(h, a->dout, head, i);
            dw += pair.dw;
            for (int64_t d = 0; d < a->D; d++) {
                dk[d] += pair.ds * (vec_get(query, d) + relative_part(h, rq, head, i, j, d));
                dv[d] += pair.p * vec_get(dout, d);
            }
        }
    return dw;
}

static void own_bwd(const ref_head *h, double *sums)
{
    const kvf__attn *a = h->attn;
    const int64_t heads = a->H / a->G;
    double *dk = sums, *dv = sums + a->D;
    for (int64_t head = h->g * heads; head < (h->g + 1) * heads; head++)
        for (int64_t i = 0; i < h->row->len; i++)
            query_bwd(h, head, i, sums);
    for (int64_t t = 0; !a->crosses && t < h->row->len; t++) {
        key_bwd(h, h->shared + t, dk, dv);
        for (int64_t d = 0; d < a->D; d++) {
            vec_put(kvf__attn_in_qkv(a, h->row, a->dqkv, a->H + h->g, t), d, dk[d]);
            vec_put(kvf__attn_in_qkv(a, h->row, a->dqkv, a->H + a->G + h->g, t), d, dv[d]);
        }
    }
}

static void shared_bwd(const ref_head *h, double *sums)
{
    const kvf__attn *a = h->attn;
    double *dk = sums, *dv = sums + a->D;
    int64_t j = 0;
    for (int32_t s = 0; s < h->row->n_segs; s++) {
        const kvf__kvseg *seg = &a->segs[h->row->seg[s]];
        for (int64_t t = 0; t < seg->len; t++, j++) {
            if (!seg->dk) continue;
            const int64_t at = h->g * seg->head_stride + t * seg->token_stride;
            const double dw = key_bwd(h, j, dk, dv);
            if (seg->dlog_weight) seg->dlog_weight[h->g * seg->len + t] += (float)dw;
            for (int64_t d = 0; d < a->D; d++) {
                seg->dk[at + d] += (float)dk[d];
                seg->dv[at + d] += (float)dv[d];
            }
        }
    }
}

void kvf__attn_bwd_ref(const kvf__attn *attn)
{
    double *sums = (double *)(void *)kvf__attn_scratch(attn->plan, 0); /* [2, D] */
    for (int64_t r = 0; r < attn->plan->n_rows; r++)
        for (int64_t g = 0; g < attn->G; g++) {
            const ref_head h = head_of(attn, &attn->plan->rows[r], g);
            if (h.row->len == 0) continue;
            shared_bwd(&h, sums);
            if (!attn->shared_only) own_bwd(&h, sums);
        }
}
