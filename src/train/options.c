/* The options of train as one table: command line, recipe files, --help, /options of the run file
 * and the check of --resume all read its rows (option_rows.c). Here values are set and checked. */
#include "options_priv.h"

#include <math.h>
#include <string.h>

static kvf_status bad_value(kvf_ctx *ctx, const kvf__option *r, const char *value, const char *want)
{
    return kvf__fail(ctx, KVF_EUSAGE, "--%s \"%s\": want %s", r->row.name, value ? value : "",
                     want);
}

/* Adds "NAME=VALUE" of an option that may name a task; false if the value is not of that form. A
 * file of that very name is one. */
static bool add_named(kvf_ctx *ctx, kvf_train_options *o, const char *name, const char *value,
                      kvf_status *st)
{
    kvf_named *list = !strcmp(name, "data")     ? &o->named_data
                      : !strcmp(name, "valid")  ? &o->named_valid
                      : !strcmp(name, "task")   ? &o->named_task
                      : !strcmp(name, "labels") ? &o->named_labels
                                                : NULL;
    size_t n = !list || !value ? 0 : kvf__task_name_length(value);
    if (!n || value[n] != '=' || kvf__exists(value)) return false;
    *st = KVF_OK;
    if (list->n == KVF_MAX_TASKS)
        *st = kvf__fail(ctx, KVF_EUSAGE, "--%s: at most %d tasks", name, KVF_MAX_TASKS);
    else
        list->item[list->n++] = value;
    return true;
}

/* ---- options on the heap --------------------------------------------------------------------- */

/* Copies of texts that were set, newest first. */
typedef struct text_copy {
    struct text_copy *next;
    char text[];
} text_copy;

kvf_status kvf_train_options_create(kvf_ctx *ctx, kvf_train_options **out)
{
    KVF_TRY(KVF__NEED(ctx, out));
    kvf_train_options *options = NULL;
    text_copy *none = NULL;
    KVF_TRY(kvf__alloc(ctx, sizeof *options, &options));
    kvf_status st = kvf__alloc(ctx, sizeof *none, &none);
    if (st) {
        kvf__free(options);
        return st;
    }
    *options = kvf_train_defaults();
    options->texts = none;
    *out = options;
    return KVF_OK;
}

void kvf_train_options_free(kvf_train_options *options)
{
    if (!options) return;
    for (text_copy *copy = options->texts, *next; copy; copy = next) {
        next = copy->next;
        kvf__free(copy);
    }
    kvf__free(options);
}

/* *value becomes a copy where the options are on the heap. */
static kvf_status keep_text(kvf_ctx *ctx, kvf_train_options *options, const char **value)
{
    text_copy *first = options->texts, *copy = NULL;
    if (!first || !*value) return KVF_OK;
    KVF_TRY(kvf__alloc(ctx, sizeof *copy + strlen(*value) + 1, &copy));
    strcpy(copy->text, *value);
    copy->next = first->next;
    first->next = copy;
    *value = copy->text;
    return KVF_OK;
}

void kvf_train_set_base(kvf_train_options *options, kvf_base *base)
{
    if (options) options->open_base = base;
}

void kvf_train_set_event(kvf_train_options *options, kvf_event_fn event, void *user)
{
    if (!options) return;
    options->event = event;
    options->event_user = user;
}

/* ---- by name --------------------------------------------------------------------------------- */

static kvf_status unknown(kvf_ctx *ctx, const char *name)
{
    kvf__nearest nearest = {.word = name, .n = strlen(name)};
    const kvf__option *r;
    for (size_t i = 0; (r = kvf__option_at(i)) != NULL; i++)
        kvf__nearest_try(&nearest, r->row.name);
    return kvf__fail(ctx, KVF_EUSAGE, "option --%s is not known%s%s", name,
                     nearest.name ? ", the nearest is --" : "", nearest.name ? nearest.name : "");
}

kvf_status kvf_train_set(kvf_ctx *ctx, kvf_train_options *options, const char *name,
                         const char *value)
{
    KVF_TRY(KVF__NEED(ctx, options, name));
    const kvf__option *r = kvf__option_find(name);
    kvf_status named;
    if (!r) return unknown(ctx, name);
    KVF_TRY(keep_text(ctx, options, &value));
    if (add_named(ctx, options, r->row.name, value, &named)) return named;
    if (!value && r->row.argument)
        return kvf__fail(ctx, KVF_EUSAGE, "--%s needs a value: %s", name, r->row.argument);
    const char *want = kvf__option_set(&r->row, value, options);
    if (want) return bad_value(ctx, r, value, want);
    if (r->row.kind != KVF_FLAG) kvf__option_mark(options, r);
    return KVF_OK;
}

