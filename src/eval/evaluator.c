/* A data set with a prefix, and the head of the task if any. Only the data determines the batches:
 * rows in file order, up to a number of tokens. A run, its merged prefix and later evaluations thus
 * use the same batches and give the same bits. */
#include "answers.h"
#include "kept_states.h"
#include "shared.h"

#include <assert.h>
#include <math.h>
#include <string.h>

struct kvf__evaluator {
    kvf_base *base;
    const kvf__dataset *dataset;
    kvf__batcher batcher;
    kvf__pass *pass;
    int64_t *order; /* [rows] 0, 1, 2, ... */
    int64_t *first; /* [rows + 1] first label of each row */
    int64_t *start; /* [n + 1] first row of each batch */
    int64_t n, at;  /* number of batches; index of the one in the batcher */
    bool divided;   /* the choices of a question are in several batches */
    float *logits;  /* logits of one batch; NULL until a head needs them */
    int64_t logits_capacity, most_labels, most_tokens;
    int64_t batch_tokens;
    kvf__states *states; /* cached states of the batches; NULL: none; borrowed */
    kvf__shared *shared; /* batches divided among ranks; NULL: this process computes all */
};

/* Returns the tokens of rows from .. to - 1 (a batch or a part of one). */
static int64_t tokens_of(const kvf__evaluator *e, int64_t from, int64_t to)
{
    return e->dataset->start[to] - e->dataset->start[from];
}

static int64_t labels_of(const kvf__evaluator *e, int64_t batch)
{
    return e->first[e->start[batch + 1]] - e->first[e->start[batch]];
}

/* True if the rows have gold labels. Without them there is no loss. */
static bool has_gold(const kvf__dataset *set)
{
    return set->task == KVF__TASK_LM || !set->sources || set->sources->labelled;
}

/* Returns how many rows from `first` on stay together: the rest of a group. A group may be divided
 * into many batches, because its size is up to the input and memory is limited. Groups of classes
 * of several tokens stay whole, because their size is not up to the data. */
static int64_t rows_together(const kvf__evaluator *e, int64_t first)
{
    enum { LARGE = 8 };
    const kvf__dataset *set = e->dataset;
    if (!set->group) return 1;
    const int64_t *group = set->group + kvf__group_of(set, first);
    const bool divides = !set->phrases || !has_gold(set);
    return divides && tokens_of(e, group[0], group[1]) / LARGE > e->batch_tokens ? 1
                                                                                 : group[1] - first;
}

/* Returns the number of rows in the batch that begins at `first`. */
static int64_t batch_rows(kvf__evaluator *e, int64_t first)
{
    const kvf__dataset *set = e->dataset;
    int64_t n = 0;
    while (first + n < set->n) {
        int64_t more = rows_together(e, first + n);
        e->divided = e->divided || (set->task == KVF__TASK_CHOICE && has_gold(set) && more == 1);
        if (n && tokens_of(e, first, first + n + more) > e->batch_tokens) break;
        n += more;
    }
    return n;
}

static kvf_status make_batches(kvf_ctx *ctx, kvf__evaluator *e)
{
    const kvf__dataset *set = e->dataset;
    const size_t n = (size_t)set->n;
    KVF_TRY(kvf__alloc_array(ctx, n, sizeof *e->order, &e->order));
    KVF_TRY(kvf__alloc_array(ctx, n + 1, sizeof *e->first, &e->first));
    KVF_TRY(kvf__alloc_array(ctx, n + 1, sizeof *e->start, &e->start));
    for (int64_t i = 0; i < set->n; i++) {
        e->order[i] = i;
        e->first[i + 1] = e->first[i] + kvf__example_labels(set, i);
    }
    for (int64_t row = 0; row < set->n; e->start[++e->n] = row)
        row += batch_rows(e, row);
    return KVF_OK;
}

kvf__pass_limits kvf__limits_for(const kvf__batch_sizes *sizes, int64_t P, int64_t neurons,
                                 bool backward)
{
    return (kvf__pass_limits){
        .rows = sizes->rows,
        .tokens = sizes->tokens,
        .row_len = sizes->row_len,
        .labels = sizes->labels,
        .P = P,
        .neurons = neurons,
        .common_len = sizes->common_len,
        .common_tokens = sizes->common_tokens,
        .source_tokens = sizes->source_tokens,
        .source_len = sizes->source_len,
        .backward = backward,
    };
}

