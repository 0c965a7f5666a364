/* Files that another process reads first, so that a crash of the parsing library harms nothing. */
#ifndef KVF_SANDBOX_H
#define KVF_SANDBOX_H

#include "infile.h"

#include <time.h>

/* Which file it was, and when: written to, and (by a clock that nobody sets) changed in any way. */
typedef struct kvf__seen_file {
    uint64_t device, inode;
    int64_t bytes;
    struct timespec written, changed;
} kvf__seen_file;
/* Has ctx's check_program, if it has one, read the open file in a sandbox, in two steps, for what
 * can be done meanwhile. After a begin without an error comes end, which is OK where the file
 * passed now or before, or drop, which wants no answer any more. */
typedef struct kvf__check {
    const kvf__mapfile *map; /* not ours */
    kvf__seen_file file;
    pid_t process; /* 0: none */
    int answers;
} kvf__check;
kvf_status kvf__check_begin(kvf_ctx *ctx, const kvf__mapfile *map, kvf__check *check);
kvf_status kvf__check_end(kvf_ctx *ctx, kvf__check *check);
void kvf__check_drop(kvf__check *check);
/* Whether it passed before and is still the same. */
bool kvf__sandbox_passed(const kvf_ctx *ctx, const kvf__mapfile *map);
void kvf__sandbox_trust(kvf_ctx *ctx, int fd); /* this process wrote it itself */
/* This process is the trial: values too large to be read twice may be left out. */
void kvf__sandbox_begin(kvf_ctx *ctx);
bool kvf__in_sandbox(const kvf_ctx *ctx);

#endif
