/* Sets up a run. Everything that can fail for an external reason happens here, before the first
 * step: files, shapes, options, memory. lengths.c allocates what the steps need. */
#include "start.h"
#include "trainer.h"

#include <math.h>
#include <string.h>

/* ---- opening --------------------------------------------------------------------------------- */

static kvf_status open_data(kvf__trainer *t)
{
    const kvf_train_options *o = &t->run.options;
    kvf__renderer *renderer = &t->rows.renderer;
    const bool at_input = t->run.method->port == KVF__PORT_EMBED;
    KVF_TRY(kvf__renderer_init(t->run.ctx, t->run.base, o->chat_template, o->map, renderer));
    const bool has_template = o->p_template && *o->p_template;
    const bool next = o->verbalizer && *o->verbalizer &&
                      kvf__model_desc(t->run.base->model)->block.causal;
    if (at_input || has_template)
        KVF_TRY(kvf__renderer_pattern(t->run.ctx, renderer, o->p_template,
                                      at_input ? t->run.id.P : 0, next));
    return kvf__tasks_open(&t->run, &t->rows);
}

/* True if --resume has nothing left to do. */
static bool is_finished(const kvf__trainer *t)
{
    return t->run.output.is_resumed &&
           (t->run.progress.step >= t->run.progress.steps || kvf__run_patience_over(&t->run));
}

/* Creates a trainer, which the caller frees even on failure. */
static kvf_status begin(kvf_ctx *ctx, const kvf_train_options *options, kvf__trainer **out)
{
    kvf__trainer *t = NULL;
    KVF_TRY(kvf__alloc(ctx, sizeof *t, &t));
    t->run = (kvf__run){.ctx = ctx,
                        .options = *options,
                        .progress = {.best = {.value = NAN, .loss = NAN},
                                     .valid_loss = NAN,
                                     .kl_to_base = NAN,
                                     .baselines = {NAN, NAN, NAN},
                                     .begin = kvf__clock()}};
    if (options->open_base) t->run.options.base = options->open_base->path;
    *out = t;
    return KVF_OK;
}

/* Refuses options that the base does not support. */
static kvf_status check_base(kvf__trainer *t)
{
    const kvf__desc *d = kvf__model_desc(t->run.base->model);
    KVF_TRY(kvf__options_check_base(t->run.ctx, &t->run.options, d->block.causal, d->encoder > 0,
                                    d->arch_name));
    return kvf__places_check(&t->run, t->rows.feed != NULL);
}

/* Sets options that depend on method and base. */
static kvf_status decide(kvf__trainer *t)
{
    KVF_TRY(kvf__tasks_create(&t->run, &t->rows));
    KVF_TRY(kvf__run_decide_length(&t->run));
    KVF_TRY(kvf__start_decide(&t->run, t->rows.feed != NULL));
    KVF_TRY(kvf__run_decide_values(&t->run));
    return kvf__run_identify(&t->run);
}

/* Reports the first row, and number and size of the rows. */
static kvf_status note_rows(kvf__trainer *t)
{
    const kvf__train_task *task = t->rows.task;
    const kvf__renderer *renderer = &t->rows.renderer;
    const bool wraps = renderer->render.wrap_prompts;
    char cut[48] = "";
    kvf__buf text = {0};
    if (t->run.output.is_resumed || kvf__ranks_follows(t->run.ranks) || t->rows.reads ||
        !task->data.n)
        return KVF_OK;
    kvf_status st = kvf__row_marked(t->run.ctx, t->run.base->tokenizer, &task->data, 0, &text);
    if (!st)
        kvf__run_note(&t->run, "first row%s%s: %.*s", wraps ? " as " : "",
                      wraps ? renderer->chat.name : "", (int)text.n, text.data);
    kvf__buf_done(&text);
    if (task->data.truncated)
        snprintf(cut, sizeof cut, ", %lld truncated", (long long)task->data.truncated);
    if (!st)
        kvf__run_note(&t->run, "rows: %lld with %lld tokens, the longest %lld%s; %lld held out",
                      (long long)task->data.n, (long long)task->data.start[task->data.n],
                      (long long)kvf__longest_example(&task->data), cut, (long long)task->valid.n);
    return st;
}

