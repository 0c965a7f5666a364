/* How long a run is, and a walk over the schedule of its steps before the first one is taken: the
 * sizes of all batches to come decide memory and primitives, so that a step allocates nothing. */
#include "trainer.h"

#include <string.h>

static int64_t steps_of(kvf__sampler *sampler, int64_t epochs)
{
    int64_t steps = 0, n;
    bool last = false;
    for (int64_t epoch = 0; epoch < epochs; steps++) {
        kvf__sampler_next(sampler, &n, &last);
        epoch += last;
    }
    kvf__sampler_rewind(sampler);
    return steps;
}

static kvf_status make_samplers(kvf__trainer *t)
{
    const kvf_train_options *o = &t->options;
    for (size_t i = 0; i < t->rows.n; i++) {
        kvf__train_task *task = &t->rows.task[i];
        KVF_TRY(kvf__sampler_init(t->ctx, &task->sampler, &task->data, o->shuffle, o->seed,
                                  o->batch_tokens ? 0 : o->batch_size, o->batch_tokens));
        if (!strcmp(o->group_by, "prefix"))
            KVF_TRY(kvf__sampler_group_by_common(t->ctx, &task->sampler));
        t->rows.epoch_steps += steps_of(&task->sampler, 1);
    }
    return KVF_OK;
}

/* With --batch-tokens epochs differ in steps: of one task they are counted. */
static int64_t steps_in_all(kvf__trainer *t)
{
    const kvf_train_options *o = &t->options;
    if (o->steps || kvf__train_option_given(o, "steps")) return o->steps;
    if (kvf__tasks_are_named(t)) return t->rows.epoch_steps * o->epochs;
    return steps_of(&t->rows.task->sampler, o->epochs);
}

kvf_status kvf__trainer_lengths(kvf__trainer *t)
{
    kvf_train_options *o = &t->options;
    KVF_TRY(make_samplers(t));
    o->steps = t->progress.steps = steps_in_all(t);
    if (!o->schedule_steps) o->schedule_steps = t->progress.steps; /* no steps: --resume decides */
    KVF_TRY(kvf__schedule_init(t->ctx, o->schedule, o->warmup, o->schedule_steps,
                               &t->stepper.schedule));
    if (t->progress.steps > o->schedule_steps && t->stepper.schedule.kind != KVF_SCHEDULE_CONSTANT)
        return kvf__fail(t->ctx, KVF_EUSAGE,
                         "--steps %lld is past the %s schedule's length of %lld steps, fixed when "
                         "the run was created",
                         (long long)t->progress.steps,
                         o->schedule == KVF_SCHEDULE_COSINE ? "cosine" : "linear",
                         (long long)o->schedule_steps);
    return KVF_OK;
}

/* What a walk over the run's own schedule does with the rows of a part of a step. */
typedef kvf_status walk_fn(kvf__trainer *t, const int64_t *examples, int64_t n,
                           kvf__batch_sizes *sizes);

/* own: of rows that other ranks compute nothing is seen. */
static kvf_status walk_schedule(kvf__trainer *t, bool own, walk_fn *visit, kvf__batch_sizes *sizes)
{
    kvf_status st = KVF_OK;
    kvf__rows_rewind(t);
    for (int64_t step = 0; !st && step < t->progress.steps; step++) {
        int64_t n;
        const int64_t *examples = kvf__rows_draw(t, step, &n);
        if (own) kvf__ranks_rows(t, &examples, &n);
        int64_t part_rows = (n + t->options.grad_accum - 1) / t->options.grad_accum;
        for (int64_t first = 0, part; !st && first < n; first += part) {
            part = kvf__whole_groups(&t->rows.now->data, examples + first, n - first, part_rows);
            st = visit(t, examples + first, part, sizes);
        }
    }
    kvf__rows_rewind(t);
    return st;
}

/* Upper bounds, from lengths alone. */
static kvf_status bound_part(kvf__trainer *t, const int64_t *examples, int64_t n,
                             kvf__batch_sizes *sizes)
{
    kvf__batch_sizes part = {.rows = n};
    for (int64_t i = 0; i < n; i++) {
        part.tokens += kvf__example_length(&t->rows.now->data, examples[i]);
        part.labels += kvf__example_labels(&t->rows.now->data, examples[i]);
    }
    kvf__batch_sizes_raise(sizes, &part);
    return KVF_OK;
}

