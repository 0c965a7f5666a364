/* Output files that appear whole or not at all.
 *
 * Writers fill PATH.tmp.RANDOM in the same folder. commit flushes it to disk, renames it over PATH,
 * and flushes the folder, so that the new name survives a power failure. begin() makes and locks
 * (flock) the temporary until it is renamed. Other processes, in any container, can thus tell it
 * from a leftover of a killed writer. */
#include "outfile.h"
#include "ctx_int.h"
#include "infile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { WRITE_BITS = S_IWUSR | S_IWGRP | S_IWOTH };

/* Checks the existing file at the path: none, or with force a regular file. Renaming over /dev/null
 * would replace the device for the whole machine. A rename needs only the folder's permission, and
 * root may always write. So the permission bits of the file itself are checked. */
static kvf_status check_target(kvf_ctx *ctx, const char *path, bool force)
{
    struct stat info;

    if (*path == '\0') return kvf__fail(ctx, KVF_EUSAGE, "output path is empty");
    if (stat(path, &info) < 0) { /* a dangling link belongs to the user too */
        if (force || lstat(path, &info) < 0) return KVF_OK;
        return kvf__fail(ctx, KVF_EEXIST,
                         "%s: is a link to a file that is not there (use --force to replace it)",
                         path);
    }
    if (S_ISDIR(info.st_mode))
        return kvf__fail(ctx, KVF_EIO, "%s: is a folder, want a file to write", path);
    if (!S_ISREG(info.st_mode))
        return kvf__fail(ctx, KVF_EIO, "%s: is not a regular file, it will not be replaced", path);
    if (!force) return kvf__fail(ctx, KVF_EEXIST, "%s: exists (use --force to replace it)", path);
    if (!(info.st_mode & WRITE_BITS))
        return kvf__fail(ctx, KVF_EIO, "%s: is read-only, it will not be replaced", path);
    if (access(path, W_OK) < 0) return kvf__fail_errno(ctx, path, "write");
    return kvf__check_not_mapped(ctx, path);
}

/* Returns whether a folder's entry is read when the folder is an input: a file of a model,
 * tokenizer or adapter. Other files may be there too. */
