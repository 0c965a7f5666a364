/* The two products of attention over a block of queries, and the packing for both passes. Included
 * once per ATTN_PAIR (attention_tile.h).
 *
 * All code uses S^T = K Q^T, keys down and queries across in two vectors. Masks are lane masks, and
 * maxima and sums run down the columns. The products need no transposed K or V:
 *
 *   forward    S^T = K Q^T    O^T = V^T P^T
 *   backward   S^T = K Q^T    dP^T = V dO^T    dV += P^T dO    dK += dS^T Q    dQ^T += K^T dS^T
 *
 * K and V of an item (row, key/value head) are packed once for all its query heads, segment after
 * segment. Above the diagonal, work is skipped in steps of 8 keys and one vector. */
#include "attention_tile.h"

/* Allocates n packed rows and, with PAIR 2, their pairs. */
static attn_packed ATTN(alloc_packed)(const attn_job *job, char **scratch, int64_t n, bool pairs)
{
    attn_packed p = {.rows = kvf__attn_alloc(scratch, n * job->units)};
    p.pairs = p.rows;
    if (pairs && ATTN_PAIR == 2) p.pairs = kvf__attn_alloc(scratch, n / 2 * job->width);
    return p;
}

/* Prepares an item for either pass: packs its keys and values into scratch. */
static attn_job ATTN(job_of)(const kvf__attn *attn, const kvf__attn_item *item, char **scratch,
                             bool backward)
{
    const kvf__attn_row *row = &attn->plan->rows[item->row];
    const int64_t shared = kvf__attn_shared_len(attn, row),
                  n = shared + kvf__attn_keys_len(attn, row, row->n_segs);
    const int64_t width = kvf__round_up(attn->D, VF_LANES * ATTN_PAIR);
    const int64_t padded = kvf__round_up(n, KEY_STEP);
    attn_job job = {.attn = attn,
                    .row = row,
                    .g = item->head,
                    .shared = shared,
                    .n = n,
                    .width = width,
                    .units = width / ATTN_PAIR,
                    .across = backward ? KVF__ATTN_QUERIES : BLOCK};
    for (int which = 0; which < 2; which++) {
        job.keys[which] = ATTN(alloc_packed)(&job, scratch, padded, which == !backward);
        float *to = job.keys[which].rows;
        for (int32_t s = 0; s <= row->n_segs; s++) {
            const kvf__attn_rows from = kvf__attn_keys(attn, row, job.g, s, which);
            const int64_t len = kvf__attn_keys_len(attn, row, s);
            ATTN(pack_rows)(to, &from, len, attn->D, width);
            to += len * job.units;
        }
        memset(to, 0, sizeof(float) * (size_t)((padded - n) * job.units));
    }
    ATTN(pack_pairs)(job.keys[!backward].pairs, job.keys[!backward].rows, padded, width);
    job.out_cols = kvf__attn_alloc(scratch, KVF__ATTN_QUERIES * width);
    weigh_job(&job, scratch, backward);
    return job;
}

/* Allocates memory for a block of queries (which = 0) or of dO. */
static void ATTN(alloc_queries)(attn_job *job, char **scratch, int which, bool pairs)
{
    job->queries[which] = ATTN(alloc_packed)(job, scratch, KVF__ATTN_QUERIES, pairs);
    job->queries[which].cols = kvf__attn_alloc(scratch, KVF__ATTN_QUERIES * job->units);
}

/* Packs queries (or rows of dO) q0 .. q0 + n - 1 of a head as rows, padded with zero rows to whole
 * vectors, and as columns. */
static void ATTN(pack_queries)(const attn_job *job, const kvf__attn_rows *from, int64_t n,
                               const attn_packed *to)
{
    const int64_t padded = kvf__round_up(n, VF_LANES);
    ATTN(pack_rows)(to->rows, from, n, job->attn->D, job->width);
    memset(to->rows + n * job->units, 0, sizeof(float) * (size_t)((padded - n) * job->units));
    pack_cols(to->cols, job->across, to->rows, job->units, padded, job->units);
}

/* Computes c [keys from .. b->keys)[QUERIES] = rows of keys times columns of queries, where
 * visible; c starts at key `from`. */
static void ATTN(key_product)(const attn_job *job, const attn_block *b, int64_t from, int64_t to,
                              const float *keys, const float *cols, float *c)
{
    const int64_t both = attn_max(from, attn_min(b->both, to)), end = attn_min(b->keys, to);
    attn_product p = {.rows = kvf__round_up(both - from, KEY_STEP),
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
    p.rows = kvf__round_up(end - both, KEY_STEP);
    p.vectors = 1;
    ATTN(product_rows)(&p);
}

/* Computes c [D][QUERIES] = or += (keys as pairs)^T times weights [keys / PAIR][QUERIES], which
 * start at key `from`. */
static void ATTN(value_product)(const attn_job *job, const attn_block *b, int64_t from, int64_t to,
                                const float *pairs, const float *weights, float *c)
{
    const int64_t both = attn_max(from, attn_min(b->both, to)), end = attn_min(b->keys, to);
    attn_product p = {.rows = kvf__round_up(job->attn->D, TILE_ROWS),
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

/* Returns P of key j; 0 where hidden. */
VEC_INLINE vf ATTN(prob)(const attn_column *c, int64_t j, vf s)
{
    return hide(c, j, ATTN(power)(vf_fma(s, c->scale, c->shift)), vf_zero());
}
