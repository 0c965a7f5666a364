/* A step with several processes. All draw the same rows and compute some of them:
 *
 *   rank 0: encoder -> port  ==>  all: rows -> gradient of the port  ==>  rank 0: encoder, AdamW
 *
 * Only the port and the heads are sent: the prefix, vectors, or the values that the base publishes.
 * So the size of the encoder does not matter, and CPUs that round differently stay in step. The
 * loss is weighted by the labels of the whole step. The gradient of a layer's prefix is sent while
 * the layer below is computed. */
#include "ranks_int.h"
#include "tuned.h"

#include <stdlib.h>
#include <string.h>

/* ---- whose rows ------------------------------------------------------------------------------ */

static int largest_first(const void *a, const void *b)
{
    const kvf__unit *x = a, *y = b;
    if (x->tokens != y->tokens) return x->tokens > y->tokens ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

/* Lists the units of a step (rows, or whole groups) and returns their number. */
static int64_t list_units(kvf__ranks *ranks, const kvf__dataset *set, const int64_t *examples,
                          int64_t n)
{
    int64_t units = 0;
    for (int64_t first = 0, rows; first < n; first += rows, units++) {
        kvf__unit *u = &ranks->units[units];
        *u = (kvf__unit){.index = units};
        rows = kvf__whole_groups(set, examples + first, n - first, 1);
        for (int64_t i = 0; i < rows; i++)
            u->tokens += kvf__example_length(set, examples[first + i]);
    }
    return units;
}

/* Assigns units, the largest first, each to the rank with the fewest tokens. */
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

void kvf__ranks_rows(kvf__ranks *ranks, const kvf__dataset *set, const int64_t **examples,
                     int64_t *n)
{
    if (!ranks) return;
    int64_t own = 0, unit = 0;
    divide(ranks, list_units(ranks, set, *examples, *n));
    for (int64_t first = 0, rows; first < *n; first += rows, unit++) {
        rows = kvf__whole_groups(set, *examples + first, *n - first, 1);
        for (int64_t i = 0; i < rows && ranks->owner[unit] == ranks->rank; i++)
            ranks->rows[own++] = (*examples)[first + i];
    }
    *examples = ranks->rows;
    *n = own;
}

static int64_t last_layer(const kvf__ranks *ranks)
{
    return ranks->gradient ? ranks->gradient->L - 1 : -1;
}

kvf_status kvf__ranks_prepare(kvf_ctx *ctx, kvf__ranks *ranks, int64_t rows,
                              const kvf__prefix *gradient)
{
    if (!ranks || ranks->rows) return KVF_OK;
    size_t size = (size_t)ranks->size;
    ranks->capacity = rows;
    KVF_TRY(kvf__alloc_array(ctx, (size_t)ranks->capacity, sizeof *ranks->rows, &ranks->rows));
    KVF_TRY(kvf__alloc_array(ctx, (size_t)ranks->capacity, sizeof *ranks->units, &ranks->units));
    KVF_TRY(kvf__alloc_array(ctx, (size_t)ranks->capacity, sizeof *ranks->owner, &ranks->owner));
    KVF_TRY(kvf__alloc_array(ctx, size, sizeof *ranks->load, &ranks->load));
    KVF_TRY(kvf__alloc_array(ctx, size, sizeof *ranks->reports, &ranks->reports));
    ranks->gradient = gradient;
    ranks->next_layer = last_layer(ranks);
    ranks->waited = ranks->dist->waited;
    return KVF_OK;
}

int64_t kvf__ranks_other_tokens(const kvf__ranks *ranks)
{
    int64_t tokens = 0;
    for (int r = 0; ranks && r < ranks->size; r++)
        tokens += r == ranks->rank ? 0 : ranks->load[r];
    return tokens;
}

/* ---- the port's value ------------------------------------------------------------------------ */

/* Lists the parameters that all ranks have: all but the encoder's and the prefix's. */
static kvf__params common_params(const kvf__tuned *tuned)
{
    const size_t first = kvf__tuned_own_params(tuned) - (tuned->base ? tuned->base->n : 0);
    return (kvf__params){.n = tuned->params.n - first, .item = tuned->params.item + first};
}

/* Broadcasts the state before rows. Only rank 0 knows whether the start has one. */
static kvf_status share_state(kvf__run *run, kvf__prefix *prefix)
{
    const kvf__desc *d = kvf__model_desc(run->base->model);
    const int64_t n = kvf__mixer_state_at(d, d->L);
    int64_t states = prefix->states;

    if (!n) return KVF_OK;
    KVF_TRY(kvf__dist_broadcast(run->ctx, run->ranks->dist, &states, sizeof states));
    if (!states) return KVF_OK;
    if (!prefix->state) KVF_TRY(kvf__prefix_zero_state(run->ctx, prefix, n));
    return kvf__dist_broadcast(run->ctx, run->ranks->dist, prefix->state,
                               (size_t)n * sizeof *prefix->state);
}

static kvf_status share_value(kvf__run *run, const kvf__tuned *tuned)
{
    kvf__dist *dist = run->ranks->dist;
    const kvf__emitted *e = &tuned->emitted;
    const kvf__params common = common_params(tuned);
    if (e->prefix)
        KVF_TRY(kvf__dist_broadcast(run->ctx, dist, e->prefix->kv,
                                    kvf__prefix_count(e->prefix) * sizeof(float)));
    if (e->prefix) KVF_TRY(share_state(run, e->prefix));
    if (e->prefix && e->prefix->log_weight)
        KVF_TRY(kvf__dist_broadcast(run->ctx, dist, e->prefix->log_weight,
                                    kvf__prefix_weights(e->prefix) * sizeof(float)));
    if (e->prefix && e->prefix->neurons.w)
        KVF_TRY(kvf__dist_broadcast(run->ctx, dist, e->prefix->neurons.w,
                                    kvf__neurons_count(&e->prefix->neurons) * sizeof(float)));
    if (e->vectors)
        KVF_TRY(kvf__dist_broadcast(run->ctx, dist, e->vectors->x,
                                    (size_t)(e->vectors->P * e->vectors->C) * sizeof(float)));
    for (size_t i = 0; i < common.n; i++)
        KVF_TRY(kvf__dist_broadcast(run->ctx, dist, common.item[i].value,
                                    (size_t)common.item[i].n * sizeof(float)));
    return KVF_OK;
}

static kvf_status send_order(kvf__run *run, const kvf__tuned *tuned, kvf__order_kind kind)
{
    kvf__order order = {.kind = kind};
    KVF_TRY(kvf__dist_broadcast(run->ctx, run->ranks->dist, &order, sizeof order));
    return share_value(run, tuned);
}

kvf_status kvf__ranks_send(kvf__run *run, const kvf__tuned *tuned)
{
    if (!run->ranks || kvf__ranks_follows(run->ranks)) return KVF_OK;
    return send_order(run, tuned, KVF__ORDER_STEP);
}

kvf_status kvf__ranks_refresh(kvf__run *run, const kvf__tuned *tuned)
{
    if (!kvf__ranks_follows(run->ranks) || !tuned->base) return KVF_OK;
    return kvf__model_refresh(run->ctx, run->base->model);
}

/* ---- the gradient ---------------------------------------------------------------------------- */

/* Sends the gradients of the prefix down to layer l, which are complete. */
static void sum_layers(kvf__ranks *ranks, int64_t l)
{
    for (; ranks->next_layer >= l; ranks->next_layer--) {
        const kvf__prefix_layer at = kvf__prefix_at(ranks->gradient, ranks->next_layer);
        if (ranks->gradient->layer_mask[ranks->next_layer])
            kvf__dist_sum_begin(ranks->dist, at.k, 2 * at.n);
    }
    kvf__dist_sum_push(ranks->dist);
}

static void on_layer(void *user, int64_t l)
{
    sum_layers(user, l);
}

void kvf__ranks_watch(kvf__ranks *ranks, bool last, kvf__grads *grads)
{
    if (!ranks || !last) return;
    grads->layer_done = on_layer;
    grads->user = ranks;
}

static kvf_status sum_gradients(kvf__run *run, const kvf__tuned *tuned)
{
    kvf__dist *dist = run->ranks->dist;
    const kvf__vectors *v = tuned->gradient.vectors;
    const kvf__params common = common_params(tuned);
    if (run->ranks->gradient) sum_layers(run->ranks, 0);
    if (kvf__log_weight_trained(tuned))
        kvf__dist_sum_begin(dist, tuned->dprefix.log_weight,
                            (int64_t)kvf__prefix_weights(&tuned->dprefix));
    if (tuned->state.n) kvf__dist_sum_begin(dist, tuned->state.item->grad, tuned->state.item->n);
    if (tuned->dprefix.neurons.w)
        kvf__dist_sum_begin(dist, tuned->dprefix.neurons.w,
                            (int64_t)kvf__neurons_count(&tuned->dprefix.neurons));
    if (v) kvf__dist_sum_begin(dist, v->x, v->P * v->C);
    for (size_t i = 0; i < common.n; i++)
        kvf__dist_sum_begin(dist, common.item[i].grad, common.item[i].n);
    kvf_status st = kvf__dist_sum_end(run->ctx, dist);
    run->ranks->next_layer = last_layer(run->ranks);
    return st;
}

/* Combines the reports on rank 0: *st, loss, tokens, and signals. */
static void merge_reports(kvf__run *run, kvf__step_rows *rows, kvf_status *st)
{
    for (int r = 1; r < run->ranks->size; r++) {
        const kvf__report *report = &run->ranks->reports[r];
        rows->loss_sum += report->loss_sum;
        run->progress.computed_tokens += report->computed_tokens;
        if (!run->ranks->signal) run->ranks->signal = report->signal;
        if (!*st && report->status)
            *st = kvf__ranks_fail(run, r, (kvf_status)report->status, report->line);
    }
}

kvf_status kvf__ranks_sum(kvf__run *run, const kvf__tuned *tuned, kvf__step_rows *rows,
                          kvf_status st)
{
    if (!run->ranks) return st;
    kvf__report mine = {.status = (int32_t)st,
                        .signal = kvf__ctx_stop(run->ctx),
                        .loss_sum = rows->loss_sum,
                        .computed_tokens = run->progress.computed_tokens - run->ranks->computed};
    if (st) snprintf(mine.line, sizeof mine.line, "%s", kvf_ctx_error(run->ctx));
    KVF_TRY(sum_gradients(run, tuned));
    KVF_TRY(kvf__dist_gather(run->ctx, run->ranks->dist, &mine, sizeof mine, run->ranks->reports));
    if (!run->ranks->rank) merge_reports(run, rows, &st);
    run->ranks->computed = run->progress.computed_tokens;
    return run->ranks->rank ? KVF_OK : st; /* rank 0 judges the failure */
}

/* ---- validation and the retention set -------------------------------------------------------- */

kvf_status kvf__ranks_divide(kvf__run *run, const kvf__train_rows *rows, kvf__evaluator *retention)
{
    if (!run->ranks || run->ranks->size < 2) return KVF_OK;
    kvf__dist *dist = run->ranks->dist;
    for (size_t i = 0; i < rows->n; i++)
        if (rows->task[i].evaluator)
            KVF_TRY(kvf__evaluator_divide(run->ctx, rows->task[i].evaluator, dist));
    if (retention) KVF_TRY(kvf__evaluator_divide(run->ctx, retention, dist));
    run->ranks->divided = true;
    return KVF_OK;
}

kvf_status kvf__ranks_measure(kvf__run *run, const kvf__tuned *tuned, kvf__order_kind what)
{
    const bool orders = run->ranks && run->ranks->divided && !run->ranks->rank;
    return orders ? send_order(run, tuned, what) : KVF_OK;
}

/* ---- following ------------------------------------------------------------------------------- */

kvf_status kvf__ranks_next(kvf__run *run, const kvf__tuned *tuned, kvf__order_kind *kind)
{
    kvf__order order;
    KVF_TRY(kvf__dist_broadcast(run->ctx, run->ranks->dist, &order, sizeof order));
    *kind = (kvf__order_kind)order.kind;
    if (*kind != KVF__ORDER_END) return share_value(run, tuned);
    run->ranks->signal = order.signal;
    if (!order.status) return KVF_OK;
    return kvf__fail(run->ctx, (kvf_status)order.status, "rank 0 ended the run");
}
