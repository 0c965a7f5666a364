/* Prefixes by name, with a watch on their files. A changed file is read again between steps: new
 * requests get the new prefix, running rows keep the old one. A file has changed if inode, size or
 * time differ from the last attempt. A file that cannot be used causes one warning and is tried
 * again after the next change. */
#include "prefix_cache.h"
#include "completion.h"
#include "session.h"

#include <math.h>

#include <string.h>

enum { MOST_NAME = 64 };
static const double LOOK_SECONDS = 0.5;

kvf__prefix_ref *kvf__prefix_cache_get(kvf__prefix_cache *cache, int64_t i)
{
    pthread_mutex_lock(&cache->lock);
    kvf__prefix_ref *ref = cache->entries[i].ref;
    ref->uses++;
    pthread_mutex_unlock(&cache->lock);
    return ref;
}

static void free_ref(kvf__prefix_ref *ref)
{
    kvf__renderer_done(&ref->renderer);
    kvf__head_free(ref->head);
    kvf_base_free(ref->own_base);
    if (ref->classifier != ref->prefix) kvf_prefix_free(ref->classifier);
    kvf_prefix_free(ref->prefix);
    kvf__free(ref);
}

void kvf__prefix_cache_put(kvf__prefix_cache *cache, kvf__prefix_ref *ref)
{
    if (!ref) return;
    pthread_mutex_lock(&cache->lock);
    const bool used = --ref->uses > 0;
    pthread_mutex_unlock(&cache->lock);
    if (!used) free_ref(ref);
}

/* Opens a classifier. A prefix that changes the base gets a base of its own. */
static kvf_status open_classifier(kvf_ctx *ctx, const kvf__prefix_cache *cache,
                                  kvf__prefix_ref *ref)
{
    const kvf_base *base = cache->base;
    const kvf_base_options how = {
        .precision = base->precision, .weight_dtype = base->weight_dtype, .lora = base->lora};
    ref->classifier = ref->prefix;
    if (!kvf_prefix_changes_base(ref->prefix)) return KVF_OK;
    return kvf_base_open_for(ctx, base->path, &how, ref->prefix, &ref->own_base);
}

/* Opens the head stored in a base file that was trained for a task. */
static kvf_status open_own_head(kvf_ctx *ctx, const kvf__prefix_cache *cache, kvf__prefix_ref *ref)
{
    bool there = false;
    KVF_TRY(kvf__base_has_head(ctx, cache->base->path, &there));
    if (!there) return KVF_OK;
    return kvf_prefix_open(ctx, cache->base->path, KVF_CHECKPOINT_DEFAULT, &ref->classifier);
}

/* Finds the losses of the served step in the history of a run. */
static kvf_status find_losses(kvf_ctx *ctx, kvf__prefix_ref *ref)
{
    const kvf_prefix *prefix = ref->prefix;
    kvf__history history = {0};
    if (!prefix->from_run) return KVF_OK;
    KVF_TRY(kvf__artifact_history(ctx, prefix->path, &history));
    for (int64_t i = 0; i < history.n; i++)
        if (history.step[i] == prefix->step) {
            ref->train_loss = kvf__history_at(&history, KVF__COLUMN_train_loss, i);
            ref->valid_loss = kvf__history_at(&history, KVF__COLUMN_valid_loss, i);
        }
    kvf__history_done(&history);
    return KVF_OK;
}

static kvf_status fill_ref(kvf_ctx *ctx, const kvf__prefix_cache *cache, kvf__prefix_ref *ref)
{
    const kvf_prefix *prefix = ref->prefix;
    ref->train_loss = ref->valid_loss = NAN;
    if (prefix) KVF_TRY(find_losses(ctx, ref));
    KVF_TRY(kvf__renderer_for(ctx, cache->base, prefix, cache->options->chat_template, NULL,
                              &ref->renderer));
    ref->ends = kvf__completion_ends(cache->base, prefix, &ref->renderer.chat);
    if (!prefix) return open_own_head(ctx, cache, ref);
    if (prefix->task == KVF__TASK_LM) return kvf__prefix_head(ctx, cache->base, prefix, &ref->head);
    return open_classifier(ctx, cache, ref);
}

/* Takes over the prefix on success. */
static kvf_status make_ref(kvf_ctx *ctx, const kvf__prefix_cache *cache, kvf_prefix *prefix,
                           kvf__prefix_ref **out)
{
    kvf__prefix_ref *ref = NULL;
    KVF_TRY(kvf__alloc(ctx, sizeof *ref, &ref));
    ref->prefix = prefix;
    ref->uses = 1;
    const kvf_status st = fill_ref(ctx, cache, ref);
    if (st) {
        if (ref->classifier == prefix) ref->classifier = NULL;
        ref->prefix = NULL;
        free_ref(ref);
    } else {
        *out = ref;
    }
    return st;
}

/* Checks whether rows can use the prefix: prefixes of lm are computed together with others,
 * prefixes with a head alone. */
static kvf_status check_fit(kvf_ctx *ctx, const kvf__prefix_cache *cache, const kvf_prefix *prefix)
{
    if (prefix->task == KVF__TASK_LM && !prefix->file.head.n_tasks) {
        KVF_TRY(kvf__session_fits(ctx, prefix));
        KVF_TRY(kvf_prefix_check(ctx, prefix, cache->base, cache->options->allow_other_base));
    } else {
        KVF_TRY(kvf__prefix_fits(ctx, prefix, cache->base, cache->options->allow_other_base));
    }
    if (kvf__text_capacity(cache->base, prefix) > 1) return KVF_OK;
    return kvf__fail(ctx, KVF_ESHAPE, "a prefix of %lld tokens leaves no room for rows",
                     (long long)prefix->file.id.P);
}

