/* Setting up a run: everything that can fail for a reason outside is done here, before the first
 * step: files, shapes, options, memory, and the primitives for every batch size that the run's own
 * schedule will meet. */
#include "train_int.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

/* ---- events ---------------------------------------------------------------------------------- */

void kvf__trainer_note(kvf__trainer *t, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    kvf__log(t->ctx, KVF_LOG_INFO, "%s", text);
    const kvf_event event = {.kind = KVF_EVENT_NOTE,
                             .step = t->step,
                             .steps = t->steps,
                             .seconds = kvf__clock() - t->begin,
                             .text = text};
    kvf__trainer_emit(t, &event);
}

/* ---- opening --------------------------------------------------------------------------------- */

static kvf_status open_base(kvf__trainer *t)
{
    kvf_base_options options = {.backward = true};
    kvf__train form;
    KVF_TRY(kvf__trainer_form(t, &form));
    KVF_TRY(kvf__precision_parse(t->ctx, t->options.precision, &options.precision));
    KVF_TRY(kvf__ranks_decided(t));
    KVF_TRY(kvf__weight_dtype_parse(t->ctx, t->options.weight_dtype, &options.weight_dtype));
    options.stream_layers = t->options.stream_layers;
    if (!t->base) KVF_TRY(kvf__base_open_as(t->ctx, t->options.base, &options, &form, &t->base));
    if (options.precision != KVF_PRECISION_AUTO && options.precision != t->base->precision)
        return kvf__fail(t->ctx, KVF_EUSAGE,
                         "--precision %s: the base is open in %s, which its runs share",
                         t->options.precision, kvf__precision_name(t->base->precision));
    if (options.weight_dtype != t->base->weight_dtype)
        return kvf__fail(t->ctx, KVF_EUSAGE, "--weight-dtype %s: the base is open as another",
                         t->options.weight_dtype);
    t->options.precision = kvf__precision_name(t->base->precision);
    return kvf__ranks_decided(t);
}

static bool at_input(const kvf__trainer *t)
{
    return t->method->port == KVF__PORT_EMBED;
}

/* A template says how many virtual tokens there are. */
static kvf_status decide_template(kvf__trainer *t)
{
    kvf_train_options *o = &t->options;
    kvf__row_template pattern;
    if (!o->p_template || !*o->p_template) return KVF_OK;
    KVF_TRY(kvf__row_template_init(t->ctx, o->p_template, 0, &pattern));
    int64_t P = pattern.P;
    kvf__row_template_done(&pattern);
    if (!at_input(t))
        return kvf__fail(t->ctx, KVF_EUSAGE,
                         "--p-template is for methods with virtual tokens at the input: prompt, "
                         "p-tuning");
    if (!P)
        return kvf__fail(t->ctx, KVF_EUSAGE, "--p-template \"%s\": no {p} in it", o->p_template);
    if (kvf__train_option_given(o, "prefix-length") && o->prefix_length != P)
        return kvf__fail(t->ctx, KVF_EUSAGE,
                         "--p-template has %lld virtual tokens, --prefix-length is %lld",
                         (long long)P, (long long)o->prefix_length);
    o->prefix_length = P;
    return KVF_OK;
}

/* Where --init is left open: what suits method and base. */
static kvf_status decide_start(kvf__trainer *t)
{
    kvf_train_options *o = &t->options;
    const char *wish = kvf__encoder_default_init(o->method);
    bool open = !t->is_resumed && !kvf__train_option_given(o, "init");
    bool both_ways = t->method->port == KVF__PORT_KV && !kvf__model_desc(t->base->model)->causal;
    if (!wish && both_ways && !strcmp(o->init, "vocab")) wish = "random";
    if (open && wish && !strcmp(o->init, "vocab")) o->init = wish;
    if (t->method->port == KVF__PORT_BLOCK) o->init = "random";
    bool alone = !strcmp(o->method, "direct") || !strcmp(o->method, "prompt");
    if (alone && !t->is_resumed && kvf__train_option_given(o, "init-scheme") &&
        strcmp(o->init, "random"))
        return kvf__fail(t->ctx, KVF_EUSAGE,
                         "--init-scheme is for --init random: method %s has no other weights to "
                         "draw",
                         o->method);
    return KVF_OK;
}

