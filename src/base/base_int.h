/* The common part of src/base: status, log, memory, growing buffers, clock. Other parts have their
 * own headers: arena.h, hash.h, infile.h, launch.h, map.h, outfile.h, rng.h, sandbox.h.
 *
 * Nothing in this folder knows tensors or text. Memory is 64-byte aligned and counted per context;
 * kvf__free() needs no context. */
#ifndef KVF_BASE_INT_H
#define KVF_BASE_INT_H

#include "hooks.h"
#include "json_hooks.h"

#include <kvfold/base.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

#if defined(__GNUC__)
#define KVF__PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define KVF__PRINTF(fmt, args)
#endif

/* ---- status ---------------------------------------------------------------------------------- */

/* Stores the error line and returns `status`: `return kvf__fail(ctx, KVF_EFORMAT, "%s: ...",
 * path);`. Control characters are replaced, and lines are cut at 2 KB. ctx may be NULL. */
kvf_status kvf__fail(kvf_ctx *ctx, kvf_status status, const char *fmt, ...) KVF__PRINTF(3, 4);
/* Inserts "PREFIX: " before the stored line; returns `status`. */
kvf_status kvf__fail_prefix(kvf_ctx *ctx, kvf_status status, const char *fmt, ...)
    KVF__PRINTF(3, 4);

#define KVF_TRY(call)                                                                              \
    do {                                                                                           \
        kvf_status try_status_ = (call);                                                           \
        if (try_status_) return try_status_;                                                       \
    } while (0)

/* Returns from a constructor: assigns the object to *out, or on failure runs `undo` to free its
 * parts. KVF__GIVE(st, out, set, kvf__label_set_done(&set)); */
#define KVF__GIVE(st, out, made, undo)                                                             \
    do {                                                                                           \
        if (st)                                                                                    \
            undo;                                                                                  \
        else                                                                                       \
            *(out) = (made);                                                                       \
    } while (0)

void kvf__log(kvf_ctx *ctx, kvf_log_level level, const char *fmt, ...) KVF__PRINTF(3, 4);

/* EUSAGE: the reserved members of public options are not zero, so they request something unknown to
 * this library. Every function with options calls it first, by the macro. */
kvf_status kvf__check_reserved(kvf_ctx *ctx, const char *type, const void *reserved, size_t bytes);
#define KVF__CHECK_RESERVED(ctx, type, options)                                                    \
    kvf__check_reserved(ctx, #type, (options)->reserved, sizeof((const type *)(options))->reserved)

/* ---- public functions ------------------------------------------------------------------------ */

/* EUSAGE: ctx or one of the pointers is NULL. The line names function and argument. Each public
 * function checks the arguments that its header does not allow to be NULL. */
kvf_status kvf__need(kvf_ctx *ctx, const char *function, const char *names,
                     const void *const *pointers, size_t n);
#define KVF__NEED(ctx, ...)                                                                        \
    kvf__need(ctx, __func__, #__VA_ARGS__, (const void *const[]){__VA_ARGS__},                     \
              sizeof((const void *const[]){__VA_ARGS__}) / sizeof(void *))
/* EUSAGE: an output file is one of the inputs (kvf__check_not_input). */
kvf_status kvf__check_not_inputs(kvf_ctx *ctx, const char *out, const char *const *inputs,
                                 size_t n);
#define KVF__NOT_INPUTS(ctx, out, ...)                                                             \
    kvf__check_not_inputs(ctx, out, (const char *const[]){__VA_ARGS__},                            \
                          sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))
