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
    if (!t->options.event) return;
    kvf_event event = {.kind = KVF_EVENT_NOTE, .step = t->step, .steps = t->steps, .text = text};
    t->options.event(t->options.event_user, &event);
}

/* ---- opening --------------------------------------------------------------------------------- */

static kvf_status open_base(kvf__trainer *t)
{
    kvf_base_options options = {.backward = true};
    KVF_TRY(kvf__precision_parse(t->ctx, t->options.precision, &options.precision));
    KVF_TRY(kvf_base_open(t->ctx, t->options.base, &options, &t->base));
    t->options.precision = kvf__precision_name(t->base->precision);
    return KVF_OK;
}

static kvf_status fill_identity(kvf__trainer *t)
{
    const kvf__desc *d = kvf__model_desc(t->base->model);
    kvf__identity *id = &t->id;
    id->L = d->L;
    id->G = d->G;
    id->D = d->D;
    id->P = t->options.prefix_length;
    id->position_start = strcmp(t->options.position_start, "P") ? 0 : id->P;
    KVF_TRY(kvf__strdup(t->ctx, t->base->name, &id->base_name));
    KVF_TRY(kvf__strdup(t->ctx, d->arch_name, &id->base_architecture));
    KVF_TRY(kvf__strdup(t->ctx, t->base->hash, &id->base_hash));
    KVF_TRY(kvf__strdup(t->ctx, t->options.method, &id->method));
    KVF_TRY(kvf__strdup(t->ctx, "lm", &id->task));
    return kvf__strdup(t->ctx, t->options.chat_template, &id->chat_template);
}

static kvf_status load_set(kvf__trainer *t, const char *path, kvf__dataset *out)
{
    const kvf_train_options *o = &t->options;
    int64_t longest = kvf__longest_row(t->base, t->id.P, t->id.position_start);
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
    };
    KVF_TRY(kvf__overlong_parse(t->ctx, o->overlong, &load.overlong));
    KVF_TRY(kvf__dataset_load(t->ctx, path, &load, out));
    if (out->skipped || out->truncated)
        kvf__trainer_note(t, "%s: %lld rows skipped, %lld truncated to %lld tokens", path,
                          (long long)out->skipped, (long long)out->truncated,
                          (long long)load.max_length);
    return KVF_OK;
}

static kvf_status open_data(kvf__trainer *t)
{
    KVF_TRY(kvf__renderer_init(t->ctx, t->base, t->options.chat_template, t->options.map,
                               &t->renderer));
    KVF_TRY(load_set(t, t->options.data, &t->data));
    if (!t->options.valid) return KVF_OK;
    KVF_TRY(load_set(t, t->options.valid, &t->valid));
    return kvf__evaluator_create(t->ctx, t->base, &t->valid, t->id.P, 0,
                                 !strcmp(t->options.share_leads, "auto"), &t->evaluator);
}

/* ---- lengths --------------------------------------------------------------------------------- */

static int64_t steps_per_epoch(kvf__trainer *t, int64_t epochs)
{
    int64_t steps = 0, n;
    bool last = false;
    for (int64_t epoch = 0; epoch < epochs; steps++) {
        kvf__sampler_next(&t->sampler, &n, &last);
        epoch += last;
    }
    kvf__sampler_rewind(&t->sampler);
    return steps;
}

static kvf_status decide_steps(kvf__trainer *t)
{
    kvf_train_options *o = &t->options;
    KVF_TRY(kvf__sampler_init(t->ctx, &t->sampler, &t->data, o->shuffle, o->seed,
                              o->batch_tokens ? 0 : o->batch_size, o->batch_tokens));
    t->steps = o->steps ? o->steps : steps_per_epoch(t, o->epochs);
    o->steps = t->steps;
    if (!o->schedule_steps) o->schedule_steps = t->steps;
    KVF_TRY(kvf__schedule_init(t->ctx, o->schedule, o->warmup, o->schedule_steps, &t->schedule));
    if (t->steps > o->schedule_steps && t->schedule.kind != KVF__SCHEDULE_CONSTANT)
        return kvf__fail(t->ctx, KVF_EUSAGE,
                         "--steps %lld is past the %s schedule's length of %lld steps, fixed when "
                         "the run was created",
                         (long long)t->steps, o->schedule, (long long)o->schedule_steps);
    return KVF_OK;
}

