/* Output folders: filled under a temporary name in the same parent, then renamed.
 *
 * An existing folder is exchanged with the new one in one step (RENAME_EXCHANGE), so no failure
 * mixes files of two exports. The new folder begins as a copy of the old one by hard links, in
 * which the export replaces its files. */
#include "outfolder.h"
#include "infile.h"
#include "outfile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static kvf_status write_files(kvf_ctx *ctx, const char *dir, bool force, const kvf__folder *folder,
                              const void *content)
{
    kvf_status st = KVF_OK;

    for (size_t i = 0; i < folder->n && !st; i++) {
        char *path = NULL;
        st = kvf__path_join(ctx, dir, folder->files[i].name, &path);
        if (!st) st = folder->files[i].write(ctx, path, force, content);
        kvf__free(path);
    }
    return st;
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *walk)
{
    (void)info;
    (void)type;
    (void)walk;
    remove(path);
    return 0;
}

/* Removes our own temporary folder as far as possible; its other files are links. */
static void remove_tree(const char *dir)
{
    nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- files that are carried over ------------------------------------------------------------- */

static int link_entries(const char *from, const char *to);

/* Makes a hard link, or a folder of hard links. */
static int link_entry(const char *from, const char *to)
{
    struct stat info;

    if (lstat(from, &info) < 0) return -1;
    if (!S_ISDIR(info.st_mode)) return linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
    if (mkdir(to, info.st_mode & 07777) < 0) return -1;
    return link_entries(from, to);
}

/* Returns -1 with errno on failure. */
static int link_entries(const char *from, const char *to)
{
    DIR *list = opendir(from);
    int failed = list ? 0 : -1;

    for (struct dirent *entry; !failed && (entry = readdir(list)) != NULL;) {
        const char *name = entry->d_name;
        char *old = NULL, *new = NULL;
        if (!strcmp(name, ".") || !strcmp(name, "..")) continue;
        failed = kvf__path_join(NULL, from, name, &old) || kvf__path_join(NULL, to, name, &new)
                     ? -1
                     : link_entry(old, new);
        kvf__free(old);
        kvf__free(new);
    }
    const int reason = errno;
    if (list) closedir(list);
    errno = reason;
    return failed;
}

/* ---- the two ways ---------------------------------------------------------------------------- */

/* Creates "DIR.tmp.RANDOM". */
static kvf_status make_beside(kvf_ctx *ctx, const char *dir, char **out)
{
    size_t n = strlen(dir);
    char *temp = NULL;

    while (n > 1 && dir[n - 1] == '/')
        n--;
    KVF_TRY(kvf__asprintf(ctx, &temp, "%.*s" KVF__TEMP, (int)n, dir));
    kvf__temp_name(temp);
    if (mkdir(temp, 0777) < 0) {
        kvf__free(temp);
        return kvf__fail(ctx, KVF_EIO, "%s: cannot make a folder beside it: %s", dir,
                         strerror(errno));
    }
    *out = temp;
    return KVF_OK;
}

static kvf_status write_new(kvf_ctx *ctx, const char *dir, const kvf__folder *folder,
                            const void *content)
{
    char *temp = NULL;

    KVF_TRY(make_beside(ctx, dir, &temp));
    kvf_status st = write_files(ctx, temp, false, folder, content);
    if (!st && renameat2(AT_FDCWD, temp, AT_FDCWD, dir, RENAME_NOREPLACE) < 0 &&
        /* without NOREPLACE: replaces an empty folder only */
        (errno == EEXIST || rename(temp, dir) < 0))
        st = kvf__fail(ctx, KVF_EIO, "%s: cannot rename the finished folder to it: %s", dir,
                       strerror(errno));
    if (st) remove_tree(temp);
    kvf__free(temp);
    return st;
}

static kvf_status copy(kvf_ctx *ctx, const char *dir, const char *temp)
{
    struct stat info;

    if (stat(dir, &info) == 0 && chmod(temp, info.st_mode & 07777) == 0 &&
        link_entries(dir, temp) == 0)
        return KVF_OK;
    return kvf__fail(ctx, KVF_EIO, "%s: its other files cannot be kept (%s); use a new folder", dir,
                     strerror(errno));
}

static kvf_status exchange(kvf_ctx *ctx, const char *dir, const char *temp)
{
    if (renameat2(AT_FDCWD, temp, AT_FDCWD, dir, RENAME_EXCHANGE) == 0) return KVF_OK;
    return kvf__fail(ctx, KVF_EIO, "%s: cannot be replaced in one step (%s); use a new folder", dir,
                     strerror(errno));
}

/* the folder itself if the path is a link or "." */
static kvf_status write_over(kvf_ctx *ctx, const char *path, const kvf__folder *folder,
                             const void *content)
{
    char *dir = realpath(path, NULL), *temp = NULL;
    kvf_status st = dir ? KVF_OK : kvf__fail(ctx, KVF_EIO, "%s: %s", path, strerror(errno));

    if (!st) st = make_beside(ctx, dir, &temp);
    if (!st) st = copy(ctx, dir, temp);
    if (!st) st = write_files(ctx, temp, true, folder, content);
    if (!st) st = exchange(ctx, dir, temp);
    if (temp) remove_tree(temp); /* the old folder, or the unfinished new one */
    kvf__free(temp);
    free(dir);
    return st;
}

kvf_status kvf__write_folder(kvf_ctx *ctx, const char *dir, bool force, const kvf__folder *folder,
                             const void *content)
{
    if (!kvf__exists(dir)) return write_new(ctx, dir, folder, content);
    if (!kvf__is_dir(dir))
        return kvf__fail(ctx, KVF_EIO, "%s: is a file, want a folder to write", dir);
    if (!force)
        return kvf__fail(ctx, KVF_EEXIST, "%s: exists (use --force to replace the %s in it)", dir,
                         folder->word);
    return write_over(ctx, dir, folder, content);
}

kvf_status kvf__remove_file(kvf_ctx *ctx, const char *path)
{
    if (unlink(path) == 0 || errno == ENOENT) return KVF_OK;
    return kvf__fail(ctx, KVF_EIO, "%s: cannot remove it: %s", path, strerror(errno));
}
