/* Prefixes by name. Files of the command line are read at the start and watched: a changed file is
 * read again between steps, new requests get the new prefix, running rows keep the old one. A file
 * that cannot be used causes one warning and is tried again after the next change.
 *
 * Files of folders are read when a request names them, by the thread that reads requests, and
 * dropped in the order of their last use where --prefix-memory needs the place. Each request
 * compares the file with the one that was read, so it gets the file's present content or an error.
 * A file has changed if inode, size or time differ. */
#include "prefix_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST_NAME = 64, TRIM_EVERY = 16 };
static const double LOOK_SECONDS = 0.5, FRESH_SECONDS = 0.05; /* FRESH: steps of the clock of file
                                                                 systems */

/* ---- references ------------------------------------------------------------------------------ */

/* Adds a use of an entry's prefix. Called under the lock. */
static kvf__prefix_ref *use(kvf__prefix_cache *cache, const kvf__cached_prefix *entry)
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

/* Replaces the prefix of an entry; NULL: none. */
static void set_ref(kvf__prefix_cache *cache, kvf__cached_prefix *entry, kvf__prefix_ref *ref)
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

/* path: the entry's, or that of an open file. */
static kvf_status load(kvf_ctx *ctx, const kvf__prefix_cache *cache,
                       const kvf__cached_prefix *entry, const char *path, kvf__prefix_ref **out)
{
    return kvf__prefix_ref_open(ctx, cache->base, cache->options, entry->name, path, entry->head,
                                out);
}

static bool is_name(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "._:/-";
    size_t n = strlen(name);
    return n && n <= MOST_NAME && strspn(name, letters) == n;
}

