/* Setting up a run: everything that can fail for a reason outside is done here, before the first
 * step: files, shapes, options, memory, and the primitives for every batch size that the run's own
 * schedule will meet. */
#include "trainer.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

/* ---- events ---------------------------------------------------------------------------------- */

void kvf__trainer_note(kvf__trainer *t, const char *fmt, ...)
{
    char text[4096];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    kvf__log(t->ctx, KVF_LOG_INFO, "%s", text);
    const kvf_event event = {.kind = KVF_EVENT_NOTE,
                             .step = t->progress.step,
                             .steps = t->progress.steps,
                             .seconds = kvf__clock() - t->progress.begin,
                             .text = text};
    kvf__trainer_emit(t, &event);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* options.open_base as it is; a copy of it where the run changes what it computes with. */
static kvf_status borrow_base(kvf__trainer *t, kvf_base_options *options, const kvf__train *form)
{
    kvf_base *base = t->options.open_base;
    const bool changes = form->what != KVF__TRAIN_NOTHING;
    if (base->carries)
        return kvf__fail(t->ctx, KVF_EUSAGE, "%s: the base carries what a prefix changed of it",
                         base->path);
    if (t->options.lora && *t->options.lora &&
        (!base->lora || strcmp(t->options.lora, base->lora) != 0))
        return kvf__fail(t->ctx, KVF_EUSAGE, "--lora %s: the base is open %s", t->options.lora,
                         base->lora ? "with another" : "without one");
    if (!KVF__GIVEN(&t->options, weight_dtype) && form->what != KVF__TRAIN_EVERYTHING)
        options->weight_dtype = t->options.weight_dtype = base->weight_dtype;
    if (changes) return kvf__base_copy_as(t->ctx, base, options, form, &t->base);
    KVF_TRY(kvf__base_add_backward(t->ctx, base));
    t->base = base;
    t->borrows_base = true;
    return KVF_OK;
}

static kvf_status find_base(kvf__trainer *t, kvf_base_options *options)
{
    kvf__train form;
    KVF_TRY(kvf__trainer_form(t, &form));
    KVF_TRY(kvf__ranks_decided(t));
    if (t->base) return KVF_OK;
    return t->options.open_base
               ? borrow_base(t, options, &form)
               : kvf__base_open_as(t->ctx, t->options.base, options, &form, &t->base);
}

static kvf_status open_base(kvf__trainer *t)
{
    kvf_base_options options = {.precision = t->options.precision,
                                .backward = true,
                                .weight_dtype = t->options.weight_dtype,
                                .stream_layers = t->options.stream_layers,
                                .lora = t->options.lora};
    KVF_TRY(find_base(t, &options));
    if (options.precision != KVF_PRECISION_AUTO && options.precision != t->base->precision)
        return kvf__fail(
            t->ctx, KVF_EUSAGE, "--precision %s: the base is open in %s, which its runs share",
            kvf__precision_name(options.precision), kvf__precision_name(t->base->precision));
    if (options.weight_dtype != t->base->weight_dtype)
        return kvf__fail(t->ctx, KVF_EUSAGE, "--weight-dtype %s: the base is open as another",
                         kvf__weight_dtype_name(options.weight_dtype));
    t->options.precision = t->base->precision;
    return kvf__ranks_decided(t);
}

static bool at_input(const kvf__trainer *t)
{
    return t->tuned.method->port == KVF__PORT_EMBED;
}

/* A template decides how many virtual tokens there are. */
static kvf_status decide_template(kvf__trainer *t)
{
    kvf_train_options *o = &t->options;
    kvf__row_template pattern;
    if (!o->p_template || !*o->p_template) return KVF_OK;
    KVF_TRY(kvf__row_template_init(t->ctx, o->p_template, 0, &pattern));
    int64_t P = pattern.P;
    kvf__row_template_done(&pattern);
    if (t->tuned.method->port == KVF__PORT_KV && !P && !strcmp(o->task, "seq-cls")) return KVF_OK;
    if (!at_input(t))
        return kvf__fail(t->ctx, KVF_EUSAGE,
                         "--p-template is for methods with virtual tokens at the input (prompt, "
                         "p-tuning), and without {p} for prefixes of --task seq-cls");
    if (!P)
        return kvf__fail(t->ctx, KVF_EUSAGE, "--p-template \"%s\": no {p} in it", o->p_template);
    if (KVF__GIVEN(o, prefix_length) && o->prefix_length != P)
        return kvf__fail(t->ctx, KVF_EUSAGE,
                         "--p-template has %lld virtual tokens, --prefix-length is %lld",
                         (long long)P, (long long)o->prefix_length);
    o->prefix_length = P;
    return KVF_OK;
}

/* What a step of the values by Muon lacks: a prefix of equal heads that is stepped itself. */
static const char *muon_lacks(const kvf__trainer *t)
{
    const kvf_train_options *o = &t->options;
    if (kvf__model_desc(t->base->model)->by_layer.shape) return "layers that do not differ";
    if (!strcmp(o->method, "mlp") && o->optimizer_adamw)
        return o->lr_per_parameter ? "--lr-units prefix" : "--optimizer natural";
    return strcmp(o->method, "mlp") && strcmp(o->method, "direct") ? "method mlp or direct" : NULL;
}

/* Where --value-optimizer is left open: tags from centroids gain by it (docs/measured.md). */
static kvf_status decide_value_optimizer(kvf__trainer *t)
{
    kvf_train_options *o = &t->options;
    const char *lacks = muon_lacks(t);
    if (t->output.is_resumed) return KVF_OK;
    if (!KVF__GIVEN(o, values_muon) && !lacks)
        o->values_muon |= !strcmp(o->task, "token-cls") && !strcmp(o->init, "centroids") &&
                          !o->lr_per_parameter;
    if (o->values_muon && lacks)
        return kvf__fail(t->ctx, KVF_EUSAGE, "--value-optimizer muon: want %s", lacks);
    return KVF_OK;
}

static kvf_status fill_identity(kvf__trainer *t)
{
    const kvf__desc *d = kvf__model_desc(t->base->model);
    kvf__identity *id = &t->id;
    const kvf__kv_shape kv = kvf__desc_kv(d);
    KVF_TRY(kvf__identity_set_kv(t->ctx, id, &kv));
    id->encoder_layers = d->encoder;
    id->relative_bias = kvf__places_near(&t->options, d);
    id->P = kvf__method_has_length(t->options.method) ? t->options.prefix_length : 0;
    if (d->position.starts_at_0 && !t->output.is_resumed &&
        !KVF__GIVEN(&t->options, position_start))
        t->options.position_start = "0";
    KVF_TRY(kvf__position_parse(t->ctx, t->options.position_start, id->P, &id->position_start));
    kvf__infix_identity(&t->options, t->base, id);
    KVF_TRY(kvf__strdup(t->ctx, t->base->name, &id->base_name));
    KVF_TRY(kvf__strdup(t->ctx, d->arch_name, &id->base_architecture));
    KVF_TRY(kvf__strdup(t->ctx, t->base->hash, &id->base_hash));
    KVF_TRY(kvf__strdup(t->ctx, t->options.method, &id->method));
    KVF_TRY(kvf__strdup(t->ctx, t->options.named_data.n ? KVF__MULTI_TASK : t->options.task,
                        &id->task));
    return kvf__strdup(t->ctx, t->options.chat_template, &id->chat_template);
}

static kvf_status open_data(kvf__trainer *t)
{
    const kvf_train_options *o = &t->options;
    kvf__renderer *renderer = &t->rows.renderer;
    KVF_TRY(kvf__renderer_init(t->ctx, t->base, o->chat_template, o->map, renderer));
    const bool has_template = o->p_template && *o->p_template;
    const bool next = o->verbalizer && *o->verbalizer &&
                      kvf__model_desc(t->base->model)->block.causal;
    if (at_input(t) || has_template)
        KVF_TRY(kvf__renderer_pattern(t->ctx, renderer, o->p_template, at_input(t) ? t->id.P : 0,
                                      next));
    return kvf__tasks_open(t);
}

/* ---- the run --------------------------------------------------------------------------------- */

/* Nothing that is written may be a file that is read. */
static kvf_status check_not_input(kvf__trainer *t, const char *input)
{
    KVF_TRY(kvf__check_not_input(t->ctx, t->options.out, input));
    return t->options.log ? kvf__check_not_input(t->ctx, t->options.log, input) : KVF_OK;
}

static kvf_status open_output(kvf__trainer *t)
{
    const kvf_train_options *o = &t->options;
    const char *const inputs[] = {o->base,    o->lora,         o->data,      o->valid,
                                  o->init_kv, o->init_encoder, o->init_from, o->retention,
                                  o->labels,  o->class_weights};
    const kvf_named *const named[] = {&o->named_data, &o->named_valid, &o->named_labels};
    if (!o->out) return kvf__fail(t->ctx, KVF_EUSAGE, "--out is needed");
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++)
        KVF_TRY(check_not_input(t, inputs[i]));
    for (size_t i = 0; i < sizeof named / sizeof named[0]; i++)
        for (size_t k = 0; k < named[i]->n; k++)
            KVF_TRY(check_not_input(t, named[i]->item[k]));
    bool there = kvf__exists(o->out);
    if (there && !o->resume && !o->force)
        return kvf__fail(t->ctx, KVF_EEXIST,
                         "%s: exists (--force replaces it, --resume continues it)", o->out);
    if (!o->dry_run) KVF_TRY(kvf__outlock_acquire(t->ctx, o->out, &t->output.lock));
    if (!o->resume || !there) {
        KVF_TRY(kvf__options_imply(t->ctx, &t->options));
        KVF_TRY(kvf__journal_check(t));
        return kvf__check_output(t->ctx, o->out, o->force);
    }
    KVF_TRY(kvf__artifact_read_all(t->ctx, o->out, KVF__KIND_RUN, &t->output.resumed));
    t->output.is_resumed = true;
    KVF_TRY(kvf__journal_check(t));
    return kvf__options_resume(t->ctx, o->out, &t->options, t->output.resumed.options);
}