/* What a walk over the run's own schedule does with the rows of a part of a step. */
typedef kvf_status walk_fn(kvf__trainer *t, const int64_t *examples, int64_t n,
                           kvf__batch_sizes *sizes);

static kvf_status walk_schedule(kvf__trainer *t, walk_fn *visit, kvf__batch_sizes *sizes)
{
    kvf_status st = KVF_OK;
    kvf__sampler_rewind(&t->sampler);
    for (int64_t step = 0; !st && step < t->steps; step++) {
        int64_t n;
        bool last;
        const int64_t *examples = kvf__sampler_next(&t->sampler, &n, &last);
        int64_t part_rows = (n + t->options.grad_accum - 1) / t->options.grad_accum;
        for (int64_t first = 0; !st && first < n; first += part_rows) {
            st = visit(t, examples + first, n - first < part_rows ? n - first : part_rows, sizes);
        }
    }
    kvf__sampler_rewind(&t->sampler);
    return st;
}

/* Upper bounds, from lengths alone. */
static kvf_status bound_part(kvf__trainer *t, const int64_t *examples, int64_t n,
                             kvf__batch_sizes *sizes)
{
    kvf__batch_sizes part = {.rows = n};
    for (int64_t i = 0; i < n; i++) {
        part.tokens += kvf__example_length(&t->data, examples[i]);
        part.labels += kvf__example_labels(&t->data, examples[i]);
    }
    kvf__batch_sizes_raise(sizes, &part);
    return KVF_OK;
}

static kvf_status measure_part(kvf__trainer *t, const int64_t *examples, int64_t n,
                               kvf__batch_sizes *sizes)
{
    kvf__batcher_fill(&t->batcher, &t->data, examples, n);
    kvf__batch_sizes_raise(sizes, &t->batcher.sizes);
    return KVF_OK;
}

static kvf_status prepare_part(kvf__trainer *t, const int64_t *examples, int64_t n,
                               kvf__batch_sizes *sizes)
{
    (void)sizes;
    kvf__batcher_fill(&t->batcher, &t->data, examples, n);
    if (!t->batcher.sizes.labels) return KVF_OK;
    return kvf__pass_prepare(t->ctx, t->pass, t->batcher.sizes.tokens, t->batcher.sizes.labels);
}

static kvf_status take_pass(kvf__trainer *t)
{
    kvf__batch_sizes bounds = {0}, sizes = {0};
    const kvf__batch_rules rules = {.causal = kvf__model_desc(t->base->model)->causal,
                                    .share = !strcmp(t->options.share_leads, "auto")};
    KVF_TRY(walk_schedule(t, bound_part, &bounds));
    KVF_TRY(
        kvf__batcher_init(t->ctx, &t->batcher, rules, bounds.rows, bounds.tokens, bounds.labels));
    KVF_TRY(walk_schedule(t, measure_part, &sizes));
    kvf__pass_limits limits = kvf__limits_for(&sizes, t->id.P, true);
    limits.recompute = t->options.recompute;
    KVF_TRY(kvf__pass_create(t->ctx, t->base->model, &limits, &t->pass));
    return walk_schedule(t, prepare_part, &sizes);
}

/* ---- parameters ------------------------------------------------------------------------------ */

static kvf_status take_best(kvf__trainer *t)
{
    const kvf__params *params = kvf__encoder_params(t->encoder);
    size_t total = 0;
    for (size_t i = 0; i < params->n; i++)
        total += (size_t)params->item[i].n;
    KVF_TRY(kvf__alloc_array(t->ctx, total, sizeof(float), &t->best_values));
    t->best = *params;
    float *at = t->best_values;
    for (size_t i = 0; i < t->best.n; i++) {
        t->best.item[i].value = at;
        t->best.item[i].grad = NULL;
        at += t->best.item[i].n;
    }
    return KVF_OK;
}

