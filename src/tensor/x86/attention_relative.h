/* Relative terms of the scores of a block of queries (kvf__attn_relative), and their gradients; in
 * f32 for both units.
 *
 * A bias is a vector of a table by distance, because the distances of adjacent queries from one key
 * are consecutive. Each of the two terms of disentangled attention is a product of VF_LANES rows
 * (keys, or queries) with columns ordered by distance. The result is a band, from which each row
 * reads a part shifted by one; for queries the parts are then transposed. In the backward pass dS
 * is the left operand of two products that read it along its diagonals, between borders of zeros:
 *
 *   dQ_i += sum_t dS_ti kr[i - t]    dK_t += sum_i dS_ti qr[i - t] */
#ifndef KVF_ATTENTION_RELATIVE_H
#define KVF_ATTENTION_RELATIVE_H

#include "attention_job.h"

enum {
    BAND = KVF__ATTN_KEYS + VF_LANES,       /* maximum columns of a band */
    BORDER = TILE_ROWS,                     /* width of the zero border around dS */
    SPREAD = KVF__ATTN_QUERIES + 2 * BORDER /* row length of dS with its border */
};
_Static_assert((int)KVF__ATTN_KEYS <= (int)KVF__ATTN_QUERIES, "dS is square at most");

/* ---- opening --------------------------------------------------------------------------------- */

/* Gathers relative keys (which = 0) by t - i, or relative queries by i - t, of a head; zeros for
 * distances that the row does not have. */
static void gather_terms(const attn_job *job, int64_t head, int which)
{
    const kvf__attn *a = job->attn;
    const kvf__attn_relative *from = a->relative;
    const attn_terms *r = &job->terms;
    const int64_t width = a->H * a->D, T = job->row->len;
    for (int64_t x = 0; x < r->span; x++) {
        const int64_t at = x - r->reach, distance = which ? at : -at;
        float *to = r->rows[which] + x * r->width;
        memset(to, 0, sizeof *to * (size_t)r->width);
        if (distance <= -T || distance >= T) continue;
        const int64_t b = from->bucket[from->most - 1 + distance];
        memcpy(to, (which ? from->q : from->k) + b * width + head * a->D,
               sizeof *to * (size_t)a->D);
    }
    pack_cols(r->cols[which], r->span, r->rows[which], r->width, r->span, r->width);
}

/* Prepares the relative terms of the next head. */
static void open_terms(const attn_job *job, int64_t head)
{
    const int64_t first = 1 - job->row->len;
    for (int64_t x = 0; job->terms.bias && x < job->terms.span; x++)
        job->terms.bias[x] = kvf__attn_bias(job->attn, head, first + x);
    for (int which = 0; job->terms.rows[0] && which < 2; which++)
        gather_terms(job, head, which);
}

static void alloc_terms(attn_job *job, char **scratch, bool backward)
{
    const kvf__attn *a = job->attn;
    attn_terms *r = &job->terms;
    const int64_t T = job->row->len;
    if (!a->relative) return;
    job->near = kvf__attn_near(a, job->row);
    if (a->relative->bias) {
        r->span = 2 * T + VF_LANES + job->near;
        r->bias = kvf__attn_alloc(scratch, r->span);
        return;
    }
    r->width = kvf__round_up(a->D, VF_LANES);
    r->reach = T - 1 + VF_LANES;
    r->span = kvf__round_up(r->reach + T + 2 * VF_LANES, VF_LANES);
    for (int which = 0; which < 2; which++) {
        r->rows[which] = kvf__attn_alloc(scratch, r->span * r->width);
        r->cols[which] = kvf__attn_alloc(scratch, r->span * r->width);
    }
    r->keys = kvf__attn_alloc(scratch, (T + VF_LANES) * r->width);
    r->queries = kvf__attn_alloc(scratch, KVF__ATTN_QUERIES * r->width);
    r->band = kvf__attn_alloc(scratch, VF_LANES * BAND);
    const kvf__attn_rows own = kvf__attn_keys(a, job->row, job->g, job->row->n_segs, 0);
    pack_rows_f32(r->keys, &own, T, a->D, r->width);
    memset(r->keys + T * r->width, 0, sizeof(float) * (size_t)(VF_LANES * r->width));
    if (!backward) return;
    r->ds = kvf__attn_alloc(scratch, SPREAD * SPREAD);
    r->dq = kvf__attn_alloc(scratch, KVF__ATTN_QUERIES * r->width);
}

/* Packs the queries of the next blocks, and zeroes their contribution to dq. */
static void open_queries(const attn_job *job, int64_t head, int64_t q0, int64_t n)
{
    const kvf__attn_rows from = kvf__attn_in_qkv(job->attn, job->row, job->attn->qkv, head, q0);
    const attn_terms *r = &job->terms;
    if (!r->rows[0]) return;
    pack_rows_f32(r->queries, &from, n, job->attn->D, r->width);
    memset(r->queries + n * r->width, 0,
           sizeof(float) * (size_t)((kvf__round_up(n, VF_LANES) - n) * r->width));
    if (r->dq) memset(r->dq, 0, sizeof(float) * (size_t)(KVF__ATTN_QUERIES * r->width));
}

/* ---- scores ---------------------------------------------------------------------------------- */

/* Multiplies VF_LANES rows with so many columns. */
static void make_band(const attn_job *job, const float *rows, const float *cols, int64_t columns)
{
    const attn_terms *r = &job->terms;
    attn_product p = {.rows = VF_LANES,
                      .units = job->attn->D,
                      .a = rows,
                      .lda = r->width,
                      .ldb = r->span,
                      .ldc = BAND};
    for (int64_t at = 0; at < columns; at += BLOCK) {
        p.vectors = columns - at > VF_LANES ? 2 : 1;
        p.b = cols + at;
        p.c = r->band + at;
        product_rows_f32(&p);
    }
}

