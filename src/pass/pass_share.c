/* The attention share of virtual tokens: the softmax mass, by layer and head, that queries of
 * labelled positions put on the prefix, or on vectors among a row's tokens.
 *
 * The reference implementation computes it from the pass's own queries and keys, so a report shows
 * the model's actual attention. Threads take whole heads, each adding labels in order, so bits do
 * not depend on the number of threads. */
#include "attention.h"
#include "pass_priv.h"

/* Returns the mass on virtual tokens among the own tokens of row r; p: mass of the first own
 * token. */
static double virtual_mass(const kvf__batch *batch, int64_t r, int64_t n, const double *p)
{
    double sum = 0;
    for (int64_t t = 0; t < n; t++)
        if (batch->ids[batch->start[r] + t] < 0) sum += p[t];
    return sum;
}

/* Returns the mass on virtual tokens among the n visible keys of a query of row r. The keys are
 * those of its prefix, of its common prefixes (outermost first) or cached tokens, and of its own
 * tokens, in this order. */
static double mass_of(const kvf__pass *pass, int64_t l, int64_t r, const double *p, int64_t n)
{
    const kvf__batch *batch = pass->batch;
    const kvf__attn_row *row = &pass->keys.rows[r];
    double sum = 0;
    int64_t at = 0;

    if (kvf__section_has_prefix(kvf__pass_section_of(pass, r),
                                kvf__desc_layer(&pass->model->desc, l).from) &&
        kvf__pass_row_sees(pass, r))
        for (int64_t j = 0; j < pass->keys.segs[row->seg[0]].len; j++)
            sum += p[j];
    for (int32_t s = 0; s < row->n_segs; s++)
        at += pass->keys.segs[row->seg[s]].len;
    sum += virtual_mass(batch, r, n - at, p + at);
    for (int32_t common = batch->parent ? batch->parent[r] : -1; common >= 0;
         common = batch->parent[common]) {
        int64_t len = batch->start[common + 1] - batch->start[common];
        at -= len;
        sum += virtual_mass(batch, common, len, p + at);
    }
    return sum;
}

/* Sums over all labels the mass of a head's queries on virtual tokens. p: room for a row's keys. */
static double head_mass(const kvf__pass *pass, const kvf__attn *attn, int64_t l, int64_t head,
                        double *p)
{
    const kvf__batch *batch = pass->batch;
    double sum = 0;
    int64_t r = 0;

    for (int64_t j = 0; j < batch->n_labels; j++) {
        while (batch->label_at[j] >= batch->start[r + 1])
            r++;
        int64_t n = kvf__attn_shares_ref(attn, &pass->keys.rows[r], head,
                                         batch->label_at[j] - batch->start[r], p);
        sum += mass_of(pass, l, r, p, n);
    }
    return sum;
}

/* Returns the largest number of keys visible to a row. */
static int64_t most_keys(const kvf__pass *pass)
{
    int64_t most = 1;
    for (int64_t r = 0; r < pass->batch->n_rows; r++) {
        const kvf__attn_row *row = &pass->keys.rows[r];
        int64_t keys = row->len;
        for (int32_t s = 0; s < row->n_segs; s++)
            keys += pass->keys.segs[row->seg[s]].len;
        if (keys > most) most = keys;
    }
    return most;
}

kvf_status kvf__pass_add_share(kvf_ctx *ctx, const kvf__pass *pass, int64_t l)
{
    const kvf__attn attn = kvf__pass_attn(pass, l);
    const int64_t H = attn.H, keys = most_keys(pass);
    double *p = NULL;

    KVF_TRY(kvf__alloc_array(ctx, (size_t)H, (size_t)keys * sizeof *p, &p));
#pragma omp parallel for schedule(static)
    for (int64_t head = 0; head < H; head++)
        pass->keys.share[l * H + head] += head_mass(pass, &attn, l, head, p + head * keys);
    kvf__free(p);
    return KVF_OK;
}
