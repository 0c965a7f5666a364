/* The command kvfold: what its files share. Public headers of the library only.
 *
 * A command is a row: its options as a table, and a function that runs once the command line is
 * parsed. Parsing has two halves: first names are looked up (what needs a value, what is unknown),
 * then, with a context that can hold an error line, values are set. A recipe file adds rows in
 * front of those of the command line, so that the command line wins. */
#ifndef KVF_CLI_INT_H
#define KVF_CLI_INT_H

#include <kvfold/kvfold.h>
#include <stdbool.h>
#include <stdio.h>

#if defined(__GNUC__)
#define CLI_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define CLI_PRINTF(fmt, args)
#endif

enum {
    CLI_OK = 0,
    CLI_FAILED = 1,
    CLI_MISUSE = 2,
    CLI_SIGNAL = 128,     /* and the signal's number */
    CLI_CLOSED_PIPE = 141 /* what a shell says of SIGPIPE */
};

/* ---- options --------------------------------------------------------------------------------- */

typedef enum cli_kind {
    CLI_TEXT,     /* const char * */
    CLI_TEXTS,    /* cli_texts, one entry each time it is given */
    CLI_CHOICE,   /* const char *, one of the row's "a|b|c" */
    CLI_FLAG,     /* bool */
    CLI_COUNT,    /* int64_t, 0 to 2^31 - 1 */
    CLI_POSITIVE, /* the same from 1: 0 is what is not given */
    CLI_SEED,     /* uint64_t, 0 to 2^63 - 1 */
    CLI_REAL      /* double, finite */
} cli_kind;

typedef struct cli_texts {
    const char **at;
    size_t n;
} cli_texts;

typedef struct cli_option {
    kvf_option_row row;
    cli_kind kind;
    size_t offset; /* of the field in the command's values */
} cli_option;

/* One option as it was given. Texts are borrowed from argv or from the recipe. */
typedef struct cli_given {
    const char *name;  /* long name without dashes */
    const char *value; /* NULL: a flag */
    const char *file;  /* recipe it stands in, NULL: command line */
    int line;
} cli_given;

typedef struct cli_call cli_call;

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

typedef struct cli_command {
    const char *name;
    cli_group group;
    const char *synopsis; /* what follows the name */
    const char *summary;
    const char *notes;    /* end of --help, NULL: none */
    const char *required; /* options that must be given, by name, separated by spaces */
    const kvf_option_row *(*library_row)(
        size_t index); /* options known to the library, NULL: none */
    /* why an option that is no row is none; NULL: not known, or no such function */
    const char *(*refusal)(const char *name);
    const cli_option *options;
    size_t n_options;
    size_t operands;
    bool more_operands; /* that many at least */
    bool lasting;       /* goes on until it is ended: warnings are for its log, too */
    int failure;        /* exit status of a failure; 0: CLI_FAILED */
    int (*run)(cli_call *call);
} cli_command;

extern const cli_command cli_train, cli_merge, cli_inspect, cli_eval, cli_predict, cli_generate,
    cli_import, cli_export, cli_new_base, cli_serve, cli_bench, cli_compare, cli_sweep, cli_words,
    cli_compose, cli_distill, cli_diff, cli_prune, cli_quantize, cli_convert_position, cli_unmerge,
    cli_report, cli_completion;
/* By index, NULL past the last; by name, NULL if unknown. */
const cli_command *cli_command_at(size_t index);
const cli_command *cli_command_find(const char *name);

/* Options of every command: threads, quiet, json. */
typedef struct cli_common {
    int64_t threads;
    bool quiet, json;
} cli_common;

struct cli_call {
    const cli_command *command;
    kvf_ctx *ctx;
    cli_common common;
    cli_given *given;
    size_t n_given;
    const char **operands;
    size_t n_operands;
    bool help;
    char *recipe;  /* text of the recipe file, viewed by `given` */
    char log[512]; /* last warning: holds the line while there is no context */
};

/* Rows of a command in the order of its --help: the library's, its own, the common ones. NULL past
 * the last. */