VEC_INLINE void add_to(float *at, vf v)
{
    vf_store(at, vf_load(at) + v);
}

/* Adds k_t . qr[i - t] to scores s [to - from][across] of own keys. */
static void add_key_terms(const attn_job *job, const attn_block *b, int64_t from, int64_t to,
                          float *s)
{
    const attn_terms *r = &job->terms;
    const int64_t last = VF_LANES - 1;
    for (int64_t t0 = from; t0 < to; t0 += VF_LANES) {
        make_band(job, r->keys + t0 * r->width, r->cols[1] + r->reach + b->q0 - t0 - last,
                  (b->vectors + 1) * VF_LANES);
        for (int64_t k = 0; k < attn_min(VF_LANES, to - t0); k++)
            for (int v = 0; v < b->vectors; v++)
                add_to(s + (t0 + k - from) * job->across + v * VF_LANES,
                       vf_load(r->band + k * BAND + last - k + v * VF_LANES));
    }
}

/* Adds q_i . kr[i - t] for one vector of queries. */
static void add_query_terms(const attn_job *job, const float *queries, int64_t i0, int64_t from,
                            int64_t to, float *s)
{
    const attn_terms *r = &job->terms;
    const int64_t last = VF_LANES - 1;
    for (int64_t t0 = from; t0 < to; t0 += VF_LANES) {
        const int64_t at = (t0 - from) % KVF__ATTN_KEYS;
        if (!at)
            make_band(job, queries, r->cols[0] + r->reach + t0 - i0 - last,
                      kvf__round_up(attn_min(to - t0, KVF__ATTN_KEYS), VF_LANES) + VF_LANES);
        vf q[VF_LANES];
        for (int l = 0; l < VF_LANES; l++)
            q[l] = vf_load(r->band + l * BAND + at + last - l);
        transpose(q);
        for (int64_t k = 0; k < attn_min(VF_LANES, to - t0); k++)
            add_to(s + (t0 + k - from) * job->across, q[k]);
    }
}

/* Adds the relative terms to unscaled scores s [to - from][across] of keys from .. to - 1. The
 * block's first query is at column 0, and at row `row` of the opened queries. */
static void add_terms(const attn_job *job, const attn_block *b, int64_t row, int64_t from,
                      int64_t to, float *s)
{
    const attn_terms *r = &job->terms;
    const int64_t first = attn_max(from, job->shared - (r->bias ? job->near : 0));
    if (!job->attn->relative || first >= to) return;
    s += (first - from) * job->across;
    if (r->bias) {
        const int64_t at = job->row->len - 1 + b->q0 + job->shared;
        for (int64_t j = first; j < to; j++, s += job->across)
            for (int v = 0; v < b->vectors; v++)
                add_to(s + v * VF_LANES, vf_load(r->bias + at - j + v * VF_LANES));
        return;
    }
    add_key_terms(job, b, first - job->shared, to - job->shared, s);
    for (int v = 0; v < b->vectors; v++)
        add_query_terms(job, r->queries + (row + v * VF_LANES) * r->width, b->q0 + v * VF_LANES,
                        first - job->shared, to - job->shared, s + v * VF_LANES);
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* Computes C [TILE_ROWS][D] += A B with A read along diagonals: element (m, u) at a[m * (SPREAD +
 * 1) + u * unit]. */
static void add_diagonals(const attn_job *job, const float *a, int64_t unit, int64_t units,
                          const float *b, float *c, int64_t ldc)
{
    attn_product p = {.units = units, .add = true, .ldb = job->terms.width, .ldc = ldc};
    for (int64_t d = 0; d < job->attn->D; d += BLOCK) {
        p.b = b + d;
        if (job->attn->D - d > VF_LANES)
            tile_f32(2, &p, a, SPREAD + 1, unit, c + d);
        else
            tile_f32(1, &p, a, SPREAD + 1, unit, c + d);
    }
}

/* Adds the contribution of dS, at [BORDER][BORDER] of ds, to dq and dk, for own keys from .. to - 1
 * and the n opened queries from q0 on. */
static void add_term_grads(const attn_job *job, int64_t q0, int64_t n, int64_t from, int64_t to)
{
    const attn_terms *r = &job->terms;
    const int64_t more = TILE_ROWS - 1, corner = BORDER * (SPREAD + 1);
    for (int64_t l = 0; l < n; l += TILE_ROWS)
        add_diagonals(job, r->ds + corner - more * SPREAD + l, SPREAD, to - from + more,
                      r->rows[0] + (r->reach + from - q0 - l - more) * r->width,
                      r->dq + l * r->width, r->width);
    for (int64_t t = from; t < to; t += TILE_ROWS)
        add_diagonals(job, r->ds + corner - more + (t - from) * SPREAD, 1, n + more,
                      r->rows[1] + (r->reach + q0 - t - more) * r->width,
                      job->dkeys[0] + (job->shared + t) * job->width, job->width);
}

/* Adds the contribution of relative terms to dQ^T of the n opened queries. */
static void add_term_dq(const attn_job *job, int64_t n)
{
    const attn_terms *r = &job->terms;
    for (int64_t i = 0; i < n; i += VF_LANES)
        for (int64_t d = 0; d < r->width; d += VF_LANES) {
            vf q[VF_LANES];
            for (int l = 0; l < VF_LANES; l++)
                q[l] = vf_load(r->dq + (i + l) * r->width + d);
            transpose(q);
            for (int k = 0; k < VF_LANES; k++)
                add_to(job->out_cols + (d + k) * job->across + i, q[k]);
        }
}

#endif
