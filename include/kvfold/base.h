/* Status codes, the context, the log: what every other header of kvfold rests on.
 *
 * Words of ownership used in all headers: `create/free` make and release a heap object,
 * `open/close` a file or a session, `init/done` fill and empty a struct of the caller, `view`
 * borrows, `take` steals. On failure out-parameters stay untouched, and kvf_ctx_error() holds one
 * line that names file and place.
 *
 * Shapes, one alphabet everywhere: B batch, T tokens, P prefix length, L layers, H query heads,
 * G key/value heads, D head size, C model width, F feed-forward width, V vocabulary, M encoder
 * hidden width. Brackets list memory order, slowest first.
 *
 *     kvf_ctx *ctx = NULL;
 *     if (kvf_ctx_create(NULL, &ctx)) return 1;
 *     printf("kvfold %s, %d threads\n", kvf_version_string(), kvf_ctx_threads(ctx));
 *     kvf_ctx_free(ctx);
 *
 * What is stable. Within one libkvfold.so.N no function goes or changes its arguments, and no
 * struct changes its size or moves a member. Structs that may need more members end in `reserved`,
 * which new members, whose zero is what was before, are taken from. So options may lie in the
 * caller's memory, in arrays and in other options, and are begun with zeros or by their
 * `_defaults()`: those of a program older than the library have zeros where members are new.
 * Options of a newer program that set what this library does not know, or were never begun, are
 * refused: all of `reserved` must be zero (EUSAGE). The options of training can be had without
 * their struct, see kvf_train_options_create(). What is declared only where KVF_EXPERIMENTAL is
 * defined before the first include (bench.h, distill.h, lab.h, serve.h, the tools of merge.h) may change in
 * every release; programs that use it need its symbol version KVFOLD_EXPERIMENTAL.
 */
#ifndef KVFOLD_BASE_H
#define KVFOLD_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KVF_VERSION        "0.1.0"
#define KVF_VERSION_NUMBER 100 /* major * 10000 + minor * 100 + patch */

/* Of the library that runs, which may be newer than the headers that a program was built with. */
int kvf_version(void);
const char *kvf_version_string(void);

/* name, text: one list makes the enum, kvf_status_name() and kvf_status_text(). */
#define KVF_STATUS_LIST(X)                                                                         \
    X(OK, "success")                                                                               \
    X(ENOMEM, "out of memory")                                                                     \
    X(EUSAGE, "invalid option or argument")                                                        \
    X(ESHAPE, "shapes do not fit")                                                                 \
    X(EFORMAT, "malformed file")                                                                   \
    X(EIO, "input or output failed")                                                               \
    X(EEXIST, "output exists")                                                                     \
    X(EUNSUPPORTED, "not supported")                                                               \
    X(EMISMATCH, "made for another base")                                                          \
    X(EDATA, "bad data row")                                                                       \
    X(ENUMERIC, "not a finite number")                                                             \
    X(ESTOPPED, "stopped on request")                                                              \
    X(EINTERNAL, "internal error")

typedef enum kvf_status {
#define KVF_STATUS_ENUM(name, text) KVF_##name,
    KVF_STATUS_LIST(KVF_STATUS_ENUM)
#undef KVF_STATUS_ENUM
} kvf_status;

/* "EFORMAT", "malformed file". Never NULL; unknown values give "?". */
const char *kvf_status_name(kvf_status status);
const char *kvf_status_text(kvf_status status);

/* A context carries the thread count, the log sink, the last error and the allocation counters.
 *
 * Threads. A context, and what was made with it (base, session, rows, bench), is used by one thread
 * at a time, and another one may go on with it after a call. Contexts are independent of each
 * other: threads that have one each, and a base each, compute at the same time what they would
 * compute alone. What a function takes as const, a prefix above all, it only reads, so several
 * threads may use one prefix, one set of rows, or options at the same time; nobody may free or
 * change it meanwhile. kvf_version(), the names of status codes and the stop flag of a context are
 * for any thread. Functions compute with the threads of their context. The OpenMP thread count of
 * the caller is the same before and after each call.
 *
 * Callbacks are called in the thread of the call they belong to and return to it: they must not
 * throw, longjmp or end the thread. They may use other contexts, not that of the call, except for
 * what their own description names.
 *
 * Arguments. A pointer may be NULL only where its comment says so, and an enum has one of its
 * values: else the function returns EUSAGE with a line. A function without a status returns 0,
 * false or NULL for a NULL handle. */
typedef struct kvf_ctx kvf_ctx;

typedef enum kvf_log_level { KVF_LOG_WARN = 0, KVF_LOG_INFO = 1, KVF_LOG_DEBUG = 2 } kvf_log_level;

/* line: without newline, valid during the call only. */
typedef void (*kvf_log_fn)(void *user, kvf_log_level level, const char *line);

typedef struct kvf_ctx_options {
    int threads;    /* 0: one per core this process may use */
    kvf_log_fn log; /* NULL: no log; the library itself never prints */
    void *log_user;
    /* Program that reads each of kvfold's HDF5 files in a sandbox before this process does: the
     * command `kvfold`, run as PROGRAM --check-hdf5 FILE, where FILE names a descriptor that it
     * inherits and that is read afterwards. Damaged files can crash HDF5 itself; so they end that
     * process and an error line here. NULL: HDF5 reads files in this process, after the checks of
     * their bytes; for those who read only files they trust. The command sets itself. */
    const char *check_program;
    uint64_t reserved[4];
} kvf_ctx_options;

/* options may be NULL. ENOMEM, EUSAGE (threads < 0 or > 1024; KVF_CPU names no known level). There
 * is no context then that could hold the line, so it goes to options->log as a warning. */
kvf_status kvf_ctx_create(const kvf_ctx_options *options, kvf_ctx **out);
void kvf_ctx_free(kvf_ctx *ctx); /* NULL is fine */

/* The line of the last failure in this context, valid until the next; "" before the first. */
const char *kvf_ctx_error(const kvf_ctx *ctx);
int kvf_ctx_threads(const kvf_ctx *ctx);

/* Names the flag that stops calls of this context. A callback, a signal handler or another thread
 * sets *stop to a number other than 0; the call then returns ESTOPPED. Training finishes its step
 * and saves, kvf_serve answers the requests that it has, every other call ends at the next batch,
 * token or layer and leaves no output. The library only reads the flag. Calls that begin while it
 * is set stop too. It must live as long as the context, or until another one takes its place; NULL:
 * none. */
void kvf_ctx_set_stop(kvf_ctx *ctx, const volatile int *stop);

#ifdef __cplusplus
}
#endif
#endif