/* Stores the form of the rows and an example, for programs that take prompts. */
static kvf_status keep_form(kvf__trainer *t)
{
    const kvf__row_form *form = &t->rows.task->data.form;
    const bool fed = t->rows.feed && t->rows.renderer.render.wrap_prompts;
    const char *name = fed ? "chat" : form->name ? form->name : "";
    if (t->rows.n > 1 || !*name) return KVF_OK;
    KVF_TRY(kvf__strdup(t->run.ctx, name, &t->run.id.row_form));
    return kvf__strdup(t->run.ctx, form->example, &t->run.id.example_prompt);
}

/* Notes a rate in other units than the default's, such as a step size of plain SGD. */
static void note_rate(kvf__run *run)
{
    const kvf_train_options *o = &run->options;
    const double usual = run->method->default_lr;
    if (o->lr_per_parameter || run->output.is_resumed || kvf__ranks_follows(run->ranks) ||
        !(o->lr > 20 * usual) || !usual)
        return;
    kvf__run_note(run, "--lr %g is %.0f times the default of method %s, %g: the loss may diverge",
                  o->lr, o->lr / usual, run->method->name, usual);
}

/* Creates encoder, heads and the list of parameters, without values. */
static kvf_status make_parts(kvf__trainer *t)
{
    KVF_TRY(kvf__tuned_make(&t->run, &t->tuned));
    KVF_TRY(kvf__low_rank_task_alloc(&t->run, &t->tuned, &t->rows));
    KVF_TRY(kvf__tasks_make_heads(&t->run, &t->rows));
    return kvf__tuned_list(t->run.ctx, &t->tuned, &t->rows);
}

static kvf_status make_best(kvf__trainer *t)
{
    const kvf__params *params = &t->tuned.params;
    const size_t total = (size_t)kvf__params_values(params);
    KVF_TRY(kvf__alloc_array(t->run.ctx, total, sizeof(float), &t->run.progress.best.values));
    KVF_TRY(kvf__params_append(t->run.ctx, &t->run.progress.best.params, params));
    float *at = t->run.progress.best.values;
    for (size_t i = 0; i < t->run.progress.best.params.n; i++) {
        t->run.progress.best.params.item[i].value = at;
        t->run.progress.best.params.item[i].grad = NULL;
        at += t->run.progress.best.params.item[i].n;
    }
    return KVF_OK;
}

static bool is_measured(const kvf__trainer *t, kvf__measured of)
{
    if (of == KVF__OF_RETENTION) return t->retention != NULL;
    return of != KVF__OF_ANCHOR || (t->retention && t->run.options.kl_to_base > 0);
}

static kvf_status make_history(kvf__trainer *t)
{
    size_t n = (size_t)(t->run.progress.steps > t->run.output.resumed.history.n
                            ? t->run.progress.steps
                            : t->run.output.resumed.history.n);
    for (int i = 0; i < KVF__COLUMNS; i++)
        if (is_measured(t, kvf__columns[i].of))
            KVF_TRY(kvf__alloc_array(t->run.ctx, n, kvf__dtype_block_bytes(kvf__columns[i].dtype),
                                     &t->run.progress.history.column[i]));
    return KVF_OK;
}

/* Refuses a file's state of another size, which a copy under dropout would overrun. */
static kvf_status check_state(const kvf__trainer *t)
{
    const kvf__desc *d = kvf__model_desc(t->run.base->model);
    const int64_t have = t->tuned.prefix.states, want = kvf__mixer_state_at(d, d->L);
    if (!have || have == want) return KVF_OK;
    return kvf__fail(t->run.ctx, KVF_ESHAPE,
                     "prefix: a state of %lld values, but the base's has %lld", (long long)have,
                     (long long)want);
}

/* Allocates AdamW and history, and sets initial values or those of the resumed run. Needs the
 * number of steps. */