/* Before the base is loaded: a wrong path should not cost it. */
static kvf_status check_inputs(const kvf__trainer *t)
{
    const kvf_train_options *o = &t->options;
    const bool starts = !t->output.is_resumed;
    const char *const paths[] = {
        o->data,
        o->valid,
        o->retention,
        strcmp(o->class_weights ? o->class_weights : "", "balanced") ? o->class_weights : NULL,
        starts ? o->init_kv : NULL,
        starts ? o->init_from : NULL,
        starts ? o->init_encoder : NULL};
    const kvf_named *const lists[] = {&o->named_data, &o->named_valid};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        if (paths[i] && *paths[i]) KVF_TRY(kvf__check_input(t->ctx, paths[i]));
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < lists[k]->n; i++)
            KVF_TRY(kvf__check_input(t->ctx, strchr(lists[k]->item[i], '=') + 1));
    return KVF_OK;
}

/* A run that --resume has nothing to do for. */
static bool is_finished(const kvf__trainer *t)
{
    return t->output.is_resumed &&
           (t->progress.step >= t->progress.steps || kvf__trainer_patience_over(t));
}

static kvf__trainer empty(kvf_ctx *ctx, const kvf_train_options *options)
{
    kvf__trainer made = {.ctx = ctx,
                         .options = *options,
                         .progress = {.best = {.value = NAN, .loss = NAN},
                                      .valid_loss = NAN,
                                      .begin = kvf__clock()}};
    if (options->open_base) made.options.base = options->open_base->path;
    return made;
}

