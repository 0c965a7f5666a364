/* Status codes, the context, the log: the basis of all other headers of kvfold.
 *
 * Terms of ownership in all headers: `create/free` make and release a heap object,
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
 * Stability. Within one libkvfold.so.N, functions stay and keep their arguments, and structs keep
 * their size and the offsets of their members. Structs that may grow end in `reserved`. New members
 * are taken from it, and zero in them selects the earlier behaviour. Options may lie anywhere in
 * the caller's memory and are initialised with zeros or by their `_defaults()`. A program older
 * than the library thus leaves zeros in new members. All of `reserved` must be zero, else EUSAGE:
 * this refuses uninitialised options, and those of a newer program with settings unknown to this
 * library. kvf_train_options_create() makes options of training without their struct.
 *
 * Declarations behind KVF_EXPERIMENTAL (bench.h, distill.h, lab.h, serve.h, the tools of merge.h)
 * may change in every release. Programs that use them need the symbol version KVFOLD_EXPERIMENTAL.
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

/* Returns the version of the loaded library, which may be newer than these headers. */
int kvf_version(void);
const char *kvf_version_string(void);

/* Status names and texts. The list makes the enum, kvf_status_name() and kvf_status_text(). */
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

/* Returns a name such as "EFORMAT". Unknown values give "?", never NULL. */
const char *kvf_status_name(kvf_status status);
const char *kvf_status_text(kvf_status status);

/* A context carries the thread count, the log sink, the last error and the allocation counters.
 *
 * Threads. One thread at a time uses a context and the objects made with it (base, session, rows,
 * bench). Another thread may continue after a call has returned. Contexts are independent: threads
 * with a context and a base each compute in parallel, with unchanged results. Functions only read
 * their const arguments. So several threads may share a prefix, a set of rows or options, as long
 * as none of them frees or changes it. Any thread may call kvf_version() and the status functions,
 * and set the stop flag of a context. Functions compute with the threads of their context and leave
 * the caller's OpenMP thread count unchanged.
 *
 * Callbacks run in the thread of their call and must return to it: no exception, longjmp or end of
 * the thread. They may use other contexts, but not the one of the call unless their description
 * allows it.
 *
 * Arguments. A pointer may be NULL only where its comment allows it, and an enum must have one of
 * its values; otherwise the function returns EUSAGE and sets an error line. A function without a
 * status returns 0, false or NULL for a NULL handle. */
typedef struct kvf_ctx kvf_ctx;

typedef enum kvf_log_level { KVF_LOG_WARN = 0, KVF_LOG_INFO = 1, KVF_LOG_DEBUG = 2 } kvf_log_level;

/* line: without a newline; valid only during the call. */
typedef void (*kvf_log_fn)(void *user, kvf_log_level level, const char *line);

typedef struct kvf_ctx_options {
    int threads;    /* 0: one per core that this process may use */
    kvf_log_fn log; /* NULL: no log. The library itself never prints. */
    void *log_user;
    /* Program that checks each of kvfold's own HDF5 files in a sandbox before this process reads
     * it. Usually the command `kvfold`, run as PROGRAM --check-hdf5 FILE, where FILE names an
     * inherited descriptor. A damaged file that crashes HDF5 then ends that program, and this
     * process reports an error. NULL: HDF5 reads files in this process, after checks of their
     * bytes; use it for trusted files only. The command sets itself. */
    const char *check_program;
    /* Allocator of this context and its objects: weights, keys and values, gradients, files that
     * are read. alloc returns memory aligned as malloc's, or NULL; release frees it. Threads that
     * use the context or free its objects call them. Both NULL: malloc and free. Not from them come
     * mapped files, and memory inside oneDNN, HDF5 and OpenMP, which take no allocator. */
    void *(*alloc)(void *memory_user, size_t bytes);
    void (*release)(void *memory_user, void *memory);
    void *memory_user;
    uint64_t reserved[1];
} kvf_ctx_options;

/* Creates a context. options may be NULL. ENOMEM; EUSAGE: threads < 0 or > 1024, one of alloc
 * and release without the other, or an unknown level in KVF_CPU. On failure no context holds the
 * error line, so options->log gets it as a warning. */
kvf_status kvf_ctx_create(const kvf_ctx_options *options, kvf_ctx **out);
void kvf_ctx_free(kvf_ctx *ctx); /* ctx may be NULL. */

/* Returns the line of the last failure in this context, valid until the next; "" before the
 * first. */
const char *kvf_ctx_error(const kvf_ctx *ctx);
int kvf_ctx_threads(const kvf_ctx *ctx);

/* Sets the flag that stops calls of this context. A callback, a signal handler or another thread
 * sets *stop to a nonzero value; the running call then returns ESTOPPED. Training finishes its step
 * and saves. kvf_serve answers the requests that it has accepted. Other calls end at the next
 * batch, token or layer and leave no output. Calls that begin while the flag is set stop too. The
 * library only reads the flag, which must live until the context is freed or another flag replaces
 * it. NULL: none. */
void kvf_ctx_set_stop(kvf_ctx *ctx, const volatile int *stop);

#ifdef __cplusplus
}
#endif
#endif
