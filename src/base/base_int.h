/* What the other folders use of src/base: memory, files, clock, status, random numbers, log.
 *
 * Nothing here knows tensors or text. Memory is 64-byte aligned and counted per context;
 * kvf__free() needs no context. Lengths read from files are checked against what is left before use
 * (kvf__reader). */
#ifndef KVF_BASE_INT_H
#define KVF_BASE_INT_H

#include <kvfold/base.h>
#include <kvfold/json.h>
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

/* Stores the line and returns `status`: `return kvf__fail(ctx, KVF_EFORMAT, "%s: ...", path);`.
 * Control characters are replaced, what is longer than 2 KB is cut. ctx may be NULL. */
kvf_status kvf__fail(kvf_ctx *ctx, kvf_status status, const char *fmt, ...) KVF__PRINTF(3, 4);
/* Puts "PREFIX: " before the line already stored; returns `status`. */
kvf_status kvf__fail_prefix(kvf_ctx *ctx, kvf_status status, const char *fmt, ...)
    KVF__PRINTF(3, 4);

#define KVF_TRY(call)                                                                              \
    do {                                                                                           \
        kvf_status try_status_ = (call);                                                           \
        if (try_status_) return try_status_;                                                       \
    } while (0)

void kvf__log(kvf_ctx *ctx, kvf_log_level level, const char *fmt, ...) KVF__PRINTF(3, 4);

/* ---- launchers ------------------------------------------------------------------------------- */

/* One of several processes that mpirun or srun started together. */
typedef struct kvf__launch {
    const char *by; /* who started it; NULL: nobody, and the rest is that of a process alone */
    int rank, size;
    int local; /* of them on this machine, 0: not said */
} kvf__launch;
kvf__launch kvf__launch_look(void);

/* One thing that lives as long as a context does; leave is called on it when the context is freed.
 * NULL: it holds none. */
void kvf__ctx_hold(kvf_ctx *ctx, void *held, void (*leave)(void *held));
void *kvf__ctx_held(const kvf_ctx *ctx);

/* ---- memory ---------------------------------------------------------------------------------- */

/* Would the system let this process have so many more bytes now? */
bool kvf__memory_allows(size_t bytes);
/* ENOMEM where threads that do not run yet would find no room for their stacks, which OpenMP does
 * not survive. */
kvf_status kvf__memory_allows_threads(kvf_ctx *ctx);
/* What a process does once and a context remembers: is this the first time? Always without one. */
typedef enum kvf__once { KVF__ONCE_THREADS, KVF__ONCE_SGEMM } kvf__once;
bool kvf__ctx_first(kvf_ctx *ctx, kvf__once what);
/* Zeroed, 64-byte aligned, never NULL on success (0 bytes gives 64). *out untouched on failure. */
kvf_status kvf__alloc(kvf_ctx *ctx, size_t bytes, void *out /* T ** */);
kvf_status kvf__alloc_array(kvf_ctx *ctx, size_t n, size_t size, void *out /* T ** */);
/* Like realloc, old contents kept, the rest undefined; *inout untouched on failure. */
kvf_status kvf__grow(kvf_ctx *ctx, void *inout /* T ** */, size_t old_bytes, size_t new_bytes);
void kvf__free(void *memory); /* NULL is fine */
/* Freed memory that the C library keeps for later goes back to the system, where it can (glibc). */
void kvf__free_kept(void);
kvf_status kvf__strdup(kvf_ctx *ctx, const char *text, char **out);
kvf_status kvf__strndup(kvf_ctx *ctx, const char *text, size_t bytes, char **out);
kvf_status kvf__asprintf(kvf_ctx *ctx, char **out, const char *fmt, ...) KVF__PRINTF(3, 4);

bool kvf__mul(size_t a, size_t b, size_t *out); /* false on overflow */
bool kvf__add(size_t a, size_t b, size_t *out);

/* Growing bytes; {0} is empty. data is always NUL-terminated once anything was added. */
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
    size_t most; /* that it may hold, further ones are EDATA; 0: any number */
} kvf__ids;
/* EDATA: it may not hold so many more. */
kvf_status kvf__ids_allow(kvf_ctx *ctx, const kvf__ids *ids, size_t more);
kvf_status kvf__ids_add(kvf_ctx *ctx, kvf__ids *ids, int32_t id);
kvf_status kvf__ids_append(kvf_ctx *ctx, kvf__ids *ids, const int32_t *from, size_t n);
void kvf__ids_done(kvf__ids *ids);

/* One block carved front to back, 64-byte aligned pieces; under AddressSanitizer the gaps are
 * poisoned. */
