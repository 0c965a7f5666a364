/* Fused attention over blocks of queries, forward and backward, for one unit type (ATTN_PAIR, see attention_pack.h).
 *
 * Everything works on S^T = K Q^T, keys down and queries across in two vectors: masks are lane masks, maxima and sums run
 * down the columns, and the products need no transposed K or V (COMPUTE.md 4a):
 *
 *   forward    S^T = K Q^T    O^T = V^T P^T
 *   backward   S^T = K Q^T    dP^T = V dO^T    dV += P^T dO    dK += dS^T Q    dQ^T += K^T dS^T
 *
 * K and V of an item (row, key/value head) are packed once for all its query heads, segment after segment. The backward pass
 * forms P again from lse, here in powers of two. Above the diagonal, work is skipped in steps of 8 keys and one vector. */

/* One item and its scratch. Gradients are kept in f32 until the item ends. */
typedef struct ATTN(job) {
    const kvf__attn *attn;
    const kvf__attn_row *row;
    int64_t g, shared, n;      /* key/value head; keys before the row's own, in all */
    int64_t width, units;      /* elements and units of a packed row */
    float *k, *v;              /* rows [n][units] */
    float *k_pairs, *v_pairs;  /* pairs [n / PAIR][width] */
    float *q, *dout;           /* rows [QUERIES][units] of a block */
    float *q_cols, *dout_cols; /* cols [units][across] */
    float *q_pairs, *dout_pairs; /* pairs [QUERIES / PAIR][width] */
    int64_t across;            /* queries side by side: BLOCK, or QUERIES in the backward pass */
    float *s, *dp;             /* [keys][across] scores and dP; then P (forward) or dS as B operands, [keys / PAIR][across] */
    float *p_rows, *ds_rows;   /* [keys][across / PAIR] P and dS as A operands */
    float *out_cols;           /* [width][across] O^T or dQ^T */
    float *dk, *dv;            /* [n][width] */
    float *lse, *delta;        /* [QUERIES] */
} ATTN(job);

/* Two vectors of queries and the keys they see. */
typedef struct ATTN(block) {
    int64_t head, q0, n;  /* first query, queries */
    int vectors;
    int64_t keys, both;   /* keys that some query sees; keys from `both` on are seen by the second vector alone */
} ATTN(block);

static ATTN(block) ATTN(block_at)(const ATTN(job) *job, int64_t head, int64_t q0, bool shared_only)
{
    const int64_t n = attn_min(job->row->len - q0, BLOCK);
    ATTN(block) b = {head, q0, n, n > VF_LANES ? 2 : 1, job->n, job->n};
    if (job->attn->causal) b.keys = job->shared + q0 + n;
    if (shared_only) b.keys = attn_min(b.keys, job->shared);
    b.both = b.keys;
    if (job->attn->causal && b.vectors == 2)
        b.both = attn_min(b.keys, attn_round(job->shared + q0 + VF_LANES, KEY_STEP));
    return b;
}

/* One vector of a block, without what the passes add. */
static attn_column ATTN(column_at)(const ATTN(job) *job, const ATTN(block) *b, int v)
{
    const int64_t self = job->shared + b->q0 + v * VF_LANES; /* the key of the first lane's own token */
    attn_column c = {.plain = self + 1, .diagonal = self, .scale = vf_set(job->attn->scale * 1.44269504f)};
    if (!job->attn->causal) {
        c.plain = job->n;
        c.diagonal = job->n - VF_LANES;
    }
    return c;
}

static void ATTN(pack_keys)(const ATTN(job) *job, int which, float *dst)
{
    for (int32_t s = 0; s <= job->row->n_segs; s++) {
        const attn_rows from = attn_source(job->attn, job->row, job->g, s, which);
        const int64_t n = attn_source_len(job->attn, job->row, s);
        ATTN(pack_rows)(dst, &from, n, job->attn->D, job->width);
        dst += n * job->units;
    }
    memset(dst, 0, sizeof(float) * (size_t)((attn_round(job->n, KEY_STEP) - job->n) * job->units));
}

