/* Checks the options of a run: first the columns of the table, then rules about several options. A
 * given option that cannot take effect is refused, never ignored. */
#include "base_int.h"
#include "method.h"
#include "options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- values ---------------------------------------------------------------------------------- */

static bool is_text(const kvf__option *r)
{
    return r->row.kind == KVF_TEXT || r->row.kind == KVF_WORD;
}

static size_t field_size(const kvf__option *r)
{
    switch (r->row.kind) {
    case KVF_FLAG:
    case KVF_ON_OFF:
    case KVF_EITHER:
        return sizeof(bool);
    case KVF_CHOICE:
    case KVF_CHOICE_1:
        return sizeof(int);
    default:
        return sizeof(int64_t);
    }
}

static const char *text_of(const kvf_train_options *o, const kvf__option *r)
{
    const char *text = *(const char *const *)kvf__option_field(o, r);
    return text ? text : "";
}

bool kvf__option_same(const kvf_train_options *a, const kvf_train_options *b, const kvf__option *r)
{
    if (is_text(r)) return !strcmp(text_of(a, r), text_of(b, r));
    return !memcmp(kvf__option_field(a, r), kvf__option_field(b, r), field_size(r));
}

const char *kvf__option_word(const kvf_train_options *o, const kvf__option *r, size_t *n)
{
    const void *field = kvf__option_field(o, r);
    const char *word = NULL;
    if (r->row.kind == KVF_EITHER)
        word = kvf__choice_at(r->row.argument, *(const bool *)field, n);
    else if (r->row.kind == KVF_CHOICE || r->row.kind == KVF_CHOICE_1)
        word = kvf__choice_at(r->row.argument, *(const int *)field - (r->row.kind == KVF_CHOICE_1),
                              n);
    else if (is_text(r))
        *n = strlen(word = text_of(o, r));
    return word;
}

/* True if a value is outside the row's range. kvf_train_set() rejects such values, but a program
 * may fill the struct itself. */
static bool is_bad(const kvf_train_options *o, const kvf__option *r)
{
    const void *field = kvf__option_field(o, r);
    size_t bytes = 0;
    switch (r->row.kind) {
    case KVF_AMOUNT:
        return !(*(const double *)field >= 0 && isfinite(*(const double *)field));
    case KVF_ABOVE_0:
        return !(*(const double *)field > 0 && isfinite(*(const double *)field));
    case KVF_SHARE:
        return !(*(const double *)field >= 0 && *(const double *)field < 1);
    case KVF_REAL:
        return !isfinite(*(const double *)field);
    case KVF_POSITIVE:
        return *(const int64_t *)field < 1;
    case KVF_COUNT:
        return *(const int64_t *)field < 0;
    case KVF_OR_AUTO:
        return *(const int64_t *)field < -1;
    case KVF_WORD:
        return kvf__choice_index(r->row.argument, text_of(o, r)) < 0;
    case KVF_CHOICE:
    case KVF_CHOICE_1:
        return !kvf__option_word(o, r, &bytes);
    default:
        return false;
    }
}

/* ---- columns --------------------------------------------------------------------------------- */

/* State of one call, shared by the functions below. */
typedef struct checking {
    kvf_ctx *ctx;
    const kvf_train_options *options, *defaults;
} checking;

static bool is_default(const checking *c, const kvf__option *r)
{
    return kvf__option_same(c->options, c->defaults, r);
}

/* True if the option differs from its default. The options of a resumed run were checked when it
 * was created. */
static bool is_set(const checking *c, const kvf__option *r)
{
    return kvf__option_given(c->options, r) || (!c->options->resume && !is_default(c, r));
}

/* True if the value is empty: zero, false or no text. */
static bool is_nothing(const kvf_train_options *o, const kvf__option *r)
{
    static const char NOTHING[sizeof(int64_t)];
    return is_text(r) ? !*text_of(o, r) : !memcmp(kvf__option_field(o, r), NOTHING, field_size(r));
}

/* True for a default that turns a feature off, so nothing depends on it. */
static bool is_off(const checking *c, const kvf__option *r)
{
    return is_default(c, r) && is_nothing(c->options, r) && r->row.kind != KVF_REAL;
}

/* True if the option was given or turned on. A program that fills the struct itself may set a size
 * or rate that its method does not read. */
static bool is_asked(const checking *c, const kvf__option *r)
{
    const bool turns_on = is_nothing(c->defaults, r) && !r->decide && r->row.kind != KVF_WORD;
    return kvf__option_given(c->options, r) || (turns_on && is_set(c, r));
}

