/* Internals of kvfold compare: child processes, the compared rows, the table. */
#ifndef KVF_CLI_COMPARE_H
#define KVF_CLI_COMPARE_H

#include "cli_int.h"

/* ---- a process of this program (run_self.c) -------------------------------------------------- */

enum { CLI_MOST_ARGUMENTS = 256 };
typedef struct cli_arguments {
    char *at[CLI_MOST_ARGUMENTS + 1]; /* program and command, then owned arguments; ends in NULL */
    size_t n;                         /* number; 2 before the first owned one */
    bool lost;                        /* an argument was lost, for lack of memory or space */
} cli_arguments;
void cli_argument(cli_arguments *a, const char *fmt, ...) CLI_PRINTF(2, 3);
/* Adds an option by its row: a flag with the value "true" is given, one with "false" is not. */
void cli_argument_option(cli_arguments *a, const kvf__option_row *row, const char *value);
void cli_arguments_done(cli_arguments *a); /* frees the owned ones */
/* Environment variable with the descriptor to which a child process writes its error lines. */
#define CLI_LINES_FD "KVFOLD_LINES_FD"
/* Runs a command of this program with the arguments, --json and the call's --threads, and frees
 * them. Returns the object that it printed. On failure prints a line with `what` and returns NULL;
 * `line`, unless NULL, gets the child's error line. */
enum { CLI_LINE_BYTES = 512 };
kvf_json *cli_run_self(const cli_call *call, const char *command, cli_arguments *a,
                       const char *what, char line[CLI_LINE_BYTES]);

/* ---- what is compared (compare_rows.c) ------------------------------------------------------- */

typedef struct cli_compare_values {
    kvf_train_options train; /* options of all runs, as given */
    const char *methods, *inits, *options, *ensembles, *out;
    int64_t steps, seeds, eval_every;
    int64_t draws; /* equals seeds, or 0: not given */
    int64_t seed;  /* of the first run */
    bool force, resume, quick;
    double minutes; /* limit of --quick */
} cli_compare_values;

enum { CLI_MOST_COMPARED = 64, CLI_MOST_SETTINGS = 24 };
/* A row of the table: a method with its own options from --methods and --inits, or from a section.
 */
typedef struct cli_compared {
    char name[160];            /* "full lr=3e-4", "mlp init=text" */
    char file[160];            /* start of its file names */
    const char *method, *init; /* init NULL: the method's default */
    size_t n;
    cli_given setting[CLI_MOST_SETTINGS];
    const cli_given *section; /* section of the row; NULL: none */
} cli_compared;

typedef struct cli_comparison {
    const cli_call *call;
    const cli_compare_values *values;
    cli_call shared;       /* options of train: from --options FILE, then from the call */
    const char *task;      /* "lm", ... */
    char *methods, *inits; /* the lists, cut into parts; views: */
    size_t n_inits;
    const char *init[CLI_MOST_COMPARED];
    size_t n_axes, n_axis_values;
    struct {
        const cli_given *line;
        size_t first, n; /* range in axis_value */
    } axis[CLI_MOST_SETTINGS];
    const char *axis_value[CLI_MOST_COMPARED];
    size_t n;
    cli_compared row[CLI_MOST_COMPARED]; /* the head alone first, if the task has a head */
    const char *reference;               /* name of the first requested method */
} cli_comparison;
/* Returns CLI_OK, or prints a line and returns CLI_MISUSE or CLI_FAILED. */
int cli_comparison_init(cli_comparison *c, const cli_call *call, const cli_compare_values *values);
void cli_comparison_done(cli_comparison *c);
/* Adds the options of the row, and the shared ones that its method supports. */
void cli_comparison_options(const cli_comparison *c, const cli_compared *row, cli_arguments *a);
/* True if the row also trains the base, so that merge writes two files. */
bool cli_comparison_unfreezes(const cli_comparison *c, const cli_compared *row);
/* Adds the shared options that another command has too, except base and data. */
void cli_comparison_options_of(const cli_comparison *c, const cli_command *command,
                               cli_arguments *a);
kvf_json *cli_comparison_shared(const cli_comparison *c); /* returns them as {name: value} */

/* Builds a row: adds an option; appends "name=value" to its names; replaces slashes and spaces in a
 * file name; and adds the row to the comparison. */
int cli_compared_set(cli_comparison *c, cli_compared *row, const cli_given *given);
void cli_compared_name(cli_compared *row, const char *name, const char *value);
void cli_compared_clean(char *name);
int cli_compared_keep(cli_comparison *c, const cli_compared *row);

/* ---- the runs (cmd_compare.c, compare_record.c) ---------------------------------------------- */

typedef struct cli_compare_cell {
    const cli_compared *row;
    int64_t seed;
    char name[192], run[4096], folded[4096];
    char folded_base[4096]; /* of a run that merges to two files; else "" */
    char record[4096];
} cli_compare_cell;
/* Adds the arguments of train for a run, without its output. */
void cli_compare_arguments(const cli_comparison *c, const cli_compared *row, int64_t seed,
                           cli_arguments *a);
/* Sets *out, which the caller frees, to the record of a run, {arguments, trained?, merged?}: with
 * --resume the old one, whose arguments must be equal. CLI_OK, or prints a line and returns
 * CLI_MISUSE or CLI_FAILED. */
int cli_record_open(const cli_comparison *c, const cli_compare_cell *cell, const cli_arguments *a,
                    kvf_json **out);
/* Adds a result, unless it is NULL, and writes the record. */
int cli_record_put(const cli_comparison *c, const cli_compare_cell *cell, kvf_json *record,
                   const char *key, kvf_json *value);

/* ---- sections (compare_sections.c) ----------------------------------------------------------- */

/* Returns the first section that is a row, or NULL. */
const cli_given *cli_sections_first(const cli_call *call);
/* Reads the axes, before the rows; then adds a row for each section. */
int cli_sections_read_axes(cli_comparison *c);
int cli_sections_add(cli_comparison *c);
/* Adds the row with every combination of values from this axis on; once for an axis that its method
 * does not support. */
int cli_compared_combine(cli_comparison *c, const cli_compared *row, size_t axis);

/* ---- ensembles (compare_ensembles.c) --------------------------------------------------------- */

/* Checks that there are enough runs, of methods that share the base. CLI_OK, or CLI_MISUSE with a
 * line. */
int cli_ensembles_check(const cli_comparison *c);
/* Returns [{name, prompts, vote, groups, best_metric, score {mean, min, max}}] of the rows that
 * ran. */
kvf_json *cli_ensembles_run(const cli_comparison *c, const kvf_json *runs);

/* ---- --quick (compare_quick.c) --------------------------------------------------------------- */

/* Sets the methods, and --valid-split where validation data is missing. */
int cli_quick_begin(cli_call *call, cli_compare_values *values);
/* Sets the number of steps from forecasts of all rows. CLI_OK, or prints a line and returns
 * CLI_MISUSE or CLI_FAILED. */
int cli_quick_plan(cli_comparison *c, cli_compare_values *values);
/* Adds "winner" to the results: {name, metric, value, command, second?, ahead?}. */
void cli_quick_end(const cli_comparison *c, kvf_json *object);
void cli_quick_print(const kvf_json *object); /* nothing without "winner" */

/* ---- the table (compare_table.c) ------------------------------------------------------------- */

void cli_comparison_print(const kvf_json *object);

#endif
