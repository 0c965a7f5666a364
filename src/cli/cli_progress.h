/* Progress of long work, and the signals that end it. */
#ifndef KVF_CLI_PROGRESS_H
#define KVF_CLI_PROGRESS_H

#include "cli_int.h"

/* On a terminal one updating line below those of the validations. Otherwise lines of validations,
 * and one about every minute. */
typedef struct cli_progress {
    bool on, terminal, drawn;
    double last_line;      /* time of the last line, in seconds since the start */
    const char *run;       /* name of the run; NULL: there is only one */
    double valid_loss;     /* NaN before the first validation */
    double retention_rise; /* loss on the retention set minus the bare base's; NaN: none */
    int64_t steps;
} cli_progress;
cli_progress cli_progress_make(const cli_common *common); /* .on: not with --quiet */
void cli_progress_event(cli_progress *progress, const kvf_event *event);
/* Callback of the library, with a cli_progress. */
void cli_progress_items(void *progress, int64_t done, int64_t items);
void cli_progress_clear(cli_progress *progress);
/* Log sink: prints warnings above the updating line. */
void cli_log(void *call, kvf_log_level level, const char *line);

/* A row for the tables of commands that train. */
#define CLI_VERBOSE                                                                                \
    {                                                                                              \
        "verbose", NULL, "", KVF_NO_FIELD, 0, "also print details about the initial prefix"        \
    }

/* Events of a training run, for commands that train (cmd_train.c): prints notes and progress;
 * returns the result as an object, which takes over the notes; prints the result as text. planned:
 * total steps. */
typedef struct cli_watcher {
    cli_progress progress;
    kvf_json *notes; /* array for --json; NULL: notes are printed at once */
    FILE *to;        /* stream for notes and result; NULL: none */
    bool dry_run;    /* the forecast is the result */
    bool verbose;    /* also print details */
} cli_watcher;
/* Begins to watch a run with these options. CLI_FAILED: no memory, with a line. */
int cli_watch_begin(const cli_call *call, kvf_train_options *options, cli_watcher *watcher);
kvf_json *cli_train_json(const kvf_train_result *result, const kvf_train_options *options,
                         cli_watcher *watcher);
void cli_train_text(const kvf_train_result *result, const kvf_train_options *options,
                    int64_t planned, FILE *to);

/* From now on SIGINT and SIGTERM remove the unfinished outputs of this context and end the program;
 * NULL: default behaviour. Clears the flag. */
void cli_stop_clean(kvf_ctx *ctx);
/* From now on the signals set the flag, and a second one ends the program. */
const volatile int *cli_stop_install(void);
/* Sets the flag as a signal does, because the output pipe was closed. */
void cli_stop_unread(void);
int cli_stop_signal(void); /* signal received; 0: none */
/* Reports a run that a signal stopped, except for a closed pipe, and returns the exit status. */
int cli_stopped(const cli_call *call, int number);

#endif