/* Refuses what the base does not allow. */
static kvf_status check_base(kvf__trainer *t)
{
    const kvf__desc *d = kvf__model_desc(t->base->model);
    KVF_TRY(kvf__options_check_base(t->ctx, &t->options, d->block.causal, d->encoder > 0,
                                    d->arch_name));
    return kvf__places_check(t);
}

/* What options, method and base decide together. */
static kvf_status decide(kvf__trainer *t)
{
    KVF_TRY(kvf__tasks_create(t));
    KVF_TRY(decide_template(t));
    if (!t->options.prefix_length) /* of tags (docs/measured.md) */
        t->options.prefix_length = kvf__model_desc(t->base->model)->block.causal ? 20 : 40;
    KVF_TRY(kvf__start_decide(t));
    KVF_TRY(decide_value_optimizer(t));
    return fill_identity(t);
}

/* What the rows have become. */
static kvf_status note_first_row(kvf__trainer *t)
{
    const kvf__train_task *task = t->rows.task;
    const kvf__renderer *renderer = &t->rows.renderer;
    const bool wraps = renderer->render.wrap_prompts;
    kvf__buf text = {0};
    if (t->output.is_resumed || kvf__ranks_follows(t) || t->rows.reads || !task->data.n)
        return KVF_OK;
    kvf_status st = kvf__row_marked(t->ctx, t->base->tokenizer, &task->data, 0, &text);
    if (!st)
        kvf__trainer_note(t, "first row%s%s: %.*s", wraps ? " as " : "",
                          wraps ? renderer->chat.name : "", (int)text.n, text.data);
    kvf__buf_done(&text);
    return st;
}