/* EUSAGE: the value is outside its enum, whose last value is given. */
kvf_status kvf__check_enum(kvf_ctx *ctx, const char *name, int64_t value, int64_t last);
#define KVF__CHECK_ENUM(ctx, value, last)                                                          \
    kvf__check_enum(ctx, #value, (int64_t)(value), (int64_t)(last))

/* Sets the calling thread's OpenMP thread count to the context's; *before: the former count. ENOMEM
 * as in kvf__memory_allows_threads. */
kvf_status kvf__threads_enter(kvf_ctx *ctx, int *before);
void kvf__threads_leave(int before);
/* Returns the status of a computing call with the context's threads. For public functions; tests
 * enter once instead. */
#define KVF__RETURN(ctx, call)                                                                     \
    do {                                                                                           \
        int before_;                                                                               \
        KVF_TRY(kvf__threads_enter(ctx, &before_));                                                \
        const kvf_status status_ = (call);                                                         \
        kvf__threads_leave(before_);                                                               \
        return status_;                                                                            \
    } while (0)

/* ---- context --------------------------------------------------------------------------------- */

/* ESTOPPED: the stop flag is set. Called in loops over batches, tokens and layers. */
kvf_status kvf__ctx_check_stop(kvf_ctx *ctx);
/* Sets a further stop condition, called in the context's thread; NULL: none. */
void kvf__ctx_stop_when(kvf_ctx *ctx, bool (*stops)(void *user), void *user);
/* Returns the value of the flag, for calls that finish some work first; 0: none. */
int kvf__ctx_stop(const kvf_ctx *ctx);
/* Defers stops, for such calls: kvf__ctx_check_stop passes until kvf__ctx_defer_stop(ctx,
 * false). */
void kvf__ctx_defer_stop(kvf_ctx *ctx, bool defer);
/* Replaces the flag and returns the former one. */
const volatile int *kvf__ctx_swap_stop(kvf_ctx *ctx, const volatile int *stop);

/* Attaches an object to the context; leave(held) is called when the context is freed. kvf__ctx_held
 * returns it, or NULL. */
void kvf__ctx_hold(kvf_ctx *ctx, void *held, void (*leave)(void *held));
void *kvf__ctx_held(const kvf_ctx *ctx);
/* Actions that a context runs once. Returns true the first time, and always without a context. */
typedef enum kvf__once { KVF__ONCE_SGEMM } kvf__once;
bool kvf__ctx_first(kvf_ctx *ctx, kvf__once what);

/* ---- memory ---------------------------------------------------------------------------------- */

/* Returns whether the system would grant this process so many more bytes now. */
bool kvf__memory_allows(size_t bytes);
/* ENOMEM: there is no memory for the stacks of threads that are not yet running, which OpenMP does
 * not survive. Checked once for each thread that uses the context. */
kvf_status kvf__memory_allows_threads(kvf_ctx *ctx);
/* Allocates zeroed, 64-byte aligned memory, never NULL on success (0 bytes give 64). *out is
 * unchanged on failure. */
kvf_status kvf__alloc(kvf_ctx *ctx, size_t bytes, void *out /* T ** */);
kvf_status kvf__alloc_array(kvf_ctx *ctx, size_t n, size_t size, void *out /* T ** */);
/* Reallocates: keeps old contents, the rest is undefined. *inout is unchanged on failure. */
kvf_status kvf__grow(kvf_ctx *ctx, void *inout /* T ** */, size_t old_bytes, size_t new_bytes);
/* Grows a list to at least `need` items of `size` bytes, doubling *cap. */
kvf_status kvf__reserve(kvf_ctx *ctx, void *inout /* T ** */, size_t *cap, size_t need,
                        size_t size);
void kvf__free(void *memory); /* memory may be NULL */
/* Returns freed memory that the C library keeps to the system, where possible (glibc). */
void kvf__free_kept(void);
kvf_status kvf__strdup(kvf_ctx *ctx, const char *text, char **out);
kvf_status kvf__strndup(kvf_ctx *ctx, const char *text, size_t bytes, char **out);
kvf_status kvf__asprintf(kvf_ctx *ctx, char **out, const char *fmt, ...) KVF__PRINTF(3, 4);

bool kvf__mul(size_t a, size_t b, size_t *out); /* false on overflow */
bool kvf__add(size_t a, size_t b, size_t *out);

/* Growing byte buffer; {0} is empty. data is NUL-terminated once anything was added. */
typedef struct kvf__buf {
    char *data;
    size_t n, cap;
} kvf__buf;
kvf_status kvf__buf_add(kvf_ctx *ctx, kvf__buf *buf, const void *bytes, size_t n);
kvf_status kvf__buf_addc(kvf_ctx *ctx, kvf__buf *buf, char c);
kvf_status kvf__buf_printf(kvf_ctx *ctx, kvf__buf *buf, const char *fmt, ...) KVF__PRINTF(3, 4);
void kvf__buf_done(kvf__buf *buf);

/* Growing int32 list; {0} is empty. */
typedef struct kvf__ids {
    int32_t *data;
    size_t n, cap;
    size_t most; /* maximum number of ids, more are EDATA; 0: no limit */
} kvf__ids;
/* EDATA: the list may not hold so many more. */
kvf_status kvf__ids_allow(kvf_ctx *ctx, const kvf__ids *ids, size_t more);
kvf_status kvf__ids_add(kvf_ctx *ctx, kvf__ids *ids, int32_t id);
kvf_status kvf__ids_append(kvf_ctx *ctx, kvf__ids *ids, const int32_t *from, size_t n);
void kvf__ids_done(kvf__ids *ids);

/* ---- JSON beyond kvfold/json.h --------------------------------------------------------------- */

/* Loads the file NAME of a folder, if there is one; otherwise *out is unchanged. */
kvf_status kvf__json_load_in(kvf_ctx *ctx, const char *dir, const char *name, kvf_json **out);

/* ---- clock ----------------------------------------------------------------------------------- */

double kvf__clock(void); /* monotonic seconds */

#endif
