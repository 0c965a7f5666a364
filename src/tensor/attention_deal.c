/* Who computes what of an attention call.
 *
 * Rows are sorted by cost, longest first (ties by index), and each goes to the part with the least
 * cost so far, among rows with the same first segment: that depends on the lengths of these alone,
 * so that a run has the same sums beside other runs. Gradients of shared segments are summed within
 * a part in that order, then over parts in theirs, so equal inputs give equal bits for any number
 * of threads.
 *
 * A chain, the items of one part and head, is computed in its order. Chains go to threads whole,
 * the longest first, unless some thread would have far more than its share: one long row with three
 * heads and two threads. Then they fill the threads one after the other, up to the same load, and a
 * chain that does not fit is cut in two: its last items come last on that thread, its first ones
 * first on the next (McNaughton 1959, Management Science 6(1)). As no chain is longer than that
 * load, the first are done when the last begin. */
#include "attention_int.h"

#include <assert.h>
#include <string.h>

/* Scores of a row's queries before `end`, causal or not in the same proportion. Queries before the
 * first one wanted cost nothing. */
static int64_t scores_to(const kvf__attn_row *row, int64_t shared, int64_t end)
{
    return (end - row->first) * (2 * shared + end + row->first);
}

/* All of them, plus what touching the row's keys and queries costs. */
static int64_t row_cost(const kvf__attn_row *row, int64_t shared)
{
    return scores_to(row, shared, row->len) + 16 * (shared + row->len);
}

static bool goes_before(const kvf__attn_item *a, const kvf__attn_item *b)
{
    if (a->thread != b->thread) return a->thread < b->thread;
    if (a->turn != b->turn) return a->turn < b->turn;
    if (a->cost != b->cost) return a->cost > b->cost;
    if (a->row != b->row) return a->row < b->row;
    return a->head < b->head;
}

/* Heap sort: in place, no allocation, a total order, so the result is unique. */
static void sift_down(kvf__attn_item *items, int64_t at, int64_t n)
{
    const kvf__attn_item moved = items[at];
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && goes_before(&items[child], &items[child + 1])) child++;
        if (!goes_before(&moved, &items[child])) break;
        items[at] = items[child];
    }
    items[at] = moved;
}

static void sort_items(kvf__attn_item *items, int64_t n)
{
    for (int64_t i = n / 2 - 1; i >= 0; i--)
        sift_down(items, i, n);
    for (int64_t end = n - 1; end > 0; end--) {
        const kvf__attn_item first = items[0];
        items[0] = items[end];
        items[end] = first;
        sift_down(items, 0, end);
    }
}

static int least(const int64_t *load, int n)
{
    int at = 0;
    for (int i = 1; i < n; i++)
        if (load[i] < load[at]) at = i;
    return at;
}

/* The part that comes after `before` in the order of loads, the largest first (-1: the first). */
static int next_part(const kvf__attn_plan *plan, int before)
{
    const int64_t *load = plan->part_load;
    int found = -1;
    for (int p = 0; p < plan->parts; p++) {
        const bool after = before < 0 || load[p] < load[before] ||
                           (load[p] == load[before] && p > before);
        if (after && (found < 0 || load[p] > load[found])) found = p;
    }
    return found;
}

/* Is item i a row's first, of a row that begins with this segment (-1: with none)? */
static bool begins_with(const kvf__attn_plan *plan, int64_t i, int32_t seg)
{
    const kvf__attn_row *row = &plan->rows[plan->items[i].row];
    return !plan->items[i].head && (row->n_segs ? row->seg[0] : -1) == seg;
}

/* The row of item i and those that begin like it, to parts; one alone to where there is least. */
static void deal_alike(kvf__attn_plan *plan, int64_t first)
{
    const kvf__attn_row *row = &plan->rows[plan->items[first].row];
    const int32_t seg = row->n_segs ? row->seg[0] : -1;
    int64_t own[KVF__ATTN_CHAINS] = {0};
    bool alone = true;
    for (int64_t i = first + 1; i < plan->n_items && alone; i++)
        alone = !begins_with(plan, i, seg);
    for (int64_t i = first; i < plan->n_items; i++) {
        const kvf__attn_item *item = &plan->items[i];
        if (!begins_with(plan, i, seg)) continue;
        const int part = least(alone ? plan->part_load : own, plan->parts);
        plan->part[item->row] = part;
        own[part] += item->cost;
        plan->part_load[part] += item->cost;
    }
}

static void deal_rows(kvf__attn_plan *plan)
{
    memset(plan->part_load, 0, sizeof *plan->part_load * (size_t)plan->parts);
    memset(plan->part, -1, sizeof *plan->part * (size_t)plan->n_rows);
    for (int64_t i = 0; i < plan->n_items; i++)
        if (!plan->items[i].head && plan->part[plan->items[i].row] < 0) deal_alike(plan, i);
    for (int64_t i = 0; i < plan->n_items; i++)
        plan->items[i].part = plan->part[plan->items[i].row];
}