static kvf_status open_all(kvf__trainer *t)
{
    KVF_TRY(KVF__CHECK_RESERVED(t->ctx, kvf_train_options, &t->options));
    /* first: --resume fills in the run's own options */
    KVF_TRY(kvf__ranks_follows(t) ? kvf__ranks_begin(t) : open_output(t));
    if (!t->rows.feed)
        KVF_TRY(kvf__options_require(t->ctx, &t->options));
    else if (!KVF__GIVEN(&t->options, prefix_length) && !t->options.prefix_length)
        t->options.prefix_length = 20; /* what there is to distill may be short */
    KVF_TRY(kvf__options_check(t->ctx, &t->options));
    t->tuned.method = kvf__method_find(t->options.method);
    if (!t->base) KVF_TRY(check_inputs(t));
    KVF_TRY(open_base(t));
    KVF_TRY(check_base(t));
    KVF_TRY(decide(t));
    KVF_TRY(open_data(t));
    KVF_TRY(note_first_row(t));
    KVF_TRY(kvf__retention_open(t));
    KVF_TRY(kvf__trainer_make(t));
    KVF_TRY(kvf__trainer_lengths(t));
    return kvf__trainer_parameters(t);
}

int64_t kvf__trainer_all_parameters(const kvf__trainer *t)
{
    const kvf__params *trained = &t->tuned.params;
    return kvf__base_parameters(t->base) + kvf__params_values(trained) -
           kvf__base_own_values(t->base, trained);
}

static void note_parameters(kvf__trainer *t)
{
    const int64_t trained = kvf__trainer_trained_values(t), all = kvf__trainer_all_parameters(t);
    kvf__trainer_note(t, "parameters: %lld of %lld are trained (%.3g %%)", (long long)trained,
                      (long long)all, 100 * (double)trained / (double)all);
}

