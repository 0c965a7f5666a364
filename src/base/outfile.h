/* Output files: written whole or not at all, or appended piece by piece; and the lock of an output
 * that is written for hours. */
#ifndef KVF_OUTFILE_H
#define KVF_OUTFILE_H

#include "base_int.h"

/* Output that appears whole or not at all. Write to `fd`, the new file `temp` in the same folder;
 * commit = fsync + rename + fsync of the folder. begin fails early if nothing can be written. An
 * existing `path` needs force (EEXIST), checked at begin and again at commit. commit always empties
 * *out; abort removes the temporary and is safe after both. */
typedef struct kvf__outfile {
    kvf_ctx *ctx;
    char *path, *temp;
    int fd; /* open for reading and writing, and locked */
    bool force;
} kvf__outfile;
kvf_status kvf__outfile_begin(kvf_ctx *ctx, const char *path, bool force, kvf__outfile *out);
kvf_status kvf__outfile_commit(kvf_ctx *ctx, kvf__outfile *out);
void kvf__outfile_abort(kvf__outfile *out);
/* Writes pieces of memory in order; kvf__write_file (hooks.h) writes one. */
typedef struct kvf__bytes {
    const void *bytes;
    size_t n;
} kvf__bytes;
kvf_status kvf__write_pieces(kvf_ctx *ctx, const char *path, bool force, const kvf__bytes *pieces,
                             size_t n);
/* Suffix of a temporary's name; kvf__temp_name makes its digits random. */
#define KVF__TEMP ".tmp.00000000"
void kvf__temp_name(char *name);
/* Returns whether the path names the open file itself; a symbolic link does not count. */
bool kvf__is_at(const char *path, int fd);
/* Writes all n bytes to fd. EIO, with the reason, names path. */
kvf_status kvf__write_all(kvf_ctx *ctx, const char *path, int fd, const void *bytes, size_t n);

/* An append-only file: each piece is one write, and a partial write for lack of space is removed.
 * {0} is none. */
typedef struct kvf__appendfile {
    char *path;
    int fd;
} kvf__appendfile;
typedef enum kvf__append {
    KVF__APPEND_NEW,     /* EEXIST if it exists */
    KVF__APPEND_REPLACE, /* truncate */
    KVF__APPEND_LINES    /* append; an incomplete last line is removed */
} kvf__append;
/* Returns whether the path is /dev/stdout, /dev/stderr or /dev/fd/N, which are used as they are,
 * ignoring `how`. */
bool kvf__appendfile_is_open(const char *path);
kvf_status kvf__appendfile_open(kvf_ctx *ctx, const char *path, kvf__append how,
                                kvf__appendfile *out);
kvf_status kvf__appendfile_add(kvf_ctx *ctx, kvf__appendfile *file, const void *bytes, size_t n);
void kvf__appendfile_close(kvf__appendfile *file);

/* Lock held by the process that keeps writing an output. EEXIST: another living process holds it.
 * Leftover temporaries of `path` are removed. {0} is none. */
typedef struct kvf__outlock {
    char *path;
    int fd;
} kvf__outlock;
kvf_status kvf__outlock_acquire(kvf_ctx *ctx, const char *path, kvf__outlock *out);
void kvf__outlock_drop(kvf__outlock *lock);

#endif
