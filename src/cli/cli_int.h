/* Commands and calls of them, on public headers of the library only. A command is a row: its
 * options as a table, and a function that runs once the command line is parsed. Parsing has two
 * parts. First names are looked up (unknown options, missing values). Then values are set, with a
 * context that can hold an error line. The options of a recipe file come before those of the
 * command line, so that the command line takes precedence. */
#ifndef KVF_CLI_INT_H
#define KVF_CLI_INT_H

#include <kvfold/kvfold.h>

#include "cli_print.h"
#include "hooks.h"
#include "option_table.h"

enum {
    CLI_OK = 0,
    CLI_FAILED = 1,
    CLI_MISUSE = 2,
    CLI_SIGNAL = 128,     /* plus the signal's number */
    CLI_CLOSED_PIPE = 141 /* as a shell reports SIGPIPE */
};

/* ---- commands -------------------------------------------------------------------------------- */

/* Purpose of a command, by which help and manual group them. */
typedef enum cli_group {
    CLI_TRAIN,
    CLI_USE,
    CLI_FILES,
    CLI_LOOK,
    CLI_PROGRAM,
    CLI_GROUPS
} cli_group;
extern const char *const cli_group_titles[CLI_GROUPS]; /* "train" of "commands to train:" */

struct cli_command {
    const char *name;
    cli_group group;
    const char *synopsis; /* arguments after the name */
    const char *summary;
    const char *notes;    /* text at the end of --help; NULL: none */
    const char *usual;    /* options in the short --help, "TITLE: name name\n" for each group; NULL:
                           * all */
    const char *examples; /* text at the end of the short --help */
    const char *required; /* names of required options, separated by spaces */
    const char *needs;    /* "map>data": options that need another one, separated by spaces */
    const kvf__option_row *options; /* [n_options] options of the struct that cli_set_values fills
                                     */
    size_t n_options;
    /* Further options, those of kvf_train_set, and the offset of kvf_train_options in the struct;
     * NULL: none. */
    const kvf__option_row *(*train_row)(size_t index);
    size_t train_offset;
    /* returns why an option is not supported; NULL: unknown option, or no such function */
    const char *(*refusal)(const char *name);
    /* A recipe may have sections, [NAME] followed by options of this command; NULL: no sections. */
    const struct cli_command *sections;
    size_t operands;
    bool more_operands; /* more operands than listed are allowed */
    bool lab;           /* needs the lab (kvf__has_lab) */
    int failure;        /* exit status on failure; 0: CLI_FAILED */
    int (*run)(cli_call *call);
};

#define CLI_ROWS(rows) .options = (rows), .n_options = sizeof(rows) / sizeof((rows)[0])

extern const cli_command cli_train, cli_merge, cli_inspect, cli_eval, cli_predict, cli_score,
    cli_generate, cli_import, cli_export, cli_new_base, cli_serve, cli_bench, cli_compare,
    cli_sweep, cli_words, cli_compose, cli_distill, cli_diff, cli_prune, cli_quantize,
    cli_convert_position, cli_unmerge, cli_report, cli_completion;
/* Returns a command by index, NULL past the last; by name, NULL if unknown. */
const cli_command *cli_command_at(size_t index);
const cli_command *cli_command_find(const char *name);

/* Returns a row of a command in the order of --help: its own options, those of train, the common
 * ones. NULL past the last. */
const kvf__option_row *cli_row(const cli_command *command, size_t index);
const kvf__option_row *cli_row_find(const cli_command *command, const char *name);

/* ---- a call ---------------------------------------------------------------------------------- */

/* A given option. Texts are borrowed from argv or from the recipe. */
struct cli_given {
    const char *name;  /* name in its row */
    const char *value; /* NULL: a flag */
    const char *file;  /* recipe file; NULL: command line */
    int line;
    bool section; /* start of a section of this name, without a value */
};

/* Options of every command. */
struct cli_common {
    int64_t threads;
    bool quiet, json;
};

struct cli_call {
    const cli_command *command;
    kvf_ctx *ctx;
    cli_common common;
    cli_given *given;
    size_t n_given;
    cli_given *sections; /* [n_sections] sections of the recipe, each followed by its options */
    size_t n_sections;
    const char **operands;
    size_t n_operands;
    const char **texts; /* [n_given] values of KVF_TEXTS options, grouped by row */
    size_t n_texts;
    bool help, help_all;
    char *recipe;  /* text of the recipe file, viewed by `given` */
    char log[512]; /* last warning, kept while there is no context */
};

/* Parses the arguments after the command's name. Returns CLI_OK, or prints a line and returns
 * CLI_MISUSE. */
int cli_parse(cli_call *call, int argc, char **argv);
void cli_call_done(cli_call *call);
/* Inserts the options of --recipe FILE before the given ones. */
int cli_recipe_load(cli_call *call, const char *path);
/* Checks for operands and required options. Called after the recipe was loaded. */
int cli_check_given(const cli_call *call);
/* `-` becomes one of these if the command accepts a stream, else CLI_MISUSE. */
#define CLI_STDIN  "/dev/stdin"
#define CLI_STDOUT "/dev/stdout"
int cli_set_streams(cli_call *call);
/* Checks that no output is also an input file. */
int cli_check_outputs(const cli_call *call);
int cli_set_common(cli_call *call);
/* Sets the fields of the command's struct from the given options, and checks `needs`. The call owns
 * lists of texts. */
int cli_set_values(cli_call *call, void *values);
/* Checks that inputs exist and outputs can be written. Called before a base is loaded, after values
 * were set. */
int cli_check_paths(const cli_call *call);
/* Returns the last given value of an option; NULL: not given. */
const char *cli_given_value(const cli_call *call, const char *name);
bool cli_is_given(const cli_call *call, const char *name);

/* Reads a text file without zero bytes of at most 1 MiB; the caller frees it. */
int cli_read_text(const cli_call *call, const char *path, char **out);

/* ---- names that are not known ---------------------------------------------------------------- */

/* Prints a line for an unknown option, name[n], from the command line or the recipe in `given`, and
 * returns CLI_MISUSE. */
int cli_unknown_option(const cli_command *command, const cli_given *given, const char *name,
                       size_t n);

/* ---- what the program prints about itself ---------------------------------------------------- */

void cli_help_program(void);
void cli_help_command(const cli_command *command, bool all);
int cli_help_topic(const char *topic);
/* Prints the manual page of a command, or with NULL of the program, as mdoc. */
int cli_man(const char *command);
/* Returns the text of a topic by index, and its *name. NULL past the last. */
const char *cli_topic(size_t index, const char **name);
/* Texts shared by the program's help and manual: the first two are wrapped, the examples are not.
 */
extern const char cli_description[], cli_exit_status[], cli_examples[];
/* Implements the hidden --check-hdf5 FILE: reads a file in a sandbox and prints the result. */
int cli_check_hdf5(const char *path);

#endif
