/* The plan of an attention call: its memory, running the items that attention_deal.c assigned to
 * each thread, and summing gradients of shared segments. */
#include "arena.h"
#include "attention_int.h"

#include <assert.h>
#include <sched.h>
#include <string.h>

/* Computes the floats of relative terms: two tables each, as rows and as columns, over all
 * distances of a row with padding; another copy of keys and queries; a bias. False on overflow. */
static bool relative_size(const kvf__attn_limits *limits, size_t width, size_t *out)
{
    const size_t len = (size_t)limits->row_len, more = 5 * KVF__ATTN_PAD;
    const size_t block = KVF__ATTN_QUERIES + KVF__ATTN_PAD;
    size_t terms;

    *out = 0;
    if (!limits->relative) return true;
    if (!kvf__mul(9 * (len + more) + 2 * KVF__ATTN_QUERIES, width, &terms)) return false;
    return kvf__add(terms, 2 * block * block + 2 * len + (size_t)limits->shared_len + more, out);
}

/* Returns bytes of scratch for attention_plain.c: 14 [keys, D], 6 [keys] and 4 [D]. */
static size_t plain_size(int64_t D, int64_t keys)
{
    return (size_t)(14 * keys * D + 6 * keys + 4 * D) * sizeof(float);
}

/* Computes bytes of scratch per thread for the kernel with the largest need: packed keys and
 * values, their gradients, the scores and packed copies of a block of queries. False on
 * overflow. */
static bool scratch_size(const kvf__attn_limits *limits, size_t *out)
{
    const size_t keys = (size_t)kvf__round_up(limits->row_len + limits->shared_len, KVF__ATTN_PAD) +
                        KVF__ATTN_PAD;
    const size_t width = (size_t)kvf__round_up(limits->D, KVF__ATTN_PAD);
    /* K, V and their gradients; a column of scores; a log-weight and its gradient */
    const size_t per_key = (limits->backward ? 5 : 2) * width + KVF__ATTN_QUERIES + 2;
    const size_t block = 6 * KVF__ATTN_KEYS + 6 * width + 16;
    const size_t state = KVF__ATTN_STATE / sizeof(float);
    size_t packs, blocks, terms, floats;

    if (!kvf__mul(keys, per_key, &packs) || !kvf__mul(block, KVF__ATTN_QUERIES, &blocks) ||
        !kvf__add(packs, blocks, &floats) || !relative_size(limits, width, &terms) ||
        !kvf__add(floats, terms, &floats) || !kvf__add(floats, state, &floats) ||
        !kvf__mul(floats, sizeof(float), &floats))
        return false;
    if (limits->plain) {
        const size_t plain = plain_size((int64_t)width, (int64_t)keys);
        if (plain > floats) floats = plain;
    }
    *out = (size_t)kvf__round_up((int64_t)floats, 64);
    return true;
}

static kvf_status check_limits(kvf_ctx *ctx, const kvf__attn_limits *l)
{
    if (l->H < 1 || l->G < 1 || l->D < 1 || l->H % l->G)
        return kvf__fail(ctx, KVF_ESHAPE,
                         "attention: %lld query heads over %lld key/value heads of size %lld",
                         (long long)l->H, (long long)l->G, (long long)l->D);
    if (l->rows < 0 || l->tokens < 0 || l->row_len < 0 || l->shared_len < 0 || l->grad_len < 0 ||
        l->rows > INT32_MAX || l->row_len > INT32_MAX || l->shared_len > INT32_MAX ||
        l->D > INT32_MAX)
        return kvf__fail(ctx, KVF_ESHAPE,
                         "attention: limits of %lld rows, %lld own and %lld shared tokens",
                         (long long)l->rows, (long long)l->row_len, (long long)l->shared_len);
    return KVF_OK;
}

