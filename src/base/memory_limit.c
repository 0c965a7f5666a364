/* Remaining memory, for callers that cannot fail: a control group's limit kills the process, and
 * oneDNN's generated code cannot report an error.
 *
 * Limits of the process (RLIMIT_DATA, RLIMIT_AS) and of the system (overcommit) are tested by a
 * mapping of that size, which is removed untouched. Limits of the process's control group and its
 * ancestors are read: memory.max of cgroup v2, memory.limit_in_bytes of v1 (Linux
 * Documentation/admin-guide). Pages of files count as free, because the kernel drops them first.
 * Swap of a group is ignored. The machine's own memory is MemAvailable and SwapFree of
 * /proc/meminfo. */
#include "ctx_int.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { CHECK_EVERY = 16 << 20 }; /* allocated bytes between two checks of the control group */

bool kvf__memory_allows(size_t bytes)
{
    void *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) return false;
    munmap(block, bytes);
    return true;
}

kvf_status kvf__memory_allows_threads(kvf_ctx *ctx)
{
    pthread_attr_t attr;
    size_t stack = 0;
    size_t more = ctx->threads > 1 ? (size_t)ctx->threads - 1 : 0;
    if (ctx->has_user && pthread_equal(ctx->user, pthread_self())) return KVF_OK;
    ctx->has_user = true;
    ctx->user = pthread_self();
    if (pthread_getattr_default_np(&attr)) return KVF_OK;
    pthread_attr_getstacksize(&attr, &stack);
    pthread_attr_destroy(&attr);
    if (!more || kvf__memory_allows(more * stack)) return KVF_OK;
    return kvf__fail(ctx, KVF_ENOMEM,
                     "out of memory: the stacks of %zu more threads take %zu MB (ulimit -s, or "
                     "fewer --threads)",
                     more, more * stack >> 20);
}

/* ---- control groups -------------------------------------------------------------------------- */

typedef struct version {
    const char *controller; /* name between the colons of its line in /proc/self/cgroup */
    const char *folder, *limit, *usage, *inactive, *active;
} version;
static const version VERSIONS[] = {
    {"", "", "memory.max", "memory.current", "inactive_file", "active_file"},
    {"memory", "/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file",
     "total_active_file"},
};
enum { PATH_BYTES = 1024 };

/* Returns -1 if there is no number ("max" is none). */
static int64_t read_number(const char *folder, const char *name)
{
    char path[2 * PATH_BYTES];
    long long value = -1;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%lld", &value) != 1) value = -1;
    if (file) fclose(file);
    return value;
}

static int64_t file_pages(const char *folder, const version *v)
{
    char path[2 * PATH_BYTES], key[64];
    long long value, sum = 0;
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    FILE *file = fopen(path, "re");
    while (file && fscanf(file, "%63s %lld", key, &value) == 2)
        if (!strcmp(key, v->inactive) || !strcmp(key, v->active)) sum += value;
    if (file) fclose(file);
    return sum;
}

static int64_t bytes_left(const char *folder, const version *v)
{
    int64_t limit = read_number(folder, v->limit), used = read_number(folder, v->usage);
    if (limit < 0 || used < 0) return INT64_MAX;
    used -= file_pages(folder, v);
    return used >= limit ? 0 : limit - (used > 0 ? used : 0);
}

/* Returns the least of the group at `path` and its ancestors. In a container the path may be that
 * of the host. */
static int64_t least_bytes_left(const char *root, const version *v, char *path)
{
    char folder[PATH_BYTES];
    int64_t least = INT64_MAX;
    for (;;) {
        snprintf(folder, sizeof folder, "%s%s%s", root, v->folder, path);
        int64_t capacity = bytes_left(folder, v);
        if (capacity < least) least = capacity;
        char *slash = strrchr(path, '/');
        if (!slash) return least;
        *slash = '\0';
    }
}

int64_t kvf__cgroup_bytes_left(const char *root, const char *groups)
{
    char line[PATH_BYTES];
    int64_t least = INT64_MAX;
    FILE *file = fopen(groups, "re");
    while (file && fgets(line, sizeof line, file)) {
        char *name = strchr(line, ':'), *path = name ? strchr(name + 1, ':') : NULL;
        if (!path) continue;
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        if (!strcmp(path, "/")) *path = '\0';
        for (size_t i = 0; i < sizeof VERSIONS / sizeof VERSIONS[0]; i++)
            if (!strcmp(name + 1, VERSIONS[i].controller)) {
                int64_t capacity = least_bytes_left(root, &VERSIONS[i], path);
                if (capacity < least) least = capacity;
            }
    }
    if (file) fclose(file);
    return least;
}

int64_t kvf__machine_bytes_left(const char *meminfo)
{
    char line[128];
    long long value, available = -1, swap = 0;
    FILE *file = fopen(meminfo, "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %lld", &value) == 1)
            available = value;
        else if (sscanf(line, "SwapFree: %lld", &value) == 1)
            swap = value;
    if (file) fclose(file);
    return available < 0 ? INT64_MAX : (available + swap) * 1024;
}

/* Checks the files only now and then: reading them takes as long as zeroing 100 KB. */
bool kvf__memory_left(kvf_ctx *ctx, size_t bytes, int64_t *capacity, const char **whose)
{
    if (!ctx) return true;
    ctx->unchecked += bytes;
    if (ctx->unchecked < CHECK_EVERY) return true;
    ctx->unchecked = 0;
    *whose = "the control group";
    *capacity = kvf__cgroup_bytes_left("/sys/fs/cgroup", "/proc/self/cgroup");
    const int64_t machine = kvf__machine_bytes_left("/proc/meminfo");
    if (machine < *capacity) *whose = "the machine", *capacity = machine;
    return *capacity == INT64_MAX || bytes <= (size_t)*capacity;
}
