/* Storage of the states of --keep-states, in memory, then in a file. An item is an array of floats
 * under a key. */
#ifndef KVF_STATES_STORE_H
#define KVF_STATES_STORE_H

#include "base_int.h"

#include <stdio.h>

typedef struct kvf__stored {
    uint64_t key[2];
    int64_t n, at; /* number of floats, 0: free slot; file offset of the first one */
    float *x;      /* in memory; NULL: in the file */
} kvf__stored;

typedef struct kvf__states_block {
    float *x;
    int64_t room, used; /* capacity; used, in floats */
} kvf__states_block;

typedef struct kvf__states_store {
    kvf_ctx *ctx;
    kvf__stored *item;              /* [places] hash table, at most half full */
    int64_t places, n, found;       /* slots; items; items that the file had at the start */
    kvf__states_block *block;       /* [n_blocks] */
    size_t n_blocks, memory, limit; /* number of blocks; their bytes; limit */
    char *folder;
    int fd;      /* file descriptor; -1: none yet */
    int64_t end; /* size of the file in bytes */
    bool full, said;
    char line[256]; /* message for `full` */
} kvf__states_store;

/* memory: limit in bytes. beside: a path whose folder gets the file. If processes share a file in
 * turn (KVF__STATES_FD), all items are in it, and items that it already has are found. */
kvf_status kvf__states_store_init(kvf_ctx *ctx, size_t memory, const char *beside,
                                  kvf__states_store *out);
void kvf__states_store_done(kvf__states_store *store);
/* Reserves room for so many more items and floats: a place for every item, and memory up to the
 * limit. */
kvf_status kvf__states_store_reserve(kvf__states_store *store, int64_t items, int64_t floats);

const kvf__stored *kvf__states_store_find(const kvf__states_store *store, const uint64_t key[2]);
/* Begins a new item, whose parts are then put; kvf__states_store_end() makes it count. Returns
 * false if there is no room, and sets `full`, or if no place was reserved for the item. */
bool kvf__states_store_begin(kvf__states_store *store, const uint64_t key[2], int64_t n,
                             kvf__stored *out);
bool kvf__states_store_end(kvf__states_store *store, const kvf__stored *item);
/* Puts or gets n floats of an item, from float `from` on. */
bool kvf__states_store_put(kvf__states_store *store, const kvf__stored *item, int64_t from,
                           const float *x, int64_t n);
bool kvf__states_store_get(const kvf__states_store *store, const kvf__stored *item, int64_t from,
                           float *x, int64_t n);

#endif
