/* --log FILE: JSONL, one object per line, each written at once. `kvfold help logs` documents the
 * keys. A resumed run appends to the file, beginning with another `start`. Earlier lines with a
 * step above the step of that `start` belong to lost steps, which are repeated. */
#include "run.h"

#include <math.h>
#include <string.h>
#include <sys/stat.h>

static const char *const NAMES[] = {
    [KVF_EVENT_START] = "start",       [KVF_EVENT_STEP] = "step",
    [KVF_EVENT_EVAL] = "eval",         [KVF_EVENT_SAVE] = "save",
    [KVF_EVENT_NOTE] = "note",         [KVF_EVENT_RETENTION] = "retention",
    [KVF_EVENT_FORECAST] = "forecast",
};

kvf_status kvf__log_open(kvf__run *run)
{
    const kvf_train_options *o = &run->options;
    kvf__append how = o->resume  ? KVF__APPEND_LINES
                      : o->force ? KVF__APPEND_REPLACE
                                 : KVF__APPEND_NEW;
    struct stat st;
    if (stat(o->log, &st) == 0 && !S_ISREG(st.st_mode)) how = KVF__APPEND_LINES;
    return kvf__appendfile_open(run->ctx, o->log, how, &run->output.journal.log);
}

/* Writes an object and frees it. */
static kvf_status write_line(kvf__run *run, kvf_json *object)
{
    kvf__buf *line = &run->output.journal.line;
    char *text = kvf_json_text(object, KVF_JSON_COMPACT);
    kvf_json_free(object);
    if (!text) return kvf__fail(run->ctx, KVF_ENOMEM, "out of memory");
    line->n = 0;
    kvf_status st = kvf__buf_add(run->ctx, line, text, strlen(text));
    kvf_json_text_free(text);
    if (!st) st = kvf__buf_addc(run->ctx, line, '\n');
    return st ? st : kvf__appendfile_add(run->ctx, &run->output.journal.log, line->data, line->n);
}

static kvf_json *begin_line(const char *name, int64_t step, double seconds)
{
    kvf_json *object = kvf_json_object();
    kvf_json_set(object, "event", kvf_json_new_str(name));
    kvf_json_set(object, "step", kvf_json_new_int(step));
    kvf_json_set(object, "seconds", kvf_json_new_real(seconds));
    return object;
}

/* Adds the facts that describe the run. */
static void add_start(const kvf__run *run, kvf_json *object)
{
    const kvf_train_options *o = &run->options;
    const kvf__run_size *size = &run->output.journal.size;
    kvf_json *options = NULL;
    kvf_json_set(object, "steps", kvf_json_new_int(run->progress.steps));
    kvf_json_set(object, "time", kvf_json_new_int((int64_t)run->output.journal.began));
    kvf_json_set(object, "version", kvf_json_new_str(KVF_VERSION));
    kvf_json_set(object, "out", o->out ? kvf_json_new_str(o->out) : kvf_json_new_null());
    kvf_json_set(object, "base", kvf_json_new_str(run->base->name));
    kvf_json_set(object, "examples", kvf_json_new_int(size->rows));
    kvf_json_set(object, "label_tokens", kvf_json_new_int(size->labels));
    kvf_json_set(object, "trainable_parameters", kvf_json_new_int(size->trained));
    kvf_json_set(object, "parameters", kvf_json_new_int(size->parameters));
    kvf_json_set(object, "threads", kvf_json_new_int(kvf_ctx_threads(run->ctx)));
    if (!kvf__options_store(run->ctx, o, &options)) kvf_json_set(object, "options", options);
}

static void add_columns(kvf_json *object, const kvf__event_columns *columns)
{
    for (int i = 0; i < KVF__COLUMNS; i++) {
        const kvf__column *c = &kvf__columns[i];
        const double value = columns->value[i];
        if (i == KVF__COLUMN_valid_metric || !columns->has[i]) continue;
        kvf_json_set(object, c->name,
                     c->dtype == KVF__I64 ? kvf_json_new_int((int64_t)value)
                                          : kvf_json_new_real(value));
    }
}

static void add_eval(kvf_json *object, const kvf_event *e)
{
    kvf_json_set(object, "metric", kvf_json_new_str(e->metric.name));
    kvf_json_set(object, "value", kvf_json_new_real(e->metric.value));
    kvf_json_set(object, "best", kvf_json_new_bool(e->best));
}

static void add_retention(const kvf__run *run, kvf_json *object, const kvf_event *e)
{
    const double kl = run->progress.kl_to_base;
    kvf_json_set(object, "retention_base_loss", kvf_json_new_real(e->retention_base_loss));
    if (!isnan(kl)) kvf_json_set(object, "kl_to_base", kvf_json_new_real(kl));
}

static void add_forecast(kvf_json *object, const kvf_forecast *f)
{
    kvf_json_set(object, "steps", kvf_json_new_int(f->steps));
    kvf_json_set(object, "forecast_seconds", kvf_json_new_real(f->seconds));
    kvf_json_set(object, "peak_rss_bytes", kvf_json_new_int(f->peak_rss_bytes));
}

kvf_status kvf__log_event(kvf__run *run, const kvf_event *e, const kvf__event_columns *columns)
{
    kvf_json *object = begin_line(NAMES[e->kind], e->step, e->seconds);
    add_columns(object, columns);
    if (e->kind == KVF_EVENT_START) add_start(run, object);
    if (e->kind == KVF_EVENT_STEP)
        kvf_json_set(object, "tokens_per_second", kvf_json_new_real(e->tokens_per_second));
    if (e->kind == KVF_EVENT_EVAL) add_eval(object, e);
    if (e->kind == KVF_EVENT_RETENTION) add_retention(run, object, e);
    if (e->kind == KVF_EVENT_SAVE) kvf_json_set(object, "path", kvf_json_new_str(e->text));
    if (e->kind == KVF_EVENT_NOTE) kvf_json_set(object, "text", kvf_json_new_str(e->text));
    if (e->kind == KVF_EVENT_FORECAST) add_forecast(object, e->forecast);
    return write_line(run, object);
}

kvf_status kvf__log_end(kvf__run *run, kvf_status status, const char *error)
{
    kvf_json *object = begin_line("end", run->progress.step, kvf__clock() - run->progress.begin);
    const char *how = status == KVF_ESTOPPED        ? "stopped"
                      : status                      ? "failed"
                      : run->progress.stopped_early ? "stopped_early"
                                                    : "finished";
    kvf_json_set(object, "how", kvf_json_new_str(how));
    if (status) kvf_json_set(object, "error", kvf_json_new_str(error));
    return write_line(run, object);
}
