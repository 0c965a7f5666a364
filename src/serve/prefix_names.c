/* Names of --prefix-dir: passes over the folders find new and removed files, a request finds its
 * own file by its path, and clients give and take names at run time. */
#include "prefix_cache_priv.h"

#include <stdlib.h>
#include <string.h>

typedef struct pass {
    kvf_ctx *ctx;
    kvf__prefix_cache *cache;
    size_t n_before; /* entries before the pass */
} pass;

static kvf_status add_name(const pass *p, const char *root, const char *name, const char *path)
{
    kvf__cached_prefix *entry = NULL;
    pthread_mutex_lock(&p->cache->lock);
    kvf_status st = kvf__prefix_add(p->ctx, p->cache, name, path, &entry);
    if (!st) {
        entry->root = root;
        entry->pass = p->cache->passes;
        st = kvf__map_put(p->ctx, &p->cache->index, name, strlen(name), (int64_t)p->cache->n - 1);
        if (st) kvf__free(p->cache->entries[--p->cache->n]);
    }
    pthread_mutex_unlock(&p->cache->lock);
    return st;
}

static void note_name(kvf__dir_walk *walk, const char *root, const char *name)
{
    const pass *p = walk->user;
    kvf__cached_prefix *entry = kvf__prefix_find(p->cache, name);
    char path[PATH_MAX];
    const int n = snprintf(path, sizeof path, "%s/%s.h5", root, name);
    if (entry && entry->root == root)
        entry->pass = p->cache->passes;
    else if (entry || p->cache->n >= KVF__MOST_MODELS || n >= PATH_MAX)
        kvf__dir_refuse(walk, name);
    else if (add_name(p, root, name, path))
        walk->partial = true;
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(kvf__cached_prefix *const *)a)->name, (*(kvf__cached_prefix *const *)b)->name);
}

/* Fills the sorted table of a pass. */
static kvf_status sort_names(const pass *p, bool drop, kvf__cached_prefix **list, size_t *n,
                             kvf__map *index)
{
    const kvf__prefix_cache *cache = p->cache;
    for (size_t i = 0; i < cache->n; i++)
        if (i < cache->n_fixed || !drop || cache->entries[i]->pass == cache->passes)
            list[(*n)++] = cache->entries[i];
    qsort(list + cache->n_fixed, *n - cache->n_fixed, sizeof *list, by_name);
    for (size_t i = 0; i < *n; i++)
        KVF_TRY(kvf__map_put(p->ctx, index, list[i]->name, strlen(list[i]->name), (int64_t)i));
    return KVF_OK;
}

/* Sorts new names in and drops those that are gone. Without memory the next pass does it. */
static void index_names(const pass *p, bool drop)
{
    kvf__prefix_cache *cache = p->cache;
    kvf__cached_prefix **list = NULL, **before = cache->entries;
    kvf__map index = {0}, old = cache->index;
    const size_t n_before = cache->n;
    size_t n = 0, n_gone = 0;
    for (size_t i = cache->n_fixed; i < n_before; i++)
        n_gone += drop && before[i]->pass != cache->passes;
    if (!n_gone && n_before == p->n_before) return;
    if (kvf__alloc_array(p->ctx, n_before, sizeof *list, &list)) return;
    if (sort_names(p, drop, list, &n, &index)) {
        kvf__free(list);
        kvf__map_done(&index);
        return;
    }
    pthread_mutex_lock(&cache->lock);
    cache->entries = list;
    cache->n = n;
    cache->capacity = n_before;
    cache->index = index;
    pthread_mutex_unlock(&cache->lock);
    for (size_t i = cache->n_fixed; i < n_before; i++)
        if (drop && before[i]->pass != cache->passes) {
            kvf__prefix_set(cache, before[i], NULL);
            kvf__free(before[i]);
        }
    kvf__free(before);
    kvf__map_done(&old);
}

/* Prepares a warning if the number of refused files has changed. */
static void note_refused(kvf__prefix_cache *cache, const kvf__dir_walk *walk)
{
    if (walk->n_refused && walk->n_refused != cache->n_refused) {
        pthread_mutex_lock(&cache->lock);
        cache->note.n = 0;
        kvf__buf_printf(
            NULL, &cache->note,
            "%lld files of --prefix-dir are not served (%s%s): a name has 1 to 255 bytes "
            "of UTF-8 without control characters and is used once, a link stays in "
            "the folder",
            (long long)walk->n_refused, walk->refused.n ? walk->refused.data : "",
            walk->n_refused > 3 ? ", ..." : "");
        pthread_mutex_unlock(&cache->lock);
    }
    cache->n_refused = walk->n_refused;
}

