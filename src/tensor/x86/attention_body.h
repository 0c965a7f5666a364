/* Fused attention over blocks of queries, forward and backward, for one unit type (ATTN_PAIR,
 * see attention_pack.h).
 *
 * Everything works on S^T = K Q^T, keys down and queries across in two vectors: masks are lane
 * masks, maxima and sums run down the columns, and the products need no transposed K or V:
 *
 *   forward    S^T = K Q^T    O^T = V^T P^T
 *   backward   S^T = K Q^T    dP^T = V dO^T    dV += P^T dO    dK += dS^T Q    dQ^T += K^T dS^T
 *
 * K and V of an item (row, key/value head) are packed once for all its query heads, segment
 * after segment. The backward pass forms P again from lse, here in powers of two. Above the
 * diagonal, work is skipped in steps of 8 keys and one vector. */
#include "attention_tile.h"

static void ATTN(pack_keys)(const attn_job *job, int which, float *dst)
{
    for (int32_t s = 0; s <= job->row->n_segs; s++) {
        const attn_rows from = attn_source(job->attn, job->row, job->g, s, which);
        const int64_t n = attn_source_len(job->attn, job->row, s);
        ATTN(pack_rows)(dst, &from, n, job->attn->D, job->width);
        dst += n * job->units;
    }
    memset(dst, 0, sizeof(float) * (size_t)((attn_round(job->n, KEY_STEP) - job->n) * job->units));
}

/* Queries (or rows of dout) q0 .. q0 + n - 1 of a head as rows, padded with zero rows to whole
 * vectors, and as columns. */
static void ATTN(pack_queries)(const attn_job *job, const attn_rows *from, int64_t n, float *rows,
                               float *cols)
{
    const int64_t padded = attn_round(n, VF_LANES);
    ATTN(pack_rows)(rows, from, n, job->attn->D, job->width);
    memset(rows + n * job->units, 0, sizeof(float) * (size_t)((padded - n) * job->units));
    pack_cols(cols, job->across, rows, job->units, padded, job->units);
}

/* c [keys from .. b->keys)[QUERIES] = rows of keys times columns of queries, where seen; c
 * starts at key `from`. */
static void ATTN(key_product)(const attn_job *job, const attn_block *b, int64_t from, int64_t to,
                              const float *keys, const float *cols, float *c)
{
    const int64_t both = attn_max(from, attn_min(b->both, to)), end = attn_min(b->keys, to);
    attn_product p = {.rows = attn_round(both - from, KEY_STEP),
                      .units = (job->attn->D + ATTN_PAIR - 1) / ATTN_PAIR,
                      .vectors = b->vectors,
                      .a = keys + from * job->units,
                      .b = cols,
                      .c = c,
                      .lda = job->units,
                      .ldb = job->across,
                      .ldc = job->across};
    ATTN(product_rows)(&p);
    if (both >= end) return;
    p.a = keys + both * job->units;
    p.b = cols + VF_LANES;
    p.c = c + (both - from) * job->across + VF_LANES;
    p.rows = attn_round(end - both, KEY_STEP);
    p.vectors = 1;
    ATTN(product_rows)(&p);
}

/* c [D][QUERIES] = or += (keys as pairs)^T times weights [keys / PAIR][QUERIES], which start at
 * key `from`. */
static void ATTN(value_product)(const attn_job *job, const attn_block *b, int64_t from, int64_t to,
                                const float *pairs, const float *weights, float *c)
{
    const int64_t both = attn_max(from, attn_min(b->both, to)), end = attn_min(b->keys, to);
    attn_product p = {.rows = attn_round(job->attn->D, TILE_ROWS),
                      .units = (both - from + ATTN_PAIR - 1) / ATTN_PAIR,
                      .vectors = b->vectors,
                      .add = from > 0,
                      .a = pairs + from / ATTN_PAIR * job->width,
                      .b = weights,
                      .c = c,
                      .lda = job->width,
                      .ldb = job->across,
                      .ldc = job->across};
    if (both > from) ATTN(product_cols)(&p);
    if (both >= end) return;
    p.a = pairs + both / ATTN_PAIR * job->width;
    p.b = weights + (both - from) / ATTN_PAIR * job->across + VF_LANES;
    p.c = c + VF_LANES;
    p.units = (end - both + ATTN_PAIR - 1) / ATTN_PAIR;
    p.vectors = 1;
    p.add = true;
    ATTN(product_cols)(&p);
}

