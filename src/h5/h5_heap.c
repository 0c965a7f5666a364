/* Global heaps, where HDF5 keeps variable-length text, checked before HDF5 reads them.
 *
 * They have no checksum, and HDF5 1.10 trusts them: a wrong size or number of an object makes it
 * read or write past its blocks or loop forever. (In 28000 trials that flipped single bytes of a
 * prefix file without a seal, every crash came from here.) A seal does not help against a malicious
 * file. So objects must tile each heap that an attribute refers to, and each reference must match
 * the length of its object.
 *
 *   heap:      "GCOL" version u8 = 1, 0 u8[3], size u64, objects ... to the end
 *   object:    number u16, references u16, 0 u32, size u64, bytes padded to 8; 0 is the free rest
 *   reference: length u32, address of the heap u64, number u32 (under the attribute's checksum)
 *
 * HDF5 File Format Specification 3.0, III.E. */
#include "h5.h"

#include <string.h>

static const char MAGIC[] = "GCOL\1";

enum { MAGIC_BYTES = sizeof MAGIC - 1, HEAP_HEAD = 16, OBJECT_HEAD = 16, MIN_HEAP = 4096 };
enum { REFERENCE = 16, MAX_TEXTS = 32, MAX_NUMBERS = 65536, MAX_HEAPS = 256 };
enum { GROWTH = 16, SLACK = 64 << 20 }; /* bytes of heaps to walk, relative to those of the file */

/* The file, and a heap in it: its address and, by number, the length of each object plus 1; 0: no
 * such object. */
typedef struct heap {
    kvf_ctx *ctx;
    const char *path;
    const uint8_t *data;
    size_t n, at;
    uint64_t *sizes; /* [MAX_NUMBERS] */
} heap;

static kvf_status bad_heap(const heap *h, const char *what)
{
    return kvf__fail(h->ctx, KVF_EFORMAT, "%s: damaged: the heap of texts at byte %zu %s", h->path,
                     h->at, what);
}

static kvf__reader reader_at(const heap *h, size_t at)
{
    return (kvf__reader){.data = h->data, .n = h->n, .at = at};
}

static size_t pad8(size_t n)
{
    return (n + 7) & ~(size_t)7;
}

/* Checks the object at *at and moves to the next. */
static kvf_status pass_object(heap *h, size_t *at, size_t end)
{
    kvf__reader r = reader_at(h, *at);
    uint16_t number = kvf__read_u16(&r);
    kvf__read_u16(&r);
    kvf__read_u32(&r);
    uint64_t size = kvf__read_u64(&r);
    size_t left = end - *at;

    if (number == 0) {
        if (size != left) return bad_heap(h, "has free space that does not reach its end");
        *at = end;
        return KVF_OK;
    }
    if (size > left - OBJECT_HEAD || pad8((size_t)size) > left - OBJECT_HEAD)
        return bad_heap(h, "holds an object longer than itself");
    if (h->sizes[number]) return bad_heap(h, "holds two objects with the same number");
    h->sizes[number] = size + 1;
    *at += OBJECT_HEAD + pad8((size_t)size);
    return KVF_OK;
}

static kvf_status check_objects(heap *h)
{
    kvf__reader r = reader_at(h, h->at + 8);
    uint64_t size = kvf__read_u64(&r);
    size_t at = h->at + HEAP_HEAD, end;

    if (r.failed || size < MIN_HEAP || size > h->n - h->at)
        return bad_heap(h, "reaches past the end of the file");
    end = h->at + (size_t)size;
    memset(h->sizes, 0, MAX_NUMBERS * sizeof *h->sizes);
    while (end - at >= OBJECT_HEAD)
        KVF_TRY(pass_object(h, &at, end));
    return KVF_OK;
}

/* Like memmem, for rare patterns in numeric data: a vectorisable loop skips blocks without the
 * first two bytes in sequence. len is at least 2. */
static const uint8_t *find(const uint8_t *data, size_t n, const void *what, size_t len)
{
    enum { BLOCK = 4096 };
    const uint8_t *want = what;
    size_t at = 0;

    for (; n - at >= BLOCK + len; at += BLOCK) {
        const uint8_t *block = data + at, first = want[0], second = want[1], *found;
        uint8_t any = 0;
        for (size_t i = 0; i < BLOCK; i++)
            any |= (uint8_t)((block[i] == first) & (block[i + 1] == second));
        if (any && (found = memmem(block, BLOCK + len - 1, what, len)) != NULL) return found;
    }
    return memmem(data + at, n - at, what, len);
}

/* Returns the next occurrence of the heap's address in the file; n if none. */
static size_t next_reference(const heap *h, size_t from)
{
    const uint64_t address = h->at; /* little endian, as in the file */
    const uint8_t *found = from < h->n ? find(h->data + from, h->n - from, &address, sizeof address)
                                       : NULL;

    return found ? (size_t)(found - h->data) : h->n;
}

static bool bytes_are(const heap *h, size_t end, size_t back, const char *want)
{
    return end >= back && memcmp(h->data + end - back, want, 4) == 0;
}

/* Returns the number of texts from `at` on, from the dataspace that ends there (version 2): one, or
 * a list of n, with or without its maximum length. 0: no dataspace. */
static uint64_t texts_from(const heap *h, size_t at)
{
    kvf__reader r;

    if (bytes_are(h, at, 4, "\2\0\0\0")) return 1;
    if (bytes_are(h, at, 12, "\2\1\0\1"))
        r = reader_at(h, at - 8);
    else if (bytes_are(h, at, 20, "\2\1\1\1"))
        r = reader_at(h, at - 16);
    else
        return 0;
    return kvf__read_u64(&r);
}