typedef struct kvf__arena {
    char *data;
    size_t cap, used;
} kvf__arena;
kvf_status kvf__arena_init(kvf_ctx *ctx, kvf__arena *arena, size_t bytes);
void *kvf__arena_alloc(kvf__arena *arena, size_t bytes); /* asserts that it fits: plan() said so */
size_t kvf__arena_round(size_t bytes);                   /* what a piece of that size uses */
void kvf__arena_done(kvf__arena *arena);

/* Lays pieces out twice with the same calls: counts while arena is NULL, carves afterwards. */
typedef struct kvf__carver {
    kvf__arena *arena;
    size_t bytes;
    bool overflow;
} kvf__carver;
void *kvf__carve(kvf__carver *carver, int64_t rows, int64_t width, size_t size);

/* Hash map from byte strings to int64. Keys are copied. {0} is empty. */
typedef struct kvf__map {
    struct kvf__map_slot *slots;
    size_t n, cap;
    kvf__buf keys;
} kvf__map;
/* A key put twice keeps its last value. */
kvf_status kvf__map_put(kvf_ctx *ctx, kvf__map *map, const void *key, size_t n, int64_t value);
/* *value is untouched where the key is absent. */
bool kvf__map_get(const kvf__map *map, const void *key, size_t n, int64_t *value);
void kvf__map_done(kvf__map *map);

/* ---- files ----------------------------------------------------------------------------------- */

/* Read-only map of a whole file. An empty file gives n = 0. */
typedef struct kvf__mapfile {
    const uint8_t *data;
    size_t n;
    int fd; /* open where data is not NULL */
    char *path;
} kvf__mapfile;
kvf_status kvf__mapfile_open(kvf_ctx *ctx, const char *path, kvf__mapfile *out);
/* The file behind a descriptor, which stays the caller's; path names it in errors. */
kvf_status kvf__mapfile_of(kvf_ctx *ctx, const char *path, int fd, kvf__mapfile *out);
/* The same of bytes that are written first, to a file without a name in TMPDIR or /tmp. */
kvf_status kvf__mapfile_make(kvf_ctx *ctx, const void *bytes, size_t n, kvf__mapfile *out);
void kvf__mapfile_close(kvf__mapfile *file); /* {0} is fine */
/* Gives back the memory of pages that were read; they come from the file again where they are read
 * again. */
void kvf__mapfile_forget(const kvf__mapfile *file);
/* The same for a part of it; or, soon, asks for its pages to be read in the meantime. False, and
 * nothing happens, if the bytes do not lie in the map. */
bool kvf__mapfile_advise(const kvf__mapfile *file, const void *at, size_t bytes, bool soon);
/* Bytes at a place in the map copied without touching its pages, of which the system would map a
 * megabyte around each. False if they do not lie in the map, or could not be read. */
bool kvf__mapfile_read(const kvf__mapfile *file, const void *at, size_t bytes, void *out);

/* Cursor over bytes that refuses to read past the end. Little-endian. */
typedef struct kvf__reader {
    const uint8_t *data;
    size_t n, at;
    bool failed; /* sticky; values read after a failure are 0 */
} kvf__reader;
uint8_t kvf__read_u8(kvf__reader *r);
uint16_t kvf__read_u16(kvf__reader *r);
uint32_t kvf__read_u32(kvf__reader *r);
uint64_t kvf__read_u64(kvf__reader *r);
float kvf__read_f32(kvf__reader *r);
double kvf__read_f64(kvf__reader *r);
const uint8_t *kvf__read_bytes(kvf__reader *r, size_t n); /* view, NULL on failure */

/* Whole file as NUL-terminated text, at most `limit` bytes (EFORMAT above). */
kvf_status kvf__read_file(kvf_ctx *ctx, const char *path, size_t limit, kvf__buf *out);
bool kvf__is_dir(const char *path);
bool kvf__exists(const char *path);
kvf_status kvf__path_join(kvf_ctx *ctx, const char *dir, const char *name, char **out);

/* Output that appears whole or not at all: write to `temp` (same folder), then commit = fsync +
 * rename + fsync of the folder. begin fails early where nothing can be written, and leaves no file.
 * An existing `path` needs force (EEXIST), at begin and again at commit. commit empties *out,
 * whether it succeeds or not; abort removes the temporary and is safe after both. */