/* ---- forward --------------------------------------------------------------------------------- */

/* P of key j; 0 where hidden. */
VEC_INLINE vf ATTN(prob)(const attn_column *c, int64_t j, vf s)
{
    return hide(c, j, ATTN(power)(vf_fma(s, c->scale, c->shift)), vf_zero());
}

/* Scores to P, unnormalised, as the B operand of O^T = V^T P^T, in place: units of PAIR keys
 * close ranks. Returns the sums. */
VEC_INLINE vf ATTN(column_exp)(const attn_column *c, float *s, int64_t across, int64_t end)
{
    vf sum = vf_zero();
    for (int64_t j = 0; j < end; j += ATTN_PAIR) {
        const float *at = s + j * across;
        vf p = ATTN(prob)(c, j, vf_load(at));
        sum = sum + p;
#if ATTN_PAIR == 2
        vf next = vf_zero();
        if (j + 1 < end) next = ATTN(prob)(c, j + 1, vf_load(at + across));
        sum = sum + next;
        p = join(p, next);
#endif
        vf_store(s + j / ATTN_PAIR * across, p);
    }
    return sum;
}

static void ATTN(fwd_block)(const attn_job *job, const attn_block *b)
{
    const kvf__attn *a = job->attn;
    const attn_rows from = job_queries(job, b->head, b->q0);
    attn_dest to = {a->out, a->act, ((job->row->start + b->q0) * a->H + b->head) * a->D,
                    a->H * a->D};
    const attn_span span = {b->head, b->q0, b->n};
    const attn_ahead ahead = {BLOCK, false, 0, 1};
    vf sum[2];

    ATTN(pack_queries)(job, &from, b->n, job->q, job->q_cols);
    prefetch_dest(&to, b->n, a->D);
    ATTN(key_product)(job, b, 0, b->keys, job->k, job->q_cols, job->s);
    ask_ahead(job, &span, &ahead);
    for (int v = 0; v < b->vectors; v++) {
        attn_column c = job_column(job, b, v);
        float *s = job->s + v * VF_LANES;
        const int64_t end = v ? b->keys : b->both;
        c.shift = vf_zero() - column_max(&c, s, job->across, end) * c.scale;
        sum[v] = ATTN(column_exp)(&c, s, job->across, end);
        vf_store_n(a->lse + job_lse(job, b->head, b->q0) + v * VF_LANES, vf_log2(sum[v]) - c.shift,
                   attn_min(b->n - v * VF_LANES, VF_LANES));
    }
    ATTN(value_product)(job, b, 0, b->keys, job->v_pairs, job->s, job->out_cols);
    for (int v = 0; v < b->vectors; v++) {
        unpack_cols(&to, job->out_cols + v * VF_LANES, job->across, vf_set(1.0f) / sum[v],
                    attn_min(b->n - v * VF_LANES, VF_LANES), a->D);
        to.at += VF_LANES * to.stride;
    }
}

