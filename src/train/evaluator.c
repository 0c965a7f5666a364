/* A data set under a prefix, and a head where the task has one. Batches are fixed by the data alone
 * (rows in file order, up to so many tokens), so that a run, its folded prefix and a later
 * evaluation of either see the same batches and give the same bits. */
#include "ranks_int.h"

#include <assert.h>
#include <math.h>
#include <string.h>

struct kvf__evaluator {
    kvf_base *base;
    const kvf__dataset *dataset;
    kvf__batcher batcher;
    kvf__pass *pass;
    int64_t *order; /* 0, 1, 2, ... */
    int64_t *first; /* [rows + 1] first label of each row */
    float *logits;  /* of one batch; NULL until a head needs it */
    int64_t logits_capacity, most_labels;
    int64_t batch_tokens;
    kvf__shared *shared; /* batches are divided among ranks; NULL: all are this one's */
};

/* Rows of the batch that begins at `first`: whole groups, at least one. */
static int64_t batch_rows(const kvf__evaluator *e, int64_t first, int64_t *tokens, int64_t *labels)
{
    const kvf__dataset *set = e->dataset;
    int64_t n = 0;
    *tokens = *labels = 0;
    while (first + n < set->n) {
        int64_t more = kvf__whole_groups(set, e->order + first + n, set->n - first - n, 1);
        int64_t length = 0, found = 0;
        for (int64_t i = first + n; i < first + n + more; i++) {
            length += kvf__example_length(set, i);
            found += kvf__example_labels(set, i);
        }
        if (n && *tokens + length > e->batch_tokens) break;
        n += more;
        *tokens += length;
        *labels += found;
    }
    return n;
}

kvf__pass_limits kvf__limits_for(const kvf__batch_sizes *sizes, int64_t P, bool backward)
{
    return (kvf__pass_limits){
        .rows = sizes->rows,
        .tokens = sizes->tokens,
        .row_len = sizes->row_len,
        .labels = sizes->labels,
        .P = P,
        .common_len = sizes->common_len,
        .common_tokens = sizes->common_tokens,
        .backward = backward,
    };
}

/* Upper bounds for the batcher, then the sizes its batches really have. */
static kvf_status take_batcher(kvf_ctx *ctx, kvf__evaluator *e,
                               const kvf__evaluator_options *options, kvf__batch_sizes *sizes)
{
    kvf__batch_sizes bounds = {0};
    const kvf__batch_rules rules = {.causal = kvf__model_desc(e->base->model)->causal,
                                    .share = options->share_prefixes,
                                    .infix = options->infix};
    for (int64_t first = 0; first < e->dataset->n;) {
        kvf__batch_sizes batch = {0};
        batch.rows = batch_rows(e, first, &batch.tokens, &batch.labels);
        kvf__batch_sizes_raise(&bounds, &batch);
        first += batch.rows;
    }
    KVF_TRY(kvf__batcher_init(ctx, &e->batcher, rules, bounds.rows, bounds.tokens, bounds.labels));
    for (int64_t first = 0, tokens, labels; first < e->dataset->n;) {
        int64_t n = batch_rows(e, first, &tokens, &labels);
        kvf__batcher_fill(&e->batcher, e->dataset, e->order + first, n);
        kvf__batch_sizes_raise(sizes, &e->batcher.sizes);
        first += n;
    }
    return KVF_OK;
}

kvf_status kvf__evaluator_create(kvf_ctx *ctx, kvf_base *base, const kvf__dataset *dataset,
                                 const kvf__evaluator_options *options, kvf__evaluator **out)
{
    kvf__evaluator *e = NULL;
    kvf__batch_sizes sizes = {0};
    KVF_TRY(kvf__alloc(ctx, sizeof *e, &e));
    e->base = base;
    e->dataset = dataset;
    e->batch_tokens = options->batch_tokens > 0 ? options->batch_tokens : 2048;
    kvf_status st = kvf__alloc_array(ctx, (size_t)dataset->n, sizeof *e->order, &e->order);
    if (!st) st = kvf__alloc_array(ctx, (size_t)dataset->n + 1, sizeof *e->first, &e->first);
    for (int64_t i = 0; !st && i < dataset->n; i++) {
        e->order[i] = i;
        e->first[i + 1] = e->first[i] + kvf__example_labels(dataset, i);
    }
    if (!st) st = take_batcher(ctx, e, options, &sizes);
    kvf__pass_limits limits = kvf__limits_for(&sizes, options->P, options->backward);
    limits.infix = options->infix;
    limits.soft = options->soft;
    e->most_labels = sizes.labels;
    if (!st) st = kvf__pass_create(ctx, base->model, &limits, &e->pass);
    if (st)
        kvf__evaluator_free(e);
    else
        *out = e;
    return st;
}

