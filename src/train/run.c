/* Opens output and base of a run, and sets options that depend on method and base. */
#include "run.h"

#include <string.h>

/* ---- the output ------------------------------------------------------------------------------ */

/* Refuses an output that is also an input. */
static kvf_status check_not_input(kvf__run *run, const char *input)
{
    KVF_TRY(kvf__check_not_input(run->ctx, run->options.out, input));
    return run->options.log ? kvf__check_not_input(run->ctx, run->options.log, input) : KVF_OK;
}

/* Checks the options of a run whose values are wanted, not its file. */
static kvf_status open_in_memory(kvf__run *run)
{
    const kvf_train_options *o = &run->options;
    if (o->out || o->resume || o->dry_run)
        return kvf__fail(run->ctx, KVF_EUSAGE,
                         "without a run file: --out, --resume and --dry-run have no meaning");
    KVF_TRY(kvf__options_imply(run->ctx, &run->options));
    if (!kvf__method_has_length(o->method) || o->named_data.n)
        return kvf__fail(run->ctx, KVF_EUSAGE,
                         "without a run file: want a method of prefixes or virtual tokens, and one "
                         "task");
    return kvf__journal_check(run);
}

kvf_status kvf__run_open_output(kvf__run *run)
{
    if (run->output.in_memory) return open_in_memory(run);
    const kvf_train_options *o = &run->options;
    const char *const inputs[] = {o->base,    o->lora,         o->data,      o->valid,
                                  o->init_kv, o->init_encoder, o->init_from, o->retention,
                                  o->labels,  o->class_weights};
    const kvf_named *const named[] = {&o->named_data, &o->named_valid, &o->named_labels};
    if (!o->out) return kvf__fail(run->ctx, KVF_EUSAGE, "--out is needed");
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++)
        KVF_TRY(check_not_input(run, inputs[i]));
    for (size_t i = 0; i < sizeof named / sizeof named[0]; i++)
        for (size_t k = 0; k < named[i]->n; k++)
            KVF_TRY(check_not_input(run, named[i]->item[k]));
    bool there = kvf__exists(o->out);
    if (there && !o->resume && !o->force)
        return kvf__fail(run->ctx, KVF_EEXIST,
                         "%s: exists (--force replaces it, --resume continues it)", o->out);
    if (!o->dry_run) KVF_TRY(kvf__outlock_acquire(run->ctx, o->out, &run->output.lock));
    if (!o->resume || !there) {
        KVF_TRY(kvf__options_imply(run->ctx, &run->options));
        KVF_TRY(kvf__journal_check(run));
        return kvf__check_output(run->ctx, o->out, o->force);
    }
    KVF_TRY(kvf__artifact_read_all(run->ctx, o->out, KVF__KIND_RUN, &run->output.resumed));
    run->output.is_resumed = true;
    KVF_TRY(kvf__journal_check(run));
    return kvf__options_resume(run->ctx, o->out, &run->options, run->output.resumed.options);
}

/* Returns the path of an option, NULL if its value is the word that names no file. */
static const char *path_unless(const char *value, const char *word)
{
    return value && strcmp(value, word) ? value : NULL;
}

/* Runs before the base is loaded, so that a wrong path fails early. */
kvf_status kvf__run_check_inputs(const kvf__run *run)
{
    const kvf_train_options *o = &run->options;
    const bool starts = !run->output.is_resumed;
    const char *const paths[] = {o->data,
                                 o->valid,
                                 path_unless(o->retention, "prompts"),
                                 path_unless(o->class_weights, "balanced"),
                                 starts ? o->init_kv : NULL,
                                 starts ? o->init_from : NULL,
                                 starts ? o->init_encoder : NULL};
    const kvf_named *const lists[] = {&o->named_data, &o->named_valid};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        if (paths[i] && *paths[i]) KVF_TRY(kvf__check_input(run->ctx, paths[i]));
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < lists[k]->n; i++)
            KVF_TRY(kvf__check_input(run->ctx, strchr(lists[k]->item[i], '=') + 1));
    return KVF_OK;
}

/* ---- the base -------------------------------------------------------------------------------- */

