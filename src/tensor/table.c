/* Views of tensors and the table of named tensors.
 *
 * Every file format becomes such a table before the model reads it. It keeps the order of the file
 * and finds names through a hash map, because a base has hundreds of tensors and bind looks up each
 * by several names. */
#include "view.h"

#include <assert.h>
#include <string.h>

int64_t kvf__view_count(const kvf__view *view)
{
    int64_t count = 1;
    for (int i = 0; i < view->rank; i++)
        count *= view->dim[i];
    return count;
}

size_t kvf__view_bytes(const kvf__view *view)
{
    if (view->dtype == KVF__OTHER) return view->other_bytes;
    int64_t blocks = kvf__view_count(view) / kvf__dtype_block(view->dtype);
    return (size_t)blocks * kvf__dtype_block_bytes(view->dtype);
}

const char *kvf__shape_text(char buf[128], int rank, const int64_t *dim)
{
    size_t at = 0, cap = 128;

    buf[at++] = '[';
    for (int i = 0; i < rank && at < cap; i++)
        at += (size_t)snprintf(buf + at, cap - at, "%s%lld", i ? ", " : "", (long long)dim[i]);
    if (at < cap) snprintf(buf + at, cap - at, "]");
    return buf;
}

kvf_status kvf__table_add(kvf_ctx *ctx, kvf__table *table, const char *name, kvf__view view)
{
    char *copy = NULL;
    size_t n = strlen(name);
    int64_t at;

    assert(view.rank >= 0 && view.rank <= KVF__MAX_RANK);
    if (kvf__map_get(&table->index, name, n, &at))
        return kvf__fail(ctx, KVF_EFORMAT, "tensor \"%s\" occurs twice", name);
    KVF_TRY(kvf__reserve(ctx, &table->items, &table->cap, table->n + 1, sizeof *table->items));
    KVF_TRY(kvf__strndup(ctx, name, n, &copy));
    kvf_status st = kvf__map_put(ctx, &table->index, name, n, (int64_t)table->n);
    if (st) {
        kvf__free(copy);
        return st;
    }
    table->items[table->n++] = (kvf__tensor){.name = copy, .view = view};
    return KVF_OK;
}

const kvf__view *kvf__table_find(const kvf__table *table, const char *name)
{
    int64_t at;
    if (!kvf__map_get(&table->index, name, strlen(name), &at)) return NULL;
    return &table->items[at].view;
}

void kvf__table_done(kvf__table *table)
{
    for (size_t i = 0; i < table->n; i++)
        kvf__free(table->items[i].name);
    kvf__free(table->items);
    kvf__map_done(&table->index);
    *table = (kvf__table){0};
}