/* Returns whether a variable-length type (class 9, elements of 16 bytes) precedes a dataspace that
 * ends at `end`, as in an attribute of texts. Plain data too has its sizes after a dataspace, and
 * one of them may equal the heap's address. */
static bool is_of_texts(const heap *h, size_t end)
{
    enum { LONGEST_TYPE = 96 };
    for (size_t back = 8; back <= LONGEST_TYPE && back <= end; back++) {
        const uint8_t *type = h->data + end - back;
        if ((type[0] & 15) == 9 && !memcmp(type + 4, "\20\0\0\0", 4)) return true;
    }
    return false;
}

/* Returns whether HDF5 would read past a reference at `at`, in a list before others: it has no
 * text, or one in some heap. */
static bool is_passed(const heap *h, size_t at)
{
    kvf__reader r = reader_at(h, at);
    const uint32_t length = kvf__read_u32(&r);
    const uint64_t address = kvf__read_u64(&r);

    return length == 0 || (address < h->n && h->n - address >= MIN_HEAP &&
                           memcmp(h->data + address, MAGIC, MAGIC_BYTES) == 0);
}

/* Returns whether the address at `at` belongs to an attribute's text, and is not an equal
 * number. */
static bool is_reference(const heap *h, size_t at)
{
    for (size_t i = 0; i < MAX_TEXTS && at - 4 >= REFERENCE * i; i++) {
        const size_t end = at - 4 - REFERENCE * i;
        if (texts_from(h, end) > i && is_of_texts(h, end)) return true;
        if (end < REFERENCE || !is_passed(h, end - REFERENCE)) break;
    }
    return false;
}

static kvf_status check_reference(const heap *h, size_t at)
{
    kvf__reader r = reader_at(h, at - 4);
    uint32_t length = kvf__read_u32(&r);
    kvf__read_u64(&r);
    uint32_t number = kvf__read_u32(&r);

    if (length == 0) return KVF_OK; /* HDF5 does not follow it */
    if (number >= MAX_NUMBERS || h->sizes[number] == 0)
        return bad_heap(h, "has no object for a reference");
    if (h->sizes[number] - 1 != length)
        return bad_heap(h, "holds an object whose length differs from its reference");
    return KVF_OK;
}

/* Checks a heap. Bytes that look like a heap without any reference are values, which HDF5 does not
 * interpret. */
static kvf_status check_heap(heap *h)
{
    bool checked = false;

    for (size_t at = next_reference(h, 4); at < h->n; at = next_reference(h, at + 1)) {
        if (!is_reference(h, at)) continue;
        if (!checked) KVF_TRY(check_objects(h));
        checked = true;
        KVF_TRY(check_reference(h, at));
    }
    return KVF_OK;
}

kvf_status kvf__h5_check_heaps(kvf_ctx *ctx, const char *path, const uint8_t *data, size_t n)
{
    heap h = {.ctx = ctx, .path = path, .data = data, .n = n};
    const uint8_t *found = data;
    int heaps = 0;

    kvf_status st = kvf__alloc_array(ctx, MAX_NUMBERS, sizeof *h.sizes, &h.sizes);
    while (!st && (found = find(found, n - (size_t)(found - data), MAGIC, MAGIC_BYTES)) != NULL) {
        h.at = (size_t)(found - data);
        if (++heaps > MAX_HEAPS)
            st = kvf__fail(ctx, KVF_EUNSUPPORTED, "%s: has more than %d heaps of texts", path,
                           MAX_HEAPS);
        else
            st = check_heap(&h);
        found++;
    }
    kvf__free(h.sizes);
    return st;
}

/* Follows each reference of a dataset, which may lie anywhere. Adds the length of its text to
 * *bytes, and to *walked the size of a heap other than the previous reference's: alternating
 * between a few large heaps would take hours. */
static kvf_status follow(heap *h, size_t at, size_t *bytes, size_t *walked)
{
    kvf__reader r = reader_at(h, at);
    uint32_t length = kvf__read_u32(&r);
    uint64_t address = kvf__read_u64(&r);

    if (length == 0) return KVF_OK; /* HDF5 does not follow it */
    if (address != h->at) {
        h->at = (size_t)address;
        if (address > h->n || h->n - address < MIN_HEAP ||
            memcmp(h->data + address, MAGIC, MAGIC_BYTES) != 0)
            return bad_heap(h, "is not there");
        KVF_TRY(check_objects(h));
        r = reader_at(h, h->at + 8);
        *walked += (size_t)kvf__read_u64(&r);
        if (*walked / GROWTH > h->n + SLACK / GROWTH)
            return bad_heap(h, "alternates with others too often for their sizes");
    }
    *bytes += length;
    return check_reference(h, at + 4);
}

kvf_status kvf__h5_check_texts(kvf_ctx *ctx, const kvf__mapfile *map, size_t at, size_t count,
                               size_t *bytes)
{
    heap h = {.ctx = ctx, .path = map->path, .data = map->data, .n = map->n};
    size_t walked = 0;

    *bytes = 0;
    kvf_status st = kvf__alloc_array(ctx, MAX_NUMBERS, sizeof *h.sizes, &h.sizes);
    if (st) return st;
    if (at > h.n || (h.n - at) / REFERENCE < count) st = bad_heap(&h, "has no list of references");
    for (size_t i = 0; !st && i < count; i++)
        st = follow(&h, at + REFERENCE * i, bytes, &walked);
    kvf__free(h.sizes);
    return st;
}
