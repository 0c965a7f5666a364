/* A step over several processes. All draw the same rows and compute some of them:
 *
 *   rank 0   encoder -> port ----> all    rows -> gradient of the port ----> rank 0 -> encoder,
 * AdamW
 *
 * The port is what crosses: the prefix, vectors, or what the base publishes;
 * and the heads'. So it does not matter how large the encoder is, and CPUs that round differently
 * cannot drift apart. Every label counts by the number of labels of the whole step. The gradient of
 * a layer's prefix is on its way while the layer below is computed. */
#include "ranks_int.h"

#include <stdlib.h>
#include <string.h>

/* ---- whose rows ------------------------------------------------------------------------------ */

static int largest_first(const void *a, const void *b)
{
    const kvf__unit *x = a, *y = b;
    if (x->tokens != y->tokens) return x->tokens > y->tokens ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

/* Units (rows, or whole groups) of a step, and how many there are. */
static int64_t list_units(kvf__trainer *t, const int64_t *examples, int64_t n)
{
    int64_t units = 0;
    for (int64_t first = 0, rows; first < n; first += rows, units++) {
        kvf__unit *u = &t->ranks->units[units];
        *u = (kvf__unit){.index = units};
        rows = kvf__whole_groups(&t->rows.now->data, examples + first, n - first, 1);
        for (int64_t i = 0; i < rows; i++)
            u->tokens += kvf__example_length(&t->rows.now->data, examples[first + i]);
    }
    return units;
}

/* The largest first, each to the rank that has least. */
static void divide(kvf__ranks *ranks, int64_t units)
{
    memset(ranks->load, 0, (size_t)ranks->size * sizeof *ranks->load);
    qsort(ranks->units, (size_t)units, sizeof *ranks->units, largest_first);
    for (int64_t i = 0; i < units; i++) {
        int least = 0;
        for (int r = 1; r < ranks->size; r++)
            if (ranks->load[r] < ranks->load[least]) least = r;
        ranks->load[least] += ranks->units[i].tokens;
        ranks->owner[ranks->units[i].index] = least;
    }
}

void kvf__ranks_rows(kvf__trainer *t, const int64_t **examples, int64_t *n)
{
    kvf__ranks *ranks = t->ranks;
    if (!ranks) return;
    int64_t own = 0, unit = 0;
    divide(ranks, list_units(t, *examples, *n));
    for (int64_t first = 0, rows; first < *n; first += rows, unit++) {
        rows = kvf__whole_groups(&t->rows.now->data, *examples + first, *n - first, 1);
        for (int64_t i = 0; i < rows && ranks->owner[unit] == ranks->rank; i++)
            ranks->rows[own++] = (*examples)[first + i];
    }
    *examples = ranks->rows;
    *n = own;
}

kvf_status kvf__ranks_prepare(kvf__trainer *t)
{
    kvf__ranks *ranks = t->ranks;
    if (!ranks || ranks->rows) return KVF_OK;
    size_t size = (size_t)ranks->size;
    ranks->capacity = t->rows.total.rows;
    KVF_TRY(kvf__alloc_array(t->ctx, (size_t)ranks->capacity, sizeof *ranks->rows, &ranks->rows));
    KVF_TRY(kvf__alloc_array(t->ctx, (size_t)ranks->capacity, sizeof *ranks->units, &ranks->units));
    KVF_TRY(kvf__alloc_array(t->ctx, (size_t)ranks->capacity, sizeof *ranks->owner, &ranks->owner));
    KVF_TRY(kvf__alloc_array(t->ctx, size, sizeof *ranks->load, &ranks->load));
    KVF_TRY(kvf__alloc_array(t->ctx, size, sizeof *ranks->reports, &ranks->reports));
    ranks->next_layer = t->tuned.gradient.prefix ? t->tuned.gradient.prefix->L - 1 : -1;
    ranks->waited = ranks->dist->waited;
    return KVF_OK;
}

int64_t kvf__ranks_other_tokens(const kvf__trainer *t)
{
    int64_t tokens = 0;
    for (int r = 0; t->ranks && r < t->ranks->size; r++)
        tokens += r == t->ranks->rank ? 0 : t->ranks->load[r];
    return tokens;
}

/* ---- the port's value ------------------------------------------------------------------------ */

/* Parameters that the ranks have in common: all but the encoder's and the prefix's. */
static kvf__params common_params(const kvf__trainer *t)
{
    size_t first = t->tuned.log_weight.n +
                   (t->tuned.encoder ? kvf__encoder_params(t->tuned.encoder)->n : 0);
    return (kvf__params){.n = t->tuned.params.n - first, .item = t->tuned.params.item + first};
}

static kvf_status share_value(kvf__trainer *t)
{
    kvf__dist *dist = t->ranks->dist;
    const kvf__emitted *e = &t->tuned.emitted;
    const kvf__params common = common_params(t);
    if (e->prefix)
        KVF_TRY(kvf__dist_broadcast(t->ctx, dist, e->prefix->kv,
                                    kvf__prefix_count(e->prefix) * sizeof(float)));
    if (e->prefix && e->prefix->log_weight)
        KVF_TRY(kvf__dist_broadcast(t->ctx, dist, e->prefix->log_weight,
                                    kvf__prefix_weights(e->prefix) * sizeof(float)));
    if (e->vectors)
        KVF_TRY(kvf__dist_broadcast(t->ctx, dist, e->vectors->x,
                                    (size_t)(e->vectors->P * e->vectors->C) * sizeof(float)));
    for (size_t i = 0; i < common.n; i++)
        KVF_TRY(kvf__dist_broadcast(t->ctx, dist, common.item[i].value,
                                    (size_t)common.item[i].n * sizeof(float)));
    return KVF_OK;
}

kvf_status kvf__ranks_order(kvf__trainer *t, kvf__order_kind kind)
{
    kvf__order order = {.kind = kind};
    KVF_TRY(kvf__dist_broadcast(t->ctx, t->ranks->dist, &order, sizeof order));
    return share_value(t);
}

kvf_status kvf__ranks_send(kvf__trainer *t)
{
    if (!t->ranks || kvf__ranks_follows(t)) return KVF_OK;
    return kvf__ranks_order(t, KVF__ORDER_STEP);
}

kvf_status kvf__ranks_refresh(kvf__trainer *t)
{
    if (!kvf__ranks_follows(t) || !t->tuned.base) return KVF_OK;
    return kvf__model_refresh(t->ctx, t->base->model);
}

/* ---- the gradient ---------------------------------------------------------------------------- */

/* Layers of the prefix's gradient down to l are whole. */
static void sum_layers(kvf__trainer *t, int64_t l)
{
    const kvf__prefix *d = t->tuned.gradient.prefix;
    for (; t->ranks->next_layer >= l; t->ranks->next_layer--) {
        const kvf__prefix_layer at = kvf__prefix_at(d, t->ranks->next_layer);
        if (d->layer_mask[t->ranks->next_layer])
            kvf__dist_sum_begin(t->ranks->dist, at.k, 2 * at.n);
    }
    kvf__dist_sum_push(t->ranks->dist);
}

static void on_layer(void *user, int64_t l)
{
    sum_layers(user, l);
}

void kvf__ranks_watch(kvf__trainer *t, bool last, kvf__grads *grads)
{
    if (!t->ranks || !last) return;
    grads->layer_done = on_layer;
    grads->user = t;
}

static kvf_status sum_gradients(kvf__trainer *t)
{
    kvf__dist *dist = t->ranks->dist;
    const kvf__vectors *v = t->tuned.gradient.vectors;
    const kvf__params common = common_params(t);
    if (t->tuned.gradient.prefix) sum_layers(t, 0);
    if (kvf__log_weight_trained(t))
        kvf__dist_sum_begin(dist, t->tuned.dprefix.log_weight,
                            (int64_t)kvf__prefix_weights(&t->tuned.dprefix));
    if (v) kvf__dist_sum_begin(dist, v->x, v->P * v->C);
    for (size_t i = 0; i < common.n; i++)
        kvf__dist_sum_begin(dist, common.item[i].grad, common.item[i].n);
    kvf_status st = kvf__dist_sum_end(t->ctx, dist);
    t->ranks->next_layer = t->tuned.gradient.prefix ? t->tuned.gradient.prefix->L - 1 : -1;
    return st;
}

/* The step as a whole, on the first rank: *st, the loss, tokens, and whether a signal came. */
static void merge_reports(kvf__trainer *t, kvf__step_rows *rows, kvf_status *st)
{
    for (int r = 1; r < t->ranks->size; r++) {
        const kvf__report *report = &t->ranks->reports[r];
        rows->loss_sum += report->loss_sum;
        t->progress.computed_tokens += report->computed_tokens;
        if (!t->ranks->signal) t->ranks->signal = report->signal;
        if (!*st && report->status)
            *st = kvf__ranks_fail(t, r, (kvf_status)report->status, report->line);
    }
}

kvf_status kvf__ranks_sum(kvf__trainer *t, kvf__step_rows *rows, kvf_status st)
{
    if (!t->ranks) return st;
    kvf__report mine = {.status = (int32_t)st,
                        .signal = kvf__ctx_stop(t->ctx),
                        .loss_sum = rows->loss_sum,
                        .computed_tokens = t->progress.computed_tokens - t->ranks->computed};
    if (st) snprintf(mine.line, sizeof mine.line, "%s", kvf_ctx_error(t->ctx));
    KVF_TRY(sum_gradients(t));
    KVF_TRY(kvf__dist_gather(t->ctx, t->ranks->dist, &mine, sizeof mine, t->ranks->reports));
    if (!t->ranks->rank) merge_reports(t, rows, &st);
    t->ranks->computed = t->progress.computed_tokens;
    return t->ranks->rank ? KVF_OK : st; /* what went wrong is rank 0's to judge */
}

/* ---- following ------------------------------------------------------------------------------- */

static kvf_status end_as_ordered(kvf__trainer *t, const kvf__order *order)
{
    t->ranks->signal = order->signal;
    if (!order->status) return KVF_OK;
    return kvf__fail(t->ctx, (kvf_status)order->status, "rank 0 ended the run");
}

static kvf_status help(kvf__trainer *t, kvf__order_kind kind)
{
    KVF_TRY(share_value(t));
    if (kind == KVF__ORDER_STEP) return kvf__trainer_step(t);
    KVF_TRY(kvf__ranks_refresh(t));
    return kind == KVF__ORDER_RETENTION ? kvf__retention_run(t) : kvf__tasks_validate(t);
}

kvf_status kvf__ranks_follow(kvf__trainer *t)
{
    kvf__order order;
    for (;;) {
        KVF_TRY(kvf__dist_broadcast(t->ctx, t->ranks->dist, &order, sizeof order));
        if (order.kind == KVF__ORDER_END) return end_as_ordered(t, &order);
        KVF_TRY(help(t, (kvf__order_kind)order.kind));
    }
}