static kvf_status add_entry(kvf_ctx *ctx, kvf__prefix_cache *cache, const char *name,
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

static kvf__cached_prefix *find(const kvf__prefix_cache *cache, const char *name)
{
    int64_t at = -1;
    kvf__map_get(&cache->index, name, strlen(name), &at);
    return at < 0 ? NULL : cache->entries[at];
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
    if (row && (!strcmp(row->name, base) || find(cache, row->name)))
        return kvf__fail(ctx, KVF_EUSAGE, "prefix name \"%s\" is %s", row->name,
                         strcmp(row->name, base) ? "given twice" : "the base's name");
    KVF_TRY(add_entry(ctx, cache, row ? row->name : base, row ? row->path : NULL, &entry));
    KVF_TRY(
        kvf__map_put(ctx, &cache->index, entry->name, strlen(entry->name), (int64_t)cache->n - 1));
    if (!row) return kvf__prefix_ref_base(ctx, cache->base, cache->options, &entry->ref);
    entry->head = row->head;
    stat(row->path, &entry->seen); /* load reports the error */
    return load(ctx, cache, entry, entry->path, &entry->ref);
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

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static void refresh(kvf_ctx *ctx, kvf__prefix_cache *cache, kvf__cached_prefix *entry)
{
    struct stat now;
    kvf__prefix_ref *ref = NULL;
    if (stat(entry->path, &now)) return; /* the file is being replaced: between unlink and rename */
    if (same_file(&now, &entry->seen)) return;
    entry->seen = now;
    if (load(ctx, cache, entry, entry->path, &ref)) {
        cache->failed_reloads++;
        kvf__log(ctx, KVF_LOG_WARN, "%s; %s keeps its previous content", kvf_ctx_error(ctx),
                 entry->name);
        return;
    }
    set_ref(cache, entry, ref);
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

/* ---- folders: names -------------------------------------------------------------------------- */

typedef struct pass {
    kvf_ctx *ctx;
    kvf__prefix_cache *cache;
    size_t n_before; /* entries before the pass */
} pass;

static kvf_status add_name(const pass *p, const char *root, const char *name, const char *path)
{
    kvf__cached_prefix *entry = NULL;
    pthread_mutex_lock(&p->cache->lock);
    kvf_status st = add_entry(p->ctx, p->cache, name, path, &entry);
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
    kvf__cached_prefix *entry = find(p->cache, name);
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
            set_ref(cache, before[i], NULL);
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

/* ---- folders: values ------------------------------------------------------------------------- */

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
    if (oldest) set_ref(cache, oldest, NULL);
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
    if (fstat(fd, &entry->seen) || load(ctx, cache, entry, path, &ref))
        return refuse(ctx, cache, entry, path, problem);
    if (fstat(fd, &after) || !same_file(&after, &entry->seen)) {
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
    set_ref(cache, entry, ref);
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

/* Reads an entry of a folder unless it holds the file's present content. */
static bool bring(kvf_ctx *ctx, kvf__prefix_cache *cache, kvf__cached_prefix *entry, size_t *wait,
                  kvf__problem *problem)
{
    struct stat now;
    bool gone = false;
    int fd = -1;
    const bool there = !stat(entry->path, &now), same = there && same_file(&now, &entry->seen);
    if (same && entry->ref && !entry->fresh) return true;
    set_ref(cache, entry, NULL);
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

/* Adds the name of a file that no pass has found yet; NULL: there is none. */
static kvf__cached_prefix *find_file(kvf_ctx *ctx, kvf__prefix_cache *cache, const char *name)
{
    const pass p = {ctx, cache, cache->n};
    for (size_t i = 0; i < cache->options->n_prefix_dirs; i++) {
        char path[PATH_MAX];
        if (!kvf__dir_has(cache->roots[i], name) || cache->n >= KVF__MOST_MODELS) continue;
        snprintf(path, sizeof path, "%s/%s.h5", cache->roots[i], name);
        if (add_name(&p, cache->roots[i], name, path)) return NULL;
        index_names(&p, false);
        return find(cache, name);
    }
    return NULL;
}

bool kvf__prefix_cache_use(kvf_ctx *ctx, kvf__prefix_cache *cache, const char *name,
                           kvf__prefix_ref **out, size_t *wait, kvf__problem *problem)
{
    kvf__cached_prefix *entry = name ? find(cache, name) : cache->entries[cache->n_fixed - 1];
    if (!entry) entry = find_file(ctx, cache, name);
    if (!entry || entry->hidden) return kvf__problem_no_model(problem, name);
    if (entry->root && !bring(ctx, cache, entry, wait, problem)) return false;
    entry->used = ++cache->used;
    pthread_mutex_lock(&cache->lock);
    *out = use(cache, entry);
    pthread_mutex_unlock(&cache->lock);
    return true;
}

/* ---- names at run time ----------------------------------------------------------------------- */

/* Finds the folder of a path, which may be relative to a folder. */
static const char *find_root(const kvf__prefix_cache *cache, const char *path, char real[PATH_MAX])
{
    char joined[PATH_MAX];
    struct stat st;
    for (size_t i = 0; i < cache->options->n_prefix_dirs; i++) {
        const char *root = cache->roots[i];
        const int n = snprintf(joined, sizeof joined, "%s%s%s", *path == '/' ? "" : root,
                               *path == '/' ? "" : "/", path);
        if (n < PATH_MAX && realpath(joined, real) && kvf__dir_is_below(root, real) &&
            !stat(real, &st) && S_ISREG(st.st_mode))
            return root;
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
    kvf__cached_prefix *entry = find(cache, name);
    if (entry && entry->alias && entry->hidden) {
        kvf__prefix_cache_look(ctx, cache, 0); /* drops it */
        entry = find(cache, name);
    }
    const pass p = {ctx, cache, cache->n};
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
    if (cache->n >= KVF__MOST_MODELS || add_name(&p, root, name, real))
        return kvf__problem_set(problem, 500, NULL, "out of memory for names");
    cache->entries[cache->n - 1]->alias = true;
    index_names(&p, false);
    return true;
}

bool kvf__prefix_cache_unload(kvf__prefix_cache *cache, const char *name, kvf__problem *problem)
{
    kvf__cached_prefix *entry = find(cache, name);
    if (!entry || entry->hidden) return kvf__problem_no_model(problem, name);
    if (!entry->root)
        return kvf__problem_set(problem, 400, "lora_name",
                                "the model \"%.80s\" is one of the command line", name);
    set_hidden(cache, entry, true);
    set_ref(cache, entry, NULL);
    return true;
}

/* ---- lists ----------------------------------------------------------------------------------- */

/* Called under the lock. */
static void list_entry(kvf__prefix_cache *cache, const kvf__cached_prefix *entry, kvf__listed *out)
{
    snprintf(out->name, sizeof out->name, "%s", entry->name);
    out->prefix = entry->path != NULL;
    out->ref = use(cache, entry);
}

bool kvf__prefix_cache_show(kvf__prefix_cache *cache, const char *name, kvf__listed *out)
{
    pthread_mutex_lock(&cache->lock);
    const kvf__cached_prefix *entry = find(cache, name);
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