static kvf_status take_history(kvf__trainer *t)
{
    kvf__history *h = &t->history;
    size_t n = (size_t)(t->steps > t->resumed.history.n ? t->steps : t->resumed.history.n);
    KVF_TRY(kvf__alloc_array(t->ctx, n, sizeof *h->step, &h->step));
    KVF_TRY(kvf__alloc_array(t->ctx, n, sizeof *h->tokens, &h->tokens));
    KVF_TRY(kvf__alloc_array(t->ctx, n, sizeof *h->train_loss, &h->train_loss));
    KVF_TRY(kvf__alloc_array(t->ctx, n, sizeof *h->valid_loss, &h->valid_loss));
    KVF_TRY(kvf__alloc_array(t->ctx, n, sizeof *h->lr, &h->lr));
    KVF_TRY(kvf__alloc_array(t->ctx, n, sizeof *h->grad_norm, &h->grad_norm));
    return kvf__alloc_array(t->ctx, n, sizeof *h->prefix_norm, &h->prefix_norm);
}

static kvf_status take_parameters(kvf__trainer *t)
{
    kvf_train_options *o = &t->options;
    kvf__encoder_shape shape = {t->id.L, t->id.G, t->id.P, t->id.D, o->encoder_hidden};
    KVF_TRY(kvf__encoder_create(t->ctx, o->method, &shape, &t->encoder));
    KVF_TRY(kvf__prefix_init(t->ctx, &t->prefix, t->id.L, t->id.G, t->id.P, t->id.D));
    KVF_TRY(kvf__prefix_init(t->ctx, &t->dprefix, t->id.L, t->id.G, t->id.P, t->id.D));
    KVF_TRY(kvf__adamw_init(t->ctx, &t->adamw, kvf__encoder_params(t->encoder)));
    t->adamw.beta1 = o->beta1;
    t->adamw.beta2 = o->beta2;
    t->adamw.eps = o->eps;
    t->adamw.weight_decay = o->weight_decay;
    if (t->evaluator || t->resumed.best.params.n) KVF_TRY(take_best(t));
    KVF_TRY(take_history(t));
    if (t->is_resumed)
        KVF_TRY(kvf__trainer_restore(t));
    else
        KVF_TRY(kvf__trainer_start_values(t));
    if (!t->is_resumed) t->best.n = 0;
    return kvf__encoder_lr_units(t->ctx, t->encoder, o->lr_units, &t->lr_k);
}

/* ---- the run --------------------------------------------------------------------------------- */

static kvf_status open_output(kvf__trainer *t)
{
    const kvf_train_options *o = &t->options;
    kvf__outfile probe = {0};
    if (!o->out) return kvf__fail(t->ctx, KVF_EUSAGE, "--out is needed");
    bool there = kvf__exists(o->out);
    if (!o->resume || !there) {
        if (there && !o->force)
            return kvf__fail(t->ctx, KVF_EEXIST,
                             "%s: exists (--force replaces it, --resume continues it)", o->out);
        KVF_TRY(kvf__outfile_begin(t->ctx, o->out, o->force, &probe));
        kvf__outfile_abort(&probe);
        return KVF_OK;
    }
    KVF_TRY(kvf__run_file_read(t->ctx, o->out, true, &t->resumed));
    t->is_resumed = true;
    return kvf__train_options_resume(t->ctx, o->out, &t->options, t->resumed.options);
}

kvf_status kvf__trainer_init(kvf_ctx *ctx, const kvf_train_options *options, kvf__trainer *out)
{
    kvf__trainer *t = out;
    *t = (kvf__trainer){.ctx = ctx, .options = *options, .best_value = NAN, .valid_loss = NAN};
    kvf_status st = open_output(t); /* first: --resume fills in the run's own options */
    if (!st) st = kvf__train_options_require(ctx, &t->options);
    if (!st) st = kvf__train_options_check(ctx, &t->options);
    if (!st) st = open_base(t);
    if (!st) st = fill_identity(t);
    if (!st) st = open_data(t);
    if (!st) st = decide_steps(t);
    if (!st) st = take_parameters(t);
    if (st) kvf__trainer_done(t);
    return st;
}

