/* Checking a file in a sandbox process, so that a crash of the parsing library harms nothing.
 *
 * The process is a fresh program, because OpenMP would not survive a bare fork. It is called as
 * `PROGRAM --check-hdf5 FILE` and answers with one line on standard output: "ok", or a status
 * number and its error line. Anything else is a crash. FILE is the inherited descriptor that the
 * caller reads later, so a file that replaces it at the path is never read. A file that passed, or
 * that this context wrote, is not checked again while inode, size and times are unchanged. */
#include "ctx_int.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { CHILD_FD = 3 };
static const char CHILD_PATH[] = "/proc/self/fd/3";

static bool identity_of(int fd, kvf__seen_file *out)
{
    struct stat info;
    if (fstat(fd, &info) < 0) return false;
    *out = (kvf__seen_file){(uint64_t)info.st_dev, (uint64_t)info.st_ino, info.st_size,
                            info.st_mtim, info.st_ctim};
    return true;
}

static bool is_time(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

/* Returns whether both have the same inode, size and mtime. An owner can forge the mtime. */
static bool is_unwritten(const kvf__seen_file *a, const kvf__seen_file *b)
{
    return a->bytes == b->bytes && is_time(a->written, b->written);
}

static bool was_seen(const kvf_ctx *ctx, const kvf__seen_file *file)
{
    for (size_t i = 0; i < KVF__SEEN_FILES; i++) {
        const kvf__seen_file *seen = &ctx->seen[i];
        if (seen->device == file->device && seen->inode == file->inode &&
            is_unwritten(seen, file) && is_time(seen->changed, file->changed))
            return true;
    }
    return false;
}

/* Adds a file to the list and drops the oldest. */
static void remember(kvf_ctx *ctx, const kvf__seen_file *file)
{
    ctx->seen[ctx->n_seen++ % KVF__SEEN_FILES] = *file;
}

const char *kvf__ctx_check_program(const kvf_ctx *ctx)
{
    return ctx->check_program;
}

bool kvf__sandbox_passed(const kvf_ctx *ctx, const kvf__mapfile *map)
{
    kvf__seen_file file;
    return ctx && map->data && identity_of(map->fd, &file) && was_seen(ctx, &file);
}

void kvf__sandbox_trust(kvf_ctx *ctx, int fd)
{
    kvf__seen_file file;
    if (ctx && ctx->check_program && identity_of(fd, &file)) remember(ctx, &file);
}

/* Starts the program. Its standard error is closed, because output of a crashing library is no
 * error line of ours. */
static int spawn(const char *program, const kvf__mapfile *map, int output, pid_t *pid)
{
    const bool by_fd = access("/proc/self/fd", F_OK) == 0;
    char *const argv[] = {(char *)program, (char *)"--check-hdf5",
                          by_fd ? (char *)CHILD_PATH : map->path, NULL};
    posix_spawn_file_actions_t actions;
    int error = posix_spawn_file_actions_init(&actions);

    if (error) return error;
    error = posix_spawn_file_actions_adddup2(&actions, output, 1);
    if (!error) error = posix_spawn_file_actions_adddup2(&actions, map->fd, CHILD_FD);
    if (!error) error = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    if (!error) error = posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    if (!error) error = posix_spawn(pid, program, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return error;
}

/* Reads to the end, since the writer must not meet a closed pipe; an overlong answer is cut. */
static void read_answer(int fd, char answer[KVF__LINE_BYTES])
{
    char rest[512];
    size_t n = 0;
    for (;;) {
        bool full = n == KVF__LINE_BYTES - 1;
        ssize_t got = full ? read(fd, rest, sizeof rest)
                           : read(fd, answer + n, KVF__LINE_BYTES - 1 - n);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        if (!full) n += (size_t)got;
    }
    answer[n] = '\0';
    if (n && answer[n - 1] == '\n') answer[n - 1] = '\0';
}

/* Reports the other process's error line under the file's own name. */
static kvf_status fail_as_said(kvf_ctx *ctx, kvf_status status, const char *path, const char *line)
{
    const char *at = strstr(line, CHILD_PATH);

    if (!at) return kvf__fail(ctx, status, "%s", line);
    return kvf__fail(ctx, status, "%.*s%s%s", (int)(at - line), line, path,
                     at + sizeof CHILD_PATH - 1);
}

static kvf_status judge(kvf_ctx *ctx, const char *path, const char *answer, int ended)
{
    char *line = NULL;
    long status = strtol(answer, &line, 10);

    if (!strcmp(answer, "ok")) return KVF_OK;
    if (status > KVF_OK && status <= KVF_EINTERNAL && line && *line == ' ')
        return fail_as_said(ctx, (kvf_status)status, path, line + 1);
    if (WIFSIGNALED(ended))
        return kvf__fail(ctx, KVF_EFORMAT,
                         "%s: damaged: HDF5 cannot read it (%s, in a separate process)", path,
                         strsignal(WTERMSIG(ended)));
    return kvf__fail(ctx, KVF_EFORMAT,
                     "%s: damaged: HDF5 cannot read it (exit status %d, in a separate process)",
                     path, WEXITSTATUS(ended));
}

kvf_status kvf__check_begin(kvf_ctx *ctx, const kvf__mapfile *map, kvf__check *check)
{
    int ends[2], error;

    *check = (kvf__check){.map = map};
    if (!ctx || !map->data || !identity_of(map->fd, &check->file)) return KVF_OK;
    if (was_seen(ctx, &check->file) || !ctx->check_program) return KVF_OK;
    if (pipe2(ends, O_CLOEXEC) < 0) return kvf__fail_errno(ctx, map->path, "check");
    error = spawn(ctx->check_program, map, ends[1], &check->process);
    close(ends[1]);
    if (!error) {
        check->answers = ends[0];
        return KVF_OK;
    }
    close(ends[0]);
    check->process = 0;
    return kvf__fail(ctx, KVF_EIO, "%s: cannot check it: %s: %s", map->path, ctx->check_program,
                     strerror(error));
}

/* Reads the answer and waits until the process has ended. */
static int wait_for(kvf__check *check, char answer[KVF__LINE_BYTES])
{
    int ended = 0;

    read_answer(check->answers, answer);
    while (waitpid(check->process, &ended, 0) < 0 && errno == EINTR)
        ;
    close(check->answers);
    check->process = 0;
    return ended;
}

kvf_status kvf__check_end(kvf_ctx *ctx, kvf__check *check)
{
    char answer[KVF__LINE_BYTES];
    kvf__seen_file after;

    if (!check->process && !kvf__in_sandbox(ctx)) return KVF_OK;
    if (check->process) {
        int ended = wait_for(check, answer);
        KVF_TRY(judge(ctx, check->map->path, answer, ended));
    }
    if (!identity_of(check->map->fd, &after) || !is_unwritten(&check->file, &after))
        return kvf__fail(ctx, KVF_EIO, "%s: changed while it was checked", check->map->path);
    remember(ctx, &check->file);
    return KVF_OK;
}

void kvf__check_drop(kvf__check *check)
{
    char answer[KVF__LINE_BYTES];

    if (!check->process) return;
    kill(check->process, SIGKILL);
    wait_for(check, answer);
}

bool kvf__in_sandbox(const kvf_ctx *ctx)
{
    return ctx && ctx->in_sandbox;
}

void kvf__sandbox_begin(kvf_ctx *ctx)
{
    memset(ctx->seen, 0, sizeof ctx->seen);
    ctx->in_sandbox = true;
}
