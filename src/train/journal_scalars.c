/* --tensorboard DIR: the numbers of the log as scalars, and the options as a text. */
#include "run.h"

#include <math.h>
#include <string.h>

/* Adds a table row. A bar in the text would end its cell. */
static kvf_status add_row(kvf_ctx *ctx, kvf__buf *table, const char *key, const char *value)
{
    KVF_TRY(kvf__buf_printf(ctx, table, "| %s | ", key));
    for (; *value; value++) {
        if (*value == '|') KVF_TRY(kvf__buf_addc(ctx, table, '\\'));
        KVF_TRY(kvf__buf_addc(ctx, table, *value == '\n' ? ' ' : *value));
    }
    return kvf__buf_add(ctx, table, " |\n", 3);
}

static kvf_status add_options(kvf_ctx *ctx, kvf__buf *table, kvf_json *options)
{
    for (void *it = kvf_json_iter(options); it; it = kvf_json_next(options, it)) {
        const kvf_json *value = kvf_json_iter_value(it);
        const char *plain = kvf_json_str(value, NULL);
        char *text = plain ? NULL : kvf_json_text(value, KVF_JSON_COMPACT);
        kvf_status st = KVF_OK;
        if (plain ? *plain : text != NULL)
            st = add_row(ctx, table, kvf_json_iter_key(it), plain ? plain : text);
        kvf_json_text_free(text);
        KVF_TRY(st);
    }
    return KVF_OK;
}

static kvf_status write_options(kvf__run *run)
{
    kvf__journal *j = &run->output.journal;
    kvf__buf table = {0};
    kvf_json *options = NULL;
    kvf_status st = kvf__options_store(run->ctx, &run->options, &options);
    if (!st) st = kvf__buf_printf(run->ctx, &table, "| option | value |\n|---|---|\n");
    if (!st) st = add_row(run->ctx, &table, "out", run->options.out ? run->options.out : "");
    if (!st) st = add_row(run->ctx, &table, "base", run->base->name);
    if (!st) st = add_options(run->ctx, &table, options);
    if (!st)
        st = kvf__event_file_text(run->ctx, &j->scalars, j->began, run->progress.step, "options",
                                  table.data);
    kvf_json_free(options);
    kvf__buf_done(&table);
    return st;
}

kvf_status kvf__scalars_open(kvf__run *run)
{
    kvf__journal *j = &run->output.journal;
    int64_t first = run->progress.step ? run->progress.step + 1 : 0;
    KVF_TRY(kvf__event_file_open(run->ctx, run->options.tensorboard, j->began, first, &j->scalars));
    return write_options(run);
}

kvf_status kvf__scalars_event(kvf__run *run, const kvf_event *e, const kvf__event_columns *columns)
{
    kvf__journal *j = &run->output.journal;
    char metric[64];
    kvf__event_scalar found[KVF__COLUMNS + 1];
    size_t n = 0;
    for (int i = 0; i < KVF__COLUMNS; i++)
        if (kvf__columns[i].curve && columns->has[i])
            found[n++] = (kvf__event_scalar){kvf__columns[i].curve, columns->value[i]};
    if (e->kind == KVF_EVENT_STEP)
        found[n++] = (kvf__event_scalar){"train/tokens_per_second", e->tokens_per_second};
    if (e->kind == KVF_EVENT_EVAL && strcmp(e->metric.name, "loss") != 0) {
        snprintf(metric, sizeof metric, "valid/%s", e->metric.name);
        found[n++] = (kvf__event_scalar){metric, e->metric.value};
    }
    if (!n) return KVF_OK;
    return kvf__event_file_scalars(run->ctx, &j->scalars, j->began + e->seconds, e->step, found, n);
}