/* Uses options.open_base directly, or a copy of it if the run changes its weights. */
static kvf_status borrow_base(kvf__run *run, kvf_base_options *options, const kvf__train *form)
{
    kvf_base *base = run->options.open_base;
    const bool changes = form->what != KVF__TRAIN_NOTHING;
    if (base->carries)
        return kvf__fail(run->ctx, KVF_EUSAGE,
                         "%s: the open base still has changes made by a prefix: open it again",
                         base->path);
    if (run->options.lora && *run->options.lora &&
        (!base->lora || strcmp(run->options.lora, base->lora) != 0))
        return kvf__fail(run->ctx, KVF_EUSAGE, "--lora %s: the base was opened %s",
                         run->options.lora, base->lora ? "with another" : "without one");
    if (!KVF__GIVEN(&run->options, weight_dtype) && form->what != KVF__TRAIN_EVERYTHING)
        options->weight_dtype = run->options.weight_dtype = base->weight_dtype;
    if (changes) return kvf__base_copy_as(run->ctx, base, options, form, &run->base);
    KVF_TRY(kvf__base_add_backward(run->ctx, base));
    run->base = base;
    run->borrows_base = true;
    return KVF_OK;
}

/* Sets which weights of the base the method trains. */
static kvf_status form_of(const kvf__run *run, kvf__train *out)
{
    const kvf_train_options *o = &run->options;
    *out = (kvf__train){0};
    if (run->method->port != KVF__PORT_BLOCK && !o->unfreeze_base) return KVF_OK;
    if (!strcmp(run->method->folds_to, "base") || o->unfreeze_base) {
        out->what = KVF__TRAIN_EVERYTHING;
        return KVF_OK;
    }
    out->what = KVF__TRAIN_ADAPTERS;
    out->frozen_norms = o->adapter_norms_off;
    out->adapters.size = o->adapter_size;
    KVF_TRY(kvf__adapter_act_parse(run->ctx, o->adapter_activation, &out->adapters.act));
    return kvf__adapter_place_parse(run->ctx, o->adapter_placement, &out->adapters.place);
}

static kvf_status find_base(kvf__run *run, kvf_base_options *options)
{
    kvf__train form;
    KVF_TRY(form_of(run, &form));
    KVF_TRY(kvf__ranks_decided(run));
    if (run->base) return KVF_OK;
    return run->options.open_base
               ? borrow_base(run, options, &form)
               : kvf__base_open_as(run->ctx, run->options.base, options, &form, &run->base);
}

kvf_status kvf__run_open_base(kvf__run *run)
{
    kvf_base_options options = {.precision = run->options.precision,
                                .backward = true,
                                .weight_dtype = run->options.weight_dtype,
                                .stream_layers = run->options.stream_layers,
                                .lora = run->options.lora};
    KVF_TRY(find_base(run, &options));
    if (options.precision != KVF_PRECISION_AUTO && options.precision != run->base->precision)
        return kvf__fail(run->ctx, KVF_EUSAGE,
                         "--precision %s: the base was opened in %s, which all its runs share",
                         kvf__precision_name(options.precision),
                         kvf__precision_name(run->base->precision));
    if (options.weight_dtype != run->base->weight_dtype)
        return kvf__fail(run->ctx, KVF_EUSAGE,
                         "--weight-dtype %s: the base was opened with another type",
                         kvf__weight_dtype_name(options.weight_dtype));
    run->options.precision = run->base->precision;
    return kvf__ranks_decided(run);
}

static bool at_input(const kvf__run *run)
{
    return run->method->port == KVF__PORT_EMBED;
}

