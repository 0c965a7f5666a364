/* Attention of rows with few queries over many keys: generation of one token at a time; the last
 * layer.
 *
 * Blocks of queries would be mostly padding, and packing K and V would cost more than using them
 * once. So each query reads keys and values in place, with vectors over D. The sums across lanes
 * of VF_LANES keys are computed together by a transposition. The time is bound by reading the
 * cache. */
#ifndef KVF_ATTENTION_FEW_H
#define KVF_ATTENTION_FEW_H

#include "attention_pack.h"

enum { FEW = 4 }; /* maximum queries of a row */

/* Computes s[j] = q . key j, j < n; q is zero beyond D. */
VEC_INLINE void few_scores(kvf__dtype dtype, const kvf__attn_rows *from, int64_t n, int64_t D,
                           const float *q, float *s)
{
    const kvf__attn_rows keys = {from->base, dtype, from->at, from->stride};
    for (int64_t j = 0; j < n; j += VF_LANES) {
        vf sum[VF_LANES];
        for (int k = 0; k < VF_LANES; k++) {
            const int64_t row = attn_min(j + k, n - 1);
            sum[k] = vf_zero();
            for (int64_t d = 0; d < D; d += VF_LANES)
                sum[k] = vf_fma(load_part(&keys, row, d, D - d), vf_load(q + d), sum[k]);
        }
        transpose(sum);
        for (int half = VF_LANES / 2; half > 0; half /= 2)
            for (int k = 0; k < half; k++)
                sum[k] = sum[k] + sum[k + half];
        vf_store_n(s + j, sum[0], attn_min(n - j, VF_LANES));
    }
}

/* Adds the sum of p[j] value j to out [D]. */
VEC_INLINE void few_values(kvf__dtype dtype, const kvf__attn_rows *from, int64_t n, int64_t D,
                           const float *p, float *out)
{
    const kvf__attn_rows values = {from->base, dtype, from->at, from->stride};
    enum { WIDE = 4 };
    for (int64_t d = 0; d < D; d += WIDE * VF_LANES) {
        vf sum[2][WIDE]; /* even and odd keys, which breaks the dependency chain of additions */
        for (int v = 0; v < WIDE; v++)
            sum[0][v] = sum[1][v] = vf_zero();
        for (int64_t j = 0; j < n; j++)
            for (int v = 0; v < WIDE && d + v * VF_LANES < D; v++) {
                const int64_t at = d + v * VF_LANES;
                sum[j & 1][v] = vf_fma(load_part(&values, j, at, D - at), vf_set(p[j]),
                                       sum[j & 1][v]);
            }
        for (int v = 0; v < WIDE && d + v * VF_LANES < D; v++) {
            float *at = out + d + v * VF_LANES;
            vf_store(at, vf_load(at) + (sum[0][v] + sum[1][v]));
        }
    }
}

/* Replaces s [n] by exp2(s - max); returns log2 of the sum of 2^s, sets *sum to the sum of the
 * results. */
static float few_softmax(float *s, int64_t n, float *sum)
{
    const vf none = vf_set(-3.0e38f);
    vf max = none, total = vf_zero();
    for (int64_t j = 0; j < n; j += VF_LANES)
        max = vf_max(max, vf_keep_n(vf_load(s + j), attn_min(n - j, VF_LANES), none));
    const float top = vf_hmax(max);
    for (int64_t j = 0; j < n; j += VF_LANES) {
        const vf p = vf_keep_n(vf_exp2(vf_load(s + j) - vf_set(top)), attn_min(n - j, VF_LANES),
                               vf_zero());
        total = total + p;
        vf_store(s + j, p);
    }
    *sum = vf_sum(total);
    float log_sum[VF_LANES];
    vf_store(log_sum, vf_log2(vf_set(*sum)));
    return top + log_sum[0];
}

/* One query and its scratch. */
typedef struct few_query {
    const kvf__attn *attn;
    const kvf__attn_row *row;
    int64_t g, first, n; /* key/value head; range of visible keys */
    float *q, *s, *out;  /* [D padded], scaled; [n padded]; [D padded] */
} few_query;