static bool read_of_folder(const char *name)
{
    static const char *const BEGINS[] = {"config", "model",          "tokenizer", "vocab",
                                         "merges", "special_tokens", "adapter_"};

    for (size_t i = 0; i < sizeof BEGINS / sizeof BEGINS[0]; i++)
        if (!strncmp(name, BEGINS[i], strlen(BEGINS[i]))) return true;
    return false;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Follows the links of model caches, too. */
static bool folder_holds(const char *path, const struct stat *file)
{
    DIR *folder = opendir(path);
    const struct dirent *entry;
    struct stat info;
    bool found = false;

    while (folder && !found && (entry = readdir(folder)) != NULL)
        found = read_of_folder(entry->d_name) &&
                fstatat(dirfd(folder), entry->d_name, &info, 0) == 0 && same_file(&info, file);
    if (folder) closedir(folder);
    return found;
}

static bool reads(const char *input, const struct stat *file)
{
    struct stat info;

    if (stat(input, &info) < 0) return false;
    return same_file(&info, file) || (S_ISDIR(info.st_mode) && folder_holds(input, file));
}

kvf_status kvf__check_not_input(kvf_ctx *ctx, const char *out, const char *input)
{
    const char *equals = input ? strchr(input, '=') : NULL;
    struct stat info;

    if (!out || !input || stat(out, &info) < 0 || S_ISDIR(info.st_mode)) return KVF_OK;
    if (!reads(input, &info) && !(*input == '@' && reads(input + 1, &info)) &&
        !(equals && reads(equals + 1, &info)))
        return KVF_OK;
    return kvf__fail(ctx, KVF_EUSAGE, "%s: is read by this command, it will not be replaced", out);
}

kvf_status kvf__check_not_inputs(kvf_ctx *ctx, const char *out, const char *const *inputs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        KVF_TRY(kvf__check_not_input(ctx, out, inputs[i]));
    return KVF_OK;
}

bool kvf__is_at(const char *path, int fd)
{
    struct stat there, ours;

    return lstat(path, &there) == 0 && fstat(fd, &ours) == 0 && same_file(&there, &ours);
}

void kvf__temp_name(char *name)
{
    enum { DIGITS = 8 };
    uint32_t random = 0;

    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        random = (uint32_t)time(NULL) ^ (uint32_t)getpid() << 16;
    snprintf(name + strlen(name) - DIGITS, DIGITS + 1, "%08x", (unsigned)random);
}

/* Creates and locks a file that nothing else has open; -1 with errno. A cleaner may remove it
 * between the two steps. File systems without locks are accepted. */
static int make_temp(char *temp)
{
    enum { TRIES = 16 };

    for (int i = 0; i < TRIES; i++) {
        kvf__temp_name(temp);
        const int fd = open(temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (fd < 0 && errno != EEXIST) return -1;
        if (fd < 0) continue;
        if ((flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) && kvf__is_at(temp, fd))
            return fd;
        close(fd);
    }
    errno = EEXIST;
    return -1;
}

/* Registers the file in the context, for signal handlers, before it exists and until it is gone. If
 * there is no room it is written without. */
static void enter(kvf_ctx *ctx, char *temp)
{
    for (size_t i = 0; i < KVF__OUTFILES; i++)
        if (!ctx->temp[i]) {
            ctx->temp[i] = temp;
            return;
        }
}

static void leave(kvf__outfile *file)
{
    for (size_t i = 0; file->temp && i < KVF__OUTFILES; i++)
        if (file->ctx->temp[i] == file->temp) file->ctx->temp[i] = NULL;
    if (file->temp && file->fd >= 0) close(file->fd);
    kvf__free(file->temp);
    file->temp = NULL;
}

void kvf__ctx_drop_outputs(kvf_ctx *ctx)
{
    for (size_t i = 0; i < KVF__OUTFILES; i++)
        if (ctx->temp[i]) unlink(ctx->temp[i]);
}

kvf_status kvf__outfile_begin(kvf_ctx *ctx, const char *path, bool force, kvf__outfile *out)
{
    kvf__outfile file = {.ctx = ctx, .force = force, .fd = -1};

    KVF_TRY(check_target(ctx, path, force));
    KVF_TRY(kvf__strdup(ctx, path, &file.path));
    kvf_status st = kvf__asprintf(ctx, &file.temp, "%s" KVF__TEMP, path);
    if (!st) {
        enter(ctx, file.temp);
        file.fd = make_temp(file.temp);
        if (file.fd < 0) st = kvf__fail_errno(ctx, path, "write");
    }
    if (!st) {
        *out = file;
        return KVF_OK;
    }
    leave(&file);
    kvf__free(file.path);
    return st;
}

/* Flushes a folder. Some network file systems cannot, which is ignored. */
static kvf_status flush_folder(kvf_ctx *ctx, const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0) return kvf__fail_errno(ctx, path, "open");
    int failed = fsync(fd);
    if (failed && (errno == EINVAL || errno == ENOTSUP)) failed = 0;
    if (failed) kvf__fail_errno(ctx, path, "flush to disk");
    close(fd);
    return failed ? KVF_EIO : KVF_OK;
}

/* Flushes the file, and checks that its name still refers to it. */
static kvf_status flush_temp(kvf_ctx *ctx, const kvf__outfile *out)
{
    if (fsync(out->fd) < 0) return kvf__fail_errno(ctx, out->path, "flush to disk");
    if (kvf__is_at(out->temp, out->fd)) return KVF_OK;
    return kvf__fail(ctx, KVF_EIO, "%s: another program removed or replaced its temporary file %s",
                     out->path, out->temp);
}

/* Renames the file. Without force, a file that has appeared since begin() must not be lost. Where
 * RENAME_NOREPLACE is missing, a check and a plain rename leave a small gap. */
static kvf_status move_into_place(kvf_ctx *ctx, const kvf__outfile *out)
{
    if (!out->force) {
        if (renameat2(AT_FDCWD, out->temp, AT_FDCWD, out->path, RENAME_NOREPLACE) == 0)
            return KVF_OK;
        if (errno != EEXIST && errno != EINVAL && errno != ENOSYS)
            return kvf__fail_errno(ctx, out->path, "rename the finished file to it");
        KVF_TRY(check_target(ctx, out->path, false));
    }
    if (rename(out->temp, out->path) < 0)
        return kvf__fail_errno(ctx, out->path, "rename the finished file to it");
    return KVF_OK;
}

kvf_status kvf__check_output(kvf_ctx *ctx, const char *path, bool force)
{
    kvf__outfile probe = {0};
    KVF_TRY(kvf__outfile_begin(ctx, path, force, &probe));
    kvf__outfile_abort(&probe);
    return KVF_OK;
}

kvf_status kvf__outfile_commit(kvf_ctx *ctx, kvf__outfile *out)
{
    char *folder = NULL;

    kvf_status st = kvf__path_folder(ctx, out->path, &folder);
    if (!st) st = flush_temp(ctx, out);
    if (!st) st = move_into_place(ctx, out);
    if (!st) {
        leave(out); /* leaves nothing for abort to remove */
        st = flush_folder(ctx, folder);
    }
    kvf__free(folder);
    kvf__outfile_abort(out);
    return st;
}

void kvf__outfile_abort(kvf__outfile *out)
{
    if (out->temp && kvf__is_at(out->temp, out->fd)) unlink(out->temp);
    leave(out);
    kvf__free(out->path);
    *out = (kvf__outfile){0};
}

kvf_status kvf__write_pieces(kvf_ctx *ctx, const char *path, bool force, const kvf__bytes *pieces,
                             size_t n)
{
    kvf__outfile file = {0};
    kvf_status st = KVF_OK;

    KVF_TRY(kvf__outfile_begin(ctx, path, force, &file));
    for (size_t i = 0; i < n && !st; i++)
        st = kvf__write_all(ctx, path, file.fd, pieces[i].bytes, pieces[i].n);
    if (!st) st = kvf__outfile_commit(ctx, &file);
    kvf__outfile_abort(&file);
    return st;
}

kvf_status kvf__write_file(kvf_ctx *ctx, const char *path, bool force, const void *bytes, size_t n)
{
    return kvf__write_pieces(ctx, path, force, &(kvf__bytes){bytes, n}, 1);
}
