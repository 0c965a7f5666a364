/* Lines on stderr, results on stdout, and numbers as texts. */
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

/* "kvfold: COMMAND: ..." on one line, control characters replaced; command may be NULL. Returns
 * CLI_FAILED. */
int cli_fail(const cli_command *command, const char *fmt, ...) CLI_PRINTF(2, 3);
/* The same, ending in "; try kvfold COMMAND --help". Returns CLI_MISUSE. */
int cli_misuse(const cli_command *command, const char *fmt, ...) CLI_PRINTF(2, 3);
/* The same for an option's value, with file and line if it came from a recipe. */
int cli_misuse_at(const cli_command *command, const cli_given *given, const char *fmt, ...)
    CLI_PRINTF(3, 4);
/* Failure of the library: the context's line. Returns CLI_MISUSE for KVF_EUSAGE, else CLI_FAILED.
 */
int cli_fail_status(const cli_call *call, kvf_status status);

/* Prints the object on one line and frees it. */
int cli_print_json(const cli_call *call, kvf_json *object);
/* The tree of inspect as text. diffable: without the path and what else differs between equal
 * files. */
void cli_print_tree(kvf_json *tree, const char *path, bool diffable);

/* Did a write to standard output or error fail because the reader at the other end has gone? */
bool cli_reader_gone(void);
bool cli_is_unread(FILE *file); /* written or not */
/* Of what writes to a path or to a function: is the path standard output, which this is. */
bool cli_is_stdout(const char *path);
void cli_write_stdout(void *user, const char *text, size_t n);
/* Flushes stdout early: `code`, or CLI_FAILED with a line. */
int cli_flush(const cli_command *command, int code);
/* Flushes stdout; `code`, or CLI_FAILED with a line if not everything could be written, or
 * CLI_CLOSED_PIPE without one if nobody reads it any more. */
int cli_finish(const cli_command *command, int code);

/* Prints text of a file without control characters, C1 ones (U+0080 to U+009F) included; at most
 * `most` bytes, cut between characters. Or whole, filled up with spaces. */
void cli_print_safe(const char *text, size_t most);
void cli_print_padded(const char *text, int width);

/* "1.5 MiB". */
const char *cli_bytes_text(int64_t bytes, char buf[32]);
/* "4:31", "12:03:59". */
const char *cli_time_text(double seconds, char buf[32]);
/* "828 examples with 43362 label tokens": what has labels differs by task; most have one each. */
const char *cli_counts_text(const char *task, int64_t examples, int64_t labels, char buf[64]);
/* "[30, 2, 1, 3, 20, 64]" of an array of integers. */
const char *cli_shape_text(const int64_t *dims, size_t n, char *buf, size_t size);
kvf_json *cli_shape_json(const int64_t *dims, size_t n);

/* The array "shape" of an object as text. */
const char *cli_shape_at(const kvf_json *object, char *buf, size_t size);

#endif