kvf_status kvf__trainer_init(kvf_ctx *ctx, const kvf_train_options *options,
                             const kvf__trainer_uses *uses, kvf__trainer *t)
{
    *t = empty(ctx, options);
    t->ranks = uses->ranks;
    t->base = uses->base;
    t->borrows_base = uses->base != NULL;
    t->rows.feed = uses->feed;
    t->rows.reads = uses->reads;
    kvf_status st = open_all(t);
    bool finished = !st && is_finished(t);
    st = kvf__ranks_agree(t, st, &finished);
    t->output.finished_before = finished;
    if (!st && !finished && !kvf__ranks_follows(t)) note_parameters(t);
    if (st) kvf__trainer_done(t);
    return st;
}

static kvf_status prepare_memory(kvf__trainer *t, kvf__dataset *data)
{
    t->options.precision = t->base->precision;
    KVF_TRY(kvf__options_check(t->ctx, &t->options));
    t->tuned.method = kvf__method_find(t->options.method);
    KVF_TRY(check_base(t));
    KVF_TRY(decide(t));
    t->rows.task->data = *data;
    *data = (kvf__dataset){0};
    t->rows.total = (kvf__rows_total){.rows = t->rows.task->data.n,
                                      .labels = t->rows.task->data.n_labels};
    KVF_TRY(kvf__trainer_make(t));
    KVF_TRY(kvf__trainer_lengths(t));
    KVF_TRY(kvf__trainer_parameters(t));
    return kvf__trainer_prepare(t);
}

kvf_status kvf__trainer_init_memory(kvf_ctx *ctx, const kvf_train_options *options, kvf_base **base,
                                    kvf__dataset *data, kvf__trainer *t)
{
    *t = empty(ctx, options);
    t->base = *base;
    *base = NULL;
    kvf_status st = prepare_memory(t, data);
    kvf__dataset_done(data); /* where it was not taken */
    *data = (kvf__dataset){0};
    if (st) kvf__trainer_done(t);
    return st;
}

static void tuned_done(kvf__tuned *tuned)
{
    kvf__encoder_free(tuned->encoder);
    kvf__params_done(&tuned->params);
    kvf__params_done(&tuned->steps);
    kvf__params_done(&tuned->log_weight);
    kvf__free(tuned->layer_mask);
    kvf__prefix_done(&tuned->prefix);
    kvf__prefix_done(&tuned->dprefix);
    kvf__prefix_done(&tuned->task_prefix);
    kvf__prefix_done(&tuned->masked);
    kvf__vectors_done(&tuned->vectors);
    kvf__vectors_done(&tuned->dvectors);
}

void kvf__trainer_done(kvf__trainer *t)
{
    kvf__pass_free(t->pass);
    kvf__states_free(t->states);
    kvf__batcher_done(&t->rows.batcher);
    kvf__tasks_done(t);
    kvf__retention_free(t->retention);
    tuned_done(&t->tuned);
    kvf__teacher_done(&t->teacher);
    kvf__adamw_done(&t->stepper.adamw);
    kvf__history_done(&t->progress.history);
    kvf__params_done(&t->progress.best.params);
    kvf__free(t->progress.best.values);
    kvf__renderer_done(&t->rows.renderer);
    kvf__identity_done(&t->id);
    if (!t->borrows_base) kvf_base_free(t->base);
    kvf__artifact_done(&t->output.resumed);
    kvf__journal_close(&t->output.journal);
    kvf__outlock_drop(&t->output.lock);
    kvf__ranks_free(t->ranks);
}

