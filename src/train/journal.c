/* Where the events of a run go: to its log, to TensorBoard's files, and to the caller.
 *
 * Both files belong to the process, not to the run: a run that is continued appends to the one and
 * begins another of the other. They open when everything else has been, so that a run that cannot
 * start leaves none; notes from before are kept and come first. */
#include "trainer.h"

#include <string.h>
#include <sys/stat.h>
#include <time.h>

typedef struct sink {
    const char *option;
    size_t offset; /* of its path in the options */
    kvf_status (*open)(kvf__trainer *t);
    kvf_status (*event)(kvf__trainer *t, const kvf_event *event);
    kvf_status (*end)(kvf__trainer *t, kvf_status status, const char *error); /* NULL: nothing */
} sink;

static const sink SINKS[] = {
    {"log", offsetof(kvf_train_options, log), kvf__log_open, kvf__log_event, kvf__log_end},
    {"tensorboard", offsetof(kvf_train_options, tensorboard), kvf__scalars_open, kvf__scalars_event,
     NULL},
};
enum { N_SINKS = sizeof SINKS / sizeof SINKS[0] };

static const char *path_of(const kvf__trainer *t, const sink *s)
{
    const char *path = *(const char *const *)((const char *)&t->options + s->offset);
    return path && *path ? path : NULL;
}

bool kvf__journal_column(const kvf__trainer *t, int column, const kvf_event *e, double *value)
{
    static const kvf_event_kind SAID_AT[] = {
        [KVF__OF_STEP] = KVF_EVENT_STEP,
        [KVF__OF_EVAL] = KVF_EVENT_EVAL,
        [KVF__OF_RETENTION] = KVF_EVENT_RETENTION,
        [KVF__OF_ANCHOR] = KVF_EVENT_STEP,
    };
    if (!t->progress.history.column[column] || SAID_AT[kvf__columns[column].of] != e->kind)
        return false;
    if (column == KVF__COLUMN_step) return false;
    *value = e->kind == KVF_EVENT_RETENTION
                 ? e->retention_loss /* read before the first step, too */
                 : kvf__history_at(&t->progress.history, column, e->step - 1);
    return true;
}

/* A pipe or a terminal may be there already. */
static bool is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

kvf_status kvf__journal_check(kvf__trainer *t)
{
    const kvf_train_options *o = &t->options;
    if (!o->log || !*o->log) return KVF_OK;
    if (!strcmp(o->log, o->out))
        return kvf__fail(t->ctx, KVF_EUSAGE, "--log and --out name the same file: %s", o->log);
    if (kvf__appendfile_is_open(o->log)) return KVF_OK;
    KVF_TRY(kvf__check_not_input(t->ctx, o->log, o->out));
    if (is_file(o->log) && !o->force && !o->resume)
        return kvf__fail(t->ctx, KVF_EEXIST,
                         "%s: exists (--force replaces it, --resume adds to it)", o->log);
    return KVF_OK;
}

/* A log that can no longer be written is given up: the run is worth more than its log. */
static void give_up(kvf__trainer *t, size_t i)
{
    char line[512];
    snprintf(line, sizeof line, "%s", kvf_ctx_error(t->ctx));
    t->output.journal.on &= ~(1u << i);
    kvf__trainer_note(t, "--%s is given up: %s", SINKS[i].option, line);
}

static void pass_on(kvf__trainer *t, const kvf_event *event)
{
    for (size_t i = 0; i < N_SINKS; i++)
        if (t->output.journal.on & 1u << i && SINKS[i].event(t, event)) give_up(t, i);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

kvf_status kvf__journal_open(kvf__trainer *t)
{
    kvf__journal *j = &t->output.journal;
    j->began = now() - (kvf__clock() - t->progress.begin);
    for (size_t i = 0; i < N_SINKS; i++) {
        if (!path_of(t, &SINKS[i])) continue;
        KVF_TRY(SINKS[i].open(t));
        j->on |= 1u << i;
    }
    j->is_open = true;
    for (size_t at = 0; at < j->early.n; at += strlen(j->early.data + at) + 1) {
        const kvf_event note = {.kind = KVF_EVENT_NOTE,
                                .step = t->progress.step,
                                .steps = t->progress.steps,
                                .seconds = kvf__clock() - t->progress.begin,
                                .text = j->early.data + at};
        pass_on(t, &note);
    }
    return KVF_OK;
}

void kvf__journal_end(kvf__trainer *t, kvf_status status)
{
    char line[2048] = ""; /* writing may replace the context's */
    if (!t->output.journal.on) return;
    if (status) snprintf(line, sizeof line, "%s", kvf_ctx_error(t->ctx));
    for (size_t i = 0; i < N_SINKS; i++)
        if (t->output.journal.on & 1u << i && SINKS[i].end && SINKS[i].end(t, status, line))
            give_up(t, i);
    if (status) kvf__fail(t->ctx, status, "%s", line);
}

void kvf__journal_close(kvf__journal *j)
{
    kvf__appendfile_close(&j->log);
    kvf__event_file_close(&j->scalars);
    kvf__buf_done(&j->early);
    kvf__buf_done(&j->line);
    *j = (kvf__journal){0};
}

void kvf__trainer_emit(kvf__trainer *t, const kvf_event *event)
{
    kvf__journal *j = &t->output.journal;
    bool keep = !j->is_open && event->kind == KVF_EVENT_NOTE && (t->options.log != NULL);
    if (keep) (void)kvf__buf_add(t->ctx, &j->early, event->text, strlen(event->text) + 1);
    pass_on(t, event);
    if (t->options.event) t->options.event(t->options.event_user, event);
}
