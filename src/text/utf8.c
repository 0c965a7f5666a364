/* UTF-8: reading, writing, repair.
 *
 * What enters a tokenizer is made valid first, so that everything behind it, PCRE2 above all, may
 * rely on it. Bad bytes become U+FFFD by the maximal subpart rule (Unicode 3.9, Table 3-7), as Rust
 * and Python do. */
#include "tok_int.h"

#include <assert.h>
#include <string.h>

/* The second byte's range narrows for four lead bytes: no overlong forms, no surrogates, no value
 * above U+10FFFF. */
static bool second_fits(uint8_t common, uint8_t second)
{
    switch (common) {
    case 0xE0:
        return second >= 0xA0 && second <= 0xBF;
    case 0xED:
        return second >= 0x80 && second <= 0x9F;
    case 0xF0:
        return second >= 0x90 && second <= 0xBF;
    case 0xF4:
        return second >= 0x80 && second <= 0x8F;
    default:
        return second >= 0x80 && second <= 0xBF;
    }
}

size_t kvf__utf8_len(char common)
{
    uint8_t byte = (uint8_t)common;
    return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

size_t kvf__utf8_next(const char *s, size_t n, uint32_t *cp)
{
    const uint8_t *u = (const uint8_t *)s;
    size_t want;
    uint32_t value;

    *cp = u[0];
    if (u[0] < 0x80) return 1;
    *cp = UINT32_MAX;
    if (u[0] < 0xC2 || u[0] > 0xF4) return 1;
    want = kvf__utf8_len(s[0]);
    if (n < 2 || !second_fits(u[0], u[1])) return 1;
    value = (uint32_t)(u[0] & (0xFF >> (want + 1))) << 6 | (u[1] & 0x3F);
    for (size_t i = 2; i < want; i++) {
        if (i >= n || (u[i] & 0xC0) != 0x80) return i;
        value = value << 6 | (u[i] & 0x3F);
    }
    *cp = value;
    return want;
}

size_t kvf__utf8_put(char out[4], uint32_t cp)
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (char)(0x80 | (cp & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (char)(0x80 | (cp & 0x3F));
    return 4;
}

size_t kvf__utf8_before(const char *s, size_t at)
{
    assert(at > 0);
    do
        at--;
    while (at > 0 && ((uint8_t)s[at] & 0xC0) == 0x80);
    return at;
}

size_t kvf__utf8_valid(const char *s, size_t n)
{
    size_t at = 0;
    uint32_t cp;

    while (at < n) {
        uint64_t eight;
        if (n - at >= sizeof eight) {
            memcpy(&eight, s + at, sizeof eight);
            if (!(eight & UINT64_C(0x8080808080808080))) {
                at += sizeof eight;
                continue;
            }
        }
        size_t len = kvf__utf8_next(s + at, n - at, &cp);
        if (cp == UINT32_MAX) return at;
        at += len;
    }
    return n;
}

kvf_status kvf__utf8_repair(kvf_ctx *ctx, const char *s, size_t n, kvf__buf *out)
{
    char mark[4];
    size_t mark_n = kvf__utf8_put(mark, KVF__REPLACEMENT);
    size_t at = 0;
    uint32_t cp;

    if (n == 0) return kvf__buf_add(ctx, out, "", 0); /* s may be NULL */
    for (;;) {
        size_t good = kvf__utf8_valid(s + at, n - at);
        KVF_TRY(kvf__buf_add(ctx, out, s + at, good));
        at += good;
        if (at == n) return KVF_OK;
        at += kvf__utf8_next(s + at, n - at, &cp);
        KVF_TRY(kvf__buf_add(ctx, out, mark, mark_n));
    }
}

kvf_status kvf__utf8_check(kvf_ctx *ctx, const char *where, const char *text, size_t n, bool lines)
{
    size_t at = kvf__utf8_valid(text, n), start = 0;
    long long line = 1;

    if (at == n) return KVF_OK;
    for (size_t i = 0; lines && i < at; i++) {
        if (text[i] != '\n') continue;
        start = i + 1;
        line++;
    }
    if (lines)
        return kvf__fail(ctx, KVF_EDATA, "%s:%lld: byte %zu of the line is 0x%02X, want UTF-8",
                         where, line, at - start + 1, (unsigned)(uint8_t)text[at]);
    return kvf__fail(ctx, KVF_EDATA, "%s: byte %zu is 0x%02X, want UTF-8", where, at + 1,
                     (unsigned)(uint8_t)text[at]);
}
