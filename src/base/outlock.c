/* One writer per run: an output that grows over hours is locked meanwhile.
 *
 * The lock is flock() on PATH.lock, which the kernel drops when a process dies, so a leftover lock
 * file blocks nobody. PATH itself cannot be locked, because each save replaces it. The holder also
 * removes leftover temporaries of the output (PATH.tmp.RANDOM, outfile.c), namely those whose lock
 * is free. File systems without locks are used without, and nothing is removed there. */
#include "ctx_int.h"
#include "outfile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TRIES = 16 };

static kvf_status fail_held(kvf_ctx *ctx, const char *path, int fd)
{
    char holder[32] = "";
    ssize_t n = read(fd, holder, sizeof holder - 1);
    return kvf__fail(ctx, KVF_EEXIST, "%s: is being written by another process%s%s", path,
                     n > 0 ? ", number " : "", holder);
}

/* Writes the process id for the error line of others; it may be missing. */
static void write_holder(int fd)
{
    char text[32];
    int n = snprintf(text, sizeof text, "%ld", (long)getpid());
    if (ftruncate(fd, 0) < 0 || write(fd, text, (size_t)n) != n) return;
}

static kvf_status lock_file(kvf_ctx *ctx, const char *path, kvf__outlock *lock)
{
    for (int i = 0; i < TRIES; i++) {
        int fd = open(lock->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (fd < 0) return kvf__fail_errno(ctx, path, "write");
        bool held = flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK;
        /* the last holder may have removed the file between our open and our lock */
        if (held || kvf__is_at(lock->path, fd)) {
            kvf_status st = held ? fail_held(ctx, path, fd) : KVF_OK;
            if (held)
                close(fd);
            else
                lock->fd = fd;
            return st;
        }
        close(fd);
    }
    return kvf__fail(ctx, KVF_EIO, "%s: cannot lock: %s changes again and again", path, lock->path);
}

static bool is_temp_name(const char *name, const char *stem, size_t n)
{
    static const char DIGITS[] = "0123456789abcdef", END[] = KVF__TEMP;
    const size_t dot = sizeof ".tmp." - 1;
    return !strncmp(name, stem, n) && strlen(name + n) == sizeof END - 1 &&
           !strncmp(name + n, END, dot) && strspn(name + n + dot, DIGITS) == sizeof END - 1 - dot;
}

/* Removes a regular file if nobody holds its lock. */
static void remove_unlocked(int folder, const char *name)
{
    struct stat info;
    const int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && flock(fd, LOCK_EX | LOCK_NB) == 0)
        unlinkat(folder, name, 0);
    close(fd);
}

static void remove_left_behind(const char *path)
{
    const char *slash = strrchr(path, '/'), *stem = slash ? slash + 1 : path;
    char folder[4096];
    size_t n = (size_t)(stem - path);

    if (n >= sizeof folder) return;
    memcpy(folder, path, n);
    folder[n] = 0;
    DIR *dir = opendir(n ? folder : ".");
    if (!dir) return;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        if (is_temp_name(entry->d_name, stem, strlen(stem)))
            remove_unlocked(dirfd(dir), entry->d_name);
    closedir(dir);
}

kvf_status kvf__outlock_acquire(kvf_ctx *ctx, const char *path, kvf__outlock *out)
{
    kvf__outlock lock = {.fd = -1};

    kvf_status st = kvf__asprintf(ctx, &lock.path, "%s.lock", path);
    if (st) goto out;
    st = lock_file(ctx, path, &lock);
    if (st) goto out;
    write_holder(lock.fd);
    remove_left_behind(path);
    *out = lock;
    lock.path = NULL;
out:
    kvf__free(lock.path);
    return st;
}

void kvf__outlock_drop(kvf__outlock *lock)
{
    if (!lock->path) return;
    unlink(lock->path); /* before unlocking, so that the next process makes a new file */
    close(lock->fd);
    kvf__free(lock->path);
    *lock = (kvf__outlock){0};
}
