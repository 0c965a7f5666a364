/* The inside of a context. Private to src/base: all others go through base.h and base_int.h. */
#ifndef KVF_CTX_INT_H
#define KVF_CTX_INT_H

#include "base_int.h"

enum { KVF__LINE_BYTES = 2048 };

/* A file that passed its trial. */
typedef struct kvf__seen_file {
    uint64_t device, inode;
    int64_t bytes, seconds, nanoseconds;
} kvf__seen_file;
enum { KVF__SEEN_FILES = 8 };

enum { KVF__OUTFILES = 8 };

struct kvf_ctx {
    int threads;
    kvf_log_fn log;
    void *log_user;
    uint64_t allocations;
    int64_t fail_in;     /* allocations until one fails; -1: none will */
    char *check_program; /* owned; NULL: files are not tried */
    bool is_screening;   /* this process is the one that tries them */
    kvf__seen_file seen[KVF__SEEN_FILES];
    size_t n_seen;
    char *volatile temp[KVF__OUTFILES]; /* views: temporaries of outputs that are not whole yet */
    void *held;
    void (*leave)(void *held);
    char error[KVF__LINE_BYTES];
};

/* The cores this process may use: its affinity mask, cut down to the CPU quota of its control
 * group, and to its share where others of one launch use the same ones. */
int kvf__usable_cores(void);

/* "PATH: cannot VERB: reason of errno"; returns KVF_EIO. */
kvf_status kvf__fail_errno(kvf_ctx *ctx, const char *path, const char *verb);

#endif