kvf_status kvf__trainer_decide_task(kvf__trainer *t)
{
    kvf_train_options *o = &t->options;
    KVF_TRY(kvf__task_parse(t->ctx, o->task, &t->task));
    t->metric = kvf__metric_find(t->task, o->regression,
                                 o->metric && *o->metric ? o->metric : NULL);
    bool text = t->metric &&
                (!strcmp(t->metric->name, "bleu") || !strcmp(t->metric->name, "rouge_l"));
    if (text)
        return kvf__fail(t->ctx, KVF_EUSAGE, "--metric %s: only eval --generate writes texts",
                         t->metric->name);
    if (!t->metric)
        return kvf__fail(t->ctx, KVF_EUSAGE, "--metric \"%s\": task %s has no such metric",
                         o->metric, o->task);
    if (t->task == KVF__TASK_LM && !kvf__model_desc(t->base->model)->causal)
        return kvf__fail(t->ctx, KVF_EUSAGE,
                         "%s: a %s predicts no next token; want another --task than lm",
                         t->options.base, kvf_base_architecture(t->base));
    return KVF_OK;
}

static kvf_status fill_identity(kvf__trainer *t)
{
    const kvf__desc *d = kvf__model_desc(t->base->model);
    kvf__identity *id = &t->id;
    id->L = d->L;
    id->G = d->G;
    id->D = d->D;
    id->P = kvf__method_has_length(t->options.method) ? t->options.prefix_length : 0;
    if (d->starts_at_0 && !t->is_resumed && !kvf__train_option_given(&t->options, "position-start"))
        t->options.position_start = "0";
    KVF_TRY(kvf__position_parse(t->ctx, t->options.position_start, id->P, &id->position_start));
    KVF_TRY(kvf__infix_identity(t->ctx, &t->options, t->base, id));
    KVF_TRY(kvf__strdup(t->ctx, t->base->name, &id->base_name));
    KVF_TRY(kvf__strdup(t->ctx, d->arch_name, &id->base_architecture));
    KVF_TRY(kvf__strdup(t->ctx, t->base->hash, &id->base_hash));
    KVF_TRY(kvf__strdup(t->ctx, t->options.method, &id->method));
    KVF_TRY(kvf__strdup(t->ctx, t->options.named_data.n ? KVF__MULTI_TASK : t->options.task,
                        &id->task));
    return kvf__strdup(t->ctx, t->options.chat_template, &id->chat_template);
}

/* Labels are given, or learnt from the training data once, and then those of the run. *given: a
 * copy, for the caller to free. */
static kvf_status known_labels(kvf__trainer *t, const kvf__dataset *out, kvf__label_set *given,
                               kvf__dataset_options *load)
{
    const char *list = t->options.labels;
    kvf__label_set stored = {0};
    if (out != &t->data) {
        load->label_set = t->data.names.n ? &t->data.names : NULL;
        load->learnt = !t->is_resumed && !list;
        return KVF_OK;
    }
    if (list) KVF_TRY(kvf__label_set_parse(t->ctx, "labels", list, given));
    if (t->is_resumed) stored = kvf__jobs_stored_labels(t);
    if (list && stored.n && !kvf__label_set_same(given, &stored))
        return kvf__fail(t->ctx, KVF_EUSAGE,
                         "%s: --labels were others when the run was created; --resume cannot "
                         "change them",
                         t->options.out);
    if (!list && stored.n) KVF_TRY(kvf__label_set_copy(t->ctx, &stored, given));
    load->label_set = given->n ? given : NULL;
    return KVF_OK;
}

