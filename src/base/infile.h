/* Files that are read: mapped, read whole, looked at, and the cursor over their bytes. Lengths that
 * a file gives are checked against what is left of it before use (kvf__reader). */
#ifndef KVF_INFILE_H
#define KVF_INFILE_H

#include "base_int.h"

/* Read-only map of a whole file. An empty file gives n = 0. */
typedef struct kvf__mapfile {
    const uint8_t *data;
    size_t n;
    int fd; /* open where data is not NULL */
    char *path;
    struct kvf__mapped *mapped; /* its entry for kvf__check_not_mapped; NULL: none */
} kvf__mapfile;
kvf_status kvf__mapfile_open(kvf_ctx *ctx, const char *path, kvf__mapfile *out);
/* The file of a descriptor, which stays the caller's; path names it in errors. */
kvf_status kvf__mapfile_of(kvf_ctx *ctx, const char *path, int fd, kvf__mapfile *out);
/* The same of bytes that are written first, to a file without a name in TMPDIR or /tmp. */
kvf_status kvf__mapfile_make(kvf_ctx *ctx, const void *bytes, size_t n, kvf__mapfile *out);
void kvf__mapfile_close(kvf__mapfile *file); /* {0} is fine */
/* EUSAGE if this process has the file at the path mapped, in any context and by any name: then it
 * is no output. */
kvf_status kvf__check_not_mapped(kvf_ctx *ctx, const char *path);
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
uint64_t kvf__read_little(kvf__reader *r, size_t n); /* n bytes, at most 8 */
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
int64_t kvf__file_bytes(const char *path); /* 0 without one */
kvf_status kvf__path_join(kvf_ctx *ctx, const char *dir, const char *name, char **out);
/* The same where there is such a file; else *out stays as it is. */
kvf_status kvf__path_find(kvf_ctx *ctx, const char *dir, const char *name, char **out);
/* The folder a path lies in: the current one without a slash, the root if only a first one. */
kvf_status kvf__path_folder(kvf_ctx *ctx, const char *path, char **out);

/* Rows in memory (src/data/memory_rows.c) have a path that no file has: their descriptor, and the
 * device and inode behind it. Files are opened by it as by any other path. */
#define KVF__MEMORY_PATH "kvfold-rows:%d:%llu:%llu"
typedef struct kvf__memory_path {
    int fd;
    uint64_t device, inode;
} kvf__memory_path;
/* false: it is another path. */
bool kvf__memory_path_parse(const char *path, kvf__memory_path *out);

#endif
