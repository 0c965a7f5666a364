/* Steps of several runs in one pass. Each run draws its rows, emits its prefix and updates its
 * parameters as it does alone. Only the base runs once for all of them, on their joined batches
 * with one section each. The loss of each run is divided by its own terms, so its gradient is the
 * same as alone. Only the order differs in which f32 products are summed over more rows. */
#include "trainer.h"

#include <math.h>
#include <string.h>

/* ---- looking ahead --------------------------------------------------------------------------- */

static void add_sizes(kvf__batch_sizes *sum, const kvf__batch_sizes *by)
{
    sum->rows += by->rows;
    sum->tokens += by->tokens;
    sum->labels += by->labels;
    sum->common_tokens += by->common_tokens;
    sum->source_tokens += by->source_tokens;
    if (by->row_len > sum->row_len) sum->row_len = by->row_len;
    if (by->common_len > sum->common_len) sum->common_len = by->common_len;
    if (by->source_len > sum->source_len) sum->source_len = by->source_len;
}

/* Moves every member to its next step. */
static void seek_all(kvf__run_group *group)
{
    for (size_t i = 0; i < group->n; i++) {
        kvf__trainer_seek(group->member[i].trainer);
        group->member[i].rows = (kvf__step_rows){0};
    }
}

/* Draws the rows of a future step for all members. Returns false if all have finished. */
static bool draw_all(kvf__run_group *group, int64_t ahead)
{
    bool any = false;
    for (size_t i = 0; i < group->n; i++) {
        kvf__member *m = &group->member[i];
        const int64_t step = m->trainer->run.progress.step + ahead;
        m->rows = (kvf__step_rows){0};
        if (step >= m->trainer->run.progress.steps) continue;
        m->rows.examples = kvf__rows_draw(&m->trainer->run, &m->trainer->rows, step, &m->rows.n);
        any = true;
    }
    return any;
}

/* Computes the sizes of the next batch, assuming that no run ends early: all first parts of a step,
 * all second ones, and so on, then the next step. Returns false at the end; seek_all() rewinds. */
static bool next_sizes(kvf__run_group *group, int64_t *ahead, kvf__batch_sizes *part)
{
    for (;;) {
        bool any = false;
        *part = (kvf__batch_sizes){0};
        for (size_t i = 0; i < group->n; i++) {
            kvf__member *m = &group->member[i];
            if (!kvf__step_rows_peek(&m->trainer->run, &m->trainer->rows, &m->rows)) continue;
            any = true;
            if (m->trainer->rows.batcher.sizes.labels)
                add_sizes(part, &m->trainer->rows.batcher.sizes);
        }
        if (part->labels) return true;
        if (!any && !draw_all(group, (*ahead)++)) return false;
    }
}

/* ---- making one ------------------------------------------------------------------------------ */

static kvf_status prepare_members(kvf__run_group *group, kvf__trainer *const *trainers,
                                  kvf__pass_limits *most)
{
    for (size_t i = 0; i < group->n; i++) {
        kvf__pass_limits alone;
        group->member[i].trainer = trainers[i];
        group->runs[i] = (kvf__states_run){&trainers[i]->run, &trainers[i]->rows,
                                           trainers[i]->tuned.layer_mask};
        KVF_TRY(kvf__trainer_prepare_batches(trainers[i], &alone));
        if (alone.P > most->P) most->P = alone.P;
        if (alone.neurons > most->neurons) most->neurons = alone.neurons;
        most->recompute = most->recompute || alone.recompute;
    }
    return KVF_OK;
}

static kvf_status alloc_memory(kvf__run_group *group, const kvf__batch_sizes *most)
{
    size_t n = group->n;
    KVF_TRY(kvf__stacked_init(group->ctx, &group->stacked, most->rows, most->tokens, most->labels,
                              most->source_tokens));
    KVF_TRY(kvf__alloc_array(group->ctx, n, sizeof *group->section, &group->section));
    KVF_TRY(kvf__alloc_array(group->ctx, n, sizeof *group->grads, &group->grads));
    return kvf__alloc_array(group->ctx, n, sizeof *group->whose, &group->whose);
}