static void fill_batcher(kvf__evaluator *e, int64_t batch)
{
    const int64_t row = e->start[batch];
    e->at = batch;
    kvf__batcher_fill(&e->batcher, e->dataset, e->order + row, e->start[batch + 1] - row);
}

/* Allocates the batcher by upper bounds, then reduces them to the actual batch sizes. */
static kvf_status make_batcher(kvf_ctx *ctx, kvf__evaluator *e,
                               const kvf__evaluator_options *options, kvf__batch_sizes *sizes)
{
    kvf__batch_sizes bounds = {0};
    const kvf__batch_rules rules = {.causal = kvf__model_desc(e->base->model)->block.causal,
                                    .source = kvf__model_desc(e->base->model)->encoder > 0,
                                    .share = options->share_prefixes,
                                    .infix = options->infix};
    for (int64_t b = 0; b < e->n; b++) {
        const kvf__batch_sizes batch = {.rows = e->start[b + 1] - e->start[b],
                                        .tokens = tokens_of(e, e->start[b], e->start[b + 1]),
                                        .labels = e->dataset->pooled
                                                      ? tokens_of(e, e->start[b], e->start[b + 1])
                                                      : labels_of(e, b)};
        kvf__batch_sizes_raise(&bounds, &batch);
    }
    KVF_TRY(kvf__batcher_init(ctx, &e->batcher, rules, bounds.rows, bounds.tokens, bounds.labels));
    for (int64_t b = 0; b < e->n; b++) {
        fill_batcher(e, b);
        kvf__batch_sizes_raise(sizes, &e->batcher.sizes);
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
    kvf_status st = make_batches(ctx, e);
    if (!st) st = make_batcher(ctx, e, options, &sizes);
    kvf__pass_limits limits = kvf__limits_for(&sizes, options->P, options->neurons,
                                              options->backward);
    limits.infix = options->infix;
    limits.soft = options->soft;
    e->most_labels = sizes.labels;
    e->most_tokens = kvf__model_desc(base->model)->encoder ? sizes.source_tokens : sizes.tokens;
    if (!st) st = kvf__pass_create(ctx, base->model, &limits, &e->pass);
    KVF__GIVE(st, out, e, kvf__evaluator_free(e));
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
    kvf__free(evaluator->start);
    kvf__free(evaluator->logits);
    kvf__free(evaluator);
}

kvf__subject kvf__subject_of(const kvf_prefix *prefix, kvf__head *head)
{
    return (kvf__subject){.condition = kvf__prefix_condition(prefix), .head = head};
}

/* ---- one batch ------------------------------------------------------------------------------- */

/* Copies the outputs of a batch to the places of their rows. A batch may reorder rows and share
 * common prefixes, but keeps the order within a group. */
static void place_logits(const kvf__evaluator *e, int64_t width, float *out)
{
    const kvf__dataset *set = e->dataset;
    const kvf__batch *batch = &e->batcher.batch;
    int64_t label = 0, output = 0, group = -1, row = -1;
    for (int64_t r = 0; r < batch->n_rows; r++) {
        int64_t n = 0;
        if (batch->example[r] < 0) continue;
        while (label + n < batch->n_labels && batch->label_at[label + n] < batch->start[r + 1])
            n++;
        label += n;
        if (set->pooled && n) n = 1;
        row = batch->example[r] == group ? row + 1
              : set->group               ? set->group[batch->example[r]]
                                         : batch->example[r];
        if (row < e->start[e->at]) row = e->start[e->at]; /* its group began in another batch */
        group = batch->example[r];
        while (e->first[row + 1] - e->first[row] != n) /* a row without labels was skipped */
            row++;
        memcpy(out + e->first[row] * width, e->logits + output * width,
               (size_t)(n * width) * sizeof(float));
        output += n;
    }
}

static kvf_status reserve_logits(kvf_ctx *ctx, kvf__evaluator *e, kvf__head *head)
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

/* Computes the outputs of a task's head on the batch, in row order. */
static kvf_status run_outputs(kvf_ctx *ctx, kvf__evaluator *e, kvf__head *head, float *each)
{
    KVF_TRY(reserve_logits(ctx, e, head));
    KVF_TRY(kvf__pass_outputs(ctx, e->pass, head, e->logits));
    place_logits(e, kvf__head_width(head), each);
    return KVF_OK;
}

static kvf_status forward(kvf_ctx *ctx, kvf__evaluator *e, const kvf__subject *subject,
                          int64_t batch)
{
    fill_batcher(e, batch);
    kvf__input input = {.batch = &e->batcher.batch,
                        .condition = subject->condition,
                        .share = subject->share,
                        .queries = subject->queries};
    const bool sums = subject->share || subject->queries;
    kvf__states *states = sums ? NULL : e->states;
    kvf__states_enter(states, &input, true);
    KVF_TRY(kvf__pass_fwd(ctx, e->pass, &input));
    kvf__states_keep(states, &input);
    return KVF_OK;
}

kvf_status kvf__evaluator_walk(kvf_ctx *ctx, kvf__evaluator *e, const kvf__subject *subject,
                               kvf__visit_fn *visit, void *user)
{
    for (int64_t b = 0; b < e->n; b++) {
        if (!labels_of(e, b) || !kvf__shared_owns(e->shared, b)) continue;
        KVF_TRY(forward(ctx, e, subject, b));
        KVF_TRY(visit(user, e->pass, &e->batcher.batch));
    }
    return KVF_OK;
}

void kvf__evaluator_keep(kvf__evaluator *evaluator, kvf__states *states)
{
    evaluator->states = states;
}

int64_t kvf__evaluator_tokens(const kvf__evaluator *evaluator)
{
    return evaluator->most_tokens;
}

int64_t kvf__evaluator_batches(const kvf__evaluator *evaluator)
{
    return evaluator->n;
}

kvf_status kvf__evaluator_outputs(kvf_ctx *ctx, kvf__evaluator *e, const kvf__subject *subject,
                                  int64_t batch, float *each)
{
    if (!labels_of(e, batch)) return KVF_OK;
    KVF_TRY(forward(ctx, e, subject, batch));
    return run_outputs(ctx, e, subject->head, each);
}

/* ---- a run ----------------------------------------------------------------------------------- */

/* Sums of a run over its batches. */
typedef struct loss_sum {
    kvf_ctx *ctx;
    kvf__evaluator *evaluator;
    const kvf__subject *subject;
    bool gold;
    double sum;
    int64_t terms, labels;
    float *each;
} loss_sum;

static kvf_status add_batch(void *user, kvf__pass *pass, const kvf__batch *batch)
{
    loss_sum *s = user;
    kvf__evaluator *e = s->evaluator;
    kvf__head *head = s->subject->head;
    const bool lm = kvf__head_is_lm(head);
    const kvf__loss how = {
        .head = head, .scale = 1, .token_loss = lm && s->each ? s->each + s->labels : NULL};
    double part = 0;
    int64_t terms = s->gold ? kvf__head_terms(head, batch) : 0;
    if (s->gold) KVF_TRY(kvf__pass_loss(s->ctx, pass, &how, &part));
    if (!lm && s->each) KVF_TRY(run_outputs(s->ctx, e, head, s->each));
    if (e->shared) kvf__shared_put(e->shared, e->at, part, terms);
    s->sum += part;
    s->terms += terms;
    s->labels += batch->n_labels;
    return KVF_OK;
}

kvf_status kvf__evaluator_divide(kvf_ctx *ctx, kvf__evaluator *e, struct kvf__dist *dist)
{
    return kvf__shared_create(ctx, dist, e->n, &e->shared);
}

bool kvf__evaluator_helps(const kvf__evaluator *evaluator)
{
    return kvf__shared_helps(evaluator->shared);
}

void kvf__evaluator_give_up(const kvf__evaluator *evaluator)
{
    if (evaluator->shared) kvf__shared_give_up(evaluator->shared);
}

/* Runs all batches. With several ranks the outputs of a head are placed by rows; the losses of lm's
 * labels are not collected. */
static kvf_status run(kvf_ctx *ctx, kvf__evaluator *e, const kvf__subject *subject, double *loss,
                      float *each)
{
    const bool lm = kvf__head_is_lm(subject->head);
    const int64_t labels = e->dataset->n_labels;
    loss_sum s = {
        .ctx = ctx, .evaluator = e, .subject = subject, .gold = has_gold(e->dataset), .each = each};
    s.gold = s.gold && !e->divided;
    kvf_status st = kvf__evaluator_walk(ctx, e, subject, add_batch, &s);
    assert(!e->shared || !lm || !each);
    if (e->shared)
        st = kvf__shared_end(ctx, e->shared, st, each,
                             lm ? 0 : labels * kvf__head_width(subject->head), &s.sum, &s.terms);
    if (st) return st;
    if (lm) s.terms = labels;
    *loss = s.gold && s.terms ? s.sum / (double)s.terms : NAN;
    return KVF_OK;
}

/* Computes the loss from the outputs of all batches, if some hold only a part of a question. */
static kvf_status run_divided(kvf_ctx *ctx, kvf__evaluator *e, const kvf__subject *subject,
                              double *loss, float *each)
{
    kvf__scores scores = {0};
    KVF_TRY(run(ctx, e, subject, loss, each));
    KVF_TRY(kvf__scores_init(ctx, &scores, e->dataset, kvf__head_width(subject->head)));
    kvf__scores_add(&scores, each, 1);
    *loss = kvf__scores_loss(&scores);
    kvf__scores_done(&scores);
    return KVF_OK;
}

kvf_status kvf__evaluator_run(kvf_ctx *ctx, kvf__evaluator *e, const kvf__subject *subject,
                              double *loss, float *each)
{
    float *own = NULL;
    if (!e->divided) return run(ctx, e, subject, loss, each);
    if (each) return run_divided(ctx, e, subject, loss, each);
    KVF_TRY(kvf__alloc_array(ctx, (size_t)(e->dataset->n_labels * kvf__head_width(subject->head)),
                             sizeof *own, &own));
    kvf_status st = run_divided(ctx, e, subject, loss, own);
    kvf__free(own);
    return st;
}

/* Returns the smallest batch of at least this many tokens, else the largest; -1: none. Only whole
 * batches stay within the pass's limits, because shared prefixes depend on the other rows. */
static int64_t find_batch(const kvf__evaluator *e, int64_t tokens)
{
    int64_t best = -1, found = -1;
    for (int64_t b = 0; b < e->n; b++) {
        int64_t n = tokens_of(e, e->start[b], e->start[b + 1]);
        if (!labels_of(e, b)) continue;
        if (best < tokens ? n <= best : n < tokens || n >= best) continue;
        best = n;
        found = b;
    }
    return found;
}

kvf_status kvf__evaluator_probe(kvf_ctx *ctx, kvf__evaluator *e, const kvf__subject *subject,
                                int64_t tokens, int times, double *seconds)
{
    const kvf__dataset *set = e->dataset;
    const int64_t b = find_batch(e, tokens);
    double begin = 0;
    float *logits = NULL;
    kvf_status st = KVF_OK;
    *seconds = 0;
    if (b < 0) return KVF_OK;
    const bool lm = kvf__head_is_lm(subject->head);
    size_t outputs = lm ? 0 : (size_t)(set->n_labels * kvf__head_width(subject->head));
    KVF_TRY(kvf__alloc_array(ctx, outputs, sizeof *logits, &logits));
    loss_sum s = {.ctx = ctx,
                  .evaluator = e,
                  .subject = subject,
                  .gold = has_gold(set),
                  .each = lm ? NULL : logits};
    for (int i = 0; i < times && !st; i++) {
        begin = kvf__clock();
        st = forward(ctx, e, subject, b);
        if (!st) st = add_batch(&s, e->pass, &e->batcher.batch);
    }
    *seconds = (kvf__clock() - begin) / (double)tokens_of(e, e->start[b], e->start[b + 1]) *
               (double)set->start[set->n];
    kvf__free(logits);
    return st;
}
