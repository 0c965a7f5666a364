/* Append-only files: logs, TensorBoard events.
 *
 * Each piece is one write() in append mode, so readers and killed processes leave whole pieces. A
 * partial write for lack of space is removed again. Nothing is flushed to disk, since a crash of
 * the machine loses no results here. */
#include "ctx_int.h"
#include "infile.h"
#include "outfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LONGEST_TAIL = 1 << 16 }; /* number of bytes searched for the end of the last whole line */

static bool is_regular(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

/* Removes an incomplete last line, which a crash may leave and which would make the next line
 * unreadable. */
static kvf_status cut_torn_line(kvf_ctx *ctx, const kvf__appendfile *file)
{
    char tail[LONGEST_TAIL];
    if (!is_regular(file->fd)) return KVF_OK;
    off_t size = lseek(file->fd, 0, SEEK_END);
    off_t begin = size > LONGEST_TAIL ? size - LONGEST_TAIL : 0;
    ssize_t n = pread(file->fd, tail, sizeof tail, begin);
    if (n < 0) return kvf__fail_errno(ctx, file->path, "read");
    while (n > 0 && tail[n - 1] != '\n')
        n--;
    if (begin + n == size) return KVF_OK;
    if (begin && !n)
        return kvf__fail(ctx, KVF_EFORMAT, "%s: is not a text file of lines; nothing was appended",
                         file->path);
    if (ftruncate(file->fd, begin + n) < 0)
        return kvf__fail_errno(ctx, file->path, "cut the unfinished last line of");
    return KVF_OK;
}

/* Returns the descriptor that the path stands for (/dev/stdout), or -1. Opening such a path would
 * truncate the file. */
static int descriptor_of(const char *path)
{
    int fd = -1, n = 0;
    if (!strcmp(path, "/dev/stdout")) return STDOUT_FILENO;
    if (!strcmp(path, "/dev/stderr")) return STDERR_FILENO;
    return sscanf(path, "/dev/fd/%d%n", &fd, &n) == 1 && !path[n] ? fd : -1;
}

bool kvf__appendfile_is_open(const char *path)
{
    return descriptor_of(path) >= 0;
}

/* Opens a path for writing. Never also for reading, because a reader of a pipe keeps it from
 * closing. */
static int open_path(const char *path, int flags)
{
    struct stat st;
    if (kvf__appendfile_is_open(path)) return fcntl(descriptor_of(path), F_DUPFD_CLOEXEC, 3);
    if (stat(path, &st) == 0 && S_ISFIFO(st.st_mode)) return open(path, O_WRONLY | O_CLOEXEC);
    return open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | flags, 0666);
}

kvf_status kvf__appendfile_open(kvf_ctx *ctx, const char *path, kvf__append how,
                                kvf__appendfile *out)
{
    static const int FLAGS[] = {
        [KVF__APPEND_NEW] = O_EXCL, [KVF__APPEND_REPLACE] = O_TRUNC, [KVF__APPEND_LINES] = 0};
    kvf__appendfile file = {.fd = -1};
    if (how != KVF__APPEND_NEW) KVF_TRY(kvf__check_not_mapped(ctx, path));
    KVF_TRY(kvf__strdup(ctx, path, &file.path));
    file.fd = open_path(path, FLAGS[how]);
    kvf_status st = KVF_OK;
    if (file.fd < 0 && errno == EEXIST)
        st = kvf__fail(ctx, KVF_EEXIST, "%s: exists (--force replaces it)", path);
    else if (file.fd < 0)
        st = kvf__fail_errno(ctx, path, "write");
    else if (how == KVF__APPEND_LINES && !kvf__appendfile_is_open(path))
        st = cut_torn_line(ctx, &file);
    KVF__GIVE(st, out, file, kvf__appendfile_close(&file));
    return st;
}

kvf_status kvf__appendfile_add(kvf_ctx *ctx, kvf__appendfile *file, const void *bytes, size_t n)
{
    off_t before = lseek(file->fd, 0, SEEK_END);
    ssize_t written;
    do
        written = write(file->fd, bytes, n);
    while (written < 0 && errno == EINTR);
    if (written == (ssize_t)n) return KVF_OK;
    if (written >= 0) errno = ENOSPC; /* the cause of a short write to a file */
    kvf_status st = kvf__fail_errno(ctx, file->path, "write");
    if (written > 0 && is_regular(file->fd) && ftruncate(file->fd, before) < 0) return st;
    return st;
}

void kvf__appendfile_close(kvf__appendfile *file)
{
    if (file->path && file->fd >= 0) close(file->fd);
    kvf__free(file->path);
    *file = (kvf__appendfile){0};
}
