/* One optimizer step, the only place where rows, encoder and base meet. Parts that a run does not
 * have do nothing: several tasks, several processes, prefix dropout, a teacher, KL to the base,
 * guards. The called functions are in step_rows.c (rows), tuned.c (prefix), ranks_step.c
 * (processes) and step_guard.c (guards). */
#include "trainer.h"

/* Adds the time since the mark to a part of the step. */
static void lap(kvf__trainer *t, kvf__step_part part)
{
    double now = kvf__clock();
    t->timer.spent[part] += now - t->timer.mark;
    t->timer.mark = now;
}

/* Adds the loss of the batch, and leaves its gradient where the backward pass begins. */
static kvf_status loss(kvf__trainer *t, kvf__step_rows *rows)
{
    kvf__loss how = {.head = t->rows.now->head,
                     .gradient = true,
                     .scale = rows->scale,
                     .step = t->run.progress.step};
    kvf__soft_targets targets;
    double part = 0;
    if (t->rows.teacher.k) {
        targets = kvf__teacher_targets(&t->rows.teacher, &t->rows.batcher.batch);
        how.teacher = &targets;
    }
    kvf_status st = kvf__pass_loss(t->run.ctx, t->pass, &how, &part);
    if (!st) rows->loss_sum += part;
    return st;
}

kvf_status kvf__step_begin(kvf__trainer *t, kvf__step_rows *rows)
{
    const kvf__feed *feed = t->rows.feed;
    *rows = (kvf__step_rows){0};
    t->timer.mark = kvf__clock();
    rows->examples = kvf__rows_draw(&t->run, &t->rows, t->run.progress.step, &rows->n);
    KVF_TRY(kvf__tuned_emit(&t->run, &t->tuned));
    if (feed && feed->renew)
        KVF_TRY(feed->renew(feed->user, &t->run, &t->rows, t->tuned.emitted.prefix, rows->examples,
                            rows->n));
    kvf__step_rows_count(&t->run, &t->rows, rows);
    KVF_TRY(kvf__ranks_send(&t->run, &t->tuned));
    kvf__tuned_show(&t->run, &t->tuned, &t->rows);
    lap(t, KVF__STEP_ENCODER);
    return KVF_OK;
}

bool kvf__step_next(kvf__trainer *t, kvf__step_rows *rows)
{
    const bool any = kvf__step_rows_next(&t->run, &t->rows, rows);
    if (any) lap(t, KVF__STEP_BATCH);
    return any;
}

/* rows -> encoder forward -> base forward -> loss -> base backward -> encoder backward -> clip
 * -> update
 *
 * The encoder runs once each way. The base runs once per part of the rows (--grad-accum); the
 * gradients of prefix and head are summed over the parts, and each part's loss is weighted by the
 * terms of the whole step. */
kvf_status kvf__trainer_step(kvf__trainer *t)
{
    kvf_ctx *ctx = t->run.ctx;
    kvf__tuned *tuned = &t->tuned;
    kvf__step_rows rows;
    bool take;

    KVF_TRY(kvf__step_begin(t, &rows));                 /* draw rows; encoder forward: the prefix */
    kvf_status st = kvf__ranks_refresh(&t->run, tuned); /* from other processes; does nothing alone
                                                         */
    while (!st && kvf__step_next(t, &rows)) {           /* fill the batch with a part of the rows */
        const kvf__batch *batch = &t->rows.batcher.batch;
        kvf__input input = {.batch = batch,
                            .condition = tuned->condition,
                            .row_dropout = &tuned->row_dropout,
                            .base_dropout = &tuned->base_dropout};
        kvf__grads grads = {.prefix = tuned->backward,
                            .vectors = tuned->gradient.vectors,
                            .block = tuned->base != NULL};
        if (!batch->n_labels) continue;
        kvf__ranks_watch(t->run.ranks, rows.done >= rows.n, &grads);

        kvf__states_enter(t->states, &input, false); /* layer to start from, usually 0 */
        st = kvf__pass_fwd(ctx, t->pass, &input);    /* frozen base forward */
        if (!st) kvf__run_keep_states(&t->run, t->states, &input);
        if (!st)
            st = loss(t, &rows);                           /* loss from head and labels, or a
                                                            * teacher */
        if (!st) st = kvf__pass_bwd(ctx, t->pass, &grads); /* backward to the prefix */
        t->timer.mark = kvf__clock();                      /* the pass measures its own time */
    }
    kvf__beside_bwd(tuned);
    st = kvf__ranks_sum(&t->run, tuned, &rows, st);    /* sum over all processes; does nothing alone
                                                        */
    KVF_TRY(kvf__step_gradients(t, &rows, st, &take)); /* encoder backward, norm, guards */
    return kvf__step_update(t, take);                  /* clip, AdamW; count the step */
}

/* Computes the gradient of every parameter from that of the prefix, and their norm. */
static kvf_status finish_gradients(kvf__trainer *t)
{
    KVF_TRY(kvf__tuned_bwd(&t->run, &t->tuned, &t->rows));
    lap(t, KVF__STEP_ENCODER_BWD);
    t->stepper.grad_norm = kvf__grad_norm(&t->tuned.steps);
    lap(t, KVF__STEP_CLIP);
    return kvf__step_check_gradient(&t->run, &t->stepper, &t->tuned.steps);
}

kvf_status kvf__step_gradients(kvf__trainer *t, const kvf__step_rows *rows, kvf_status st,
                               bool *take)
{
    kvf__progress *progress = &t->run.progress;
    *take = false;
    if (kvf__ranks_follows(t->run.ranks)) return st;
    progress->train_loss = rows->terms ? rows->loss_sum / (double)rows->terms : 0;
    t->stepper.lr = t->run.options.lr *
                    kvf__schedule_factor(&t->stepper.schedule, progress->step + 1);
    st = kvf__base_kl_step(&t->run, t->retention, &t->tuned, st, &progress->kl_to_base);
    if (!st) st = finish_gradients(t);
    return kvf__step_guard(&t->run, &t->stepper, &t->tuned.params, st, take);
}

static kvf_status update(kvf__trainer *t, double factor)
{
    const kvf__stepper *stepper = &t->stepper;
    kvf__adamw_step(&t->stepper.adamw, &t->tuned.steps, stepper->lr, factor);
    if (!t->tuned.encoder) return KVF_OK;
    return kvf__encoder_take_step(t->run.ctx, t->tuned.encoder,
                                  1 - stepper->lr * stepper->adamw.weight_decay);
}

kvf_status kvf__step_update(kvf__trainer *t, bool take)
{
    double factor = kvf__clip_factor(t->stepper.grad_norm, t->run.options.clip);
    if (take) KVF_TRY(update(t, factor));
    if (take && t->tuned.base) KVF_TRY(kvf__model_refresh(t->run.ctx, t->run.base->model));
    if (take) lap(t, KVF__STEP_ADAMW);
    t->run.progress.step++;
    return KVF_OK;
}

size_t kvf__trainer_timings(const kvf__trainer *t, kvf__timing *out, size_t max)
{
    static const char *const NAMES[KVF__STEP_PARTS] = {
#define KVF__STEP_PART_NAME(name, text) text,
        KVF__STEP_PART_LIST(KVF__STEP_PART_NAME)
#undef KVF__STEP_PART_NAME
    };
    size_t n = kvf__pass_timings(t->pass, out, max);
    for (size_t i = 0; i < KVF__STEP_PARTS; i++, n++)
        if (n < max) out[n] = (kvf__timing){.name = NAMES[i], .seconds = t->timer.spent[i]};
    return n;
}
