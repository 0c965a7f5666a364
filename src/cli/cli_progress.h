/* Progress of work that lasts, and the signals that end it. */
#ifndef KVF_CLI_PROGRESS_H
#define KVF_CLI_PROGRESS_H

#include "cli_int.h"

/* On a terminal one updating line, under those of the validations; elsewhere lines of validations,
 * and one about every minute. */
typedef struct cli_progress {
    bool on, terminal, drawn;
    double last_line;      /* seconds of the run */
    const char *run;       /* which of several, NULL: there is one */
    double valid_loss;     /* NaN before the first validation */
    double retention_rise; /* of the retention set's loss above the bare base's; NaN: none */
    int64_t steps;
} cli_progress;
cli_progress cli_progress_make(const cli_common *common); /* .on: without --quiet */
void cli_progress_event(cli_progress *progress, const kvf_event *event);
/* As the library calls it back, with a cli_progress. */
void cli_progress_items(void *progress, int64_t done, int64_t items);
void cli_progress_clear(cli_progress *progress);
/* Log sink: warnings, above the updating line. */
void cli_log(void *call, kvf_log_level level, const char *line);

/* A row of the tables of commands that train. */
#define CLI_VERBOSE                                                                                \
    {                                                                                              \
        "verbose", NULL, "", KVF_NO_FIELD, 0, "also print details about the initial prefix"        \
    }

/* What the library reports while it trains, for commands that do (cmd_train.c); the result as an
 * object, which takes the notes; the result as text, planned: steps in all. */
typedef struct cli_watcher {
    cli_progress progress;
    kvf_json *notes; /* array for --json, NULL: they are printed as they come */
    FILE *to;        /* notes and result as text; NULL: nowhere */
    bool dry_run;    /* the forecast is the result */
    bool verbose;    /* details are printed, too */
} cli_watcher;
/* Watches a run of these options. CLI_FAILED: no memory for the notes, with its line. */
int cli_watch_begin(const cli_call *call, kvf_train_options *options, cli_watcher *watcher);
kvf_json *cli_train_json(const kvf_train_result *result, const kvf_train_options *options,
                         cli_watcher *watcher);
void cli_train_text(const kvf_train_result *result, const kvf_train_options *options,
                    int64_t planned, FILE *to);

/* From now on SIGINT and SIGTERM end the program without half an output of this context left; NULL:
 * as any program. */
void cli_stop_clean(kvf_ctx *ctx);
/* From now on they set the flag, and a second one ends the program. */
const volatile int *cli_stop_install(void);
/* Sets the flag as SIGPIPE would: the reader of what is written has gone. */
void cli_stop_unread(void);
int cli_stop_signal(void); /* the signal that came, 0: none */
/* The end of a run that a signal stopped: its line, but none for a closed pipe; the exit status. */
int cli_stopped(const cli_call *call, int number);

#endif