/* Queries (or rows of dout) q0 .. q0 + n - 1 of a head as rows, padded with zero rows to whole vectors, and as columns. */
static void ATTN(pack_queries)(const ATTN(job) *job, const attn_rows *from, int64_t n, float *rows, float *cols)
{
    const int64_t padded = attn_round(n, VF_LANES);
    ATTN(pack_rows)(rows, from, n, job->attn->D, job->width);
    memset(rows + n * job->units, 0, sizeof(float) * (size_t)((padded - n) * job->units));
    pack_cols(cols, job->across, rows, job->units, padded, job->units);
}

static attn_rows ATTN(queries)(const ATTN(job) *job, int64_t head, int64_t q0)
{
    const kvf__attn *a = job->attn;
    return (attn_rows){a->qkv, a->act, (job->row->start + q0) * a->ld + head * a->D, a->ld};
}

static attn_rows ATTN(outs)(const ATTN(job) *job, const void *out, int64_t head, int64_t q0)
{
    const kvf__attn *a = job->attn;
    return (attn_rows){out, a->act, ((job->row->start + q0) * a->H + head) * a->D, a->H * a->D};
}

static int64_t ATTN(lse_at)(const ATTN(job) *job, int64_t head, int64_t q0)
{
    return head * job->attn->N + job->row->start + q0;
}

/* c [keys from .. b->keys)[QUERIES] = rows of keys times columns of queries, where seen; c starts at key `from`. */
static void ATTN(key_product)(const ATTN(job) *job, const ATTN(block) *b, int64_t from, int64_t to, const float *keys,
                              const float *cols, float *c)
{
    const int64_t both = attn_max(from, attn_min(b->both, to)), end = attn_min(b->keys, to);
    attn_product p = {.rows = attn_round(both - from, KEY_STEP), .units = (job->attn->D + ATTN_PAIR - 1) / ATTN_PAIR,
                      .vectors = b->vectors, .a = keys + from * job->units, .b = cols, .c = c, .lda = job->units,
                      .ldb = job->across, .ldc = job->across};
    ATTN(product_rows)(&p);
    if (both >= end) return;
    p.a = keys + both * job->units;
    p.b = cols + VF_LANES;
    p.c = c + (both - from) * job->across + VF_LANES;
    p.rows = attn_round(end - both, KEY_STEP);
    p.vectors = 1;
    ATTN(product_rows)(&p);
}