static void lay(void *object, kvf__carver *carver)
{
    kvf__attn_plan *plan = object;
    const kvf__attn_limits *l = &plan->limits;

    /* each of up to threads - 1 cut items counts twice; G is at least 1 */
    plan->items = kvf__carve(carver, l->rows + plan->threads - 1, l->G, sizeof *plan->items);
    plan->start = kvf__carve(carver, plan->threads + 1, 1, sizeof *plan->start);
    plan->done = kvf__carve(carver, plan->threads, 1, sizeof *plan->done);
    plan->load = kvf__carve(carver, plan->threads, 1, sizeof *plan->load);
    plan->part_load = kvf__carve(carver, plan->parts, 1, sizeof *plan->part_load);
    plan->part = kvf__carve(carver, l->rows, 1, sizeof *plan->part);
    plan->chain = kvf__carve(carver, plan->parts, l->G, sizeof *plan->chain);
    plan->scratch = kvf__carve(carver, 2 * plan->threads - 1, (int64_t)plan->scratch_bytes, 1);
    plan->grads = kvf__carve(carver, plan->parts, (int64_t)plan->grad_count, sizeof(float));
}

kvf_status kvf__attn_plan_create(kvf_ctx *ctx, const kvf__attn_limits *limits, kvf__attn_plan **out)
{
    kvf_status st = KVF_ENOMEM;
    kvf__attn_plan made = {.limits = *limits, .G = limits->G, .threads = kvf_ctx_threads(ctx)};

    KVF_TRY(check_limits(ctx, limits));
    made.parts = (int)((KVF__ATTN_CHAINS + limits->G - 1) / limits->G);
    if (scratch_size(limits, &made.scratch_bytes) &&
        kvf__mul(limits->backward ? (size_t)limits->grad_len : 0,
                 (size_t)(limits->G * (2 * limits->D + 1)), &made.grad_count))
        st = kvf__carve_object(ctx, lay, &made, sizeof made, out);
    if (st == KVF_ENOMEM)
        kvf__fail(ctx, st, "attention: no memory for rows of %lld tokens",
                  (long long)limits->row_len);
    return st;
}

void kvf__attn_plan_free(kvf__attn_plan *plan)
{
    kvf__free(plan);
}

size_t kvf__attn_head_scratch(int64_t D, int64_t keys)
{
    /* two vectors and the scores, in float; or the scores in double */
    return (size_t)(2 * kvf__round_up(D, KVF__ATTN_PAD) + 2 * kvf__round_up(keys, KVF__ATTN_PAD) +
                    4 * KVF__ATTN_PAD) *
           sizeof(float);
}

/* ---- batches ----------------------------------------------------------------------------------
 */

void kvf__attn_plan_heads(kvf__attn_plan *plan, int64_t G)
{
    assert(G >= 1 && G <= plan->limits.G);
    plan->G = G;
}

void kvf__attn_plan_set(kvf__attn_plan *plan, const kvf__attn_row *rows, int64_t n_rows,
                        const kvf__kvseg *segs, int64_t n_segs)
{
    assert(n_rows <= plan->limits.rows);
    plan->rows = rows;
    plan->n_rows = n_rows;
    plan->segs = segs;
    plan->n_segs = n_segs;
    plan->n_items = 0;
    for (int64_t r = 0; r < n_rows; r++) {
        const kvf__attn_row *row = &rows[r];
        for (int32_t s = 0; s < row->n_segs; s++)
            assert(row->seg[s] >= 0 && row->seg[s] < n_segs);
        assert(row->len >= 0 && row->len <= plan->limits.row_len &&
               kvf__attn_row_shared(plan, row) <= plan->limits.shared_len);
        for (int64_t g = 0; row->len && g < plan->G; g++)
            plan->items[plan->n_items++] = (kvf__attn_item){.row = (int32_t)r,
                                                            .head = (int32_t)g,
                                                            .end = plan->limits.H / plan->G *
                                                                   kvf__attn_blocks(row)};
    }
    kvf__attn_deal(plan);
}

/* ---- running --------------------------------------------------------------------------------- */

int64_t kvf__attn_shared_len(const kvf__attn *attn, const kvf__attn_row *row)
{
    int64_t n = 0;
    for (int32_t s = 0; s < row->n_segs; s++)
        n += attn->segs[row->seg[s]].len;
    return n;
}

