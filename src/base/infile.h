/* Input files: mapped, read whole, or tested, and a cursor over their bytes. Lengths in a file are
 * checked against its remaining bytes before use (kvf__reader). */
#ifndef KVF_INFILE_H
#define KVF_INFILE_H

#include "base_int.h"

/* Read-only map of a whole file. An empty file has n = 0. */
typedef struct kvf__mapfile {
    const uint8_t *data;
    size_t n;
    int fd; /* open while data is not NULL */
    char *path;
    struct kvf__mapped *mapped; /* entry for kvf__check_not_mapped; NULL: none */
} kvf__mapfile;
kvf_status kvf__mapfile_open(kvf_ctx *ctx, const char *path, kvf__mapfile *out);
/* Maps the file of a descriptor, which the caller keeps; path names it in errors. */
kvf_status kvf__mapfile_of(kvf_ctx *ctx, const char *path, int fd, kvf__mapfile *out);
/* Writes bytes to an unnamed file in TMPDIR or /tmp and maps it. */
kvf_status kvf__mapfile_make(kvf_ctx *ctx, const void *bytes, size_t n, kvf__mapfile *out);
void kvf__mapfile_close(kvf__mapfile *file); /* {0} is allowed */
/* EUSAGE: this process has the file at the path mapped, in any context and under any name, so it
 * cannot be an output. */
kvf_status kvf__check_not_mapped(kvf_ctx *ctx, const char *path);
/* Releases the memory of pages that were read; later reads load them from the file again. */
void kvf__mapfile_forget(const kvf__mapfile *file);
/* Releases the pages of a part, or (soon) starts reading them ahead. Returns false, without effect,
 * if the bytes are not in the map. */
bool kvf__mapfile_advise(const kvf__mapfile *file, const void *at, size_t bytes, bool soon);
/* Copies bytes of the map with pread. The system would otherwise map about a megabyte around each
 * touched page. Returns false if the bytes are not in the map, or could not be read. */
bool kvf__mapfile_read(const kvf__mapfile *file, const void *at, size_t bytes, void *out);

/* Bounds-checked cursor over little-endian bytes. */
typedef struct kvf__reader {
    const uint8_t *data;
    size_t n, at;
    bool failed; /* sticky; later reads return 0 */
} kvf__reader;
uint64_t kvf__read_little(kvf__reader *r, size_t n); /* n bytes, at most 8 */
uint8_t kvf__read_u8(kvf__reader *r);
uint16_t kvf__read_u16(kvf__reader *r);
uint32_t kvf__read_u32(kvf__reader *r);
uint64_t kvf__read_u64(kvf__reader *r);
float kvf__read_f32(kvf__reader *r);
double kvf__read_f64(kvf__reader *r);
const uint8_t *kvf__read_bytes(kvf__reader *r, size_t n); /* view, NULL on failure */

/* Fails (EFORMAT) if the first bytes of a file are a Git LFS pointer or, with page, a web page that
 * was saved in its place. */
kvf_status kvf__check_stand_in(kvf_ctx *ctx, const char *path, const void *bytes, size_t n,
                               bool page);
/* Reads a whole file as NUL-terminated text of at most `limit` bytes (EFORMAT above). */
kvf_status kvf__read_file(kvf_ctx *ctx, const char *path, size_t limit, kvf__buf *out);
bool kvf__is_dir(const char *path);
bool kvf__exists(const char *path);
int64_t kvf__file_bytes(const char *path); /* 0 if the file does not exist */
kvf_status kvf__path_join(kvf_ctx *ctx, const char *dir, const char *name, char **out);
/* Joins the path if there is such a file; otherwise *out is unchanged. */
kvf_status kvf__path_find(kvf_ctx *ctx, const char *dir, const char *name, char **out);
/* Returns the folder of a path: the current one if it has no slash, the root if only a first
 * one. */
kvf_status kvf__path_folder(kvf_ctx *ctx, const char *path, char **out);

/* Path of rows in memory (src/data/memory_rows.c): their descriptor, and the device and inode
 * behind it. No file has such a path, but it can be opened like any other. */
#define KVF__MEMORY_PATH "kvfold-rows:%d:%llu:%llu"
typedef struct kvf__memory_path {
    int fd;
    uint64_t device, inode;
} kvf__memory_path;
/* Returns false for any other path. */
bool kvf__memory_path_parse(const char *path, kvf__memory_path *out);

#endif
