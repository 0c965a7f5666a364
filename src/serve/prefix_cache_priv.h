/* Shared by the table of prefixes (prefix_table.c), the values of folders (prefix_values.c), their
 * names (prefix_names.c) and the whole (prefix_cache.c). */
#ifndef KVF_PREFIX_CACHE_PRIV_H
#define KVF_PREFIX_CACHE_PRIV_H

#include "prefix_cache.h"

kvf__cached_prefix *kvf__prefix_find(const kvf__prefix_cache *cache, const char *name);
/* Appends an entry to the table. path: file; NULL: the base. Called under the lock. */
kvf_status kvf__prefix_add(kvf_ctx *ctx, kvf__prefix_cache *cache, const char *name,
                           const char *path, kvf__cached_prefix **out);
/* Reads an entry's file; path: the entry's, or that of the open file. */
kvf_status kvf__prefix_read(kvf_ctx *ctx, const kvf__prefix_cache *cache,
                            const kvf__cached_prefix *entry, const char *path,
                            kvf__prefix_ref **out);
/* Adds a use of an entry's prefix. Called under the lock. */
kvf__prefix_ref *kvf__prefix_hold(kvf__prefix_cache *cache, const kvf__cached_prefix *entry);
/* Replaces the prefix of an entry; NULL: none. */
void kvf__prefix_set(kvf__prefix_cache *cache, kvf__cached_prefix *entry, kvf__prefix_ref *ref);
bool kvf__prefix_same_file(const struct stat *a, const struct stat *b);

/* Adds the name of a file that no pass has found yet; NULL: there is none. */
kvf__cached_prefix *kvf__prefix_find_file(kvf_ctx *ctx, kvf__prefix_cache *cache, const char *name);
/* Reads an entry of a folder unless it holds the file's present content; false as
 * kvf__prefix_cache_use. */
bool kvf__prefix_bring(kvf_ctx *ctx, kvf__prefix_cache *cache, kvf__cached_prefix *entry,
                       size_t *wait, kvf__problem *problem);

#endif
