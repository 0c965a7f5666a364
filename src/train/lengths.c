/* How long a run is, and a walk over the schedule of its steps before the first one is taken: the
 * sizes of all batches to come decide memory and primitives, so that a step allocates nothing. */
#include "train_int.h"

#include <string.h>

static int64_t steps_per_epoch(kvf__trainer *t, int64_t epochs)
{
    int64_t steps = 0, n;
    bool last = false;
    for (int64_t epoch = 0; epoch < epochs; steps++) {
        kvf__sampler_next(&t->sampler, &n, &last);
        epoch += last;
    }
    kvf__sampler_rewind(&t->sampler);
    return steps;
}

static kvf_status take_sampler(kvf__trainer *t)
{
    const kvf_train_options *o = &t->options;
    KVF_TRY(kvf__sampler_init(t->ctx, &t->sampler, &t->data, o->shuffle, o->seed,
                              o->batch_tokens ? 0 : o->batch_size, o->batch_tokens));
    return strcmp(o->group_by, "prefix") ? KVF_OK : kvf__sampler_group_by_common(t->ctx, &t->sampler);
}

static void rewind_samplers(kvf__trainer *t)
{
    if (t->n_jobs)
        kvf__jobs_rewind(t);
    else
        kvf__sampler_rewind(&t->sampler);
}

kvf_status kvf__trainer_lengths(kvf__trainer *t)
{
    kvf_train_options *o = &t->options;
    if (t->n_jobs)
        KVF_TRY(kvf__jobs_samplers(t));
    else
        KVF_TRY(take_sampler(t));
    if (!t->n_jobs) t->epoch_steps = steps_per_epoch(t, 1);
    t->steps = o->steps || kvf__train_option_given(o, "steps") ? o->steps
               : t->n_jobs                                     ? t->epoch_steps * o->epochs
                                                               : steps_per_epoch(t, o->epochs);
    o->steps = t->steps;
    if (!o->schedule_steps) o->schedule_steps = t->steps; /* no steps: --resume decides */
    KVF_TRY(kvf__schedule_init(t->ctx, o->schedule, o->warmup, o->schedule_steps, &t->schedule));
    if (t->steps > o->schedule_steps && t->schedule.kind != KVF__SCHEDULE_CONSTANT)
        return kvf__fail(t->ctx, KVF_EUSAGE,
                         "--steps %lld is past the %s schedule's length of %lld steps, fixed when "
                         "the run was created",
                         (long long)t->steps, o->schedule, (long long)o->schedule_steps);
    return KVF_OK;
}

/* What a walk over the run's own schedule does with the rows of a part of a step. */
typedef kvf_status walk_fn(kvf__trainer *t, const int64_t *examples, int64_t n,
                           kvf__batch_sizes *sizes);

/* own: of rows that other ranks compute nothing is seen. */
static kvf_status walk_schedule(kvf__trainer *t, bool own, walk_fn *visit, kvf__batch_sizes *sizes)
{
    kvf_status st = KVF_OK;
    rewind_samplers(t);
    for (int64_t step = 0; !st && step < t->steps; step++) {
        int64_t n;
        bool last;
        kvf__jobs_enter(t, step);
        const int64_t *examples = kvf__sampler_next(&t->sampler, &n, &last);
        if (own) kvf__ranks_rows(t, &examples, &n);
        int64_t part_rows = (n + t->options.grad_accum - 1) / t->options.grad_accum;
        for (int64_t first = 0, part; !st && first < n; first += part) {
            part = kvf__whole_groups(&t->data, examples + first, n - first, part_rows);
            st = visit(t, examples + first, part, sizes);
        }
        kvf__jobs_leave(t, step);
    }
    rewind_samplers(t);
    return st;
}

/* Upper bounds, from lengths alone. */
static kvf_status bound_part(kvf__trainer *t, const int64_t *examples, int64_t n,
                             kvf__batch_sizes *sizes)
{
    kvf__batch_sizes part = {.rows = n};
    for (int64_t i = 0; i < n; i++) {
        part.tokens += kvf__example_length(&t->data, examples[i]);
        part.labels += kvf__example_labels(&t->data, examples[i]);
    }
    kvf__batch_sizes_raise(sizes, &part);
    return KVF_OK;
}

static kvf_status measure_part(kvf__trainer *t, const int64_t *examples, int64_t n,
                               kvf__batch_sizes *sizes)
{
    kvf__batcher_fill(&t->batcher, &t->data, examples, n);
    kvf__batch_sizes_raise(sizes, &t->batcher.sizes);
    return KVF_OK;
}

