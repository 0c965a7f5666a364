/* kvfold sweep: trains the runs of a grid file in one pass over the base, and prints one table. The
 * options are those of train for all runs, with another --out. */
#include "cli_progress.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#define AT(field) offsetof(kvf_sweep_options, field)
static const kvf__option_row OPTIONS[] = {
    {"grid", "FILE", "", KVF_TEXT, AT(grid), "file that lists the runs: see help sweeps"},
    {"out", "DIR", "", KVF_TEXT, AT(out),
     "folder for the run files, NAME.h5, and for sweep.csv and sweep.html"},
    {"max-runs", "N", "all", KVF_POSITIVE, AT(max_runs),
     "runs trained at the same time; the others follow, which saves memory"},
    {"recipe", "FILE", "", KVF_NO_FIELD, 0,
     "read options from a file of `option = value` lines; the command line takes precedence"},
    CLI_VERBOSE,
};
enum { MOST_WIDTH = 40 };

typedef struct watcher {
    cli_progress progress;
    bool silent;  /* notes are in the JSON object only */
    bool verbose; /* also print details */
} watcher;

/* The runs of a pass are at about the same step, so the progress line shows events of any run. A
 * validation belongs to one run. */
static void on_event(void *user, const char *run, const kvf_event *event)
{
    watcher *w = user;
    w->progress.run = run;
    cli_progress_event(&w->progress, event);
    if (event->kind == KVF_EVENT_NOTE && !w->silent && (w->verbose || !event->detail)) {
        cli_progress_clear(&w->progress);
        printf("%s: %s\n", run, event->text);
        fflush(stdout);
    }
    if (cli_reader_gone()) cli_stop_unread();
}

/* ---- the table ------------------------------------------------------------------------------- */

/* Returns the width of a column's heading and texts. */
static int width_of(const kvf_json *runs, const char *heading, bool option)
{
    size_t width = strlen(heading);
    for (size_t i = 0; i < kvf_json_size(runs); i++) {
        const kvf_json *run = kvf_json_at(runs, i);
        size_t n = strlen(kvf__text_at(option ? kvf_json_get(run, "options") : run, heading));
        if (n > width) width = n;
    }
    return width < MOST_WIDTH ? (int)width : MOST_WIDTH;
}

static void print_texts(const kvf_json *report, const kvf_json *run)
{
    const kvf_json *runs = kvf_json_get(report, "runs"), *names = kvf_json_get(report, "options");
    printf("%-*s", width_of(runs, "name", false), run ? kvf__text_at(run, "name") : "name");
    for (size_t i = 0; i < kvf_json_size(names); i++) {
        const char *name = kvf_json_str(kvf_json_at(names, i), NULL);
        printf("  %-*s", width_of(runs, name, true),
               run ? kvf__text_at(kvf_json_get(run, "options"), name) : name);
    }
}

static void print_run(const kvf_json *report, const kvf_json *run)
{
    int64_t rank = kvf__int_at(run, "rank");
    double value = kvf__real_at(run, "value");
    char place[32] = "-", score[32] = "-";
    if (rank) snprintf(place, sizeof place, "%lld", (long long)rank);
    if (!isnan(value)) snprintf(score, sizeof score, "%.4f", value);
    printf("%4s  ", place);
    print_texts(report, run);
    printf("  %15s  %7lld  %8.1f  %s\n", score, kvf__int_at(run, "steps"),
           kvf__real_at(run, "seconds"), kvf__text_at(run, "status"));
}

/* Prints mean and range over runs that differ only in the seed. */
static void print_seeds(const kvf_json *report)
{
    const kvf_json *groups = kvf_json_get(report, "over_seeds");
    const int width = width_of(groups, "name", false);
    if (!kvf_json_size(groups)) return;
    printf("%-*s  runs  %s over seeds\n", width, "name", kvf__text_at(report, "metric"));
    for (size_t i = 0; i < kvf_json_size(groups); i++) {
        const kvf_json *g = kvf_json_at(groups, i);
        printf("%-*s  %4lld  %.4f (%.4f to %.4f)\n", width, kvf__text_at(g, "name"),
               kvf__int_at(g, "runs"), kvf__real_at(g, "mean"), kvf__real_at(g, "min"),
               kvf__real_at(g, "max"));
    }
}