kvf_status kvf__trainer_init_memory(kvf_ctx *ctx, const kvf_train_options *options, kvf_base **base,
                                    kvf__dataset *data, kvf__trainer *out)
{
    kvf__trainer *t = out;
    *t = (kvf__trainer){.ctx = ctx,
                        .options = *options,
                        .best_value = NAN,
                        .valid_loss = NAN,
                        .base = *base,
                        .data = *data};
    *base = NULL;
    *data = (kvf__dataset){0};
    t->options.precision = kvf__precision_name(t->base->precision);
    kvf_status st = kvf__train_options_check(ctx, &t->options);
    if (!st) st = fill_identity(t);
    if (!st) st = decide_steps(t);
    if (!st) st = take_parameters(t);
    if (!st) st = kvf__trainer_prepare(t);
    if (st) kvf__trainer_done(t);
    return st;
}

kvf_status kvf__trainer_prepare(kvf__trainer *t)
{
    KVF_TRY(take_pass(t)); /* leaves the sampler at step 0 */
    for (int64_t step = 0; step < t->step; step++) {
        int64_t n;
        kvf__sampler_next(&t->sampler, &n, &t->epoch_end);
    }
    return KVF_OK;
}

void kvf__trainer_done(kvf__trainer *t)
{
    kvf__pass_free(t->pass);
    kvf__batcher_done(&t->batcher);
    kvf__sampler_done(&t->sampler);
    kvf__evaluator_free(t->evaluator);
    kvf__encoder_free(t->encoder);
    kvf__adamw_done(&t->adamw);
    kvf__prefix_done(&t->prefix);
    kvf__prefix_done(&t->dprefix);
    kvf__history_done(&t->history);
    kvf__free(t->best_values);
    kvf__dataset_done(&t->data);
    kvf__dataset_done(&t->valid);
    kvf__renderer_done(&t->renderer);
    kvf__identity_done(&t->id);
    kvf_base_free(t->base);
    kvf__run_file_done(&t->resumed);
}

static void fill_result(const kvf__trainer *t, double begin, int64_t tokens_before,
                        kvf_train_result *r)
{
    int64_t parameters = 0;
    const kvf__params *params = kvf__encoder_params(t->encoder);
    for (size_t i = 0; i < params->n; i++)
        parameters += params->item[i].n;
    double seconds = kvf__clock() - begin;
    *r = (kvf_train_result){
        .steps = t->step,
        .train_loss = t->train_loss,
        .valid_loss = t->valid_loss,
        .best_valid_loss = t->best_value,
        .tokens = t->tokens,
        .tokens_per_second = t->step_seconds > 0
                                 ? (double)(t->tokens - tokens_before) / t->step_seconds
                                 : 0,
        .seconds = seconds,
        .peak_rss_bytes = kvf_peak_rss_bytes(),
        .trainable_parameters = parameters,
        .label_tokens = t->data.n_labels,
        .examples = t->data.n,
        .precision = kvf__precision_name(t->base->precision),
    };
}

kvf_status kvf_train(kvf_ctx *ctx, const kvf_train_options *options, kvf_train_result *result)
{
    kvf__trainer t;
    double begin = kvf__clock();
    KVF_TRY(kvf__trainer_init(ctx, options, &t));
    kvf_status st = KVF_OK;
    int64_t tokens_before = t.tokens;
    bool finished = t.is_resumed && t.step >= t.steps;
    if (!finished && !t.options.dry_run) {
        st = kvf__trainer_prepare(&t);
        if (!st) st = kvf__trainer_loop(&t);
    } else if (!finished) {
        st = kvf__trainer_prepare(&t);
        if (!st)
            kvf__trainer_note(
                &t, "dry run: %lld examples, %lld label tokens, %lld steps, nothing written",
                (long long)t.data.n, (long long)t.data.n_labels, (long long)t.steps);
    }
    if (!st || st == KVF_ESTOPPED) {
        fill_result(&t, begin, tokens_before, result);
        result->finished_before = finished;
    }
    kvf__trainer_done(&t);
    return st;
}
