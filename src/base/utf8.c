/* UTF-8, and the lines of a text.
 *
 * Input of a tokenizer is made valid first, because all later code, PCRE2 above all, relies on it.
 * Bad bytes become U+FFFD by the maximal subpart rule (Unicode 3.9, Table 3-7), as in Rust and
 * Python. */
#include "utf8.h"

#include <assert.h>
#include <string.h>

/* Checks the second byte, whose range is narrower after four first bytes: no overlong forms, no
 * surrogates, no value above U+10FFFF. */
static bool second_fits(uint8_t first, uint8_t second)
{
    switch (first) {
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

size_t kvf__utf8_len(char first)
{
    uint8_t byte = (uint8_t)first;
    return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

size_t kvf__utf8_next(const char *s, size_t n, uint32_t *cp)
{
    const uint8_t *u = (const uint8_t *)s;

    *cp = u[0];
    if (u[0] < 0x80) return 1;
    *cp = UINT32_MAX;
    if (u[0] < 0xC2 || u[0] > 0xF4) return 1;
    size_t want = kvf__utf8_len(s[0]);
    if (n < 2 || !second_fits(u[0], u[1])) return 1;
    uint32_t value = (uint32_t)(u[0] & (0xFF >> (want + 1))) << 6 | (u[1] & 0x3F);
    for (size_t i = 2; i < want; i++) {
        if (i >= n || !kvf__utf8_continues(s[i])) return i;
        value = value << 6 | (u[i] & 0x3F);
    }
    *cp = value;
    return want;
}

size_t kvf__utf8_put(char out[4], uint32_t cp)
{
    static const uint8_t marks[] = {0, 0, 0xC0, 0xE0, 0xF0}; /* mark of the first byte, by length */
    size_t n = cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;

    for (size_t i = n - 1; i > 0; i--, cp >>= 6)
        out[i] = (char)(0x80 | (cp & 0x3F));
    out[0] = (char)(marks[n] | cp);
    return n;
}

size_t kvf__utf8_before(const char *s, size_t at)
{
    assert(at > 0);
    do
        at--;
    while (at > 0 && kvf__utf8_continues(s[at]));
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

int64_t kvf__utf8_count(const char *s, size_t n)
{
    int64_t count = 0;

    for (size_t i = 0; i < n; i++)
        count += !kvf__utf8_continues(s[i]);
    return count;
}

size_t kvf__utf8_skip(const char *s, size_t n, size_t at, bool (*is)(uint32_t cp))
{
    uint32_t cp;

    for (size_t length; at < n; at += length) {
        length = kvf__utf8_next(s + at, n - at, &cp);
        if (!is(cp)) break;
    }
    return at;
}

size_t kvf__utf8_skip_back(const char *s, size_t at, bool (*is)(uint32_t cp))
{
    uint32_t cp;

    for (size_t start; at > 0; at = start) {
        start = kvf__utf8_before(s, at);
        kvf__utf8_next(s + start, at - start, &cp);
        if (!is(cp)) break;
    }
    return at;
}

/* ---- checking -------------------------------------------------------------------------------- */

kvf_status kvf__utf8_repair(kvf_ctx *ctx, const char *s, size_t n, kvf__buf *out)
{
    size_t at = 0;
    uint32_t cp;

    if (n == 0) return kvf__buf_add(ctx, out, "", 0); /* s may be NULL */
    for (;;) {
        size_t good = kvf__utf8_valid(s + at, n - at);
        KVF_TRY(kvf__buf_add(ctx, out, s + at, good));
        at += good;
        if (at == n) return KVF_OK;
        at += kvf__utf8_next(s + at, n - at, &cp);
        KVF_TRY(kvf__buf_add(ctx, out, KVF__REPLACEMENT_UTF8, 3));
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

/* ---- lines ----------------------------------------------------------------------------------- */

bool kvf__next_line(const char *text, size_t bytes, size_t *at, const char **line, size_t *n)
{
    if (*at >= bytes) return false;
    const char *stop = memchr(text + *at, '\n', bytes - *at);
    *line = text + *at;
    *n = stop ? (size_t)(stop - *line) : bytes - *at;
    *at += *n + 1;
    if (*n && (*line)[*n - 1] == '\r') --*n;
    return true;
}

/* Returns the number of white-space bytes at the start of text[0 .. n). */
static size_t space_at(const char *text, size_t n)
{
    if (n && strchr(" \t\r\n", *text) && *text) return 1;
    return n > 1 && !memcmp(text, "\xC2\xA0", 2) ? 2 : 0;
}

void kvf__trim_space(const char **text, size_t *n)
{
    for (size_t k; (k = space_at(*text, *n)); *n -= k)
        *text += k;
    for (size_t k = 1; *n && k; *n -= k) {
        k = space_at(*text + *n - 1, 1);
        if (!k && *n > 1 && space_at(*text + *n - 2, 2) == 2) k = 2;
    }
}

bool kvf__is_blank_line(const char *line, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r') return false;
    return true;
}