static kvf_status load(kvf_ctx *ctx, const kvf__prefix_cache *cache, size_t i,
                       kvf__prefix_ref **out)
{
    const kvf_serve_prefix *row = &cache->options->prefixes[i];
    kvf_prefix *prefix = NULL;
    KVF_TRY(kvf_prefix_open_on(ctx, row->path, cache->base, cache->options->checkpoint, &prefix));
    kvf_status st = row->head ? kvf_prefix_use_head(ctx, prefix, row->head) : KVF_OK;
    if (!st) st = check_fit(ctx, cache, prefix);
    if (st) st = kvf__fail_prefix(ctx, st, "%s", row->path);
    if (!st) st = make_ref(ctx, cache, prefix, out);
    if (st) kvf_prefix_free(prefix);
    if (!st && !strcmp(kvf__prefix_row_form(prefix), "chat") &&
        !(*out)->renderer.render.wrap_prompts)
        kvf__log(ctx, KVF_LOG_WARN,
                 "%s: trained on chats: ask it at /v1/chat/completions; a prompt at "
                 "/v1/completions is plain text",
                 row->name);
    return st;
}

static bool is_name(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "._:/-";
    size_t n = strlen(name);
    return n && n <= MOST_NAME && strspn(name, letters) == n;
}

static kvf_status check_name(kvf_ctx *ctx, const kvf__prefix_cache *cache, size_t i)
{
    const char *name = cache->entries[i].name;
    if (!is_name(name))
        return kvf__fail(ctx, KVF_EUSAGE,
                         "prefix name \"%.80s\": want 1 to 64 letters, digits and ._:/-", name);
    for (size_t k = 0; k < cache->n; k++)
        if (k != i && !strcmp(cache->entries[k].name, name))
            return kvf__fail(ctx, KVF_EUSAGE, "prefix name \"%s\" is %s", name,
                             k + 1 == cache->n ? "the base's name" : "given twice");
    return KVF_OK;
}

static kvf_status fill(kvf_ctx *ctx, kvf__prefix_cache *cache)
{
    const size_t n = cache->n - 1;
    for (size_t i = 0; i < n; i++)
        cache->entries[i].name = cache->options->prefixes[i].name;
    const char *own = cache->options->base_name;
    cache->entries[n].name = own ? own : kvf_base_name(cache->base);
    for (size_t i = 0; i < n; i++) {
        KVF_TRY(check_name(ctx, cache, i));
        stat(cache->options->prefixes[i].path,
             &cache->entries[i].seen); /* load reports the error */
        KVF_TRY(load(ctx, cache, i, &cache->entries[i].ref));
    }
    return make_ref(ctx, cache, NULL, &cache->entries[n].ref);
}

kvf_status kvf__prefix_cache_init(kvf_ctx *ctx, kvf_base *base, const kvf_serve_options *options,
                                  kvf__prefix_cache *out)
{
    *out = (kvf__prefix_cache){.options = options, .base = base, .n = options->n_prefixes + 1};
    pthread_mutex_init(&out->lock, NULL);
    kvf_status st = kvf__alloc_array(ctx, out->n, sizeof *out->entries, &out->entries);
    return st ? st : fill(ctx, out);
}

void kvf__prefix_cache_done(kvf__prefix_cache *cache)
{
    if (!cache->n) return;
    for (size_t i = 0; cache->entries && i < cache->n; i++)
        kvf__prefix_cache_put(cache, cache->entries[i].ref);
    kvf__free(cache->entries);
    pthread_mutex_destroy(&cache->lock);
    *cache = (kvf__prefix_cache){0};
}

int64_t kvf__prefix_cache_find(const kvf__prefix_cache *cache, const char *name)
{
    for (size_t i = 0; i < cache->n; i++)
        if (!strcmp(cache->entries[i].name, name)) return (int64_t)i;
    return -1;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static void refresh(kvf_ctx *ctx, kvf__prefix_cache *cache, size_t i)
{
    struct stat now;
    kvf__prefix_ref *ref = NULL;
    if (stat(cache->options->prefixes[i].path, &now))
        return; /* the file is being replaced: between
                 * unlink and rename */
    if (same_file(&now, &cache->entries[i].seen)) return;
    cache->entries[i].seen = now;
    if (load(ctx, cache, i, &ref)) {
        cache->failed_reloads++;
        kvf__log(ctx, KVF_LOG_WARN, "%s; %s keeps its previous content", kvf_ctx_error(ctx),
                 cache->entries[i].name);
        return;
    }
    pthread_mutex_lock(&cache->lock);
    kvf__prefix_ref *before = cache->entries[i].ref;
    cache->entries[i].ref = ref;
    pthread_mutex_unlock(&cache->lock);
    kvf__prefix_cache_put(cache, before);
    cache->reloads++;
    kvf__log(ctx, KVF_LOG_INFO, "%s: file changed, read again", cache->options->prefixes[i].path);
}

void kvf__prefix_cache_refresh(kvf_ctx *ctx, kvf__prefix_cache *cache)
{
    const double now = kvf__clock();
    if (now - cache->looked < LOOK_SECONDS) return;
    cache->looked = now;
    for (size_t i = 0; i + 1 < cache->n; i++)
        refresh(ctx, cache, i);
}
