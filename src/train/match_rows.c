/* --init match: the initial prefix stands for examples in the context. Some training rows are read
 * as one text, as few-shot examples before a row (context tuning; Lu et al. 2025, arXiv
 * 2507.04221). Attention matching (match.c) then uses other rows as queries. If --init was not
 * given and there are too few rows, it becomes vocab. */
#include "match.h"
#include "row_list.h"
#include "start.h"

#define MATCH_STREAM 0x6d617463 /* "matc": separates this random stream from those of the weights  \
                                 */

/* Largest number of context tokens, and approximate number of query tokens. More tokens cost time
 * and did not lower the loss (docs/methods.md). With many virtual tokens there are four for each.
 */
enum { TOKENS = 512, PER_TOKEN = 4 };

typedef struct examples {
    kvf__row_list read, ask;
    kvf__prefix kv; /* keys and values of all tokens of `read` */
    int32_t *position;
    kvf__dataset rows; /* rows of `ask` */
    bool few;          /* fewer context tokens than P, or no label among the query rows */
} examples;

/* Draws rows at random: first the context rows (at most half of the data), then the query rows. */
static kvf_status draw_rows(const kvf__run *run, const kvf__dataset *data, const int64_t *order,
                            examples *e)
{
    const int64_t half = kvf__longest_row(run->base, 0) / 2;
    const int64_t wanted = run->id.P * PER_TOKEN > TOKENS ? run->id.P * PER_TOKEN : TOKENS;
    const int64_t most = half < wanted ? half : wanted;
    int64_t labels = 0, i = 0;
    e->read.longest = most;
    for (; i < data->n / 2 && (int64_t)e->read.ids.n < most; i++)
        KVF_TRY(kvf__row_list_add_from(run->ctx, &e->read, data, order[i]));
    e->ask.longest = kvf__longest_row(run->base, (int64_t)e->read.ids.n);
    for (; i < data->n && labels < most; i++) {
        KVF_TRY(kvf__row_list_add_from(run->ctx, &e->ask, data, order[i]));
        labels += kvf__example_labels(data, order[i]);
    }
    e->few = (int64_t)e->read.ids.n < run->id.P || !labels;
    if (e->few && KVF__GIVEN(&run->options, init))
        return kvf__fail(run->ctx, KVF_EUSAGE,
                         "--init match: %lld of %lld rows give a context of %lld tokens and leave "
                         "%lld labels; want %lld tokens (--prefix-length) and one label",
                         (long long)e->read.ends.n, (long long)data->n, (long long)e->read.ids.n,
                         (long long)labels, (long long)run->id.P);
    if (e->few) return KVF_OK;
    return kvf__row_list_pick(run->ctx, &e->ask, 1, true, "", &e->rows);
}

static kvf_status choose_rows(const kvf__run *run, const kvf__dataset *data, examples *e)
{
    const int64_t n = data->n;
    kvf__rng rng = kvf__rng_make(run->options.seed, (uint64_t)MATCH_STREAM << 32);
    int64_t *order = NULL;
    KVF_TRY(kvf__alloc_array(run->ctx, (size_t)n, sizeof *order, &order));
    kvf__rng_order(&rng, order, n);
    kvf_status st = draw_rows(run, data, order, e);
    kvf__free(order);
    return st;
}

static kvf_status read_rows(const kvf__run *run, examples *e)
{
    const kvf__kv_shape shape = kvf__identity_kv(&run->id);
    const int64_t n = (int64_t)e->read.ids.n;
    KVF_TRY(kvf__alloc_array(run->ctx, (size_t)n, sizeof *e->position, &e->position));
    for (int64_t i = 0; i < n; i++)
        e->position[i] = (int32_t)i;
    KVF_TRY(kvf__prefix_create(run->ctx, &e->kv, &shape, n));
    return kvf__base_keys_values(run->ctx, run->base, e->read.ids.data, &e->kv, NULL);
}

kvf_status kvf__match_rows(kvf__run *run, const kvf__dataset *data, kvf__prefix *target)
{
    examples e = {0};
    const double begin = kvf__clock();
    kvf_status st = choose_rows(run, data, &e);
    if (!st && e.few) {
        run->options.init = "vocab";
        goto out;
    }
    if (!st) st = read_rows(run, &e);
    const kvf__match_source source = {
        .kv = &e.kv, .position = e.position, .start = (int64_t)e.read.ids.n};
    if (!st) st = kvf__match(run->ctx, run->base, &source, &e.rows, run->id.position_start, target);
    if (!st)
        kvf__run_detail(run,
                        "initialized from %lld training rows (%lld tokens) by attention matching "
                        "with %lld query tokens in %.1f s",
                        (long long)e.read.ends.n, (long long)source.start,
                        (long long)e.rows.n_labels, kvf__clock() - begin);
out:
    kvf__dataset_done(&e.rows);
    kvf__prefix_done(&e.kv);
    kvf__free(e.position);
    kvf__row_list_done(&e.ask);
    kvf__row_list_done(&e.read);
    return st;
}
