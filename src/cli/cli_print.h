/* Error lines on stderr, results on stdout, and formatting of numbers. */
#ifndef KVF_CLI_PRINT_H
#define KVF_CLI_PRINT_H

#include "json_hooks.h"

#include <stdbool.h>
#include <stdio.h>

#if defined(__GNUC__)
#define CLI_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define CLI_PRINTF(fmt, args)
#endif

typedef struct cli_command cli_command;
typedef struct cli_given cli_given;
typedef struct cli_common cli_common;
typedef struct cli_call cli_call;

/* Prints "kvfold: COMMAND: ..." on one line, with control characters replaced; command may be NULL.
 * Returns CLI_FAILED. */
int cli_fail(const cli_command *command, const char *fmt, ...) CLI_PRINTF(2, 3);
/* Does the same, ending in "; try kvfold COMMAND --help". Returns CLI_MISUSE. */
int cli_misuse(const cli_command *command, const char *fmt, ...) CLI_PRINTF(2, 3);
/* Does the same for an option's value, with file and line if it came from a recipe. */
int cli_misuse_at(const cli_command *command, const cli_given *given, const char *fmt, ...)
    CLI_PRINTF(3, 4);
/* Prints the context's error line. Returns CLI_MISUSE for KVF_EUSAGE, else CLI_FAILED. */
int cli_fail_status(const cli_call *call, kvf_status status);

/* Prints the object on one line and frees it. */
int cli_print_json(const cli_call *call, kvf_json *object);
/* Prints the tree of inspect as text. diffable: without the path and other facts that differ
 * between equal files. */
void cli_print_tree(kvf_json *tree, const char *path, bool diffable);

/* True if a write to standard output or error failed because the pipe was closed. */
bool cli_reader_gone(void);
bool cli_is_unread(FILE *file); /* true if the reader of the file has closed it */
/* True if the path is standard output, and writes to it go to this process's stdout. */
bool cli_is_stdout(const char *path);
void cli_write_stdout(void *user, const char *text, size_t n);
/* Flushes stdout early. Returns `code`, or CLI_FAILED with a line. */
int cli_flush(const cli_command *command, int code);
/* Flushes stdout. Returns `code`; CLI_FAILED with a line after a write error; CLI_CLOSED_PIPE
 * without a line after a closed pipe. */
int cli_finish(const cli_command *command, int code);

/* Prints text of a file without control characters, including C1 (U+0080 to U+009F): at most `most`
 * bytes, cut between characters; or all of it, padded with spaces. */
void cli_print_safe(const char *text, size_t most);
void cli_print_padded(const char *text, int width);

/* Formats "1.5 MiB". */
const char *cli_bytes_text(int64_t bytes, char buf[32]);
/* Formats "4:31", "12:03:59". */
const char *cli_time_text(double seconds, char buf[32]);
/* Formats "828 examples with 43362 label tokens"; the labelled items depend on the task. */
const char *cli_counts_text(const char *task, int64_t examples, int64_t labels, char buf[64]);
/* Formats an array of integers as "[30, 2, 1, 3, 20, 64]". */
const char *cli_shape_text(const int64_t *dims, size_t n, char *buf, size_t size);
kvf_json *cli_shape_json(const int64_t *dims, size_t n);

/* Formats the array "shape" of an object. */
const char *cli_shape_at(const kvf_json *object, char *buf, size_t size);

#endif
