/* Folders that are written: filled under another name, then renamed. */
#include "outfolder.h"
#include "infile.h"

#include <errno.h>
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

/* Best effort: removes what write_files may have left, then the folder. */
static void remove_folder(const char *dir, const kvf__folder *folder)
{
    for (size_t i = 0; i < folder->n; i++) {
        char *path = NULL;
        if (kvf__path_join(NULL, dir, folder->files[i].name, &path) == KVF_OK) unlink(path);
        kvf__free(path);
    }
    rmdir(dir);
}

/* dir by renaming temp, which is made and filled. */
static kvf_status fill_and_rename(kvf_ctx *ctx, const char *dir, const char *bare, const char *temp,
                                  const kvf__folder *folder, const void *content)
{
    remove_folder(temp, folder); /* our own leftover: the name carries our process id */
    if (mkdir(temp, 0777) < 0)
        return kvf__fail(ctx, KVF_EIO, "%s: cannot make the folder: %s", dir, strerror(errno));
    kvf_status st = write_files(ctx, temp, false, folder, content);
    if (!st && rename(temp, bare) < 0)
        st = kvf__fail(ctx, KVF_EIO, "%s: cannot rename the finished folder to it: %s", dir,
                       strerror(errno));
    if (st) remove_folder(temp, folder);
    return st;
}

static kvf_status write_new(kvf_ctx *ctx, const char *dir, const kvf__folder *folder,
                            const void *content)
{
    char *bare = NULL, *temp = NULL;
    size_t n = strlen(dir);

    while (n > 1 && dir[n - 1] == '/')
        n--;
    kvf_status st = kvf__strndup(ctx, dir, n, &bare);
    if (!st) st = kvf__asprintf(ctx, &temp, "%s.tmp.%ld", bare, (long)getpid());
    if (!st) st = fill_and_rename(ctx, dir, bare, temp, folder, content);
    kvf__free(temp);
    kvf__free(bare);
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
    return write_files(ctx, dir, true, folder, content);
}

kvf_status kvf__remove_file(kvf_ctx *ctx, const char *path)
{
    if (unlink(path) == 0 || errno == ENOENT) return KVF_OK;
    return kvf__fail(ctx, KVF_EIO, "%s: cannot remove it: %s", path, strerror(errno));
}