/* The parts of a job that both directions use. */
static attn_job ATTN(job_of)(const kvf__attn *attn, const kvf__attn_item *item, char **scratch)
{
    const kvf__attn_row *row = &attn->plan->rows[item->row];
    const int64_t shared = kvf__attn_shared_len(attn, row), n = shared + row->len;
    const int64_t width = attn_round(attn->D, VF_LANES * ATTN_PAIR), units = width / ATTN_PAIR;
    const int64_t padded = attn_round(n, KEY_STEP);
    attn_job job = {.attn = attn,
                    .row = row,
                    .g = item->head,
                    .next = next_item(attn->plan, item),
                    .shared = shared,
                    .n = n,
                    .width = width,
                    .units = units};
    *scratch = kvf__attn_scratch(attn->plan, item->thread);
    job.k = attn_alloc(scratch, padded * units);
    job.v = attn_alloc(scratch, padded * units);
    job.q = attn_alloc(scratch, KVF__ATTN_QUERIES * units);
    job.q_cols = attn_alloc(scratch, KVF__ATTN_QUERIES * units);
    job.out_cols = attn_alloc(scratch, KVF__ATTN_QUERIES * width);
    return job;
}

static void ATTN(fwd_item)(const kvf__attn *attn, const kvf__attn_item *item)
{
    const kvf__attn_row *row = &attn->plan->rows[item->row];
    if (row->len - row->first <= FEW) {
        few_item(attn, item);
        return;
    }
    char *scratch;
    attn_job job = ATTN(job_of)(attn, item, &scratch);
    const int64_t heads = attn->H / attn->G, padded = attn_round(job.n, KEY_STEP);

    ATTN(pack_keys)(&job, 0, job.k);
    ATTN(pack_keys)(&job, 1, job.v);
    job.across = BLOCK;
    job.v_pairs = job.v;
#if ATTN_PAIR == 2
    job.v_pairs = attn_alloc(&scratch, padded / 2 * job.width);
    pack_pairs(job.v_pairs, job.v, padded, job.width);
#endif
    job.s = attn_alloc(&scratch, padded * BLOCK);
    for (int64_t head = job.g * heads; head < (job.g + 1) * heads; head++)
        for (int64_t q0 = row->first; q0 < row->len; q0 += BLOCK) {
            const attn_block b = job_block(&job, head, q0, false);
            ATTN(fwd_block)(&job, &b);
        }
}

/* ---- backward -------------------------------------------------------------------------------- */

/* P and dS / scale of key j, from S and dP. */
VEC_INLINE void ATTN(pair_grad)(const attn_column *c, int64_t j, const float *s, const float *dp,
                                vf p_ds[2])
{
    p_ds[0] = ATTN(prob)(c, j, vf_load(s));
    p_ds[1] = p_ds[0] * (vf_load(dp) - c->delta);
}

/* Keys from .. end - 1 of one vector, at column `at`: S and dP become P and dS in the layouts of
 * the products to come. The end is rounded up, so that whole tiles of keys can be read; keys
 * that no query sees get zeros. */
static void ATTN(column_grads)(const attn_job *job, const attn_block *b, int v, int64_t at,
                               int64_t from, int64_t end)
{
    attn_column c = job_column(job, b, v);
    const int64_t across = job->across, n = attn_round(end - from, KEY_STEP);
    c.shift = vf_zero() - vf_load(job->lse + at);
    c.delta = vf_load(job->delta + at);
    for (int64_t i = 0; i < n; i += ATTN_PAIR) {
        float *s = job->s + i * across + at, *dp = job->dp + i * across + at;
        vf first[2];
        ATTN(pair_grad)(&c, from + i, s, dp, first);
#if ATTN_PAIR == 2
        vf second[2];
        uint16_t *p_row = (uint16_t *)(void *)job->p_rows + i * across + at;
        uint16_t *ds_row = (uint16_t *)(void *)job->ds_rows + i * across + at;
        ATTN(pair_grad)(&c, from + i + 1, s + across, dp + across, second);
        vf_store_bf16(p_row, first[0]);
        vf_store_bf16(p_row + across, second[0]);
        vf_store_bf16(ds_row, first[1]);
        vf_store_bf16(ds_row + across, second[1]);
        vf_store(job->dp + i / 2 * across + at, join(first[1], second[1]));
#else
        vf_store(s, first[0]);
        vf_store(dp, first[1]);
#endif
    }
}