int64_t kvf__attn_weighted(const kvf__attn *attn, const kvf__attn_row *row)
{
    int64_t n = 0, weighted = 0;
    for (int32_t s = 0; s < row->n_segs; s++) {
        n += attn->segs[row->seg[s]].len;
        if (attn->segs[row->seg[s]].log_weight) weighted = n;
    }
    return weighted;
}

void kvf__attn_gather_log_weights(const kvf__attn *attn, const kvf__attn_row *row, int64_t g,
                                  float *out)
{
    const float *end = out + kvf__attn_weighted(attn, row);
    for (int32_t s = 0; out < end; s++) {
        const float *from = kvf__attn_log_weights(attn, row, g, s);
        const int64_t len = kvf__attn_keys_len(attn, row, s);
        for (int64_t t = 0; t < len; t++)
            *out++ = from ? from[t] : 0;
    }
}

/* Return the number of gradient elements of a segment's keys and values, and of all segments. */
static size_t kv_size(const kvf__attn *attn, const kvf__kvseg *seg)
{
    return (size_t)(2 * attn->G * seg->len * attn->D);
}

static size_t grad_size(const kvf__attn *attn, const kvf__kvseg *seg)
{
    if (!seg->dk) return 0;
    return kv_size(attn, seg) + (seg->dlog_weight ? (size_t)(attn->G * seg->len) : 0);
}

float *kvf__attn_grad(const kvf__attn *attn, int part, int32_t seg)
{
    const kvf__attn_plan *plan = attn->plan;
    if (!attn->segs[seg].dk) return NULL;
    size_t at = plan->grad_count * (size_t)part;
    for (int32_t s = 0; s < seg; s++)
        at += grad_size(attn, &attn->segs[s]);
    return plan->grads + at;
}

float *kvf__attn_log_weight_grad(const kvf__attn *attn, int part, int32_t seg)
{
    if (!attn->segs[seg].dk || !attn->segs[seg].dlog_weight) return NULL;
    return kvf__attn_grad(attn, part, seg) + kv_size(attn, &attn->segs[seg]);
}

void kvf__attn_add_log_weight_grads(const kvf__attn *attn, const kvf__attn_row *row, int64_t g,
                                    int part, const float *d)
{
    const float *end = d + kvf__attn_weighted(attn, row);
    for (int32_t s = 0; d < end; s++) {
        const int64_t len = kvf__attn_keys_len(attn, row, s);
        float *to = kvf__attn_log_weight_grad(attn, part, row->seg[s]);
        for (int64_t t = 0; to && t < len; t++)
            to[g * len + t] += d[t];
        d += len;
    }
}

/* Returns a bit mask of the parts with a row that sees the segment. */
static uint32_t parts_of(const kvf__attn_plan *plan, int32_t seg)
{
    uint32_t bits = 0;
    _Static_assert(KVF__ATTN_CHAINS <= 32, "a bit for each part");
    for (int64_t r = 0; r < plan->n_rows; r++)
        for (int32_t s = 0; plan->rows[r].len && s < plan->rows[r].n_segs; s++)
            if (plan->rows[r].seg[s] == seg) bits |= 1u << plan->part[r];
    return bits;
}

/* Adds the accumulators of these parts at `at` to dst [n], in their order; overwrites the first. */
static void add_parts(const kvf__attn_plan *plan, uint32_t parts, float *dst, float *at, int64_t n)
{
    float *sum = NULL;
    for (int p = 0; p < plan->parts; p++) {
        float *one = at + plan->grad_count * (size_t)p;
        if (!(parts >> p & 1)) continue;
        for (int64_t d = 0; sum && d < n; d++)
            sum[d] += one[d];
        if (!sum) sum = one;
    }
    for (int64_t d = 0; sum && d < n; d++)
        dst[d] += sum[d];
}