static void print_table(const kvf_json *report)
{
    const kvf_json *runs = kvf_json_get(report, "runs");
    printf("rank  ");
    print_texts(report, NULL);
    printf("  %15s  %7s  %8s  status\n", kvf__text_at(report, "metric"), "steps", "seconds");
    for (size_t i = 0; i < kvf_json_size(runs); i++)
        print_run(report, kvf_json_at(runs, i));
    for (size_t i = 0; i < kvf_json_size(runs); i++) {
        const kvf_json *run = kvf_json_at(runs, i);
        if (!strcmp(kvf__text_at(run, "status"), "failed"))
            printf("%s: %s\n", kvf__text_at(run, "name"), kvf__text_at(run, "line"));
    }
    print_seeds(report);
    printf("%s: %zu runs, %lld passes, %.1f s\n", kvf__text_at(report, "out"), kvf_json_size(runs),
           kvf__int_at(report, "passes"), kvf__real_at(report, "seconds"));
}

static int report_runs(const cli_call *call, kvf_json *report)
{
    int64_t failed = kvf__int_at(report, "failed");
    size_t n = kvf_json_size(kvf_json_get(report, "runs"));
    int code = CLI_OK;
    if (call->common.json) {
        code = cli_print_json(call, report);
    } else {
        print_table(report);
        kvf_json_free(report);
    }
    if (code || !failed) return code;
    return cli_fail(call->command, "%lld of %zu runs failed", (long long)failed, n);
}

static int run(cli_call *call)
{
    watcher w = {.progress = cli_progress_make(&call->common),
                 .silent = call->common.json,
                 .verbose = cli_is_given(call, "verbose")};
    kvf_sweep_options options = {
        .train = kvf_train_defaults(), .event = on_event, .event_user = &w};
    kvf_json *report = NULL;
    int code = cli_set_values(call, &options);
    if (code) return code;
    kvf_ctx_set_stop(call->ctx, cli_stop_install());
    kvf_status st = kvf_sweep(call->ctx, &options, NULL, &report);
    cli_progress_clear(&w.progress);
    if (st && st != KVF_ESTOPPED) return cli_fail_status(call, st);
    code = report_runs(call, report);
    return st == KVF_ESTOPPED ? cli_stopped(call, cli_stop_signal()) : code;
}

const cli_command cli_sweep = {
    .name = "sweep",
    .group = CLI_TRAIN,
    .synopsis = "--base PATH --data FILE --grid FILE --out DIR [options]",
    .summary = "Trains many runs in one pass over the base, and ranks them.",
    .notes =
        "Options apply to all runs, and the grid overrides them: `kvfold help sweeps`. SIGINT and "
        "SIGTERM save all runs; --resume continues the saved runs and starts the others.\n",
    .usual = "data: base data valid out map task labels max-length\n"
             "runs: grid max-runs resume\n"
             "every run: method prefix-length lr steps epochs batch-size eval-every precision "
             "threads help\n",
    .examples = "  printf 'lr = 0.01, 0.03\\nseed = 1, 2, 3\\n' >grid.txt\n"
                "  kvfold sweep --base MODEL --data train.jsonl --valid valid.jsonl \\\n"
                "      --grid grid.txt --steps 100 --out runs\n",
    .required = "base grid out",
    .train_row = kvf__sweep_option_row,
    .train_offset = offsetof(kvf_sweep_options, train),
    .refusal = kvf__sweep_refusal,
    CLI_ROWS(OPTIONS),
    .lab = true,
    .run = run,
};