/* True if the condition "NAME" or "NAME=VALUE" of n bytes holds. */
static bool holds(const checking *c, const char *condition, size_t n)
{
    char name[64];
    size_t bytes = 0;
    snprintf(name, sizeof name, "%.*s", (int)n, condition);
    char *value = strchr(name, '=');
    if (value) *value++ = 0;
    if (value && !strcmp(name, "task")) return kvf__options_have_task(c->options, value);
    const kvf__option *r = kvf__option_find(name);
    if (r == kvf__option_of(offsetof(kvf_train_options, valid)) && c->options->named_valid.n)
        return true;
    if (!value) return is_set(c, r) && !is_off(c, r);
    const char *word = kvf__option_word(c->options, r, &bytes);
    return word && strlen(value) == bytes && !memcmp(word, value, bytes);
}

/* Returns the first condition of a list that holds, and its length in *n; NULL: none. */
static const char *find_true(const checking *c, const char *conditions, size_t *n)
{
    const char *at;
    for (int i = 0; conditions && (at = kvf__choice_at(conditions, i, n)) != NULL; i++)
        if (holds(c, at, *n)) return at;
    return NULL;
}

/* Formats conditions for a message: "--log-weight fixed or train". */
static void describe(const char *conditions, char *text, size_t size)
{
    const char *at, *last = "";
    size_t n = 0, used = 0, last_name = 0;
    for (int i = 0; (at = kvf__choice_at(conditions, i, &n)) != NULL && used < size; i++) {
        const size_t name = strcspn(at, "=|") < n ? strcspn(at, "=|") : n;
        const bool again = name == last_name && !strncmp(last, at, name);
        const int value = name < n ? (int)(n - name - 1) : 0;
        used += (size_t)snprintf(text + used, size - used, "%s%s%.*s%s%.*s", i ? " or " : "",
                                 again ? "" : "--", again ? 0 : (int)name, at,
                                 value && !again ? " " : "", value, at + n - value);
        last = at;
        last_name = name;
    }
}

/* Refuses an option that method or task do not support. */
static kvf_status check_use(const checking *c, const kvf__option *r)
{
    const kvf_train_options *o = c->options;
    if (r->methods && kvf__choice_index(r->methods, o->method) < 0)
        return kvf__fail(c->ctx, KVF_EUSAGE, "--%s: not for method %s", r->row.name, o->method);
    if (!r->tasks || kvf__options_have_task(o, r->tasks)) return KVF_OK;
    return kvf__fail(c->ctx, KVF_EUSAGE, "--%s is for --task %s", r->row.name, r->tasks);
}

/* Refuses an option whose conditions do not hold. */
static kvf_status check_conditions(const checking *c, const kvf__option *r)
{
    const char *name = r->row.name, *other;
    char condition[64], text[160];
    size_t n = 0;
    if (r->rules & KVF__ONE_TASK && c->options->named_data.n)
        return kvf__fail(c->ctx, KVF_EUSAGE, "--%s is for one task, not --data NAME=FILE", name);
    if (r->rules & KVF__TASKS && !c->options->named_data.n)
        return kvf__fail(c->ctx, KVF_EUSAGE, "--%s is for several tasks: --data NAME=FILE", name);
    if (r->needs && !find_true(c, r->needs, &n)) {
        describe(r->needs, text, sizeof text);
        return kvf__fail(c->ctx, KVF_EUSAGE, "--%s needs %s", name, text);
    }
    other = find_true(c, r->excludes, &n);
    if (!other) return KVF_OK;
    snprintf(condition, sizeof condition, "%.*s", (int)n, other);
    describe(condition, text, sizeof text);
    return kvf__fail(c->ctx, KVF_EUSAGE, "--%s: not with %s", name, text);
}

static kvf_status check_rows(const checking *c)
{
    const kvf__option *r;
    kvf_train_options scratch;
    for (size_t i = 0; (r = kvf__option_at(i)) != NULL; i++) {
        if (!is_default(c, r) && is_bad(c->options, r))
            return kvf__fail(c->ctx, KVF_EUSAGE, "--%s: value out of range: want %s", r->row.name,
                             kvf__option_set(&r->row, "", &scratch));
        if (!is_asked(c, r)) continue;
        KVF_TRY(check_use(c, r));
        if (!is_off(c, r)) KVF_TRY(check_conditions(c, r));
    }
    return KVF_OK;
}