static void add_segment(const kvf__attn *attn, int32_t index)
{
    const kvf__kvseg *seg = &attn->segs[index];
    float *from = kvf__attn_grad(attn, 0, index);
    const int64_t per_kv = attn->G * seg->len;
    const uint32_t parts = parts_of(attn->plan, index);
#pragma omp for schedule(static)
    for (int64_t i = 0; i < 2 * per_kv; i++) { /* i counts rows of [2, G, len] */
        float *to = i < per_kv ? seg->dk : seg->dv;
        const int64_t g = i % per_kv / seg->len, t = i % seg->len;
        add_parts(attn->plan, parts, to + g * seg->head_stride + t * seg->token_stride,
                  from + i * attn->D, attn->D);
    }
    if (!seg->dlog_weight) return;
#pragma omp single
    add_parts(attn->plan, parts, seg->dlog_weight, from + 2 * per_kv * attn->D, per_kv);
}

/* Zeroes a chain's accumulators: those of its part for its head. */
static void zero_chain(const kvf__attn *attn, int part, int64_t g, int32_t index)
{
    const kvf__kvseg *seg = &attn->segs[index];
    const size_t n = (size_t)(seg->len * attn->D);
    float *grad = kvf__attn_grad(attn, part, index),
          *weights = kvf__attn_log_weight_grad(attn, part, index);
    if (!grad) return;
    memset(grad + (size_t)g * n, 0, n * sizeof *grad);
    memset(grad + (size_t)(attn->G + g) * n, 0, n * sizeof *grad);
    if (weights) memset(weights + g * seg->len, 0, (size_t)seg->len * sizeof *weights);
}

static void zero_grads(const kvf__attn *attn, int thread)
{
    const kvf__attn_plan *plan = attn->plan;
    size_t n = 0;
    for (int64_t s = 0; s < plan->n_segs; s++) {
        n += grad_size(attn, &attn->segs[s]);
        assert(n <= plan->grad_count);
        const uint32_t parts = attn->segs[s].dk ? parts_of(plan, (int32_t)s) : 0;
        for (int p = 0; p < plan->parts; p++)
            for (int64_t g = 0; parts >> p & 1 && g < attn->G; g++)
                if (plan->chain[p * attn->G + g] == thread) zero_chain(attn, p, g, (int32_t)s);
    }
}

/* Waits until a thread has computed so many items. */
static void wait_for(const kvf__attn_plan *plan, int thread, int items)
{
    enum { LOOKS = 4096 }; /* spins that cost about as much as sleeping and waking up */
    for (int looks = 0; atomic_load_explicit(&plan->done[thread], memory_order_acquire) < items;
         looks++)
        if (looks >= LOOKS) sched_yield();
}

static void run_thread(const kvf__attn *attn, kvf__attn_item_fn *item, int t)
{
    const kvf__attn_plan *plan = attn->plan;
    for (int64_t i = plan->start[t]; i < plan->start[t + 1]; i++) {
        if (plan->items[i].after) wait_for(plan, t + 1, plan->items[i].after);
        item(attn, &plan->items[i]);
        atomic_store_explicit(&plan->done[t], (int)(i + 1 - plan->start[t]), memory_order_release);
    }
}

void kvf__attn_run(const kvf__attn *attn, kvf__attn_item_fn *item, bool grads)
{
    const kvf__attn_plan *plan = attn->plan;
    assert(attn->H == plan->limits.H && attn->G == plan->G && attn->D <= plan->limits.D);
    assert(attn->act == KVF__F32 || attn->act == KVF__BF16);
    assert(!grads || plan->limits.backward);
    for (int t = 0; t < plan->threads; t++)
        atomic_store_explicit(&plan->done[t], 0, memory_order_relaxed);
#pragma omp parallel num_threads(plan->threads)
    {
        /* from the last to the first, because threads wait for those of higher numbers, which a
         * smaller team then begins no later */
#pragma omp for schedule(static, 1)
        for (int t = plan->threads - 1; t >= 0; t--) {
            if (grads) zero_grads(attn, t);
            run_thread(attn, item, t);
        }
        for (int64_t s = 0; grads && s < plan->n_segs; s++)
            if (attn->segs[s].dk && attn->segs[s].len) add_segment(attn, (int32_t)s);
    }
}
