/* Folders of prefixes (--prefix-dir): names of their files, and safe opening (prefix_dir.c). */
#ifndef KVF_PREFIX_DIR_H
#define KVF_PREFIX_DIR_H

#include "base_int.h"

#include <limits.h>

enum { KVF__MODEL_NAME = 255 };      /* most bytes of a name */
enum { KVF__MOST_MODELS = 1 << 20 }; /* most names of all folders */

/* A pass over the folders. */
typedef struct kvf__dir_walk {
    void (*found)(struct kvf__dir_walk *walk, const char *root, const char *name);
    void *user;
    bool partial;      /* a folder could not be read: names may be missing */
    kvf__buf refused;  /* first refused names, for a warning */
    int64_t n_refused; /* files without a usable name */
} kvf__dir_walk;
/* Calls `found` with each prefix file below a folder. Its name is the path below the folder without
 * ".h5". Files are not opened. Hidden files and linked folders are skipped. */
void kvf__dir_pass(kvf__dir_walk *walk, const char *root);
bool kvf__dir_is_name(const char *name);
/* Returns whether such a pass would find this name now. */
bool kvf__dir_has(const char *root, const char *name);
/* Resolves a path to a regular file below a folder's real path; false if it is none. */
bool kvf__dir_resolve(const char *root, const char *path, char real[PATH_MAX]);
/* Counts a file that cannot be served under its name. */
void kvf__dir_refuse(kvf__dir_walk *walk, const char *name);
/* Opens the regular file of a name; path: its path. EDATA: it leads out of the folder. ENOENT of
 * errno is reported as KVF_EIO with *gone. */
kvf_status kvf__dir_open(kvf_ctx *ctx, const char *root, const char *path, int *fd, bool *gone);

#endif