static kvf_status begin_values(kvf__trainer *t)
{
    kvf_train_options *o = &t->run.options;
    KVF_TRY(kvf__dropout_alloc(&t->run, &t->tuned));
    KVF_TRY(kvf__beside_alloc(&t->run, &t->tuned, &t->rows));
    if (kvf__ranks_follows(t->run.ranks)) return kvf__model_refresh(t->run.ctx, t->run.base->model);
    KVF_TRY(kvf__adamw_init(t->run.ctx, &t->stepper.adamw, &t->tuned.steps));
    t->stepper.adamw.beta1 = o->beta1;
    t->stepper.adamw.beta2 = o->beta2;
    t->stepper.adamw.eps = o->eps;
    t->stepper.adamw.weight_decay = o->weight_decay;
    if (t->rows.total.valid_rows || kvf__run_has_best(&t->run.output.resumed))
        KVF_TRY(make_best(t));
    KVF_TRY(make_history(t));
    if (t->run.output.is_resumed)
        KVF_TRY(kvf__trainer_restore(t));
    else
        KVF_TRY(kvf__start_values(&t->run, &t->tuned, &t->rows));
    KVF_TRY(check_state(t));
    if (!t->run.output.is_resumed) t->run.progress.best.params.n = 0;
    if (t->tuned.encoder)
        KVF_TRY(kvf__encoder_lr_units(t->run.ctx, t->tuned.encoder, o->lr_per_parameter,
                                      t->tuned.lr_k));
    if (t->tuned.encoder) kvf__encoder_scale_neurons(t->tuned.encoder, o->ffn_lr / o->lr);
    /* keys at centroids need a large last layer, which amplifies steps of the layers below */
    if (t->tuned.encoder && !strcmp(o->init, "centroids") && !o->lr_per_parameter)
        kvf__encoder_slow_below_last(t->tuned.encoder, 0.1);
    if (!t->tuned.encoder) t->tuned.lr_k[0] = 1; /* every parameter is updated with the same rate */
    return kvf__model_refresh(t->run.ctx, t->run.base->model);
}

static kvf_status open_all(kvf__trainer *t)
{
    KVF_TRY(KVF__CHECK_RESERVED(t->run.ctx, kvf_train_options, &t->run.options));
    /* first, because --resume fills in the run's own options */
    KVF_TRY(kvf__ranks_follows(t->run.ranks) ? kvf__ranks_begin(&t->run)
                                             : kvf__run_open_output(&t->run));
    if (!t->rows.feed)
        KVF_TRY(kvf__options_require(t->run.ctx, &t->run.options));
    else if (!KVF__GIVEN(&t->run.options, prefix_length) && !t->run.options.prefix_length)
        t->run.options.prefix_length = 20; /* distill: a document may be shorter than the default of
                                            * lm */
    KVF_TRY(kvf__options_check(t->run.ctx, &t->run.options));
    t->run.method = kvf__method_find(t->run.options.method);
    if (!t->run.base) KVF_TRY(kvf__run_check_inputs(&t->run));
    KVF_TRY(kvf__run_open_base(&t->run));
    KVF_TRY(check_base(t));
    KVF_TRY(decide(t));
    KVF_TRY(open_data(t));
    KVF_TRY(keep_form(t));
    KVF_TRY(note_rows(t));
    note_rate(&t->run);
    KVF_TRY(kvf__retention_open(&t->run, &t->rows, &t->retention));
    KVF_TRY(make_parts(t));
    KVF_TRY(kvf__trainer_lengths(t));
    KVF_TRY(kvf__trainer_check_disk(t));
    return begin_values(t);
}

int64_t kvf__trainer_all_parameters(const kvf__trainer *t)
{
    const kvf__params *trained = &t->tuned.params;
    return kvf__base_parameters(t->run.base) + kvf__params_values(trained) -
           kvf__base_own_values(t->run.base, trained);
}

kvf_status kvf__trainer_agree(kvf__trainer *t, kvf_status st)
{
    const kvf__rows_hashes hashes = {t->rows.total.hash, t->rows.total.valid_hash,
                                     kvf__retention_hash(t->retention)};
    return kvf__ranks_agree(&t->run, &hashes, st, &t->run.output.finished_before);
}

