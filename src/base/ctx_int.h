/* The inside of a context. Private to src/base: all others go through base.h and base_int.h. */
#ifndef KVF_CTX_INT_H
#define KVF_CTX_INT_H

#include "sandbox.h"

#include <pthread.h>

enum { KVF__LINE_BYTES = 2048 };

enum { KVF__SEEN_FILES = 8 };

enum { KVF__OUTFILES = 8 };

struct kvf_ctx {
    int threads;
    const volatile int *stop; /* the caller's; NULL: none */
    bool defers_stop;
    bool has_user; /* a thread has computed: the last one is `user` */
    pthread_t user;
    kvf_log_fn log;
    void *log_user;
    uint64_t allocations;
    unsigned done;       /* bits of kvf__once */
    size_t unchecked;    /* bytes taken since the control group's limit was looked at */
    int64_t fail_in;     /* allocations until one fails; -1: none will */
    char *check_program; /* owned; NULL: files are not tried */
    bool in_sandbox;     /* this process is the one that tries them */
    kvf__seen_file seen[KVF__SEEN_FILES];
    size_t n_seen;
    char *volatile temp[KVF__OUTFILES]; /* views: temporaries of outputs that are not whole yet */
    void *held;
    void (*leave)(void *held);
    bool (*stops)(void *user); /* kvf__ctx_stop_when */
    void *stops_user;
    char error[KVF__LINE_BYTES];
};

/* The cores this process may use: its affinity mask, cut down to the CPU quota of its control
 * group, and to its share where others of one launch use the same ones. */
int kvf__usable_cores(void);

/* May so many bytes be taken and written to? *room: what the control groups leave, if they were
 * looked at, else INT64_MAX. */
bool kvf__group_allows(kvf_ctx *ctx, size_t bytes, int64_t *capacity);
/* What the groups of `groups` (as /proc/self/cgroup lists them) below `root` leave. */
int64_t kvf__cgroup_bytes_left(const char *root, const char *groups);

/* "PATH: cannot VERB: reason of errno"; returns KVF_EIO. */
kvf_status kvf__fail_errno(kvf_ctx *ctx, const char *path, const char *verb);

/* EUSAGE in a child of fork() whose parent computed with several threads (fork.c). */
kvf_status kvf__check_fork(kvf_ctx *ctx);

#endif