/* S, dP, P, dS of keys from .. to - 1 and the queries of one block, which begin at column `at`. */
static void ATTN(block_grads)(const attn_job *job, const attn_block *b, int64_t at, int64_t from,
                              int64_t to)
{
    const int64_t end = attn_min(b->keys, to), both = attn_max(from, attn_min(b->both, to));
    ATTN(key_product)(job, b, from, to, job->k, job->q_cols + at, job->s + at);
    ATTN(key_product)(job, b, from, to, job->v, job->dout_cols + at, job->dp + at);
    for (int v = 0; v < b->vectors; v++)
        ATTN(column_grads)(job, b, v, at + v * VF_LANES, from, v ? end : both);
}

/* dk or dv (which = 1) of keys from .. to - 1 += dS^T Q or P^T dO over the n queries of a block.
 * A causal key starts at its own query; tiles of keys share the start of their first. */
static void ATTN(query_product)(const attn_job *job, int64_t q0, int64_t n, int64_t from,
                                int64_t to, int which)
{
    const float *weights = which ? job->p_rows : job->ds_rows,
                *pairs = which ? job->dout_pairs : job->q_pairs;
    float *dst = which ? job->dv : job->dk;
    /* tiles of keys before this one start at the first query */
    const int64_t whole = (job->shared + q0) / KEY_STEP * KEY_STEP + KEY_STEP;
    attn_product p = {
        .add = true, .lda = job->across / ATTN_PAIR, .ldb = job->width, .ldc = job->width};
    for (int64_t j = from, end; j < to; j = end) {
        const bool all = !job->attn->causal || j < whole;
        const int64_t skip = all ? 0 : (j - job->shared - q0) / ATTN_PAIR;
        end = attn_min(to, !all ? j + KEY_STEP : job->attn->causal ? whole : to);
        p.rows = attn_round(end - j, KEY_STEP);
        p.units = (n + ATTN_PAIR - 1) / ATTN_PAIR - skip;
        p.a = weights + (j - from) * p.lda + skip;
        for (int64_t d = 0; d < job->attn->D; d += BLOCK) {
            p.vectors = job->attn->D - d > VF_LANES ? 2 : 1;
            p.b = pairs + skip * job->width + d;
            p.c = dst + j * job->width + d;
            ATTN(product_rows)(&p);
        }
    }
}

/* Packs a block of queries for the backward pass. */
static void ATTN(bwd_pack)(const attn_job *job, int64_t head, int64_t q0, int64_t n)
{
    const kvf__attn *a = job->attn;
    const attn_rows q = job_queries(job, head, q0), dout = job_outs(job, a->dout, head, q0);
    const attn_dest to = {a->dqkv, a->act, (job->row->start + q0) * a->ld + head * a->D, a->ld};
    for (int64_t i = 0; i < n; i++)
        prefetch_row(a->out, a->act, dout.at + i * dout.stride, a->D, 0);
    ATTN(pack_queries)(job, &q, n, job->q, job->q_cols);
    ATTN(pack_queries)(job, &dout, n, job->dout, job->dout_cols);
#if ATTN_PAIR == 2
    pack_pairs(job->q_pairs, job->q, attn_round(n, 2), job->width);
    pack_pairs(job->dout_pairs, job->dout, attn_round(n, 2), job->width);
#endif
    query_sums(job, head, q0, n);
    if (!a->shared_only) prefetch_dest(&to, n, a->D);
}