/* Walks segment after segment: scores to s, or (values) out += values weighted by s. */
static void few_walk(const few_query *f, bool values)
{
    const int64_t D = f->attn->D;
    float *s = f->s;
    int64_t n = f->n, hidden = f->first;
    for (int32_t i = 0; i <= f->row->n_segs && n > 0; i++) {
        kvf__attn_rows from = kvf__attn_keys(f->attn, f->row, f->g, i, values);
        const int64_t all = kvf__attn_keys_len(f->attn, f->row, i), skip = attn_min(all, hidden);
        const int64_t len = attn_min(all - skip, n);
        from.at += skip * from.stride;
        hidden -= skip;
        if (!len) continue;
        const bool f32 = from.dtype == KVF__F32;
        if (values && f32) few_values(KVF__F32, &from, len, D, s, f->out);
        if (values && !f32) few_values(KVF__BF16, &from, len, D, s, f->out);
        if (!values && f32) few_scores(KVF__F32, &from, len, D, f->q, s);
        if (!values && !f32) few_scores(KVF__BF16, &from, len, D, f->q, s);
        s += len;
        n -= len;
    }
}

/* Applies the cap to n scores, which are divided by cap on input. */
static void few_cap(float *s, int64_t n, float cap)
{
    const vf by = vf_set(cap * 1.44269504f);
    for (int64_t j = 0; j < n; j += VF_LANES)
        vf_store(s + j, vf_tanh(vf_load(s + j)) * by);
}

/* Adds the keys' log-weights to the scores, in powers of two. */
static void few_weigh(const few_query *f)
{
    const vf unit = vf_set(1.44269504f);
    int64_t at = -f->first; /* index of a segment's first key among the scores */

    for (int32_t i = 0; i < f->row->n_segs; i++) {
        const float *from = kvf__attn_log_weights(f->attn, f->row, f->g, i);
        const int64_t len = kvf__attn_keys_len(f->attn, f->row, i), end = attn_min(at + len, f->n);
        for (int64_t j = attn_max(at, 0); from && j < end; j += VF_LANES) {
            const int64_t n = attn_min(end - j, VF_LANES);
            vf_store_n(f->s + j, vf_fma(vf_load_n(from + j - at, n), unit, vf_load_n(f->s + j, n)),
                       n);
        }
        at += len;
    }
}

/* Adds the bias of query i to the scores, which are in units of `by`. */
static void few_bias(const few_query *f, int64_t head, int64_t i, float by)
{
    const int64_t self = kvf__attn_shared_len(f->attn, f->row) + i, end = f->first + f->n;
    const int64_t first = self - i - kvf__attn_near(f->attn, f->row);

    for (int64_t j = attn_max(first, f->first); f->attn->relative && j < end; j++)
        f->s[j - f->first] += by * kvf__attn_bias(f->attn, head, self - j);
}

/* Computes out and lse of query i of a head. */
static void few_attend(const few_query *f, int64_t head, int64_t i)
{
    const kvf__attn *a = f->attn;
    const kvf__attn_rows query = kvf__attn_in_qkv(a, f->row, a->qkv, head, i);
    const kvf__attn_rows to = kvf__attn_in_out(a, f->row, a->out, head, i);
    const float by = a->cap > 0 ? a->scale / a->cap : a->scale * 1.44269504f;
    float sum;

    for (int64_t d = 0; d < a->D; d += VF_LANES) {
        vf_store(f->q + d, load_part(&query, 0, d, a->D - d) * vf_set(by));
        vf_store(f->out + d, vf_zero());
    }
    few_walk(f, false);
    few_bias(f, head, i, by);
    if (a->cap > 0) few_cap(f->s, f->n, a->cap);
    few_weigh(f);
    *kvf__attn_lse(a, f->row, head, i) = few_softmax(f->s, f->n, &sum);
    few_walk(f, true);
    for (int64_t d = 0; d < a->D; d += VF_LANES)
        store_part(&to, 0, d, vf_load(f->out + d) * vf_set(1.0f / sum), a->D - d);
}

/* Computes query head `head` of a row's own tokens. */
static void few_head(const kvf__attn *a, const kvf__attn_row *row, int64_t head, char *scratch)
{
    const int64_t shared = kvf__attn_shared_len(a, row), width = kvf__round_up(a->D, VF_LANES);
    few_query f = {.attn = a, .row = row, .g = head / (a->H / a->G)};
    f.q = kvf__attn_alloc(&scratch, width);
    f.out = kvf__attn_alloc(&scratch, width);
    f.s = kvf__attn_alloc(&scratch, shared + row->len + VF_LANES);

    for (int64_t i = row->first; i < row->len; i++) {
        f.first = kvf__attn_first_visible(a, shared, i);
        f.n = kvf__attn_visible(a, row, shared, i) - f.first;
        few_attend(&f, head, i);
    }
}

static void few_item(const kvf__attn *a, const kvf__attn_item *item)
{
    const int64_t first = item->head * (a->H / a->G); /* a head has one block of queries */
    for (int64_t head = first + item->begin; head < first + item->end; head++)
        few_head(a, &a->plan->rows[item->row], head, kvf__attn_scratch(a->plan, item->slot));
}

#endif