typedef struct kvf__outfile {
    kvf_ctx *ctx;
    char *path, *temp;
    bool force;
} kvf__outfile;
kvf_status kvf__outfile_begin(kvf_ctx *ctx, const char *path, bool force, kvf__outfile *out);
kvf_status kvf__outfile_commit(kvf_ctx *ctx, kvf__outfile *out);
void kvf__outfile_abort(kvf__outfile *out);
/* The three steps at once for bytes in memory. */
kvf_status kvf__write_file(kvf_ctx *ctx, const char *path, bool force, const void *bytes, size_t n);
/* All n bytes to fd; EIO, with the reason, names path. */
kvf_status kvf__write_all(kvf_ctx *ctx, const char *path, int fd, const void *bytes, size_t n);

/* A file that only grows: each piece is one write, and one for which there is no room is taken
 * back. {0} is none. */
typedef struct kvf__appendfile {
    char *path;
    int fd;
} kvf__appendfile;
typedef enum kvf__append {
    KVF__APPEND_NEW,     /* EEXIST where it is there */
    KVF__APPEND_REPLACE, /* emptied */
    KVF__APPEND_LINES    /* continued; a last line without its end is removed */
} kvf__append;
/* /dev/stdout, /dev/stderr and /dev/fd/N are taken as they stand, whatever `how`. */
bool kvf__appendfile_is_open(const char *path);
kvf_status kvf__appendfile_open(kvf_ctx *ctx, const char *path, kvf__append how,
                                kvf__appendfile *out);
kvf_status kvf__appendfile_add(kvf_ctx *ctx, kvf__appendfile *file, const void *bytes, size_t n);
void kvf__appendfile_close(kvf__appendfile *file);

/* Held by the process that keeps writing an output: EEXIST where another does, and dead ones do not
 * count. Temporaries that killed writers of `path` left are removed. {0} is none. */
typedef struct kvf__outlock {
    char *path;
    int fd;
} kvf__outlock;
kvf_status kvf__outlock_acquire(kvf_ctx *ctx, const char *path, kvf__outlock *out);
void kvf__outlock_drop(kvf__outlock *lock);

/* Which file it was, and when: written to, and (by a clock that nobody sets) changed in any way. */
typedef struct kvf__seen_file {
    uint64_t device, inode;
    int64_t bytes;
    struct timespec written, changed;
} kvf__seen_file;
/* Has ctx's check_program, if it has one, read the open file in a sandbox, in two steps, for what
 * can be done meanwhile. After a begin without an error comes end, which is OK where the file
 * passed now or before, or drop, which wants no answer any more. */
typedef struct kvf__check {
    const kvf__mapfile *map; /* not ours */
    kvf__seen_file file;
    pid_t process; /* 0: none */
    int answers;
} kvf__check;
kvf_status kvf__check_begin(kvf_ctx *ctx, const kvf__mapfile *map, kvf__check *check);
kvf_status kvf__check_end(kvf_ctx *ctx, kvf__check *check);
void kvf__check_drop(kvf__check *check);
/* Whether it passed before and is still the same. */
bool kvf__sandbox_passed(const kvf_ctx *ctx, const kvf__mapfile *map);
void kvf__sandbox_trust(kvf_ctx *ctx, int fd); /* this process wrote it itself */
/* This process is the trial: values too large to be read twice may be left out. */
void kvf__sandbox_begin(kvf_ctx *ctx);
bool kvf__in_sandbox(const kvf_ctx *ctx);

/* ---- clock, random numbers ------------------------------------------------------------------- */

double kvf__clock(void); /* monotonic seconds */

/* Counter-based: value i of a stream depends on (seed, stream, i) only; the whole state is 3
 * numbers, which may be set as well as read. rng.c defines the values, and they stay. */
typedef struct kvf__rng {
    uint64_t seed, stream, counter;
} kvf__rng;
kvf__rng kvf__rng_make(uint64_t seed, uint64_t stream);
uint64_t kvf__rng_u64(kvf__rng *rng);
void kvf__rng_u128(kvf__rng *rng, uint64_t out[2]); /* one value too; out[0] is what u64 gives */
double kvf__rng_uniform(kvf__rng *rng);             /* [0, 1) */
double kvf__rng_normal(kvf__rng *rng);              /* mean 0, variance 1; consumes two values */
uint64_t kvf__rng_below(kvf__rng *rng, uint64_t n); /* [0, n), unbiased */
void kvf__rng_shuffle(kvf__rng *rng, int64_t *items, size_t n);

/* XXH3-128 of what was added, as 32 hex digits. */
typedef struct kvf__hash kvf__hash;
kvf_status kvf__hash_create(kvf_ctx *ctx, kvf__hash **out);
void kvf__hash_add(kvf__hash *hash, const void *bytes, size_t n);
void kvf__hash_hex(const kvf__hash *hash, char hex[33]);
void kvf__hash_free(kvf__hash *hash);

#endif
