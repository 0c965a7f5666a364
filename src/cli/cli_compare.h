/* The parts of kvfold compare: processes of this program, the rows that are compared, the table. */
#ifndef KVF_CLI_COMPARE_H
#define KVF_CLI_COMPARE_H

#include "cli_int.h"

/* ---- a process of this program (run_self.c) -------------------------------------------------- */

enum { CLI_MOST_ARGUMENTS = 256 };
typedef struct cli_arguments {
    char *at[CLI_MOST_ARGUMENTS + 1]; /* program and command, then owned ones; ends in NULL */
    size_t n;                         /* 2 before the first of these */
    bool lost;                        /* one of them, to memory or to their number */
} cli_arguments;
void cli_argument(cli_arguments *a, const char *fmt, ...) CLI_PRINTF(2, 3);
/* An option of a row's name: value "true" of a flag is the flag, "false" is nothing. */
void cli_argument_option(cli_arguments *a, const kvf__option_row *row, const char *value);
/* Variable with the descriptor to which a process writes its error lines for the one above. */
#define CLI_LINES_FD "KVFOLD_LINES_FD"
/* Runs a command of this program with the arguments, --json and the call's --threads, and frees
 * them. The object that it printed; NULL, with a line that names `what`: it failed, and `line`,
 * unless NULL, has its own line. */
enum { CLI_LINE_BYTES = 512 };
kvf_json *cli_run_self(const cli_call *call, const char *command, cli_arguments *a,
                       const char *what, char line[CLI_LINE_BYTES]);

/* ---- what is compared (compare_rows.c) ------------------------------------------------------- */

typedef struct cli_compare_values {
    kvf_train_options train; /* of all runs, as given */
    const char *methods, *inits, *options, *ensembles, *out;
    int64_t steps, seeds, eval_every;
    bool force;
} cli_compare_values;

enum { CLI_MOST_COMPARED = 64, CLI_MOST_SETTINGS = 24 };
/* A row of the table: a method, with what --methods and --inits or a section say of it. */
typedef struct cli_compared {
    char name[160];            /* "full lr=3e-4", "mlp init=text" */
    char file[160];            /* beginning of its files' names */
    const char *method, *init; /* init NULL: the method's own */
    size_t n;
    cli_given setting[CLI_MOST_SETTINGS];
    const cli_given *section; /* NULL: it is none */
} cli_compared;

typedef struct cli_comparison {
    const cli_call *call;
    const cli_compare_values *values;
    cli_call shared;       /* of train: the options of --options FILE, then the call's */
    const char *task;      /* "lm", ... */
    char *methods, *inits; /* the lists, cut into their parts; views of them: */
    size_t n_inits;
    const char *init[CLI_MOST_COMPARED];
    size_t n_axes, n_axis_values;
    struct {
        const cli_given *line;
        size_t first, n; /* of axis_value */
    } axis[CLI_MOST_SETTINGS];
    const char *axis_value[CLI_MOST_COMPARED];
    size_t n;
    cli_compared row[CLI_MOST_COMPARED]; /* the head alone first, where the task has one */
    const char *reference;               /* name of the first method asked for */
} cli_comparison;
/* CLI_OK, or with its line CLI_MISUSE or CLI_FAILED. */
int cli_comparison_init(cli_comparison *c, const cli_call *call, const cli_compare_values *values);
void cli_comparison_done(cli_comparison *c);
/* The options of the row and those for all that its method has. */
void cli_comparison_options(const cli_comparison *c, const cli_compared *row, cli_arguments *a);
/* Does the row train the base beside its prefix, so that it folds to two files? */
bool cli_comparison_unfreezes(const cli_comparison *c, const cli_compared *row);
/* Those for all that another command has, too, but for base and data. */
void cli_comparison_options_of(const cli_comparison *c, const cli_command *command,
                               cli_arguments *a);
kvf_json *cli_comparison_shared(const cli_comparison *c); /* {name: value} of the same */

/* A row that is being made: one more option; "name=value" behind its names; a name of files without
 * slashes and spaces; and the row among those of the comparison. */
int cli_compared_set(cli_comparison *c, cli_compared *row, const cli_given *given);
void cli_compared_name(cli_compared *row, const char *name, const char *value);
void cli_compared_clean(char *name);
int cli_compared_keep(cli_comparison *c, const cli_compared *row);

/* ---- sections (compare_sections.c) ----------------------------------------------------------- */

/* The first section that is a row; NULL: there is none. */
const cli_given *cli_sections_first(const cli_call *call);
/* The axes, before the rows; then a row for each section. */
int cli_sections_read_axes(cli_comparison *c);
int cli_sections_add(cli_comparison *c);
/* The row with every combination of the values from this axis on; of an axis that its method has
 * not, once without. */
int cli_compared_combine(cli_comparison *c, const cli_compared *row, size_t axis);

/* ---- ensembles (compare_ensembles.c) --------------------------------------------------------- */

/* Are there so many runs, of methods that share the base? CLI_OK, or CLI_MISUSE with its line. */
int cli_ensembles_check(const cli_comparison *c);
/* [{name, prompts, vote, groups, best_metric, score {mean, min, max}}] of the rows that ran. */
kvf_json *cli_ensembles_run(const cli_comparison *c, const kvf_json *runs);

/* ---- the table (compare_table.c) ------------------------------------------------------------- */

void cli_comparison_print(const kvf_json *object);

#endif
