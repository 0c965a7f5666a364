/* Decompresses gzip files (RFC 1952), recognised by their first bytes. They are decompressed in
 * memory, one member after the other, as gzip does. The result may be a thousand times as long as
 * the file, so it has a fixed limit besides available memory. */
#include "file_rows.h"

#include <zlib.h>

enum { CHUNK = 1 << 16, WINDOW_OF_GZIP = 15 + 16 };
#define MOST_BYTES ((size_t)2 << 30)

bool kvf__is_gzip(const char *bytes, size_t n)
{
    return n > 1 && (unsigned char)bytes[0] == 0x1F && (unsigned char)bytes[1] == 0x8B;
}

static kvf_status damaged(kvf_ctx *ctx, const char *path, const z_stream *z, int code)
{
    if (code == Z_MEM_ERROR)
        return kvf__fail(ctx, KVF_ENOMEM, "%s: out of memory while unpacking", path);
    return kvf__fail(ctx, KVF_EFORMAT, "%s: the gzip data is damaged at byte %lu: %s", path,
                     z->total_in,
                     code == Z_BUF_ERROR ? "it ends too early"
                     : z->msg            ? z->msg
                                         : "no gzip header");
}

/* Decompresses one member; z->next_in then points past it. */
static kvf_status unpack_member(kvf_ctx *ctx, const char *path, z_stream *z, kvf__buf *out)
{
    char chunk[CHUNK];
    for (int code = Z_OK; code != Z_STREAM_END;) {
        z->next_out = (Bytef *)chunk;
        z->avail_out = CHUNK;
        code = inflate(z, Z_NO_FLUSH);
        if (code != Z_OK && code != Z_STREAM_END) return damaged(ctx, path, z, code);
        size_t n = CHUNK - z->avail_out;
        if (n > MOST_BYTES - out->n)
            return kvf__fail(ctx, KVF_EFORMAT, "%s: unpacks to more than %zu GiB: unpack it first",
                             path, MOST_BYTES >> 30);
        KVF_TRY(kvf__buf_add(ctx, out, chunk, n));
    }
    return KVF_OK;
}

/* Decompresses all members. zlib counts its input in 32 bits, which limits the file. */
static kvf_status unpack_all(kvf_ctx *ctx, const char *path, const kvf__buf *packed, z_stream *z,
                             kvf__buf *out)
{
    if (packed->n > UINT32_MAX)
        return kvf__fail(ctx, KVF_EFORMAT,
                         "%s: the gzip file is larger than 4 GiB: unpack it first", path);
    z->next_in = (Bytef *)packed->data;
    z->avail_in = (uInt)packed->n;
    do {
        KVF_TRY(unpack_member(ctx, path, z, out));
        while (z->avail_in && !*z->next_in) { /* zero padding, as on tapes */
            z->next_in++;
            z->avail_in--;
        }
    } while (z->avail_in && inflateReset(z) == Z_OK);
    return KVF_OK;
}

kvf_status kvf__gunzip(kvf_ctx *ctx, const char *path, const kvf__buf *packed, kvf__buf *out)
{
    z_stream z = {0};
    kvf__buf text = {0};
    int code = inflateInit2(&z, WINDOW_OF_GZIP);
    if (code != Z_OK) return damaged(ctx, path, &z, code);
    kvf_status st = unpack_all(ctx, path, packed, &z, &text);
    inflateEnd(&z);
    KVF__GIVE(st, out, text, kvf__buf_done(&text));
    return st;
}
