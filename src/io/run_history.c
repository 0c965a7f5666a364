/* /history of a run file: one dataset per measured number, one value per finished step, NaN where a
 * step had no validation. Only what a step measures is here; whether it is worth a picture is the
 * report's business. */
#include "h5_priv.h"

#include <math.h>
#include <string.h>

enum { SERIES = 10, ALWAYS = 8 }; /* the first are in every file */

/* One dataset of /history. */
typedef struct series {
    const char *name, *units; /* NULL: a plain number */
    kvf__dtype dtype;
    const void *values;
} series;

static void list_series(const kvf__history *h, series out[SERIES])
{
    const series all[SERIES] = {
        {"step", "steps", KVF__I64, h->step},
        {"tokens", "tokens", KVF__I64, h->tokens},
        {"train_loss", "nats per token", KVF__F64, h->train_loss},
        {"valid_loss", "nats per token", KVF__F64, h->valid_loss},
        {"valid_metric", NULL, KVF__F64, h->valid_metric},
        {"lr", NULL, KVF__F64, h->lr},
        {"grad_norm", "L2 norm", KVF__F64, h->grad_norm},
        {"prefix_norm", "L2 norm", KVF__F64, h->prefix_norm},
        {"meter_loss", "nats per token", KVF__F64, h->meter_loss},
        {"kl_to_base", "nats per token", KVF__F64, h->kl_to_base},
    };
    memcpy(out, all, sizeof all);
}

static kvf_status write_series(kvf__h5 *h5, kvf__h5_id group, int64_t n, const series *s)
{
    const kvf__h5_spec spec = {.name = s->name, .dtype = s->dtype, .rank = 1, .dim = &n};
    kvf__h5_id data = KVF__H5_NONE;
    kvf_status st;

    st = kvf__h5_data_write(h5, group, &spec, s->values, &data);
    if (!st && s->units) st = kvf__h5_put_text(h5, data, "units", s->units);
    kvf__h5_release(&data);
    return st;
}

kvf_status kvf__history_write(kvf__h5 *h5, const kvf__history *history)
{
    kvf__h5_id group = KVF__H5_NONE;
    series all[SERIES];
    kvf_status st;

    list_series(history, all);
    st = kvf__h5_group_create(h5, h5->file, "history", &group);
    for (int i = 0; i < SERIES && !st; i++)
        if (i < ALWAYS || all[i].values) st = write_series(h5, group, history->n, &all[i]);
    kvf__h5_release(&group);
    return st;
}

/* The first series sets n; the others must be as long. */
static kvf_status read_series(kvf__h5 *h5, kvf__h5_id group, const series *s, bool first,
                              int64_t *n, void *out)
{
    kvf__h5_data data = {.id = KVF__H5_NONE};
    void *values = NULL;
    kvf_status st;

    st = kvf__h5_data_open(h5, group, s->name, &data);
    if (st) goto out;
    if (data.rank != 1 || data.dtype != s->dtype || (!first && data.count != *n)) {
        st = kvf__h5_fail(h5, data.id, KVF_ESHAPE,
                          "rank %d, %lld values of %s, want rank 1, %s, as many as \"step\"",
                          data.rank, (long long)data.count, kvf__dtype_name(data.dtype),
                          kvf__dtype_name(s->dtype));
        goto out;
    }
    st = kvf__alloc(h5->ctx, data.bytes, &values);
    if (st) goto out;
    st = kvf__h5_data_read(h5, &data, values);
    if (st) goto out;
    *n = data.count;
    memcpy(out, &values, sizeof values);
    values = NULL;
out:
    kvf__free(values);
    kvf__h5_release(&data.id);
    return st;
}

/* Files of before 0.1.0's release have no such dataset. */
static kvf_status read_metric(kvf__h5 *h5, kvf__h5_id group, const series *s, kvf__history *h)
{
    bool there = false;
    KVF_TRY(kvf__h5_has(h5, group, s->name, &there));
    if (there) return read_series(h5, group, s, false, &h->n, &h->valid_metric);
    KVF_TRY(kvf__alloc_array(h5->ctx, (size_t)h->n, sizeof *h->valid_metric, &h->valid_metric));
    for (int64_t i = 0; i < h->n; i++)
        h->valid_metric[i] = NAN;
    return KVF_OK;
}

/* Of runs with a meter only. */
static kvf_status read_option(kvf__h5 *h5, kvf__h5_id group, const series *s, int64_t *n, void *out)
{
    bool there = false;
    KVF_TRY(kvf__h5_has(h5, group, s->name, &there));
    return there ? read_series(h5, group, s, false, n, out) : KVF_OK;
}

kvf_status kvf__history_read(kvf__h5 *h5, kvf__history *out)
{
    kvf__history h = {0};
    void *const targets[SERIES] = {&h.step,         &h.tokens,    &h.train_loss, &h.valid_loss,
                                   &h.valid_metric, &h.lr,        &h.grad_norm,  &h.prefix_norm,
                                   &h.meter_loss,   &h.kl_to_base};
    kvf__h5_id group = KVF__H5_NONE;
    series all[SERIES];
    kvf_status st;

    list_series(&h, all);
    st = kvf__h5_group_open(h5, h5->file, "history", &group);
    for (int i = 0; i < SERIES && !st; i++)
        st = targets[i] == &h.valid_metric ? read_metric(h5, group, &all[i], &h)
             : i >= ALWAYS                 ? read_option(h5, group, &all[i], &h.n, targets[i])
                           : read_series(h5, group, &all[i], i == 0, &h.n, targets[i]);
    if (st) goto out;
    *out = h;
    h = (kvf__history){0};
out:
    kvf__history_done(&h);
    kvf__h5_release(&group);
    return st;
}

void kvf__history_done(kvf__history *history)
{
    kvf__free(history->step);
    kvf__free(history->tokens);
    kvf__free(history->train_loss);
    kvf__free(history->valid_loss);
    kvf__free(history->valid_metric);
    kvf__free(history->lr);
    kvf__free(history->grad_norm);
    kvf__free(history->prefix_norm);
    kvf__free(history->meter_loss);
    kvf__free(history->kl_to_base);
    *history = (kvf__history){0};
}