const kvf_option_row *cli_row(const cli_command *command, size_t index);
const kvf_option_row *cli_row_find(const cli_command *command, const char *name);

/* The name of those tried that is nearest to what was typed; NULL: none is near. */
typedef struct cli_nearest {
    const char *word; /* [n] */
    size_t n;
    const char *name;
    int far;
} cli_nearest;
void cli_nearest_try(cli_nearest *nearest, const char *name);
/* CLI_MISUSE, with the line: name[n], of the command line or the recipe `given` names. */
int cli_unknown_option(const cli_command *command, const cli_given *given, const char *name,
                       size_t n);
/* Splits the arguments after the command's name. CLI_OK or CLI_MISUSE, with its line printed. */
int cli_parse(cli_call *call, int argc, char **argv);
/* Puts the options of --recipe FILE in front of those given. */
int cli_recipe_load(cli_call *call, const char *path);
/* Options that would be taken without a word where the other one, which they are about, is missing.
 */
typedef struct cli_need {
    const char *option, *needs;
} cli_need;
int cli_check_needs(const cli_call *call, const cli_need *needs, size_t n);
/* Operands and required options are there? Called after the recipe. */
int cli_check_given(const cli_call *call);
/* `-` becomes one of these where a command can do with a stream; CLI_MISUSE where it cannot. */
#define CLI_STDIN  "/dev/stdin"
#define CLI_STDOUT "/dev/stdout"
int cli_set_streams(cli_call *call);
/* A file as text, without zero bytes and at most 1 MiB; the caller frees it. */
int cli_read_text(const cli_call *call, const char *path, char **out);
/* No output is a file that another option or operand names to be read. */
int cli_check_outputs(const cli_call *call);
/* Inputs are there and outputs can be written: for commands to ask before they load a base, once
 * their values are right. */
int cli_check_paths(const cli_call *call);
/* Sets the fields of `values` that the table names; options of other tables are passed over. */
int cli_set_values(const cli_call *call, const cli_option *options, size_t n, void *values);
int cli_set_common(cli_call *call);
/* Sets those that are the library's rows of the command, which are train's. */
int cli_set_train_options(const cli_call *call, kvf_train_options *options);
/* Value of an option that was given last, NULL if it was not. */
const char *cli_given_value(const cli_call *call, const char *name);
/* Room for as many texts as could have been given; false if out of memory (the line is printed). */
bool cli_texts_init(const cli_call *call, cli_texts *texts);
void cli_texts_done(cli_texts *texts);

/* ---- lines on stderr, results on stdout ------------------------------------------------------ */

/* "kvfold: COMMAND: ..." on one line, control characters replaced; command may be NULL. Returns
 * CLI_FAILED. */
int cli_fail(const cli_command *command, const char *fmt, ...) CLI_PRINTF(2, 3);
/* The same, ending in "; try kvfold COMMAND --help". Returns CLI_MISUSE. */
int cli_misuse(const cli_command *command, const char *fmt, ...) CLI_PRINTF(2, 3);
/* Failure of the library: the context's line. Returns CLI_MISUSE for KVF_EUSAGE, else CLI_FAILED.
 */
int cli_fail_status(const cli_call *call, kvf_status status);
/* The same for an option's value, with file and line if it stood in a recipe. */
int cli_misuse_at(const cli_command *command, const cli_given *given, const char *line);

/* Prints the object on one line and frees it. */
int cli_print_json(const cli_call *call, kvf_json *object);
/* Did a write to standard output or error fail because the reader at the other end has gone? */
bool cli_reader_gone(void);
bool cli_is_unread(FILE *file); /* written or not */
/* Flushes stdout early: `code`, or CLI_FAILED with a line. */
int cli_flush(const cli_command *command, int code);
/* Flushes stdout; `code`, or CLI_FAILED with a line if not everything could be written, or
 * CLI_CLOSED_PIPE without one if nobody reads it any more. */