kvf_status kvf__options_check_base(kvf_ctx *ctx, const kvf_train_options *o, bool causal,
                                   bool encoder_decoder, const char *name)
{
    const kvf_train_options defaults = kvf_train_defaults();
    const checking c = {ctx, o, &defaults};
    const kvf__option *r;
    for (size_t i = 0; (r = kvf__option_at(i)) != NULL; i++) {
        if (!is_set(&c, r) || is_off(&c, r)) continue;
        const char *option = r->row.name;
        if (r->rules & KVF__CAUSAL && !causal)
            return kvf__fail(ctx, KVF_EUSAGE, "--%s is for causal bases, not %s", option, name);
        if (r->rules & KVF__STACKS && !encoder_decoder)
            return kvf__fail(ctx, KVF_EUSAGE, "--%s is for encoder-decoders, not %s", option, name);
        if (r->rules & KVF__ONE_STACK && encoder_decoder)
            return kvf__fail(ctx, KVF_EUSAGE, "--%s: not supported on encoder-decoders such as %s",
                             option, name);
    }
    return KVF_OK;
}

/* ---- other commands -------------------------------------------------------------------------- */

kvf_status kvf__options_check_sweep(kvf_ctx *ctx, const kvf_train_options *o)
{
    const kvf_train_options defaults = kvf_train_defaults();
    const checking c = {ctx, o, &defaults};
    const kvf__option *r;
    if (o->named_data.n)
        return kvf__fail(ctx, KVF_EUSAGE, "--data NAME=FILE: %s", kvf__sweep_refusal("mix"));
    if (!kvf__method_has_length(o->method))
        return kvf__fail(ctx, KVF_EUSAGE, "--method %s: %s", o->method,
                         kvf__sweep_refusal("unfreeze"));
    for (size_t i = 0; (r = kvf__option_at(i)) != NULL; i++)
        if (r->sweep && r->row.offset != offsetof(kvf_train_options, out) && is_set(&c, r) &&
            !is_off(&c, r))
            return kvf__fail(ctx, KVF_EUSAGE, "--%s: %s", r->row.name, r->sweep);
    return KVF_OK;
}

kvf_status kvf__options_check_distill(kvf_ctx *ctx, const kvf_train_options *o)
{
    const kvf_train_options defaults = kvf_train_defaults();
    const checking c = {ctx, o, &defaults};
    const kvf__option *r;
    for (size_t i = 0; (r = kvf__option_at(i)) != NULL; i++)
        if (!(r->rules & KVF__DISTILL) && kvf__option_given(o, r) && !is_off(&c, r))
            return kvf__fail(ctx, KVF_EUSAGE, "--%s: not available in distill", r->row.name);
    return KVF_OK;
}

/* ---- several tasks --------------------------------------------------------------------------- */

size_t kvf__task_name_length(const char *text)
{
    return strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");
}

/* kvf__named_value() for the first n values only. */
static const char *value_of(const kvf_named *list, size_t n, const char *item)
{
    const size_t name = kvf__task_name_length(item);
    for (size_t i = 0; i < n; i++)
        if (!strncmp(list->item[i], item, name + 1)) return list->item[i] + name + 1;
    return NULL;
}

const char *kvf__named_value(const kvf_named *list, const char *item)
{
    return value_of(list, list->n, item);
}

const char *kvf__named_kind(const kvf_train_options *o, size_t i)
{
    const char *kind = kvf__named_value(&o->named_task, o->named_data.item[i]);
    return kind ? kind : o->task;
}

bool kvf__options_have_task(const kvf_train_options *o, const char *kinds)
{
    for (size_t i = 0; i < o->named_data.n; i++)
        if (kvf__choice_index(kinds, kvf__named_kind(o, i)) >= 0) return true;
    return !o->named_data.n && kvf__choice_index(kinds, o->task) >= 0;
}

static kvf_status check_names(kvf_ctx *ctx, const char *option, const kvf_named *list,
                              const kvf_named *data)
{
    for (size_t i = 0; i < list->n; i++) {
        const char *item = list->item[i];
        const int n = (int)kvf__task_name_length(item);
        if (value_of(list, i, item))
            return kvf__fail(ctx, KVF_EUSAGE, "--%s: task %.*s is given twice", option, n, item);
        if (!kvf__named_value(data, item))
            return kvf__fail(ctx, KVF_EUSAGE, "--%s: there is no --data %.*s=FILE", option, n,
                             item);
    }
    return KVF_OK;
}

