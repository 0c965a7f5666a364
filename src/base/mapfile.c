/* Input files: mapped, read whole, or tested.
 *
 * Weights are mapped read-only and viewed, rarely copied. Text is read with a limit, so that a
 * wrong path (a 20 GB model given as config) gives an error line and not swapping. Reading accepts
 * pipes too; mapping needs a regular file. */
#include "ctx_int.h"
#include "outfile.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void close_fd(int fd)
{
    if (fd >= 0) close(fd);
}

/* Opens the descriptor of rows in memory. After the rows are freed it may belong to another file,
 * which device and inode reveal: then -1 with errno. */
static int open_memory(const kvf__memory_path *is)
{
    char path[40];
    struct stat info;
    snprintf(path, sizeof path, "/proc/self/fd/%d", is->fd);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || (!fstat(fd, &info) && info.st_dev == is->device && info.st_ino == is->inode))
        return fd;
    close(fd);
    errno = ENOENT;
    return -1;
}

bool kvf__memory_path_parse(const char *path, kvf__memory_path *out)
{
    unsigned long long device, inode;
    char end;
    if (sscanf(path, KVF__MEMORY_PATH "%c", &out->fd, &device, &inode, &end) != 3) return false;
    out->device = device;
    out->inode = inode;
    return true;
}

static int open_path(const char *path)
{
    kvf__memory_path memory;
    if (kvf__memory_path_parse(path, &memory)) return open_memory(&memory);
    return open(path, O_RDONLY | O_CLOEXEC);
}

static kvf_status open_for_reading(kvf_ctx *ctx, const char *path, int *fd, struct stat *info)
{
    int opened = open_path(path);

    if (opened < 0) return kvf__fail_errno(ctx, path, "open");
    if (fstat(opened, info) < 0) {
        kvf__fail_errno(ctx, path, "look at");
        close(opened);
        return KVF_EIO;
    }
    if (S_ISDIR(info->st_mode)) {
        close(opened);
        return kvf__fail(ctx, KVF_EIO, "%s: is a folder, want a file", path);
    }
    *fd = opened;
    return KVF_OK;
}

/* ---- mapped files ---------------------------------------------------------------------------- */

typedef struct kvf__mapped {
    struct kvf__mapped *next;
    dev_t device;
    ino_t inode;
    const void *data; /* [n], as in kvf__mapfile */
    size_t n;
    const char *path;
} kvf__mapped;

static kvf__mapped *list; /* per process, because an output may be an input of another context */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void take_lock(void)
{
    pthread_mutex_lock(&lock);
}

static void drop_lock(void)
{
    pthread_mutex_unlock(&lock);
}

/* Makes the list consistent in a child of fork(). */
static void watch_forks(void)
{
    pthread_atfork(take_lock, drop_lock, drop_lock);
}

static kvf_status enlist(kvf_ctx *ctx, kvf__mapfile *file)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct stat info;

    if (fstat(file->fd, &info) < 0) return KVF_OK;
    KVF_TRY(kvf__alloc(ctx, sizeof *file->mapped, &file->mapped));
    pthread_once(&once, watch_forks);
    take_lock();
    *file->mapped = (kvf__mapped){list, info.st_dev, info.st_ino, file->data, file->n, file->path};
    list = file->mapped;
    drop_lock();
    return KVF_OK;
}

static void delist(kvf__mapped *file)
{
    if (!file) return;
    take_lock();
    for (kvf__mapped **at = &list; *at; at = &(*at)->next)
        if (*at == file) {
            *at = file->next;
            break;
        }
    drop_lock();
    kvf__free(file);
}

kvf_status kvf__check_not_mapped(kvf_ctx *ctx, const char *path)
{
    struct stat info;
    bool found = false;

    if (stat(path, &info) < 0) return KVF_OK;
    take_lock();
    for (const kvf__mapped *at = list; at && !found; at = at->next)
        found = at->device == info.st_dev && at->inode == info.st_ino;
    drop_lock();
    if (!found) return KVF_OK;
    return kvf__fail(ctx, KVF_EUSAGE, "%s: is open for reading, it will not be replaced", path);
}

const char *kvf__mapped_path(const void *address)
{
    const uintptr_t at = (uintptr_t)address;

    for (const kvf__mapped *file = list; file; file = file->next)
        if (at >= (uintptr_t)file->data && at - (uintptr_t)file->data < file->n) return file->path;
    return NULL;
}

