/* Attention over blocks of queries, backward; see attention_blocks.h. P is recomputed from lse,
 * here in powers of two. Included once per ATTN_PAIR. */

/* Computes P and dS / scale of key j from S and dP; dS is for S before its cap. */
VEC_INLINE void ATTN(pair_grad)(const attn_column *c, int64_t j, const float *s, const float *dp,
                                vf p_ds[2])
{
    vf score = vf_load(s), t = vf_zero();
    if (c->capped) {
        t = vf_tanh(score * c->to_cap);
        score = t * c->cap;
    }
    p_ds[0] = ATTN(prob)(c, j, weigh(c, j, score));
    p_ds[1] = p_ds[0] * (vf_load(dp) - c->delta);
    if (c->dlog_weights && j < c->weighted) c->dlog_weights[j] += vf_sum(p_ds[1]);
    if (c->capped) p_ds[1] = p_ds[1] * vf_fnma(t, t, vf_set(1.0f));
}

/* Converts S and dP of keys from .. end - 1, one vector at column `at`, to P and dS in the layouts
 * of the next products. The end is rounded up, so that whole tiles of keys can be read; keys
 * without a visible query get zeros. */
static void ATTN(column_grads)(const attn_job *job, const attn_block *b, int v, int64_t at,
                               int64_t from, int64_t end)
{
    attn_column c = job_column(job, b, v);
    const int64_t across = job->across, n = kvf__round_up(end - from, KEY_STEP);
    c.shift = vf_zero() - vf_load(job->lse + at);
    c.delta = vf_load(job->delta + at);
    for (int64_t i = 0; i < n; i += ATTN_PAIR) {
        float *s = job->scores[0] + i * across + at, *dp = job->scores[1] + i * across + at;
        vf first[2];
        ATTN(pair_grad)(&c, from + i, s, dp, first);
#if ATTN_PAIR == 2
        vf second[2];
        uint16_t *p_row = (uint16_t *)(void *)job->weights[1] + i * across + at;
        uint16_t *ds_row = (uint16_t *)(void *)job->weights[0] + i * across + at;
        ATTN(pair_grad)(&c, from + i + 1, s + across, dp + across, second);
        vf_store_bf16(p_row, first[0]);
        vf_store_bf16(p_row + across, second[0]);
        vf_store_bf16(ds_row, first[1]);
        vf_store_bf16(ds_row + across, second[1]);
        vf_store(job->scores[1] + i / 2 * across + at, join(first[1], second[1]));
#else
        vf_store(s, first[0]);
        vf_store(dp, first[1]);
#endif
    }
}

/* Computes S, dP, P, dS of keys from .. to - 1 and the queries of one block, which begin at column
 * `at`. */
static void ATTN(block_grads)(const attn_job *job, const attn_block *b, int64_t at, int64_t from,
                              int64_t to)
{
    const int64_t end = attn_min(b->keys, to), both = attn_max(from, attn_min(b->both, to));
    for (int which = 0; which < 2; which++)
        ATTN(key_product)
    (job, b, from, to, job->keys[which].rows, job->queries[which].cols + at,
     job->scores[which] + at);
    add_terms(job, b, at, from, end, job->scores[0] + at);
    for (int v = 0; v < b->vectors; v++)
        ATTN(column_grads)(job, b, v, at + v * VF_LANES, from, v ? end : both);
}

/* Copies dS of own keys from .. to - 1 and one block's queries to the input of add_term_grads. from
 * ..: of all keys of the passage. */
static void ATTN(spread)(const attn_job *job, const attn_block *b, int64_t at, int64_t from,
                         int64_t to)
{
    const int64_t own = attn_max(from, job->shared), end = attn_min(b->keys, to);
    const int64_t both = attn_min(b->both, end);
    for (int v = 0; v < b->vectors; v++)
        for (int64_t j = own; j < (v ? end : both); j++) {
            const int64_t i = (j - from) * job->across + at + v * VF_LANES;
            float *dst = job->terms.ds + (j - own + BORDER) * SPREAD + BORDER + at + v * VF_LANES;
#if ATTN_PAIR == 2
            vf_store(dst, act_load(true, job->weights[0], i, VF_LANES));
#else
            vf_store(dst, vf_load(job->scores[1] + i));
#endif
        }
}

/* Adds dS^T Q to dk, or P^T dO to dv (which = 1), for keys from .. to - 1 and the n queries of a
 * block. A causal key starts at its own query; tiles of keys share the start of their first. */
static void ATTN(query_product)(const attn_job *job, int64_t q0, int64_t n, int64_t from,
                                int64_t to, int which)
{
    /* tiles of keys before this one start at the first query */
    const int64_t whole = (job->shared + q0) / KEY_STEP * KEY_STEP + KEY_STEP;
    attn_product p = {
        .add = true, .lda = job->across / ATTN_PAIR, .ldb = job->width, .ldc = job->width};
    for (int64_t j = from, end; j < to; j = end) {
        const bool all = !job->attn->causal || j < whole;
        const int64_t skip = all ? 0 : (j - job->shared - q0) / ATTN_PAIR;
        end = attn_min(to, !all ? j + KEY_STEP : job->attn->causal ? whole : to);
        p.rows = kvf__round_up(end - j, KEY_STEP);
        p.units = (n + ATTN_PAIR - 1) / ATTN_PAIR - skip;
        p.a = job->weights[which] + (j - from) * p.lda + skip;
        for (int64_t d = 0; d < job->attn->D; d += BLOCK) {
            p.vectors = job->attn->D - d > VF_LANES ? 2 : 1;
            p.b = job->queries[which].pairs + skip * job->width + d;
            p.c = job->dkeys[which] + j * job->width + d;
            ATTN(product_rows)(&p);
        }
    }
}

