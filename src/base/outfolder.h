/* A folder of files that are written together. */
#ifndef KVF_OUTFOLDER_H
#define KVF_OUTFOLDER_H

#include "base_int.h"

typedef struct kvf__folder_file {
    const char *name;
    kvf_status (*write)(kvf_ctx *ctx, const char *path, bool force, const void *content);
} kvf__folder_file;
typedef struct kvf__folder {
    const kvf__folder_file *files; /* [n], in the order of writing */
    size_t n;
    const char *word; /* "adapter files": used in the message that mentions --force */
} kvf__folder;

/* Writes a folder, whole or unchanged. In an existing folder (EEXIST without force) only these
 * files are replaced. EIO: its file system cannot exchange two folders or has no hard links. */
kvf_status kvf__write_folder(kvf_ctx *ctx, const char *dir, bool force, const kvf__folder *folder,
                             const void *content);
/* Removes a file that the folder must not have; a missing file is no error. */
kvf_status kvf__remove_file(kvf_ctx *ctx, const char *path);

#endif