int cli_finish(const cli_command *command, int code);
/* "1.5 MiB". */
const char *cli_bytes_text(int64_t bytes, char buf[32]);
/* "4:31", "12:03:59". */
const char *cli_time_text(double seconds, char buf[32]);
/* "828 examples with 43362 label tokens": what has labels differs by task; most have one each. */
const char *cli_counts_text(const char *task, int64_t examples, int64_t labels, char buf[64]);
/* "[30, 2, 1, 3, 20, 64]" of an array of integers. */
const char *cli_shape_text(const int64_t *dims, size_t n, char *buf, size_t size);

/* ---- help ------------------------------------------------------------------------------------ */

void cli_help_program(void);
void cli_help_command(const cli_command *command);
int cli_help_topic(const char *topic);
int cli_man(const char *command); /* its page, as mdoc */
/* Text of a topic by index; *name. NULL past the last. */
const char *cli_topic(size_t index, const char **name);

/* ---- progress, signals ----------------------------------------------------------------------- */

/* On a terminal one updating line, under those of the validations; elsewhere lines of validations,
 * and one about every minute. */
typedef struct cli_progress {
    bool on, terminal, drawn;
    double last_said;  /* seconds of the run */
    const char *run;   /* which of several, NULL: there is one */
    double valid_loss; /* NaN before the first validation */
    double
        retention_rise; /* of the retention set's loss above the bare base's; NaN: there is none */
    int64_t steps;
} cli_progress;
cli_progress cli_progress_make(const cli_common *common); /* .on: without --quiet */
void cli_progress_event(cli_progress *progress, const kvf_event *event);
/* As the library calls it back, with a cli_progress. */
void cli_progress_items(void *progress, int64_t done, int64_t items);
void cli_progress_clear(cli_progress *progress);
/* What comes from the library while it trains, for commands that do (cmd_train.c): an event_fn;
 * the result as an object, which takes the notes; the result as text, planned: steps in all. */
typedef struct cli_watcher {
    cli_progress progress;
    kvf_json *notes; /* array for --json, NULL: they are printed as they come */
    FILE *to;        /* notes and result as text; NULL: nowhere */
    bool dry_run;    /* the forecast is the result */
} cli_watcher;
void cli_watch(void *watcher, const kvf_event *event);
kvf_json *cli_train_json(const kvf_train_result *result, const kvf_train_options *options,
                         cli_watcher *watcher);
void cli_train_text(const kvf_train_result *result, const kvf_train_options *options,
                    int64_t planned, FILE *to);
/* Log sink: warnings, above the updating line. */
void cli_log(void *call, kvf_log_level level, const char *line);

/* The hidden --check-hdf5 FILE: reads it in a sandbox and prints what came of it. */
int cli_check_hdf5(const char *path);
/* From now on SIGINT and SIGTERM end the program without half an output of this context left
 * behind; NULL: as any program. */
void cli_stop_clean(kvf_ctx *ctx);
/* From now on they set the flag, and a second one ends the program. */
const volatile int *cli_stop_install(void);
/* Sets the flag as SIGPIPE would: who reads what is written has gone. */
void cli_stop_unread(void);
int cli_stop_signal(void); /* the signal that came, 0: none */
/* The end of a run that a signal stopped: its line, but none for a closed pipe; the exit status. */
int cli_stopped(const cli_call *call, int number);

/* ---- what several commands open -------------------------------------------------------------- */

typedef struct cli_model {
    kvf_base *base;
    kvf_prefix **prefixes;
    size_t n;
} cli_model;

typedef struct cli_model_paths {
    const char *base, *precision, *checkpoint;
    const char *weight_dtype, *stream_layers; /* NULL: auto, off */
    const char *drop_layers;                  /* adapters that are left out, NULL: none */
    cli_texts prefixes;
    bool allow_other_base;
    const char *head; /* of prefixes of several tasks; NULL: none */
    bool own_head;    /* without a prefix, the head of the base file counts, if it has one */
} cli_model_paths;
int cli_model_open(const cli_call *call, const cli_model_paths *paths, cli_model *out);
void cli_model_close(cli_model *model);

