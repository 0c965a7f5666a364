/* Steps of several runs in one pass. Every run draws its own rows, emits its own prefix and takes
 * its own optimizer step, as it does alone; only the base is run once for all of them: their
 * batches, joined, are its batch, a section each.
 *
 * Each run's loss is divided by its own terms, so its gradient is that of the run alone; what
 * differs is the order in which f32 products are summed beside other rows. */
#include "sweep_int.h"

#include <math.h>
#include <string.h>

/* ---- looking ahead --------------------------------------------------------------------------- */

typedef kvf_status visit_fn(kvf__crew *crew, const kvf__batch_sizes *part, kvf__batch_sizes *most);

static void add_sizes(kvf__batch_sizes *sum, const kvf__batch_sizes *by)
{
    sum->rows += by->rows;
    sum->tokens += by->tokens;
    sum->labels += by->labels;
    sum->lead_tokens += by->lead_tokens;
    if (by->row_len > sum->row_len) sum->row_len = by->row_len;
    if (by->lead_len > sum->lead_len) sum->lead_len = by->lead_len;
}

/* The parts of one step: all first ones, all second ones, ... */
static kvf_status visit_step(kvf__crew *crew, visit_fn *visit, kvf__batch_sizes *most)
{
    for (bool more = true; more;) {
        kvf__batch_sizes part = {0};
        more = false;
        for (size_t i = 0; i < crew->n; i++) {
            kvf__member *m = &crew->member[i];
            if (!kvf__trainer_fill_part(m->trainer, &m->drawn)) continue;
            more = true;
            if (m->trainer->batcher.sizes.labels) add_sizes(&part, &m->trainer->batcher.sizes);
        }
        if (part.labels) KVF_TRY(visit(crew, &part, most));
    }
    return KVF_OK;
}

/* All steps to come, as they are if no run leaves early. */
static kvf_status walk(kvf__crew *crew, visit_fn *visit, kvf__batch_sizes *most)
{
    kvf_status st = KVF_OK;
    bool last, more = true;
    for (size_t i = 0; i < crew->n; i++)
        kvf__trainer_reach_step(crew->member[i].trainer);
    for (int64_t done = 0; more && !st; done++) {
        more = false;
        for (size_t i = 0; i < crew->n; i++) {
            kvf__member *m = &crew->member[i];
            m->drawn = (kvf__drawn){0};
            if (m->trainer->step + done >= m->trainer->steps) continue;
            m->drawn.examples = kvf__sampler_next(&m->trainer->sampler, &m->drawn.n, &last);
            more = true;
        }
        st = visit_step(crew, visit, most);
    }
    for (size_t i = 0; i < crew->n; i++)
        kvf__trainer_reach_step(crew->member[i].trainer);
    return st;
}

static kvf_status measure_part(kvf__crew *crew, const kvf__batch_sizes *part,
                               kvf__batch_sizes *most)
{
    (void)crew;
    kvf__batch_sizes_raise(most, part);
    return KVF_OK;
}

static kvf_status prepare_part(kvf__crew *crew, const kvf__batch_sizes *part,
                               kvf__batch_sizes *most)
{
    (void)most;
    return kvf__pass_prepare(crew->ctx, crew->pass, part->tokens, part->labels);
}

/* ---- making one ------------------------------------------------------------------------------ */

static kvf_status take_members(kvf__crew *crew, kvf__trainer *const *trainers, int64_t *P,
                               bool *recompute)
{
    for (size_t i = 0; i < crew->n; i++) {
        kvf__pass_limits alone;
        crew->member[i].trainer = trainers[i];
        KVF_TRY(kvf__trainer_prepare_batches(trainers[i], &alone));
        if (alone.P > *P) *P = alone.P;
        *recompute = *recompute || alone.recompute;
    }
    return KVF_OK;
}

static kvf_status take_memory(kvf__crew *crew, const kvf__batch_sizes *most, int64_t C)
{
    size_t n = crew->n, labels = (size_t)most->labels;
    KVF_TRY(kvf__joined_init(crew->ctx, &crew->joined, most->rows, most->tokens, most->labels));
    KVF_TRY(kvf__alloc_array(crew->ctx, n, sizeof *crew->section, &crew->section));
    KVF_TRY(kvf__alloc_array(crew->ctx, n, sizeof *crew->grads, &crew->grads));
    KVF_TRY(kvf__alloc_array(crew->ctx, n, sizeof *crew->whose, &crew->whose));
    if (!crew->own_heads) return KVF_OK;
    return kvf__alloc_array(crew->ctx, labels * (size_t)C, sizeof *crew->dhidden, &crew->dhidden);
}

static kvf_status take_pass(kvf__crew *crew, kvf__trainer *const *trainers)
{
    kvf__model *model = trainers[0]->base->model;
    kvf__batch_sizes most = {0};
    int64_t P = 0;
    bool recompute = false;
    KVF_TRY(take_members(crew, trainers, &P, &recompute));
    KVF_TRY(walk(crew, measure_part, &most));
    kvf__pass_limits limits = kvf__limits_for(&most, P, true);
    limits.sections = (int64_t)crew->n;
    limits.recompute = recompute;
    KVF_TRY(kvf__pass_create(crew->ctx, model, &limits, &crew->pass));
    KVF_TRY(take_memory(crew, &most, kvf__model_desc(model)->C));
    return walk(crew, prepare_part, &most);
}

