/* Prefixes by name, and their files watched: a file that was replaced is read again between steps,
 * new requests get the new prefix, rows on their way keep the old one until they end.
 *
 * A file counts as replaced when its inode, size or time differ from those last tried; one that
 * cannot be used is warned about once, and tried again when it changes. */
#include "serve_int.h"

#include <string.h>

enum { MOST_NAME = 64 };
static const double LOOK_SECONDS = 0.5;

kvf__prefix_ref *kvf__prefix_cache_get(kvf__prefix_cache *prefix_cache, int64_t i)
{
    pthread_mutex_lock(&prefix_cache->lock);
    kvf__prefix_ref *ref = prefix_cache->ref[i];
    ref->uses++;
    pthread_mutex_unlock(&prefix_cache->lock);
    return ref;
}

void kvf__prefix_cache_put(kvf__prefix_cache *prefix_cache, kvf__prefix_ref *ref)
{
    if (!ref) return;
    pthread_mutex_lock(&prefix_cache->lock);
    const bool used = --ref->uses > 0;
    pthread_mutex_unlock(&prefix_cache->lock);
    if (used) return;
    kvf__renderer_done(&ref->renderer);
    kvf__head_free(ref->head);
    kvf_prefix_free(ref->prefix);
    kvf__free(ref);
}

/* Takes the prefix over on success. */
static kvf_status hold(kvf_ctx *ctx, const kvf__prefix_cache *prefix_cache, kvf_prefix *prefix,
                       kvf__prefix_ref **out)
{
    kvf__prefix_ref *ref = NULL;
    KVF_TRY(kvf__alloc(ctx, sizeof *ref, &ref));
    kvf_status st = kvf__renderer_for(ctx, prefix_cache->base, prefix,
                                      prefix_cache->options->chat_template, NULL, &ref->renderer);
    if (!st && prefix) {
        st = kvf__prefix_head(ctx, prefix_cache->base, prefix, &ref->head);
        if (st) kvf__renderer_done(&ref->renderer);
    }
    if (st) {
        kvf__free(ref);
        return st;
    }
    ref->prefix = prefix;
    ref->ends = kvf__completion_ends(prefix_cache->base, prefix, &ref->renderer.chat);
    ref->uses = 1;
    *out = ref;
    return KVF_OK;
}

static kvf_status check_fit(kvf_ctx *ctx, const kvf__prefix_cache *prefix_cache,
                            const kvf_prefix *prefix)
{
    KVF_TRY(kvf__session_fits(ctx, prefix));
    KVF_TRY(
        kvf_prefix_check(ctx, prefix, prefix_cache->base, prefix_cache->options->allow_other_base));
    if (kvf__text_capacity(prefix_cache->base, prefix) > 1) return KVF_OK;
    return kvf__fail(ctx, KVF_ESHAPE, "a prefix of %lld leaves no room for rows",
                     (long long)prefix->id.P);
}

static kvf_status load(kvf_ctx *ctx, const kvf__prefix_cache *prefix_cache, size_t i,
                       kvf__prefix_ref **out)
{
    const kvf_serve_prefix *row = &prefix_cache->options->prefixes[i];
    kvf_prefix *prefix = NULL;
    KVF_TRY(kvf_prefix_open(ctx, row->path, prefix_cache->options->checkpoint, &prefix));
    kvf_status st = check_fit(ctx, prefix_cache, prefix);
    if (st) st = kvf__fail_prefix(ctx, st, "%s", row->path);
    if (!st) st = hold(ctx, prefix_cache, prefix, out);
    if (st) kvf_prefix_free(prefix);
    return st;
}

static bool is_name(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "._:/-";
    size_t n = strlen(name);
    return n && n <= MOST_NAME && strspn(name, letters) == n;
}

static kvf_status check_name(kvf_ctx *ctx, const kvf__prefix_cache *prefix_cache, size_t i)
{
    const char *name = prefix_cache->names[i];
    if (!is_name(name))
        return kvf__fail(ctx, KVF_EUSAGE,
                         "prefix name \"%.80s\": want 1 to 64 letters, digits and ._:/-", name);
    for (size_t k = 0; k < prefix_cache->n; k++)
        if (k != i && !strcmp(prefix_cache->names[k], name))
            return kvf__fail(ctx, KVF_EUSAGE, "prefix name \"%s\" is %s", name,
                             k + 1 == prefix_cache->n ? "that of the base" : "given twice");
    return KVF_OK;
}