/* How the weights of a base are kept: rows of a table of every command that opens one. */
#define CLI_WEIGHT_OPTIONS(dtype_at, stream_at)                                                    \
    {{"weight-dtype", "auto|f32|bf16|int8", "auto",                                                \
      "weights of the base: one copy in this type, packed layer by layer just before use; auto: "  \
      "packed once"},                                                                              \
     CLI_CHOICE,                                                                                   \
     dtype_at},                                                                                    \
    {                                                                                              \
        {"stream-layers", "on|off", "off",                                                         \
         "read each layer from the file when it is computed, for bases larger than memory"},       \
            CLI_CHOICE, stream_at                                                                  \
    }
/* The texts may be NULL: auto, auto, off. */
kvf_base_options cli_base_options(const char *precision, const char *weight_dtype,
                                  const char *stream_layers);

/* Options of eval, which predict has too: rows of a table whose values hold a cli_eval_values,
 * at(f) being the offset of its field f. */
typedef struct cli_eval_values {
    cli_model_paths paths;
    kvf_eval_options eval;
} cli_eval_values;
#define CLI_DTYPES  "f32|f16|bf16|int8"
#define CLI_FORMATS "auto|jsonl|json|tsv|csv|conll|squad|superglue|text"
#define CLI_EVAL_OPTIONS(at, data_help, prefix_help)                                               \
    {{"base", "PATH", "", "base model: Hugging Face folder, GGUF or base file"},                   \
     CLI_TEXT,                                                                                     \
     at(paths.base)},                                                                              \
        {{"data", "FILE", "", data_help}, CLI_TEXT, at(eval.data)},                                \
        {{"prefix", "FILE", "", prefix_help}, CLI_TEXTS, at(paths.prefixes)},                      \
        {{"checkpoint", "best|last", "best if there is one", "state of a run file"},               \
         CLI_CHOICE,                                                                               \
         at(paths.checkpoint)},                                                                    \
        {{"head", "NAME", "", "of a prefix trained on several tasks: the one to use"},             \
         CLI_TEXT,                                                                                 \
         at(paths.head)},                                                                          \
        {{"allow-other-base", NULL, "",                                                            \
          "accept a prefix made for another base of the same shape"},                              \
         CLI_FLAG,                                                                                 \
         at(paths.allow_other_base)},                                                              \
        {{"drop-layers", "A-B", "", "leave out the adapters of these layers, from 0 on"},          \
         CLI_TEXT,                                                                                 \
         at(paths.drop_layers)},                                                                   \
        {{"format", CLI_FORMATS, "auto", "of the data file; auto: by name and content"},           \
         CLI_CHOICE,                                                                               \
         at(eval.format)},                                                                         \
        {{"no-header", NULL, "", "the first line of TSV or CSV is a row"},                         \
         CLI_FLAG,                                                                                 \
         at(eval.no_header)},                                                                      \
        {{"columns", "NAME,...", "the header's", "names of the columns of TSV or CSV"},            \
         CLI_TEXT,                                                                                 \
         at(eval.columns)},                                                                        \
        {{"split-text", "N", "off", "lm: the file is plain text, cut into rows of N tokens"},      \
         CLI_COUNT,                                                                                \
         at(eval.split_text)},                                                                     \
        {{"limit", "N", "all", "read the first N rows"}, CLI_COUNT, at(eval.limit)},               \
        {{"max-length", "N", "that of training, or the model's", "longest row in tokens"},         \
         CLI_COUNT,                                                                                \
         at(eval.max_length)},                                                                     \
        {{"overlong", "stop|truncate|truncate-end|skip", "that of training, or stop",              \
          "what to do with longer rows"},                                                          \
         CLI_CHOICE,                                                                               \
         at(eval.overlong)},                                                                       \
        {{"no-answer-above", "X", "0",                                                             \
          "qa: no answer where its log odds against the best one are above"},                      \
         CLI_REAL,                                                                                 \
         at(eval.no_answer_above)},                                                                \
        {{"max-answer", "N", "30", "qa: longest answer in tokens"},                                \
         CLI_POSITIVE,                                                                             \
         at(eval.max_answer)},                                                                     \
        {{"n-best", "N", "20", "qa: best starts and ends that are paired, at most 64"},            \
         CLI_POSITIVE,                                                                             \
         at(eval.n_best)},                                                                         \
        {{"chat-template", "auto|none|chatml|llama3|mistral", "the prefix's",                      \
          "how rows are rendered"},                                                                \
         CLI_CHOICE,                                                                               \
         at(eval.chat_template)},                                                                  \
        {{"map", "OURS=THEIRS,...", "", "foreign field names: prompt=question,completion=answer"}, \
         CLI_TEXT,                                                                                 \
         at(eval.map)},                                                                            \
        CLI_WEIGHT_OPTIONS(at(paths.weight_dtype), at(paths.stream_layers)),                       \
    {                                                                                              \
        {"precision", "auto|f32|bf16", "auto",                                                     \
         "auto: bf16 where the CPU's flags say it is faster"},                                     \
            CLI_CHOICE, at(paths.precision)                                                        \
    }