/* ---- mapping --------------------------------------------------------------------------------- */

kvf_status kvf__check_stand_in(kvf_ctx *ctx, const char *path, const void *bytes, size_t n,
                               bool page)
{
    static const char POINTER[] = "version https://git-lfs.", HTML[] = "<!doctype html";
    if (n >= sizeof POINTER && !memcmp(bytes, POINTER, sizeof POINTER - 1))
        return kvf__fail(ctx, KVF_EFORMAT,
                         "%s: is a Git LFS pointer, not the file itself: `git lfs pull` in its "
                         "folder fetches it",
                         path);
    if (page && n >= sizeof HTML && !strncasecmp(bytes, HTML, sizeof HTML - 1))
        return kvf__fail(ctx, KVF_EFORMAT,
                         "%s: is a web page, not the file itself: download it again, from the Hub "
                         "with `hf download`",
                         path);
    return KVF_OK;
}

/* Maps the first n bytes of fd, which it takes over, also on failure. n = 0 is allowed here, unlike
 * in mmap. */
static kvf_status map_all(kvf_ctx *ctx, const char *path, int fd, size_t n, kvf__mapfile *out)
{
    kvf__mapfile file = {.n = n, .fd = fd};
    void *data = n ? mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    kvf_status st = data == MAP_FAILED ? kvf__fail_errno(ctx, path, "map")
                                       : kvf__strdup(ctx, path, &file.path);

    if (data && data != MAP_FAILED) file.data = data;
    if (!st && file.data) st = kvf__check_stand_in(ctx, path, file.data, n, true);
    if (!st && file.data) st = enlist(ctx, &file);
    if (!file.data) close(fd);
    KVF__GIVE(st, out, file, kvf__mapfile_close(&file));
    return st;
}

kvf_status kvf__mapfile_open(kvf_ctx *ctx, const char *path, kvf__mapfile *out)
{
    struct stat info;
    int fd = -1;

    KVF_TRY(open_for_reading(ctx, path, &fd, &info));
    if (S_ISREG(info.st_mode)) return map_all(ctx, path, fd, (size_t)info.st_size, out);
    close(fd);
    return kvf__fail(ctx, KVF_EIO, "%s: is not a regular file", path);
}

kvf_status kvf__mapfile_of(kvf_ctx *ctx, const char *path, int fd, kvf__mapfile *out)
{
    struct stat info;
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);

    if (own < 0 || fstat(own, &info) < 0) {
        close_fd(own);
        return kvf__fail_errno(ctx, path, "look at");
    }
    return map_all(ctx, path, own, (size_t)info.st_size, out);
}

/* Writes the bytes to a new file at path, a template of mkostemp, and unlinks it. */
static kvf_status make_file(kvf_ctx *ctx, char *path, const void *bytes, size_t n, int *fd)
{
    *fd = mkostemp(path, O_CLOEXEC);
    if (*fd < 0) return kvf__fail_errno(ctx, path, "make");
    unlink(path);
    kvf_status st = kvf__write_all(ctx, path, *fd, bytes, n);
    if (st) close(*fd);
    return st;
}

kvf_status kvf__mapfile_make(kvf_ctx *ctx, const void *bytes, size_t n, kvf__mapfile *out)
{
    const char *dir = getenv("TMPDIR");
    char *path = NULL;
    int fd = -1;

    KVF_TRY(kvf__path_join(ctx, dir && *dir ? dir : "/tmp", "kvfold-XXXXXX", &path));
    kvf_status st = make_file(ctx, path, bytes, n, &fd);
    if (!st) st = map_all(ctx, path, fd, n, out);
    kvf__free(path);
    return st;
}

void kvf__mapfile_close(kvf__mapfile *file)
{
    delist(file->mapped);
    if (file->data) {
        munmap((void *)file->data, file->n);
        close(file->fd);
    }
    kvf__free(file->path);
    *file = (kvf__mapfile){0};
}

void kvf__mapfile_forget(const kvf__mapfile *file)
{
    if (file->data) madvise((void *)file->data, file->n, MADV_DONTNEED);
}

