/* A command and a call of it. Public headers of the library only.
 *
 * A command is a row: its options as a table, and a function that runs once the command line is
 * parsed. Parsing has two halves: first names are looked up (what needs a value, what is unknown),
 * then, with a context that can hold an error line, values are set. A recipe file adds options
 * before those of the command line, so that the command line wins. */
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
    CLI_SIGNAL = 128,     /* and the signal's number */
    CLI_CLOSED_PIPE = 141 /* what a shell reports for SIGPIPE */
};

/* ---- commands -------------------------------------------------------------------------------- */

/* What a command is for: help and the manual name them together. */
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
    const char *synopsis; /* what follows the name */
    const char *summary;
    const char *notes;    /* end of --help, NULL: none */
    const char *usual;    /* options of a short --help, "TITLE: name name\n" for each group; NULL: all */
    const char *examples; /* end of a short --help */
    const char *required; /* options that must be given, by name, separated by spaces */
    const char *needs;    /* "map>data": options that are refused without another, likewise */
    const kvf__option_row *options; /* [n_options] of the struct that cli_set_values fills */
    size_t n_options;
    /* Further options, which kvf_train_set knows, and where that struct has its kvf_train_options;
     * NULL: none. */
    const kvf__option_row *(*train_row)(size_t index);
    size_t train_offset;
    /* why an option that is no row is none; NULL: not known, or no such function */
    const char *(*refusal)(const char *name);
    /* A recipe of it may have sections, [NAME] and lines of options of this command; NULL: none. */
    const struct cli_command *sections;
    size_t operands;
    bool more_operands; /* that many at least */
    bool lab;           /* needs the lab (kvf__has_lab) */
    int failure;        /* exit status of a failure; 0: CLI_FAILED */
    int (*run)(cli_call *call);
};

#define CLI_ROWS(rows) .options = (rows), .n_options = sizeof(rows) / sizeof((rows)[0])

extern const cli_command cli_train, cli_merge, cli_inspect, cli_eval, cli_predict, cli_score,
    cli_generate, cli_import, cli_export, cli_new_base, cli_serve, cli_bench, cli_compare,
    cli_sweep, cli_words, cli_compose, cli_distill, cli_diff, cli_prune, cli_quantize,
    cli_convert_position, cli_unmerge, cli_report, cli_completion;
/* By index, NULL past the last; by name, NULL if unknown. */
const cli_command *cli_command_at(size_t index);
const cli_command *cli_command_find(const char *name);

/* Rows of a command in the order of its --help: its own, those of train, the common ones. NULL past
 * the last. */
const kvf__option_row *cli_row(const cli_command *command, size_t index);
const kvf__option_row *cli_row_find(const cli_command *command, const char *name);

/* ---- a call ---------------------------------------------------------------------------------- */

/* One option as it was given. Texts are borrowed from argv or from the recipe. */
struct cli_given {
    const char *name;  /* of its row */
    const char *value; /* NULL: a flag */
    const char *file;  /* recipe that has it, NULL: command line */
    int line;
    bool section; /* it begins one, of this name, and has no value */
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
    cli_given *sections; /* [n_sections] the recipe's, each with its lines behind it */
    size_t n_sections;
    const char **operands;
    size_t n_operands;
    const char **texts; /* [n_given] values of KVF_TEXTS options, of one row after another */
    size_t n_texts;
    bool help, help_all;
    char *recipe;  /* text of the recipe file, viewed by `given` */
    char log[512]; /* last warning: holds the line while there is no context */
};

/* Splits the arguments after the command's name. CLI_OK or CLI_MISUSE, with its line printed. */
int cli_parse(cli_call *call, int argc, char **argv);
void cli_call_done(cli_call *call);
/* Puts the options of --recipe FILE before those given. */
int cli_recipe_load(cli_call *call, const char *path);
/* Operands and required options are there? Called after the recipe. */
int cli_check_given(const cli_call *call);
/* `-` becomes one of these where a command accepts a stream; CLI_MISUSE where it does not. */
#define CLI_STDIN  "/dev/stdin"
#define CLI_STDOUT "/dev/stdout"
int cli_set_streams(cli_call *call);
/* No output is a file that another option or operand names to be read. */
int cli_check_outputs(const cli_call *call);
int cli_set_common(cli_call *call);
/* Sets the fields of the command's struct from the options given, and checks `needs`. Lists of
 * texts belong to the call. */
int cli_set_values(cli_call *call, void *values);
/* Inputs are there and outputs can be written: for commands to ask before they load a base, once
 * their values are right. */
int cli_check_paths(const cli_call *call);
/* Value of an option that was given last, NULL if it was not. */
const char *cli_given_value(const cli_call *call, const char *name);
bool cli_is_given(const cli_call *call, const char *name);

/* A file as text, without zero bytes and at most 1 MiB; the caller frees it. */
int cli_read_text(const cli_call *call, const char *path, char **out);

/* ---- names that are not known ---------------------------------------------------------------- */

/* CLI_MISUSE, with the line: name[n], of the command line or the recipe `given` names. */
int cli_unknown_option(const cli_command *command, const cli_given *given, const char *name,
                       size_t n);

/* ---- what the program prints about itself ---------------------------------------------------- */

void cli_help_program(void);
void cli_help_command(const cli_command *command, bool all);
int cli_help_topic(const char *topic);
/* The manual page of a command, or with NULL that of the program, as mdoc. */
int cli_man(const char *command);
/* Text of a topic by index; *name. NULL past the last. */
const char *cli_topic(size_t index, const char **name);
/* What the program's help and manual have in common, filled lines and then whole ones. */
extern const char cli_description[], cli_exit_status[], cli_examples[];
/* The hidden --check-hdf5 FILE: reads it in a sandbox and prints what came of it. */
int cli_check_hdf5(const char *path);

#endif