void kvf__evaluator_free(kvf__evaluator *evaluator)
{
    if (!evaluator) return;
    kvf__pass_free(evaluator->pass);
    kvf__batcher_done(&evaluator->batcher);
    kvf__shared_free(evaluator->shared);
    kvf__free(evaluator->order);
    kvf__free(evaluator->first);
    kvf__free(evaluator->logits);
    kvf__free(evaluator);
}

kvf__subject kvf__subject_of(const kvf_prefix *prefix, kvf__head *head)
{
    kvf__subject subject = {.head = head};
    if (!prefix) return subject;
    if (prefix->prefix.P) subject.prefix = &prefix->prefix;
    if (prefix->vectors.P) subject.vectors = &prefix->vectors;
    subject.position_start = prefix->id.position_start;
    return subject;
}

/* ---- one batch ------------------------------------------------------------------------------- */

/* Outputs of a batch to the places of their rows: the batch may hold rows in another order, with
 * leads between them, but those of a group in theirs. */
static void place_logits(const kvf__evaluator *e, int64_t width, float *out)
{
    const kvf__dataset *set = e->dataset;
    const kvf__batch *batch = &e->batcher.batch;
    int64_t label = 0, group = -1, row = -1;
    for (int64_t r = 0; r < batch->n_rows; r++) {
        int64_t n = 0;
        if (batch->example[r] < 0) continue;
        while (label + n < batch->n_labels && batch->label_at[label + n] < batch->start[r + 1])
            n++;
        row = batch->example[r] == group ? row + 1
              : set->group               ? set->group[batch->example[r]]
                                         : batch->example[r];
        group = batch->example[r];
        while (e->first[row + 1] - e->first[row] != n) /* a row without labels was left out */
            row++;
        memcpy(out + e->first[row] * width, e->logits + label * width,
               (size_t)(n * width) * sizeof(float));
        label += n;
    }
}

static kvf_status take_logits(kvf_ctx *ctx, kvf__evaluator *e, kvf__head *head)
{
    int64_t capacity = e->most_labels * kvf__head_width(head);
    if (capacity <= e->logits_capacity) return KVF_OK;
    kvf__free(e->logits);
    e->logits = NULL;
    e->logits_capacity = 0;
    KVF_TRY(kvf__alloc_array(ctx, (size_t)capacity, sizeof *e->logits, &e->logits));
    e->logits_capacity = capacity;
    return kvf__head_prepare(ctx, head, e->most_labels);
}

/* The outputs of a task's head on the batch, by rows. */
static kvf_status run_outputs(kvf_ctx *ctx, kvf__evaluator *e, kvf__head *head, float *each)
{
    KVF_TRY(take_logits(ctx, e, head));
    KVF_TRY(kvf__pass_outputs(ctx, e->pass, head, e->logits));
    place_logits(e, kvf__head_width(head), each);
    return KVF_OK;
}

/* Without gold a loss would mean nothing. */
static bool has_gold(const kvf__dataset *set)
{
    return set->task == KVF__TASK_LM || !set->sources || set->sources->labelled;
}

static kvf_status forward(kvf_ctx *ctx, kvf__evaluator *e, const kvf__subject *subject,
                          int64_t first, int64_t n)
{
    kvf__batcher_fill(&e->batcher, e->dataset, e->order + first, n);
    const kvf__input input = {.batch = &e->batcher.batch,
                              .prefix = subject->prefix,
                              .vectors = subject->vectors,
                              .position_start = subject->position_start,
                              .share = subject->share};
    return kvf__pass_fwd(ctx, e->pass, &input);
}

kvf_status kvf__evaluator_walk(kvf_ctx *ctx, kvf__evaluator *e, const kvf__subject *subject,
                               kvf__visit_fn *visit, void *user)
{
    int64_t tokens, labels;
    for (int64_t first = 0, n; first < e->dataset->n; first += n) {
        n = batch_rows(e, first, &tokens, &labels);
        if (!labels) continue;
        KVF_TRY(forward(ctx, e, subject, first, n));
        KVF_TRY(visit(user, e->pass, &e->batcher.batch));
    }
    return KVF_OK;
}

/* What a run sums over its batches. */
typedef struct summing {
    kvf_ctx *ctx;
    kvf__evaluator *evaluator;
    const kvf__subject *subject;
    bool gold;
    double sum;
    int64_t terms, labels;
    float *each;
} summing;

static kvf_status add_batch(void *user, kvf__pass *pass, const kvf__batch *batch)
{
    summing *s = user;
    kvf__head *head = s->subject->head;
    const bool lm = kvf__head_is_lm(head);
    const kvf__loss how = {
        .head = head, .scale = 1, .token_loss = lm && s->each ? s->each + s->labels : NULL};
    double part = 0;
    if (s->gold) {
        KVF_TRY(kvf__pass_loss(s->ctx, pass, &how, &part));
        s->terms += kvf__head_terms(head, batch);
    }
    if (!lm && s->each) KVF_TRY(run_outputs(s->ctx, s->evaluator, head, s->each));
    s->sum += part;
    s->labels += batch->n_labels;
    return KVF_OK;
}

