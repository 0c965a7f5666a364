/* Folders of prefixes. A pass reads the folders alone, so ten thousand files take some
 * milliseconds. Files are opened by path, and the system's name of the open file is then compared
 * with the folder: a link that leads out of it is refused, also one that was placed after the pass.
 */
#include "prefix_dir.h"
#include "utf8.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char ENDING[] = ".h5";
enum { ENDING_BYTES = sizeof ENDING - 1, DEPTH = 32, SHOWN = 3, SHOWN_BYTES = 60 };

/* A path below the root; one that is too long is kept only as far as it is shown. */
typedef struct place {
    const char *root;
    char path[KVF__MODEL_NAME + ENDING_BYTES + 1];
    size_t n;
} place;

void kvf__dir_refuse(kvf__dir_walk *walk, const char *name)
{
    if (walk->n_refused++ >= SHOWN) return;
    const size_t n = strlen(name), shown = kvf__utf8_valid(name, n < SHOWN_BYTES ? n : SHOWN_BYTES);
    const size_t from = walk->refused.n;
    if (kvf__buf_printf(NULL, &walk->refused, "%s\"%.*s%s\"", from ? ", " : "", (int)shown, name,
                        shown < n ? "..." : ""))
        return;
    for (size_t i = from; i < walk->refused.n; i++)
        if ((unsigned char)walk->refused.data[i] < ' ') walk->refused.data[i] = '?';
}

bool kvf__dir_is_name(const char *name)
{
    const size_t n = strlen(name);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)name[i] < ' ' || name[i] == 0x7F) return false;
    return n && n <= KVF__MODEL_NAME && kvf__utf8_valid(name, n) == n;
}

/* Returns whether a real path is below a folder's real path. */
static bool is_below(const char *root, const char *path)
{
    const size_t n = strlen(root);
    return !strncmp(root, path, n) && (path[n] == '/' || !strcmp(root, "/"));
}

bool kvf__dir_resolve(const char *root, const char *path, char real[PATH_MAX])
{
    struct stat info;
    return realpath(path, real) && is_below(root, real) && !stat(real, &info) &&
           S_ISREG(info.st_mode);
}

static bool link_stays(const place *at)
{
    char path[PATH_MAX], real[PATH_MAX];
    const int n = snprintf(path, sizeof path, "%s/%s", at->root, at->path);
    return n < (int)sizeof path && kvf__dir_resolve(at->root, path, real);
}

static unsigned char type_of(int folder, const struct dirent *entry)
{
    struct stat info;
    if (entry->d_type != DT_UNKNOWN) return entry->d_type;
    if (fstatat(folder, entry->d_name, &info, AT_SYMLINK_NOFOLLOW)) return DT_UNKNOWN;
    return S_ISREG(info.st_mode)   ? DT_REG
           : S_ISDIR(info.st_mode) ? DT_DIR
           : S_ISLNK(info.st_mode) ? DT_LNK
                                   : DT_UNKNOWN;
}

/* Adds a file that ends in ".h5". */
static void add_file(kvf__dir_walk *walk, place *at, bool fits, bool link)
{
    if (!fits || (link && !link_stays(at))) {
        kvf__dir_refuse(walk, at->path);
        return;
    }
    at->path[at->n - ENDING_BYTES] = 0;
    if (kvf__dir_is_name(at->path))
        walk->found(walk, at->root, at->path);
    else
        kvf__dir_refuse(walk, at->path);
}

static void walk_folder(kvf__dir_walk *walk, place *at, int fd, int depth);

static void visit(kvf__dir_walk *walk, place *at, int folder, const struct dirent *entry, int depth)
{
    const size_t before = at->n, n = strlen(entry->d_name);
    const bool file = n > ENDING_BYTES && !strcmp(entry->d_name + n - ENDING_BYTES, ENDING);
    const unsigned char type = type_of(folder, entry);
    if (type != DT_DIR && !(file && (type == DT_REG || type == DT_LNK))) return;
    const int more = snprintf(at->path + before, sizeof at->path - before, "%s%s",
                              before ? "/" : "", entry->d_name);
    const bool fits = (size_t)more < sizeof at->path - before;
    at->n = fits ? before + (size_t)more : before;
    if (type != DT_DIR) {
        add_file(walk, at, fits, type == DT_LNK);
    } else if (!fits || depth == DEPTH) {
        kvf__dir_refuse(walk, at->path);
    } else {
        const int fd = openat(folder, entry->d_name,
                              O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        walk_folder(walk, at, fd, depth + 1);
    }
    at->n = before;
    at->path[before] = 0;
}

/* Takes over the descriptor; -1: errno has the reason. */
static void walk_folder(kvf__dir_walk *walk, place *at, int fd, int depth)
{
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (!folder) {
        walk->partial |= depth == 0 || !(errno == ENOENT || errno == EACCES || errno == ENOTDIR);
        if (fd >= 0) close(fd);
        return;
    }
    for (const struct dirent *entry; errno = 0, (entry = readdir(folder)) != NULL;)
        if (entry->d_name[0] != '.') visit(walk, at, fd, entry, depth);
    walk->partial |= errno != 0;
    closedir(folder);
}

void kvf__dir_pass(kvf__dir_walk *walk, const char *root)
{
    place at = {.root = root};
    walk_folder(walk, &at, open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC), 0);
}

bool kvf__dir_has(const char *root, const char *name)
{
    char path[PATH_MAX], real[PATH_MAX];
    struct stat info;
    place at = {.root = root};
    int depth = 0;
    if (!kvf__dir_is_name(name)) return false;
    for (const char *c = name; *c; c++)
        depth += *c == '/';
    snprintf(at.path, sizeof at.path, "%s%s", name, ENDING);
    if (*at.path == '.' || strstr(at.path, "/.")) return false;
    const int n = snprintf(path, sizeof path, "%s/%s", root, at.path);
    if (depth > DEPTH || n >= (int)sizeof path || lstat(path, &info)) return false;
    if (S_ISLNK(info.st_mode) ? !link_stays(&at) : !S_ISREG(info.st_mode)) return false;
    *strrchr(path, '/') = 0; /* a folder, reached without links and by its only spelling */
    return realpath(path, real) && !strcmp(path, real);
}

/* Checks an open file. */
static kvf_status check_file(kvf_ctx *ctx, const char *root, int fd)
{
    char link[64], real[PATH_MAX];
    struct stat info;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, real, sizeof real - 1);
    if (n < 0 || fstat(fd, &info)) return kvf__fail(ctx, KVF_EIO, "%s", strerror(errno));
    real[n] = 0;
    if (!is_below(root, real)) return kvf__fail(ctx, KVF_EDATA, "the link leaves the folder");
    if (!S_ISREG(info.st_mode)) return kvf__fail(ctx, KVF_EDATA, "is no regular file");
    return KVF_OK;
}

kvf_status kvf__dir_open(kvf_ctx *ctx, const char *root, const char *path, int *out, bool *gone)
{
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    *gone = fd < 0 && (errno == ENOENT || errno == ENOTDIR);
    if (fd < 0) return kvf__fail(ctx, KVF_EIO, "cannot open: %s", strerror(errno));
    const kvf_status st = check_file(ctx, root, fd);
    if (st) close(fd);
    if (!st) *out = fd;
    return st;
}
