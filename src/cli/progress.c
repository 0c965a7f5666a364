/* Progress of a run: one line that is drawn over, at most ten times a second, and only where a
 * person looks at it. */
#include "cli_int.h"

#include <math.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define SECONDS_BETWEEN_DRAWS 0.1

cli_progress cli_progress_make(const cli_common *common)
{
    return (cli_progress){.on = !common->quiet && isatty(STDERR_FILENO),
                          .valid_loss = NAN,
                          .meter_rise = NAN,
                          .last_drawn = -1};
}

static size_t terminal_width(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1) return size.ws_col;
    return 80;
}

/* The line is cut one short of the width: a full line would wrap, and could not be drawn over. */
static void draw(cli_progress *p, const char *line)
{
    fprintf(stderr, "\r\033[K%.*s", (int)terminal_width() - 1, line);
    fflush(stderr);
    p->drawn = true;
}

static void draw_step(cli_progress *p, const kvf_event *e)
{
    char line[256], valid[48] = "", left[48] = "", memory[32];
    char time[32];
    int n = 0;
    if (!isnan(p->valid_loss)) n = snprintf(valid, sizeof valid, "  valid %.4f", p->valid_loss);
    if (!isnan(p->meter_rise))
        snprintf(valid + n, sizeof valid - (size_t)n, "  meter %+.4f", p->meter_rise);
    if (!isnan(e->seconds_left))
        snprintf(left, sizeof left, "  %s left", cli_time_text(e->seconds_left, time));
    snprintf(line, sizeof line, "step %lld/%lld  loss %.4f%s  %.0f tokens/s%s  %s",
             (long long)e->step, (long long)e->steps, e->train_loss, valid, e->tokens_per_second,
             left, cli_bytes_text(kvf_rss_bytes(), memory));
    draw(p, line);
    p->last_drawn = e->seconds;
}

void cli_progress_event(cli_progress *p, const kvf_event *e)
{
    p->steps = e->steps;
    if (e->kind == KVF_EVENT_EVAL) p->valid_loss = e->valid_loss;
    if (e->kind == KVF_EVENT_METER) p->meter_rise = e->meter_loss - e->meter_base_loss;
    if (!p->on) return;
    bool due = e->seconds - p->last_drawn >= SECONDS_BETWEEN_DRAWS || e->step == e->steps;
    if (e->kind == KVF_EVENT_STEP && due) draw_step(p, e);
}

void cli_progress_items(void *progress, int64_t done, int64_t items)
{
    cli_progress *p = progress;
    char line[64];
    if (!p->on) return;
    snprintf(line, sizeof line, "item %lld/%lld", (long long)done, (long long)items);
    draw(p, line);
}

void cli_progress_clear(cli_progress *progress)
{
    if (progress->drawn) fputs("\r\033[K", stderr);
    progress->drawn = false;
    fflush(stderr);
}

/* Before there is a context its only line may be the reason why there is none, so the last one is
 * kept. */
void cli_log(void *user, kvf_log_level level, const char *line)
{
    cli_call *call = user;
    if (level != KVF_LOG_WARN) return;
    const bool terminal = isatty(STDERR_FILENO);
    snprintf(call->log, sizeof call->log, "%s", line);
    if (call->ctx && !call->common.quiet && (terminal || call->command->lasting))
        fprintf(stderr, "%skvfold: %s: warning: %s\n", terminal ? "\r\033[K" : "",
                call->command->name, line);
}
