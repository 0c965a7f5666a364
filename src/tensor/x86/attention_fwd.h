/* Attention over blocks of queries, forward; see attention_blocks.h. Included once per ATTN_PAIR.
 */

/* Converts scores to unnormalised P in place, as the B operand of O^T = V^T P^T: units of PAIR keys
 * become adjacent. Returns the sums. */
VEC_INLINE vf ATTN(column_exp)(const attn_column *c, float *s, int64_t across, int64_t from,
                               int64_t end)
{
    vf sum = vf_zero();
    for (int64_t j = from; j < end; j += ATTN_PAIR) {
        const float *at = s + (j - from) * across;
        vf p = ATTN(prob)(c, j, vf_load(at));
        sum = sum + p;
#if ATTN_PAIR == 2
        vf next = vf_zero();
        if (j + 1 < end) next = ATTN(prob)(c, j + 1, vf_load(at + across));
        sum = sum + next;
        p = join(p, next);
#endif
        vf_store(s + (j - from) / ATTN_PAIR * across, p);
    }
    return sum;
}

static void ATTN(fwd_block)(const attn_job *job, const attn_block *b)
{
    const kvf__attn *a = job->attn;
    const kvf__attn_rows from = kvf__attn_in_qkv(a, job->row, a->qkv, b->head, b->q0);
    kvf__attn_rows to = kvf__attn_in_out(a, job->row, a->out, b->head, b->q0);
    const attn_span span = {b->head, b->q0, b->n};
    const attn_ahead ahead = {BLOCK, false, 0, 1};
    vf sum[2];

    ATTN(pack_queries)(job, &from, b->n, &job->queries[0]);
    prefetch_rows(&to, b->n, a->D, 1);
    ATTN(key_product)
    (job, b, b->first, b->keys, job->keys[0].rows, job->queries[0].cols, job->scores[0]);
    open_queries(job, b->head, b->q0, b->n);
    add_terms(job, b, 0, b->first, b->keys, job->scores[0]);
    prefetch_ahead(job, &span, &ahead);
    for (int v = 0; v < b->vectors; v++) {
        attn_column c = job_column(job, b, v);
        float *s = job->scores[0] + v * VF_LANES;
        const int64_t end = v ? b->keys : b->both;
        column_cap(&c, s, job->across, b->first, end);
        column_weigh(&c, s, job->across, b->first, end);
        c.shift = vf_zero() - column_max(&c, s, job->across, b->first, end) * c.scale;
        sum[v] = ATTN(column_exp)(&c, s, job->across, b->first, end);
        vf_store_n(kvf__attn_lse(a, job->row, b->head, b->q0 + v * VF_LANES),
                   vf_log2(sum[v]) - c.shift, attn_min(b->n - v * VF_LANES, VF_LANES));
    }
    clear_sums(job, b->first);
    ATTN(value_product)
    (job, b, b->first, b->keys, job->keys[1].pairs, job->scores[0], job->out_cols);
    for (int v = 0; v < b->vectors; v++) {
        unpack_cols(&to, job->out_cols + v * VF_LANES, job->across, vf_set(1.0f) / sum[v],
                    attn_min(b->n - v * VF_LANES, VF_LANES), a->D);
        to.at += VF_LANES * to.stride;
    }
}

static void ATTN(fwd_open)(attn_job *job, const kvf__attn *attn, const kvf__attn_item *item,
                           char *scratch)
{
    *job = ATTN(job_of)(attn, item, &scratch, false);
    ATTN(alloc_queries)(job, &scratch, 0, false);
    job->scores[0] = kvf__attn_alloc(&scratch, kvf__round_up(job->n, KEY_STEP) * BLOCK);
    alloc_terms(job, &scratch, false);
}

static void ATTN(fwd_item)(const kvf__attn *attn, const kvf__attn_item *item)
{
    const kvf__attn_row *row = &attn->plan->rows[item->row];
    /* the few-queries code walks one range of keys */
    const bool two_sided = attn->window && !attn->causal;
    const bool terms = attn->relative && !attn->relative->bias;
    if (row->len - row->first <= FEW && !attn->by_blocks && !two_sided && !terms) {
        few_item(attn, item);
        return;
    }
    char *scratch;
    attn_job *job = job_at(attn->plan, item, &scratch);

    if (!item->begin) ATTN(fwd_open)(job, attn, item, scratch);
    job->next = next_item(attn->plan, item);
    for (int64_t i = item->begin; i < item->end; i++) {
        const attn_span span = job_span(job, i);
        if (span.q0 == row->first) open_terms(job, span.head);
        for (int64_t at = 0; at < span.n; at += BLOCK) {
            const attn_block b = job_block(job, span.head, span.q0 + at, false);
            ATTN(fwd_block)(job, &b);
        }
    }
}