/* c [D][QUERIES] = or += (keys as pairs)^T times weights [keys / PAIR][QUERIES], which start at key `from`. */
static void ATTN(value_product)(const ATTN(job) *job, const ATTN(block) *b, int64_t from, int64_t to, const float *pairs,
                                const float *weights, float *c)
{
    const int64_t both = attn_max(from, attn_min(b->both, to)), end = attn_min(b->keys, to);
    attn_product p = {.rows = attn_round(job->attn->D, TILE_ROWS), .units = (both - from + ATTN_PAIR - 1) / ATTN_PAIR,
                      .vectors = b->vectors, .add = from > 0, .a = pairs + from / ATTN_PAIR * job->width, .b = weights,
                      .c = c, .lda = job->width, .ldb = job->across, .ldc = job->across};
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

/* ---- forward -------------------------------------------------------------------------------------- */

/* Largest of the scores s [end][across] of each query, unscaled. */
VEC_INLINE vf ATTN(column_max)(const attn_column *c, const float *s, int64_t across, int64_t end)
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

/* P of key j; 0 where hidden. */
VEC_INLINE vf ATTN(prob)(const attn_column *c, int64_t j, vf s)
{
    return hide(c, j, ATTN(power)(vf_fma(s, c->scale, c->shift)), vf_zero());
}

/* Scores to P, unnormalised, as the B operand of O^T = V^T P^T, in place: units of PAIR keys close ranks. Returns the sums. */
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

static void ATTN(fwd_block)(const ATTN(job) *job, const ATTN(block) *b)
{
    const kvf__attn *a = job->attn;
    const attn_rows from = ATTN(queries)(job, b->head, b->q0);
    attn_dest to = {a->out, a->act, ((job->row->start + b->q0) * a->H + b->head) * a->D, a->H * a->D};
    vf sum[2];

    ATTN(pack_queries)(job, &from, b->n, job->q, job->q_cols);
    prefetch_dest(&to, b->n, a->D);
    ATTN(key_product)(job, b, 0, b->keys, job->k, job->q_cols, job->s);
    for (int v = 0; v < b->vectors; v++) {
        attn_column c = ATTN(column_at)(job, b, v);
        float *s = job->s + v * VF_LANES;
        const int64_t end = v ? b->keys : b->both;
        c.shift = vf_zero() - ATTN(column_max)(&c, s, job->across, end) * c.scale;
        sum[v] = ATTN(column_exp)(&c, s, job->across, end);
        vf_store_n(a->lse + ATTN(lse_at)(job, b->head, b->q0) + v * VF_LANES, log2_of(sum[v]) - c.shift,
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
static ATTN(job) ATTN(job_of)(const kvf__attn *attn, const kvf__attn_item *item, char **scratch)
{
    const kvf__attn_row *row = &attn->plan->rows[item->row];
    const int64_t shared = kvf__attn_shared_len(attn, row), n = shared + row->len;
    const int64_t width = attn_round(attn->D, VF_LANES * ATTN_PAIR), units = width / ATTN_PAIR;
    const int64_t padded = attn_round(n, KEY_STEP);
    ATTN(job) job = {.attn = attn, .row = row, .g = item->head, .shared = shared, .n = n, .width = width, .units = units};
    *scratch = kvf__attn_scratch(attn->plan, item->thread);
    job.k = attn_take(scratch, padded * units);
    job.v = attn_take(scratch, padded * units);
    job.q = attn_take(scratch, KVF__ATTN_QUERIES * units);
    job.q_cols = attn_take(scratch, KVF__ATTN_QUERIES * units);
    job.out_cols = attn_take(scratch, KVF__ATTN_QUERIES * width);
    return job;
}

static void ATTN(fwd_item)(const kvf__attn *attn, const kvf__attn_item *item)
{
    if (attn->plan->rows[item->row].len <= FEW) {
        few_item(attn, item);
        return;
    }
    char *scratch;
    ATTN(job) job = ATTN(job_of)(attn, item, &scratch);
    const int64_t heads = attn->H / attn->G, padded = attn_round(job.n, KEY_STEP);

    ATTN(pack_keys)(&job, 0, job.k);
    ATTN(pack_keys)(&job, 1, job.v);
    job.across = BLOCK;
    job.v_pairs = job.v;
#if ATTN_PAIR == 2
    job.v_pairs = attn_take(&scratch, padded / 2 * job.width);
    pack_pairs(job.v_pairs, job.v, padded, job.width);
#endif
    job.s = attn_take(&scratch, padded * BLOCK);
    for (int64_t head = job.g * heads; head < (job.g + 1) * heads; head++)
        for (int64_t q0 = 0; q0 < job.row->len; q0 += BLOCK) {
            const ATTN(block) b = ATTN(block_at)(&job, head, q0, false);
            ATTN(fwd_block)(&job, &b);
        }
}

/* ---- backward ------------------------------------------------------------------------------------- */

/* lse and delta = dout . out of queries q0 .. q0 + n - 1, 0 in the lanes that fill up the last vector. */
static void ATTN(query_sums)(const ATTN(job) *job, int64_t head, int64_t q0, int64_t n)
{
    const kvf__attn *a = job->attn;
    const attn_rows out = ATTN(outs)(job, a->out, head, q0), dout = ATTN(outs)(job, a->dout, head, q0);
    for (int64_t i = 0; i < attn_round(n, VF_LANES); i++) {
        vf sum = vf_zero();
        for (int64_t d = 0; i < n && d < a->D; d += VF_LANES)
            sum = vf_fma(load_part(&out, i, d, a->D - d), load_part(&dout, i, d, a->D - d), sum);
        job->delta[i] = vf_sum(sum);
        job->lse[i] = i < n ? a->lse[ATTN(lse_at)(job, head, q0 + i)] : 0;
    }
}

/* P and dS / scale of key j, from S and dP. */
VEC_INLINE void ATTN(pair_grad)(const attn_column *c, int64_t j, const float *s, const float *dp, vf p_ds[2])
{
    p_ds[0] = ATTN(prob)(c, j, vf_load(s));
    p_ds[1] = p_ds[0] * (vf_load(dp) - c->delta);
}

/* Keys from .. end - 1 of one vector, at column `at`: S and dP become P and dS in the layouts of the products to come. The end
 * is rounded up, so that whole tiles of keys can be read; keys that no query sees get zeros. */
static void ATTN(column_grads)(const ATTN(job) *job, const ATTN(block) *b, int v, int64_t at, int64_t from, int64_t end)
{
    attn_column c = ATTN(column_at)(job, b, v);
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
static void ATTN(block_grads)(const ATTN(job) *job, const ATTN(block) *b, int64_t at, int64_t from, int64_t to)
{
    const int64_t end = attn_min(b->keys, to), both = attn_max(from, attn_min(b->both, to));
    ATTN(key_product)(job, b, from, to, job->k, job->q_cols + at, job->s + at);
    ATTN(key_product)(job, b, from, to, job->v, job->dout_cols + at, job->dp + at);
    for (int v = 0; v < b->vectors; v++)
        ATTN(column_grads)(job, b, v, at + v * VF_LANES, from, v ? end : both);
}

/* dk or dv (which = 1) of keys from .. to - 1 += dS^T Q or P^T dO over the n queries of a block. A causal key starts at its own
 * query; tiles of keys share the start of their first. */
static void ATTN(query_product)(const ATTN(job) *job, int64_t q0, int64_t n, int64_t from, int64_t to, int which)
{
    const float *weights = which ? job->p_rows : job->ds_rows, *pairs = which ? job->dout_pairs : job->q_pairs;
    float *dst = which ? job->dv : job->dk;
    const int64_t whole = (job->shared + q0) / KEY_STEP * KEY_STEP + KEY_STEP; /* keys before it start at the first query */
    attn_product p = {.add = true, .lda = job->across / ATTN_PAIR, .ldb = job->width, .ldc = job->width};
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
static void ATTN(bwd_pack)(const ATTN(job) *job, int64_t head, int64_t q0, int64_t n)
{
    const kvf__attn *a = job->attn;
    const attn_rows q = ATTN(queries)(job, head, q0), dout = ATTN(outs)(job, a->dout, head, q0);
    const attn_dest to = {a->dqkv, a->act, (job->row->start + q0) * a->ld + head * a->D, a->ld};
    for (int64_t i = 0; i < n; i++)
        prefetch_row(a->out, a->act, dout.at + i * dout.stride, a->D, 0);
    ATTN(pack_queries)(job, &q, n, job->q, job->q_cols);
    ATTN(pack_queries)(job, &dout, n, job->dout, job->dout_cols);
#if ATTN_PAIR == 2
    pack_pairs(job->q_pairs, job->q, attn_round(n, 2), job->width);
    pack_pairs(job->dout_pairs, job->dout, attn_round(n, 2), job->width);
#endif
    ATTN(query_sums)(job, head, q0, n);
    if (!a->shared_only) prefetch_dest(&to, n, a->D);
}

static void ATTN(store_dq)(const ATTN(job) *job, int64_t head, int64_t q0, int64_t n)
{
    const kvf__attn *a = job->attn;
    for (int64_t i = 0; i < n; i += VF_LANES) {
        const attn_dest to = {a->dqkv, a->act, (job->row->start + q0 + i) * a->ld + head * a->D, a->ld};
        unpack_cols(&to, job->out_cols + i, job->across, vf_set(a->scale), attn_min(n - i, VF_LANES), a->D);
    }
}

/* Everything that n queries (at most QUERIES) of a head add: dk, dv, and their own dq. */
static void ATTN(bwd_block)(const ATTN(job) *job, int64_t head, int64_t q0, int64_t n)
{
    const bool shared_only = job->attn->shared_only;
    const int64_t last = (n - 1) / BLOCK * BLOCK;
    const int64_t keys = ATTN(block_at)(job, head, q0 + last, shared_only).keys;

    ATTN(bwd_pack)(job, head, q0, n);
    for (int64_t from = 0; from < keys; from += KVF__ATTN_KEYS) {
        const int64_t to = attn_min(keys, from + KVF__ATTN_KEYS);
        for (int64_t at = 0; at < n; at += BLOCK) {
            const ATTN(block) b = ATTN(block_at)(job, head, q0 + at, shared_only);
            if (b.keys <= from) continue;
            ATTN(block_grads)(job, &b, at, from, to);
            if (!shared_only) ATTN(value_product)(job, &b, from, to, job->k_pairs, job->dp + at, job->out_cols + at);
        }
        ATTN(query_product)(job, q0, n, from, to, 1);
        ATTN(query_product)(job, q0, n, from, to, 0);
    }
    if (!shared_only) ATTN(store_dq)(job, head, q0, n);
}

/* dk and dv of the shared segments to this thread's accumulators, those of the row's own keys to dqkv. */
static void ATTN(store_key_grads)(const ATTN(job) *job, int thread)
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

static void ATTN(bwd_scratch)(ATTN(job) *job, char *scratch)
{
    const int64_t padded = attn_round(job->n, KEY_STEP), block = KVF__ATTN_KEYS * KVF__ATTN_QUERIES;
    job->across = KVF__ATTN_QUERIES;
    job->dout = attn_take(&scratch, KVF__ATTN_QUERIES * job->units);
    job->dout_cols = attn_take(&scratch, KVF__ATTN_QUERIES * job->units);
    job->s = job->p_rows = attn_take(&scratch, block);
    job->dp = job->ds_rows = attn_take(&scratch, block);
    job->dk = attn_take(&scratch, padded * job->width);
    job->dv = attn_take(&scratch, padded * job->width);
    job->lse = attn_take(&scratch, KVF__ATTN_QUERIES);
    job->delta = attn_take(&scratch, KVF__ATTN_QUERIES);
    job->k_pairs = job->k;
    job->q_pairs = job->q;
    job->dout_pairs = job->dout;
#if ATTN_PAIR == 2
    job->p_rows = attn_take(&scratch, block / 2);
    job->ds_rows = attn_take(&scratch, block / 2);
    job->k_pairs = attn_take(&scratch, padded / 2 * job->width);
    job->q_pairs = attn_take(&scratch, KVF__ATTN_QUERIES / 2 * job->width);
    job->dout_pairs = attn_take(&scratch, KVF__ATTN_QUERIES / 2 * job->width);
#endif
}

static void ATTN(bwd_item)(const kvf__attn *attn, const kvf__attn_item *item)
{
    char *scratch;
    ATTN(job) job = ATTN(job_of)(attn, item, &scratch);
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
        for (int64_t q0 = 0; q0 < job.row->len; q0 += KVF__ATTN_QUERIES)
            ATTN(bwd_block)(&job, head, q0, attn_min(job.row->len - q0, KVF__ATTN_QUERIES));
    ATTN(store_key_grads)(&job, item->thread);
}