bool kvf_train_option(size_t index, kvf_option *out)
{
    const kvf__option_row *row = kvf__train_option_row(index);
    if (!row || !out) return false;
    *out = (kvf_option){row->name, row->argument, row->initial, row->help};
    return true;
}

/* ---- checks ---------------------------------------------------------------------------------- */

/* --init of a run that begins: where --init is not given, the file or text to start from implies
 * it. */
kvf_status kvf__train_options_imply(kvf_ctx *ctx, kvf_train_options *o)
{
    const struct {
        const char *option, *init, *value;
    } FROM[] = {{"init-text", "text", o->init_text}, {"init-kv", "kv", o->init_kv}};
    bool open = !kvf__train_option_given(o, "init") && !strcmp(o->init, "vocab");
    for (size_t i = 0; i < 2; i++) {
        if (!FROM[i].value || !*FROM[i].value) continue;
        if (open) o->init = FROM[i].init;
        if (kvf__train_option_given(o, FROM[i].option) && strcmp(o->init, FROM[i].init))
            return kvf__fail(ctx, KVF_EUSAGE, "--%s is for --init %s, not %s", FROM[i].option,
                             FROM[i].init, o->init);
        open = false;
    }
    return KVF_OK;
}

static kvf_status check_init(kvf_ctx *ctx, const kvf_train_options *o)
{
    if (!strcmp(o->init, "text") && !(o->init_text && *o->init_text))
        return kvf__fail(ctx, KVF_EUSAGE, "--init text needs --init-text");
    if (!strcmp(o->init, "kv") && !o->init_kv)
        return kvf__fail(ctx, KVF_EUSAGE, "--init kv needs --init-kv");
    if (o->init_encoder && o->init_from)
        return kvf__fail(ctx, KVF_EUSAGE, "--init-encoder and --init-from exclude each other");
    return KVF_OK;
}

kvf_status kvf__train_options_require(kvf_ctx *ctx, const kvf_train_options *o)
{
    if (!o->base) return kvf__fail(ctx, KVF_EUSAGE, "--base is needed");
    if (!o->data && !o->named_data.n) return kvf__fail(ctx, KVF_EUSAGE, "--data is needed");
    if (!o->out) return kvf__fail(ctx, KVF_EUSAGE, "--out is needed");
    return KVF_OK;
}

/* Values of closed choices, for callers that fill the struct themselves. */
static kvf_status check_choices(kvf_ctx *ctx, const kvf_train_options *o)
{
    const kvf__option *r;
    size_t n = 0;
    for (size_t i = 0; (r = kvf__option_at(i)) != NULL; i++) {
        const void *at = kvf__option_field(o, r);
        const char *word = r->row.kind == KVF_WORD ? *(const char *const *)at : NULL;
        if (r->row.kind == KVF_WORD && (!word || kvf__choice_index(r->row.argument, word) < 0))
            return bad_value(ctx, r, word, r->row.argument);
        const bool later = r->row.kind == KVF_CHOICE_1; /* 0 is no choice */
        if (r->row.kind != KVF_CHOICE && (!later || !*(const int *)at)) continue;
        if (!kvf__choice_at(r->row.argument, *(const int *)at - later, &n))
            return kvf__fail(ctx, KVF_EUSAGE, "--%s: no such value: want %s", r->row.name,
                             r->row.argument);
    }
    return KVF_OK;
}

/* An option of a task other than the one chosen would have no effect. */
static kvf_status check_task(kvf_ctx *ctx, const kvf_train_options *o)
{
    static const char *const OF_HEADS[] = {"head-lr", "head-dropout"};
    const kvf__option *r;
    for (size_t i = 0; (r = kvf__option_at(i)) != NULL; i++)
        if (r->task && kvf__train_option_given(o, r->row.name) && !kvf__tasks_have(o, r->task))
            return kvf__fail(ctx, KVF_EUSAGE, "--%s is for --task %s", r->row.name, r->task);
    for (size_t i = 0; i < 2; i++)
        if (kvf__train_option_given(o, OF_HEADS[i]) && !o->named_data.n && !strcmp(o->task, "lm") &&
            !(i == 0 && o->train_head))
            return kvf__fail(ctx, KVF_EUSAGE, "--%s: task lm has no head of its own%s", OF_HEADS[i],
                             i ? "" : " (--train-head gives it one)");
    if ((o->labels || o->named_labels.n) && !kvf__tasks_have(o, "seq-cls") &&
        !kvf__tasks_have(o, "token-cls"))
        return kvf__fail(ctx, KVF_EUSAGE, "--labels is for --task seq-cls and token-cls");
    if ((o->labels || o->named_labels.n) && o->regression)
        return kvf__fail(ctx, KVF_EUSAGE, "--labels: --regression has numbers, not classes");
    if (o->train_head && strcmp(o->task, "lm"))
        return kvf__fail(ctx, KVF_EUSAGE, "--train-head is for --task lm: others train a head");
    if (o->early_stop && !o->valid && !o->named_valid.n && !(o->valid_split > 0))
        return kvf__fail(ctx, KVF_EUSAGE, "--early-stop needs --valid or --valid-split");
    if (o->valid_split > 0 && (o->valid || o->named_valid.n))
        return kvf__fail(ctx, KVF_EUSAGE, "--valid-split and --valid exclude each other");
    if (o->valid_split < 0 || o->valid_split >= 1)
        return kvf__fail(ctx, KVF_EUSAGE, "--valid-split %g: want a share above 0 and below 1",
                         o->valid_split);
    if (o->split_text && !kvf__tasks_have(o, "lm"))
        return kvf__fail(ctx, KVF_EUSAGE, "--split-text is for --task lm");
    return KVF_OK;
}

