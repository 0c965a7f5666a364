/* The history of a run file as columns of doubles. */
#include "artifact.h"

#include <kvfold/io.h>

struct kvf_history {
    int64_t n;
    size_t columns;
    const char *name[KVF__COLUMNS];
    double *values; /* [columns, n] */
};

static kvf_status fill(kvf_ctx *ctx, const kvf__history *from, kvf_history *to)
{
    to->n = from->n;
    for (int i = 0; i < KVF__COLUMNS; i++)
        if (from->column[i]) to->name[to->columns++] = kvf__columns[i].name;
    KVF_TRY(kvf__alloc_array(ctx, to->columns * (size_t)to->n, sizeof(double), &to->values));
    double *at = to->values;
    for (int i = 0; i < KVF__COLUMNS; i++)
        for (int64_t row = 0; from->column[i] && row < from->n; row++)
            *at++ = kvf__history_at(from, i, row);
    return KVF_OK;
}

kvf_status kvf_history_open(kvf_ctx *ctx, const char *run, kvf_history **out)
{
    KVF_TRY(KVF__NEED(ctx, run, out));
    kvf__history stored = {0};
    kvf_history *made = NULL;
    KVF_TRY(kvf__artifact_history(ctx, run, &stored));
    kvf_status st = kvf__alloc(ctx, sizeof *made, &made);
    if (!st) st = fill(ctx, &stored, made);
    kvf__history_done(&stored);
    KVF__GIVE(st, out, made, kvf_history_free(made));
    return st;
}

void kvf_history_free(kvf_history *history)
{
    if (!history) return;
    kvf__free(history->values);
    kvf__free(history);
}

int64_t kvf_history_steps(const kvf_history *history)
{
    return history ? history->n : 0;
}

const char *kvf_history_column(const kvf_history *history, size_t index, const double **values)
{
    if (!history || !values || index >= history->columns) return NULL;
    *values = history->values + (int64_t)index * history->n;
    return history->name[index];
}