static kvf_status fill(kvf_ctx *ctx, kvf__prefix_cache *prefix_cache)
{
    const size_t n = prefix_cache->n - 1;
    for (size_t i = 0; i < n; i++)
        prefix_cache->names[i] = prefix_cache->options->prefixes[i].name;
    const char *own = prefix_cache->options->base_name;
    prefix_cache->names[n] = own ? own : kvf_base_name(prefix_cache->base);
    for (size_t i = 0; i < n; i++) {
        KVF_TRY(check_name(ctx, prefix_cache, i));
        stat(prefix_cache->options->prefixes[i].path,
             &prefix_cache->seen[i]); /* load says what is wrong */
        KVF_TRY(load(ctx, prefix_cache, i, &prefix_cache->ref[i]));
    }
    return hold(ctx, prefix_cache, NULL, &prefix_cache->ref[n]);
}

kvf_status kvf__prefix_cache_init(kvf_ctx *ctx, kvf_base *base, const kvf_serve_options *options,
                                  kvf__prefix_cache *out)
{
    *out = (kvf__prefix_cache){.options = options, .base = base, .n = options->n_prefixes + 1};
    pthread_mutex_init(&out->lock, NULL);
    kvf_status st = kvf__alloc_array(ctx, out->n, sizeof *out->names, &out->names);
    if (!st) st = kvf__alloc_array(ctx, out->n, sizeof *out->ref, &out->ref);
    if (!st) st = kvf__alloc_array(ctx, out->n, sizeof *out->seen, &out->seen);
    if (!st) st = fill(ctx, out);
    if (st) kvf__prefix_cache_done(out);
    return st;
}

void kvf__prefix_cache_done(kvf__prefix_cache *prefix_cache)
{
    if (!prefix_cache->n) return;
    for (size_t i = 0; prefix_cache->ref && i < prefix_cache->n; i++)
        kvf__prefix_cache_put(prefix_cache, prefix_cache->ref[i]);
    kvf__free(prefix_cache->ref);
    kvf__free(prefix_cache->names);
    kvf__free(prefix_cache->seen);
    pthread_mutex_destroy(&prefix_cache->lock);
    *prefix_cache = (kvf__prefix_cache){0};
}

int64_t kvf__prefix_cache_find(const kvf__prefix_cache *prefix_cache, const char *name)
{
    for (size_t i = 0; i < prefix_cache->n; i++)
        if (!strcmp(prefix_cache->names[i], name)) return (int64_t)i;
    return -1;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static void refresh(kvf_ctx *ctx, kvf__prefix_cache *prefix_cache, size_t i)
{
    struct stat now;
    kvf__prefix_ref *ref = NULL;
    if (stat(prefix_cache->options->prefixes[i].path, &now)) return; /* between unlink and rename */
    if (same_file(&now, &prefix_cache->seen[i])) return;
    prefix_cache->seen[i] = now;
    if (load(ctx, prefix_cache, i, &ref)) {
        prefix_cache->failed_reloads++;
        kvf__log(ctx, KVF_LOG_WARN, "%s; %s stays as it was", kvf_ctx_error(ctx),
                 prefix_cache->names[i]);
        return;
    }
    pthread_mutex_lock(&prefix_cache->lock);
    kvf__prefix_ref *before = prefix_cache->ref[i];
    prefix_cache->ref[i] = ref;
    pthread_mutex_unlock(&prefix_cache->lock);
    kvf__prefix_cache_put(prefix_cache, before);
    prefix_cache->reloads++;
    kvf__log(ctx, KVF_LOG_INFO, "%s: read again", prefix_cache->options->prefixes[i].path);
}

void kvf__prefix_cache_refresh(kvf_ctx *ctx, kvf__prefix_cache *prefix_cache)
{
    const double now = kvf__clock();
    if (now - prefix_cache->looked < LOOK_SECONDS) return;
    prefix_cache->looked = now;
    for (size_t i = 0; i + 1 < prefix_cache->n; i++)
        refresh(ctx, prefix_cache, i);
}
