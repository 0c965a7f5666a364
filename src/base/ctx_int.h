/* The fields of a context. Private to src/base; other folders use base.h and base_int.h. */
#ifndef KVF_CTX_INT_H
#define KVF_CTX_INT_H

#include "sandbox.h"

#include <pthread.h>

enum { KVF__LINE_BYTES = 2048 };

enum { KVF__SEEN_FILES = 8 };

enum { KVF__OUTFILES = 8 };

struct kvf_ctx {
    int threads;
    const volatile int *stop; /* flag of the caller; NULL: none */
    bool defers_stop;
    bool has_user; /* a thread has computed; `user` is the last one */
    pthread_t user;
    kvf_log_fn log;
    void *log_user;
    void *(*alloc)(void *user, size_t bytes); /* NULL: malloc */
    void (*release)(void *user, void *memory);
    void *memory_user;
    uint64_t allocations;
    unsigned done;       /* kvf__once actions that have run, as bits */
    size_t unchecked;    /* bytes allocated since the last check of the control group's limit */
    int64_t fail_in;     /* number of allocations before one fails; -1: none fails */
    char *check_program; /* owned; NULL: files are not checked in a sandbox */
    bool in_sandbox;     /* this process is the sandbox */
    kvf__seen_file seen[KVF__SEEN_FILES];
    size_t n_seen;
    char *volatile temp[KVF__OUTFILES]; /* names of unfinished output files, borrowed */
    void *held;
    void (*leave)(void *held);
    bool (*stops)(void *user); /* condition of kvf__ctx_stop_when */
    void *stops_user;
    char error[KVF__LINE_BYTES];
};

/* Returns the number of cores this process may use: its affinity mask, limited by the CPU quota of
 * its control group. Processes of one launch on the same cores share them. */
int kvf__usable_cores(void);

/* Returns whether so many bytes may be allocated and written. If not: the bytes left, and whose
 * they are. */
bool kvf__memory_left(kvf_ctx *ctx, size_t bytes, int64_t *capacity, const char **whose);
/* Returns the bytes left in the control groups `groups` (in the format of /proc/self/cgroup) below
 * `root`. */
int64_t kvf__cgroup_bytes_left(const char *root, const char *groups);
/* Returns the bytes that a file in the format of /proc/meminfo says are left; INT64_MAX if none. */
int64_t kvf__machine_bytes_left(const char *meminfo);

/* Reports "PATH: cannot VERB: reason of errno"; returns KVF_EIO. */
kvf_status kvf__fail_errno(kvf_ctx *ctx, const char *path, const char *verb);

/* EUSAGE: this is a child of fork() whose parent computed with several threads (fork.c). */
kvf_status kvf__check_fork(kvf_ctx *ctx);

#endif
