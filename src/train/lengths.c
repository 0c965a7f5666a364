/* Sets the length of a run, and walks over the schedule of its steps before the first one. The
 * sizes of all batches determine memory and primitives, so that a step allocates nothing. */
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

/* Sets --batch-tokens auto. Every step reads each frozen weight once in each direction, and the
 * trained values with their moments, whatever its size. That takes about as long as 28 tokens, plus
 * one token for every 112th of its multiply-adds that is trained. With twenty times as many tokens
 * it takes a twentieth of the step. More tokens would cost memory for little gain. */
static void choose_batch_tokens(kvf__trainer *t)
{
    const double work = kvf__model_work(t->run.base->model, 0, 0, (kvf__work_rows){1, 1}, false),
                 trained = (double)kvf__params_values(&t->tuned.params);
    const int64_t tokens = (int64_t)(20 * (28 + 112 * trained / work)), unit = 64;
    t->run.options.batch_tokens = (tokens + unit - 1) / unit * unit;
    kvf__run_note(&t->run, "--batch-tokens auto: %lld tokens per step",
                  (long long)t->run.options.batch_tokens);
}

static kvf_status make_samplers(kvf__trainer *t)
{
    const kvf_train_options *o = &t->run.options;
    for (size_t i = 0; i < t->rows.n; i++) {
        kvf__train_task *task = &t->rows.task[i];
        KVF_TRY(kvf__sampler_init(t->run.ctx, &task->sampler, &task->data, o->shuffle, o->seed,
                                  o->batch_tokens ? 0 : o->batch_size, o->batch_tokens));
        if (o->group_by_prefix) KVF_TRY(kvf__sampler_group_by_common(t->run.ctx, &task->sampler));
        t->rows.epoch_steps += steps_of(&task->sampler, 1);
    }
    return KVF_OK;
}

/* Returns the number of steps. With --batch-tokens the epochs of a single task differ in length and
 * are counted. */
static int64_t steps_in_all(kvf__trainer *t)
{
    const kvf_train_options *o = &t->run.options;
    if (o->steps || KVF__GIVEN(o, steps)) return o->steps;
    if (kvf__tasks_are_named(&t->rows)) return t->rows.epoch_steps * o->epochs;
    return steps_of(&t->rows.task->sampler, o->epochs);
}

kvf_status kvf__trainer_lengths(kvf__trainer *t)
{
    kvf_train_options *o = &t->run.options;
    if (o->batch_tokens < 0) choose_batch_tokens(t);
    KVF_TRY(make_samplers(t));
    o->steps = t->run.progress.steps = steps_in_all(t);
    if (!o->schedule_steps)
        o->schedule_steps = t->run.progress.steps; /* no steps: --resume may set them */
    KVF_TRY(kvf__schedule_init(t->run.ctx, o->schedule, o->warmup, o->schedule_steps,
                               &t->stepper.schedule));
    if (t->run.progress.steps > o->schedule_steps &&
        t->stepper.schedule.kind != KVF_SCHEDULE_CONSTANT)
        return kvf__fail(t->run.ctx, KVF_EUSAGE,
                         "--steps %lld exceeds the %s schedule's length of %lld steps, which is "
                         "fixed when the run is created",
                         (long long)t->run.progress.steps,
                         o->schedule == KVF_SCHEDULE_COSINE ? "cosine" : "linear",
                         (long long)o->schedule_steps);
    return KVF_OK;
}

void kvf__trainer_seek(kvf__trainer *t)
{
    kvf__rows_seek(&t->run, &t->rows);
    kvf__base_kl_seek_step(&t->run, t->retention);
}

/* ---- a walk over all steps ------------------------------------------------------------------- */

/* A walk over the parts of all steps from the first one on. */
typedef struct walk {
    bool own;  /* with several processes: count only rows of this one */
    bool fill; /* fill the batcher with each part */
    int64_t step;
    kvf__step_rows rows;
} walk;

static walk begin_walk(kvf__trainer *t, bool own, bool fill)
{
    kvf__rows_rewind(&t->rows);
    return (walk){.own = own, .fill = fill};
}

static bool next_part(kvf__trainer *t, walk *w)
{
    while (!(w->fill ? kvf__step_rows_peek(&t->run, &t->rows, &w->rows)
                     : kvf__step_rows_part(&t->run, &t->rows, &w->rows))) {
        if (w->step >= t->run.progress.steps) return false;
        w->rows = (kvf__step_rows){0};
        w->rows.examples = kvf__rows_draw(&t->run, &t->rows, w->step++, &w->rows.n);
        if (w->own)
            kvf__ranks_rows(t->run.ranks, &t->rows.now->data, &w->rows.examples, &w->rows.n);
    }
    return true;
}

/* Computes upper bounds of a part's batch from lengths alone. */
static kvf__batch_sizes bounds_of(const kvf__trainer *t, const kvf__step_rows *rows)
{
    kvf__batch_sizes sizes = {.rows = rows->part};
    for (int64_t i = rows->done - rows->part; i < rows->done; i++) {
        sizes.tokens += kvf__example_length(&t->rows.now->data, rows->examples[i]);
        sizes.labels += kvf__example_labels(&t->rows.now->data, rows->examples[i]);
    }
    if (t->rows.now->data.pooled) sizes.labels = sizes.tokens;
    return sizes;
}

