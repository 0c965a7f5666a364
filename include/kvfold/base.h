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
 *     if (kvf_base_open(ctx, "model/", NULL, &base)) fprintf(stderr, "%s\n", kvf_ctx_error(ctx));
 *     kvf_ctx_free(ctx);
 */
#ifndef KVFOLD_BASE_H
#define KVFOLD_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KVF_VERSION "0.1.0"

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
 * One thread per context; contexts are independent of each other. */
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
} kvf_ctx_options;

/* options may be NULL. Sets the OpenMP thread count of the calling thread, which must be done
 * before any computation. ENOMEM, EUSAGE (threads < 0 or > 1024; KVF_CPU names no known level).
 * There is no context then that could hold the line, so it goes to options->log as a warning. */
kvf_status kvf_ctx_create(const kvf_ctx_options *options, kvf_ctx **out);
void kvf_ctx_free(kvf_ctx *ctx); /* NULL is fine */

/* The line of the last failure in this context, valid until the next; "" before the first. */
const char *kvf_ctx_error(const kvf_ctx *ctx);
int kvf_ctx_threads(const kvf_ctx *ctx);

/* Allocations made through this context so far (a training step adds none after the first). */
uint64_t kvf_ctx_allocations(const kvf_ctx *ctx);

/* EUSAGE where a launcher of parallel programs started several processes: only training is divided
 * among them. what: "a sweep". */
kvf_status kvf_check_alone(kvf_ctx *ctx, const char *what);

/* EUSAGE where `out` is the very file that is read as `input`, by whatever name: force is for what
 * an earlier command wrote. NULL is no input; of a folder, the files of a model or adapter are.
 * Every function here that writes asks this of what it reads itself. */
kvf_status kvf_check_not_input(kvf_ctx *ctx, const char *out, const char *input);
/* EIO where a file to be read is not there, cannot be read, or is a folder; NULL is none. What
 * loads a base asks this first. */
kvf_status kvf_check_input(kvf_ctx *ctx, const char *path);
/* EEXIST, EIO where a file cannot be written at the path: kvfold's own checks, before the work. */
kvf_status kvf_check_output(kvf_ctx *ctx, const char *path, bool force);

/* Removes the temporary files of outputs that are not whole yet. Safe in a handler of a
 * signal that then ends the process, and of no use elsewhere. */
void kvf_ctx_drop_outputs(kvf_ctx *ctx);

/* Test hook: the n-th allocation from now (0 = the next) fails once; -1 turns it off. */
void kvf_ctx_fail_allocation(kvf_ctx *ctx, int64_t n);

/* Largest resident memory of this process so far, in bytes. */
int64_t kvf_peak_rss_bytes(void);
int64_t kvf_rss_bytes(void); /* at this moment; 0: not known */

#ifdef __cplusplus
}
#endif
#endif