kvf_status kvf__evaluator_divide(kvf_ctx *ctx, kvf__evaluator *e, struct kvf__dist *dist)
{
    int64_t tokens, labels, batches = 0;
    for (int64_t first = 0; first < e->dataset->n; batches++)
        first += batch_rows(e, first, &tokens, &labels);
    return kvf__shared_create(ctx, dist, batches, &e->shared);
}

bool kvf__evaluator_helps(const kvf__evaluator *evaluator)
{
    return kvf__shared_helps(evaluator->shared);
}

void kvf__evaluator_give_up(const kvf__evaluator *evaluator)
{
    if (evaluator->shared) kvf__shared_give_up(evaluator->shared);
}

/* This rank's batches, each by itself. */
static kvf_status run_own(summing *s)
{
    kvf__evaluator *e = s->evaluator;
    int64_t tokens, labels, batch = 0;
    for (int64_t first = 0, n; first < e->dataset->n; first += n, batch++) {
        n = batch_rows(e, first, &tokens, &labels);
        if (!labels || !kvf__shared_owns(e->shared, batch)) continue;
        s->sum = 0;
        s->terms = 0;
        KVF_TRY(forward(s->ctx, e, s->subject, first, n));
        KVF_TRY(add_batch(s, e->pass, &e->batcher.batch));
        kvf__shared_put(e->shared, batch, s->sum, s->terms);
    }
    return KVF_OK;
}

/* Outputs of a head are placed by rows; of lm's labels none are wanted here. */
static kvf_status run_shared(summing *s)
{
    kvf__evaluator *e = s->evaluator;
    const kvf__subject *subject = s->subject;
    int64_t width = kvf__head_is_lm(subject->head) ? 0 : kvf__head_width(subject->head);
    assert(width || !s->each);
    kvf_status st = run_own(s);
    return kvf__shared_end(s->ctx, e->shared, st, s->each, e->dataset->n_labels * width, &s->sum,
                           &s->terms);
}

kvf_status kvf__evaluator_run(kvf_ctx *ctx, kvf__evaluator *e, const kvf__subject *subject,
                              double *loss, float *each)
{
    summing s = {
        .ctx = ctx, .evaluator = e, .subject = subject, .gold = has_gold(e->dataset), .each = each};
    KVF_TRY(e->shared ? run_shared(&s) : kvf__evaluator_walk(ctx, e, subject, add_batch, &s));
    if (kvf__head_is_lm(subject->head)) s.terms = e->dataset->n_labels;
    *loss = s.gold && s.terms ? s.sum / (double)s.terms : NAN;
    return KVF_OK;
}

/* The smallest batch of at least so many tokens, or else the largest; only whole ones keep to the
 * pass's limits, since which leads rows share depends on their company. */
static void find_batch(const kvf__evaluator *e, int64_t tokens, int64_t *at, int64_t *n)
{
    int64_t best = -1, found, labels;
    for (int64_t first = 0, rows; first < e->dataset->n; first += rows) {
        rows = batch_rows(e, first, &found, &labels);
        if (!labels) continue;
        bool better = best < tokens ? found > best : found >= tokens && found < best;
        if (!better) continue;
        best = found;
        *at = first;
        *n = rows;
    }
}

kvf_status kvf__evaluator_probe(kvf_ctx *ctx, kvf__evaluator *e, const kvf__subject *subject,
                                int64_t tokens, int times, double *seconds)
{
    const kvf__dataset *set = e->dataset;
    double begin = 0;
    int64_t first = 0, n = 0;
    float *logits = NULL;
    kvf_status st = KVF_OK;
    find_batch(e, tokens, &first, &n);
    *seconds = 0;
    if (!n) return KVF_OK;
    const bool lm = kvf__head_is_lm(subject->head);
    size_t outputs = lm ? 0 : (size_t)(set->n_labels * kvf__head_width(subject->head));
    KVF_TRY(kvf__alloc_array(ctx, outputs, sizeof *logits, &logits));
    summing s = {.ctx = ctx,
                 .evaluator = e,
                 .subject = subject,
                 .gold = has_gold(set),
                 .each = lm ? NULL : logits};
    for (int i = 0; i < times && !st; i++) {
        begin = kvf__clock();
        st = forward(ctx, e, subject, first, n);
        if (!st) st = add_batch(&s, e->pass, &e->batcher.batch);
    }
    *seconds = (kvf__clock() - begin) / (double)(set->start[first + n] - set->start[first]) *
               (double)set->start[set->n];
    kvf__free(logits);
    return st;
}