/* Takes the number of virtual tokens from the template. */
static kvf_status decide_template(kvf__run *run)
{
    kvf_train_options *o = &run->options;
    kvf__row_template pattern;
    if (!o->p_template || !*o->p_template) return KVF_OK;
    KVF_TRY(kvf__row_template_init(run->ctx, o->p_template, 0, &pattern));
    int64_t P = pattern.P;
    kvf__row_template_done(&pattern);
    if (run->method->port == KVF__PORT_KV && !P && !strcmp(o->task, "seq-cls")) return KVF_OK;
    if (!at_input(run))
        return kvf__fail(run->ctx, KVF_EUSAGE,
                         "--p-template is for methods prompt and p-tuning, and without {p} for "
                         "prefixes of --task seq-cls");
    if (!P)
        return kvf__fail(run->ctx, KVF_EUSAGE, "--p-template \"%s\": {p} is missing",
                         o->p_template);
    if (KVF__GIVEN(o, prefix_length) && o->prefix_length != P)
        return kvf__fail(run->ctx, KVF_EUSAGE,
                         "--p-template has %lld virtual tokens, but --prefix-length is %lld",
                         (long long)P, (long long)o->prefix_length);
    o->prefix_length = P;
    return KVF_OK;
}

kvf_status kvf__run_decide_length(kvf__run *run)
{
    KVF_TRY(decide_template(run));
    if (!run->options.prefix_length &&
        !KVF__GIVEN(&run->options, prefix_length)) /* for tags (docs/methods.md) */
        run->options.prefix_length = kvf__model_desc(run->base->model)->block.causal ? 20 : 40;
    return KVF_OK;
}

/* Returns what Muon on the values requires and the run lacks: a directly updated prefix with equal
 * heads. */
static const char *muon_lacks(const kvf__run *run)
{
    const kvf_train_options *o = &run->options;
    if (kvf__model_desc(run->base->model)->by_layer.shape) return "a base with equal layers";
    if (!strcmp(o->method, "mlp") && o->optimizer_adamw)
        return o->lr_per_parameter ? "--lr-units prefix" : "--optimizer natural";
    return strcmp(o->method, "mlp") && strcmp(o->method, "direct") ? "method mlp or direct" : NULL;
}

/* The default of --value-optimizer is muon for tags from centroids (docs/methods.md). */
kvf_status kvf__run_decide_values(kvf__run *run)
{
    kvf_train_options *o = &run->options;
    const char *lacks = muon_lacks(run);
    if (run->output.is_resumed) return KVF_OK;
    if (!KVF__GIVEN(o, values_muon) && !lacks)
        o->values_muon |= !strcmp(o->task, "token-cls") && !strcmp(o->init, "centroids") &&
                          !o->lr_per_parameter;
    if (o->values_muon && lacks)
        return kvf__fail(run->ctx, KVF_EUSAGE, "--value-optimizer muon: want %s", lacks);
    return KVF_OK;
}

kvf_status kvf__run_identify(kvf__run *run)
{
    const kvf__desc *d = kvf__model_desc(run->base->model);
    kvf__identity *id = &run->id;
    const kvf__kv_shape kv = kvf__desc_kv(d);
    KVF_TRY(kvf__identity_set_kv(run->ctx, id, &kv));
    id->encoder_layers = d->encoder;
    id->relative_bias = kvf__places_near(&run->options, d);
    id->P = kvf__method_has_length(run->options.method) ? run->options.prefix_length : 0;
    if (run->options.ffn_length) id->neurons = kvf__desc_neurons(d, run->options.ffn_length);
    if (d->position.starts_at_0 && !run->output.is_resumed &&
        !KVF__GIVEN(&run->options, position_start))
        run->options.position_start = "0";
    KVF_TRY(kvf__position_parse(run->ctx, run->options.position_start, id->P, &id->position_start));
    kvf__infix_identity(&run->options, run->base, id);
    KVF_TRY(kvf__strdup(run->ctx, run->base->name, &id->base_name));
    KVF_TRY(kvf__strdup(run->ctx, d->arch_name, &id->base_architecture));
    KVF_TRY(kvf__strdup(run->ctx, run->base->hash, &id->base_hash));
    KVF_TRY(kvf__strdup(run->ctx, run->options.method, &id->method));
    KVF_TRY(kvf__strdup(run->ctx, run->options.named_data.n ? KVF__MULTI_TASK : run->options.task,
                        &id->task));
    return kvf__strdup(run->ctx, run->options.chat_template, &id->chat_template);
}

/* ---- its end --------------------------------------------------------------------------------- */

bool kvf__run_patience_over(const kvf__run *run)
{
    return run->options.early_stop && run->progress.stale >= run->options.early_stop;
}