/* Whole chains to threads; returns the most that one of these has. */
static int64_t deal_chains(kvf__attn_plan *plan)
{
    int64_t most = 0;

    memset(plan->load, 0, sizeof *plan->load * (size_t)plan->threads);
    for (int p = next_part(plan, -1), n = 0; n < plan->parts; n++, p = next_part(plan, p))
        for (int64_t g = 0; g < plan->G; g++) {
            const int thread = least(plan->load, plan->threads);
            plan->chain[p * plan->G + g] = thread;
            plan->load[thread] += plan->part_load[p];
            if (plan->load[thread] > most) most = plan->load[thread];
        }
    for (int64_t i = 0; i < plan->n_items; i++) {
        kvf__attn_item *item = &plan->items[i];
        item->thread = plan->chain[item->part * plan->G + item->head];
    }
    return most;
}

/* The least that the busiest thread can have. */
static int64_t even_load(const kvf__attn_plan *plan)
{
    const int64_t longest = plan->part_load[next_part(plan, -1)];
    int64_t sum = 0;

    for (int p = 0; p < plan->parts; p++)
        sum += plan->part_load[p] * plan->G;
    sum = (sum + plan->threads - 1) / plan->threads;
    return sum > longest ? sum : longest;
}

/* How many of a whole item's blocks make up so much of its cost. */
static int64_t blocks_of(const kvf__attn_plan *plan, const kvf__attn_item *item, int64_t cost)
{
    const kvf__attn_row *row = &plan->rows[item->row];
    const int64_t shared = kvf__attn_row_shared(plan, row), each = kvf__attn_blocks(row);
    if (cost <= 0) return 0;
    if (cost >= item->cost) return item->end;
    const double heads = (double)cost / (double)item->cost * (double)(plan->limits.H / plan->G);
    const int64_t whole = (int64_t)heads;
    const double rest = (heads - (double)whole) * (double)scores_to(row, shared, row->len);
    int64_t n = 0;

    while (n < each && (double)scores_to(row, shared, row->first + n * KVF__ATTN_QUERIES) < rest)
        n++;
    return whole * each + n;
}

/* A chain's items to thread t; if cut (`over` > 0), those before such a cost to the next thread, as
 * its first, and the others are t's last. */
static void deal_chain(kvf__attn_plan *plan, int part, int64_t g, int t, int64_t over)
{
    const int64_t n = plan->n_items;
    int64_t cost = over;

    plan->chain[part * plan->G + g] = t;
    for (int64_t i = 0; i < n; i++) {
        kvf__attn_item *item = &plan->items[i];
        if (item->part != part || item->head != g) continue;
        const int64_t blocks = blocks_of(plan, item, cost);
        cost -= item->cost;
        kvf__attn_item rest = *item;
        rest.begin = blocks;
        rest.thread = t;
        rest.turn = over > 0 ? KVF__ATTN_LAST : KVF__ATTN_BETWEEN;
        if (blocks == 0) {
            *item = rest;
            continue;
        }
        if (blocks < item->end) plan->items[plan->n_items++] = rest;
        item->end = blocks;
        item->thread = t + 1;
        item->turn = KVF__ATTN_FIRST;
        plan->chain[part * plan->G + g] = t + 1;
    }
}

/* Chains to threads so that none has more than `even`. */
static void deal_evenly(kvf__attn_plan *plan, int64_t even)
{
    int64_t load = 0;
    int t = 0;

    for (int p = next_part(plan, -1), n = 0; n < plan->parts; n++, p = next_part(plan, p))
        for (int64_t g = 0; g < plan->G; g++) {
            const int64_t cost = plan->part_load[p], over = load + cost - even;
            const bool fits = over <= 0 || t == plan->threads - 1;
            deal_chain(plan, p, g, t, fits ? 0 : over);
            load = fits ? load + cost : over;
            t += !fits;
        }
}

/* Where items are cut, the slots of their scratch; what threads have, and for what they wait. */
static void list_items(kvf__attn_plan *plan)
{
    int64_t at = 0;

    for (int64_t i = 0; i < plan->n_items; i++) {
        kvf__attn_item *item = &plan->items[i];
        const int64_t blocks = plan->limits.H / plan->G * kvf__attn_blocks(&plan->rows[item->row]);
        item->slot = item->thread;
        if (item->begin > 0) item->slot = plan->threads + item->thread;
        if (item->end < blocks) item->slot = plan->threads + item->thread - 1;
    }
    sort_items(plan->items, plan->n_items);
    for (int t = 0; t < plan->threads; t++) {
        plan->start[t] = at;
        while (at < plan->n_items && plan->items[at].thread == t)
            at++;
    }
    plan->start[plan->threads] = at;
    for (int64_t i = 0; i < plan->n_items; i++) {
        kvf__attn_item *item = &plan->items[i];
        item->after = 0;
        if (item->turn != KVF__ATTN_LAST || item->thread == plan->threads - 1) continue;
        const int64_t next = plan->start[item->thread + 1], end = plan->start[item->thread + 2];
        for (int64_t k = next; k < end && plan->items[k].turn == KVF__ATTN_FIRST; k++)
            item->after++;
    }
}

void kvf__attn_deal(kvf__attn_plan *plan)
{
    for (int64_t i = 0; i < plan->n_items; i++) {
        const kvf__attn_row *row = &plan->rows[plan->items[i].row];
        plan->items[i].cost = row_cost(row, kvf__attn_row_shared(plan, row));
    }
    sort_items(plan->items, plan->n_items);
    deal_rows(plan);
    const int64_t most = deal_chains(plan), even = even_load(plan);
    if (most > even + even / 16) deal_evenly(plan, even);
    list_items(plan);
}