kvf_status kvf__trainer_load_set(kvf__trainer *t, const char *path, kvf__dataset *out)
{
    kvf__label_set given = {0};
    const kvf_train_options *o = &t->options;
    int64_t inside = at_input(t) ? t->id.P : 0; /* virtual tokens in the row, not before it */
    int64_t start = t->id.position_start + (t->id.infix ? t->id.P : 0);
    int64_t longest = kvf__longest_row(t->base, t->id.P - inside, start) - inside;
    if (longest < 2 && start > t->id.P)
        return kvf__fail(t->ctx, KVF_EUSAGE,
                         "--position-start %lld leaves no positions for text: the base has %lld",
                         (long long)start,
                         (long long)kvf__model_desc(t->base->model)->max_positions);
    if (longest < 2)
        return kvf__fail(t->ctx, KVF_EUSAGE, "--prefix-length %lld leaves no positions for text",
                         (long long)t->id.P);
    if (o->max_length > longest)
        return kvf__fail(t->ctx, KVF_EUSAGE,
                         "--max-length %lld: at most %lld tokens fit behind the prefix",
                         (long long)o->max_length, (long long)longest);
    kvf__dataset_options load = {
        .render = t->renderer.render,
        .max_length = o->max_length ? o->max_length : longest,
        .vocab = (int32_t)kvf__model_desc(t->base->model)->V,
        .format = o->format,
        .no_header = o->no_header,
        .columns = o->columns,
        .task = t->task,
        .causal = kvf__model_desc(t->base->model)->causal,
        .regression = o->regression,
        .doc_stride = o->doc_stride,
        .split_text = o->split_text,
        .limit = out == &t->data ? o->limit : 0,
    };
    KVF_TRY(kvf__overlong_parse(t->ctx, o->overlong, &load.overlong));
    kvf_status st = known_labels(t, out, &given, &load);
    if (!st)
        st = t->reads ? kvf__reads_load(t, path, &load, out)
                      : kvf__dataset_load(t->ctx, path, &load, out);
    kvf__label_set_done(&given);
    if (st) return st;
    if (out->skipped || out->truncated)
        kvf__trainer_note(t, "%s: %lld rows skipped, %lld truncated to %lld tokens", path,
                          (long long)out->skipped, (long long)out->truncated,
                          (long long)load.max_length);
    if (out->without_label)
        kvf__trainer_note(t, "%s: %lld of the truncated rows have no label left", path,
                          (long long)out->without_label);
    return t->id.infix ? kvf__infix_check_rows(t->ctx, path, out) : KVF_OK;
}

/* One class has nothing to learn from: mostly the wrong column was read. */
static kvf_status check_classes(kvf__trainer *t)
{
    if (t->data.names.n != 1) return KVF_OK;
    return kvf__fail(t->ctx, KVF_EDATA, "%s: every row has the label \"%s\", want two or more",
                     t->options.data, t->data.names.names[0]);
}

kvf_status kvf__trainer_load_valid(kvf__trainer *t, const char *data, const char *valid)
{
    const kvf_train_options *o = &t->options;
    if (valid) return kvf__trainer_load_set(t, valid, &t->valid);
    if (!(o->valid_split > 0)) return KVF_OK;
    return kvf__dataset_split(t->ctx, data, &t->data, o->valid_split, o->seed, &t->valid);
}

static kvf_status load_sets(kvf__trainer *t)
{
    KVF_TRY(kvf__trainer_load_set(t, t->options.data, &t->data));
    KVF_TRY(check_classes(t));
    return kvf__trainer_load_valid(t, t->options.data, t->options.valid);
}

/* Options of TSV and CSV would be taken without a word. */
static kvf_status check_columns(kvf__trainer *t)
{
    const kvf_train_options *o = &t->options;
    bool columns = o->columns && *o->columns, any = t->data.delimited || t->valid.delimited;
    if (any || t->is_resumed || !(columns || o->no_header)) return KVF_OK;
    return kvf__fail(t->ctx, KVF_EUSAGE, "--%s is for TSV and CSV: %s is neither",
                     columns ? "columns" : "no-header",
                     o->data ? o->data : "none of the data files");
}

