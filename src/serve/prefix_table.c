/* The table of prefixes: entries by name, and counts of their uses. A prefix that is replaced is
 * freed after its last use. */
#include "prefix_cache_priv.h"

#include <string.h>

kvf__prefix_ref *kvf__prefix_hold(kvf__prefix_cache *cache, const kvf__cached_prefix *entry)
{
    kvf__prefix_ref *ref = entry->ref;
    if (ref && ref->uses++ == 1) cache->idle -= ref->bytes;
    return ref;
}

void kvf__prefix_cache_put(kvf__prefix_cache *cache, kvf__prefix_ref *ref)
{
    if (!ref) return;
    pthread_mutex_lock(&cache->lock);
    const int64_t uses = --ref->uses;
    if (!uses) cache->bytes -= ref->bytes;
    if (uses == 1 && ref->kept) cache->idle += ref->bytes;
    pthread_mutex_unlock(&cache->lock);
    if (!uses) kvf__prefix_ref_free(ref);
}

void kvf__prefix_set(kvf__prefix_cache *cache, kvf__cached_prefix *entry, kvf__prefix_ref *ref)
{
    pthread_mutex_lock(&cache->lock);
    kvf__prefix_ref *before = entry->ref;
    entry->ref = ref;
    if (ref) {
        ref->kept = true;
        cache->bytes += ref->bytes;
        cache->idle += ref->bytes;
    }
    if (before) {
        before->kept = false;
        if (before->uses == 1) cache->idle -= before->bytes;
    }
    pthread_mutex_unlock(&cache->lock);
    kvf__prefix_cache_put(cache, before);
}

kvf_status kvf__prefix_read(kvf_ctx *ctx, const kvf__prefix_cache *cache,
                            const kvf__cached_prefix *entry, const char *path,
                            kvf__prefix_ref **out)
{
    return kvf__prefix_ref_open(ctx, cache->base, cache->options, entry->name, path, entry->head,
                                out);
}

kvf_status kvf__prefix_add(kvf_ctx *ctx, kvf__prefix_cache *cache, const char *name,
                           const char *path, kvf__cached_prefix **out)
{
    const size_t n = strlen(name) + 1, m = path ? strlen(path) + 1 : 0;
    kvf__cached_prefix *entry = NULL;
    KVF_TRY(kvf__reserve(ctx, &cache->entries, &cache->capacity, cache->n + 1, sizeof entry));
    KVF_TRY(kvf__alloc(ctx, sizeof *entry + n + m, &entry));
    memcpy(entry->name, name, n);
    if (path) entry->path = memcpy(entry->name + n, path, m);
    cache->entries[cache->n++] = *out = entry;
    return KVF_OK;
}

kvf__cached_prefix *kvf__prefix_find(const kvf__prefix_cache *cache, const char *name)
{
    int64_t at = -1;
    kvf__map_get(&cache->index, name, strlen(name), &at);
    return at < 0 ? NULL : cache->entries[at];
}

bool kvf__prefix_same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}
