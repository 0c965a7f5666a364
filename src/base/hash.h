/* Fingerprints. */
#ifndef KVF_HASH_H
#define KVF_HASH_H

#include "base_int.h"

/* XXH3-128 of the added bytes, as 32 hex digits. */
typedef struct kvf__hash kvf__hash;
kvf_status kvf__hash_create(kvf_ctx *ctx, kvf__hash **out);
void kvf__hash_add(kvf__hash *hash, const void *bytes, size_t n);
void kvf__hash_hex(const kvf__hash *hash, char hex[33]);
/* Returns the hash as numbers. begin: restarts without allocating. */
void kvf__hash_words(const kvf__hash *hash, uint64_t out[2]);
void kvf__hash_of(const void *bytes, size_t n, uint64_t out[2]); /* of bytes in memory */
void kvf__hash_restart(kvf__hash *hash);
void kvf__hash_free(kvf__hash *hash);

#endif
