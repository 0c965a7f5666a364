/* A bounds-checked cursor over the bytes of an untrusted file.
 *
 * A failure is sticky and later reads return zeros, so a parser checks `failed` once per group of
 * fields. Values are assembled from bytes, which works on any host and for any alignment. */
#include "infile.h"

#include <string.h>

const uint8_t *kvf__read_bytes(kvf__reader *r, size_t n)
{
    const uint8_t *bytes;

    if (r->failed || r->at > r->n || n > r->n - r->at) {
        r->failed = true;
        return NULL;
    }
    /* reading 0 bytes of an empty buffer is no failure */
    bytes = r->data ? r->data + r->at : (const uint8_t *)"";
    r->at += n;
    return bytes;
}

uint64_t kvf__read_little(kvf__reader *r, size_t n)
{
    const uint8_t *bytes = kvf__read_bytes(r, n);
    uint64_t value = 0;

    for (size_t i = n; bytes && i-- > 0;)
        value = value << 8 | bytes[i];
    return value;
}

uint8_t kvf__read_u8(kvf__reader *r)
{
    return (uint8_t)kvf__read_little(r, 1);
}

uint16_t kvf__read_u16(kvf__reader *r)
{
    return (uint16_t)kvf__read_little(r, 2);
}

uint32_t kvf__read_u32(kvf__reader *r)
{
    return (uint32_t)kvf__read_little(r, 4);
}

uint64_t kvf__read_u64(kvf__reader *r)
{
    return kvf__read_little(r, 8);
}

float kvf__read_f32(kvf__reader *r)
{
    uint32_t bits = kvf__read_u32(r);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

double kvf__read_f64(kvf__reader *r)
{
    uint64_t bits = kvf__read_u64(r);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