static kvf_status make_pass(kvf__run_group *group, kvf__trainer *const *trainers,
                            kvf__states **states)
{
    kvf__model *model = trainers[0]->run.base->model;
    kvf__batch_sizes most = {0}, part;
    kvf__pass_limits of = {0};
    KVF_TRY(prepare_members(group, trainers, &of));
    seek_all(group);
    for (int64_t ahead = 0; next_sizes(group, &ahead, &part);)
        kvf__batch_sizes_raise(&most, &part);
    kvf__pass_limits limits = kvf__limits_for(&most, of.P, of.neurons, true);
    limits.sections = (int64_t)group->n;
    limits.recompute = of.recompute;
    KVF_TRY(kvf__states_layer(group->runs, group->n, &limits.lowest));
    KVF_TRY(kvf__pass_create(group->ctx, model, &limits, &group->pass));
    KVF_TRY(alloc_memory(group, &most));
    if (limits.lowest) {
        KVF_TRY(kvf__states_open(group->runs, group->n, &limits, &most, states));
        group->states = *states;
    }
    seek_all(group);
    for (int64_t ahead = 0; next_sizes(group, &ahead, &part);) {
        KVF_TRY(kvf__pass_prepare(group->ctx, group->pass, part.tokens, part.labels));
        KVF_TRY(kvf__pass_prepare_source(group->ctx, group->pass, part.source_tokens));
    }
    seek_all(group);
    return KVF_OK;
}

kvf_status kvf__run_group_init(kvf_ctx *ctx, kvf__trainer *const *trainers, size_t n,
                               kvf__states **states, kvf__run_group *out)
{
    kvf__run_group group = {.ctx = ctx, .n = n, .own_heads = trainers[0]->rows.task->head != NULL};
    kvf_status st = kvf__alloc_array(ctx, n, sizeof *group.member, &group.member);
    if (!st) st = kvf__alloc_array(ctx, n, sizeof *group.runs, &group.runs);
    if (!st) st = make_pass(&group, trainers, states);
    KVF__GIVE(st, out, group, kvf__run_group_done(&group));
    return st;
}