static bool is_in(const kvf__mapfile *file, const void *at, size_t bytes)
{
    const uintptr_t base = (uintptr_t)file->data, from = (uintptr_t)at;
    return file->data && from >= base && bytes <= file->n && from - base <= file->n - bytes;
}

bool kvf__mapfile_advise(const kvf__mapfile *file, const void *at, size_t bytes, bool soon)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t from = (uintptr_t)at / page * page, to = (uintptr_t)at + bytes;

    if (!is_in(file, at, bytes)) return false;
    madvise((void *)from, to - from, soon ? MADV_WILLNEED : MADV_DONTNEED);
    return true;
}

bool kvf__mapfile_read(const kvf__mapfile *file, const void *at, size_t bytes, void *out)
{
    if (!is_in(file, at, bytes)) return false;
    for (size_t done = 0; done < bytes;) {
        const off_t from = (const uint8_t *)at - file->data + (off_t)done;
        ssize_t n = pread(file->fd, (uint8_t *)out + done, bytes - done, from);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        done += (size_t)n;
    }
    return true;
}

static kvf_status too_long(kvf_ctx *ctx, const char *path, size_t limit)
{
    return kvf__fail(ctx, KVF_EFORMAT,
                     "%s: is longer than %zu bytes, the limit for this kind of file", path, limit);
}

/* Reads to the end whatever size fstat gives, since files in /proc and pipes have none. */
static kvf_status read_all(kvf_ctx *ctx, const char *path, int fd, size_t limit, kvf__buf *text)
{
    char chunk[65536];

    for (;;) {
        ssize_t n = read(fd, chunk, sizeof chunk);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return kvf__fail_errno(ctx, path, "read");
        if ((size_t)n > limit - text->n) return too_long(ctx, path, limit);
        KVF_TRY(kvf__buf_add(ctx, text, chunk, (size_t)n)); /* adds the NUL of an empty file too */
        if (n == 0) return KVF_OK;
    }
}

kvf_status kvf__read_file(kvf_ctx *ctx, const char *path, size_t limit, kvf__buf *out)
{
    kvf__buf text = {0};
    struct stat info;
    int fd = -1;

    KVF_TRY(open_for_reading(ctx, path, &fd, &info));
    kvf_status st = S_ISREG(info.st_mode) && (uint64_t)info.st_size > limit
                        ? too_long(ctx, path, limit)
                        : read_all(ctx, path, fd, limit, &text);
    close(fd);
    if (!st) st = kvf__check_stand_in(ctx, path, text.data, text.n, false);
    KVF__GIVE(st, out, text, kvf__buf_done(&text));
    return st;
}

kvf_status kvf__check_input(kvf_ctx *ctx, const char *path)
{
    struct stat info;
    kvf__memory_path memory;
    if (!path || kvf__memory_path_parse(path, &memory)) return KVF_OK; /* opening reports it */
    if (stat(path, &info) < 0) return kvf__fail_errno(ctx, path, "open");
    if (S_ISDIR(info.st_mode)) return kvf__fail(ctx, KVF_EIO, "%s: is a folder, want a file", path);
    return access(path, R_OK) < 0 ? kvf__fail_errno(ctx, path, "open") : KVF_OK;
}

bool kvf__is_dir(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

bool kvf__exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

int64_t kvf__file_bytes(const char *path)
{
    struct stat info;
    return stat(path, &info) ? 0 : info.st_size;
}

const char *kvf__path_end(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

kvf_status kvf__path_join(kvf_ctx *ctx, const char *dir, const char *name, char **out)
{
    size_t n = strlen(dir);
    const char *slash = n == 0 || dir[n - 1] == '/' ? "" : "/";
    return kvf__asprintf(ctx, out, "%s%s%s", dir, slash, name);
}

kvf_status kvf__path_find(kvf_ctx *ctx, const char *dir, const char *name, char **out)
{
    char *path = NULL;

    KVF_TRY(kvf__path_join(ctx, dir, name, &path));
    if (kvf__exists(path))
        *out = path;
    else
        kvf__free(path);
    return KVF_OK;
}

kvf_status kvf__path_folder(kvf_ctx *ctx, const char *path, char **out)
{
    const char *slash = strrchr(path, '/');
    if (!slash) return kvf__strdup(ctx, ".", out);
    return kvf__strndup(ctx, path, (size_t)(slash - path) + (slash == path), out);
}
