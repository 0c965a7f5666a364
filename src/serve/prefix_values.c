/* Values of --prefix-dir. A file is read when a request names it, by the thread that reads
 * requests, and dropped in the order of last use where --prefix-memory needs the place. Each
 * request compares the file with the one that was read, so it gets the file's present content or an
 * error. A file has changed if inode, size or time differ. */
#include "prefix_cache_priv.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TRIM_EVERY = 16 };
static const double FRESH_SECONDS = 0.05; /* steps of the clock of file systems */

/* Returns whether so many bytes fit beside the prefixes in use, or beside all. */
static bool has_room(kvf__prefix_cache *cache, size_t bytes, bool beside_all)
{
    pthread_mutex_lock(&cache->lock);
    const size_t held = cache->bytes - (beside_all ? 0 : cache->idle);
    pthread_mutex_unlock(&cache->lock);
    return held + bytes <= (size_t)cache->options->prefix_memory;
}

bool kvf__prefix_cache_has_room(kvf__prefix_cache *cache, size_t bytes)
{
    return has_room(cache, bytes, false);
}

/* Drops the prefix that was used least recently; false: all are in use. */
static bool drop_one(kvf__prefix_cache *cache)
{
    kvf__cached_prefix *oldest = NULL;
    pthread_mutex_lock(&cache->lock);
    for (size_t i = cache->n_fixed; i < cache->n; i++) {
        kvf__cached_prefix *entry = cache->entries[i];
        if (entry->ref && entry->ref->uses == 1 && (!oldest || entry->used < oldest->used))
            oldest = entry;
    }
    cache->dropped += oldest != NULL;
    pthread_mutex_unlock(&cache->lock);
    if (oldest) kvf__prefix_set(cache, oldest, NULL);
    return oldest != NULL;
}

/* Makes room for so many bytes; false with *wait: others use them. */
static bool make_room(kvf__prefix_cache *cache, size_t bytes, size_t *wait)
{
    *wait = bytes;
    if (!has_room(cache, bytes, false)) return false;
    while (!has_room(cache, bytes, true) && drop_one(cache)) {
    }
    return true;
}

static bool refuse(kvf_ctx *ctx, kvf__prefix_cache *cache, const kvf__cached_prefix *entry,
                   const char *path, kvf__problem *problem)
{
    const char *line = kvf_ctx_error(ctx);
    const size_t n = strlen(path);
    if (!strncmp(line, path, n) && line[n] == ':') line += n + 1 + (line[n + 1] == ' ');
    pthread_mutex_lock(&cache->lock);
    cache->failed_loads++;
    pthread_mutex_unlock(&cache->lock);
    kvf__problem_set(problem, 500, "model", "the model \"%.80s\": %s", entry->name, line);
    return false;
}

static bool too_large(const kvf__prefix_cache *cache, const kvf__cached_prefix *entry, size_t bytes,
                      kvf__problem *problem)
{
    if (bytes <= (size_t)cache->options->prefix_memory) return false;
    kvf__problem_set(problem, 500, "model",
                     "the model \"%.80s\" needs %zu bytes, more than --prefix-memory", entry->name,
                     bytes);
    return true;
}

/* Reads the open file of an entry. */
static bool read_file(kvf_ctx *ctx, kvf__prefix_cache *cache, kvf__cached_prefix *entry, int fd,
                      size_t *wait, kvf__problem *problem)
{
    char path[32], *name = NULL;
    kvf__prefix_ref *ref = NULL;
    struct stat after;
    struct timespec now;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (fstat(fd, &entry->seen) || kvf__prefix_read(ctx, cache, entry, path, &ref))
        return refuse(ctx, cache, entry, path, problem);
    if (fstat(fd, &after) || !kvf__prefix_same_file(&after, &entry->seen)) {
        kvf__prefix_cache_put(cache, ref);
        return kvf__problem_set(problem, 503, "model",
                                "the file of \"%.80s\" was written to while it was read: try again",
                                entry->name);
    }
    entry->bytes = kvf__prefix_ref_bytes(ref);
    if (too_large(cache, entry, entry->bytes, problem) || !make_room(cache, entry->bytes, wait)) {
        kvf__prefix_cache_put(cache, ref);
        return false;
    }
    ref->bytes = entry->bytes;
    if (!kvf__strdup(ctx, entry->name, &name)) { /* the descriptor gets another file */
        kvf__free(ref->prefix->path);
        ref->prefix->path = name;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    entry->fresh = (double)(now.tv_sec - entry->seen.st_ctim.tv_sec) +
                       1e-9 * (double)(now.tv_nsec - entry->seen.st_ctim.tv_nsec) <
                   FRESH_SECONDS;
    kvf__prefix_set(cache, entry, ref);
    pthread_mutex_lock(&cache->lock);
    const bool trim = ++cache->loads % TRIM_EVERY == 0;
    pthread_mutex_unlock(&cache->lock);
    if (trim) kvf__free_kept(); /* dropped prefixes leave holes between other blocks */
    return true;
}

/* Estimates the memory of a file that was not read yet. */
static size_t need_of(const kvf__prefix_cache *cache, const kvf__cached_prefix *entry,
                      int64_t file_bytes)
{
    const int64_t most = cache->options->prefix_memory;
    if (entry->bytes) return entry->bytes;
    return (size_t)(file_bytes < most ? file_bytes : most);
}

bool kvf__prefix_bring(kvf_ctx *ctx, kvf__prefix_cache *cache, kvf__cached_prefix *entry,
                       size_t *wait, kvf__problem *problem)
{
    struct stat now;
    bool gone = false;
    int fd = -1;
    const bool there = !stat(entry->path, &now),
               same = there && kvf__prefix_same_file(&now, &entry->seen);
    if (same && entry->ref && !entry->fresh) return true;
    kvf__prefix_set(cache, entry, NULL);
    if (!same) entry->bytes = 0;
    if (too_large(cache, entry, entry->bytes, problem)) return false;
    if (!make_room(cache, need_of(cache, entry, there ? now.st_size : 0), wait)) return false;
    if (kvf__dir_open(ctx, entry->root, entry->path, &fd, &gone))
        return gone ? kvf__problem_no_model(problem, entry->name)
                    : refuse(ctx, cache, entry, entry->path, problem);
    const bool fine = read_file(ctx, cache, entry, fd, wait, problem);
    close(fd);
    return fine;
}
