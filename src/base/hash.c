/* XXH3-128 as a stream: the fingerprint of bases, data files and runs. It distinguishes files at
 * the speed of memory, but does not resist deliberate collisions. The hex form is the canonical
 * (big-endian) one that `xxhsum -H2` prints. */
#include "hash.h"

#include <stdio.h>
#include <xxhash.h>

struct kvf__hash {
    XXH3_state_t *state;
};

kvf_status kvf__hash_create(kvf_ctx *ctx, kvf__hash **out)
{
    kvf__hash *hash = NULL;

    kvf_status st = kvf__alloc(ctx, sizeof *hash, &hash);
    if (st) goto out;
    hash->state = XXH3_createState();
    if (!hash->state || XXH3_128bits_reset(hash->state) != XXH_OK) {
        st = kvf__fail(ctx, KVF_ENOMEM, "out of memory: cannot start a fingerprint");
        goto out;
    }
    *out = hash;
    hash = NULL;
out:
    kvf__hash_free(hash);
    return st;
}

void kvf__hash_add(kvf__hash *hash, const void *bytes, size_t n)
{
    if (n) XXH3_128bits_update(hash->state, bytes, n);
}

void kvf__hash_hex(const kvf__hash *hash, char hex[33])
{
    XXH128_canonical_t canonical;

    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(hash->state));
    for (size_t i = 0; i < sizeof canonical.digest; i++)
        snprintf(hex + 2 * i, 3, "%02x", canonical.digest[i]);
}

static void to_words(XXH128_hash_t value, uint64_t out[2])
{
    out[0] = value.low64;
    out[1] = value.high64;
}

void kvf__hash_words(const kvf__hash *hash, uint64_t out[2])
{
    to_words(XXH3_128bits_digest(hash->state), out);
}

void kvf__hash_of(const void *bytes, size_t n, uint64_t out[2])
{
    to_words(XXH3_128bits(bytes, n), out);
}

void kvf__hash_restart(kvf__hash *hash)
{
    XXH3_128bits_reset(hash->state);
}

void kvf__hash_free(kvf__hash *hash)
{
    if (!hash) return;
    XXH3_freeState(hash->state);
    kvf__free(hash);
}