static kvf_status check_tasks(kvf_ctx *ctx, const kvf_train_options *o)
{
    const char *kinds = kvf__option_find("task")->row.argument;
    const char *unnamed = o->data ? "data" : o->valid ? "valid" : o->labels ? "labels" : NULL;
    if (!o->named_data.n && (o->named_valid.n || o->named_task.n || o->named_labels.n))
        return kvf__fail(ctx, KVF_EUSAGE,
                         "--valid NAME=FILE, --task NAME=KIND and --labels NAME=A,B,... need "
                         "--data NAME=FILE");
    if (!o->named_data.n) return KVF_OK;
    if (unnamed)
        return kvf__fail(
            ctx, KVF_EUSAGE,
            "--%s: with --data NAME=FILE every %s needs the name of its task, as NAME=...", unnamed,
            strcmp(unnamed, "labels") ? "file" : "list");
    KVF_TRY(check_names(ctx, "data", &o->named_data, &o->named_data));
    KVF_TRY(check_names(ctx, "valid", &o->named_valid, &o->named_data));
    KVF_TRY(check_names(ctx, "task", &o->named_task, &o->named_data));
    KVF_TRY(check_names(ctx, "labels", &o->named_labels, &o->named_data));
    for (size_t i = 0; i < o->named_data.n; i++) {
        const char *kind = kvf__named_kind(o, i);
        if (kvf__choice_index(kinds, kind) < 0)
            return kvf__fail(ctx, KVF_EUSAGE, "--task \"%s\": want %s", kind, kinds);
        if (kvf__named_value(&o->named_labels, o->named_data.item[i]) && strcmp(kind, "seq-cls") &&
            strcmp(kind, "token-cls"))
            return kvf__fail(ctx, KVF_EUSAGE, "--labels: task %s has no labels", kind);
    }
    if (kvf__method_find(o->method)->port != KVF__PORT_KV)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "--data NAME=FILE: method %s has no prefix for the tasks to share",
                         o->method);
    return KVF_OK;
}

/* ---- values of several options --------------------------------------------------------------- */

kvf_status kvf__position_parse(kvf_ctx *ctx, const char *text, int64_t P, int64_t *out)
{
    char *end = NULL;
    if (!strcmp(text, "P")) {
        *out = P;
        return KVF_OK;
    }
    const long long value = strtoll(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || value > INT32_MAX)
        return kvf__fail(
            ctx, KVF_EUSAGE,
            "--position-start: want P or a whole number from 0 to 2^31 - 1, found \"%s\"", text);
    *out = value;
    return KVF_OK;
}

bool kvf__size_of(const char *text, int64_t *out)
{
    static const char UNITS[] = "KMG";
    char *end = NULL;
    const double number = strtod(text, &end);
    const char *unit = *end ? strchr(UNITS, *end) : NULL;
    const int power = unit ? 10 * (int)(unit - UNITS + 1) : 0;
    if (*text < '0' || *text > '9' || (unit ? end[1] : *end) || number > (double)(1LL << 32))
        return false;
    *out = (int64_t)(number * (double)(1LL << power));
    return true;
}

kvf_status kvf__states_size(kvf_ctx *ctx, const char *text, int64_t *out)
{
    *out = -1;
    if (!text || !*text || !strcmp(text, "off") || kvf__size_of(text, out)) return KVF_OK;
    return kvf__fail(ctx, KVF_EUSAGE,
                     "--keep-states \"%s\": want off, or a size such as 500M or 2G", text);
}

kvf_status kvf__options_require(kvf_ctx *ctx, const kvf_train_options *o)
{
    if (!o->base) return kvf__fail(ctx, KVF_EUSAGE, "--base is needed");
    if (!o->data && !o->named_data.n) return kvf__fail(ctx, KVF_EUSAGE, "--data is needed");
    return KVF_OK;
}

