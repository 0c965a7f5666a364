/* Divides a data set in two (--valid-split): a share of its groups, drawn by the seed, becomes the
 * second. Both keep the order of the file, its labels and its hash. Texts of sources stay in the
 * pool of the first, so the second must not outlive it. For --rows the second is dropped. */
#include "loader.h"
#include "rng.h"

#include <math.h>
#include <string.h>

#define SPLIT_STREAM 0x73706c69 /* "spli" */

/* Draws the groups to hold out into held [groups]: at least one, and not all. */
static kvf_status draw(kvf_ctx *ctx, int64_t n, double share, uint64_t seed, bool *held)
{
    int64_t *order = NULL, take = llround(share * (double)n);
    kvf__rng rng = kvf__rng_make(seed, (uint64_t)SPLIT_STREAM << 32);
    if (take < 1) take = 1;
    if (take >= n) take = n - 1;
    KVF_TRY(kvf__alloc_array(ctx, (size_t)n, sizeof *order, &order));
    kvf__rng_order(&rng, order, n);
    for (int64_t i = 0; i < take; i++)
        held[order[i]] = true;
    kvf__free(order);
    return KVF_OK;
}

static int64_t first_row(const kvf__dataset *set, int64_t group)
{
    return set->group ? set->group[group] : group;
}

/* Allocates the lists that `from` has, for to->n rows of so many tokens. */
static kvf_status alloc_lists(kvf_ctx *ctx, const kvf__dataset *from, int64_t tokens,
                              kvf__dataset *to)
{
    const kvf__dataset_lists lists = {.set = to,
                                      .values = from->values,
                                      .spans = from->spans,
                                      .group = from->group,
                                      .sources = from->sources};
    size_t t = (size_t)tokens;
    KVF_TRY(kvf__dataset_alloc(ctx, lists));
    KVF_TRY(kvf__alloc_array(ctx, t, sizeof *to->ids, &to->ids));
    KVF_TRY(kvf__alloc_array(ctx, t, sizeof *to->labels, &to->labels));
    if (from->types) KVF_TRY(kvf__alloc_array(ctx, t, sizeof *to->types, &to->types));
    if (to->sources) {
        kvf__sources *s = to->sources;
        s->labelled = from->sources->labelled;
        KVF_TRY(kvf__alloc_array(ctx, (size_t)to->n_groups, sizeof *s->group, &s->group));
    }
    return kvf__label_set_copy(ctx, &from->names, &to->names);
}

/* Copies row r of `from` to row i of `to`. */
static void copy_row(const kvf__dataset *from, int64_t r, kvf__dataset *to, int64_t i)
{
    int64_t source = from->start[r], n = from->start[r + 1] - source, at = to->start[i];
    to->start[i + 1] = at + n;
    memcpy(to->ids + at, from->ids + source, (size_t)n * sizeof *to->ids);
    memcpy(to->labels + at, from->labels + source, (size_t)n * sizeof *to->labels);
    if (from->types) memcpy(to->types + at, from->types + source, (size_t)n * sizeof *to->types);
    if (from->values) to->values[i] = from->values[r];
    if (from->spans) memcpy(to->spans + 2 * i, from->spans + 2 * r, 2 * sizeof *to->spans);
    if (from->sources && from->sources->windows)
        to->sources->windows[i] = from->sources->windows[r];
    to->n_labels += kvf__example_labels(to, i);
}

/* Copies the groups of `from` whose flag in held equals `want`. */
static kvf_status copy_groups(kvf_ctx *ctx, const kvf__dataset *from, const bool *held, bool want,
                              kvf__dataset *to)
{
    int64_t tokens = 0, groups = kvf__group_count(from), row = 0, group = 0;
    *to = (kvf__dataset){.task = from->task,
                         .regression = from->regression,
                         .pooled = from->pooled,
                         .phrases = from->phrases};
    memcpy(to->hash, from->hash, sizeof to->hash);
    for (int64_t g = 0; g < groups; g++) {
        if (held[g] != want) continue;
        to->n_groups++;
        to->n += first_row(from, g + 1) - first_row(from, g);
        tokens += from->start[first_row(from, g + 1)] - from->start[first_row(from, g)];
    }
    KVF_TRY(alloc_lists(ctx, from, tokens, to));
    for (int64_t g = 0; g < groups; g++) {
        if (held[g] != want) continue;
        for (int64_t r = first_row(from, g); r < first_row(from, g + 1); r++)
            copy_row(from, r, to, row++);
        if (from->sources) to->sources->group[group] = from->sources->group[g];
        group++;
        if (to->group) to->group[group] = row;
    }
    return KVF_OK;
}

/* Replaces the data set by the rest of it. */
static void replace(kvf__dataset *set, kvf__dataset *rest)
{
    rest->form = set->form;
    rest->delimited = set->delimited;
    rest->skipped = set->skipped;
    rest->truncated = set->truncated;
    rest->without_label = set->without_label;
    if (rest->sources && !set->sharers) {
        rest->sources->pool = set->sources->pool;
        set->sources->pool = (kvf__pool){0};
    }
    kvf__dataset_done(set);
    *set = *rest;
    *rest = (kvf__dataset){0};
}

kvf_status kvf__dataset_split(kvf_ctx *ctx, const char *path, kvf__dataset *set, double share,
                              uint64_t seed, kvf__dataset *out)
{
    int64_t n = kvf__group_count(set);
    kvf__dataset rest = {0}, part = {0};
    bool *held = NULL;
    if (n < 2) return kvf__fail(ctx, KVF_EDATA, "%s: --valid-split needs two rows or more", path);
    kvf_status st = kvf__alloc_array(ctx, (size_t)n, sizeof *held, &held);
    if (!st) st = draw(ctx, n, share, seed, held);
    if (!st) st = copy_groups(ctx, set, held, false, &rest);
    if (!st) st = copy_groups(ctx, set, held, true, &part);
    if (!st && (!rest.n_labels || !part.n_labels))
        st = kvf__fail(ctx, KVF_EDATA, "%s: --valid-split leaves a part without any label", path);
    if (!st) {
        part.form = set->form;
        replace(set, &rest);
        *out = part;
        part = (kvf__dataset){0};
    }
    kvf__dataset_done(&rest);
    kvf__dataset_done(&part);
    kvf__free(held);
    return st;
}

kvf_status kvf__dataset_choose(kvf_ctx *ctx, const char *path, kvf__dataset *set, int64_t rows,
                               uint64_t seed)
{
    const size_t n = (size_t)kvf__group_count(set);
    kvf__dataset rest = {0};
    bool *chosen = NULL;
    KVF_TRY(kvf__alloc_array(ctx, n, sizeof *chosen, &chosen));
    kvf_status st = kvf__choose_groups(ctx, path, set, rows, seed, chosen);
    if (!st) st = copy_groups(ctx, set, chosen, true, &rest);
    if (!st && !rest.n_labels)
        st = kvf__fail(ctx, KVF_EDATA, "%s: --rows %lld: the chosen rows have no label", path,
                       (long long)rows);
    if (!st) replace(set, &rest);
    kvf__dataset_done(&rest);
    kvf__free(chosen);
    return st;
}