kvf_status kvf__crew_init(kvf_ctx *ctx, kvf__trainer *const *trainers, size_t n, kvf__crew *out)
{
    kvf__crew crew = {.ctx = ctx, .n = n, .own_heads = kvf__trainer_has_own_head(trainers[0])};
    kvf_status st = kvf__alloc_array(ctx, n, sizeof *crew.member, &crew.member);
    if (!st) st = take_pass(&crew, trainers);
    if (st)
        kvf__crew_done(&crew);
    else
        *out = crew;
    return st;
}

void kvf__crew_done(kvf__crew *crew)
{
    kvf__pass_free(crew->pass);
    kvf__joined_done(&crew->joined);
    kvf__free(crew->member);
    kvf__free(crew->section);
    kvf__free(crew->grads);
    kvf__free(crew->whose);
    kvf__free(crew->dhidden);
    *crew = (kvf__crew){0};
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* The rows in a member's batcher become a section of the batch. */
static void board(kvf__crew *crew, size_t index)
{
    kvf__member *m = &crew->member[index];
    const kvf__trainer *t = m->trainer;
    int64_t s = crew->n_sections++;
    crew->whose[s] = index;
    crew->section[s] = (kvf__section){.rows = t->batcher.batch.n_rows,
                                      .prefix = t->shown,
                                      .vectors = t->emitted.vectors,
                                      .position_start = t->id.position_start,
                                      .loss_scale = m->drawn.scale,
                                      .loss_sum = &m->loss_sum};
    m->loss_sum = 0;
    crew->grads[s] = (kvf__grads){.prefix = t->gradient.prefix, .vectors = t->gradient.vectors};
    kvf__joined_add(&crew->joined, &t->batcher.batch);
}

/* The next part of every step; false if there is none. */
static bool next_part(kvf__crew *crew)
{
    bool any = false;
    kvf__joined_clear(&crew->joined);
    crew->n_sections = 0;
    for (size_t i = 0; i < crew->n; i++) {
        kvf__member *m = &crew->member[i];
        if (!m->trainer || m->status || !kvf__trainer_step_part(m->trainer, &m->drawn)) continue;
        any = true;
        if (m->trainer->batcher.batch.n_labels) board(crew, i);
    }
    return any;
}

/* Ends a run, and keeps its line: the others' may replace the context's. */
static void fail_member(kvf__crew *crew, kvf__member *m, kvf_status status)
{
    m->status = status;
    snprintf(m->line, sizeof m->line, "%s", kvf_ctx_error(crew->ctx));
}

static kvf_status base_losses(kvf__crew *crew)
{
    double all = 0;
    KVF_TRY(kvf__pass_lm_loss(crew->ctx, crew->pass, true, 1, &all, NULL));
    for (int64_t s = 0; s < crew->n_sections; s++) {
        kvf__member *m = &crew->member[crew->whose[s]];
        m->drawn.loss_sum += m->loss_sum;
        if (isfinite(m->loss_sum)) continue;
        fail_member(crew, m,
                    kvf__fail(crew->ctx, KVF_ENUMERIC,
                              "loss of the batch is %g, expected a finite number", m->loss_sum));
    }
    return KVF_OK;
}

/* A head that fails leaves zeros: its rows go on through the pass, its step is not taken. */
static kvf_status head_losses(kvf__crew *crew)
{
    const float *hidden = NULL;
    int64_t at = 0;
    KVF_TRY(kvf__pass_hidden(crew->ctx, crew->pass, &hidden));
    for (int64_t s = 0; s < crew->n_sections; s++) {
        kvf__member *m = &crew->member[crew->whose[s]];
        int64_t C = kvf__model_desc(m->trainer->base->model)->C;
        int64_t n = m->trainer->batcher.batch.n_labels;
        double sum = 0;
        kvf_status st = kvf__trainer_head_loss(m->trainer, hidden + at * C, m->drawn.scale, &sum,
                                               crew->dhidden + at * C);
        if (st && st != KVF_ENUMERIC) return st;
        if (st) {
            fail_member(crew, m, st);
            memset(crew->dhidden + at * C, 0, (size_t)(n * C) * sizeof *crew->dhidden);
        }
        m->drawn.loss_sum += sum;
        at += n;
    }
    return kvf__pass_hidden_grad(crew->ctx, crew->pass, crew->dhidden);
}

static kvf_status run_part(kvf__crew *crew)
{
    const kvf__input input = {
        .batch = &crew->joined.batch, .sections = crew->section, .n_sections = crew->n_sections};
    if (!crew->n_sections) return KVF_OK;
    KVF_TRY(kvf__pass_fwd(crew->ctx, crew->pass, &input));
    KVF_TRY(crew->own_heads ? head_losses(crew) : base_losses(crew));
    return kvf__pass_bwd(crew->ctx, crew->pass, &(kvf__grads){.sections = crew->grads});
}

/* From the waist on every run is alone again. */
static kvf_status end_step(kvf__crew *crew, kvf__member *m)
{
    kvf_status st = m->status;
    if (st) kvf__fail(crew->ctx, st, "%s", m->line);
    m->status = KVF_OK;
    st = kvf__trainer_step_end(m->trainer, &m->drawn, st);
    if (st == KVF_ENUMERIC) fail_member(crew, m, st);
    return st == KVF_ENUMERIC ? KVF_OK : st;
}

kvf_status kvf__crew_step(kvf__crew *crew)
{
    for (size_t i = 0; i < crew->n; i++) {
        kvf__member *m = &crew->member[i];
        if (m->trainer) KVF_TRY(kvf__trainer_step_begin(m->trainer, &m->drawn));
    }
    while (next_part(crew))
        KVF_TRY(run_part(crew));
    for (size_t i = 0; i < crew->n; i++)
        if (crew->member[i].trainer) KVF_TRY(end_step(crew, &crew->member[i]));
    return KVF_OK;
}