void kvf__run_group_done(kvf__run_group *group)
{
    kvf__pass_free(group->pass);
    kvf__stacked_done(&group->stacked);
    kvf__free(group->member);
    kvf__free(group->runs);
    kvf__free(group->section);
    kvf__free(group->grads);
    kvf__free(group->whose);
    *group = (kvf__run_group){0};
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* Appends the rows in a member's batcher as a section of the batch. */
static void join_pass(kvf__run_group *group, size_t index)
{
    kvf__member *m = &group->member[index];
    const kvf__trainer *t = m->trainer;
    int64_t s = group->n_sections++;
    group->whose[s] = index;
    group->section[s] = (kvf__section){.rows = t->rows.batcher.batch.n_rows,
                                       .condition = t->tuned.condition,
                                       .loss_scale = m->rows.scale,
                                       .loss_sum = &m->loss_sum};
    m->loss_sum = 0;
    group->grads[s] = (kvf__grads){.prefix = t->tuned.gradient.prefix,
                                   .vectors = t->tuned.gradient.vectors};
    kvf__stacked_add(&group->stacked, &t->rows.batcher.batch);
}

/* Fills the batch with the next part of every member's step. Returns false if there is none. */
static bool next_part(kvf__run_group *group)
{
    bool any = false;
    kvf__stacked_clear(&group->stacked);
    group->n_sections = 0;
    for (size_t i = 0; i < group->n; i++) {
        kvf__member *m = &group->member[i];
        if (!m->trainer || m->status || !kvf__step_next(m->trainer, &m->rows)) continue;
        any = true;
        if (m->trainer->rows.batcher.batch.n_labels) join_pass(group, i);
    }
    return any;
}

/* Ends a run and copies its error line, which other members may replace in the context. */
static void fail_member(kvf__run_group *group, kvf__member *m, kvf_status status)
{
    m->status = status;
    snprintf(m->line, sizeof m->line, "%s", kvf_ctx_error(group->ctx));
}

static kvf_status base_losses(kvf__run_group *group)
{
    double all = 0;
    KVF_TRY(
        kvf__pass_loss(group->ctx, group->pass, &(kvf__loss){.gradient = true, .scale = 1}, &all));
    for (int64_t s = 0; s < group->n_sections; s++) {
        kvf__member *m = &group->member[group->whose[s]];
        m->rows.loss_sum += m->loss_sum;
        if (isfinite(m->loss_sum)) continue;
        fail_member(group, m,
                    kvf__fail(group->ctx, KVF_ENUMERIC,
                              "loss of the batch is %g, expected a finite number", m->loss_sum));
    }
    return KVF_OK;
}

/* Computes the head losses. A failed head leaves zero gradients: its rows still pass through the
 * base, but its step is not taken. */
static kvf_status head_losses(kvf__run_group *group)
{
    float *dhidden = kvf__pass_dhidden(group->pass);
    const float *hidden = NULL;
    int64_t at = 0;
    KVF_TRY(kvf__pass_hidden(group->ctx, group->pass, &hidden));
    for (int64_t s = 0; s < group->n_sections; s++) {
        kvf__member *m = &group->member[group->whose[s]];
        const kvf__trainer *t = m->trainer;
        const kvf__loss how = {.scale = m->rows.scale, .step = t->run.progress.step};
        const kvf__batch *batch = &t->rows.batcher.batch;
        int64_t C = kvf__model_desc(t->run.base->model)->C, n = batch->n_labels;
        double sum = 0;
        kvf_status st = kvf__head_loss(group->ctx, t->rows.now->head, batch, hidden + at * C, &how,
                                       &sum, dhidden + at * C);
        if (st && st != KVF_ENUMERIC) return st;
        if (st) {
            fail_member(group, m, st);
            memset(dhidden + at * C, 0, (size_t)(n * C) * sizeof *dhidden);
        }
        m->rows.loss_sum += sum;
        at += n;
    }
    return kvf__pass_hidden_grad(group->ctx, group->pass, dhidden);
}

static kvf_status run_part(kvf__run_group *group)
{
    kvf__input input = {.batch = &group->stacked.batch,
                        .sections = group->section,
                        .n_sections = group->n_sections};
    if (!group->n_sections) return KVF_OK;
    kvf__states_enter(group->states, &input, false);
    KVF_TRY(kvf__pass_fwd(group->ctx, group->pass, &input));
    kvf__run_keep_states(&group->member[group->whose[0]].trainer->run, group->states, &input);
    KVF_TRY(group->own_heads ? head_losses(group) : base_losses(group));
    return kvf__pass_bwd(group->ctx, group->pass, &(kvf__grads){.sections = group->grads});
}

/* Finishes the step of one member, from the gradient of its prefix on. */
static kvf_status end_step(kvf__run_group *group, kvf__member *m)
{
    kvf_status st = m->status;
    bool take;
    if (st) kvf__fail(group->ctx, st, "%s", m->line);
    m->status = KVF_OK;
    st = kvf__step_gradients(m->trainer, &m->rows, st, &take);
    if (!st) st = kvf__step_update(m->trainer, take);
    if (st == KVF_ENUMERIC) fail_member(group, m, st);
    return st == KVF_ENUMERIC ? KVF_OK : st;
}

kvf_status kvf__run_group_step(kvf__run_group *group)
{
    for (size_t i = 0; i < group->n; i++) {
        kvf__member *m = &group->member[i];
        if (!m->trainer) continue;
        KVF_TRY(kvf__step_begin(m->trainer, &m->rows));
    }
    while (next_part(group))
        KVF_TRY(run_part(group));
    for (size_t i = 0; i < group->n; i++)
        if (group->member[i].trainer) KVF_TRY(end_step(group, &group->member[i]));
    return KVF_OK;
}
