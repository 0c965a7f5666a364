/* pytorch_model.bin: the zip archive of torch.save (torch 1.6 and later), whose members are stored,
 * not compressed (APPNOTE.TXT of PKWARE, 4.3; torch's caffe2/serialize/inline_container.cc).
 *
 * The central directory at the end is read, with its ZIP64 fields; every offset and length is
 * checked against the file before it is used. */
#include "torch_zip.h"

#include <string.h>

enum { END_BYTES = 22, LOCATOR_BYTES = 20, ENTRY_BYTES = 46, LOCAL_BYTES = 30, END64_BYTES = 56 };
#define END_MARK     UINT32_C(0x06054b50)
#define LOCATOR_MARK UINT32_C(0x07064b50)
#define END64_MARK   UINT32_C(0x06064b50)
#define ENTRY_MARK   UINT32_C(0x02014b50)
#define LOCAL_MARK   UINT32_C(0x04034b50)
#define IN_EXTRA     UINT32_C(0xffffffff) /* the number is in the ZIP64 field */

static const char PICKLE[] = "data.pkl";

typedef struct entry {
    const char *name;
    size_t name_bytes;
    uint64_t stored, size, offset;
    unsigned method, flags;
} entry;

static kvf_status damaged(const kvf__zip *zip, const char *what)
{
    return kvf__fail(zip->ctx, KVF_EFORMAT, "%s: %s is damaged or cut short", zip->where, what);
}

static kvf__reader reader_at(const kvf__zip *zip, uint64_t at)
{
    const bool inside = at <= zip->n;
    return (kvf__reader){
        .data = zip->data, .n = zip->n, .at = inside ? (size_t)at : zip->n, .failed = !inside};
}

/* ---- the directory --------------------------------------------------------------------------- */

/* Where the archive ends: the last mark that leaves room for what follows it. */
static bool find_end(const kvf__zip *zip, size_t *out)
{
    const size_t most = END_BYTES + 65535;
    uint32_t mark;

    for (size_t back = END_BYTES; back <= zip->n && back <= most; back++) {
        memcpy(&mark, zip->data + zip->n - back, sizeof mark);
        if (mark != END_MARK) continue;
        *out = zip->n - back;
        return true;
    }
    return false;
}

static kvf_status find_directory(const kvf__zip *zip, uint64_t *at, uint64_t *entries)
{
    size_t end = 0;

    if (!find_end(zip, &end))
        return kvf__fail(zip->ctx, KVF_EUNSUPPORTED,
                         "%s: no zip archive, as torch writes since 1.6: load it with torch and "
                         "save it as safetensors",
                         zip->where);
    kvf__reader r = reader_at(zip, end + 10);
    *entries = kvf__read_u16(&r);
    (void)kvf__read_u32(&r);
    *at = kvf__read_u32(&r);
    if (end < LOCATOR_BYTES) return KVF_OK;
    kvf__reader locator = reader_at(zip, end - LOCATOR_BYTES);
    if (kvf__read_u32(&locator) != LOCATOR_MARK) return KVF_OK;
    (void)kvf__read_u32(&locator);
    kvf__reader end64 = reader_at(zip, kvf__read_u64(&locator));
    if (kvf__read_u32(&end64) != END64_MARK) return damaged(zip, "the end of the archive");
    (void)kvf__read_bytes(&end64, 28);
    *entries = kvf__read_u64(&end64);
    (void)kvf__read_u64(&end64);
    *at = kvf__read_u64(&end64);
    return end64.failed ? damaged(zip, "the end of the archive") : KVF_OK;
}

/* Numbers that did not fit, in the order of the format. */
static bool read_extra(const uint8_t *bytes, size_t n, entry *e)
{
    kvf__reader r = {.data = bytes, .n = n};
    uint64_t *const wanted[] = {&e->size, &e->stored, &e->offset};

    while (r.n - r.at >= 4) {
        const unsigned id = kvf__read_u16(&r);
        const size_t length = kvf__read_u16(&r);
        const uint8_t *field = kvf__read_bytes(&r, length);
        if (!field) return false;
        if (id != 1) continue;
        kvf__reader f = {.data = field, .n = length};
        for (int i = 0; i < 3; i++)
            if (*wanted[i] == IN_EXTRA) *wanted[i] = kvf__read_u64(&f);
        return !f.failed;
    }
    return true;
}