/* Checks rules that the table cannot express, about one value of an option or a part of a text. */
static kvf_status check_rest(kvf_ctx *ctx, const kvf_train_options *o)
{
    int64_t number = 0;
    if (!strcmp(o->method, "head") && !strcmp(o->task, "lm") && !o->named_data.n)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "--method head: task lm has no head to train: choose another --task");
    if (!strcmp(o->method, "full") && o->precision == KVF_PRECISION_INT8)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "--precision int8 is for frozen weights; method full trains them");
    if (o->verbalizer && *o->verbalizer && !strstr(o->p_template, "[MASK]"))
        return kvf__fail(ctx, KVF_EUSAGE,
                         "--verbalizer: --p-template needs [MASK], where the words are predicted");
    if (!(fabs(o->start_mass) <= KVF__MOST_START_MASS))
        return kvf__fail(ctx, KVF_EUSAGE, "--start-mass %g: want %g to %g", o->start_mass,
                         -KVF__MOST_START_MASS, KVF__MOST_START_MASS);
    if (!o->steps && !o->epochs && !KVF__GIVEN(o, steps))
        return kvf__fail(ctx, KVF_EUSAGE, "--steps or --epochs must be at least 1");
    if (o->lr_per_parameter && KVF__GIVEN(o, optimizer_adamw) && !o->optimizer_adamw)
        return kvf__fail(ctx, KVF_EUSAGE, "--optimizer natural: not with --lr-units parameter");
    if (KVF__GIVEN(o, prefix_length) && !o->prefix_length && !o->ffn_length)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "--prefix-length 0: want a whole number from 1, or --ffn-length");
    if (KVF__GIVEN(o, prefix_length) && !o->prefix_length && o->log_weight)
        return kvf__fail(
            ctx, KVF_EUSAGE,
            "--log-weight: weighs virtual tokens, of which --prefix-length 0 has none");
    KVF_TRY(kvf__position_parse(ctx, o->position_start, o->prefix_length, &number));
    return kvf__states_size(ctx, o->keep_states, &number);
}

/* Returns the option that holds the text or file of start i. */
static const char *start_of(const kvf_train_options *o, size_t i, const char **option,
                            const char **value)
{
    *option = i ? "init-kv" : "init-text";
    *value = i ? o->init_kv : o->init_text;
    return i ? "kv" : "text";
}

kvf_status kvf__options_imply(kvf_ctx *ctx, kvf_train_options *o)
{
    bool open = !o->init;
    for (size_t i = 0; i < 2; i++) {
        const char *option, *value, *start = start_of(o, i, &option, &value);
        if (!value || !*value) continue;
        if (open) o->init = start;
        if (kvf__option_given(o, kvf__option_find(option)) && strcmp(o->init, start))
            return kvf__fail(ctx, KVF_EUSAGE, "--%s is for --init %s, not %s", option, start,
                             o->init);
        open = false;
    }
    return KVF_OK;
}

static kvf_status check_start(kvf_ctx *ctx, const kvf_train_options *o)
{
    if (o->init && !strcmp(o->init, "kv") && kvf__method_find(o->method)->port == KVF__PORT_EMBED)
        return kvf__fail(ctx, KVF_EUSAGE, "--init kv: method %s cannot start from keys and values",
                         o->method);
    for (size_t i = 0; i < 2; i++) {
        const char *option, *value, *start = start_of(o, i, &option, &value);
        if (o->init && !strcmp(o->init, start) && (!value || (!i && !*value)))
            return kvf__fail(ctx, KVF_EUSAGE, "--init %s needs --%s", start, option);
    }
    return KVF_OK;
}

static void decide(kvf_train_options *o, const kvf_train_options *defaults)
{
    const kvf__option *r;
    if (kvf__method_find(o->method)->port == KVF__PORT_EMBED) {
        o->position_start = "0"; /* the row's own tokens follow the virtual tokens */
        o->lr_per_parameter = true;
    }
    if (o->lr_per_parameter) o->optimizer_adamw = true;
    for (size_t i = 0; (r = kvf__option_at(i)) != NULL; i++)
        if (r->decide && !kvf__option_given(o, r) && kvf__option_same(o, defaults, r)) r->decide(o);
}

kvf_status kvf__options_check(kvf_ctx *ctx, kvf_train_options *o)
{
    const kvf_train_options defaults = kvf_train_defaults();
    KVF_TRY(check_rows(&(checking){ctx, o, &defaults}));
    KVF_TRY(check_start(ctx, o));
    KVF_TRY(check_tasks(ctx, o));
    KVF_TRY(check_rest(ctx, o));
    decide(o, &defaults);
    return KVF_OK;
}

kvf_status kvf__train_options_check(kvf_ctx *ctx, const kvf_train_options *options)
{
    kvf_train_options checked = *options;
    KVF_TRY(kvf__options_require(ctx, &checked));
    KVF_TRY(kvf__options_imply(ctx, &checked));
    return kvf__options_check(ctx, &checked);
}