static kvf_status measure_part(kvf__trainer *t, const int64_t *examples, int64_t n,
                               kvf__batch_sizes *sizes)
{
    kvf__batcher_fill(&t->rows.batcher, &t->rows.now->data, examples, n);
    kvf__batch_sizes_raise(sizes, &t->rows.batcher.sizes);
    return KVF_OK;
}

static kvf_status prepare_part(kvf__trainer *t, const int64_t *examples, int64_t n,
                               kvf__batch_sizes *sizes)
{
    (void)sizes;
    kvf__batcher_fill(&t->rows.batcher, &t->rows.now->data, examples, n);
    if (!t->rows.batcher.sizes.labels) return KVF_OK;
    return kvf__pass_prepare(t->ctx, t->pass, t->rows.batcher.sizes.tokens,
                             t->rows.batcher.sizes.labels);
}

/* Tokens of the steps to come; the walk begins at step 0. */
static kvf_status survey_part(kvf__trainer *t, const int64_t *examples, int64_t n,
                              kvf__batch_sizes *sizes)
{
    kvf__batch_sizes part = {0};
    bound_part(t, examples, n, &part);
    kvf__batcher_fill(&t->rows.batcher, &t->rows.now->data, examples, n);
    sizes->tokens += part.tokens;
    if (t->rows.batcher.sizes.labels) sizes->common_tokens += t->rows.batcher.sizes.tokens;
    return KVF_OK;
}

kvf_status kvf__trainer_survey(kvf__trainer *t, kvf__survey *out)
{
    kvf__batch_sizes before = {0}, all = {0};
    const int64_t steps = t->progress.steps;
    t->progress.steps = t->progress.step;
    kvf_status st = walk_schedule(t, true, survey_part, &before);
    t->progress.steps = steps;
    if (!st) st = walk_schedule(t, true, survey_part, &all);
    kvf__rows_seek(t);
    *out = (kvf__survey){steps - t->progress.step, all.tokens - before.tokens,
                         all.common_tokens - before.common_tokens};
    return st;
}

static kvf_status prepare_heads(kvf__trainer *t, int64_t labels)
{
    for (size_t i = 0; i < t->rows.n; i++)
        if (t->rows.task[i].head) KVF_TRY(kvf__head_prepare(t->ctx, t->rows.task[i].head, labels));
    return KVF_OK;
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
    KVF_TRY(kvf__batcher_init(t->ctx, &t->rows.batcher, rules, bounds.rows, bounds.tokens,
                              bounds.labels));
    KVF_TRY(walk_schedule(t, true, measure_part, &sizes));
    if (t->ranks) kvf__batch_sizes_raise(&sizes, &least); /* a rank may never get a row */
    *limits = kvf__limits_for(&sizes, t->id.P, true);
    limits->recompute = t->options.recompute ||
                        (t->options.stream_layers &&
                         !kvf__train_option_given(&t->options, "recompute"));
    limits->row_dropout = by_rows;
    limits->infix = t->id.infix;
    limits->base_dropout = t->options.base_dropout > 0;
    limits->soft = t->teacher.k;
    if (t->teacher.k) KVF_TRY(kvf__teacher_reserve(t->ctx, &t->teacher, sizes.labels));
    KVF_TRY(prepare_heads(t, sizes.labels));
    return kvf__retention_prepare(t);
}

/* Leaves the sampler at step 0. */
static kvf_status make_pass(kvf__trainer *t)
{
    kvf__batch_sizes sizes = {0};
    kvf__pass_limits limits;
    KVF_TRY(kvf__trainer_prepare_batches(t, &limits));
    KVF_TRY(kvf__pass_create(t->ctx, t->base->model, &limits, &t->pass));
    return walk_schedule(t, true, prepare_part, &sizes);
}

kvf_status kvf__trainer_prepare(kvf__trainer *t)
{
    KVF_TRY(make_pass(t));
    kvf__rows_seek(t);
    return KVF_OK;
}