void kvf__prefix_cache_look(kvf_ctx *ctx, kvf__prefix_cache *cache, double seconds)
{
    pass p = {ctx, cache, cache->n};
    kvf__dir_walk walk = {.found = note_name, .user = &p};
    if (!cache->options->n_prefix_dirs || kvf__clock() - cache->passed < seconds) return;
    cache->passes++;
    for (size_t i = 0; i < cache->options->n_prefix_dirs; i++)
        kvf__dir_pass(&walk, cache->roots[i]);
    for (size_t i = cache->n_fixed; i < cache->n; i++) /* files under other names */
        if (cache->entries[i]->alias && !cache->entries[i]->hidden &&
            kvf__exists(cache->entries[i]->path))
            cache->entries[i]->pass = cache->passes;
    index_names(&p, !walk.partial);
    note_refused(cache, &walk);
    kvf__buf_done(&walk.refused);
    cache->passed = kvf__clock();
}

/* Adds a name between passes; NULL: there is no memory for it. alias: the path does not follow from
 * the name. */
static kvf__cached_prefix *add_now(kvf_ctx *ctx, kvf__prefix_cache *cache, const char *root,
                                   const char *name, const char *path, bool alias)
{
    const pass p = {ctx, cache, cache->n};
    if (cache->n >= KVF__MOST_MODELS || add_name(&p, root, name, path)) return NULL;
    cache->entries[cache->n - 1]->alias = alias;
    index_names(&p, false);
    return kvf__prefix_find(cache, name);
}

kvf__cached_prefix *kvf__prefix_find_file(kvf_ctx *ctx, kvf__prefix_cache *cache, const char *name)
{
    char path[PATH_MAX];
    for (size_t i = 0; i < cache->options->n_prefix_dirs; i++) {
        const char *root = cache->roots[i];
        if (!kvf__dir_has(root, name)) continue;
        snprintf(path, sizeof path, "%s/%s.h5", root, name);
        return add_now(ctx, cache, root, name, path, false);
    }
    return NULL;
}

/* ---- names at run time ----------------------------------------------------------------------- */

/* Finds the folder of a path, which may be relative to a folder. */
static const char *find_root(const kvf__prefix_cache *cache, const char *path, char real[PATH_MAX])
{
    char joined[PATH_MAX];
    for (size_t i = 0; i < cache->options->n_prefix_dirs; i++) {
        const char *root = cache->roots[i];
        const int n = snprintf(joined, sizeof joined, "%s%s%s", *path == '/' ? "" : root,
                               *path == '/' ? "" : "/", path);
        if (n < PATH_MAX && kvf__dir_resolve(root, joined, real)) return root;
    }
    return NULL;
}

static void set_hidden(kvf__prefix_cache *cache, kvf__cached_prefix *entry, bool hidden)
{
    pthread_mutex_lock(&cache->lock);
    entry->hidden = hidden;
    pthread_mutex_unlock(&cache->lock);
}

bool kvf__prefix_cache_load(kvf_ctx *ctx, kvf__prefix_cache *cache, const char *name,
                            const char *path, kvf__problem *problem)
{
    char real[PATH_MAX];
    kvf__cached_prefix *entry = kvf__prefix_find(cache, name);
    if (entry && entry->alias && entry->hidden) {
        kvf__prefix_cache_look(ctx, cache, 0); /* drops it */
        entry = kvf__prefix_find(cache, name);
    }
    const char *root = find_root(cache, path, real);
    if (!kvf__dir_is_name(name))
        return kvf__problem_set(problem, 400, "lora_name",
                                "lora_name: want 1 to 255 bytes without control characters");
    if (!root)
        return kvf__problem_set(problem, 404, "lora_path", "there is no %.80s below --prefix-dir",
                                path);
    if (entry && (!entry->root || strcmp(entry->path, real) != 0))
        return kvf__problem_set(problem, 400, "lora_name", "the name \"%.80s\" is in use", name);
    if (entry) {
        set_hidden(cache, entry, false);
        return true;
    }
    return add_now(ctx, cache, root, name, real, true) ||
           kvf__problem_set(problem, 500, NULL, "out of memory for names");
}

bool kvf__prefix_cache_unload(kvf__prefix_cache *cache, const char *name, kvf__problem *problem)
{
    kvf__cached_prefix *entry = kvf__prefix_find(cache, name);
    if (!entry || entry->hidden) return kvf__problem_no_model(problem, name);
    if (!entry->root)
        return kvf__problem_set(problem, 400, "lora_name",
                                "the model \"%.80s\" is one of the command line", name);
    set_hidden(cache, entry, true);
    kvf__prefix_set(cache, entry, NULL);
    return true;
}