/* Everything that n queries (at most QUERIES) of a head add: dk, dv, and their own dq. */
static void ATTN(bwd_block)(const attn_job *job, int64_t head, int64_t q0, int64_t n)
{
    const bool shared_only = job->attn->shared_only;
    const int64_t last = (n - 1) / BLOCK * BLOCK;
    const attn_span span = {head, q0, n};
    const int64_t keys = job_block(job, head, q0 + last, shared_only).keys;

    ATTN(bwd_pack)(job, head, q0, n);
    for (int64_t from = 0; from < keys; from += KVF__ATTN_KEYS) {
        const int64_t to = attn_min(keys, from + KVF__ATTN_KEYS);
        const attn_ahead ahead = {KVF__ATTN_QUERIES, true, from / KVF__ATTN_KEYS,
                                  (keys + KVF__ATTN_KEYS - 1) / KVF__ATTN_KEYS};
        ask_ahead(job, &span, &ahead);
        for (int64_t at = 0; at < n; at += BLOCK) {
            const attn_block b = job_block(job, head, q0 + at, shared_only);
            if (b.keys <= from) continue;
            ATTN(block_grads)(job, &b, at, from, to);
            if (!shared_only) ATTN(value_product)
            (job, &b, from, to, job->k_pairs, job->dp + at, job->out_cols + at);
        }
        ATTN(query_product)(job, q0, n, from, to, 1);
        ATTN(query_product)(job, q0, n, from, to, 0);
    }
    if (!shared_only) store_dq(job, head, q0, n);
}

static void ATTN(bwd_scratch)(attn_job *job, char *scratch)
{
    const int64_t padded = attn_round(job->n, KEY_STEP), block = KVF__ATTN_KEYS * KVF__ATTN_QUERIES;
    job->across = KVF__ATTN_QUERIES;
    job->dout = attn_alloc(&scratch, KVF__ATTN_QUERIES * job->units);
    job->dout_cols = attn_alloc(&scratch, KVF__ATTN_QUERIES * job->units);
    job->s = job->p_rows = attn_alloc(&scratch, block);
    job->dp = job->ds_rows = attn_alloc(&scratch, block);
    job->dk = attn_alloc(&scratch, padded * job->width);
    job->dv = attn_alloc(&scratch, padded * job->width);
    job->lse = attn_alloc(&scratch, KVF__ATTN_QUERIES);
    job->delta = attn_alloc(&scratch, KVF__ATTN_QUERIES);
    job->k_pairs = job->k;
    job->q_pairs = job->q;
    job->dout_pairs = job->dout;
#if ATTN_PAIR == 2
    job->p_rows = attn_alloc(&scratch, block / 2);
    job->ds_rows = attn_alloc(&scratch, block / 2);
    job->k_pairs = attn_alloc(&scratch, padded / 2 * job->width);
    job->q_pairs = attn_alloc(&scratch, KVF__ATTN_QUERIES / 2 * job->width);
    job->dout_pairs = attn_alloc(&scratch, KVF__ATTN_QUERIES / 2 * job->width);
#endif
}

static void ATTN(bwd_item)(const kvf__attn *attn, const kvf__attn_item *item)
{
    char *scratch;
    attn_job job = ATTN(job_of)(attn, item, &scratch);
    const int64_t heads = attn->H / attn->G, padded = attn_round(job.n, KEY_STEP);

    ATTN(bwd_scratch)(&job, scratch);
    ATTN(pack_keys)(&job, 0, job.k);
    ATTN(pack_keys)(&job, 1, job.v);
#if ATTN_PAIR == 2
    pack_pairs(job.k_pairs, job.k, padded, job.width);
#endif
    memset(job.dk, 0, sizeof(float) * (size_t)(padded * job.width));
    memset(job.dv, 0, sizeof(float) * (size_t)(padded * job.width));
    for (int64_t head = job.g * heads; head < (job.g + 1) * heads; head++)
        for (int64_t q0 = job.row->first; q0 < job.row->len; q0 += KVF__ATTN_QUERIES)
            ATTN(bwd_block)(&job, head, q0, attn_min(job.row->len - q0, KVF__ATTN_QUERIES));
    if (!attn->shared_only) zero_unwanted(&job);
    store_key_grads(&job, item->thread);
}