/* What concerns keys and values means nothing to virtual tokens at the input. */
static kvf_status check_embed(kvf_ctx *ctx, kvf_train_options *o)
{
    static const char *const OF_KV[] = {"prefix-dropout", "position-start", "init-kv"};
    for (size_t i = 0; i < sizeof OF_KV / sizeof OF_KV[0]; i++)
        if (kvf__train_option_given(o, OF_KV[i]))
            return kvf__fail(ctx, KVF_EUSAGE,
                             "--%s: method %s has virtual tokens at the input, not keys and values",
                             OF_KV[i], o->method);
    if (o->infix || o->prefix_dropout_per_row)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "--%s: method %s has virtual tokens at the input, not keys and values",
                         o->infix ? "infix" : "prefix-dropout-per-row", o->method);
    if (!strcmp(o->init, "kv"))
        return kvf__fail(ctx, KVF_EUSAGE,
                         "--init kv: method %s does not start from keys and values", o->method);
    if (kvf__train_option_given(o, "lr-units") && !o->lr_per_parameter)
        return kvf__fail(ctx, KVF_EUSAGE, "--lr-units prefix: method %s has one rate for all",
                         o->method);
    o->position_start = "0"; /* the rows' own tokens follow the virtual ones */
    o->lr_per_parameter = true;
    return KVF_OK;
}

static kvf_status check_port(kvf_ctx *ctx, kvf_train_options *o)
{
    bool embed = kvf__method_find(o->method)->port == KVF__PORT_EMBED;
    if (kvf__train_option_given(o, "p-encoder") && strcmp(o->method, "p-tuning"))
        return kvf__fail(ctx, KVF_EUSAGE, "--p-encoder is for --method p-tuning");
    if (o->p_template && *o->p_template && strcmp(o->task, "lm") && strcmp(o->task, "seq-cls"))
        return kvf__fail(ctx, KVF_EUSAGE, "--p-template is for --task lm and seq-cls, not %s",
                         o->task);
    return embed ? check_embed(ctx, o) : KVF_OK;
}

/* Classes that are words: read at [MASK], by a head that nothing trains. */
static kvf_status check_verbalizer(kvf_ctx *ctx, const kvf_train_options *o)
{
    static const char *const OF_HEADS[] = {"head-lr", "head-dropout"};
    if (!o->verbalizer || !*o->verbalizer) return KVF_OK;
    if (o->named_data.n) return kvf__fail(ctx, KVF_EUSAGE, "--verbalizer is for one task");
    if (strcmp(o->task, "seq-cls"))
        return kvf__fail(ctx, KVF_EUSAGE, "--verbalizer is for --task seq-cls, not %s", o->task);
    if (o->regression)
        return kvf__fail(ctx, KVF_EUSAGE, "--regression: --verbalizer has classes, not numbers");
    for (size_t i = 0; i < 2; i++)
        if (kvf__train_option_given(o, OF_HEADS[i]))
            return kvf__fail(ctx, KVF_EUSAGE, "--%s: with --verbalizer no head is trained",
                             OF_HEADS[i]);
    if (!o->p_template || !strstr(o->p_template, "[MASK]"))
        return kvf__fail(ctx, KVF_EUSAGE, "--verbalizer: no [MASK] in --p-template to read it at");
    return KVF_OK;
}

/* Of a prefix and one task with a head. Gradients of more rows have less noise, which grows with
 * the rate and shrinks with the root of the rows; tags are many labels to a row
 * (docs/measured.md). */
