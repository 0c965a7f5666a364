/* One optimizer step: the only place where encoder and base meet.
 *
 *   forward    encoder -> prefix (-> dropout) -> base (-> head) -> loss
 *   backward   loss (-> head) -> base (-> dropout) -> dprefix -> encoder -> AdamW
 *
 * or, by the method's port, with vectors at the input in place of the prefix, or (block) without an
 * encoder: what the base itself publishes is stepped.
 *
 * The language model's head is part of the base, unless --train-head; that of any other task is
 * trained too. Where a teacher says what is to be learnt, the loss is KL to it. A step may be
 * computed in parts (--grad-accum): dprefix and the head's gradients are summed over them, the
 * encoder runs once each way, and the loss is weighted by its terms over the whole step (label
 * tokens, rows, words or questions), so the parts do not change what is computed. */
#include "train_int.h"

#include <string.h>

static void lap(kvf__trainer *t, kvf__step_part part)
{
    double now = kvf__clock();
    t->spent[part] += now - t->mark;
    t->mark = now;
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
        if (n < max) out[n] = (kvf__timing){.name = NAMES[i], .seconds = t->spent[i]};
    return n;
}

static int64_t count_labels(const kvf__dataset *data, const int64_t *examples, int64_t n)
{
    int64_t labels = 0;
    for (int64_t i = 0; i < n; i++)
        labels += kvf__example_labels(data, examples[i]);
    return labels;
}

/* Rows of the part that begins at `first`: questions stay whole. */
static int64_t part_rows(const kvf__trainer *t, const int64_t *examples, int64_t n, int64_t first)
{
    int64_t parts = t->options.grad_accum;
    return kvf__whole_groups(&t->data, examples + first, n - first, (n + parts - 1) / parts);
}

/* What the step's loss is a mean of. */
static int64_t count_terms(kvf__trainer *t, const int64_t *examples, int64_t n)
{
    int64_t terms = 0;
    if (kvf__head_is_lm(t->head)) return count_labels(&t->data, examples, n);
    for (int64_t first = 0, rows; first < n; first += rows) {
        rows = part_rows(t, examples, n, first);
        kvf__batcher_fill(&t->batcher, &t->data, examples + first, rows);
        terms += kvf__head_terms(t->head, &t->batcher.batch);
    }
    return terms;
}

/* The loss of a part, and its gradient left where the base's backward pass begins. */
static kvf_status part_loss(kvf__trainer *t, float scale, double *loss_sum)
{
    kvf__loss how = {.head = t->head, .gradient = true, .scale = scale, .step = t->step};
    kvf__soft_targets teacher;

    if (t->soft.k) {
        teacher = kvf__teacher_targets(&t->soft, &t->batcher.batch);
        how.teacher = &teacher;
    }
    return kvf__pass_loss(t->ctx, t->pass, &how, loss_sum);
}

bool kvf__trainer_fill_part(kvf__trainer *t, kvf__drawn *drawn)
{
    if (drawn->done >= drawn->n) return false;
    drawn->part = part_rows(t, drawn->examples, drawn->n, drawn->done);
    kvf__batcher_fill(&t->batcher, &t->data, drawn->examples + drawn->done, drawn->part);
    drawn->done += drawn->part;
    return true;
}

bool kvf__trainer_step_part(kvf__trainer *t, kvf__drawn *drawn)
{
    if (!kvf__trainer_fill_part(t, drawn)) return false;
    for (int64_t i = drawn->done - drawn->part; i < drawn->done; i++)
        t->tokens += kvf__example_length(&t->data, drawn->examples[i]);
    lap(t, KVF__STEP_BATCH);
    if (t->batcher.batch.n_labels) t->computed_tokens += t->batcher.sizes.tokens;
    return true;
}

/* Forward and backward of the rows in the batcher; adds to the gradient of what was emitted, the
 * head's and the step's loss. */
static kvf_status run_part(kvf__trainer *t, kvf__drawn *drawn)
{
    double part = 0;
    if (!t->batcher.batch.n_labels) return KVF_OK;
    kvf__input input = {.batch = &t->batcher.batch,
                        .prefix = t->shown,
                        .vectors = t->emitted.vectors,
                        .position_start = t->id.position_start,
                        .row_dropout = &t->row_dropout,
                        .base_dropout = &t->base_dropout};
    KVF_TRY(kvf__pass_fwd(t->ctx, t->pass, &input));
    KVF_TRY(part_loss(t, drawn->scale, &part));
    kvf__grads grads = {.prefix = t->gradient.prefix,
                        .vectors = t->gradient.vectors,
                        .block = kvf__trainer_trains_base(t)};
    kvf__ranks_watch(t, drawn->done >= drawn->n, &grads);
    KVF_TRY(kvf__pass_bwd(t->ctx, t->pass, &grads));
    drawn->loss_sum += part;
    t->mark = kvf__clock(); /* the pass books its own time */
    return KVF_OK;
}

