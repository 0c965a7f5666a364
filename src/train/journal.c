/* Sends the events of a run to the log, to TensorBoard's files and to the caller. Both kinds of
 * files belong to the process, not to the run: a resumed run appends to the log and begins a new
 * event file. They are opened last, so that a run that cannot start creates none. Earlier notes are
 * kept and written first. */
#include "run.h"

#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

typedef struct sink {
    const char *option;
    size_t offset; /* offset of the path in the options */
    kvf_status (*open)(kvf__run *run);
    kvf_status (*event)(kvf__run *run, const kvf_event *event, const kvf__event_columns *columns);
    kvf_status (*end)(kvf__run *run, kvf_status status, const char *error); /* NULL: nothing to do
                                                                             * at the end */
} sink;

static const sink SINKS[] = {
    {"log", offsetof(kvf_train_options, log), kvf__log_open, kvf__log_event, kvf__log_end},
    {"tensorboard", offsetof(kvf_train_options, tensorboard), kvf__scalars_open, kvf__scalars_event,
     NULL},
};
enum { N_SINKS = sizeof SINKS / sizeof SINKS[0] };

static const char *path_of(const kvf__run *run, const sink *s)
{
    const char *path = *(const char *const *)((const char *)&run->options + s->offset);
    return path && *path ? path : NULL;
}

static kvf__event_columns columns_of(const kvf__run *run, const kvf_event *e)
{
    static const kvf_event_kind SAID_AT[] = {
        [KVF__OF_STEP] = KVF_EVENT_STEP,
        [KVF__OF_EVAL] = KVF_EVENT_EVAL,
        [KVF__OF_RETENTION] = KVF_EVENT_RETENTION,
        [KVF__OF_ANCHOR] = KVF_EVENT_STEP,
    };
    const kvf__history *history = &run->progress.history;
    kvf__event_columns columns = {0};
    for (int i = 0; i < KVF__COLUMNS; i++) {
        columns.has[i] = history->column[i] && SAID_AT[kvf__columns[i].of] == e->kind &&
                         i != KVF__COLUMN_step;
        if (!columns.has[i]) continue;
        columns.value[i] = e->kind == KVF_EVENT_RETENTION
                               ? e->retention_loss /* also reported before the first step */
                               : kvf__history_at(history, i, e->step - 1);
    }
    return columns;
}

/* A pipe or a terminal is allowed to exist. */
static bool is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

kvf_status kvf__journal_check(kvf__run *run)
{
    const kvf_train_options *o = &run->options;
    if (!o->log || !*o->log) return KVF_OK;
    if (o->out && !strcmp(o->log, o->out))
        return kvf__fail(run->ctx, KVF_EUSAGE, "--log and --out give the same file: %s", o->log);
    if (kvf__appendfile_is_open(o->log)) return KVF_OK;
    KVF_TRY(kvf__check_not_input(run->ctx, o->log, o->out));
    if (is_file(o->log) && !o->force && !o->resume)
        return kvf__fail(run->ctx, KVF_EEXIST,
                         "%s: exists (--force replaces it, --resume adds to it)", o->log);
    return KVF_OK;
}

/* Closes a log that can no longer be written. The run continues. */
static void give_up(kvf__run *run, size_t i)
{
    char line[512];
    snprintf(line, sizeof line, "%s", kvf_ctx_error(run->ctx));
    run->output.journal.on &= ~(1u << i);
    kvf__run_note(run, "--%s stopped, the run continues: %s", SINKS[i].option, line);
}

static void pass_on(kvf__run *run, const kvf_event *event)
{
    if (!run->output.journal.on) return;
    const kvf__event_columns columns = columns_of(run, event);
    for (size_t i = 0; i < N_SINKS; i++)
        if (run->output.journal.on & 1u << i && SINKS[i].event(run, event, &columns))
            give_up(run, i);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

kvf_status kvf__journal_open(kvf__run *run, const kvf__run_size *size)
{
    kvf__journal *j = &run->output.journal;
    j->size = *size;
    j->began = now() - (kvf__clock() - run->progress.begin);
    for (size_t i = 0; i < N_SINKS; i++) {
        if (!path_of(run, &SINKS[i])) continue;
        KVF_TRY(SINKS[i].open(run));
        j->on |= 1u << i;
    }
    j->is_open = true;
    for (size_t at = 0; at < j->early.n; at += strlen(j->early.data + at) + 1) {
        const kvf_event note = {.kind = KVF_EVENT_NOTE,
                                .step = run->progress.step,
                                .steps = run->progress.steps,
                                .seconds = kvf__clock() - run->progress.begin,
                                .text = j->early.data + at};
        pass_on(run, &note);
    }
    return KVF_OK;
}

void kvf__journal_end(kvf__run *run, kvf_status status)
{
    char line[2048] = ""; /* a copy, because writing may replace the context's line */
    if (!run->output.journal.on) return;
    if (status) snprintf(line, sizeof line, "%s", kvf_ctx_error(run->ctx));
    for (size_t i = 0; i < N_SINKS; i++)
        if (run->output.journal.on & 1u << i && SINKS[i].end && SINKS[i].end(run, status, line))
            give_up(run, i);
    if (status) kvf__fail(run->ctx, status, "%s", line);
}

void kvf__journal_close(kvf__journal *j)
{
    kvf__appendfile_close(&j->log);
    kvf__event_file_close(&j->scalars);
    kvf__buf_done(&j->early);
    kvf__buf_done(&j->line);
    *j = (kvf__journal){0};
}

void kvf__run_emit(kvf__run *run, const kvf_event *event)
{
    kvf__journal *j = &run->output.journal;
    bool keep = !j->is_open && event->kind == KVF_EVENT_NOTE && (run->options.log != NULL);
    if (keep) (void)kvf__buf_add(run->ctx, &j->early, event->text, strlen(event->text) + 1);
    pass_on(run, event);
    if (run->options.event) run->options.event(run->options.event_user, event);
}

static void note(kvf__run *run, bool detail, const char *fmt, va_list args)
{
    char text[4096];
    vsnprintf(text, sizeof text, fmt, args);
    kvf__log(run->ctx, KVF_LOG_INFO, "%s", text);
    const kvf_event event = {.kind = KVF_EVENT_NOTE,
                             .step = run->progress.step,
                             .steps = run->progress.steps,
                             .seconds = kvf__clock() - run->progress.begin,
                             .text = text,
                             .detail = detail};
    kvf__run_emit(run, &event);
}

void kvf__run_note(kvf__run *run, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    note(run, false, fmt, args);
    va_end(args);
}

void kvf__run_detail(kvf__run *run, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    note(run, true, fmt, args);
    va_end(args);
}