void kvf__trainer_result(const kvf__trainer *t, double begin, int64_t tokens_before,
                         kvf_train_result *r)
{
    double seconds = kvf__clock() - begin;
    *r = (kvf_train_result){
        .steps = t->progress.step,
        .train_loss = t->progress.train_loss,
        .valid_loss = t->progress.valid_loss,
        .best_valid_loss = t->progress.best.loss,
        .best = {t->progress.metric->name, t->progress.best.value},
        .best_step = t->progress.best.params.n ? t->progress.best.step : 0,
        .stopped_early = t->progress.stopped_early,
        .tokens = t->progress.tokens,
        .computed_tokens = t->progress.computed_tokens,
        .step_seconds = t->progress.step_seconds,
        .tokens_per_second = t->progress.step_seconds > 0
                                 ? (double)(t->progress.tokens - tokens_before) /
                                       t->progress.step_seconds
                                 : 0,
        .seconds = seconds,
        .peak_rss_bytes = kvf__peak_rss_bytes(),
        .trainable_parameters = kvf__trainer_trained_values(t),
        .parameters = kvf__trainer_all_parameters(t),
        .label_tokens = t->rows.total.labels,
        .examples = t->rows.total.rows,
        .precision = kvf__precision_name(t->base->precision),
        .forecast = t->progress.forecast,
    };
    kvf__retention_result(t, r);
    kvf__ranks_result(t, r);
}

/* Every step to come, with its journals, on all ranks if it can be on each. */
static kvf_status run_steps(kvf__trainer *t)
{
    kvf_status st = kvf__journal_open(t);
    if (!st) st = kvf__trainer_note_int8(t);
    if (!st && t->progress.steps) st = kvf__trainer_prepare(t);
    if (!st && t->options.forecast == KVF_FORECAST_ON) st = kvf__trainer_forecast(t);
    if (!st) st = kvf__ranks_divide(t);
    st = kvf__ranks_agree(t, st, &t->output.finished_before);
    if (!st && kvf__ranks_follows(t))
        st = kvf__ranks_follow(t);
    else if (!st)
        st = kvf__ranks_end(t, kvf__trainer_loop(t));
    kvf__journal_end(t, st);
    return st;
}

static kvf_status run_dry(kvf__trainer *t)
{
    kvf_status st = t->progress.steps ? kvf__trainer_prepare(t) : KVF_OK;
    if (!st && t->options.forecast != KVF_FORECAST_OFF) st = kvf__trainer_forecast(t);
    KVF_TRY(kvf__ranks_agree(t, st, &t->output.finished_before));
    kvf__trainer_note(t, "dry run: %lld examples, %lld labels, %lld steps, nothing written",
                      (long long)t->rows.total.rows, (long long)t->rows.total.labels,
                      (long long)t->progress.steps);
    return KVF_OK;
}

kvf_status kvf__trainer_run(kvf__trainer *t, double begin, kvf_train_result *result)
{
    kvf_status st = KVF_OK;
    int64_t tokens_before = t->progress.tokens;
    if (!t->output.finished_before) st = t->options.dry_run ? run_dry(t) : run_steps(t);
    if (st && st != KVF_ESTOPPED) return st;
    kvf__trainer_result(t, begin, tokens_before, result);
    result->finished_before = t->output.finished_before;
    return st;
}

static kvf_status train(kvf_ctx *ctx, const kvf_train_options *options, kvf_train_result *result)
{
    kvf__trainer t;
    kvf__ranks *ranks = NULL;
    double begin = kvf__clock();
    KVF_TRY(kvf__ranks_join(ctx, &ranks));
    KVF_TRY(kvf__trainer_init(ctx, options, &(kvf__trainer_uses){.ranks = ranks}, &t));
    kvf_status st = kvf__trainer_run(&t, begin, result);
    kvf__trainer_done(&t);
    return st;
}

/* A step is finished and saved before the stop flag ends the run. */
static kvf_status train_to_stop(kvf_ctx *ctx, const kvf_train_options *options,
                                kvf_train_result *result)
{
    kvf__ctx_defer_stop(ctx, true);
    const kvf_status st = train(ctx, options, result);
    kvf__ctx_defer_stop(ctx, false);
    return st;
}

kvf_status kvf_train(kvf_ctx *ctx, const kvf_train_options *options, kvf_train_result *result)
{
    KVF_TRY(KVF__NEED(ctx, options, result));
    KVF__RETURN(ctx, train_to_stop(ctx, options, result));
}
