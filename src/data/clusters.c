/* Brings groups with a common beginning into the same steps, so that they share more tokens
 * (--group-by prefix). Two neighbours in sorted order belong to one cluster if they share at least
 * half of the shorter beginning. Questions over one document do. Rows under one system turn do only
 * if the turn is most of the beginning; a shorter turn is shared in any step. */
#include "clusters.h"
#include "arena.h"
#include "batcher_int.h"

#include <stdlib.h>
#include <string.h>

enum {
    MIN_COMMON = 8,   /* least tokens in common, as in common_prefix.c */
    LOOK_AHEAD = 1024 /* clusters tried to fill the rest of a step */
};

typedef struct beginning {
    const int32_t *ids;
    int64_t n, group;
} beginning;

/* Returns the beginning of a group's first row, before the first position that is read or
 * predicts. */
static beginning beginning_of(const kvf__dataset *dataset, int64_t group)
{
    int64_t row = dataset->group ? dataset->group[group] : group;
    int64_t at = dataset->start[row], shift = dataset->task == KVF__TASK_LM, n = shift;
    int64_t length = dataset->start[row + 1] - at;
    while (length > 0 && dataset->ids[at] < 0) { /* virtual tokens: all rows have the same */
        at++;
        length--;
    }
    while (n < length && dataset->labels && dataset->labels[at + n] == KVF__NO_LABEL)
        n++;
    return (beginning){.ids = dataset->ids + at, .n = n - shift, .group = group};
}

static int by_ids(const void *x, const void *y)
{
    const beginning *a = x, *b = y;
    int order = kvf__compare_ids(a->ids, a->n, b->ids, b->n);
    return order ? order : a->group < b->group ? -1 : 1;
}

static bool alike(const beginning *a, const beginning *b)
{
    int64_t same = kvf__common_ids(a->ids, a->n, b->ids, b->n), less = a->n < b->n ? a->n : b->n;
    return same >= MIN_COMMON && 2 * same >= less;
}

static int by_value(const void *x, const void *y)
{
    int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    return (a > b) - (a < b);
}

/* A cluster in the sorted list: its first member in file order, and its range [from, to). */
typedef struct cluster_range {
    int64_t first, from, to;
} cluster_range;

/* Puts clusters and their members in file order, so that nothing depends on token ids. */
static void order_clusters(kvf__clusters *c, const beginning *list, int64_t n,
                           cluster_range *ranges)
{
    int64_t at = 0;
    for (int64_t i = 0, from = 0; i < n; i++) {
        c->member[i] = list[i].group;
        if (i + 1 < n && alike(&list[i], &list[i + 1])) continue;
        qsort(c->member + from, (size_t)(i + 1 - from), sizeof *c->member, by_value);
        ranges[c->n++] = (cluster_range){.first = c->member[from], .from = from, .to = i + 1};
        from = i + 1;
    }
    qsort(ranges, (size_t)c->n, sizeof *ranges, by_value); /* compares the field `first` */
    memcpy(c->mixed, c->member, (size_t)n * sizeof *c->member);
    for (int64_t k = 0; k < c->n; k++) {
        c->start[k] = at;
        memcpy(c->member + at, c->mixed + ranges[k].from,
               (size_t)(ranges[k].to - ranges[k].from) * sizeof *c->member);
        at += ranges[k].to - ranges[k].from;
    }
    c->start[c->n] = at;
}

/* Lays out the lists. c->n is still the number of groups. */
static void lay_clusters(void *object, kvf__carver *carver)
{
    kvf__clusters *c = object;
    c->start = kvf__carve(carver, c->n + 1, 1, sizeof *c->start);
    c->member = kvf__carve(carver, c->n, 1, sizeof *c->member);
    c->order = kvf__carve(carver, c->n, 1, sizeof *c->order);
    c->taken = kvf__carve(carver, c->n, 1, sizeof *c->taken);
    c->mixed = kvf__carve(carver, c->n, 1, sizeof *c->mixed);
}

kvf_status kvf__clusters_create(kvf_ctx *ctx, const kvf__dataset *dataset, kvf__clusters **out)
{
    int64_t n = kvf__group_count(dataset);
    kvf__clusters made = {.n = n}, *c = NULL;
    beginning *list = NULL;
    cluster_range *ranges = NULL;
    kvf_status st = kvf__alloc_array(ctx, (size_t)n, sizeof *list, &list);
    if (!st) st = kvf__alloc_array(ctx, (size_t)n, sizeof *ranges, &ranges);
    if (!st) st = kvf__carve_object(ctx, lay_clusters, &made, sizeof made, &c);
    if (!st) {
        c->n = 0;
        for (int64_t i = 0; i < n; i++)
            list[i] = beginning_of(dataset, i);
        qsort(list, (size_t)n, sizeof *list, by_ids);
        order_clusters(c, list, n, ranges);
        *out = c;
    }
    kvf__free(list);
    kvf__free(ranges);
    return st;
}

/* Returns the number of members of a cluster that are in no step yet. */
static int64_t left_of(const kvf__clusters *c, int64_t cluster)
{
    return c->start[cluster + 1] - c->start[cluster] - c->taken[cluster];
}

/* Returns the next cluster in the epoch's order that fits into `capacity`, else the first one with
 * members left. */
static int64_t choose(const kvf__clusters *c, int64_t first, int64_t capacity)
{
    for (int64_t i = first; i < c->n && i < first + LOOK_AHEAD; i++) {
        int64_t left = left_of(c, c->order[i]);
        if (left && left <= capacity) return c->order[i];
    }
    return c->order[first];
}

void kvf__clusters_order(kvf__clusters *c, kvf__rng *rng, int64_t batch_size, int64_t *order)
{
    int64_t n = c->start[c->n], first = 0;
    for (int64_t k = 0; k < c->n; k++) {
        c->order[k] = k;
        c->taken[k] = 0;
    }
    memcpy(c->mixed, c->member, (size_t)n * sizeof *c->mixed);
    if (rng) kvf__rng_shuffle(rng, c->order, (size_t)c->n);
    for (int64_t k = 0; rng && k < c->n; k++)
        kvf__rng_shuffle(rng, c->mixed + c->start[k], (size_t)(c->start[k + 1] - c->start[k]));
    for (int64_t at = 0, capacity; at < n;) {
        while (!left_of(c, c->order[first]))
            first++;
        capacity = batch_size > 0 ? batch_size - at % batch_size : n;
        int64_t k = choose(c, first, capacity),
                take = left_of(c, k) < capacity ? left_of(c, k) : capacity;
        memcpy(order + at, c->mixed + c->start[k] + c->taken[k], (size_t)take * sizeof *order);
        c->taken[k] += take;
        at += take;
    }
}
