/* A folder of files that are written together. */
#ifndef KVF_OUTFOLDER_H
#define KVF_OUTFOLDER_H

#include "base_int.h"

typedef struct kvf__folder_file {
    const char *name;
    kvf_status (*write)(kvf_ctx *ctx, const char *path, bool force, const void *content);
} kvf__folder_file;
typedef struct kvf__folder {
    const kvf__folder_file *files; /* [n], in the order in which they are written */
    size_t n;
    const char *word; /* "adapter files": of the message that asks for --force */
} kvf__folder;

/* A folder is whole or unchanged. In one that is there (EEXIST without force) only these files are
 * replaced; EIO where its file system cannot exchange two folders or has no hard links. */
kvf_status kvf__write_folder(kvf_ctx *ctx, const char *dir, bool force, const kvf__folder *folder,
                             const void *content);
/* A file that the folder is not to have; one that is not there is fine. */
kvf_status kvf__remove_file(kvf_ctx *ctx, const char *path);

#endif
