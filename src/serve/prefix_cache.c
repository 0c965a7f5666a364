/* Prefixes by name. Files of the command line are read at the start and watched: a changed file is
 * read again between steps, new requests get the new prefix, running rows keep the old one. A file
 * that cannot be used causes one warning and is tried again after the next change. */
#include "prefix_cache_priv.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_NAME = 64 };
static const double LOOK_SECONDS = 0.5;

static bool is_name(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "._:/-";
    size_t n = strlen(name);
    return n && n <= MOST_NAME && strspn(name, letters) == n;
}

/* Adds a model of the command line. */
static kvf_status add_fixed(kvf_ctx *ctx, kvf__prefix_cache *cache, const kvf_serve_prefix *row)
{
    kvf__cached_prefix *entry = NULL;
    const char *base = cache->options->base_name;
    if (row && !is_name(row->name))
        return kvf__fail(ctx, KVF_EUSAGE,
                         "prefix name \"%.80s\": want 1 to 64 letters, digits and ._:/-",
                         row->name);
    if (row && (!strcmp(row->name, base) || kvf__prefix_find(cache, row->name)))
        return kvf__fail(ctx, KVF_EUSAGE, "prefix name \"%s\" is %s", row->name,
                         strcmp(row->name, base) ? "given twice" : "the base's name");
    KVF_TRY(kvf__prefix_add(ctx, cache, row ? row->name : base, row ? row->path : NULL, &entry));
    KVF_TRY(
        kvf__map_put(ctx, &cache->index, entry->name, strlen(entry->name), (int64_t)cache->n - 1));
    if (!row) return kvf__prefix_ref_base(ctx, cache->base, cache->options, &entry->ref);
    entry->head = row->head;
    stat(row->path, &entry->seen); /* load reports the error */
    return kvf__prefix_read(ctx, cache, entry, entry->path, &entry->ref);
}

static kvf_status open_roots(kvf_ctx *ctx, kvf__prefix_cache *cache)
{
    const kvf_serve_options *o = cache->options;
    KVF_TRY(kvf__alloc_array(ctx, o->n_prefix_dirs, sizeof *cache->roots, &cache->roots));
    for (size_t i = 0; i < o->n_prefix_dirs; i++) {
        cache->roots[i] = realpath(o->prefix_dirs[i], NULL);
        if (!cache->roots[i] || access(cache->roots[i], R_OK | X_OK) ||
            !kvf__is_dir(cache->roots[i]))
            return kvf__fail(ctx, KVF_EIO, "%s: want a folder that can be read", o->prefix_dirs[i]);
    }
    return KVF_OK;
}

static kvf_status fill(kvf_ctx *ctx, kvf__prefix_cache *cache)
{
    for (size_t i = 0; i < cache->options->n_prefixes; i++)
        KVF_TRY(add_fixed(ctx, cache, &cache->options->prefixes[i]));
    KVF_TRY(add_fixed(ctx, cache, NULL));
    cache->n_fixed = cache->n;
    KVF_TRY(open_roots(ctx, cache));
    kvf__prefix_cache_look(ctx, cache, 0);
    return KVF_OK;
}

kvf_status kvf__prefix_cache_init(kvf_ctx *ctx, kvf_base *base, const kvf_serve_options *options,
                                  kvf__prefix_cache *out)
{
    *out = (kvf__prefix_cache){.options = options, .base = base};
    pthread_mutex_init(&out->lock, NULL);
    return fill(ctx, out);
}

void kvf__prefix_cache_done(kvf__prefix_cache *cache)
{
    if (!cache->options) return;
    for (size_t i = 0; i < cache->n; i++) {
        kvf__prefix_cache_put(cache, cache->entries[i]->ref);
        kvf__free(cache->entries[i]);
    }
    for (size_t i = 0; cache->roots && i < cache->options->n_prefix_dirs; i++)
        free(cache->roots[i]);
    kvf__free(cache->roots);
    kvf__free(cache->entries);
    kvf__map_done(&cache->index);
    kvf__buf_done(&cache->note);
    pthread_mutex_destroy(&cache->lock);
    *cache = (kvf__prefix_cache){0};
}