/* Options of the tools for prefix files, in the same manner; those of a base and data are for
 * measuring. */
typedef struct cli_tool_values {
    const char *out, *dtype, *base, *checkpoint, *head, *precision;
    bool allow_other_base, force;
    kvf_eval_options eval;
} cli_tool_values;
#define CLI_TOOL_OPTIONS(at, usual_dtype, data_help)                                               \
    {{"out", "OUT.h5", "", "prefix file to write"}, CLI_TEXT, at(tool.out)},                       \
        {{"dtype", CLI_DTYPES, usual_dtype, "type of the stored values"},                          \
         CLI_CHOICE,                                                                               \
         at(tool.dtype)},                                                                          \
        {{"force", NULL, "", "replace existing outputs"}, CLI_FLAG, at(tool.force)},               \
        {{"base", "PATH", "", "base model"}, CLI_TEXT, at(tool.base)},                             \
        {{"data", "FILE", "", data_help}, CLI_TEXT, at(tool.eval.data)},                           \
        {{"checkpoint", "best|last", "best if there is one", "state of run files"},                \
         CLI_CHOICE,                                                                               \
         at(tool.checkpoint)},                                                                     \
        {{"head", "NAME", "all", "of a prefix trained on several tasks: the one to use"},          \
         CLI_TEXT,                                                                                 \
         at(tool.head)},                                                                           \
        {{"allow-other-base", NULL, "",                                                            \
          "accept a prefix made for another base of the same shape"},                              \
         CLI_FLAG,                                                                                 \
         at(tool.allow_other_base)},                                                               \
        {{"format", CLI_FORMATS, "auto", "of the data file; auto: by name and content"},           \
         CLI_CHOICE,                                                                               \
         at(tool.eval.format)},                                                                    \
        {{"map", "OURS=THEIRS,...", "", "foreign field names: prompt=question,completion=answer"}, \
         CLI_TEXT,                                                                                 \
         at(tool.eval.map)},                                                                       \
        {{"max-length", "N", "that of training, or the model's", "longest row in tokens"},         \
         CLI_COUNT,                                                                                \
         at(tool.eval.max_length)},                                                                \
        {{"overlong", "stop|truncate|truncate-end|skip", "that of training, or stop",              \
          "what to do with longer rows"},                                                          \
         CLI_CHOICE,                                                                               \
         at(tool.eval.overlong)},                                                                  \
    {                                                                                              \
        {"precision", "auto|f32|bf16", "f32", "of the base, when the loss is measured"},           \
            CLI_CHOICE, at(tool.precision)                                                         \
    }
/* eval of one prefix. CLI_OK, or the line is printed. */
int cli_tool_eval(const cli_call *call, const cli_tool_values *tool, const char *path,
                  kvf_eval_result *result);

kvf_checkpoint cli_checkpoint(const char *name); /* "best", "last", NULL: the default */
kvf_precision cli_precision(const char *name);   /* "auto", "f32", "bf16", NULL: auto */

/* The tree of inspect as text. diffable: without the path and what else differs between equal
 * files. */
void cli_print_tree(kvf_json *tree, const char *path, bool diffable);

#endif