static kvf_status open_data(kvf__trainer *t)
{
    KVF_TRY(kvf__renderer_init(t->ctx, t->base, t->options.chat_template, t->options.map,
                               &t->renderer));
    if (at_input(t))
        KVF_TRY(kvf__renderer_pattern(t->ctx, &t->renderer, t->options.p_template, t->id.P));
    if (t->options.named_data.n) {
        KVF_TRY(kvf__jobs_open(t));
        return check_columns(t);
    }
    KVF_TRY(t->feed ? t->feed->open(t->feed->user, t) : load_sets(t));
    KVF_TRY(check_columns(t));
    if (!t->valid.n) return KVF_OK;
    const kvf__evaluator_options how = {
        .P = at_input(t) ? 0 : t->id.P,
        .share_prefixes = !strcmp(t->options.share_prefixes, "auto"),
        .infix = t->id.infix};
    return kvf__evaluator_create(t->ctx, t->base, &t->valid, &how, &t->evaluator);
}

/* ---- the run --------------------------------------------------------------------------------- */

/* Nothing that is written may be a file that is read. */
static kvf_status check_not_input(kvf__trainer *t, const char *input)
{
    KVF_TRY(kvf_check_not_input(t->ctx, t->options.out, input));
    return t->options.log ? kvf_check_not_input(t->ctx, t->options.log, input) : KVF_OK;
}

static kvf_status open_output(kvf__trainer *t)
{
    const kvf_train_options *o = &t->options;
    kvf__outfile probe = {0};
    const char *const inputs[] = {o->base,         o->data,      o->valid,    o->init_kv,
                                  o->init_encoder, o->init_from, o->retention};
    if (!o->out) return kvf__fail(t->ctx, KVF_EUSAGE, "--out is needed");
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++)
        KVF_TRY(check_not_input(t, inputs[i]));
    for (size_t i = 0; i < o->named_data.n; i++)
        KVF_TRY(check_not_input(t, strchr(o->named_data.item[i], '=') + 1));
    if (o->labels && *o->labels == '@') KVF_TRY(check_not_input(t, o->labels + 1));
    bool there = kvf__exists(o->out);
    if (there && !o->resume && !o->force)
        return kvf__fail(t->ctx, KVF_EEXIST,
                         "%s: exists (--force replaces it, --resume continues it)", o->out);
    if (!o->dry_run) KVF_TRY(kvf__outlock_acquire(t->ctx, o->out, &t->lock));
    if (!o->resume || !there) {
        KVF_TRY(kvf__train_options_imply(t->ctx, &t->options));
        KVF_TRY(kvf__journal_check(t));
        KVF_TRY(kvf__outfile_begin(t->ctx, o->out, o->force, &probe));
        kvf__outfile_abort(&probe);
        return KVF_OK;
    }
    KVF_TRY(kvf__run_file_read(t->ctx, o->out, true, &t->resumed));
    t->is_resumed = true;
    KVF_TRY(kvf__journal_check(t));
    return kvf__train_options_resume(t->ctx, o->out, &t->options, t->resumed.options);
}

/* Before the base is loaded: a wrong path should not cost it. */
static kvf_status check_inputs(const kvf__trainer *t)
{
    const kvf_train_options *o = &t->options;
    const bool starts = !t->is_resumed;
    const char *const paths[] = {o->data,
                                 o->valid,
                                 o->retention,
                                 starts ? o->init_kv : NULL,
                                 starts ? o->init_from : NULL,
                                 starts ? o->init_encoder : NULL};
    const kvf_named *const lists[] = {&o->named_data, &o->named_valid};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        if (paths[i] && *paths[i]) KVF_TRY(kvf_check_input(t->ctx, paths[i]));
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < lists[k]->n; i++)
            KVF_TRY(kvf_check_input(t->ctx, strchr(lists[k]->item[i], '=') + 1));
    return KVF_OK;
}

/* A run that --resume has nothing to do for. */
static bool is_finished(const kvf__trainer *t)
{
    return t->is_resumed && (t->step >= t->steps || kvf__trainer_patience_over(t));
}

