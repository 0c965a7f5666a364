/* Checks of an HDF5 file's bytes before HDF5 reads it: superblock, length, seal.
 *
 * HDF5 1.10 crashes on damaged files with superblock 0 (h5py's default). Version 2, whose metadata
 * have checksums, is much more robust, so older ones are refused by name. The seal "
 * kvfold xxh3-128 HEX
 * " after the last byte of HDF5 covers all bytes before it, and thus the parts without checksums
 * (text, the chunk index). Layout of the superblock: HDF5 File Format Specification 3.0, II.A. */
#include "h5.h"
#include "hash.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static const uint8_t SIGNATURE[8] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
static const char SEAL[] = "\nkvfold xxh3-128 ";

/* Fields of superblock 2 and 3. */
enum {
    AT_VERSION = 8,
    AT_OFFSET_SIZE = 9,
    AT_LENGTH_SIZE = 10,
    AT_FLAGS = 11,
    AT_BASE = 12,
    AT_END = 28,
    SUPERBLOCK_BYTES = 48
};
enum { SEAL_HEAD = sizeof SEAL - 1, HEX = 32, SEAL_BYTES = SEAL_HEAD + HEX + 1 };
enum { SLICE = 4 << 20 };
enum { OPEN_FOR_WRITING = 1 | 4 }; /* flags set until the writer closes the file; 4: as SWMR */

/* Computes the seal of the file's first n bytes and releases their pages along the way: kept, they
 * would be the peak of a training run's memory. */
static kvf_status make_seal(kvf_ctx *ctx, const kvf__mapfile *map, size_t n, char seal[SEAL_BYTES])
{
    kvf__hash *hash = NULL;
    char hex[HEX + 1];

    KVF_TRY(kvf__hash_create(ctx, &hash));
    for (size_t at = 0; at < n; at += SLICE) {
        kvf__hash_add(hash, map->data + at, n - at < SLICE ? n - at : SLICE);
        kvf__mapfile_forget(map);
    }
    kvf__hash_hex(hash, hex);
    kvf__hash_free(hash);
    memcpy(seal, SEAL, SEAL_HEAD);
    memcpy(seal + SEAL_HEAD, hex, HEX);
    seal[SEAL_BYTES - 1] = '\n';
    return KVF_OK;
}

static uint64_t u64_at(const kvf__mapfile *map, size_t at)
{
    kvf__reader reader = {.data = map->data, .n = map->n, .at = at};
    return kvf__read_u64(&reader);
}

static bool is_hdf5(const kvf__mapfile *map)
{
    return map->n >= sizeof SIGNATURE && !memcmp(map->data, SIGNATURE, sizeof SIGNATURE);
}

static kvf_status check_superblock(kvf_ctx *ctx, const kvf__mapfile *map, uint64_t *end)
{
    const char *path = map->path;

    if (!is_hdf5(map))
        return kvf__fail(ctx, KVF_EFORMAT,
                         "%s: not an HDF5 file (its first 8 bytes are not HDF5's signature)", path);
    if (map->n < SUPERBLOCK_BYTES)
        return kvf__fail(ctx, KVF_EFORMAT,
                         "%s: truncated: has %zu bytes, but the superblock alone needs %d", path,
                         map->n, SUPERBLOCK_BYTES);
    if (map->data[AT_VERSION] < 2)
        return kvf__fail(
            ctx, KVF_EUNSUPPORTED,
            "%s: HDF5 superblock version %d (h5py's default, without checksums), want 2 or 3: "
            "write it with h5py.File(name, \"w\", libver=(\"v108\", \"v108\"))",
            path, map->data[AT_VERSION]);
    if (map->data[AT_VERSION] > 3)
        return kvf__fail(ctx, KVF_EUNSUPPORTED, "%s: HDF5 superblock version %d, want 2 or 3", path,
                         map->data[AT_VERSION]);
    if (map->data[AT_OFFSET_SIZE] != 8 || map->data[AT_LENGTH_SIZE] != 8 ||
        u64_at(map, AT_BASE) != 0)
        return kvf__fail(ctx, KVF_EUNSUPPORTED,
                         "%s: HDF5 superblock: offsets of %d bytes, lengths of %d, base address "
                         "%llu, want 8, 8 and 0",
                         path, map->data[AT_OFFSET_SIZE], map->data[AT_LENGTH_SIZE],
                         (unsigned long long)u64_at(map, AT_BASE));
    *end = u64_at(map, AT_END);
    return KVF_OK;
}

/* Checks that a matching seal, or nothing, follows `end`. */
static kvf_status check_seal(kvf_ctx *ctx, const kvf__mapfile *map, uint64_t end)
{
    char want[SEAL_BYTES];
    const uint8_t *found = map->data + end;
    size_t behind = map->n - (size_t)end;

    if (behind == 0) return KVF_OK;
    if (behind != SEAL_BYTES || memcmp(found, SEAL, SEAL_HEAD) != 0)
        return kvf__fail(ctx, KVF_EFORMAT,
                         "%s: has %zu bytes after the end given in the superblock (byte %llu)",
                         map->path, behind, (unsigned long long)end);
    KVF_TRY(make_seal(ctx, map, (size_t)end, want));
    if (memcmp(found, want, SEAL_BYTES) != 0)
        return kvf__fail(
            ctx, KVF_EFORMAT,
            "%s: damaged: the bytes hash to %.32s, but the file was sealed with %.32s (xxh3-128)",
            map->path, want + SEAL_HEAD, (const char *)found + SEAL_HEAD);
    return KVF_OK;
}

static kvf_status check_bytes(kvf_ctx *ctx, const kvf__mapfile *map)
{
    uint64_t end = 0;

    KVF_TRY(check_superblock(ctx, map, &end));
    if (end > map->n || end < SUPERBLOCK_BYTES)
        return kvf__fail(ctx, KVF_EFORMAT,
                         "%s: truncated: has %zu bytes, but the superblock says %llu", map->path,
                         map->n, (unsigned long long)end);
    KVF_TRY(check_seal(ctx, map, end));
    return kvf__h5_check_heaps(ctx, map->path, map->data, (size_t)end);
}

/* A file that is being written is not damaged, and must not be deleted as such. */
kvf_status kvf__h5_check_bytes(kvf_ctx *ctx, const kvf__mapfile *map)
{
    const kvf_status st = check_bytes(ctx, map);

    if (st != KVF_EFORMAT || !is_hdf5(map) || map->n < SUPERBLOCK_BYTES ||
        !(map->data[AT_FLAGS] & OPEN_FOR_WRITING))
        return st;
    return kvf__fail(
        ctx, st,
        "%s: is open for writing elsewhere, or was not closed by the program that wrote it",
        map->path);
}

kvf_status kvf__h5_seal(kvf_ctx *ctx, int fd, const char *path)
{
    kvf__mapfile map = {0};
    char seal[SEAL_BYTES];

    kvf_status st = kvf__mapfile_of(ctx, path, fd, &map);
    if (!st) st = make_seal(ctx, &map, map.n, seal);
    if (!st && lseek(fd, 0, SEEK_END) < 0)
        st = kvf__fail(ctx, KVF_EIO, "%s: cannot write: %s", path, strerror(errno));
    if (!st) st = kvf__write_all(ctx, path, fd, seal, sizeof seal);
    kvf__mapfile_close(&map);
    return st;
}
