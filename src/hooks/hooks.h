/* Internal functions of the library for the command and the tests, beyond the public headers. They
 * are neither installed nor exported: both link the static library. */
#ifndef KVF_HOOKS_H
#define KVF_HOOKS_H

#include <kvfold/infer.h>
#include <kvfold/json.h>

/* ---- tests ----------------------------------------------------------------------------------- */

/* Returns the number of allocations through this context (a training step makes none after the
 * first). */
uint64_t kvf__ctx_allocations(const kvf_ctx *ctx);
/* Makes the n-th allocation from now (0: the next) fail once; -1 turns this off. */
void kvf__ctx_fail_allocation(kvf_ctx *ctx, int64_t n);

/* ---- the command ----------------------------------------------------------------------------- */

/* False in a build without src/lab, whose functions then return EUNSUPPORTED. */
extern const bool kvf__has_lab;

/* EUSAGE if a launcher of parallel programs started several processes, which only training
 * supports. what: "a sweep". */
kvf_status kvf__check_alone(kvf_ctx *ctx, const char *what);

/* EUSAGE if `out` is the same file as `input` (a path, NAME=PATH or @PATH) under any name: --force
 * may replace outputs, never an input. NULL is no input. A folder stands for the files of a model
 * or adapter in it. Every function that writes a file checks its inputs with this. */
kvf_status kvf__check_not_input(kvf_ctx *ctx, const char *out, const char *input);
/* EIO if an input file is missing, unreadable or a folder; NULL is no file. Called before a base is
 * loaded. */
kvf_status kvf__check_input(kvf_ctx *ctx, const char *path);
/* The same for a prefix, which may also be a folder or a name on the Hub. */
kvf_status kvf__check_prefix_input(kvf_ctx *ctx, const char *path);
/* Returns the last part of a path. */
const char *kvf__path_end(const char *path);
/* EEXIST or EIO if a file cannot be written at the path. Called before the work. */
kvf_status kvf__check_output(kvf_ctx *ctx, const char *path, bool force);
/* Writes a file whole or not at all. EEXIST if it exists, unless force. */
kvf_status kvf__write_file(kvf_ctx *ctx, const char *path, bool force, const void *bytes, size_t n);

/* Removes temporary files of unfinished outputs. Safe in a signal handler that then ends the
 * process; not for other uses. */
void kvf__ctx_drop_outputs(kvf_ctx *ctx);

/* Returns the path of the mapped file that contains the address, or NULL. For a SIGBUS handler that
 * ends the process: takes no lock. */
const char *kvf__mapped_path(const void *address);

/* Returns the peak resident memory of this process in bytes. */
int64_t kvf__peak_rss_bytes(void);
int64_t kvf__rss_bytes(void); /* current resident memory; 0: unknown */

/* Reads a kvfold HDF5 file like the commands, without keeping anything. Returns the status of the
 * first reader that refuses it. Values of datasets above 1 MB are skipped, but not the checks of
 * their storage. For the process that kvf_ctx_options.check_program runs. */
kvf_status kvf__check_file(kvf_ctx *ctx, const char *path);

/* Sets *out to true if the path is a base file with the head of a task, which merge made from a run
 * of method full. */
kvf_status kvf__base_has_head(kvf_ctx *ctx, const char *path, bool *out);
/* Returns the form of the rows that a prefix of task lm was trained on: "text", "pairs" or "chat";
 * "": unknown, or no prefix. */
const char *kvf__prefix_row_form(const kvf_prefix *prefix);
/* Sets *out to whether kvf_generate() makes a prompt a turn of a chat. chat_template as there. */
kvf_status kvf__prompts_are_chats(kvf_ctx *ctx, const kvf_base *base, const kvf_prefix *prefix,
                                  const char *chat_template, bool *out);
/* Completes a row given as JSON, {"messages": [...]}, like kvf_generate_file(). */
kvf_status kvf__generate_row(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix,
                             const kvf_json *row, const kvf_generate_options *options, char **text,
                             kvf_generate_stats *stats);
/* Sets *out to true if the file is a run whose method needs the base. */
kvf_status kvf__prefix_needs_base(kvf_ctx *ctx, const char *path, bool *out);

#endif
