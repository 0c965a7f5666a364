/* /history of a run file: a dataset per measured quantity, a value per finished step, NaN for steps
 * without a validation. It stores all measurements of a step; the report selects what to show. */
#include "artifact_priv.h"

#include <math.h>
#include <string.h>

#define DTYPE_OF(type) _Generic((type)0, int64_t : KVF__I64, double : KVF__F64)

const kvf__column kvf__columns[KVF__COLUMNS] = {
#define X(name, type, of, units, curve, title, mean)                                               \
    {#name, units, curve, title, KVF__OF_##of, DTYPE_OF(type), mean},
    KVF__HISTORY(X)
#undef X
};

double kvf__history_at(const kvf__history *history, int column, int64_t row)
{
    const void *values = history->column[column];
    if (!values) return NAN;
    return kvf__columns[column].dtype == KVF__I64 ? (double)((const int64_t *)values)[row]
                                                  : ((const double *)values)[row];
}

static void write_column(kvf__h5 *h5, kvf__h5_id group, int64_t n, const kvf__column *c,
                         const void *values)
{
    const kvf__h5_spec spec = {.name = c->name, .dtype = c->dtype, .rank = 1, .dim = &n};
    kvf__h5_id data = KVF__H5_NONE;

    kvf__h5_data_write(h5, group, &spec, values, &data);
    if (c->units) kvf__h5_put_text(h5, data, "units", c->units);
    kvf__h5_release(&data);
}

/* Returns whether every file has the column. */
static bool is_always(const kvf__column *c)
{
    return c->of == KVF__OF_STEP || c->of == KVF__OF_EVAL;
}

void kvf__history_write(kvf__h5 *h5, const kvf__history *history)
{
    kvf__h5_id group = kvf__h5_group_create(h5, h5->file, "history");

    for (int i = 0; i < KVF__COLUMNS; i++)
        if (is_always(&kvf__columns[i]) || history->column[i])
            write_column(h5, group, history->n, &kvf__columns[i], history->column[i]);
    kvf__h5_release(&group);
}

/* The first column sets n; the others must have the same length. */
static void read_column(kvf__h5 *h5, kvf__h5_id group, int i, kvf__history *h)
{
    const kvf__column *c = &kvf__columns[i];
    kvf__h5_data data = kvf__h5_data_open(h5, group, c->name);

    if (data.rank != 1 || data.dtype != c->dtype || (i > 0 && data.count != h->n))
        kvf__h5_fail(h5, data.id, KVF_ESHAPE,
                     "rank %d, %lld values of %s, want rank 1, %s, as many as \"step\"", data.rank,
                     (long long)data.count, kvf__dtype_name(data.dtype), kvf__dtype_name(c->dtype));
    KVF__H5_TRY(h5, kvf__alloc(h5->ctx, data.bytes, &h->column[i]));
    kvf__h5_data_read(h5, &data, h->column[i],
                      (size_t)data.count * kvf__dtype_block_bytes(c->dtype));
    h->n = data.count;
    kvf__h5_release(&data.id);
}

void kvf__history_read(kvf__h5 *h5, kvf__history *history)
{
    kvf__h5_id group = kvf__h5_group_open(h5, h5->file, "history");

    for (int i = 0; i < KVF__COLUMNS; i++)
        if (is_always(&kvf__columns[i]) || kvf__h5_has(h5, group, kvf__columns[i].name))
            read_column(h5, group, i, history);
    kvf__h5_release(&group);
}

void kvf__history_done(kvf__history *history)
{
    for (int i = 0; i < KVF__COLUMNS; i++)
        kvf__free(history->column[i]);
    *history = (kvf__history){0};
}
