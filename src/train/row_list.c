/* Generated rows of a language model, as a data set. */
#include "row_list.h"

#include "hash.h"

#include <string.h>

static int64_t row_start(const kvf__row_list *list, int64_t row)
{
    return row ? list->ends.data[row - 1] : 0;
}

kvf_status kvf__row_list_end(kvf_ctx *ctx, kvf__row_list *list)
{
    size_t from = (size_t)row_start(list, (int64_t)list->ends.n), labels = 0;
    size_t n = list->ids.n - from, most = (size_t)list->longest;
    if (n > most) list->ids.n = list->labels.n = from + most;
    for (size_t i = from + 1; i < list->ids.n; i++)
        labels += list->labels.data[i] != KVF__NO_LABEL;
    if (!labels) {
        list->ids.n = list->labels.n = from;
        return KVF_OK;
    }
    if (list->ids.n > INT32_MAX)
        return kvf__fail(ctx, KVF_ENOMEM, "the rows have more than 2147483647 tokens");
    return kvf__ids_add(ctx, &list->ends, (int32_t)list->ids.n);
}

kvf_status kvf__row_list_add(kvf_ctx *ctx, kvf__row_list *list, const kvf__row_list *from,
                             int64_t row)
{
    const size_t at = (size_t)row_start(from, row), n = (size_t)from->ends.data[row] - at;
    KVF_TRY(kvf__ids_append(ctx, &list->ids, from->ids.data + at, n));
    KVF_TRY(kvf__ids_append(ctx, &list->labels, from->labels.data + at, n));
    return kvf__row_list_end(ctx, list);
}

kvf_status kvf__row_list_add_from(kvf_ctx *ctx, kvf__row_list *list, const kvf__dataset *set,
                                  int64_t row)
{
    size_t from = (size_t)set->start[row], n = (size_t)set->start[row + 1] - from;
    KVF_TRY(kvf__ids_append(ctx, &list->ids, set->ids + from, n));
    KVF_TRY(kvf__ids_append(ctx, &list->labels, set->labels + from, n));
    return kvf__row_list_end(ctx, list);
}

kvf_status kvf__row_list_add_set(kvf_ctx *ctx, kvf__row_list *list, const kvf__dataset *set)
{
    for (int64_t r = 0; r < set->n; r++)
        KVF_TRY(kvf__row_list_add_from(ctx, list, set, r));
    return KVF_OK;
}

void kvf__row_list_done(kvf__row_list *list)
{
    kvf__ids_done(&list->ids);
    kvf__ids_done(&list->labels);
    kvf__ids_done(&list->ends);
}

static kvf_status hash_rows(kvf_ctx *ctx, const char *salt, kvf__dataset *set)
{
    kvf__hash *hash = NULL;
    size_t bytes = (size_t)set->start[set->n] * sizeof *set->ids;
    KVF_TRY(kvf__hash_create(ctx, &hash));
    kvf__hash_add(hash, salt, strlen(salt));
    kvf__hash_add(hash, set->start, (size_t)(set->n + 1) * sizeof *set->start);
    kvf__hash_add(hash, set->ids, bytes);
    kvf__hash_add(hash, set->labels, bytes);
    kvf__hash_hex(hash, set->hash);
    kvf__hash_free(hash);
    return KVF_OK;
}

kvf_status kvf__row_list_pick(kvf_ctx *ctx, const kvf__row_list *list, int64_t stride,
                              bool held_out, const char *salt, kvf__dataset *out)
{
    kvf__dataset set = {.task = KVF__TASK_LM};
    kvf_status st = kvf__dataset_alloc_rows(ctx, &set, (int64_t)list->ends.n, (int64_t)list->ids.n);
    set.n = 0; /* number of rows so far */
    for (int64_t r = 0; !st && r < (int64_t)list->ends.n; r++) {
        if ((r % stride == stride - 1) != held_out) continue;
        size_t from = (size_t)row_start(list, r), n = (size_t)list->ends.data[r] - from;
        size_t to = (size_t)set.start[set.n];
        memcpy(set.ids + to, list->ids.data + from, n * sizeof *set.ids);
        memcpy(set.labels + to, list->labels.data + from, n * sizeof *set.labels);
        set.start[++set.n] = (int64_t)(to + n);
        set.n_labels += kvf__example_labels(&set, set.n - 1);
    }
    set.n_groups = set.n;
    if (!st) st = hash_rows(ctx, salt, &set);
    KVF__GIVE(st, out, set, kvf__dataset_done(&set));
    return st;
}