static kvf_status init(kvf_ctx *ctx, const kvf_train_options *options, kvf_base *base,
                       const kvf__feed *feed, kvf__reads *reads, kvf__ranks *ranks,
                       kvf__trainer *out)
{
    kvf__trainer *t = out;
    *t = (kvf__trainer){.ctx = ctx,
                        .options = *options,
                        .ranks = ranks,
                        .base = base,
                        .borrows_base = base != NULL,
                        .feed = feed,
                        .reads = reads,
                        .best_value = NAN,
                        .best_loss = NAN,
                        .valid_loss = NAN,
                        .begin = kvf__clock()};
    bool finished = false;
    /* first: --resume fills in the run's own options */
    kvf_status st = kvf__ranks_follows(t) ? kvf__ranks_begin(t) : open_output(t);
    if (!st && !feed) st = kvf__train_options_require(ctx, &t->options);
    if (!st) st = kvf__train_options_check(ctx, &t->options);
    if (!st) t->method = kvf__method_find(t->options.method);
    if (!st && !t->base) st = check_inputs(t);
    if (!st) st = open_base(t);
    if (!st && !t->options.named_data.n) st = kvf__trainer_decide_task(t);
    if (!st) st = decide_template(t);
    if (!st) st = decide_start(t);
    if (!st) st = fill_identity(t);
    if (!st) st = open_data(t);
    if (!st) st = kvf__retention_open(t);
    if (!st) st = kvf__trainer_lengths(t);
    if (!st) st = kvf__trainer_parameters(t);
    if (!st) finished = is_finished(t);
    st = kvf__ranks_agree(t, st, &finished);
    t->finished_before = finished;
    if (st) kvf__trainer_done(t);
    return st;
}

kvf_status kvf__trainer_init_fed(kvf_ctx *ctx, const kvf_train_options *options, kvf_base *base,
                                 const kvf__feed *feed, kvf__trainer *out)
{
    return init(ctx, options, base, feed, NULL, NULL, out);
}

kvf_status kvf__trainer_init_on(kvf_ctx *ctx, const kvf_train_options *options, kvf_base *base,
                                kvf__reads *reads, kvf__trainer *out)
{
    return init(ctx, options, base, NULL, reads, NULL, out);
}

kvf_status kvf__trainer_init(kvf_ctx *ctx, const kvf_train_options *options, kvf__trainer *out)
{
    return init(ctx, options, NULL, NULL, NULL, NULL, out);
}

kvf_status kvf__trainer_init_memory(kvf_ctx *ctx, const kvf_train_options *options, kvf_base **base,
                                    kvf__dataset *data, kvf__trainer *out)
{
    kvf__trainer *t = out;
    *t = (kvf__trainer){.ctx = ctx,
                        .options = *options,
                        .best_value = NAN,
                        .best_loss = NAN,
                        .valid_loss = NAN,
                        .begin = kvf__clock(),
                        .base = *base,
                        .data = *data};
    *base = NULL;
    *data = (kvf__dataset){0};
    t->options.precision = kvf__precision_name(t->base->precision);
    kvf_status st = kvf__train_options_check(ctx, &t->options);
    if (!st) t->method = kvf__method_find(t->options.method);
    if (!st) st = kvf__trainer_decide_task(t);
    if (!st) st = decide_template(t);
    if (!st) st = decide_start(t);
    if (!st) st = fill_identity(t);
    if (!st) st = kvf__trainer_lengths(t);
    if (!st) st = kvf__trainer_parameters(t);
    if (!st) st = kvf__trainer_prepare(t);
    if (st) kvf__trainer_done(t);
    return st;
}

void kvf__trainer_done(kvf__trainer *t)
{
    kvf__jobs_done(t);
    kvf__pass_free(t->pass);
    kvf__batcher_done(&t->batcher);
    kvf__sampler_done(&t->sampler);
    kvf__evaluator_free(t->evaluator);
    kvf__retention_free(t->retention);
    kvf__encoder_free(t->encoder);
    kvf__head_free(t->head);
    kvf__verbalizer_free(t->words, t->data.names.n);
    kvf__free(t->layer_mask);
    kvf__adamw_done(&t->adamw);
    kvf__params_done(&t->params);
    kvf__params_done(&t->best);
    kvf__prefix_done(&t->prefix);
    kvf__prefix_done(&t->dprefix);
    kvf__prefix_done(&t->masked);
    kvf__vectors_done(&t->vectors);
    kvf__vectors_done(&t->dvectors);
    kvf__history_done(&t->history);
    kvf__free(t->best_values);
    kvf__dataset_done(&t->data);
    kvf__dataset_done(&t->valid);
    kvf__teacher_done(&t->soft);
    kvf__renderer_done(&t->renderer);
    kvf__identity_done(&t->id);
    if (!t->borrows_base) kvf_base_free(t->base);
    kvf__run_file_done(&t->resumed);
    kvf__journal_close(&t->journal);
    kvf__outlock_drop(&t->lock);
    kvf__ranks_free(t->ranks);
}