static kvf_status prepare_part(kvf__trainer *t, const int64_t *examples, int64_t n,
                               kvf__batch_sizes *sizes)
{
    (void)sizes;
    kvf__batcher_fill(&t->batcher, &t->data, examples, n);
    if (!t->batcher.sizes.labels) return KVF_OK;
    return kvf__pass_prepare(t->ctx, t->pass, t->batcher.sizes.tokens, t->batcher.sizes.labels);
}

/* Tokens of the steps to come; the walk begins at step 0. */
static kvf_status survey_part(kvf__trainer *t, const int64_t *examples, int64_t n,
                              kvf__batch_sizes *sizes)
{
    kvf__batch_sizes part = {0};
    bound_part(t, examples, n, &part);
    kvf__batcher_fill(&t->batcher, &t->data, examples, n);
    sizes->tokens += part.tokens;
    if (t->batcher.sizes.labels) sizes->common_tokens += t->batcher.sizes.tokens;
    return KVF_OK;
}

kvf_status kvf__trainer_survey(kvf__trainer *t, kvf__survey *out)
{
    kvf__batch_sizes before = {0}, all = {0};
    const int64_t steps = t->steps;
    t->steps = t->step;
    kvf_status st = walk_schedule(t, true, survey_part, &before);
    t->steps = steps;
    if (!st) st = walk_schedule(t, true, survey_part, &all);
    kvf__trainer_seek_step(t);
    *out = (kvf__survey){steps - t->step, all.tokens - before.tokens,
                         all.common_tokens - before.common_tokens};
    return st;
}

/* What the head needs beside the pass. */
static kvf_status take_head_memory(kvf__trainer *t, int64_t labels)
{
    if (t->n_jobs) KVF_TRY(kvf__jobs_prepare(t, labels));
    return t->head ? kvf__head_prepare(t->ctx, t->head, labels) : KVF_OK;
}

kvf_status kvf__trainer_prepare_batches(kvf__trainer *t, kvf__pass_limits *limits)
{
    const kvf__batch_sizes least = {.rows = 1, .tokens = 1, .labels = 1, .row_len = 1};
    kvf__batch_sizes bounds = {0}, sizes = {0};
    bool by_rows = t->options.prefix_dropout_per_row; /* then rows share nothing they could see */
    const kvf__batch_rules rules = {.causal = kvf__model_desc(t->base->model)->causal,
                                    .share = !strcmp(t->options.share_prefixes, "auto") &&
                                             !by_rows && !(t->options.base_dropout > 0),
                                    .infix = t->id.infix};
    KVF_TRY(kvf__ranks_prepare(t));
    KVF_TRY(walk_schedule(t, true, bound_part, &bounds));
    if (t->ranks) KVF_TRY(walk_schedule(t, false, bound_part, &bounds)); /* terms are of all rows */
    KVF_TRY(
        kvf__batcher_init(t->ctx, &t->batcher, rules, bounds.rows, bounds.tokens, bounds.labels));
    KVF_TRY(walk_schedule(t, true, measure_part, &sizes));
    if (t->ranks) kvf__batch_sizes_raise(&sizes, &least); /* a rank may never get a row */
    *limits = kvf__limits_for(&sizes, t->id.P, true);
    limits->recompute = t->options.recompute ||
                        (t->options.stream_layers &&
                         !kvf__train_option_given(&t->options, "recompute"));
    limits->row_dropout = by_rows;
    limits->infix = t->id.infix;
    limits->base_dropout = t->options.base_dropout > 0;
    limits->soft = t->soft.k;
    if (t->soft.k) KVF_TRY(kvf__teacher_reserve(t->ctx, &t->soft, sizes.labels));
    KVF_TRY(take_head_memory(t, sizes.labels));
    return kvf__retention_prepare(t);
}

/* Leaves the sampler at step 0. */
static kvf_status take_pass(kvf__trainer *t)
{
    kvf__batch_sizes sizes = {0};
    kvf__pass_limits limits;
    KVF_TRY(kvf__trainer_prepare_batches(t, &limits));
    KVF_TRY(kvf__pass_create(t->ctx, t->base->model, &limits, &t->pass));
    return walk_schedule(t, true, prepare_part, &sizes);
}

void kvf__trainer_seek_step(kvf__trainer *t)
{
    rewind_samplers(t);
    kvf__base_kl_seek_step(t);
    for (int64_t step = 0; step < t->step; step++) {
        int64_t n;
        kvf__jobs_enter(t, step);
        kvf__sampler_next(&t->sampler, &n, &t->epoch_end);
        kvf__jobs_leave(t, step);
    }
}

kvf_status kvf__trainer_prepare(kvf__trainer *t)
{
    KVF_TRY(take_pass(t));
    kvf__trainer_seek_step(t);
    return KVF_OK;
}
