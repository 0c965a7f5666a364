/* Sets options by name, and copies them to the heap. */
#include "options.h"
#include "infile.h"

#include <string.h>

/* Returns the list of values by task, or NULL if the option has none. */
static kvf_named *named_list(kvf_train_options *o, const kvf__option *row)
{
    if (row == kvf__option_of(offsetof(kvf_train_options, data))) return &o->named_data;
    if (row == kvf__option_of(offsetof(kvf_train_options, valid))) return &o->named_valid;
    if (row == kvf__option_of(offsetof(kvf_train_options, task))) return &o->named_task;
    if (row == kvf__option_of(offsetof(kvf_train_options, labels))) return &o->named_labels;
    return NULL;
}

/* Adds "NAME=VALUE" to an option with values by task. Returns false if the value does not have that
 * form, or if a file has exactly this name. */
static bool add_named(kvf_ctx *ctx, kvf_train_options *o, const kvf__option *row, const char *value,
                      kvf_status *st)
{
    kvf_named *list = named_list(o, row);
    const size_t n = !list || !value ? 0 : kvf__task_name_length(value);
    if (!n || value[n] != '=' || kvf__exists(value)) return false;
    *st = KVF_OK;
    if (list->n == KVF_MAX_TASKS)
        *st = kvf__fail(ctx, KVF_EUSAGE, "--%s: at most %d tasks", row->row.name, KVF_MAX_TASKS);
    else
        list->item[list->n++] = value;
    return true;
}

/* ---- options on the heap --------------------------------------------------------------------- */

/* Copies of option texts, newest first. */
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

/* Replaces *value by a copy if the options are on the heap. */
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
    if (add_named(ctx, options, r, value, &named)) return named;
    if (!value && r->row.argument)
        return kvf__fail(ctx, KVF_EUSAGE, "--%s needs a value: %s", name, r->row.argument);
    const char *want = kvf__option_set(&r->row, value, options);
    if (want)
        return kvf__fail(ctx, KVF_EUSAGE, "--%s \"%s\": want %s", name, value ? value : "", want);
    if (r->row.kind != KVF_FLAG || *(const bool *)kvf__option_field(options, r))
        kvf__option_mark(options, r);
    return KVF_OK;
}

bool kvf_train_option(size_t index, kvf_option *out)
{
    const kvf__option_row *row = kvf__train_option_row(index);
    if (!row || !out) return false;
    *out = (kvf_option){row->name, row->argument, row->initial, row->help};
    return true;
}