static void refresh(kvf_ctx *ctx, kvf__prefix_cache *cache, kvf__cached_prefix *entry)
{
    struct stat now;
    kvf__prefix_ref *ref = NULL;
    if (stat(entry->path, &now)) return; /* the file is being replaced: between unlink and rename */
    if (kvf__prefix_same_file(&now, &entry->seen)) return;
    entry->seen = now;
    if (kvf__prefix_read(ctx, cache, entry, entry->path, &ref)) {
        cache->failed_reloads++;
        kvf__log(ctx, KVF_LOG_WARN, "%s; %s keeps its previous content", kvf_ctx_error(ctx),
                 entry->name);
        return;
    }
    kvf__prefix_set(cache, entry, ref);
    cache->reloads++;
    kvf__log(ctx, KVF_LOG_INFO, "%s: file changed, read again", entry->path);
}

void kvf__prefix_cache_refresh(kvf_ctx *ctx, kvf__prefix_cache *cache)
{
    const double now = kvf__clock();
    if (now - cache->looked < LOOK_SECONDS) return;
    cache->looked = now;
    for (size_t i = 0; i < cache->options->n_prefixes; i++) {
        pthread_mutex_lock(&cache->lock); /* a pass over folders replaces the table */
        kvf__cached_prefix *entry = cache->entries[i];
        pthread_mutex_unlock(&cache->lock);
        refresh(ctx, cache, entry);
    }
    pthread_mutex_lock(&cache->lock);
    kvf__buf note = cache->note;
    cache->note = (kvf__buf){0};
    pthread_mutex_unlock(&cache->lock);
    if (note.n) kvf__log(ctx, KVF_LOG_WARN, "%s", note.data);
    kvf__buf_done(&note);
}

bool kvf__prefix_cache_use(kvf_ctx *ctx, kvf__prefix_cache *cache, const char *name,
                           kvf__prefix_ref **out, size_t *wait, kvf__problem *problem)
{
    kvf__cached_prefix *entry = name ? kvf__prefix_find(cache, name)
                                     : cache->entries[cache->n_fixed - 1];
    if (!entry) entry = kvf__prefix_find_file(ctx, cache, name);
    if (!entry || entry->hidden) return kvf__problem_no_model(problem, name);
    if (entry->root && !kvf__prefix_bring(ctx, cache, entry, wait, problem)) return false;
    entry->used = ++cache->used;
    pthread_mutex_lock(&cache->lock);
    *out = kvf__prefix_hold(cache, entry);
    pthread_mutex_unlock(&cache->lock);
    return true;
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* Called under the lock. */
static void list_entry(kvf__prefix_cache *cache, const kvf__cached_prefix *entry, kvf__listed *out)
{
    snprintf(out->name, sizeof out->name, "%s", entry->name);
    out->prefix = entry->path != NULL;
    out->ref = kvf__prefix_hold(cache, entry);
}

bool kvf__prefix_cache_show(kvf__prefix_cache *cache, const char *name, kvf__listed *out)
{
    pthread_mutex_lock(&cache->lock);
    const kvf__cached_prefix *entry = kvf__prefix_find(cache, name);
    const bool seen = entry && !entry->hidden;
    if (seen) list_entry(cache, entry, out);
    pthread_mutex_unlock(&cache->lock);
    return seen;
}

/* Returns the position after a name, which may have gone. */
static size_t position_after(const kvf__prefix_cache *cache, const char *name)
{
    int64_t at = -1;
    size_t from = cache->n_fixed, to = cache->n;
    if (!name) return 0;
    if (kvf__map_get(&cache->index, name, strlen(name), &at)) return (size_t)at + 1;
    while (from < to) {
        const size_t middle = from + (to - from) / 2;
        if (strcmp(cache->entries[middle]->name, name) <= 0)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

size_t kvf__prefix_cache_list(kvf__prefix_cache *cache, const char *after, size_t most,
                              kvf__listed *out)
{
    size_t n = 0;
    pthread_mutex_lock(&cache->lock);
    for (size_t i = position_after(cache, after); i < cache->n && n < most; i++)
        if (!cache->entries[i]->hidden) list_entry(cache, cache->entries[i], &out[n++]);
    pthread_mutex_unlock(&cache->lock);
    return n;
}

kvf__prefix_counts kvf__prefix_cache_counts(kvf__prefix_cache *cache)
{
    pthread_mutex_lock(&cache->lock);
    const kvf__prefix_counts counts = {.loads = cache->loads,
                                       .failed_loads = cache->failed_loads,
                                       .dropped = cache->dropped,
                                       .names = (int64_t)cache->n,
                                       .bytes = (int64_t)cache->bytes};
    pthread_mutex_unlock(&cache->lock);
    return counts;
}