void kvf__trainer_result(const kvf__trainer *t, double begin, int64_t tokens_before,
                         kvf_train_result *r)
{
    int64_t parameters = 0;
    for (size_t i = 0; i < t->params.n; i++)
        parameters += t->params.item[i].n;
    double seconds = kvf__clock() - begin;
    *r = (kvf_train_result){
        .steps = t->step,
        .train_loss = t->train_loss,
        .valid_loss = t->valid_loss,
        .best_valid_loss = t->best_loss,
        .best = {t->metric->name, t->best_value},
        .best_step = t->best.n ? t->best_step : 0,
        .stopped_early = t->stopped_early,
        .tokens = t->tokens,
        .computed_tokens = t->computed_tokens,
        .step_seconds = t->step_seconds,
        .tokens_per_second = t->step_seconds > 0
                                 ? (double)(t->tokens - tokens_before) / t->step_seconds
                                 : 0,
        .seconds = seconds,
        .peak_rss_bytes = kvf_peak_rss_bytes(),
        .trainable_parameters = parameters,
        .label_tokens = t->data.n_labels,
        .examples = t->data.n,
        .precision = kvf__precision_name(t->base->precision),
        .forecast = t->forecast,
    };
    kvf__retention_result(t, r);
    kvf__ranks_result(t, r);
}

/* Every step to come, with its journals, on all ranks if it can be on each. */
static kvf_status run_steps(kvf__trainer *t)
{
    kvf_status st = kvf__journal_open(t);
    if (!st && t->steps) st = kvf__trainer_prepare(t);
    if (!st && !strcmp(t->options.forecast, "on")) st = kvf__trainer_forecast(t);
    if (!st) st = kvf__ranks_divide(t);
    st = kvf__ranks_agree(t, st, &t->finished_before);
    if (!st && kvf__ranks_follows(t))
        st = kvf__ranks_follow(t);
    else if (!st)
        st = kvf__ranks_end(t, kvf__trainer_loop(t));
    kvf__journal_end(t, st);
    return st;
}

static kvf_status run_dry(kvf__trainer *t)
{
    kvf_status st = t->steps ? kvf__trainer_prepare(t) : KVF_OK;
    if (!st && strcmp(t->options.forecast, "off")) st = kvf__trainer_forecast(t);
    KVF_TRY(kvf__ranks_agree(t, st, &t->finished_before));
    kvf__trainer_note(t, "dry run: %lld examples, %lld labels, %lld steps, nothing written",
                      (long long)t->data.n, (long long)t->data.n_labels, (long long)t->steps);
    return KVF_OK;
}

kvf_status kvf__trainer_run(kvf__trainer *t, double begin, kvf_train_result *result)
{
    kvf_status st = KVF_OK;
    int64_t tokens_before = t->tokens;
    if (!t->finished_before) st = t->options.dry_run ? run_dry(t) : run_steps(t);
    if (st && st != KVF_ESTOPPED) return st;
    kvf__trainer_result(t, begin, tokens_before, result);
    result->finished_before = t->finished_before;
    return st;
}

kvf_status kvf_train(kvf_ctx *ctx, const kvf_train_options *options, kvf_train_result *result)
{
    kvf__trainer t;
    kvf__ranks *ranks = NULL;
    double begin = kvf__clock();
    KVF_TRY(kvf__ranks_join(ctx, &ranks));
    KVF_TRY(init(ctx, options, NULL, NULL, NULL, ranks, &t));
    kvf_status st = kvf__trainer_run(&t, begin, result);
    kvf__trainer_done(&t);
    return st;
}