static bool read_entry(kvf__reader *r, entry *e)
{
    const bool marked = kvf__read_u32(r) == ENTRY_MARK;

    (void)kvf__read_u32(r);
    e->flags = kvf__read_u16(r);
    e->method = kvf__read_u16(r);
    (void)kvf__read_bytes(r, 8); /* time, checksum */
    e->stored = kvf__read_u32(r);
    e->size = kvf__read_u32(r);
    e->name_bytes = kvf__read_u16(r);
    const size_t extra = kvf__read_u16(r), comment = kvf__read_u16(r);
    (void)kvf__read_bytes(r, 8);
    e->offset = kvf__read_u32(r);
    e->name = (const char *)kvf__read_bytes(r, e->name_bytes);
    const uint8_t *extra_at = kvf__read_bytes(r, extra);
    (void)kvf__read_bytes(r, comment);
    return marked && !r->failed && read_extra(extra_at, extra, e);
}

/* ---- members --------------------------------------------------------------------------------- */

static kvf_status place_member(const kvf__zip *zip, const entry *e, kvf__zip_member *out)
{
    const int shown = e->name_bytes < 80 ? (int)e->name_bytes : 80;

    if (e->method || e->flags & 1 || e->stored != e->size)
        return kvf__fail(zip->ctx, KVF_EUNSUPPORTED,
                         "%s: \"%.*s\" is compressed or encrypted, as torch never writes it",
                         zip->where, shown, e->name);
    kvf__reader r = reader_at(zip, e->offset);
    const bool marked = kvf__read_u32(&r) == LOCAL_MARK;
    (void)kvf__read_bytes(&r, 22);
    const size_t name = kvf__read_u16(&r), extra = kvf__read_u16(&r);
    (void)kvf__read_bytes(&r, name + extra);
    if (!marked || r.failed || e->size > r.n - r.at) return damaged(zip, "a member of the archive");
    *out = (kvf__zip_member){r.data + r.at, (size_t)e->size};
    return KVF_OK;
}

static kvf_status add_member(kvf__zip *zip, const entry *e)
{
    const size_t tail = sizeof PICKLE - 1;
    int64_t there;

    if (kvf__map_get(&zip->by_name, e->name, e->name_bytes, &there))
        return kvf__fail(zip->ctx, KVF_EFORMAT, "%s: two members of one name", zip->where);
    KVF_TRY(place_member(zip, e, &zip->members[zip->n_members]));
    KVF_TRY(kvf__map_put(zip->ctx, &zip->by_name, e->name, e->name_bytes, (int64_t)zip->n_members));
    zip->n_members++;
    if (e->name_bytes > tail && e->name[e->name_bytes - tail - 1] == '/' &&
        !memcmp(e->name + e->name_bytes - tail, PICKLE, tail) && !zip->root) {
        zip->root = e->name;
        zip->root_bytes = e->name_bytes - tail;
    }
    return KVF_OK;
}

kvf_status kvf__zip_open(kvf__zip *zip)
{
    uint64_t at = 0, entries = 0;
    kvf__zip_member order;

    KVF_TRY(find_directory(zip, &at, &entries));
    if (entries > zip->n / ENTRY_BYTES) return damaged(zip, "the directory of the archive");
    KVF_TRY(kvf__alloc_array(zip->ctx, (size_t)entries, sizeof *zip->members, &zip->members));
    kvf__reader r = reader_at(zip, at);
    for (uint64_t i = 0; i < entries; i++) {
        entry e = {0};
        if (!read_entry(&r, &e)) return damaged(zip, "the directory of the archive");
        KVF_TRY(add_member(zip, &e));
    }
    if (!zip->root)
        return kvf__fail(zip->ctx, KVF_EFORMAT, "%s: a zip archive without data.pkl", zip->where);
    if (kvf__zip_find(zip, "byteorder", 9, &order) &&
        (order.n != 6 || memcmp(order.bytes, "little", 6) != 0))
        return kvf__fail(zip->ctx, KVF_EUNSUPPORTED, "%s: byte order is not little", zip->where);
    return KVF_OK;
}

void kvf__zip_close(kvf__zip *zip)
{
    kvf__free(zip->members);
    kvf__map_done(&zip->by_name);
}

bool kvf__zip_find(const kvf__zip *zip, const char *name, size_t n, kvf__zip_member *out)
{
    char full[512];
    int64_t at;

    if (zip->root_bytes + n > sizeof full) return false;
    memcpy(full, zip->root, zip->root_bytes);
    memcpy(full + zip->root_bytes, name, n);
    if (!kvf__map_get(&zip->by_name, full, zip->root_bytes + n, &at)) return false;
    *out = zip->members[at];
    return true;
}

kvf_status kvf__torch_parse(kvf_ctx *ctx, const char *where, const void *bytes, size_t n,
                            kvf__weights *weights)
{
    kvf__zip zip = {.ctx = ctx, .where = where, .data = bytes, .n = n};
    kvf__zip_member pickle;

    kvf_status st = kvf__zip_open(&zip);
    if (!st && kvf__zip_find(&zip, PICKLE, sizeof PICKLE - 1, &pickle))
        st = kvf__pickle_read(&zip, &pickle, &weights->table);
    kvf__zip_close(&zip);
    return st;
}