/* Packs a block of queries for the backward pass. */
static void ATTN(bwd_pack)(const attn_job *job, int64_t head, int64_t q0, int64_t n)
{
    const kvf__attn *a = job->attn;
    const kvf__attn_rows from[2] = {kvf__attn_in_qkv(a, job->row, a->qkv, head, q0),
                                    kvf__attn_in_out(a, job->row, a->dout, head, q0)};
    const kvf__attn_rows out = kvf__attn_in_out(a, job->row, a->out, head, q0),
                         to = kvf__attn_in_qkv(a, job->row, a->dqkv, head, q0);
    prefetch_rows(&out, n, a->D, 0);
    for (int which = 0; which < 2; which++) {
        const attn_packed *q = &job->queries[which];
        ATTN(pack_queries)(job, &from[which], n, q);
        ATTN(pack_pairs)(q->pairs, q->rows, kvf__round_up(n, 2), job->width);
    }
    query_sums(job, head, q0, n);
    if (!a->shared_only) prefetch_rows(&to, n, a->D, 1);
}

/* Adds the contributions of a block's queries to dk and dv, and computes their dq. */
static void ATTN(bwd_block)(const attn_job *job, const attn_span *span)
{
    const int64_t head = span->head, q0 = span->q0, n = span->n;
    const bool shared_only = job->attn->shared_only, terms = job->terms.dq && !shared_only;
    const int64_t last = (n - 1) / BLOCK * BLOCK;
    const int64_t keys = job_block(job, head, q0 + last, shared_only).keys;
    const int64_t first = job_block(job, head, q0, shared_only).first / KVF__ATTN_KEYS *
                          KVF__ATTN_KEYS;

    ATTN(bwd_pack)(job, head, q0, n);
    open_queries(job, head, q0, n);
    clear_sums(job, first);
    for (int64_t from = first; from < keys; from += KVF__ATTN_KEYS) {
        const int64_t to = attn_min(keys, from + KVF__ATTN_KEYS);
        const attn_ahead ahead = {KVF__ATTN_QUERIES, true, from / KVF__ATTN_KEYS,
                                  (keys + KVF__ATTN_KEYS - 1) / KVF__ATTN_KEYS};
        prefetch_ahead(job, span, &ahead);
        if (terms) memset(job->terms.ds, 0, sizeof(float) * SPREAD * SPREAD);
        for (int64_t at = 0; at < n; at += BLOCK) {
            const attn_block b = job_block(job, head, q0 + at, shared_only);
            if (b.keys <= from) continue;
            ATTN(block_grads)(job, &b, at, from, to);
            if (!shared_only) ATTN(value_product)
            (job, &b, from, to, job->keys[0].pairs, job->scores[1] + at, job->out_cols + at);
            if (terms) ATTN(spread)(job, &b, at, from, to);
        }
        ATTN(query_product)(job, q0, n, from, to, 1);
        ATTN(query_product)(job, q0, n, from, to, 0);
        if (terms && to > job->shared)
            add_term_grads(job, q0, n, attn_max(from - job->shared, 0), to - job->shared);
    }
    if (terms) add_term_dq(job, n);
    if (!shared_only) store_dq(job, head, q0, n);
}

static void ATTN(bwd_open)(attn_job *job, const kvf__attn *attn, const kvf__attn_item *item,
                           char *scratch)
{
    *job = ATTN(job_of)(attn, item, &scratch, true);
    /* relative terms add zeros to a tile of rows beyond the last */
    const int64_t padded = kvf__round_up(job->n, KEY_STEP) + KEY_STEP, dkeys = padded * job->width;
    const int64_t block = KVF__ATTN_KEYS * KVF__ATTN_QUERIES;
    for (int which = 0; which < 2; which++) {
        ATTN(alloc_queries)(job, &scratch, which, true);
        job->scores[which] = kvf__attn_alloc(&scratch, block);
        job->dkeys[which] = kvf__attn_alloc(&scratch, dkeys);
        memset(job->dkeys[which], 0, sizeof(float) * (size_t)dkeys);
        /* P replaces S, dS replaces dP, and units of one f32 need no other layout */
        job->weights[!which] = job->scores[which];
        if (ATTN_PAIR == 2) job->weights[!which] = kvf__attn_alloc(&scratch, block / 2);
    }
    job->lse = kvf__attn_alloc(&scratch, KVF__ATTN_QUERIES);
    job->delta = kvf__attn_alloc(&scratch, KVF__ATTN_QUERIES);
    alloc_terms(job, &scratch, true);
}

static void ATTN(bwd_item)(const kvf__attn *attn, const kvf__attn_item *item)
{
    const kvf__attn_row *row = &attn->plan->rows[item->row];
    char *scratch;
    attn_job *job = job_at(attn->plan, item, &scratch);

    if (!item->begin) ATTN(bwd_open)(job, attn, item, scratch);
    job->next = next_item(attn->plan, item);
    for (int64_t i = item->begin; i < item->end; i++) {
        const attn_span span = job_span(job, i);
        if (span.q0 == row->first) open_terms(job, span.head);
        ATTN(bwd_block)(job, &span);
    }
    if (item->end < attn->H / attn->G * kvf__attn_blocks(row)) return;
    if (!attn->shared_only) zero_unwanted(job);
    store_key_grads(job, item->part);
}
