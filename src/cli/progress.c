/* Progress of a run. On a terminal: one updating line, drawn at most ten times a second below the
 * lines of the validations. In a file or pipe: the validations, and a line about every minute. */
#include "cli_progress.h"

#include <math.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define SECONDS_BETWEEN_DRAWS 0.1
#define SECONDS_BETWEEN_LINES 60

cli_progress cli_progress_make(const cli_common *common)
{
    bool terminal = isatty(STDERR_FILENO);
    return (cli_progress){.on = !common->quiet,
                          .terminal = terminal,
                          .valid_loss = NAN,
                          .retention_rise = NAN,
                          .last_line = terminal ? -1 : 0};
}

static size_t terminal_width(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1) return size.ws_col;
    return 80;
}

/* Cuts the line one short of the width: a full line would wrap and could not be redrawn. */
static void draw(cli_progress *p, const char *line)
{
    fprintf(stderr, "\r\033[K%.*s", (int)terminal_width() - 1, line);
    fflush(stderr);
    p->drawn = true;
}

/* Formats the last measurements: "valid 2.1031 accuracy 0.8100 (best) retention +0.0012". */
static void measured(const cli_progress *p, const kvf_event *e, char *line, size_t size)
{
    const bool now = e->kind == KVF_EVENT_EVAL;
    const double loss = now ? e->valid_loss : p->valid_loss;
    size_t n = 0;
    line[0] = 0;
    if (!isnan(loss)) n += (size_t)snprintf(line, size, "  valid %.4f", loss);
    if (now && strcmp(e->metric.name, "loss"))
        n += (size_t)snprintf(line + n, size - n, "  %s %.4f", e->metric.name, e->metric.value);
    if (now && e->best) n += (size_t)snprintf(line + n, size - n, " (best)");
    if (!isnan(p->retention_rise))
        snprintf(line + n, size - n, "  retention %+.4f", p->retention_rise);
}

static void describe(const cli_progress *p, const kvf_event *e, char *line, size_t size)
{
    char valid[128], rate[48] = "", left[48] = "", memory[32], time[32];
    measured(p, e, valid, sizeof valid);
    if (e->kind == KVF_EVENT_STEP)
        snprintf(rate, sizeof rate, "  %.0f tokens/s", e->tokens_per_second);
    if (!isnan(e->seconds_left))
        snprintf(left, sizeof left, "  %s left", cli_time_text(e->seconds_left, time));
    snprintf(line, size, "step %lld/%lld  loss %.4f%s%s%s  %s", (long long)e->step,
             (long long)e->steps, e->train_loss, valid, rate, left,
             cli_bytes_text(kvf__rss_bytes(), memory));
}

/* Prints a permanent line. */
static void print_line(cli_progress *p, const char *line)
{
    cli_progress_clear(p);
    fprintf(stderr, "%s%s%s\n", p->run ? p->run : "", p->run ? ": " : "", line);
}

void cli_progress_event(cli_progress *p, const kvf_event *e)
{
    char line[512];
    p->steps = e->steps;
    if (e->kind == KVF_EVENT_EVAL && !p->run) p->valid_loss = e->valid_loss;
    if (e->kind == KVF_EVENT_RETENTION)
        p->retention_rise = e->retention_loss - e->retention_base_loss;
    if (!p->on || (e->kind != KVF_EVENT_STEP && e->kind != KVF_EVENT_EVAL)) return;
    const bool stays = e->kind == KVF_EVENT_EVAL || !p->terminal;
    const double wait = p->terminal ? SECONDS_BETWEEN_DRAWS : SECONDS_BETWEEN_LINES;
    const bool last = p->terminal && e->step == e->steps;
    if (e->kind == KVF_EVENT_STEP && e->seconds - p->last_line < wait && !last) return;
    describe(p, e, line, sizeof line);
    if (stays)
        print_line(p, line);
    else
        draw(p, line);
    p->last_line = e->seconds;
}

void cli_progress_items(void *progress, int64_t done, int64_t items)
{
    cli_progress *p = progress;
    char line[64];
    if (!p->on || !p->terminal) return;
    snprintf(line, sizeof line, "item %lld/%lld", (long long)done, (long long)items);
    draw(p, line);
}

void cli_progress_clear(cli_progress *progress)
{
    if (progress->drawn) fputs("\r\033[K", stderr);
    progress->drawn = false;
    fflush(stderr);
}

/* Keeps the last line: before there is a context it may be the reason why there is none. */
void cli_log(void *user, kvf_log_level level, const char *line)
{
    cli_call *call = user;
    if (level != KVF_LOG_WARN) return;
    const bool terminal = isatty(STDERR_FILENO);
    snprintf(call->log, sizeof call->log, "%s", line);
    if (call->ctx && !call->common.quiet)
        fprintf(stderr, "%skvfold: %s: warning: %s\n", terminal ? "\r\033[K" : "",
                call->command->name, line);
}
