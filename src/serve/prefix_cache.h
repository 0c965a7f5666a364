/* Prefixes by name, read again when their files change (prefix_cache.c). */
#ifndef KVF_PREFIX_CACHE_H
#define KVF_PREFIX_CACHE_H

#include <kvfold/serve.h>
#include <pthread.h>
#include <sys/stat.h>

#include "renderer.h"

/* A loaded prefix and the rendering of its prompts; freed after its last use. */
typedef struct kvf__prefix_ref {
    kvf_prefix *prefix; /* NULL: the bare base */
    kvf__head *head;    /* language-model head of the prefix; NULL: none */
    kvf_base *own_base; /* base with the values of a prefix that changes it; NULL: the server's base
                         */
    /* owner of the classification head: the prefix, or the base file; NULL: none */
    kvf_prefix *classifier;
    double train_loss, valid_loss; /* losses of a run at the served step; NaN: unknown */
    kvf__renderer renderer;
    kvf__ends ends;
    int64_t uses; /* protected by the cache's lock */
} kvf__prefix_ref;

typedef struct kvf__cached_prefix {
    const char *name;
    kvf__prefix_ref *ref; /* protected by the cache's lock */
    struct stat seen;     /* state of the file at the last attempt */
} kvf__cached_prefix;

typedef struct kvf__prefix_cache {
    const kvf_serve_options *options;
    const kvf_base *base;
    size_t n;
    kvf__cached_prefix *entries; /* [n] the prefixes in their order, then the base */
    pthread_mutex_t lock;
    int64_t reloads, failed_reloads;
    double looked; /* clock of the last check of the files */
} kvf__prefix_cache;
kvf_status kvf__prefix_cache_init(kvf_ctx *ctx, kvf_base *base, const kvf_serve_options *options,
                                  kvf__prefix_cache *out);
void kvf__prefix_cache_done(kvf__prefix_cache *cache);
/* Reads changed files again, checking at most every half second. A file that cannot be used causes
 * a warning, and the old prefix stays. */
void kvf__prefix_cache_refresh(kvf_ctx *ctx, kvf__prefix_cache *cache);
/* Returns the index of a name, or -1; returns its current prefix, to be released by put. May be
 * called from any thread. */
int64_t kvf__prefix_cache_find(const kvf__prefix_cache *cache, const char *name);
kvf__prefix_ref *kvf__prefix_cache_get(kvf__prefix_cache *cache, int64_t i);
void kvf__prefix_cache_put(kvf__prefix_cache *cache, kvf__prefix_ref *ref); /* NULL: does nothing */

#endif