static void raise_bounds(kvf__trainer *t, bool own, kvf__batch_sizes *bounds)
{
    for (walk w = begin_walk(t, own, false); next_part(t, &w);) {
        const kvf__batch_sizes part = bounds_of(t, &w.rows);
        kvf__batch_sizes_raise(bounds, &part);
    }
}

/* Counts the remaining steps, without those already taken. */
kvf__survey kvf__trainer_survey(kvf__trainer *t)
{
    const int64_t now = t->run.progress.step, steps = t->run.progress.steps;
    kvf__survey left = {.steps = steps - now};
    for (walk w = begin_walk(t, true, true); next_part(t, &w);) {
        if (w.step <= now) continue;
        left.tokens += bounds_of(t, &w.rows).tokens;
        if (t->rows.batcher.sizes.labels) left.computed_tokens += t->rows.batcher.sizes.tokens;
    }
    kvf__trainer_seek(t);
    return left;
}

/* ---- what steps need ------------------------------------------------------------------------- */

static kvf_status prepare_heads(kvf__trainer *t, int64_t labels)
{
    for (size_t i = 0; i < t->rows.n; i++)
        if (t->rows.task[i].head)
            KVF_TRY(kvf__head_prepare(t->run.ctx, t->rows.task[i].head, labels));
    return KVF_OK;
}

kvf_status kvf__trainer_prepare_batches(kvf__trainer *t, kvf__pass_limits *limits)
{
    const int64_t encoder = kvf__model_desc(t->run.base->model)->encoder > 0;
    const kvf__batch_sizes least = {.rows = 1,
                                    .tokens = 1,
                                    .labels = 1,
                                    .row_len = 1,
                                    .source_tokens = encoder,
                                    .source_len = encoder};
    kvf__batch_sizes bounds = {0}, sizes = {0};
    bool by_rows =
        t->run.options.prefix_dropout_per_row; /* then rows do not share a common beginning */
    const kvf__batch_rules rules = {.causal = kvf__model_desc(t->run.base->model)->block.causal,
                                    .source = encoder,
                                    .share = !t->run.options.share_off && !by_rows &&
                                             !(t->run.options.base_dropout > 0),
                                    .infix = t->run.id.infix};
    KVF_TRY(
        kvf__ranks_prepare(t->run.ctx, t->run.ranks, t->rows.total.rows, t->tuned.gradient.prefix));
    raise_bounds(t, true, &bounds);
    if (t->run.ranks)
        raise_bounds(t, false, &bounds); /* the terms are counted over the rows of all
                                          * processes */
    KVF_TRY(kvf__batcher_init(t->run.ctx, &t->rows.batcher, rules, bounds.rows, bounds.tokens,
                              bounds.labels));
    for (walk w = begin_walk(t, true, true); next_part(t, &w);)
        kvf__batch_sizes_raise(&sizes, &t->rows.batcher.sizes);
    if (t->run.ranks) kvf__batch_sizes_raise(&sizes, &least); /* a rank may have no rows at all */
    *limits = kvf__limits_for(&sizes, t->run.id.P + (t->rows.beside ? t->rows.beside->P : 0),
                              t->run.id.neurons.N, true);
    limits->recompute = t->run.options.recompute ||
                        (t->run.options.stream_layers && !KVF__GIVEN(&t->run.options, recompute));
    limits->row_dropout = by_rows;
    limits->infix = t->run.id.infix;
    limits->base_dropout = t->run.options.base_dropout > 0;
    limits->soft = t->rows.teacher.k;
    if (t->rows.teacher.k)
        KVF_TRY(kvf__teacher_reserve(t->run.ctx, &t->rows.teacher, sizes.labels));
    KVF_TRY(prepare_heads(t, sizes.labels));
    KVF_TRY(kvf__retention_prepare(&t->run, t->retention, &t->tuned, &t->rows));
    return kvf__log_weight_note(&t->run, &t->tuned, t->rows.task);
}

static kvf_status open_states(kvf__trainer *t, const kvf__pass_limits *limits)
{
    const kvf__batch_sizes *sizes = &t->rows.batcher.sizes;
    const kvf__states_run of = {&t->run, &t->rows, t->tuned.layer_mask};
    kvf__batch_sizes all = {0};
    if (!limits->lowest) return KVF_OK;
    for (walk w = begin_walk(t, true, true); next_part(t, &w);) {
        all.tokens += sizes->tokens;
        all.labels += sizes->labels;
        all.source_tokens += sizes->source_tokens;
    }
    return kvf__states_open(&of, 1, limits, &all, &t->states);
}

kvf_status kvf__trainer_prepare(kvf__trainer *t)
{
    kvf__pass_limits limits;
    const kvf__states_run of = {&t->run, &t->rows, t->tuned.layer_mask};
    const kvf__batch_sizes *sizes = &t->rows.batcher.sizes;
    KVF_TRY(kvf__trainer_prepare_batches(t, &limits));
    KVF_TRY(kvf__states_layer(&of, 1, &limits.lowest));
    KVF_TRY(kvf__pass_create(t->run.ctx, t->run.base->model, &limits, &t->pass));
    KVF_TRY(open_states(t, &limits));
    for (walk w = begin_walk(t, true, true); next_part(t, &w);) {
        if (!sizes->labels) continue;
        KVF_TRY(kvf__pass_prepare(t->run.ctx, t->pass, sizes->tokens, sizes->labels));
        KVF_TRY(kvf__pass_prepare_source(t->run.ctx, t->pass, sizes->source_tokens));
    }
    kvf__trainer_seek(t);
    return KVF_OK;
}
