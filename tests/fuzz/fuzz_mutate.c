/* Random byte mutations for machines without libFuzzer, and correction of HDF5's checksums. */
#include "fuzz_mutate.h"

#include <string.h>

size_t fuzz_mutate(kvf__rng *rng, uint8_t *bytes, size_t n, size_t room)
{
    static const uint64_t NUMBERS[] = {0,
                                       1,
                                       0x7f,
                                       0x80,
                                       0xff,
                                       0xffff,
                                       0x7fffffff,
                                       0xffffffff,
                                       UINT64_MAX,
                                       INT64_MAX,
                                       UINT64_C(1) << 40};
    size_t at = (size_t)kvf__rng_below(rng, n), left = n - at;
    size_t m = 1 + (size_t)kvf__rng_below(rng, left < 16 ? left : 16);
    uint64_t number = NUMBERS[kvf__rng_below(rng, sizeof NUMBERS / sizeof NUMBERS[0])];
    switch (kvf__rng_below(rng, 5)) {
    case 0:
        bytes[at] ^= (uint8_t)(1U << kvf__rng_below(rng, 8));
        return n;
    case 1:
        bytes[at] = (uint8_t)kvf__rng_u64(rng);
        return n;
    case 2:
        memcpy(bytes + at, &number, m < 8 ? m : 8);
        return n;
    case 3: /* a piece is removed */
        if (m >= n) return n;
        memmove(bytes + at, bytes + at + m, left - m);
        return n - m;
    default: /* or duplicated */
        if (n + m > room) return n;
        memmove(bytes + at + m, bytes + at, left);
        return n + m;
    }
}

/* ---- HDF5 ------------------------------------------------------------------------------------ */

/* Blocks that end in a checksum begin with one of these (HDF5 File Format Specification 3.0); the
 * superblock's covers its first 44 bytes. */
static const char *const BLOCKS[] = {"OHDR", "OCHK", "BTHD", "BTIN", "BTLF", "FRHP",
                                     "FHIB", "FHDB", "FSHD", "FSSE", "FAHD", "FADB",
                                     "EAHD", "EAIB", "EASB", "EADB"};
enum { N_BLOCKS = sizeof BLOCKS / sizeof BLOCKS[0], MOST_BYTES = 4096, SUPERBLOCK_SUM = 44 };

/* Exported by every libhdf5, declared by none of its public headers: Jenkins' lookup3. */
uint32_t H5_checksum_metadata(const void *data, size_t n, uint32_t start);

static bool has_sum(const uint8_t *bytes, size_t n)
{
    uint32_t sum;
    memcpy(&sum, bytes + n, sizeof sum);
    return sum == H5_checksum_metadata(bytes, n, 0);
}

/* A loop by hand: memcmp is slow under a sanitizer, and this runs at every byte. */
static bool begins_block(const uint8_t *bytes)
{
    for (size_t i = 0; i < N_BLOCKS; i++) {
        const char *name = BLOCKS[i];
        if (bytes[0] == name[0] && bytes[1] == name[1] && bytes[2] == name[2] &&
            bytes[3] == name[3])
            return true;
    }
    return false;
}

size_t fuzz_h5_sums(const uint8_t *bytes, size_t n, fuzz_h5_sum *sums, size_t room)
{
    size_t found = 0;

    if (n > SUPERBLOCK_SUM + 4 && room && has_sum(bytes, SUPERBLOCK_SUM))
        sums[found++] = (fuzz_h5_sum){0, SUPERBLOCK_SUM};
    for (size_t at = 0; at + 8 < n && found < room; at++) {
        if (!begins_block(bytes + at)) continue;
        for (size_t m = 5; m < MOST_BYTES && at + m + 4 <= n; m++)
            if (has_sum(bytes + at, m)) {
                sums[found++] = (fuzz_h5_sum){at, m};
                break;
            }
    }
    return found;
}

void fuzz_h5_repair(uint8_t *bytes, const fuzz_h5_sum *sums, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t sum = H5_checksum_metadata(bytes + sums[i].at, sums[i].n, 0);
        memcpy(bytes + sums[i].at + sums[i].n, &sum, sizeof sum);
    }
}