/* From the prefix back to every gradient, and their norm. */
static kvf_status finish_gradients(kvf__trainer *t)
{
    kvf__trainer_mask_gradient(t);
    if (t->encoder) KVF_TRY(kvf__encoder_bwd(t->ctx, t->encoder, t->gradient));
    KVF_TRY(kvf__trainer_join(t));
    lap(t, KVF__STEP_ENCODER_BWD);
    t->grad_norm = kvf__grad_norm(&t->params);
    lap(t, KVF__STEP_CLIP);
    return kvf__trainer_check_gradient(t);
}

static kvf_status update(kvf__trainer *t)
{
    kvf__adamw_step(&t->adamw, &t->params, t->lr, kvf__clip_factor(t->grad_norm, t->options.clip));
    if (kvf__trainer_trains_base(t)) KVF_TRY(kvf__model_refresh(t->ctx, t->base->model));
    lap(t, KVF__STEP_ADAMW);
    return KVF_OK;
}

static void clear_list(const kvf__params *params)
{
    for (size_t i = 0; i < params->n; i++)
        memset(params->item[i].grad, 0, (size_t)params->item[i].n * sizeof(float));
}

static void clear_gradients(kvf__trainer *t)
{
    const kvf__emitted *d = &t->gradient;
    if (d->prefix) memset(d->prefix->kv, 0, kvf__prefix_count(d->prefix) * sizeof(float));
    if (d->vectors)
        memset(d->vectors->x, 0, (size_t)(d->vectors->P * d->vectors->C) * sizeof(float));
    const kvf__params *head = kvf__trainer_head_params(t);
    if (kvf__trainer_trains_base(t)) clear_list(kvf__model_params(t->base->model));
    if (head) clear_list(head);
    if (t->n_jobs) kvf__jobs_clear(t);
}

/* What the base is to see, here and on the ranks that follow. */
static kvf_status emit_value(kvf__trainer *t)
{
    if (t->encoder) KVF_TRY(kvf__encoder_fwd(t->ctx, t->encoder, t->emitted));
    return kvf__ranks_send(t);
}

/* The value as the step's rows will see it, and room for its gradient. */
static void show_value(kvf__trainer *t)
{
    if (t->turn) kvf__task_prefix_fwd(t, t->turn);
    kvf__trainer_mask(t);
    clear_gradients(t);
    lap(t, KVF__STEP_ENCODER);
}

kvf_status kvf__trainer_step_begin(kvf__trainer *t, kvf__drawn *drawn)
{
    *drawn = (kvf__drawn){0};
    t->mark = kvf__clock();
    kvf__jobs_enter(t, t->step);
    drawn->examples = kvf__sampler_next(&t->sampler, &drawn->n, &t->epoch_end);
    drawn->terms = count_terms(t, drawn->examples, drawn->n);
    drawn->scale = drawn->terms ? (float)(1.0 / (double)drawn->terms) : 0;
    kvf__ranks_rows(t, &drawn->examples, &drawn->n);
    t->tokens += kvf__ranks_other_tokens(t);

    if (!kvf__ranks_follows(t)) KVF_TRY(emit_value(t));
    show_value(t);
    return KVF_OK;
}

kvf_status kvf__trainer_step_end(kvf__trainer *t, const kvf__drawn *drawn, kvf_status st)
{
    bool take = true;
    if (t->turn) kvf__task_prefix_bwd(t, t->turn);
    kvf__jobs_leave(t, t->step);
    t->train_loss = drawn->terms ? drawn->loss_sum / (double)drawn->terms : 0;
    t->lr = t->options.lr * kvf__schedule_factor(&t->schedule, t->step + 1);
    st = kvf__base_kl_step(t, st);
    if (!st) st = finish_gradients(t);
    KVF_TRY(kvf__trainer_guard(t, st, &take));
    if (take) KVF_TRY(update(t));
    t->step++;
    return KVF_OK;
}

kvf_status kvf__trainer_probe(kvf__trainer *t, const int64_t *examples, int64_t n, double *seconds)
{
    kvf__drawn drawn = {.examples = examples, .n = n, .terms = 1, .scale = 1};
    kvf_status st = KVF_OK;
    double begin = kvf__clock();
    if (t->encoder) KVF_TRY(kvf__encoder_fwd(t->ctx, t->encoder, t->emitted));
    show_value(t);
    while (!st && kvf__trainer_step_part(t, &drawn))
        st = run_part(t, &drawn);
    if (t->turn) kvf__task_prefix_bwd(t, t->turn);
    if (!st) st = finish_gradients(t);
    *seconds = kvf__clock() - begin;
    return st == KVF_ENUMERIC ? KVF_OK : st; /* what is wrong is said when it counts */
}

kvf_status kvf__trainer_step(kvf__trainer *t)
{
    kvf__drawn drawn;
    KVF_TRY(kvf__trainer_step_begin(t, &drawn));
    kvf_status st = kvf__ranks_refresh(t);
    while (!st && kvf__trainer_step_part(t, &drawn))
        st = run_part(t, &drawn);
    st = kvf__ranks_sum(t, &drawn, st);
    if (!kvf__ranks_follows(t)) return kvf__trainer_step_end(t, &drawn, st);
    kvf__jobs_leave(t, t->step++);
    return st;
}
