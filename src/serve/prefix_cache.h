/* Prefixes by name, read again when their files change (prefix_cache.c). */
#ifndef KVF_PREFIX_CACHE_H
#define KVF_PREFIX_CACHE_H

#include <pthread.h>
#include <sys/stat.h>

#include "map.h"
#include "prefix_dir.h"
#include "prefix_ref.h"
#include "request.h"

/* A model. Entries of folders are created and freed by the reading thread. */
typedef struct kvf__cached_prefix {
    const char *path;     /* file; NULL: the base */
    const char *root;     /* folder of --prefix-dir; NULL: command line */
    const char *head;     /* head to use; NULL: the only one */
    kvf__prefix_ref *ref; /* protected by the cache's lock; NULL: not read yet */
    struct stat seen;     /* state of the file at the last attempt */
    size_t bytes;         /* memory after the last read; 0: unknown */
    int64_t used, pass;   /* counts of the last use and of the last pass that found it */
    bool alias;           /* named at run time; the path does not follow from the name */
    bool hidden;          /* taken away */
    bool fresh;           /* the file had changed just before it was read: seen may be too old */
    char name[];
} kvf__cached_prefix;

typedef struct kvf__prefix_cache {
    const kvf_serve_options *options;
    const kvf_base *base;
    char **roots; /* [options->n_prefix_dirs] real paths */
    /* The table: [n], the command line's prefixes in their order, the base, then names of folders
     * in byte order. Changed by the reading thread, under the lock. */
    kvf__cached_prefix **entries;
    size_t n, n_fixed, capacity;
    kvf__map index; /* positions by name */
    pthread_mutex_t lock;
    int64_t reloads, failed_reloads;      /* files of the command line */
    int64_t loads, failed_loads, dropped; /* files of folders; protected by the lock */
    size_t bytes, idle;                   /* memory of these; the part that no request uses */
    kvf__buf note;                        /* warning to be logged; protected by the lock */
    int64_t used, passes, n_refused;      /* used by the reading thread */
    double looked;                        /* clock of the last check of the command line's files */
    double passed;                        /* clock of the last pass over folders */
} kvf__prefix_cache;
kvf_status kvf__prefix_cache_init(kvf_ctx *ctx, kvf_base *base, const kvf_serve_options *options,
                                  kvf__prefix_cache *out);
void kvf__prefix_cache_done(kvf__prefix_cache *cache);
/* Reads changed files of the command line again, checking at most every half second. A file that
 * cannot be used causes a warning, and the old prefix stays. */
void kvf__prefix_cache_refresh(kvf_ctx *ctx, kvf__prefix_cache *cache);
/* Looks for new and removed files of folders, at most every `seconds`. This and the next function
 * are called by the reading thread. */
void kvf__prefix_cache_look(kvf_ctx *ctx, kvf__prefix_cache *cache, double seconds);
/* Returns the current prefix of a model (NULL: of the base), to be released by put, and reads it if
 * needed. False with the problem, or without one: *wait bytes are in use by other requests. */
bool kvf__prefix_cache_use(kvf_ctx *ctx, kvf__prefix_cache *cache, const char *name,
                           kvf__prefix_ref **out, size_t *wait, kvf__problem *problem);
bool kvf__prefix_cache_has_room(kvf__prefix_cache *cache, size_t bytes);
/* Serves a file below a folder of --prefix-dir under a name, or a name again that was taken away.
 * Called by the reading thread, as the next function. */
bool kvf__prefix_cache_load(kvf_ctx *ctx, kvf__prefix_cache *cache, const char *name,
                            const char *path, kvf__problem *problem);
/* Takes a name of a folder away, until it is loaded again or the file is removed. */
bool kvf__prefix_cache_unload(kvf__prefix_cache *cache, const char *name, kvf__problem *problem);
/* May be called from any thread, as the functions below. NULL: does nothing. */
void kvf__prefix_cache_put(kvf__prefix_cache *cache, kvf__prefix_ref *ref);

/* A model as it is listed. */
typedef struct kvf__listed {
    char name[KVF__MODEL_NAME + 1];
    bool prefix;
    kvf__prefix_ref *ref; /* to be released by put; NULL: not read yet */
} kvf__listed;
bool kvf__prefix_cache_show(kvf__prefix_cache *cache, const char *name, kvf__listed *out);
/* Lists up to `most` models after a name (NULL: from the first on); returns their number. */
size_t kvf__prefix_cache_list(kvf__prefix_cache *cache, const char *after, size_t most,
                              kvf__listed *out);
typedef struct kvf__prefix_counts {
    int64_t loads, failed_loads, dropped, names, bytes;
} kvf__prefix_counts;
kvf__prefix_counts kvf__prefix_cache_counts(kvf__prefix_cache *cache);

#endif
