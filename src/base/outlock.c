/* One run, one writer: an output that grows over hours is locked while it does.
 *
 * The lock is flock() on PATH.lock, which the kernel drops when a process dies in any way: a lock
 * file that a dead process left blocks nobody. The name PATH itself cannot carry it, because each
 * save puts another file there. Whoever holds the lock also removes temporaries that killed writers
 * of the same output left (outfile.c names them PATH.tmp.PID). A file system without locks is used
 * without. */
#include "ctx_int.h"
#include "outfile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TRIES = 16 };

/* The holder before us may have removed the file between our open and our lock. */
static bool is_still_there(const char *path, int fd)
{
    struct stat ours, there;
    return fstat(fd, &ours) == 0 && stat(path, &there) == 0 && ours.st_ino == there.st_ino &&
           ours.st_dev == there.st_dev;
}

static kvf_status fail_held(kvf_ctx *ctx, const char *path, int fd)
{
    char holder[32] = "";
    ssize_t n = read(fd, holder, sizeof holder - 1);
    return kvf__fail(ctx, KVF_EEXIST, "%s: is being written by another process%s%s", path,
                     n > 0 ? ", number " : "", holder);
}

/* The holder's number is for the error line of others; it may be missing. */
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
        if (held || is_still_there(lock->path, fd)) {
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

/* A temporary whose process is gone. */
static bool is_left_behind(const char *name, const char *stem, size_t n)
{
    char *end;
    if (strncmp(name, stem, n) || strncmp(name + n, ".tmp.", 5)) return false;
    long pid = strtol(name + n + 5, &end, 10);
    return pid > 0 && pid <= INT32_MAX && !*end && kill((pid_t)pid, 0) < 0 && errno == ESRCH;
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
        if (is_left_behind(entry->d_name, stem, strlen(stem)))
            unlinkat(dirfd(dir), entry->d_name, 0);
    closedir(dir);
}

kvf_status kvf__outlock_acquire(kvf_ctx *ctx, const char *path, kvf__outlock *out)
{
    kvf__outlock lock = {.fd = -1};
    kvf_status st;

    st = kvf__asprintf(ctx, &lock.path, "%s.lock", path);
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
    unlink(lock->path); /* before it is let go: whoever opens it then makes a new one */
    close(lock->fd);
    kvf__free(lock->path);
    *lock = (kvf__outlock){0};
}
