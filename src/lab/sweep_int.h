/* A sweep: the grid of runs, the group that takes steps together, and the report that ranks them.
 */
#ifndef KVF_SWEEP_INT_H
#define KVF_SWEEP_INT_H

#include <kvfold/lab.h>

#include "train_int.h"

/* ---- the grid (sweep_grid.c) ----------------------------------------------------------------- */

/* `name = value` from a line of the file; texts are views into it. */
typedef struct kvf__setting {
    const char *name, *value;
    int line;
} kvf__setting;

typedef struct kvf__grid_run {
    char *name; /* owned: name of its file, and in the report */
    int line;   /* line in the grid file */
    size_t n;
    kvf__setting *settings; /* [n] owned */
} kvf__grid_run;

typedef struct kvf__grid {
    kvf__buf text;
    size_t n;
    kvf__grid_run *runs; /* [n] in the order of the file: the product, its last line fastest, then
                          * the named ones */
    size_t n_options;
    const char **options; /* [n_options] all options that are given, in order */
} kvf__grid;

/* Reads the file and checks each line like the options of train. EUSAGE: file, line, found,
 * expected. */
kvf_status kvf__grid_load(kvf_ctx *ctx, const char *path, kvf__grid *out);
void kvf__grid_done(kvf__grid *grid);

/* ---- the runs (sweep.c) ---------------------------------------------------------------------- */

typedef enum kvf__run_state {
    KVF__RUN_WAITS,
    KVF__RUN_GOES,
    KVF__RUN_DONE,
    KVF__RUN_STOPPED,
    KVF__RUN_FAILED
} kvf__run_state;

typedef struct kvf__sweep_run {
    struct kvf__sweep *sweep;
    const kvf__grid_run *row;
    kvf_train_options options;
    char *out, *tensorboard; /* owned paths; tensorboard may be NULL */
    bool own_head;
    kvf_json *shown; /* its options as in a run file */
    kvf_json *notes;
    kvf__trainer *trainer; /* owned; NULL: not open */
    int64_t tokens_before;
    double begin;

    kvf__run_state state;
    kvf_train_result result; /* result of a finished run */
    bool larger;             /* larger values of its metric are better */
    double last_losses;      /* mean loss of the last steps */
    char line[512];          /* error line of a failed run */
} kvf__sweep_run;

typedef struct kvf__sweep {
    kvf_ctx *ctx;
    const kvf_sweep_options *options;
    kvf__grid grid;
    kvf__sweep_run *runs; /* [grid.n] */
    kvf_base *base;
    kvf__reads *reads;   /* data sets shared by the runs */
    kvf__states *states; /* cache of --keep-states for all groups; NULL: none yet */
    bool made_folder;    /* the sweep created options->out */
    volatile int stop;   /* stop flag of the runs: changes only between steps */
    const volatile int *caller_stop;
    double begin;
    int64_t passes;      /* optimizer steps, each of several runs */
    double step_seconds; /* seconds spent in them */
} kvf__sweep;

#define KVF__SWEEP_CSV  "sweep.csv" /* in the sweep's folder */
#define KVF__SWEEP_HTML "sweep.html"

/* ---- the report (sweep_report.c) ------------------------------------------------------------- */

kvf_status kvf__sweep_report(kvf__sweep *sweep, kvf_json **out);
/* Converts the report to a struct. */
kvf_status kvf__sweep_result(const kvf__sweep *sweep, const kvf_json *report,
                             kvf_sweep_result *out);
/* Writes DIR/sweep.csv, replacing an existing one. */
kvf_status kvf__sweep_csv(kvf__sweep *sweep, const kvf_json *report);
/* Writes the report and the runs' curves as a page (sweep_page.c). */
kvf_status kvf__sweep_html(kvf__sweep *sweep, const kvf_json *report);

#endif
