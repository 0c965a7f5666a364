/* Files that another process reads first, so that a crash of the parsing library harms nothing. */
#ifndef KVF_SANDBOX_H
#define KVF_SANDBOX_H

#include "infile.h"

#include <time.h>

/* Identity of a checked file, with the times of its last write and (ctime, which cannot be set)
 * last change. */
typedef struct kvf__seen_file {
    uint64_t device, inode;
    int64_t bytes;
    struct timespec written, changed;
} kvf__seen_file;
/* Checks the open file in a sandbox, with ctx's check_program if it has one. Two steps allow other
 * work in between: after a successful begin comes end, which is OK if the file passed now or
 * before, or drop, which abandons the check. */
typedef struct kvf__check {
    const kvf__mapfile *map; /* borrowed */
    kvf__seen_file file;
    pid_t process; /* 0: none */
    int answers;
} kvf__check;
kvf_status kvf__check_begin(kvf_ctx *ctx, const kvf__mapfile *map, kvf__check *check);
kvf_status kvf__check_end(kvf_ctx *ctx, kvf__check *check);
void kvf__check_drop(kvf__check *check);
/* Returns whether the file passed before and is unchanged. */
bool kvf__sandbox_passed(const kvf_ctx *ctx, const kvf__mapfile *map);
const char *kvf__ctx_check_program(const kvf_ctx *ctx); /* NULL: none */
void kvf__sandbox_trust(kvf_ctx *ctx, int fd); /* marks a file that this process wrote */
/* Marks this process as the sandbox: large values may be skipped, since they are read again. */
void kvf__sandbox_begin(kvf_ctx *ctx);
bool kvf__in_sandbox(const kvf_ctx *ctx);

#endif