static double rate_of_rows(const kvf_train_options *o)
{
    static const double ROWS = 8, MOST = 0.1;
    const double rows = o->batch_tokens ? ROWS : (double)o->batch_size;
    return fmin(MOST, (!strcmp(o->task, "token-cls") ? 0.05 : 0.03) * sqrt(rows / ROWS));
}

/* 0: left to the classes of the data, kvf__tasks_make_heads. A trained matrix wants less than a
 * fresh layer: E2E on SmolLM2, validation loss after 8 steps: 1.637 without, 1.625 at 1e-4, 1.595
 * at 3e-4, 1.601 at 1e-3. */
static double head_rate(const kvf_train_options *o)
{
    if (o->train_head) return 3e-4;
    return !strcmp(o->task, "seq-cls") && !o->named_data.n && !o->lr_per_parameter ? 0 : 1e-2;
}

/* What is left to method and task, P of tags to the base (0: decided in run.c): docs/measured.md,
 * rates and a start from examples. */
static void take_defaults(kvf_train_options *o)
{
    const kvf__method *method = kvf__method_find(o->method);
    const bool alone = method->port == KVF__PORT_KV && !o->named_data.n,
               text = alone && !strcmp(o->task, "lm"),
               tags = alone && !strcmp(o->task, "token-cls") && !o->lr_per_parameter;
    if (!o->prefix_length && !kvf__train_option_given(o, "prefix-length"))
        o->prefix_length = text ? 64 : tags ? 0 : 20;
    if (!(o->lr > 0))
        o->lr = alone && !text && !o->lr_per_parameter ? rate_of_rows(o) : method->default_lr;
    if (o->beta1 < 0) o->beta1 = o->lr_per_parameter ? 0.9 : method->default_beta1;
}

kvf_status kvf__train_options_check(kvf_ctx *ctx, kvf_train_options *o)
{
    KVF_TRY(check_choices(ctx, o));
    KVF_TRY(check_port(ctx, o));
    KVF_TRY(check_init(ctx, o));
    KVF_TRY(check_task(ctx, o));
    KVF_TRY(kvf__train_options_check_method(ctx, o));
    KVF_TRY(check_verbalizer(ctx, o));
    KVF_TRY(kvf__tasks_check(ctx, o));
    KVF_TRY(kvf__retention_check(ctx, o));
    take_defaults(o);
    int64_t start = 0, size = 0;
    KVF_TRY(kvf__position_parse(ctx, o->position_start, o->prefix_length, &start));
    KVF_TRY(kvf__states_size(ctx, o->keep_states, &size));
    if (o->prefix_length < (kvf__train_option_given(o, "prefix-length") ? 1 : 0))
        return kvf__fail(ctx, KVF_EUSAGE, "--prefix-length must be at least 1");
    if (!o->batch_size && !o->batch_tokens)
        return kvf__fail(ctx, KVF_EUSAGE, "--batch-size must be at least 1");
    if (o->grad_accum < 1) return kvf__fail(ctx, KVF_EUSAGE, "--grad-accum must be at least 1");
    KVF_TRY(kvf__log_weight_check(ctx, o));
    if (!o->steps && !o->epochs && !kvf__train_option_given(o, "steps"))
        return kvf__fail(ctx, KVF_EUSAGE, "--steps or --epochs must be at least 1");
    if (!kvf__train_option_given(o, "head-lr") && o->head_lr == 0)
        o->head_lr = head_rate(o);
    else if (!(o->head_lr > 0))
        return kvf__fail(ctx, KVF_EUSAGE, "--head-lr must be above 0");
    if (!(o->prefix_dropout >= 0 && o->prefix_dropout < 1))
        return kvf__fail(ctx, KVF_EUSAGE, "--prefix-dropout must be below 1");
    if (o->prefix_dropout_per_row && !(o->prefix_dropout > 0))
        return kvf__fail(ctx, KVF_EUSAGE, "--prefix-dropout-per-row needs --prefix-dropout");
    if (!(o->base_dropout >= 0 && o->base_dropout < 1))
        return kvf__fail(ctx, KVF_EUSAGE, "--base-dropout must be below 1");
    if (!(o->head_dropout < 1)) return kvf__fail(ctx, KVF_EUSAGE, "--head-dropout must be below 1");
    if (!(o->beta1 < 1) || !(o->beta2 < 1))
        return kvf__fail(ctx, KVF_EUSAGE, "--beta1 and --beta2 must be below 1");
    if (o->lr_per_parameter && kvf__train_option_given(o, "optimizer") && !o->optimizer_adamw)
        return kvf__fail(ctx, KVF_EUSAGE, "--optimizer natural: not with --lr-units parameter");
    if (o->lr_per_parameter) o->optimizer_adamw = true;
    return KVF_OK;
}
