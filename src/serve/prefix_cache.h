/* Prefixes by name, read again when their files are replaced (prefix_cache.c). */
#ifndef KVF_PREFIX_CACHE_H
#define KVF_PREFIX_CACHE_H

#include <kvfold/serve.h>
#include <pthread.h>
#include <sys/stat.h>

#include "renderer.h"

/* A prefix as a file had it, and how its prompts are rendered; freed after its last use. */
typedef struct kvf__prefix_ref {
    kvf_prefix *prefix; /* NULL: the bare base */
    kvf__head *head;    /* of lm, that the prefix brings; NULL: none */
    kvf_base *own_base; /* that has the values of a prefix which changes it; NULL: the server's */
    /* whose head classifies: the prefix, or what the base file keeps; NULL: nothing does */
    kvf_prefix *classifier;
    double train_loss, valid_loss; /* of a run, at the step that is served; NaN: not known */
    kvf__renderer renderer;
    kvf__ends ends;
    int64_t uses; /* under the cache's lock */
} kvf__prefix_ref;

typedef struct kvf__cached_prefix {
    const char *name;
    kvf__prefix_ref *ref; /* under the cache's lock */
    struct stat seen;     /* of the file, as last tried */
} kvf__cached_prefix;

typedef struct kvf__prefix_cache {
    const kvf_serve_options *options;
    const kvf_base *base;
    size_t n;
    kvf__cached_prefix *entries; /* [n]: the prefixes in their order, the base last */
    pthread_mutex_t lock;
    int64_t reloads, failed_reloads;
    double looked; /* clock of the last look at the files */
} kvf__prefix_cache;
kvf_status kvf__prefix_cache_init(kvf_ctx *ctx, kvf_base *base, const kvf_serve_options *options,
                                  kvf__prefix_cache *out);
void kvf__prefix_cache_done(kvf__prefix_cache *cache);
/* Reads replaced files again; looks at most every half second. A file that cannot be used is warned
 * about, and the prefix stays. */
void kvf__prefix_cache_refresh(kvf_ctx *ctx, kvf__prefix_cache *cache);
/* Any thread. Index of a name, -1: there is none; its current prefix, to be put back. */
int64_t kvf__prefix_cache_find(const kvf__prefix_cache *cache, const char *name);
kvf__prefix_ref *kvf__prefix_cache_get(kvf__prefix_cache *cache, int64_t i);
void kvf__prefix_cache_put(kvf__prefix_cache *cache, kvf__prefix_ref *ref); /* NULL is fine */

#endif
