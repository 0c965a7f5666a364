/* One optimizer step, the only place where rows, encoder and base meet.
 *
 * What a run does not have (several tasks, several processes, dropout of the prefix, a teacher, KL
 * to the base, guards) does nothing inside the parts that are called here: rows in step_rows.c, the
 * prefix in tuned.c, processes in ranks_step.c, guards in step_guard.c. */
#include "trainer.h"

/* Adds the loss of the batch; its gradient is left where the backward pass begins. */
static kvf_status loss(kvf__trainer *t, kvf__step_rows *rows)
{
    kvf__loss how = {.head = t->rows.now->head,
                     .gradient = true,
                     .scale = rows->scale,
                     .step = t->progress.step};
    kvf__soft_targets targets;
    double part = 0;
    if (t->teacher.k) {
        targets = kvf__teacher_targets(&t->teacher, &t->rows.batcher.batch);
        how.teacher = &targets;
    }
    kvf_status st = kvf__pass_loss(t->ctx, t->pass, &how, &part);
    if (!st) rows->loss_sum += part;
    return st;
}

/* rows -> encoder forward -> base forward -> loss -> base backward -> encoder backward -> clip
 * -> update
 *
 * The encoder runs once each way. The base runs once per part of the rows (--grad-accum); the
 * gradients of prefix and head are summed over the parts, and each part's loss is weighted by the
 * terms of the whole step. */
kvf_status kvf__trainer_step(kvf__trainer *t)
{
    kvf__tuned *tuned = &t->tuned;
    kvf__step_rows rows;
    bool take;

    KVF_TRY(kvf__step_rows_begin(t, &rows));       /* of which task, which rows */
    KVF_TRY(kvf__tuned_fwd(t));                    /* encoder forward: the prefix */
    kvf_status st = kvf__ranks_refresh(t);         /* what other processes have; alone nothing */
    while (!st && kvf__step_rows_next(t, &rows)) { /* a part of them as a batch */
        const kvf__batch *batch = &t->rows.batcher.batch;
        kvf__input input = {.batch = batch,
                            .condition = tuned->condition,
                            .row_dropout = &tuned->row_dropout,
                            .base_dropout = &tuned->base_dropout};
        kvf__grads grads = {.prefix = tuned->gradient.prefix,
                            .vectors = tuned->gradient.vectors,
                            .block = tuned->base != NULL};
        if (!batch->n_labels) continue;
        kvf__ranks_watch(t, rows.done >= rows.n, &grads);

        kvf__states_enter(t->states, &input, false); /* from where on; 0 as a rule */
        st = kvf__pass_fwd(t->ctx, t->pass, &input); /* the frozen base */
        if (!st) kvf__trainer_keep_states(t, t->states, &input);
        if (!st) st = loss(t, &rows);                         /* head and labels, or a teacher */
        if (!st) st = kvf__pass_bwd(t->ctx, t->pass, &grads); /* back to the prefix */
        t->timer.mark = kvf__clock();                         /* the pass books its own time */
    }
    st = kvf__ranks_sum(t, &rows, st);                 /* over all processes; alone nothing */
    KVF_TRY(kvf__step_gradients(t, &rows, st, &take)); /* encoder backward, norm, guards */
    return kvf__step_update(t, take);                  /* clip, AdamW; the step counts */
}

/* From the gradient of what the base saw to that of every parameter, and its norm. */
static kvf_status finish_gradients(kvf__trainer *t)
{
    KVF_TRY(kvf__tuned_bwd(t));
    t->stepper.grad_norm = kvf__grad_norm(&t->tuned.steps);
    kvf__step_lap(t, KVF__STEP_CLIP);
    return kvf__trainer_check_gradient(t);
}

kvf_status kvf__step_gradients(kvf__trainer *t, const kvf__step_rows *rows, kvf_status st,
                               bool *take)
{
    *take = false;
    if (kvf__ranks_follows(t)) return st;
    t->progress.train_loss = rows->terms ? rows->loss_sum / (double)rows->terms : 0;
    t->stepper.lr = t->options.lr *
                    kvf__schedule_factor(&t->stepper.schedule, t->progress.step + 1);
    st = kvf__base_kl_step(t, st);
    if (!st) st = finish_gradients(t);
    return kvf__trainer_guard(t, st, take);
}

static kvf_status update(kvf__trainer *t, double factor)
{
    const kvf__stepper *stepper = &t->stepper;
    kvf__adamw_step(&t->stepper.adamw, &t->tuned.steps, stepper->lr, factor);
    if (!t->tuned.encoder) return KVF_OK;
    return kvf__encoder_take_step(t->ctx, t->tuned.encoder,
                                  1 - stepper->lr * stepper->adamw.weight_decay);
}

kvf_status kvf__step_update(kvf__trainer *t, bool take)
{
    double factor = kvf__clip_factor(t->stepper.grad_norm, t->options.clip);
    if (take) KVF_TRY(update(t, factor));
    if (take && t->tuned.base) KVF_TRY(kvf__model_refresh(t->ctx, t->base->model));
    if (take) kvf__step_lap(t, KVF__STEP_ADAMW);
    t->progress.step++;
    return KVF_OK;
}

/* ---- time ------------------------------------------------------------------------------------ */

void kvf__step_lap(kvf__trainer *t, kvf__step_part part)
{
    double now = kvf__clock();
    t->timer.spent[part] += now - t->timer.mark;
    t->timer.mark = now;
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
