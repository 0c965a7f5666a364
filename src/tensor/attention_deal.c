/* Assignment of attention items to threads.
 *
 * Rows are sorted by cost, longest first (ties by index). Each goes to the part with the least cost
 * so far, among rows with the same first segment. This depends on their lengths alone, so a run has
 * the same sums beside other runs. Gradients of shared segments are summed within a part in that
 * order, then over parts in order, so equal inputs give equal bits for any number of threads.
 *
 * A chain, the items of one part and head, is computed in order. Threads take whole chains, longest
 * first, unless some thread would then have far more than its share (one long row with three heads
 * on two threads). In that case threads are filled one after the other up to the same load
 * (McNaughton 1959, Management Science 6(1)). A chain that does not fit is cut in two: its last
 * items run last on that thread, its first ones first on the next. No chain is longer than that
 * load, so the first items are done when the last ones begin. */
#include "attention_int.h"

#include <assert.h>
#include <string.h>

/* Returns the number of scores of a row's queries before `end`, in proportion both for causal rows
 * and others. Queries before the first wanted one cost nothing. */
static int64_t scores_to(const kvf__attn_row *row, int64_t shared, int64_t end)
{
    return (end - row->first) * (2 * shared + end + row->first);
}

/* Returns the cost of a row: its scores, plus access to its keys and queries. */
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

/* Heap sort: in place, without allocation. The order is total, so the result is unique. */
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

/* Returns the part that follows `before` in descending order of loads (-1: the first). */
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

/* Returns whether item i is the first of a row that begins with this segment (-1: with none). */
static bool begins_with(const kvf__attn_plan *plan, int64_t i, int32_t seg)
{
    const kvf__attn_row *row = &plan->rows[plan->items[i].row];
    return !plan->items[i].head && (row->n_segs ? row->seg[0] : -1) == seg;
}

/* Assigns the row of item i, and rows with the same first segment, to parts; a single row to the
 * part with the least load. */
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

/* Assigns whole chains to threads; returns the largest load of a thread. */
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

/* Returns the lower bound of the busiest thread's load. */
static int64_t even_load(const kvf__attn_plan *plan)
{
    const int64_t longest = plan->part_load[next_part(plan, -1)];
    int64_t sum = 0;

    for (int p = 0; p < plan->parts; p++)
        sum += plan->part_load[p] * plan->G;
    sum = (sum + plan->threads - 1) / plan->threads;
    return sum > longest ? sum : longest;
}

/* Returns how many blocks of a whole item make up so much of its cost. */
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

/* Assigns a chain to thread t. With `over` > 0 it is cut: items up to that cost become the first of
 * the next thread, the others the last of t. */
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

/* Assigns chains to threads so that no load exceeds `even`. */
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

/* Sets the scratch slots of cut items, the items of each thread and the items to wait for. */
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
