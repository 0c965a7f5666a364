/* Prefixes by name, and their files watched: a file that was replaced is read again between steps,
 * new requests get the new prefix, rows on their way keep the old one until they end.
 *
 * A file counts as replaced when its inode, size or time differ from those last tried; one that
 * cannot be used is warned about once, and tried again when it changes. */
#include "serve_int.h"

#include <string.h>

enum { MOST_NAME = 64 };
static const double LOOK_SECONDS = 0.5;

kvf__held *kvf__shelf_take(kvf__shelf *shelf, int64_t i)
{
    pthread_mutex_lock(&shelf->lock);
    kvf__held *held = shelf->held[i];
    held->uses++;
    pthread_mutex_unlock(&shelf->lock);
    return held;
}

void kvf__shelf_give(kvf__shelf *shelf, kvf__held *held)
{
    if (!held) return;
    pthread_mutex_lock(&shelf->lock);
    const bool used = --held->uses > 0;
    pthread_mutex_unlock(&shelf->lock);
    if (used) return;
    kvf__renderer_done(&held->renderer);
    kvf__lm_head_free(held->head);
    kvf_prefix_free(held->prefix);
    kvf__free(held);
}

/* Takes the prefix over on success. */
static kvf_status hold(kvf_ctx *ctx, const kvf__shelf *shelf, kvf_prefix *prefix, kvf__held **out)
{
    kvf__held *held = NULL;
    KVF_TRY(kvf__alloc(ctx, sizeof *held, &held));
    kvf_status st = kvf__renderer_for(ctx, shelf->base, prefix, shelf->options->chat_template, NULL,
                                      &held->renderer);
    if (!st && prefix) {
        st = kvf__prefix_lm_head(ctx, shelf->base, prefix, &held->head);
        if (st) kvf__renderer_done(&held->renderer);
    }
    if (st) {
        kvf__free(held);
        return st;
    }
    held->prefix = prefix;
    held->ends = kvf__answer_ends(shelf->base, prefix, &held->renderer.chat);
    held->uses = 1;
    *out = held;
    return KVF_OK;
}

static kvf_status check_fit(kvf_ctx *ctx, const kvf__shelf *shelf, const kvf_prefix *prefix)
{
    KVF_TRY(kvf__session_fits(ctx, prefix));
    KVF_TRY(kvf_prefix_check(ctx, prefix, shelf->base, shelf->options->allow_other_base));
    if (kvf__text_room(shelf->base, prefix) > 1) return KVF_OK;
    return kvf__fail(ctx, KVF_ESHAPE, "a prefix of %lld leaves no room for rows",
                     (long long)prefix->id.P);
}

static kvf_status load(kvf_ctx *ctx, const kvf__shelf *shelf, size_t i, kvf__held **out)
{
    const kvf_serve_prefix *row = &shelf->options->prefixes[i];
    kvf_prefix *prefix = NULL;
    KVF_TRY(kvf_prefix_open(ctx, row->path, shelf->options->checkpoint, &prefix));
    kvf_status st = check_fit(ctx, shelf, prefix);
    if (st) st = kvf__fail_prefix(ctx, st, "%s", row->path);
    if (!st) st = hold(ctx, shelf, prefix, out);
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

static kvf_status check_name(kvf_ctx *ctx, const kvf__shelf *shelf, size_t i)
{
    const char *name = shelf->names[i];
    if (!is_name(name))
        return kvf__fail(ctx, KVF_EUSAGE,
                         "prefix name \"%.80s\": want 1 to 64 letters, digits and ._:/-", name);
    for (size_t k = 0; k < shelf->n; k++)
        if (k != i && !strcmp(shelf->names[k], name))
            return kvf__fail(ctx, KVF_EUSAGE, "prefix name \"%s\" is %s", name,
                             k + 1 == shelf->n ? "that of the base" : "given twice");
    return KVF_OK;
}

static kvf_status fill(kvf_ctx *ctx, kvf__shelf *shelf)
{
    const size_t n = shelf->n - 1;
    for (size_t i = 0; i < n; i++)
        shelf->names[i] = shelf->options->prefixes[i].name;
    const char *own = shelf->options->base_name;
    shelf->names[n] = own ? own : kvf_base_name(shelf->base);
    for (size_t i = 0; i < n; i++) {
        KVF_TRY(check_name(ctx, shelf, i));
        stat(shelf->options->prefixes[i].path, &shelf->seen[i]); /* load says what is wrong */
        KVF_TRY(load(ctx, shelf, i, &shelf->held[i]));
    }
    return hold(ctx, shelf, NULL, &shelf->held[n]);
}

kvf_status kvf__shelf_init(kvf_ctx *ctx, kvf_base *base, const kvf_serve_options *options,
                           kvf__shelf *out)
{
    *out = (kvf__shelf){.options = options, .base = base, .n = options->n_prefixes + 1};
    pthread_mutex_init(&out->lock, NULL);
    kvf_status st = kvf__alloc_array(ctx, out->n, sizeof *out->names, &out->names);
    if (!st) st = kvf__alloc_array(ctx, out->n, sizeof *out->held, &out->held);
    if (!st) st = kvf__alloc_array(ctx, out->n, sizeof *out->seen, &out->seen);
    if (!st) st = fill(ctx, out);
    if (st) kvf__shelf_done(out);
    return st;
}

void kvf__shelf_done(kvf__shelf *shelf)
{
    if (!shelf->n) return;
    for (size_t i = 0; shelf->held && i < shelf->n; i++)
        kvf__shelf_give(shelf, shelf->held[i]);
    kvf__free(shelf->held);
    kvf__free(shelf->names);
    kvf__free(shelf->seen);
    pthread_mutex_destroy(&shelf->lock);
    *shelf = (kvf__shelf){0};
}

int64_t kvf__shelf_find(const kvf__shelf *shelf, const char *name)
{
    for (size_t i = 0; i < shelf->n; i++)
        if (!strcmp(shelf->names[i], name)) return (int64_t)i;
    return -1;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static void refresh(kvf_ctx *ctx, kvf__shelf *shelf, size_t i)
{
    struct stat now;
    kvf__held *held = NULL;
    if (stat(shelf->options->prefixes[i].path, &now)) return; /* between unlink and rename */
    if (same_file(&now, &shelf->seen[i])) return;
    shelf->seen[i] = now;
    if (load(ctx, shelf, i, &held)) {
        shelf->failed_reloads++;
        kvf__log(ctx, KVF_LOG_WARN, "%s; %s stays as it was", kvf_ctx_error(ctx), shelf->names[i]);
        return;
    }
    pthread_mutex_lock(&shelf->lock);
    kvf__held *before = shelf->held[i];
    shelf->held[i] = held;
    pthread_mutex_unlock(&shelf->lock);
    kvf__shelf_give(shelf, before);
    shelf->reloads++;
    kvf__log(ctx, KVF_LOG_INFO, "%s: read again", shelf->options->prefixes[i].path);
}

void kvf__shelf_refresh(kvf_ctx *ctx, kvf__shelf *shelf)
{
    const double now = kvf__clock();
    if (now - shelf->looked < LOOK_SECONDS) return;
    shelf->looked = now;
    for (size_t i = 0; i + 1 < shelf->n; i++)
        refresh(ctx, shelf, i);
}