static void note_parameters(kvf__trainer *t)
{
    const int64_t trained = kvf__tuned_values(&t->tuned), all = kvf__trainer_all_parameters(t);
    kvf__run_note(&t->run, "parameters: %lld of %lld are trained (%.3g %%)", (long long)trained,
                  (long long)all, 100 * (double)trained / (double)all);
}

static kvf_status open_on_all(kvf__trainer *t)
{
    kvf_status st = open_all(t);
    t->run.output.finished_before = !st && is_finished(t);
    KVF_TRY(kvf__trainer_agree(t, st));
    if (!t->run.output.finished_before && !kvf__ranks_follows(t->run.ranks)) note_parameters(t);
    return KVF_OK;
}

kvf_status kvf__trainer_open(kvf_ctx *ctx, const kvf_train_options *options,
                             const kvf__trainer_uses *uses, kvf__trainer **out)
{
    kvf__trainer *t = NULL;
    KVF_TRY(begin(ctx, options, &t));
    t->run.base = uses->base;
    t->run.borrows_base = uses->base != NULL;
    t->rows.feed = uses->feed;
    t->rows.reads = uses->reads;
    t->run.output.in_memory = uses->in_memory;
    kvf_status st = uses->joins ? kvf__ranks_join(ctx, &t->run.ranks) : KVF_OK;
    if (!st) st = open_on_all(t);
    KVF__GIVE(st, out, t, kvf__trainer_free(t));
    return st;
}

static kvf_status prepare_memory(kvf__trainer *t, kvf__dataset *data)
{
    t->run.options.precision = t->run.base->precision;
    KVF_TRY(kvf__options_check(t->run.ctx, &t->run.options));
    t->run.method = kvf__method_find(t->run.options.method);
    KVF_TRY(check_base(t));
    KVF_TRY(decide(t));
    t->rows.task->data = *data;
    *data = (kvf__dataset){0};
    t->rows.total = (kvf__rows_total){.rows = t->rows.task->data.n,
                                      .labels = t->rows.task->data.n_labels};
    KVF_TRY(make_parts(t));
    KVF_TRY(kvf__trainer_lengths(t));
    KVF_TRY(begin_values(t));
    return kvf__trainer_prepare(t);
}

kvf_status kvf__trainer_open_memory(kvf_ctx *ctx, const kvf_train_options *options, kvf_base **base,
                                    kvf__dataset *data, kvf__trainer **out)
{
    kvf__trainer *t = NULL;
    KVF_TRY(begin(ctx, options, &t));
    t->run.base = *base;
    *base = NULL;
    kvf_status st = prepare_memory(t, data);
    kvf__dataset_done(data); /* if it was not taken over */
    *data = (kvf__dataset){0};
    KVF__GIVE(st, out, t, kvf__trainer_free(t));
    return st;
}

void kvf__trainer_free(kvf__trainer *t)
{
    if (!t) return;
    kvf__pass_free(t->pass);
    kvf__states_free(t->states);
    kvf__batcher_done(&t->rows.batcher);
    kvf__tasks_done(&t->rows);
    kvf__teacher_done(&t->rows.teacher);
    kvf__retention_free(t->retention);
    kvf__tuned_done(&t->tuned);
    kvf__adamw_done(&t->stepper.adamw);
    kvf__history_done(&t->run.progress.history);
    kvf__params_done(&t->run.progress.best.params);
    kvf__free(t->run.progress.best.values);
    kvf__renderer_done(&t->rows.renderer);
    kvf__identity_done(&t->run.id);
    if (!t->run.borrows_base) kvf_base_free(t->run.base);
    kvf__artifact_done(&t->run.output.resumed);
    kvf__journal_close(&t->run.output.journal);
    kvf__outlock_drop(&t->run.output.lock);
    kvf__ranks_free(t->run.ranks);
    kvf__free(t);
}

/* ---- looking at it --------------------------------------------------------------------------- */

kvf__trainer_view kvf__trainer_look(const kvf__trainer *t)
{
    return (kvf__trainer_view){.run = &t->run, .rows = &t->rows, .tuned = &t->tuned};
}

kvf_base *kvf__trainer_give_base(kvf__trainer *t)
{
    t->run.borrows_base = true;
    return t->run.base;
}
